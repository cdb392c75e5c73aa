//! `postgres`: many clients' single-key reads and writes of one Postgres table, not batched, in
//! fixed windows, and by busload, at any distance from the database. `lakefs`: the published
//! experiment that batching in windows comes from, with the same parts.
//!
//! ```text
//!   arguments --> cases --> Bench::measure: one case, once --> counters, usage --> Sample
//!                              |                                                    |
//!       database: given or <---+---> load: clients                                  v
//!       own; loading: its      |        +--> direct, busload:      results: the table, ratios,
//!       table                  |                what they ask         cells, targets
//!       route: the way to it, <+
//!       through a proxy or not
//! ```
//!
//! Rows that are compared are measured in turns, round after round, and what is shown are medians.
//! Nothing is bound to a processor: the load, busload and Postgres share the machine, as a service
//! and its database on one machine do; what each uses is shown beside every row. Every reply is
//! checked against the key it was asked for.

mod arguments;
mod bench;
mod busload;
mod database;
mod direct;
mod lakefs;
mod load;
mod loading;
mod results;
mod route;

use anyhow::{Result, bail};

use self::{
    arguments::{Case, Section, WINDOW_KEYS, Way, distance_text, groups},
    bench::Bench,
    results::{BATCH, LAYOUT, fastest},
};
use crate::{
    cli::name_of,
    harness::{Table, print_targets, sample::PER_S},
};

pub use self::{
    arguments::{Lakefs, Postgres},
    database::config_of,
    direct::{SESSION, connect},
    lakefs::lakefs,
};

/// Connections of a table that answers in windows.
const WINDOW_CONNECTIONS: usize = 20;

pub fn postgres(arguments: &Postgres) -> Result<()> {
    let common = &arguments.common;
    let (mut bench, about) = Bench::open(common, &arguments.case, WINDOW_CONNECTIONS)?;
    let mut table = Table::open(&LAYOUT, Some(&common.out.join("statistics.csv")), &about)?;
    for &distance in &common.distance {
        bench.go_to(distance)?;
        for &section in &arguments.section {
            let best = fastest(&table.rows, |case| {
                let is_window = case.approach.way == Way::Window;
                case.section == Section::Readers && is_window && case.distance == distance
            });
            let window = best.map_or(WINDOW_KEYS, |row| row.case.approach.number);
            for (clients, cases) in groups(arguments, section, distance, window) {
                let text = distance_text(distance);
                let title = format!("{}; clients {clients}, distance {text}", section.title());
                let measure = |case: &_, round| bench.measure(case, round);
                table.group(&title, &cases, common.rounds.rounds, measure)?;
            }
            if section == Section::Upserts {
                bench.vacuum()?;
            }
        }
    }
    bench.close()?;
    let way = |case: &Case| {
        let is_shown = case.section == Section::Readers && case.clients == arguments.readers_max();
        let name = format!("{} {}", name_of(&case.approach.way), distance_text(case.distance));
        is_shown.then_some(name)
    };
    table.draw(&common.out.join("batch-size.svg"), (BATCH, PER_S), way)?;
    results::print_cells(&table.rows, &common.out, &about)?;
    let targets = results::targets(&table.rows);
    if targets.iter().any(|target| target.value.is_some()) {
        print_targets(&targets);
    }
    refuse_wrong(&table)
}

/// Fails if an answer was wrong: a fast one is none.
fn refuse_wrong(table: &Table<Case>) -> Result<()> {
    match table.failed().wrong.count {
        0 => Ok(()),
        wrong => bail!("{wrong} answers were wrong; see the notes of their rows"),
    }
}
