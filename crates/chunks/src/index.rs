//! The index of one table file.

use bytes::Bytes;

use crate::{ChunkAddress, FormatError};

/// What a table file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// No suffix.
    Classic,
    /// `.darc`
    Archive,
}

/// A run of bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// Of its first byte.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}

/// Where a chunk is in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLocation {
    /// The stored bytes: a classic record (snappy block and CRC) without a dictionary, a zstd frame with one.
    pub span: Span,
    /// The compressed dictionary.
    pub dictionary: Option<Span>,
}

/// The index of one table file, checked.
#[derive(Debug)]
pub struct TableIndex {}

impl TableIndex {
    /// Bytes of an archive's footer, at most.
    pub const ARCHIVE_FOOTER_BYTES: u64 = 220;

    /// How many bytes from its end hold the index and footer of a classic table file.
    pub fn classic_tail_bytes(_chunk_count: u32) -> u64 {
        unimplemented!()
    }

    /// From exactly the last [`TableIndex::classic_tail_bytes`] of a file of `file_bytes`.
    pub fn parse_classic(_tail: Bytes, _chunk_count: u32, _file_bytes: u64) -> Result<Self, FormatError> {
        unimplemented!()
    }

    /// How many bytes from its end hold the index, metadata and footer of an archive; from (at least) its last
    /// [`TableIndex::ARCHIVE_FOOTER_BYTES`], or the whole file if it is shorter.
    pub fn archive_tail_bytes(_end: &[u8], _file_bytes: u64) -> Result<u64, FormatError> {
        unimplemented!()
    }

    /// From exactly the last [`TableIndex::archive_tail_bytes`] of a file of `file_bytes`.
    pub fn parse_archive(_tail: Bytes, _file_bytes: u64) -> Result<Self, FormatError> {
        unimplemented!()
    }

    /// Classic or archive.
    pub fn kind(&self) -> FileKind {
        unimplemented!()
    }

    /// How many entries there are; an archive may hold an address twice.
    pub fn chunk_count(&self) -> u32 {
        unimplemented!()
    }

    /// Size of the file.
    pub fn file_bytes(&self) -> u64 {
        unimplemented!()
    }

    /// Position of a chunk: what the other methods take. Any of several copies.
    pub fn find(&self, _address: &ChunkAddress) -> Option<u32> {
        unimplemented!()
    }

    /// The address at a position below [`TableIndex::chunk_count`]. Positions are in the order of addresses' prefixes.
    pub fn address(&self, _position: u32) -> ChunkAddress {
        unimplemented!()
    }

    /// Where the chunk at a position is.
    pub fn location(&self, _position: u32) -> ChunkLocation {
        unimplemented!()
    }

    /// Bytes of memory this index takes.
    pub fn memory_bytes(&self) -> u64 {
        unimplemented!()
    }
}
