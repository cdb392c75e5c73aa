//! Limits of clusters and of the proxy.

use std::{ops::Range, time::Duration};

/// Longest time until a started server answers, crash recovery included, unless the builder sets
/// another.
pub const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Longest time for a server to stop before it is killed.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest time for processes to react to a signal: one that waits for a disk does not react.
pub const SIGNAL_TIMEOUT: Duration = Duration::from_secs(60);

/// Interval for polling another program's state.
pub const POLL: Duration = Duration::from_millis(2);

/// Range of ports to try. They lie below those that systems give to outgoing connections, so that a
/// stopped cluster's port is still free when it starts again.
pub const PORTS: Range<u16> = 20_000..32_000;

/// Maximum number of ports to try.
pub const PORT_ATTEMPT_COUNT_MAX: usize = 64;

/// Longest path of a Unix socket: `sun_path` has 108 bytes on Linux, 104 elsewhere, and ends with a
/// zero.
pub const SOCKET_PATH_BYTES_MAX: usize = 103;

/// Bytes of the server's log that an error shows.
pub const LOG_TAIL_BYTES: usize = 2000;

/// Maximum number of times that a cluster's processes are listed again while new ones appear.
pub const LISTING_COUNT_MAX: usize = 100;

/// Largest piece that the proxy forwards at a time.
pub const PIECE_BYTES: usize = 16 * 1024;

/// Number of pieces that the proxy holds per connection and direction before it stops reading.
pub const PIECE_COUNT_MAX: usize = 256;

const _: () = assert!(PORTS.start > 1024, "ports below belong to the system");
const _: () = assert!(PORTS.end < 32_768, "ports above are given to outgoing connections");
