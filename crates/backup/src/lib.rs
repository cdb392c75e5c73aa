//! Backups of the log and its snapshots while a server writes them, and restores from them.
//!
//! ```text
//!  data directory                          backup                          new data directory
//!  snapshots --opened, copied, verified--> snapshots --newest that fits--> a snapshot
//!  segments ---frame by frame------------> segments ---behind it, to LSN-> segments, new log id
//!                                          manifest
//! ```
//!
//! **Nobody is asked.** Snapshots and full segments do not change, and a segment in use only grows:
//! while the backup holds `copy.lock`, the server removes segments that snapshots cover and does
//! not use their files again. So a backup opens all files that it needs, which then stay readable,
//! and copies what it finds. It takes a segment in use up to its last whole frame, and syncs the
//! segment before it counts on that frame.
//!
//! **Consistency.** A backup holds everything up to one LSN: all that was answered before it began,
//! but for tables that are not logged. Frames prove by their checksums that they follow one another
//! and belong to this log.
//!
//! **Resumed, incremental.** A file gets its name in the backup when it is whole and durable. The
//! manifest, replaced last, says which files belong to the backup and how many bytes of each. A
//! backup that was interrupted leaves the one before as it was, and the next one goes on with the
//! files that are there. Old snapshots and segments stay, so that a restore can go back.
//!
//! **Restore.** The newest snapshot at or before the target and the log behind it, up to exactly
//! one LSN, are written as a log with an id of its own: what is written to it later is no history
//! of the original. While the restore lasts a file in the directory makes every start refuse it.

#![forbid(unsafe_code)]

mod error;
mod event;
pub mod limits;
mod manifest;
mod ranges;
mod restore;
mod source;
mod take;
mod verify;

pub use error::BackupError;
pub use event::Event;
pub use manifest::{
    FIRST_LINE, MANIFEST_NAME, Manifest, SegmentEntry, SnapshotEntry, is_ours, read_manifest,
};
pub use ranges::{Range, Target};
pub use restore::{Restored, restore};
pub use take::{Settings, Taken, take};
pub use verify::verify;
