//! Dolt table files, archives and manifests: bytes in, lookups and chunks out. No IO.

#![forbid(unsafe_code)]

mod address;
mod decode;
mod error;
mod index;
mod lookup;
mod manifest;
pub mod write;

pub use address::{AddressError, ChunkAddress, FileId};
pub use decode::{CHUNK_BYTES_MAX, Dictionary, Encoding, Stored, check};
pub use error::FormatError;
pub use index::{ChunkLocation, FileKind, Span, TableIndex};
pub use lookup::{Found, Lookup};
pub use manifest::{DynamoItem, FileSpec, Manifest};
