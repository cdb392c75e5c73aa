//! Every limit of this crate. Lengths that a file announces are never trusted: they are compared
//! with the bytes that are given.

/// Largest contents of a chunk that are decoded. Dolt's own chunks have at most a few megabytes.
pub const CHUNK_BYTES_MAX: usize = 256 << 20;

/// Largest dictionary that is accepted. Dolt's have 4 KiB; `zstd --train` makes 112 KiB by default.
pub const DICTIONARY_BYTES_MAX: usize = 16 << 20;

/// Number of chunks that a writer of archives trains its dictionary with, as Dolt does; a file with
/// fewer chunks has no dictionary.
pub const DICTIONARY_SAMPLES: usize = 1000;

/// Largest dictionary that a writer of archives trains.
pub const DICTIONARY_TRAINED_BYTES: usize = 4096;

/// Longest metadata of an archive. They are never used, but are read because they are between the
/// index and the footer.
pub const METADATA_BYTES_MAX: u64 = 64 << 20;

/// Most entries of one file whose addresses begin with the same 8 bytes. Copies made by a conjoin
/// count too. Addresses are hashes, so a longer run is no accident, and every search would have to
/// go through it.
pub const EQUAL_PREFIXES_MAX: usize = 4096;

/// Most files that one manifest may name.
pub const MANIFEST_FILES_MAX: usize = 1 << 20;

/// Number of records of a classic file between two running sums of their lengths: the sums cost
/// 0.125 bytes per chunk, and at most this many lengths must be added.
pub const CLASSIC_SUM_STEP: usize = 64;

/// Entries of a lookup's run per [`RUN_LOAD_SLOTS`] slots.
pub const RUN_LOAD_ENTRIES: usize = 82;

/// Slots of 8 bytes for [`RUN_LOAD_ENTRIES`] entries: 9.8 bytes per chunk.
pub const RUN_LOAD_SLOTS: usize = 100;

/// Most entries of a run without a hash table: a search of an index takes some 12
/// steps, and at most this many where addresses were made to have one prefix.
pub const SEARCHED_RUN_ENTRIES_MAX: u64 = 4 << 10;

/// Most files of a run without a hash table.
pub const SEARCHED_RUN_FILES_MAX: usize = 4;

/// Most files of one run of a lookup.
pub const RUN_FILES_MAX: usize = 1 << 20;

/// Most entries of neighbouring runs that are always joined into one, whatever their sizes:
/// building such a run takes about a millisecond.
pub const RUN_ENTRIES_MIN: u64 = 16 << 10;

/// Factor up to which a larger neighbour is rebuilt together with a run: few runs to search, and
/// each entry is hashed a few times in its life.
pub const RUN_GROWTH: u64 = 8;

const _: () = assert!(RUN_LOAD_ENTRIES < RUN_LOAD_SLOTS, "a search ends at an empty slot");
const _: () = assert!(8 * RUN_LOAD_SLOTS <= 10 * RUN_LOAD_ENTRIES, "at most 10 bytes per chunk");
const _: () = assert!(
    DICTIONARY_TRAINED_BYTES <= DICTIONARY_BYTES_MAX && DICTIONARY_BYTES_MAX <= CHUNK_BYTES_MAX
);

/// Most addresses that one chunk is taken to refer to. Nodes of trees have up to some hundred.
pub const REFERENCES_MAX: usize = 1024;

/// Fields of a message that are looked at for references. The messages of Dolt have up to 20.
pub const REFERENCE_FIELDS_MAX: usize = 32;

/// Messages within messages that are looked at for references: a table holds a node.
pub const REFERENCES_NESTED_MAX: usize = 2;
