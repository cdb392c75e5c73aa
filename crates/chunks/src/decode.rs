//! Stored bytes to contents, checked.

use bytes::Bytes;

use crate::{ChunkAddress, ChunkLocation, FormatError};

/// Largest contents of a chunk that are decoded. Nothing is allocated for what is only announced.
pub const CHUNK_BYTES_MAX: usize = 256 << 20;

/// What stored bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// A snappy block; in the file a CRC-32C follows it.
    Snappy,
    /// A zstd frame made with a dictionary.
    Zstd,
}

/// A dictionary, ready for use.
#[derive(Debug)]
pub struct Dictionary {}

impl Dictionary {
    /// From the bytes of its span.
    pub fn decode(_span: &[u8]) -> Result<Self, FormatError> {
        unimplemented!()
    }

    /// The dictionary's bytes, decompressed.
    pub fn bytes(&self) -> &Bytes {
        unimplemented!()
    }
}

/// The bytes of a chunk's span, as a file holds them.
#[derive(Clone, Debug)]
pub struct Stored {
    /// What they are.
    pub encoding: Encoding,
    /// Without the CRC.
    pub bytes: Bytes,
}

impl Stored {
    /// From the bytes of a span; checks the CRC of a record.
    pub fn parse(_span: Bytes, _location: &ChunkLocation) -> Result<Self, FormatError> {
        unimplemented!()
    }

    /// The contents. `dictionary` is that of the location, if it has one. Not yet compared with an address.
    pub fn decode(&self, _dictionary: Option<&Dictionary>) -> Result<Bytes, FormatError> {
        unimplemented!()
    }

    /// Length of the contents as announced, without decoding; only to be trusted once the chunk has been checked.
    pub fn contents_bytes(&self) -> Result<u64, FormatError> {
        unimplemented!()
    }

    /// As a classic record: a snappy block and its CRC. What is no snappy block is made one.
    pub fn to_record(&self, _dictionary: Option<&Dictionary>) -> Result<Bytes, FormatError> {
        unimplemented!()
    }
}

/// Whether contents are those of an address.
pub fn check(_address: &ChunkAddress, _contents: &[u8]) -> Result<(), FormatError> {
    unimplemented!()
}
