//! Every limit in one place.

use std::{ops::Range, time::Duration};

/// How long a server may take until it answers, unless the builder says otherwise: crash recovery
/// is part of it.
pub const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a server may take to stop before it is killed.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a signal may take until the processes show it: one that waits for a disk shows nothing.
pub const SIGNAL_TIMEOUT: Duration = Duration::from_secs(60);

/// How often another program's state is looked at.
pub const POLL: Duration = Duration::from_millis(2);

/// Ports that are tried. They lie below those that systems give to outgoing connections, so that a
/// stopped cluster's port is still free when it starts again.
pub const PORTS: Range<u16> = 20_000..32_000;

/// How many ports are tried before giving up.
pub const PORT_ATTEMPT_COUNT_MAX: usize = 64;

/// Longest path of a Unix socket: `sun_path` has 108 bytes on Linux, 104 on others, and ends with a
/// zero.
pub const SOCKET_PATH_BYTES_MAX: usize = 103;

/// How much of the server's log an error shows.
pub const LOG_TAIL_BYTES: usize = 2000;

/// How often the processes of a cluster are listed again while new ones appear.
pub const LISTING_COUNT_MAX: usize = 100;

/// The proxy forwards in pieces of at most this length.
pub const PIECE_BYTES: usize = 16 * 1024;

/// Pieces the proxy holds per connection and direction before it stops reading.
pub const PIECE_COUNT_MAX: usize = 256;

const _: () = assert!(PORTS.start > 1024, "ports below belong to the system");
const _: () = assert!(PORTS.end < 32_768, "ports above are given to outgoing connections");
