//! One Dolt chunk store: versions of its manifest, lookups, and checked chunks from local disk or
//! the object store.
//!
//! ```text
//!              refresher (a task) --looks at--> manifest, listing, indexes
//!                 | switches                         ^
//!                 v                                  | one look for all who ask at once
//!  try_get --> version (ArcSwap): lookup --+--> nowhere-+--> none, or an error if that is not certain
//!                                       v
//!                       file, span --> local disk, else the object store --> CRC, decode, SHA-512 --> chunk
//! ```
//!
//! Whoever wants bytes of files instead of chunks, as Dolt's own clients do, is told where chunks
//! are ([`Store::locate`]) and takes ranges of files by their names ([`Store::file_bytes`]).
//!
//! * **Versions.** A version is a root and its files; requests see one or another, never a mixture.
//!   A new one is switched to when all of its files are open. Files it dropped stay readable for
//!   `grace_period`.
//! * **Certainty.** A chunk is compared with its address before it is handed out, again whenever
//!   other bytes may have taken its place on disk. It does not exist if no file holds it after a
//!   look at the manifest that began after the question; if that look fails, the answer is an
//!   error.
//! * **Without waiting.** [`Store::try_get`] and [`Store::try_has`] take no lock that anybody holds
//!   for long and touch no device. What takes long to decode is left to the runtime.
//! * **Permissions**: reading objects is enough (`s3:GetObject`). Listing (`s3:ListBucket`) is
//!   optional: with it a store of many files opens sooner, and one whose manifest is missing is
//!   known to be empty; without it S3 says "denied" of what is not there, and a store without a
//!   manifest cannot be told from one that may not be read.
//! * **Limits**: [`limits`]. Requests are as many as their callers; what one of them keeps in
//!   memory is bounded.
//! * **Failure**: a store that cannot be opened is tried again every `poll`; requests are answered
//!   with the reason.
//! * **Shutdown**: [`Store::close`] answers everybody with [`Error::Closed`].

#![forbid(unsafe_code)]

mod error;
mod fault;
mod jobs;
pub mod limits;
mod read;
mod serve;
mod settings;
mod shared;
mod state;
mod stats;
mod store;
mod task;
mod versions;

pub use busload_chunks::{ChunkAddress, FileId, FileKind, Span};
pub use error::Error;
pub use read::chunk::{Chunk, DictionaryId, Form};
pub use read::many::ManyReads;
pub use serve::{FileBytes, Located, Location};
pub use settings::{Attempt, Request, Settings};
pub use state::StoreStatus;
pub use stats::StoreStats;
pub use store::Store;
pub use versions::table_file::TableFile;
pub use versions::version::Snapshot;
