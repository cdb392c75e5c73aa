//! Limits of what a client may send, and of the hint for reserving buffer space.

/// Limits of one request. The defaults are those of Redis, except for `arg_count` (see the crate's
/// documentation).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParserLimits {
    /// Most bytes of a whole request, framing included. Values above 4 GiB - 1 count as 4 GiB - 1.
    pub request_bytes: usize,
    /// Most bytes of one argument.
    pub bulk_bytes: usize,
    /// Most bytes of an inline request without its line end, and of a line that announces a count
    /// or a length.
    pub inline_bytes: usize,
    /// Most arguments of one request.
    pub arg_count: usize,
    /// State of the client's login; a client that still has to authenticate gets lower limits.
    pub authentication: Authentication,
}

/// State of a client's login. Until it has authenticated, it may not make the server hold much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Authentication {
    /// The client has authenticated, or need not.
    #[default]
    Done,
    /// The client must authenticate: at most 10 arguments of at most 16 KiB.
    Required,
}

/// Most arguments of a request before authentication.
pub(crate) const UNAUTHENTICATED_ARG_COUNT: usize = 10;
/// Most bytes of an argument before authentication.
pub(crate) const UNAUTHENTICATED_BULK_BYTES: usize = 16 * 1024;
/// Most bytes that [`Progress::Incomplete`](crate::Progress::Incomplete) asks for, unless twice
/// what has arrived is more.
pub(crate) const HINT_BYTES_MIN: usize = 64 * 1024;
/// Number of arrived bytes from which it asks for all of the current argument.
pub(crate) const HINT_WHOLE_BYTES_MIN: usize = 1024 * 1024;

const REQUEST_BYTES: usize = 1 << 30;
const BULK_BYTES: usize = 512 << 20;
const INLINE_BYTES: usize = 64 << 10;
const ARG_COUNT: usize = 1 << 20;

// Offsets within a request are 32 bits wide.
const _: () = assert!(REQUEST_BYTES <= u32::MAX as usize);
// One argument of the largest size always fits into a request.
const _: () = assert!(BULK_BYTES < REQUEST_BYTES);
// A request of empty arguments ("$0\r\n\r\n" each) reaches the count before the size.
const _: () = assert!(ARG_COUNT * 6 < REQUEST_BYTES);
const _: () =
    assert!(UNAUTHENTICATED_BULK_BYTES < BULK_BYTES && UNAUTHENTICATED_ARG_COUNT < ARG_COUNT);

impl Default for ParserLimits {
    fn default() -> Self {
        Self {
            request_bytes: REQUEST_BYTES,
            bulk_bytes: BULK_BYTES,
            inline_bytes: INLINE_BYTES,
            arg_count: ARG_COUNT,
            authentication: Authentication::Done,
        }
    }
}
