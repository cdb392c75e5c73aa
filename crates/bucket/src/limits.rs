//! Limits of the server and the proxy.

/// Threads of a server or a proxy: enough to use two cores, few enough to leave the rest to what is
/// tested.
pub const THREADS: usize = 2;

/// Connections that wait to be accepted: what comes above is dropped, and tried again by the
/// client's system after a second, then after two and four, while many clients give up connecting
/// after five.
pub const BACKLOG: u32 = 1024;

/// Bytes read from a file, or sent to a client, at a time.
pub const PIECE_BYTES: usize = 256 << 10;

/// Objects up to this size have the MD5 of their contents as ETag, as those uploaded in one part
/// have; larger ones an opaque one, as those uploaded in parts have, since nobody wants to wait for
/// the MD5 of gigabytes.
pub const MD5_BYTES_MAX: u64 = 1 << 20;

/// Keys in a page of a listing, as S3 has it.
pub const LISTED_KEYS_MAX: usize = 1000;

/// Bytes of a request's head.
pub const HEAD_BYTES_MAX: usize = 64 << 10;

/// Headers of a request.
pub const HEADERS_MAX: usize = 100;

/// Bytes of a request's body, and of a response's body that has to be held to be changed.
pub const HELD_BODY_BYTES_MAX: usize = 256 << 20;

/// Attempts to send a request upstream: a connection that was kept may have been closed meanwhile.
pub const UPSTREAM_ATTEMPTS: usize = 2;

/// Requests that a proxy notes; what comes later is served, but not noted.
pub const SEEN_MAX: usize = 1 << 20;
