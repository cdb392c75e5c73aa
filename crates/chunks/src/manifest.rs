//! The manifest: root and files of a version of a store.

use crate::{ChunkAddress, FileId, FormatError};

/// One file, as a manifest names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSpec {
    /// Its id: the name without suffix.
    pub id: FileId,
    /// Entries of its index.
    pub chunk_count: u32,
}

/// A version of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Token of writers' optimistic lock: information only.
    pub lock: [u8; 20],
    /// What everything is reachable from; zero for an empty store.
    pub root: ChunkAddress,
    /// Changes when a collection may have removed chunks. None: the form has none.
    pub gc_generation: Option<[u8; 20]>,
    /// All files but those of the appendix, without duplicates.
    pub files: Vec<FileSpec>,
    /// Files with copies of chunks of others, to be looked at first.
    pub appendix: Vec<FileSpec>,
}

/// The attributes of a manifest kept in DynamoDB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DynamoItem {
    /// `nbsVers`
    pub nbs_vers: String,
    /// `vers`
    pub vers: String,
    /// `root`
    pub root: Vec<u8>,
    /// `lck`
    pub lck: Vec<u8>,
    /// `specs`
    pub specs: Option<String>,
    /// `appendix`
    pub appendix: Option<String>,
}

impl Manifest {
    /// Of a store without a manifest.
    pub fn empty() -> Self {
        unimplemented!()
    }

    /// The text form, versions 4 and 5. Refuses a store with a journal.
    pub fn parse(_text: &[u8]) -> Result<Self, FormatError> {
        unimplemented!()
    }

    /// The form kept in DynamoDB.
    pub fn from_dynamo(_item: &DynamoItem) -> Result<Self, FormatError> {
        unimplemented!()
    }

    /// All files, those of the appendix first, each once.
    pub fn lookup_order(&self) -> impl Iterator<Item = FileSpec> {
        Vec::new().into_iter()
    }
}
