//! Limits of the membership.

use std::time::Duration;

/// Most peers of one list, this process included: the rank of a file takes time in proportion.
pub const PEER_COUNT_MAX: usize = 256;

/// Failures in a row, of probes or calls, after which a peer is suspect. One lost packet is none.
pub const FAILURES_UNTIL_SUSPECT: u32 = 3;

/// Time between two probes of one peer: with [`FAILURES_UNTIL_SUSPECT`] a peer that is gone keeps
/// its files for some seconds.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// Least time between two probes of a peer whose connections end: what closes each connection after
/// its answer is not probed in a loop.
pub const PROBE_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Time after which a peer is probed again whose last probe was cut off: a process that ends closes
/// its connections one after the other, and the socket that it listens on last.
pub const PROBE_CUT_OFF_AFTER: Duration = Duration::from_millis(5);

/// Share of the interval by which a probe is moved at random, so that many processes that started
/// at once do not probe at once. One half moves it by up to half of the interval.
pub const PROBE_JITTER_DIVISOR: u32 = 2;

const _: () = assert!(2 <= PEER_COUNT_MAX && 1 <= FAILURES_UNTIL_SUSPECT);
const _: () = assert!(1 <= PROBE_JITTER_DIVISOR);
