//! Many callers' single-key reads and writes in few batches: a waiting line with limits, and when a batch leaves.

#![forbid(unsafe_code)]

mod batch;
pub mod limits;
mod line;
mod request;
mod settings;
mod stats;
mod write;

pub use batch::{Batch, BatchId, Content};
pub use line::Line;
pub use request::{Answered, Ask, Late, Operation, Refusal, Refused, RequestId, Stage};
pub use settings::{Departure, LineSettings, SettingsError, Sharing};
pub use stats::{ClassStats, LineStats};
pub use write::{LastWins, NoWrites, Write};
