//! Limits of the server and the proxy.

/// Threads of a server or a proxy: enough to use two cores, few enough to leave the rest to the
/// code under test.
pub const THREADS: usize = 2;

/// Connections that wait to be accepted. The system drops further ones; the client's system tries
/// them again after one second, then after two and four, while many clients give up after five.
pub const BACKLOG: u32 = 1024;

/// Bytes read from a file, or sent to a client, at a time.
pub const PIECE_BYTES: usize = 256 << 10;

/// Largest object whose ETag is the MD5 of its contents, as with objects uploaded in one part.
/// Larger ones have an opaque ETag, as with objects uploaded in parts, since the MD5 of gigabytes
/// takes too long.
pub const MD5_BYTES_MAX: u64 = 1 << 20;

/// Maximum number of keys in a page of a listing, as in S3.
pub const LISTED_KEYS_MAX: usize = 1000;

/// Maximum bytes of a request's head.
pub const HEAD_BYTES_MAX: usize = 64 << 10;

/// Maximum number of headers of a request.
pub const HEADERS_MAX: usize = 100;

/// Maximum bytes of a request's body, and of a response's body that must be buffered to be changed.
pub const HELD_BODY_BYTES_MAX: usize = 256 << 20;

/// Attempts to send a request upstream: a kept-alive connection may have been closed meanwhile.
pub const UPSTREAM_ATTEMPTS: usize = 2;

/// Maximum number of requests that a proxy records; it serves later ones without recording them.
pub const SEEN_MAX: usize = 1 << 20;
