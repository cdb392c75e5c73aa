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
//! An experiment declares as plain data: a case (a `Copy` struct that says what a row of its table
//! measures), its numbers (constants of type [`Number`]; `sample` has the usual ones), and a
//! [`TableLayout`] of columns, which are also the fields of the CSV file. A closure measures a case
//! once and returns a [`Sample`].
//!
//! [`Table::group`] measures cases in turns, so that a machine that gets slower does so for all of
//! them. It appends every round to the CSV file, then the medians (round 0) with their ratios, and
//! prints the medians with their spread. Failed requests and counts add up over the rounds, and the
//! notes of a row tell them.

pub mod arguments;
pub mod chart;
pub mod sample;
mod table;
mod target;
mod usage;

pub use self::{
    arguments::Rounds,
    sample::{Ends, Number, Sample, measurement},
    table::{Row, Table, TableLayout, hidden, label, shown},
    target::{Target, Unit, Wanted, print_targets},
    usage::{Answering, Mark, Usage, Watched},
};
