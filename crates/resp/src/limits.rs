//! Limits of what a client may send, and of what the hint for reserving may ask for.

/// What a request may be at most. The defaults are those of Redis, but for `arg_count` (see the
/// crate's page).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParserLimits {
    /// Bytes of one whole request, framing included. Above 4 GiB - 1 it counts as 4 GiB - 1.
    pub request_bytes: usize,
    /// Bytes of one argument.
    pub bulk_bytes: usize,
    /// Bytes of an inline request without its line end, and of a line that announces a count or a
    /// length.
    pub inline_bytes: usize,
    /// Arguments of one request.
    pub arg_count: usize,
    /// Whether the client still has to authenticate, which lowers what it may announce.
    pub authentication: Authentication,
}

/// Whether a client has yet to show a password. Until then it may not make the server hold much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Authentication {
    /// It has, or needs none.
    #[default]
    Done,
    /// It has not: at most 10 arguments of at most 16 KiB.
    Required,
}

/// Arguments of a request before authentication.
pub(crate) const UNAUTHENTICATED_ARG_COUNT: usize = 10;
/// Bytes of an argument before authentication.
pub(crate) const UNAUTHENTICATED_BULK_BYTES: usize = 16 * 1024;
/// [`Progress::Incomplete`](crate::Progress::Incomplete) asks for no more than this, or twice what
/// has arrived.
pub(crate) const HINT_BYTES_MIN: usize = 64 * 1024;
/// Once so much has arrived it asks for all of the argument under way.
pub(crate) const HINT_WHOLE_BYTES_MIN: usize = 1024 * 1024;

const REQUEST_BYTES: usize = 1 << 30;
const BULK_BYTES: usize = 512 << 20;
const INLINE_BYTES: usize = 64 << 10;
const ARG_COUNT: usize = 1 << 20;

// Offsets within a request are 32 bits wide.
const _: () = assert!(REQUEST_BYTES <= u32::MAX as usize);
// One argument of the greatest size always fits into a request.
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
