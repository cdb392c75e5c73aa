//! The write-ahead log. It moves records and does not know what is in them.
//!
//! ```text
//!   writer (tx's thread)            stage (the log's thread)                    segment files
//!   begin, record, commit --batch--> take all that waits --one write--> [header|frame|frame|...0000]
//!   room <-------grants------------- publish written, sync, publish durable         ^
//!                                       | begin next       ^ prepared               | zeros, ahead
//!   progress (anyone) <--watermarks     +----- jobs ----> helper (its own thread) --+
//! ```
//!
//! **The one rule.** A free log takes everything that waits, up to a frame's limit, writes it with
//! one call and never waits for more. While a sync runs the writer goes on filling the next frame.
//! The only timer is that of [`SyncPolicy::Interval`].
//!
//! **Order.** Records are numbered by [`Lsn`] without holes, in the order of their commit. Recovery
//! gives back a prefix.
//!
//! **Durability.** At or below [`Progress::written`] a record survives the end of this process, at
//! or below [`Progress::durable`] a power loss. Watermarks never go back.
//!
//! **Space.** [`LogWriter::room`] answers `Granted` only when the record fits into segments whose
//! zeros are on disk, so a write of the log cannot fail for lack of space. A full disk shows as
//! [`Room::NoSpace`] before anything changed, and passes.
//!
//! **Overload.** What is handed over and not written is bounded; beyond that `room` answers
//! [`Room::Behind`].
//!
//! **Failure.** After a failed write or sync the contents of the file are unknown: the stage stops
//! for good, publishes nothing more, and [`Progress::failure`] says what failed. Nothing is
//! retried. A restart recovers.
//!
//! **Shutdown.** [`LogWriter::close`]: everything handed over is written and synced, an empty frame
//! marks the clean end.

#![forbid(unsafe_code)]

mod batch;
pub mod format;
mod helper;
mod last_segment;
pub mod limits;
mod lsn;
mod mailbox;
mod options;
mod progress;
mod queue;
mod recovery;
mod stage;
mod stats;
pub mod tools;
mod writer;

pub use helper::ZeroHelper;
pub use lsn::{Lsn, SyncPolicy};
pub use options::Options;
pub use progress::Progress;
pub use recovery::{OpenError, Opened, RecordRef, RecoveryReport, ReplayError, TornTail, open};
pub use stage::{LogStage, Step};
pub use stats::{SYNC_BUCKET_COUNT, Stats};
pub use writer::{LogWriter, Room};
