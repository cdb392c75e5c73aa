//! Named limits of the drivers.

use std::time::Duration;

/// Parts of one vectored write (IOV_MAX of Linux and macOS).
pub(crate) const WRITE_PART_COUNT_MAX: usize = 1024;

/// Readiness events taken from the system in one poll; more are taken by the next.
pub(crate) const READY_COUNT_PER_POLL: usize = 1024;

/// Clients that may wait to be accepted (the system may allow fewer).
pub(crate) const LISTEN_BACKLOG_COUNT: i32 = 1024;

/// Silence on a TCP connection after which the system asks whether the client still lives, and
/// again every third of it; after three questions without an answer the connection is broken. A
/// client whose machine is gone would hold its place for ever.
pub(crate) const KEEPALIVE_IDLE: Duration = Duration::from_secs(300);
pub(crate) const KEEPALIVE_COUNT: u32 = 3;

/// Connections accepted from one listener in one poll, so that a storm of them does not starve the
/// ones there are.
pub(crate) const ACCEPT_COUNT_PER_POLL: usize = 128;

/// Buffers' worth of bytes received in one poll before the remaining connections wait for the next.
pub(crate) const RECEIVE_BUFFERS_PER_POLL: usize = 16;

/// Writes in a row on one connection before others get their turn, when the peer reads as fast as
/// we write.
pub(crate) const SEND_CALLS_PER_TURN: usize = 4;

/// Bytes offered to the system in one write. A socket may take megabytes at once, which is a
/// millisecond that everybody else waits.
pub(crate) const SEND_BYTES_PER_CALL: usize = 256 * 1024;

/// Bytes sent between two polls before the remaining connections wait for the next. About a
/// millisecond of copying.
pub(crate) const SENT_BYTES_PER_POLL_MAX: usize = 4 * 1024 * 1024;

/// Idle receive buffers kept; as many as one poll can fill, and as many again that are still being
/// read above.
pub(crate) const POOLED_BUFFER_COUNT_MAX: usize = 32;

/// How long to leave a listener alone when the process is out of file descriptors or memory.
pub(crate) const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Receives thrown away when a connection with unread bytes is closed: unread bytes would turn the
/// close into a reset, which takes replies on their way with it.
pub(crate) const CLOSE_DRAIN_CALLS_MAX: usize = 16;

const _: () = assert!(SEND_CALLS_PER_TURN * SEND_BYTES_PER_CALL <= SENT_BYTES_PER_POLL_MAX);
const _: () = assert!(2 * RECEIVE_BUFFERS_PER_POLL <= POOLED_BUFFER_COUNT_MAX);
