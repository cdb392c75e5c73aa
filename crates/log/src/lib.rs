//! The write-ahead log. It moves records and does not know what is in them.
//!
//! ```text
//!   writer (tx's thread)           stage (the log's thread)                  segment files
//!   begin, record, commit -batch-> take all queued -- one write --> [header|frame|frame|...000]
//!   reserve <---grants------------ publish written, sync, publish durable          ^
//!                                        | begin next      ^ prepared              | zeros,
//!   progress (anyone) <-watermarks       +----- jobs ----> helper (its thread) ----+ ahead
//! ```
//!
//! **Group commit.** When the log is idle it takes everything queued, up to a frame's limit, and
//! writes it with one call; it never waits for more. While a sync runs the writer keeps filling the
//! next frame. The only timer is that of [`SyncPolicy::Interval`].
//!
//! **Order.** Records are numbered by [`Lsn`] without gaps, in commit order. Recovery returns a
//! prefix.
//!
//! **Durability.** A record at or below [`Progress::written`] survives the end of this process, one
//! at or below [`Progress::durable`] a power loss. Watermarks never go back.
//!
//! **Space.** [`LogWriter::reserve`] answers `Granted` only when the record fits into segments that
//! are whole on disk, of zeros or of the bytes of one that snapshots cover, so a write of the log
//! cannot fail for lack of space. A full disk shows as [`Reservation::NoSpace`] before anything has
//! changed, and clears by itself once there is space.
//!
//! **Overload.** The bytes handed over and not yet written are bounded; beyond the bound `reserve`
//! answers [`Reservation::Behind`].
//!
//! **Failure.** After a failed write or sync the contents of the file are unknown. The stage stops
//! for good and publishes nothing more; [`Progress::failure`] says what failed. Nothing is retried.
//! A restart recovers.
//!
//! **Shutdown.** [`LogWriter::close`]: the log writes and syncs everything handed over, then an
//! empty frame that marks the clean shutdown.

#![forbid(unsafe_code)]

mod batch;
pub mod copy;
pub mod format;
mod helper;
mod last_segment;
pub mod limits;
mod lsn;
mod mailbox;
mod options;
mod progress;
mod queue;
mod reader;
mod recovery;
mod spares;
mod stage;
mod stats;
pub mod tools;
mod writer;

pub use helper::ZeroHelper;
pub use lsn::{Lsn, SyncPolicy};
pub use options::Options;
pub use progress::Progress;
pub use reader::{
    CopyLock, Read, copy_lock, is_whole, read_durable, remove_covered, remove_spares,
};
pub use recovery::{
    Base, LogLock, OpenError, Opened, RecordRef, RecoveryReport, ReplayError, TornTail,
    bytes_behind, lock, open, open_behind,
};
pub use stage::{LogStage, Step};
pub use stats::Stats;
pub use writer::{LogWriter, Reservation};
