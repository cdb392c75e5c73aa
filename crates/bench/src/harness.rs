//! The harness: what every experiment is written with.
//!
//! ```text
//!   arguments: Rounds, parsers of counts, seconds and bytes
//!      |
//!      v            cases, one closure that measures a case once
//!   experiment ------------------------------------------------> Table::group
//!      |                                                            |  forwards, backwards, ...
//!      +--> server: a server under test      measure(case, round) <-+  --rounds times
//!      +--> load, or clients of its own            |                |
//!              |                                   v                v
//!           Counters, Usage --------------------> Sample --> CSV: every round, then the medians
//!                                                               table: medians, spread, ratios
//!                                                               targets, charts
//! ```
//!
//! An experiment declares four things as plain data and has the rest done for it:
//!
//! - A case: a `Copy` struct that says what a row of its table measures.
//! - Its numbers: constants of type [`Number`], of which `sample` has the usual ones.
//! - A [`TableLayout`]: the columns, which are also fields of the CSV file, the number that leads,
//!   and a function that compares a row with others.
//! - A function that measures a case once and returns a [`Sample`].
//!
//! [`Table::group`] measures some cases in turns, forwards in one round and backwards in the next,
//! so that a machine that gets slower does so for all of them. It appends every round to the CSV
//! file, then the medians (round 0) with their ratios, and prints the medians with their spread.
//! What went wrong is in every sample: `Failed` requests and counts add up over the rounds, and
//! the notes of a row tell them.

pub mod arguments;
mod chart;
pub mod sample;
mod table;
mod target;
mod usage;

pub use self::{
    arguments::Rounds,
    chart::{Axis, Chart, Point, draw},
    sample::{Ends, Number, Sample, measurement},
    table::{Column, Row, Table, TableLayout, hidden, label, shown},
    target::{Target, Unit, Wanted, print_targets},
    usage::{Answering, Mark, Usage, Watched},
};
