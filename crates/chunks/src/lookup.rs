//! One lookup over the indexes of many table files.

use std::sync::Arc;

use crate::{ChunkAddress, TableIndex};

/// Where a chunk was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Index of the file among those given.
    pub file: u32,
    /// Position in its [`TableIndex`].
    pub position: u32,
}

/// One lookup over many files; immutable.
#[derive(Debug)]
pub struct Lookup {}

impl Lookup {
    /// Over these files; where several hold a chunk, the earlier one wins. What `previous` has in common with them is not built again.
    pub fn new(_files: &[Arc<TableIndex>], _previous: Option<&Self>) -> Self {
        unimplemented!()
    }

    /// Where a chunk is.
    pub fn find(&self, _address: &ChunkAddress) -> Option<Found> {
        unimplemented!()
    }

    /// Entries of all files together.
    pub fn chunk_count(&self) -> u64 {
        unimplemented!()
    }

    /// Bytes of memory beside those of the indexes.
    pub fn memory_bytes(&self) -> u64 {
        unimplemented!()
    }
}
