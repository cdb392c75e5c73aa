//! `dolt`: what Dolt's own client asks of a remote, replayed against a store some milliseconds away, directly and through busload.
