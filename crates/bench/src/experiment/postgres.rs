//! `postgres`: many clients' single-key reads and writes of one Postgres table, not batched, in
//! fixed windows, and by busload.
//!
//! ```text
//!   arguments --> sections: which rows --> harness: measures one --------------+
//!                                            |                                 |
//!       database: given or own cluster <-----+--> tasks: clients in process    |
//!       loading: the table                   |      plain, library, ceiling    |
//!       server: the busload binary <---------+--> wire: clients over RESP      v
//!                                                              counters --> sample
//!                        tables, statistics.csv, plot, summary <--- rows <-------+
//! ```
//!
//! Rows that are compared are measured in turns, round after round, and what is shown are medians.
//! Nothing is bound to a processor: the load, busload and Postgres share the machine, as a service
//! and its database on one machine do; what each uses is shown beside every row. Every reply is
//! checked against the key it was asked for.

mod approach;
mod arguments;
mod ceiling;
mod database;
mod harness;
mod library;
mod loading;
mod plain;
mod plot;
mod rows;
mod sections;
mod server;
mod summary;
mod table;
mod tasks;
mod watch;
mod wire;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use self::{
    approach::{Case, Section},
    database::Database,
    harness::Harness,
    sections::Group,
    table::{Row, Setting},
};
use crate::{
    cleanup::Cleanup,
    cli::busload_at,
    clock::utc_now,
    machine,
    report::{Csv, measurement},
    stats::float,
    tables::{Case as _, Rows},
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
    let statistics = Csv::open(&arguments.out.join(STATISTICS), &about, Case::FIELDS)?;
    let starter = arguments.binary.starter(busload, None, std::env::temp_dir());
    let harness = Harness::new(arguments, database, cleanup, starter);
    let mut run = Run { harness, statistics, rows: Rows::new(setting) };
    run.sections()?;
    run.harness.stop_server()?;
    plot::draw_all(&arguments.out, &run.rows)?;
    summary::print(&run.rows);
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
    statistics: Csv<Row>,
    rows: Rows<Case>,
}

impl Run<'_> {
    fn sections(&mut self) -> Result<()> {
        let arguments = self.harness.arguments;
        let wants = |section| arguments.section.contains(&section);
        for keys in &arguments.keys {
            self.group(&sections::many_readers(arguments, *keys))?;
        }
        let keys = arguments.keys[0];
        let best_window = self.rows.best_window(keys);
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
            self.rows.setting.shared_buffers,
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
        self.rows.setting.shared_buffers = self.harness.database.setting("shared_buffers")?;
        Ok(())
    }

    fn group(&mut self, group: &Group) -> Result<()> {
        let (rounds, harness) = (self.harness.arguments.rounds, &mut self.harness);
        let measure = |case: &_, round| harness.measure(case, round);
        let Group { title, cases } = group;
        self.rows.group(title, cases, rounds, &mut self.statistics, measure).map(drop)
    }

    /// A fast wrong answer is none.
    fn check(&self) -> Result<()> {
        match self.rows.failed().wrong.count {
            0 => Ok(()),
            wrong => bail!("{wrong} answers were wrong; see the notes of their rows"),
        }
    }
}
