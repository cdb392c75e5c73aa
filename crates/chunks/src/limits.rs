//! Every bound of this crate. What a file announces is never believed: it is compared with the
//! bytes that are there.

/// Largest contents of a chunk that are decoded. Dolt's own chunks end at a few megabytes.
pub const CHUNK_BYTES_MAX: usize = 256 << 20;

/// Largest dictionary that is taken. Dolt's have 4 KiB; `zstd --train` makes 112 KiB unless told
/// otherwise.
pub const DICTIONARY_BYTES_MAX: usize = 16 << 20;

/// Chunks that a writer of archives trains its dictionary with, as Dolt does; files with fewer have
/// none.
pub const DICTIONARY_SAMPLES: usize = 1000;

/// Largest dictionary that it trains.
pub const DICTIONARY_TRAINED_BYTES: usize = 4096;

/// Longest metadata of an archive. It is never looked at, but lies between the index and the
/// footer, so it is read with them.
pub const METADATA_BYTES_MAX: u64 = 64 << 20;

/// Entries of one file whose addresses begin with the same 8 bytes, at most. Copies made by a
/// conjoin count too. Addresses are hashes, so a longer run is no accident, and every search would
/// have to go through it.
pub const EQUAL_PREFIXES_MAX: usize = 4096;

/// Files that one manifest may name.
pub const MANIFEST_FILES_MAX: usize = 1 << 20;

/// Records of a classic file between two running sums of their lengths: 0.125 bytes per chunk, and
/// at most so many lengths to add.
pub const CLASSIC_SUM_STEP: usize = 64;

/// Entries of a lookup's run per this many ...
pub const RUN_LOAD_ENTRIES: usize = 82;

/// ... slots of 8 bytes: 9.8 bytes per chunk.
pub const RUN_LOAD_SLOTS: usize = 100;

/// Files of one run of a lookup, at most.
pub const RUN_FILES_MAX: usize = 1 << 20;

/// Neighbouring runs of together at most this many entries become one whatever their sizes:
/// building it takes about a millisecond.
pub const RUN_ENTRIES_MIN: u64 = 16 << 10;

/// A run is built anew together with a neighbour that is at most this many times larger: few runs
/// to look through, and each entry is hashed a few times in its life.
pub const RUN_GROWTH: u64 = 8;

const _: () = assert!(RUN_LOAD_ENTRIES < RUN_LOAD_SLOTS, "a search ends at an empty slot");
const _: () = assert!(8 * RUN_LOAD_SLOTS <= 10 * RUN_LOAD_ENTRIES, "at most 10 bytes per chunk");
const _: () = assert!(
    DICTIONARY_TRAINED_BYTES <= DICTIONARY_BYTES_MAX && DICTIONARY_BYTES_MAX <= CHUNK_BYTES_MAX
);
