//! Limits of gRPC calls, and how they relate. Those of connections and memory are the HTTP front's,
//! those of all calls for chunks in [`busload_calls::limits`].

use std::time::Duration;

use busload_calls::limits::ADDRESS_COUNT_MAX;
use busload_dolt::ChunkAddress;

/// Longest encoded request for chunks.
pub const REQUEST_BYTES_MAX: usize = 512 * 1024;
/// Longest encoded request for the health: it holds the name of a service.
pub const HEALTH_REQUEST_BYTES_MAX: usize = 4 * 1024;
/// Longest encoded request for reflection: it holds the name of a file or a symbol, which an error
/// repeats.
pub const REFLECTION_REQUEST_BYTES_MAX: usize = 4 * 1024;
/// Size up to which a message of `GetChunks` takes further chunks. A larger chunk is sent in a
/// message of its own.
pub const MESSAGE_BYTES: usize = 256 * 1024;
/// Most `GetChunks` calls at once; further ones wait. A call holds two messages in memory and,
/// while chunks come from the object store, up to [`WAITING_COUNT_MAX`] chunks.
pub const STREAMED_CALLS_MAX: usize = 128;
/// Most `GetChunks` calls of peers at once. They have permits of their own: calls that wait for
/// peers never hold what the calls of those peers need.
pub const PEER_CALLS_SERVED_MAX: usize = 256;
/// Addresses that one call looks up before it yields to other tasks: well under a millisecond.
pub const LOOKUPS_PER_TURN: usize = 512;
/// Most chunks that one call waits for at once; it requests further ones as these are received.
pub const WAITING_COUNT_MAX: usize = 2_048;
/// Most batches of one call in flight at once.
pub const BATCHES_IN_FLIGHT_MAX: usize = 16;
/// Interval at which `Watch` calls check whether the health has changed.
pub const HEALTH_PERIOD: Duration = Duration::from_secs(1);
/// Most `Watch` calls at once.
pub const HEALTH_WATCHERS_MAX: usize = 256;

const _: () = assert!(ADDRESS_COUNT_MAX * ChunkAddress::BYTES + 1024 <= REQUEST_BYTES_MAX);
