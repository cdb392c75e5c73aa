//! Snapshots of the memory tables, made from the snapshot before and the log, so that the log need
//! not be kept for ever.
//!
//! ```text
//!  log:        [ segment | segment | segment | segment ...      durable LSN
//!  snapshot A: ---------^                          |
//!  snapshot B: ------------------------------------^   = A + the records between, applied
//!                 removed   kept: A may be needed     read at a start that has B
//! ```
//!
//! **Nobody waits.** A background thread reads what is durable from files; the thread that executes
//! transactions takes no part, nothing is forked and no memory is copied. One partition of the keys
//! (by hash) after the other is built in tables of its own, so memory grows by a partition.
//!
//! **It keeps up.** Each partition reads the log again. A log that is long beside the contents is
//! sorted by partition into a file first, so that it is read once.
//!
//! **Consistency.** A snapshot holds exactly the records up to one LSN, which was durable before
//! and at which no transaction in several records is open.
//!
//! **Two are kept**, and the log behind the older one. A snapshot that does not verify is passed
//! over at a start: the one before and the log give the same contents.
//!
//! **Failure.** A snapshot that cannot be made (no space, a failing disk, a corrupt file) changes
//! nothing: the log goes on and keeps what is needed.
//!
//! The files are described in `docs/snapshot-format.md`.

#![forbid(unsafe_code)]

mod catalogue;
mod copy;
pub mod format;
pub mod limits;
mod load;
mod maintenance;
mod make;
mod pacer;
mod partition;
mod prepare;
mod reader;
mod spill;
mod writer;

pub use catalogue::{Catalogue, KnownTable};
pub use copy::copy;
pub use load::{Loaded, load, newest_first};
pub use maintenance::{Control, Maintenance, MemoryBytes, Pause, Recovered, Settings, Status};
pub use make::{InvalidSpill, MakeError, Reading, Wanted, make, partition_bits};
pub use pacer::{Pace, Pacer, Stopped};
pub use reader::{InvalidSnapshot, Snapshot, SnapshotError};
pub use writer::Summary;
