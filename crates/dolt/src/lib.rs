//! One Dolt chunk store: versions of its manifest, lookups, and verified chunks from local disk or
//! the object store.
//!
//! ```text
//!  requests for chunks              Store             requests for bytes of table files
//!          |                          |                           |
//!          v                          |                           v
//!  read: Reader.get                   |        serve: locate, FileBytes, Prefetcher,
//!    -> Version::locate               |          pin_dictionaries, LocalVerifier
//!    -> FileChunkReader.read_verified <-----------'      |
//!          |                          |                  v
//!          |        versions: current Version (ArcSwap), DroppedFiles
//!          |                    ^ Refresher, Opener: manifest, listing, indexes
//!          v                    |
//!  ObjectSource: disk cache in front of the object store (`busload_objects`)
//! ```
//!
//! * **Versions.** A version is a root and its files; a request sees one version, never a mixture.
//!   The refresher publishes a new version when all of its files are open. Files that it dropped
//!   stay readable for `grace_period`.
//! * **Certainty.** The store verifies a chunk against its address before it returns it, and again
//!   whenever other bytes may have taken its place on disk. A chunk does not exist if no file holds
//!   it after a refresh that began after the request; if that refresh fails, so does the request.
//! * **Peers.** What is not on local disk and in a file of another cache ([`Peers`]) the store asks
//!   of that cache before the object store. A request of a peer it answers itself.
//! * **Without waiting.** [`Store::try_get`] and [`Store::try_has`] take no lock that is held for
//!   long and touch no device. They leave to the runtime what takes long to decode.
//! * **Permissions**: reading objects is enough (`s3:GetObject`). Listing (`s3:ListBucket`) is
//!   optional: with it a store of many files opens sooner, and one without a manifest is known to
//!   be empty; without it S3 denies requests for missing objects, so a store without a manifest
//!   looks like one that may not be read.
//! * **Limits**: [`limits`]. Callers bound the number of requests; the store bounds what one
//!   request keeps in memory.
//! * **Failure**: the refresher retries a store that cannot be opened every `poll`; requests fail
//!   with the reason meanwhile.
//! * **Shutdown**: [`Store::close`] fails all waiting requests with [`Error::Closed`].

#![forbid(unsafe_code)]

mod error;
mod fault;
mod jobs;
mod lifecycle;
pub mod limits;
mod object_source;
mod peers;
mod read;
mod serve;
mod set;
mod settings;
mod stats;
mod store;
mod task;
mod usage;
mod versions;

pub use busload_chunks::{ChunkAddress, FileId, FileKind, Span};
pub use busload_dynamo::{TableStats as DynamoStats, Tables as DynamoTables};
pub use error::Error;
pub use lifecycle::StoreStatus;
pub use peers::{PeerAnswer, PeerQuestion, Peers};
pub use read::{
    chunk::{Chunk, DictionaryId, Form},
    many::ManyReads,
};
pub use serve::{Located, Location, file_bytes::FileBytes};
pub use set::{
    OpenStore, SetSettings, SetStats, StoreSet,
    busiest::BusyStore,
    limits::SetLimits,
    listing::{KnownStore, OpenUse},
    template::StoreTemplate,
    warm::Warmed,
};
pub use settings::{Attempt, Occasion, Request, Requester, Settings};
pub use stats::StoreStats;
pub use store::Store;
pub use usage::{StoreUsage, UsageStats};
pub use versions::{table_file::TableFile, version::Snapshot};
