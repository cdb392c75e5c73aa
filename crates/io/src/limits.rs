//! Limits of the drivers.

use std::time::Duration;

/// Number of parts of one vectored write (IOV_MAX of Linux and macOS).
pub(crate) const WRITE_PART_COUNT_MAX: usize = 1024;

/// Number of readiness events taken from the system in one poll; the next poll takes the rest.
pub(crate) const READY_COUNT_PER_POLL: usize = 1024;

/// Number of clients that may wait to be accepted (the system may allow fewer).
pub(crate) const LISTEN_BACKLOG_COUNT: i32 = 1024;

/// Silence on a TCP connection after which the system probes whether the client still lives. It
/// probes again after every further third of it; after three probes without an answer the
/// connection is broken. Without probes a client whose machine is gone would occupy its slot for
/// ever.
pub(crate) const KEEPALIVE_IDLE: Duration = Duration::from_secs(300);
pub(crate) const KEEPALIVE_COUNT: u32 = 3;

/// Number of connections accepted from one listener in one poll, so that a storm of new connections
/// does not starve the existing ones.
pub(crate) const ACCEPT_COUNT_PER_POLL: usize = 128;

/// Number of buffers filled in one poll; connections that are left wait for the next poll.
pub(crate) const RECEIVE_BUFFERS_PER_POLL: usize = 16;

/// Number of writes in a row on one connection before others get their turn, if the peer reads as
/// fast as we write.
pub(crate) const SEND_CALLS_PER_TURN: usize = 4;

/// Number of bytes offered to the system in one write. A socket may accept megabytes at once, which
/// takes a millisecond during which everyone else waits.
pub(crate) const SEND_BYTES_PER_CALL: usize = 256 * 1024;

/// Number of bytes sent between two polls; connections that are left wait for the next poll.
/// Copying that much takes about a millisecond.
pub(crate) const SENT_BYTES_PER_POLL_MAX: usize = 4 * 1024 * 1024;

/// Number of idle receive buffers kept: as many as one poll can fill, and as many again that the
/// caller may still be reading.
pub(crate) const POOLED_BUFFER_COUNT_MAX: usize = 32;

/// Pause before a listener accepts again after the process ran out of file descriptors or memory.
pub(crate) const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Number of receives that discard unread bytes of a connection that is being closed. Unread bytes
/// would turn the close into a reset, which destroys replies in transit.
pub(crate) const CLOSE_DRAIN_CALLS_MAX: usize = 16;

const _: () = assert!(SEND_CALLS_PER_TURN * SEND_BYTES_PER_CALL <= SENT_BYTES_PER_POLL_MAX);
const _: () = assert!(2 * RECEIVE_BUFFERS_PER_POLL <= POOLED_BUFFER_COUNT_MAX);
