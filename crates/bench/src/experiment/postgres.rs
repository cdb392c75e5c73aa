//! `postgres`: many clients' single-key reads and writes of one Postgres table, not batched, in
//! fixed windows, and by busload.
//!
//! ```text
//!   arguments --> sections: which rows --> harness: measures one -----------------+
//!                                            |                                |
//!       database: given or own cluster <-----+--> tasks: clients in process   |--> counters --> sample
//!       loading: the table                   |      plain, library, ceiling   |
//!       server: the busload binary <---------+--> wire: clients over RESP ----+
//!                                                                             |
//!                        table, statistics.csv, plot, summary <--- results <--+
//! ```
//!
//! Rows that are compared are measured in turns, round after round, and what is shown are medians.
//! Nothing is bound to a processor: the load, busload and Postgres share the machine, as a service
//! and its database on one machine do; what each uses is shown beside every row. Every reply is
//! checked against the key it was asked for.

mod approach;
mod arguments;
mod ceiling;
mod counters;
mod database;
mod harness;
mod library;
mod loading;
mod plain;
mod plot;
mod results;
mod rows;
mod sample;
mod sections;
mod server;
mod summary;
mod table;
mod tasks;
mod wire;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use self::{
    approach::Section,
    database::Database,
    harness::Harness,
    results::{Ratios, Results},
    sample::Sample,
    sections::Group,
    table::Setting,
};
use crate::{
    cleanup::Cleanup,
    cli::busload_at,
    clock::utc_now,
    machine,
    report::{Csv, measurement},
    stats::float,
};

pub use self::arguments::Postgres;

const STATISTICS: &str = "statistics.csv";

pub fn postgres(arguments: &Postgres) -> Result<()> {
    arguments.check()?;
    let busload = busload(arguments)?;
    let cleanup = Cleanup::install()?;
    std::fs::create_dir_all(&arguments.out)
        .with_context(|| format!("cannot make {}", arguments.out.display()))?;
    let mut database = Database::open(arguments)?;
    loading::prepare(&mut database, arguments.source.rows, arguments.source.reload)?;
    let setting = Setting {
        rows: arguments.source.rows,
        shared_buffers: database.setting("shared_buffers")?,
    };
    let about = about(arguments, &mut database, &busload, &setting)?;
    println!("{about}");
    let statistics = Csv::open(&arguments.out.join(STATISTICS), &about, table::CSV_HEADER)?;
    let starter = arguments.binary.starter(busload, None, std::env::temp_dir());
    let harness = Harness::new(arguments, database, cleanup, starter);
    let mut run = Run { harness, statistics, setting, results: Results::default() };
    run.sections()?;
    run.harness.stop_server()?;
    plot::draw_all(&arguments.out, &run.results)?;
    summary::print(&run.results);
    run.check()
}

/// The binary, looked for before anything takes time.
fn busload(arguments: &Postgres) -> Result<PathBuf> {
    match &arguments.binary.busload {
        None if !sections::need_server(arguments) => Ok(PathBuf::from("busload")),
        named => busload_at(named.as_deref()),
    }
}

/// Date, machine, versions and what is shared by all rows, in one line.
fn about(
    arguments: &Postgres,
    database: &mut Database,
    busload: &std::path::Path,
    setting: &Setting,
) -> Result<String> {
    let mut parts = vec![utc_now(), machine::describe()];
    parts.push(format!("PostgreSQL {}, {}", database.setting("server_version")?, database.place()));
    if busload.is_file() {
        parts.push(machine::program_version(busload)?);
    }
    let gigabytes = float(loading::table_bytes(database)?) / 1e9;
    parts.push(format!("{} rows, {} GB with the index", setting.rows, measurement(gigabytes)));
    parts.push(format!("shared_buffers {}", setting.shared_buffers));
    parts.push(format!("fsync {}", database.setting("fsync")?));
    parts.push(format!("synchronous_commit {}", database.setting("synchronous_commit")?));
    parts.push(match arguments.workers {
        0 => "load in process on one thread".to_owned(),
        workers => format!("load in process on {workers} threads"),
    });
    parts.push("no processor bound".to_owned());
    Ok(parts.join("; "))
}

/// The experiment as it goes.
struct Run<'a> {
    harness: Harness<'a>,
    statistics: Csv,
    setting: Setting,
    results: Results,
}

impl Run<'_> {
    fn sections(&mut self) -> Result<()> {
        let arguments = self.harness.arguments;
        let wants = |section| arguments.section.contains(&section);
        for keys in &arguments.keys {
            self.group(&sections::many_readers(arguments, *keys))?;
        }
        let keys = arguments.keys[0];
        let best_window = self.results.best_window(keys);
        if wants(Section::LowLoad) {
            self.group(&sections::low_load(arguments, keys, best_window))?;
        }
        if wants(Section::Rate) {
            self.group(&sections::rate(arguments, keys, best_window))?;
        }
        if wants(Section::SmallMemory) {
            self.small_memory()?;
        }
        if wants(Section::Upserts) {
            let group = sections::upserts(arguments, keys);
            self.group(&group)?;
            if !group.cases.is_empty() {
                loading::tidy(&mut self.harness.database)?;
            }
        }
        Ok(())
    }

    fn small_memory(&mut self) -> Result<()> {
        let arguments = self.harness.arguments;
        if !self.harness.database.is_own() {
            println!("\nsmall-memory is left out: only an own cluster can be restarted");
            return Ok(());
        }
        let size = &arguments.source.small_shared_buffers;
        self.restart(Some(size.as_str()))?;
        let bytes = loading::table_bytes(&mut self.harness.database)?;
        let about_sizes = format!(
            "{} GB of table and index, shared_buffers {}, {}",
            measurement(float(bytes) / 1e9),
            self.setting.shared_buffers,
            match machine::memory_bytes() {
                Some(memory) if memory < bytes => "larger than memory",
                _ => "all of it in the system's page cache",
            }
        );
        self.group(&sections::small_memory(arguments, arguments.keys[0], &about_sizes))?;
        self.restart(None)
    }

    fn restart(&mut self, shared_buffers: Option<&str>) -> Result<()> {
        self.harness.stop_server()?;
        self.harness.database.restart_with_buffers(shared_buffers)?;
        loading::settle(&mut self.harness.database)?;
        self.setting.shared_buffers = self.harness.database.setting("shared_buffers")?;
        Ok(())
    }

    /// Measures rows in turns and shows them as a table.
    fn group(&mut self, group: &Group) -> Result<()> {
        let rounds = self.harness.arguments.rounds;
        let first = self.results.measure(&group.cases, rounds, Sample::median, |case, round| {
            let sample = self.harness.measure(case, round).with_context(|| case.name())?;
            self.statistics.append(&self.setting.fields(
                case,
                &sample,
                round,
                Ratios::default(),
            ))?;
            tell(round, rounds, case, &sample);
            Ok(sample)
        })?;
        self.report(&group.title, first)
    }

    fn report(&mut self, title: &str, first: usize) -> Result<()> {
        let rows: Vec<_> = self.results.rows()[first..].iter().collect();
        if rows.is_empty() {
            return Ok(());
        }
        table::print(title, &rows, &self.results);
        for row in rows {
            let fields = self.setting.fields(&row.case, &row.sample, 0, self.results.ratios(row));
            self.statistics.append(&fields)?;
        }
        Ok(())
    }

    /// A fast wrong answer is none.
    fn check(&self) -> Result<()> {
        let wrong: u64 = self.results.rows().iter().map(|row| row.sample.failed.wrong.count).sum();
        if 0 < wrong {
            bail!("{wrong} answers were wrong; see the notes of their rows");
        }
        Ok(())
    }
}

/// One line for whoever waits.
fn tell(round: usize, rounds: usize, case: &approach::Case, sample: &Sample) {
    let (per_s, p50) = (measurement(sample.per_s / 1_000.0), measurement(sample.p50_us));
    eprintln!(
        "round {round} of {rounds}: {}: {per_s} k/s, p50 {p50} us {}",
        case.name(),
        sample.notes()
    );
}
