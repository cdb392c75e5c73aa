//! Limits of the search for peers.

use std::time::Duration;

use busload_peers::limits::{PEER_COUNT_MAX, PROBE_INTERVAL};

/// Longest time of one probe: a peer that takes longer counts as one that failed.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// Most probes at once. With more peers, probes wait for others.
pub const PROBES_AT_ONCE_MAX: usize = 32;
/// Longest beginning of an answer to a probe that is read: its status line.
pub const PROBE_ANSWER_BYTES_MAX: usize = 128;
/// Time between two resolutions of the name of the peers.
pub const RESOLVE_INTERVAL: Duration = Duration::from_secs(5);
/// Longest time of one resolution, after which the list stays as it is.
pub const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);

const _: () = assert!(PROBES_AT_ONCE_MAX <= PEER_COUNT_MAX);
const _: () = assert!(PROBE_TIMEOUT.as_millis() <= PROBE_INTERVAL.as_millis());
