//! The policy of reading ahead and of sharing reads, as pure functions: no IO, no lock, no clock.
//! Time, the store's pace and the progress of fetches are arguments.
//!
//! * [`coalesce()`]: which missing ranges share one read, and how much is read beside them.
//! * [`is_sooner`], [`is_near`]: whether a reader joins a fetch under way or starts its own.
//! * [`may_send`]: whether the next fetch ahead of a stream, or the next part of a fill, is sent.
//! * [`part_extents`]: how long a part is.
//! * [`Reach`], [`run_end`]: how far ahead of a stream fetches start, and where each ends.

mod arrival;
mod coalesce;
mod pacing;
mod reach;

pub(crate) use arrival::{is_near, is_sooner};
pub(crate) use coalesce::{blocks_of, coalesce, gap_max};
pub(crate) use pacing::may_send;
pub(crate) use reach::{Reach, part_extents, run_end};
