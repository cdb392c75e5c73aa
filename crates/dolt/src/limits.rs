//! Every limit of the crate, with its reason.

use std::time::Duration;

/// Bytes of a manifest. A file takes about 44 of them, so this is over a million files.
pub const MANIFEST_BYTES_MAX: u64 = 64 << 20;
/// Table files whose indexes are read at once while a version is opened. The window of the store's
/// requests bounds them further.
pub const OPENING_FILES_MAX: usize = 64;
/// Bytes of their ends under way, at most (one larger end is under way alone). One of a million
/// chunks has 28 MB.
pub const OPENING_BYTES_MAX: u64 = 256 << 20;
/// The end of a file is read once more in pieces of so many bytes, to be compared.
pub const TAIL_REREAD_BYTES_MAX: u64 = 1 << 20;
/// A listing that takes longer is done without: files are asked for by name. So long takes one of
/// 100,000 names.
pub const LISTING_TIMEOUT: Duration = Duration::from_secs(10);
/// So many files that are new in a version are looked up one by one; for more, listing the store is
/// cheaper.
pub const HEADS_MAX: usize = 8;
/// Attempts at opening one file: it may be replaced while it is read.
pub const OPENING_ATTEMPTS_MAX: u32 = 3;
/// Bytes from the end of an archive that are read at first, at least: a small archive's index is in
/// them.
pub const ARCHIVE_GUESS_BYTES_MIN: u64 = 64 << 10;
/// Bytes of an archive's index for each chunk, about: 28, and 8 for its span.
pub const ARCHIVE_GUESS_BYTES_PER_CHUNK: u64 = 40;
/// Bytes of an archive's dictionaries' entries, metadata and footer, about.
pub const ARCHIVE_GUESS_BYTES_MORE: u64 = 4 << 10;

/// Stored bytes of a chunk that the caller's thread reads and checks itself. Larger ones are for
/// the runtime.
pub const INLINE_STORED_BYTES_MAX: u32 = 64 << 10;
/// Contents that the caller's thread decodes and checks itself: SHA-512 of so many takes about 0.3
/// ms.
pub const INLINE_CONTENTS_BYTES_MAX: u64 = 256 << 10;

/// Reads of one copy of a chunk whose bytes are wrong, the first one included: the wrong bytes may
/// have been on local disk, and another may be corrupt on its way.
pub const COPY_READS_MAX: u32 = 3;
/// A chunk whose bytes were wrong in each of these reads, and the same in the last two, is not read
/// again for so long.
pub const CORRUPTION_REMEMBERED: Duration = Duration::from_secs(10);
/// Chunks of which that is remembered.
pub const CORRUPT_CHUNKS_MAX: usize = 4096;
/// Lookups of one request: a file may be dropped, or replaced, between the lookup and the read.
pub const LOOKUPS_MAX: u32 = 3;
/// Copies of a chunk in different files that are tried when one is corrupt.
pub const COPIES_MAX: usize = 8;

/// Chunks of one request for many that are under way at once.
pub const WINDOW_CHUNKS_MAX: usize = 1024;
/// Their stored bytes, at most (one larger chunk is under way alone).
pub const WINDOW_BYTES_MAX: u64 = 8 << 20;
/// Answers of one request for many that wait to be taken.
pub const RESULTS_QUEUED_MAX: usize = 64;
/// Chunks that one turn of a request for many takes from local disk before the answers are handed
/// out.
pub const LOCAL_TURN_CHUNKS_MAX: usize = 64;
/// Their bytes, about.
pub const LOCAL_TURN_BYTES_MAX: usize = 256 << 10;
const _: () = assert!(INLINE_STORED_BYTES_MAX as usize <= LOCAL_TURN_BYTES_MAX);

/// Chunks that are located in one go.
pub const LOCATE_TURN_CHUNKS: usize = 16;
/// Prefetches under way at once. What comes beyond is read when its bytes are asked for.
pub const PREFETCHES_MAX: usize = 64;
/// Stored bytes of their chunks together: as many as the objects keep in memory for who asks for
/// them next.
pub const PREFETCH_BYTES_MAX: u64 = 16 << 20;
/// Prefetches are to be there within this time, at the rate at which the store brings what is under
/// way: what takes longer is in the way of what is asked for first.
pub const PREFETCH_AHEAD_TIME: Duration = Duration::from_secs(2);
/// As many bytes are prefetched over the slowest link, and over one of which nothing is known yet.
pub const PREFETCH_BYTES_MIN: u64 = 1 << 20;
/// One prefetch, at most.
pub const PREFETCH_TIMEOUT: Duration = Duration::from_secs(30);
/// Chunks of one prefetch that are read from local disk at once, each of which takes a thread.
pub const PREFETCH_DISK_READS_MAX: usize = 8;
const _: () = assert!(PREFETCH_BYTES_MIN <= PREFETCH_BYTES_MAX);
const _: () = assert!(PREFETCH_BYTES_MAX <= u32::MAX as u64, "a permit stands for a byte");

/// Dictionaries of one file that are kept in memory because their places were told. Most archives
/// have one; those made by groups of chunks have thousands.
pub const PINNED_DICTIONARIES_MAX: usize = 16 << 10;
/// Their bytes as stored. One takes about 3 KB.
pub const PINNED_BYTES_MAX: u64 = 64 << 20;
/// Dictionaries that are read for this at once.
pub const PINNING_MAX: usize = 16;
/// Reads of chunks with which one of them is proved: the chunk may be corrupt instead.
pub const DICTIONARY_VERIFYING_READS_MAX: usize = 4;
/// Table files that no version names and that were asked for, or whose dictionaries were told of:
/// the last ones are remembered, with dictionaries of [`PINNED_BYTES_MAX`] together.
pub const DROPPED_FILES_MAX: usize = 64;

/// Memory for dictionaries that are ready for use. One takes about 40 KiB, and an archive has one.
pub const DICTIONARIES_BYTES_MAX: u64 = 64 << 20;
/// Memory of a dictionary beyond its bytes, about: the tables of the decoder.
pub const DICTIONARY_BYTES_MORE: u64 = 32 << 10;
/// Stored bytes of a dictionary, at most. Dolt's are 4 KiB before they are compressed.
pub const DICTIONARY_STORED_BYTES_MAX: u32 = 16 << 20;
/// A dictionary is read for whoever asks, so its read has a time of its own.
pub const DICTIONARY_TIMEOUT: Duration = Duration::from_secs(30);
/// Memory of an entry of the cache of decoded chunks beyond its bytes, about.
pub const MEMORY_ENTRY_BYTES: u64 = 128;
/// Contents on average, by which the cache of decoded chunks sizes its tables.
pub const MEMORY_CHUNK_BYTES_ESTIMATE: u64 = 4 << 10;

/// Table files that come to local disk at once while a store is warmed.
pub const WARMING_FILES_MAX: usize = 16;

/// After a copy of a file has ended, the last of it comes to disk within this, as a rule.
pub const LOCAL_VERIFICATION_DELAY: Duration = Duration::from_secs(1);
/// Nobody waits for it, so it rests three times as long as it works.
pub const LOCAL_VERIFICATION_RESTS: u32 = 3;
/// With more wrong chunks than this it is the store, or the disk as a whole, that somebody should
/// look at.
pub const LOCAL_VERIFICATION_CORRUPT_MAX: u32 = 4096;
/// Times that what is on disk of a file is compared after a copy: once more when something came to
/// disk meanwhile.
pub const LOCAL_VERIFICATIONS_MAX: usize = 4;
/// One read of a comparison, at most.
pub const LOCAL_VERIFICATION_TIMEOUT: Duration = Duration::from_secs(60);

/// One read of a verification, at most.
pub const VERIFYING_TIMEOUT: Duration = Duration::from_secs(60);
/// Messages of long work that wait for whoever is told of it.
pub const JOB_REPORTS_QUEUED_MAX: usize = 64;

/// The least time between looks at the manifest that can be set.
pub const POLL_MIN: Duration = Duration::from_millis(10);
/// No byte of an answer for so long ends an attempt.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Attempts at one request to the object store.
pub const ATTEMPTS_MAX: u32 = 6;
/// One look at the manifest and what is new in it, at most. A store of many thousand files is read
/// in less.
pub const REFRESH_TIMEOUT: Duration = Duration::from_secs(600);

/// Bytes of a range of a file that are read and compared at once, about: a chunk is not cut.
pub const RANGE_PART_BYTES: u64 = 512 << 10;
/// So many at a time; over a slow link one, because each that is ahead takes bandwidth from what is
/// waited for.
pub const RANGE_PARTS_READAHEAD_MAX: usize = 4;
/// Reads that bring fewer bytes per second come over a slow link, or over one that many share.
pub const SLOW_LINK_BANDWIDTH: f64 = 1e6;
/// Pieces of a segment that wait to be taken.
pub const PIECES_QUEUED_MAX: usize = 64;
/// Reads of chunks of a range go on as long as something comes, but no longer than this.
pub const RANGE_TIMEOUT: Duration = Duration::from_secs(3600);
/// Bytes of a range that are given at once, at most.
pub const PIECE_BYTES_MAX: usize = 256 << 10;
