//! Limits of the server side of Dolt's protocol, and how they relate.

use std::time::Duration;

use busload_calls::limits::ADDRESS_COUNT_MAX;

/// Memory budgets of tables at which those that nobody uses are dropped: with stores by pattern
/// there are more names than a configuration has.
pub const BUDGETS_KEPT: usize = 1024;
/// Bytes of one encoded request.
pub const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Time that `Root` waits for a refresh of the manifest before it answers with the version that was
/// read last.
pub const ROOT_REFRESH_MAX: Duration = Duration::from_secs(1);
/// Requests of one stream that are answered together.
pub const BATCH_REQUESTS_MAX: usize = 512;
/// Addresses of one such batch, about (a single request may have more). Larger batches would not
/// fill bundles better, and would delay the first answer.
pub const BATCH_ADDRESSES_MAX: usize = 2048;
/// Batches of one stream that are answered at a time. Later requests wait and form the next batch.
pub const BATCHES_AHEAD_MAX: usize = 2;
/// Requests answered side by side, each on its own, after their batch failed.
pub const REQUESTS_AHEAD_MAX: usize = 8;
/// Chunks of one bundle. Its URL has 27 characters for each and so stays below the 8 KiB that
/// proxies allow.
pub const RECORDS_CHUNKS_MAX: usize = 192;
/// Stored bytes of the chunks of one bundle, about (a larger chunk is a bundle of its own).
pub const RECORDS_STORED_BYTES_MAX: u64 = 4 << 20;
/// Stored bytes of a chunk that may share a bundle. Clients read a larger chunk from its table file
/// if it is stored as a record there; otherwise it becomes a bundle of its own.
pub const RECORDS_CHUNK_STORED_BYTES_MAX: u32 = 256 << 10;
/// Bundles that are encoded at a time for one batch of requests.
pub const RECORDS_AT_ONCE_MAX: usize = 16;
/// Stored bytes of the bundles that are encoded at a time for locations in one table, about (a
/// larger chunk takes the whole budget). Other bundles wait.
pub const RECORDS_ENCODING_BYTES_MAX: u64 = 64 << 20;
/// The same limit for bundles that are encoded again for downloads.
pub const RECORDS_REENCODING_BYTES_MAX: u64 = 64 << 20;
/// Encoding a bundle may take the time for an answer divided by this. Chunks of a bundle
/// that takes longer are served from their table files. With the default timeout this is 2.5 s,
/// longer than 4 MiB take unless the store is behind a slow link.
pub const RECORDS_ENCODING_DIVISOR: u32 = 4;
/// The store's deadline is earlier than that of its waiters by this much, or by a twentieth of the
/// remaining time if that is less, so that its error, which says why, reaches them.
pub const RECORDS_EXPLANATION_TIME: Duration = Duration::from_millis(100);
/// Memory for recently advertised bundles of all tables. Others are encoded again when a download
/// asks for them. `dolt fetch` asks for locations about 100 MiB ahead of what it downloads.
pub const RECORDS_BYTES_MAX: u64 = 128 << 20;
/// Table files that one stream remembers as advertised to its client. Beyond it the stream forgets
/// them all and advertises them again.
pub const FILES_ADVERTISED_MAX: usize = 4096;

/// Bytes of a bundle that a download hands to its connection at once. The HTTP front's own pieces
/// of long answers are no smaller.
pub const PIECE_BYTES: usize = 256 * 1024;
/// Memory for bytes that downloads of one table are sending; further downloads wait. Fast clients
/// reserve as much as slow ones: it is enough for 75 clones at once with three files each.
pub const SENDING_BYTES_MAX: u64 = 512 << 20;
/// Quota of one connection: what all its downloads together may reserve of that.
pub const SENDING_QUOTA_BYTES_MAX: u64 = SENDING_BYTES_MAX / 4;
/// Reservation of one download of a table file, enough for a client that reads nothing: the
/// readahead of [`Object::stream`](busload_objects::Object::stream) and a piece on the connection.
pub const SENDING_EACH_BYTES_MAX: u64 = (2 << 20) + PIECE_BYTES as u64;
/// The same for bundles: one piece is being sent while the next one is copied. A bundle larger
/// than [`RECORDS_SHARED_BYTES_MAX`] is held whole.
pub const SENDING_RECORDS_BYTES_MAX: u64 = 2 * PIECE_BYTES as u64;
/// Size up to which a download looks its bundle up again for every piece, which also keeps it in
/// memory. A larger bundle would not fit there beside others.
pub const RECORDS_SHARED_BYTES_MAX: u64 = RECORDS_BYTES_MAX / 4;
/// Value of `Retry-After` in answers with status 503.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);

const _: () = assert!(
    ADDRESS_COUNT_MAX * 22 + 1024 <= REQUEST_BYTES_MAX,
    "22 bytes each when encoded as a list"
);
const _: () = assert!(BATCH_ADDRESSES_MAX <= ADDRESS_COUNT_MAX);
const _: () = assert!(RECORDS_CHUNKS_MAX <= BATCH_ADDRESSES_MAX, "small requests fill resources");
const _: () = assert!(RECORDS_CHUNK_STORED_BYTES_MAX as u64 <= RECORDS_STORED_BYTES_MAX);
const _: () = assert!(RECORDS_STORED_BYTES_MAX <= RECORDS_ENCODING_BYTES_MAX);
const _: () = assert!(RECORDS_STORED_BYTES_MAX <= RECORDS_REENCODING_BYTES_MAX);
const _: () = assert!(RECORDS_STORED_BYTES_MAX < RECORDS_SHARED_BYTES_MAX);
const _: () = assert!(66 * SENDING_EACH_BYTES_MAX < SENDING_BYTES_MAX, "one client's connections");
const _: () = assert!(225 * SENDING_EACH_BYTES_MAX < SENDING_BYTES_MAX, "75 clones");
const _: () = assert!(SENDING_EACH_BYTES_MAX < SENDING_QUOTA_BYTES_MAX);
