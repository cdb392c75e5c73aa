//! Limits of Dolt's client, and of the reader of the object store.

use std::time::Duration;

/// Addresses of one location request.
pub const LOCATION_ADDRESSES: usize = 512;

/// Addresses of one `HasChunks`.
pub const HAS_ADDRESSES: usize = 16_384;

/// Ranges of one URL that are less far apart are one GET.
pub const MERGE_GAP: u64 = 8 * 1024;

/// GETs of one fetch object under way.
pub const WORKERS: usize = 64;

/// Files of a clone under way.
pub const CLONE_FILES: usize = 3;

/// Passes over the files of a clone that may bring nothing.
pub const CLONE_PASSES: usize = 3;

/// Longest gap between ranges that a reader of the object store merges.
pub const DIRECT_MERGE_GAP: u64 = 512 * 1024 + 1;

/// GETs that a reader of the object store has under way.
pub const DIRECT_WORKERS: usize = 32;

/// Bytes of one range of a plain download.
pub const DOWNLOAD_RANGE_BYTES: u64 = 8 << 20;

/// Number of times that a call or a download that fails is tried again.
pub const RETRIES: u32 = 5;

/// Pause before the first of them.
pub const BACKOFF: Duration = Duration::from_millis(500);

/// Longest pause before one of them.
pub const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Until the headers of a response are there.
pub const HEADERS: Duration = Duration::from_secs(15);

/// A body of which nothing comes for so long is given up. The client wants a kilobyte a second on
/// average over as long.
pub const STALL: Duration = Duration::from_secs(5);

/// Connecting, and the end of a stream that has been half-closed.
pub const CONNECT: Duration = Duration::from_secs(20);

/// A call that is not answered for so long is given up; the stock client would wait for ever.
pub const ANSWER: Duration = Duration::from_secs(60);

/// A walk to which nothing comes for so long is given up, whatever is tried again meanwhile.
pub const SILENCE: Duration = Duration::from_secs(180);

pub const MESSAGE_BYTES_MAX: usize = 128 << 20;

/// Requests handed to a stream before it takes them: the stock client's channel holds none, this
/// one at least one.
pub const STREAM_REQUESTS: usize = 1;

/// Idle connections that are kept.
pub const IDLE_CONNECTIONS: usize = 256;

const _: () = assert!(WORKERS <= IDLE_CONNECTIONS && DIRECT_WORKERS <= IDLE_CONNECTIONS);
const _: () = assert!(ANSWER.as_secs() < SILENCE.as_secs());
const _: () = assert!(BACKOFF.as_millis() <= BACKOFF_MAX.as_millis());
