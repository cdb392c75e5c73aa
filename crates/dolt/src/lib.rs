//! One Dolt chunk store: versions of its manifest, lookups, and checked chunks from local disk or the object store.

#![forbid(unsafe_code)]

mod chunk;
mod error;
mod store;

pub use busload_chunks::{ChunkAddress, FileId};
pub use chunk::{Chunk, DictionaryId, Form};
pub use error::Error;
pub use store::{Attempt, ManyReads, Request, Settings, Snapshot, State, Store, StoreStats, TableFile};
