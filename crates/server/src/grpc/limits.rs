//! Limits of gRPC calls, and how they relate. Those of connections and memory are in
//! [`crate::http::limits`].

use std::time::Duration;

use busload_dolt::ChunkAddress;

use crate::http::limits::{PIECE_BYTES, STREAM_WINDOW_BYTES};

/// Addresses of one call.
pub const ADDRESS_COUNT_MAX: usize = 16_384;
/// An encoded request.
pub const REQUEST_BYTES_MAX: usize = 512 * 1024;
/// The same for the health: the name of a service.
pub const HEALTH_REQUEST_BYTES_MAX: usize = 4 * 1024;
/// The same for reflection: the name of a file or a symbol, which an error repeats.
pub const REFLECTION_REQUEST_BYTES_MAX: usize = 4 * 1024;
/// A message of `GetChunks` takes no further chunk that would make it larger. A larger chunk
/// travels alone.
pub const MESSAGE_BYTES: usize = PIECE_BYTES;
/// `GetChunks` calls at once; others wait. One holds two messages and, while chunks come from the
/// object store, a window of them.
pub const STREAMED_CALLS_MAX: usize = 128;
/// Addresses that one call looks up before others get their turn: well under a millisecond.
pub const LOOKUPS_PER_TURN: usize = 512;
/// Chunks that one call waits for at once; further ones are asked for as these come.
pub const WAITING_COUNT_MAX: usize = 2_048;
/// Trips of one call at once.
pub const TRIP_COUNT_MAX: usize = 16;
/// The longest time a client can ask for.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(3600);
/// How often those who watch the health are told, if it has changed.
pub const HEALTH_PERIOD: Duration = Duration::from_secs(1);
/// Watchers of the health at once.
pub const HEALTH_WATCHERS_MAX: usize = 256;

const _: () = assert!(ADDRESS_COUNT_MAX * ChunkAddress::BYTES + 1024 <= REQUEST_BYTES_MAX);
const _: () = assert!(REQUEST_BYTES_MAX <= STREAM_WINDOW_BYTES as usize);
