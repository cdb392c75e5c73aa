//! Limits of the search for peers, and of chunks that peers ask each other for.

use std::time::Duration;

use busload_chunks::CHUNK_BYTES_MAX;
use busload_peers::limits::{PEER_COUNT_MAX, PROBE_AGAIN_AFTER, PROBE_INTERVAL};

/// Longest time of one probe: a peer that takes longer counts as one that failed.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// Most probes at once. With more peers, probes wait for others.
pub const PROBES_AT_ONCE_MAX: usize = 32;
/// Most bytes that are read at once of the rest of an answer to a probe.
pub const PROBE_ANSWER_BYTES_MAX: usize = 128;
/// Time for which the connection of a probe stays open, to see its end: until the next probe has
/// one.
pub const PROBE_WATCH_TIME: Duration = Duration::from_secs(3);
/// Longest time that an answer with URLs waits for the probe of a peer that ended a connection.
pub const SETTLE_TIME_MAX: Duration = Duration::from_millis(500);
/// Time between two resolutions of the name of the peers.
pub const RESOLVE_INTERVAL: Duration = Duration::from_secs(5);
/// Longest time of one resolution, after which the list stays as it is.
pub const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest time that a peer has for a chunk, which it may have to read from the bucket; then this
/// server reads the bucket itself. A request that has less than twice this time left gives the peer
/// half of it.
pub const PEER_CHUNK_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for which a peer is asked for nothing after a call that failed or brought nothing in time:
/// what is lost costs few requests a [`PEER_CHUNK_TIMEOUT`].
pub const PEER_PAUSE: Duration = Duration::from_secs(1);
/// Calls in a row that bring less than half of their chunks in time, after which a peer is asked
/// nothing for [`PEER_PAUSE`], too: one may be late because its chunks are cold.
pub const PEER_LATE_CALLS_MAX: u32 = 4;
/// Longest time of a connection attempt to a peer.
pub const PEER_CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Interval of HTTP/2 pings while calls are under way, and the longest wait for their answers.
pub const PEER_KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Most chunks that wait to be asked of one peer; those beyond come from the bucket.
pub const PEER_QUEUE_CHUNKS_MAX: usize = 16_384;
/// Most chunks of one batch for a peer.
pub const PEER_CALL_CHUNKS_MAX: usize = 1_024;
/// Most batches for one peer in flight at once: what comes meanwhile shares the next one.
pub const PEER_CALLS_MAX: usize = 8;
/// HTTP/2 window of one call: bytes that a peer sends before they are taken.
pub const PEER_STREAM_WINDOW_BYTES: u32 = 2 << 20;
/// HTTP/2 window of the connection to a peer.
pub const PEER_CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
/// Largest message of a peer: one chunk of any size, and what is around it.
pub const PEER_ANSWER_BYTES_MAX: usize = CHUNK_BYTES_MAX + (1 << 20);
/// Validity of the key by which a peer says that it is one, for clocks that differ.
pub const PEER_KEY_LIFETIME: Duration = Duration::from_secs(300);

const _: () = assert!(PEER_CALL_CHUNKS_MAX <= PEER_QUEUE_CHUNKS_MAX);
const _: () = assert!(PEER_CONNECT_TIMEOUT.as_millis() < PEER_CHUNK_TIMEOUT.as_millis());
const _: () = assert!(PEER_STREAM_WINDOW_BYTES <= PEER_CONNECTION_WINDOW_BYTES);
const _: () = assert!(PROBES_AT_ONCE_MAX <= PEER_COUNT_MAX);
const _: () = assert!(PROBE_AGAIN_AFTER.as_millis() < SETTLE_TIME_MAX.as_millis());
const _: () = assert!(2 * PROBE_INTERVAL.as_millis() <= PROBE_WATCH_TIME.as_millis());
const _: () = assert!(PROBE_TIMEOUT.as_millis() <= PROBE_INTERVAL.as_millis());
