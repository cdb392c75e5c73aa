//! Addresses of chunks and ids of table files: 20 bytes, 32 characters as text.

use std::{fmt, str::FromStr};

/// Names a chunk: the first 20 bytes of the SHA-512 of its contents.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkAddress(pub [u8; 20]);

/// Names a table file. Opaque: never compared with its contents.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub [u8; 20]);

/// What is no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected 32 characters of 0-9a-v, or 20 bytes")]
pub struct AddressError;

impl ChunkAddress {
    /// So many bytes.
    pub const BYTES: usize = 20;
    /// The root of an empty store.
    pub const ZERO: Self = Self([0; 20]);

    /// Of these contents.
    pub fn of(_contents: &[u8]) -> Self {
        unimplemented!()
    }

    /// From 20 raw bytes or 32 characters of text, as RESP keys have it.
    pub fn from_key(_key: &[u8]) -> Result<Self, AddressError> {
        unimplemented!()
    }

    /// From 20 raw bytes.
    pub fn from_slice(_bytes: &[u8]) -> Result<Self, AddressError> {
        unimplemented!()
    }

    /// The first 8 bytes, by which indexes are sorted.
    pub fn prefix(&self) -> u64 {
        unimplemented!()
    }

    /// The other 12.
    pub fn suffix(&self) -> &[u8; 12] {
        unimplemented!()
    }
}

impl FileId {
    /// The journal of a local store.
    pub const JOURNAL: Self = Self([0xff; 20]);
}

impl FromStr for ChunkAddress {
    type Err = AddressError;
    fn from_str(_: &str) -> Result<Self, AddressError> {
        unimplemented!()
    }
}
impl FromStr for FileId {
    type Err = AddressError;
    fn from_str(_: &str) -> Result<Self, AddressError> {
        unimplemented!()
    }
}
impl fmt::Display for ChunkAddress {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        unimplemented!()
    }
}
impl fmt::Debug for ChunkAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
impl fmt::Display for FileId {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        unimplemented!()
    }
}
impl fmt::Debug for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
