//! Dolt table files, archives and manifests: bytes in, lookups and chunks out. No IO.
//!
//! A store is a *manifest* that names table files; each holds *chunks*, immutable byte strings
//! named by their hash:
//!
//! ```text
//!   text of the manifest --> Manifest: root, files
//!                                         |
//!   the end of each file --> TableIndex --+--> Lookup --> Found: file, position
//!                                |                          |
//!                                +--------- location <------+
//!                                              |
//!   the bytes there ------------> Stored (CRC) +--> contents --> check (address)
//!                                   dictionary +
//! ```
//!
//! The caller reads the bytes wherever they are and hands them over;
//! [`TableIndex::classic_tail_bytes`] and [`TableIndex::archive_tail_bytes`] say how many it has to
//! read.
//!
//! # Formats
//! Manifests of versions 4 and 5 and the form kept in DynamoDB; classic table files; archives of
//! versions 1 to 3, whose chunks are zstd frames with dictionaries or the records of classic files.
//! Journals are refused. [`mod@write`] makes classic files and archives.
//!
//! # Hostile bytes
//! All input comes from outside and may be anything. Indexes are checked as a whole when they are
//! parsed: counts against the given bytes, sums against the length of the file, the order, every
//! reference. Nothing is allocated for a size that is only announced, and [`CHUNK_BYTES_MAX`]
//! bounds what is decoded. Every fault is a [`FormatError`], never a panic.
//!
//! # What is verified
//! The CRC of a record covers its bytes in the file; zstd frames have none. Only [`check`] proves
//! that contents are those asked for. A file's id is never verified against its contents: Dolt
//! derives it in four different ways.
//!
//! # Memory
//! An index takes 28.2 bytes per chunk for a classic file and 28 to 30 for an archive, the lookup
//! 9.8.

#![forbid(unsafe_code)]

mod address;
mod base32;
mod be;
mod decode;
mod error;
mod index;
mod limits;
mod lookup;
mod manifest;
mod references;
pub mod write;

pub use address::{AddressError, ChunkAddress, FileId};
pub use decode::{Dictionary, Encoding, Stored, check, record_of};
pub use error::FormatError;
pub use index::{ChunkLocation, FileKind, Span, TableIndex};
pub use limits::{
    CHUNK_BYTES_MAX, DICTIONARY_BYTES_MAX, EQUAL_PREFIXES_MAX, MANIFEST_FILES_MAX,
    METADATA_BYTES_MAX, REFERENCES_MAX,
};
pub use lookup::{Found, Lookup};
pub use manifest::{DynamoItem, FileSpec, Manifest};
pub use references::references;

/// Checks at compile time that all threads that read a store can share these types.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<TableIndex>();
    shared::<Lookup>();
    shared::<Dictionary>();
    shared::<Stored>();
};
