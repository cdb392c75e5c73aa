//! `postgres`: many clients' single-key reads and writes of one Postgres table, not batched, in
//! fixed windows, and by busload.
//!
//! ```text
//!   arguments --> cases: which rows --> measure: one row, once ----------------+
//!                                          |                                   |
//!       database: given or own cluster <---+--> load: clients                  |
//!       loading: the table                 |      |  direct, library,          v
//!       the busload binary <---------------+      +--> resp: what they ask  counters, usage
//!                                                                              |
//!                                table: what rows show, ratios <--- Sample <---+
//!                                results: charts, targets
//! ```
//!
//! Rows that are compared are measured in turns, round after round, and what is shown are medians.
//! Nothing is bound to a processor: the load, busload and Postgres share the machine, as a service
//! and its database on one machine do; what each uses is shown beside every row. Every reply is
//! checked against the key it was asked for.

mod arguments;
mod cases;
mod database;
mod direct;
mod library;
mod load;
mod loading;
mod measure;
mod resp;
mod results;
mod rows;
mod table;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use self::{
    cases::{Approach, Case, Section, WINDOW_KEYS, cases},
    database::Database,
    measure::Bench,
    rows::Distribution,
    table::{LAYOUT, fastest, value_name},
};
use crate::{
    cleanup::Cleanup,
    cli::busload_at,
    harness::{Table, measurement, print_targets},
    machine,
    stats::float,
};

pub use self::arguments::Postgres;

const STATISTICS: &str = "statistics.csv";

pub fn postgres(arguments: &Postgres) -> Result<()> {
    let busload = busload(arguments)?;
    let cleanup = Cleanup::install()?;
    std::fs::create_dir_all(&arguments.out)
        .with_context(|| format!("cannot make {}", arguments.out.display()))?;
    let mut database = Database::open(arguments)?;
    loading::prepare(&mut database, arguments.source.rows, arguments.source.reload)?;
    let about = about(arguments, &mut database, &busload)?;
    println!("{about}");
    let table = Table::open(&LAYOUT, Some(&arguments.out.join(STATISTICS)), &about)?;
    let starter = arguments.binary.starter(busload, None, std::env::temp_dir());
    let bench = Bench { arguments, database, cleanup, starter, server: None, measured: 0 };
    let mut run = Run { bench, table };
    run.sections()?;
    run.bench.stop_server()?;
    results::draw_all(&arguments.out, &run.table.rows)?;
    let targets = results::targets(&run.table.rows);
    if !targets.is_empty() {
        print_targets(&targets);
    }
    match run.table.failed().wrong.count {
        0 => Ok(()),
        // A fast wrong answer is none.
        wrong => bail!("{wrong} answers were wrong; see the notes of their rows"),
    }
}

/// Finds the binary before anything takes time, if any row needs it.
fn busload(arguments: &Postgres) -> Result<PathBuf> {
    let sections = arguments.section.iter();
    let mut cases =
        sections.flat_map(|section| cases(arguments, *section, Distribution::Uniform, WINDOW_KEYS));
    let needs_server =
        cases.any(|case| matches!(case.approach, Approach::Resp(_) | Approach::Memory));
    match &arguments.binary.busload {
        None if !needs_server => Ok(PathBuf::from("busload")),
        named => busload_at(named.as_deref()),
    }
}

/// Says in one line when and where this is, of what versions, and what all rows share.
fn about(
    arguments: &Postgres,
    database: &mut Database,
    busload: &std::path::Path,
) -> Result<String> {
    let programs: &[_] = if busload.is_file() { &[busload] } else { &[] };
    let (gigabytes, rows) = (float(database.table_bytes()?) / 1e9, arguments.source.rows);
    let settings = ["server_version", "shared_buffers", "fsync", "synchronous_commit"];
    let more = [
        format!("Postgres: {}; {}", database.place(), database.settings(&settings)?),
        format!("in small-memory {}", arguments.source.small_shared_buffers),
        format!("{rows} rows, {} GB with the index", measurement(gigabytes)),
        match arguments.workers {
            0 => "load on one thread".to_owned(),
            workers => format!("load in process on {workers} threads"),
        },
        "no processor bound".to_owned(),
    ];
    machine::about(programs, more)
}

/// The experiment as it goes.
struct Run<'a> {
    bench: Bench<'a>,
    table: Table<Case>,
}

impl Run<'_> {
    fn sections(&mut self) -> Result<()> {
        let Postgres { readers, keys, .. } = self.bench.arguments;
        for &keys in keys {
            let title = format!("{readers} readers, {} keys", value_name(&keys));
            self.group(&title, &Section::MANY_READERS, keys)?;
        }
        let (keys, name) = (keys[0], value_name(&keys[0]));
        let title = format!("Response times from one reader on, {name} keys");
        self.group(&title, &[Section::LowLoad], keys)?;
        let title =
            format!("Requests at a fixed rate, {name} keys; response times from when each was due");
        self.group(&title, &[Section::Rate], keys)?;
        if self.bench.arguments.section.contains(&Section::SmallMemory) {
            self.small_memory(keys)?;
        }
        let title = format!("{readers} writers, upserts of {name} keys");
        if self.group(&title, &[Section::Upserts], keys)? {
            // The next run finds the table as small and as visible as it can be.
            let database = &mut self.bench.database;
            let vacuum = format!("VACUUM (ANALYZE) {}", database.relation);
            database.execute(&vacuum)?;
        }
        Ok(())
    }

    fn small_memory(&mut self, keys: Distribution) -> Result<()> {
        if !self.bench.database.is_own() {
            println!("\nsmall-memory is left out: only an own cluster can be restarted");
            return Ok(());
        }
        let arguments = self.bench.arguments;
        self.restart(Some(arguments.source.small_shared_buffers.as_str()))?;
        let bytes = self.bench.database.table_bytes()?;
        let title = format!(
            "{} readers, {} keys, {} GB of table and index, {}, {}",
            arguments.readers,
            value_name(&keys),
            measurement(float(bytes) / 1e9),
            self.bench.database.settings(&["shared_buffers"])?,
            match machine::memory_bytes() {
                Some(memory) if memory < bytes => "larger than memory",
                _ => "all of it in the system's page cache",
            }
        );
        self.group(&title, &[Section::SmallMemory], keys)?;
        self.restart(None)
    }

    fn restart(&mut self, shared_buffers: Option<&str>) -> Result<()> {
        self.bench.stop_server()?;
        self.bench.database.restart_with_buffers(shared_buffers)?;
        loading::settle(&mut self.bench.database)
    }

    /// Measures the cases of sections that were asked for. Returns whether there are any.
    fn group(&mut self, title: &str, sections: &[Section], keys: Distribution) -> Result<bool> {
        let arguments = self.bench.arguments;
        let windows = |case: &Case| case.section == Section::Windows && case.keys == keys;
        let best = fastest(&self.table.rows, Section::Windows, windows);
        let window = best.and_then(|row| row.case.approach.parts().1.parse().ok());
        let window = window.unwrap_or(WINDOW_KEYS);
        let sections = sections.iter().filter(|section| arguments.section.contains(section));
        let cases: Vec<_> =
            sections.flat_map(|section| cases(arguments, *section, keys, window)).collect();
        let measure = |case: &_, round| self.bench.measure(case, round);
        let rows = self.table.group(title, &cases, arguments.rounds.rounds, measure)?;
        Ok(!rows.is_empty())
    }
}
