//! Limits of the crate.

use std::time::Duration;

/// Longest file of certificates or a key that is read.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Longest time from the start of a connection to the end of its handshake.
pub const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Plaintext that is encrypted at once: a longer reply is encrypted while its beginning is sent.
pub const SEND_BYTES_MAX: usize = 256 * 1024;

/// Encrypted bytes of one connection that leave memory beside the reply that they hold.
pub(crate) const SPARE_BYTES_MAX: usize = 64 * 1024;

/// Buffers for encrypted bytes that are kept for reuse.
pub(crate) const SPARE_COUNT_MAX: usize = 64;

/// Length of a buffer for received plaintext. A receive of the driver below, and what was kept of
/// an incomplete record, fit in one.
pub(crate) const PLAINTEXT_BUFFER_BYTES: usize = 256 * 1024 + 2 * RECORD_BYTES_MAX;

/// Buffers for received plaintext that are kept for reuse.
pub(crate) const PLAINTEXT_BUFFER_COUNT_MAX: usize = 4;

/// Longest record of TLS 1.2, with its head (RFC 5246, 6.2.3); those of TLS 1.3 are shorter.
pub(crate) const RECORD_BYTES_MAX: usize = 5 + (1 << 14) + 2048;
