//! Many callers' single-key reads and writes in few batches: a waiting line with limits, and when a batch leaves.

#![forbid(unsafe_code)]

mod batch;
#[cfg(feature = "tokio")]
mod batcher;
#[cfg(feature = "tokio")]
mod clock;
#[cfg(feature = "tokio")]
mod driver;
#[cfg(feature = "tokio")]
mod functions;
pub mod limits;
mod line;
#[cfg(feature = "tokio")]
mod oneshot;
#[cfg(feature = "tokio")]
mod reply;
mod request;
#[cfg(feature = "tokio")]
mod service;
mod settings;
#[cfg(feature = "tokio")]
mod shared;
mod stats;
#[cfg(feature = "tokio")]
mod timer;
#[cfg(feature = "tokio")]
mod trip;
mod write;

pub use batch::{Batch, BatchId, Content};
#[cfg(feature = "tokio")]
pub use batcher::{Batcher, BatcherSettings};
#[cfg(feature = "tokio")]
pub use functions::{Functions, Latest, LoadOutput, ReadFunction, StoreOutput};
pub use line::Line;
#[cfg(feature = "tokio")]
pub use oneshot::Oneshot;
pub use request::{Answered, Ask, Late, Operation, Refusal, Refused, RequestId, Stage};
#[cfg(feature = "tokio")]
pub use service::{
    BatchError, Loaded, LoadedAll, LoadedOne, Receipt, Reply, Service, Stored, StoredAll, StoredOne,
};
pub use settings::{Departure, LineSettings, SettingsError, Sharing};
pub use stats::{ClassStats, LineStats};
pub use write::{LastWins, NoWrites, Write};
