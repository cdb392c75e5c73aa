//! Items of DynamoDB tables, read by key and consistently: the manifests of Dolt's `aws://` stores.
//!
//! ```text
//!  ItemReader::read --+                 +-- 1 key:  GetItem -------+
//!  ItemReader::read --+--> queue of the |                          +--> AwsApi (signed POST)
//!  (one per store)    |    table -------+-- 2..100: BatchGetItem --+          |
//!        ^            |   (busload_batch)                                     |
//!        +------------+-- item, or none, or why it is not known <-- retries --+
//! ```
//!
//! * **One queue per table.** All stores of a process whose items are in one table, at one endpoint
//!   and with one account, share a queue. A batch that may be sent takes every key that waits, up
//!   to [`limits::BATCH_KEYS_MAX`], and leaves at once.
//! * **Consistency.** Every read is strongly consistent, and begins after it was asked for: no key
//!   joins a request that has been sent. DynamoDB's checksum of an answer is compared; a read says
//!   whether it had one.
//! * **Retries.** Keys that DynamoDB gave back as unprocessed, throttling, its internal errors and
//!   broken connections are tried again, after pauses that double and differ by chance, a bounded
//!   number of times. Keys that were answered do not wait for those.
//! * **One bad key fails alone.** If DynamoDB refuses a batch, each key is asked for by itself, so
//!   permission for `dynamodb:GetItem` is enough.
//! * **Certainty.** "There is no such item" is DynamoDB's answer, never the lack of one.
//! * **Overload**: a table's queue takes [`limits::QUEUED_KEYS_MAX`] reads and refuses others.
//! * **Shutdown**: a reader that is dropped cancels its read; the queue ends with its last reader.

#![forbid(unsafe_code)]

mod backoff;
mod error;
mod fault;
mod item;
pub mod limits;
mod service;
mod stats;
mod tables;
mod wire;

pub use error::Error;
pub use item::{Attribute, Item};
pub use service::ItemRead;
pub use stats::TableStats;
pub use tables::{ItemReader, Tables};
