//! Limits of the crate, each with its reason.

use std::time::Duration;

/// Largest manifest in bytes. A file takes about 44 of them, so this is over a million files.
pub const MANIFEST_BYTES_MAX: u64 = 64 << 20;
/// Stores of a set that are being opened at once; requests for more are refused.
pub const OPENING_STORES_MAX: usize = 512;
/// Time for which the name of a store that does not exist is remembered.
pub const ABSENT_REMEMBERED: Duration = Duration::from_secs(5);
/// Names of stores that do not exist that a set remembers.
pub const ABSENT_NAMES_MAX: usize = 16_384;
/// Remembered names of stores that do not exist from which on another one is taken for a guess:
/// whether it exists is asked before anything else.
pub const SCANNED_NAMES: usize = 16;
/// Part of the stores of a set, or of the memory of their indexes, that is free after idle stores
/// have been closed to make room: one in so many.
pub const STORES_CLOSED_PART: u16 = 64;
/// Time after which a request counts the memory of its store's indexes anew.
pub const INDEXES_COUNTED_AFTER: Duration = Duration::from_secs(1);
/// Least time between two searches for idle stores.
pub const IDLE_SWEEP_MIN: Duration = Duration::from_millis(100);
/// Most of it: a shorter `idle` that comes by a reload holds soon.
pub const IDLE_SWEEP_MAX: Duration = Duration::from_secs(30);
/// Busiest stores of a set that may have metrics of their own, at most: each has a handful of
/// series in every answer of `/metrics`.
pub const BUSIEST_STORES_MAX: usize = 200;
/// Least time between two rankings of the stores of a set by their activity.
pub const RANKING_INTERVAL: Duration = Duration::from_secs(1);
/// Time in which half of a store's activity is forgotten.
pub const ACTIVITY_HALF_LIFE: Duration = Duration::from_secs(60);
/// Activity, in reads, below which a store is not chosen as one of the busiest.
pub const ACTIVITY_MIN: f64 = 1.0;
/// Factor by which another store must be more active than one of the busiest to take its place.
pub const CHOSEN_ADVANTAGE: f64 = 1.5;
/// Stores opened since the last ranking that the next one knows. More have no metrics of their own
/// until they are opened again.
pub const ARRIVALS_MAX: usize = 16_384;
/// Bytes of an item of DynamoDB that one read unit reads.
pub const ITEM_UNIT_BYTES: u64 = 4096;
/// Table files whose indexes are read at once while a version is opened. The limit of concurrent
/// requests to the store bounds them further.
pub const OPENING_FILES_MAX: usize = 64;
/// Bytes of indexes in transit at once (one larger index is in transit alone). The index of a
/// million chunks has 28 MB.
pub const OPENING_BYTES_MAX: u64 = 256 << 20;
/// Bytes of the pieces in which an index is read again, to be compared with the first read.
pub const TAIL_REREAD_BYTES_MAX: u64 = 1 << 20;
/// Time after which the opener gives up a listing and asks for files by name. A listing of 100,000
/// names takes that long.
pub const LISTING_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest number of new files in a version that the opener asks for one by one; for more, a
/// listing of the store is cheaper.
pub const HEADS_MAX: usize = 8;
/// Attempts at opening one file, which may be replaced while it is read.
pub const OPENING_ATTEMPTS_MAX: u32 = 3;
/// Least number of bytes from the end of an archive in its first read: a small archive's index is
/// in them.
pub const ARCHIVE_GUESS_BYTES_MIN: u64 = 64 << 10;
/// Bytes of an archive's index for each chunk, about: 28, and 8 for its span.
pub const ARCHIVE_GUESS_BYTES_PER_CHUNK: u64 = 40;
/// Bytes of an archive's dictionary entries, metadata and footer, about.
pub const ARCHIVE_GUESS_BYTES_MORE: u64 = 4 << 10;

/// Largest number of stored bytes of a chunk that the caller's thread reads and verifies itself.
/// The runtime does it for larger ones.
pub const INLINE_STORED_BYTES_MAX: u32 = 64 << 10;
/// Largest contents that the caller's thread decodes and verifies itself: SHA-512 of that many
/// bytes takes about 0.3 ms.
pub const INLINE_CONTENTS_BYTES_MAX: u64 = 256 << 10;

/// Reads of a chunk in one file whose bytes are wrong, the first one included: the wrong bytes may
/// have been on local disk, and another read may be corrupted in transit.
pub const CHUNK_READS_MAX: u32 = 3;
/// Time for which a chunk is not read again after all [`CHUNK_READS_MAX`] reads gave wrong bytes,
/// the last two the same ones.
pub const CORRUPTION_REMEMBERED: Duration = Duration::from_secs(10);
/// Corrupt chunks that a store remembers.
pub const CORRUPT_CHUNKS_MAX: usize = 4096;
/// Lookups of one request: a file may be dropped, or replaced, between the lookup and the read.
pub const LOOKUPS_MAX: u32 = 3;
/// Table files in which a read tries a chunk, if the first ones have corrupt bytes.
pub const CHUNK_FILES_MAX: usize = 8;

/// Chunks of one multi-chunk request that are read at once.
pub const WINDOW_CHUNKS_MAX: usize = 1024;
/// Stored bytes of these chunks (one larger chunk is read alone).
pub const WINDOW_BYTES_MAX: u64 = 8 << 20;
/// Results of one multi-chunk request that wait for the caller.
pub const RESULTS_QUEUED_MAX: usize = 64;
/// Chunks that one turn of a multi-chunk request reads from local disk before it returns results.
pub const LOCAL_TURN_CHUNKS_MAX: usize = 64;
/// Bytes of these chunks, about.
pub const LOCAL_TURN_BYTES_MAX: usize = 256 << 10;
const _: () = assert!(INLINE_STORED_BYTES_MAX as usize <= LOCAL_TURN_BYTES_MAX);

/// Chunks that are located before the task yields.
pub const LOCATE_TURN_CHUNKS: usize = 16;
/// Prefetches in progress at once. Chunks beyond are read when a client asks for them.
pub const PREFETCHES_MAX: usize = 64;
/// Stored bytes of all prefetched chunks in progress: as many as `busload_objects` keeps in memory
/// for the next reader.
pub const PREFETCH_BYTES_MAX: u64 = 16 << 20;
/// Time in which the store can bring all prefetches in progress, at its measured bandwidth: longer
/// ones would delay requests.
pub const PREFETCH_AHEAD_TIME: Duration = Duration::from_secs(2);
/// Bytes that are prefetched over the slowest link, and over a link whose bandwidth is not known.
pub const PREFETCH_BYTES_MIN: u64 = 1 << 20;
/// Deadline of one prefetch.
pub const PREFETCH_TIMEOUT: Duration = Duration::from_secs(30);
/// Chunks of one prefetch that are read from local disk at once, each of which takes a thread.
pub const PREFETCH_DISK_READS_MAX: usize = 8;
const _: () = assert!(PREFETCH_BYTES_MIN <= PREFETCH_BYTES_MAX);
const _: () = assert!(PREFETCH_BYTES_MAX <= u32::MAX as u64, "a permit stands for a byte");

/// Chunks that are prefetched because one that was read from the store refers to them. A node of a
/// tree has some hundred children.
pub const REFERENCES_PREFETCHED_MAX: usize = 256;
/// Stored bytes of these chunks.
pub const REFERENCES_BYTES_MAX: u64 = 1 << 20;
/// Requests to the object store up to which it counts as idle: the read that has just ended, and a
/// fill.
pub const REFERENCES_IDLE_REQUESTS_MAX: u64 = 2;
/// Prefetched chunks of which a store remembers whether they are read; older ones were useless.
pub const REFERENCES_REMEMBERED_MAX: usize = 512;
/// Share of prefetched chunks that are read, below which references are seldom followed.
pub const REFERENCES_READ_SHARE_MIN: f64 = 0.125;
/// Weight of one chunk in that share.
pub const REFERENCES_READ_WEIGHT: f64 = 1.0 / 64.0;
/// Reads of which one is followed nevertheless, to find out whether it helps by now.
pub const REFERENCES_TRIED_EACH: u32 = 64;
const _: () = assert!(REFERENCES_PREFETCHED_MAX <= REFERENCES_REMEMBERED_MAX);
const _: () = assert!(REFERENCES_BYTES_MAX <= PREFETCH_BYTES_MIN);

/// Pinned dictionaries of one file. Most archives have one; those made by groups of chunks have
/// thousands.
pub const PINNED_DICTIONARIES_MAX: usize = 16 << 10;
/// Stored bytes of the pinned dictionaries of one file. A dictionary takes about 3 KB.
pub const PINNED_BYTES_MAX: u64 = 64 << 20;
/// Dictionaries that one request reads at once to pin them.
pub const PINNING_MAX: usize = 16;
/// Reads of chunks that are to verify one dictionary: a chunk may be the corrupt part instead.
pub const DICTIONARY_VERIFYING_READS_MAX: usize = 4;
/// Dropped table files that a store remembers, because clients asked for them or their
/// dictionaries were advertised. All of their dictionaries have at most [`PINNED_BYTES_MAX`] bytes.
pub const DROPPED_FILES_MAX: usize = 64;

/// Bytes of memory for loaded dictionaries. One takes about 40 KiB, and an archive has one.
pub const DICTIONARIES_BYTES_MAX: u64 = 64 << 20;
/// Memory of a dictionary beyond its bytes, about: the tables of the decoder.
pub const DICTIONARY_BYTES_MORE: u64 = 32 << 10;
/// Largest dictionary in stored bytes. Dolt's have 4 KiB before compression.
pub const DICTIONARY_STORED_BYTES_MAX: u32 = 16 << 20;
/// Deadline of one read of a dictionary, which concurrent requests share.
pub const DICTIONARY_TIMEOUT: Duration = Duration::from_secs(30);
/// Memory of an entry of the cache of decoded chunks beyond its bytes, about.
pub const MEMORY_ENTRY_BYTES: u64 = 128;
/// Average size of contents, from which the cache of decoded chunks sizes its tables.
pub const MEMORY_CHUNK_BYTES_ESTIMATE: u64 = 4 << 10;

/// Table files that come to local disk at once while a store is warmed.
pub const WARMING_FILES_MAX: usize = 16;
/// Stores of a pattern that are warmed at once, with their files: as many as keep a link busy where
/// the stores are small.
pub const WARMING_STORES_MAX: usize = 4;
/// Stores that could not be warmed of which the outcome has names and reasons: as many as somebody
/// reads.
pub const WARMING_FAILURES_MAX: usize = 20;

/// Time after the download of a file in which its last bytes come to disk, as a rule.
pub const LOCAL_VERIFICATION_DELAY: Duration = Duration::from_secs(1);
/// Rest of a background verification, as a multiple of its work: no request waits for it.
pub const LOCAL_VERIFICATION_RESTS: u32 = 3;
/// Wrong chunks after which a local verification ends: the store, or the disk as a whole, needs an
/// operator.
pub const LOCAL_VERIFICATION_CORRUPT_MAX: u32 = 4096;
/// Local verifications of a file after one download: another one follows when something came to
/// disk meanwhile.
pub const LOCAL_VERIFICATIONS_MAX: usize = 4;
/// Deadline of one read of a local verification.
pub const LOCAL_VERIFICATION_TIMEOUT: Duration = Duration::from_secs(60);

/// Deadline of one read of `verify`.
pub const VERIFYING_TIMEOUT: Duration = Duration::from_secs(60);
/// Reports of a job that wait for its caller.
pub const JOB_REPORTS_QUEUED_MAX: usize = 64;

/// Least time between two reads of the manifest that can be set.
pub const POLL_MIN: Duration = Duration::from_millis(10);
/// Silence of the object store after which a request to it is tried again.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Attempts at one request to the object store.
pub const ATTEMPTS_MAX: u32 = 6;
/// Time for reading the manifest and opening its version. A store of many thousand files takes
/// less.
pub const REFRESH_TIMEOUT: Duration = Duration::from_secs(600);

/// Bytes of a range of a file that are read and verified at once, about: no chunk is cut.
pub const RANGE_PART_BYTES: u64 = 512 << 10;
/// Parts of a range that are read at a time; over a slow link one, because readahead takes
/// bandwidth from the part that the client waits for.
pub const RANGE_PARTS_READAHEAD_MAX: usize = 4;
/// Bytes per second of a read below which its link is slow, or shared by many.
pub const SLOW_LINK_BANDWIDTH: f64 = 1e6;
/// Pieces of a part that wait for the client.
pub const PIECES_QUEUED_MAX: usize = 64;
/// Deadline of the reads of a range, which go on as long as bytes come.
pub const RANGE_TIMEOUT: Duration = Duration::from_secs(3600);
/// Largest piece of a range in bytes.
pub const PIECE_BYTES_MAX: usize = 256 << 10;
