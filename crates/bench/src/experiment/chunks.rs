//! `chunks`: chunks of a store some milliseconds away, read directly and through busload, cold, filling and warm.
//!
//! ```text
//!   arguments --> cells: which rows --> lab: measures one ---------------------------+
//!                                         |                                          |
//!      contents --> store: files, manifest, chain <-- remote: S3 server, proxy, log  |
//!                                         |             ^                            |
//!      load: callers in turns --clients---+--> server: busload                       |
//!          gRPC, RESP, S3, bare loops                                                |
//!                 tables, statistics.csv, figures.csv, plot, summary <--- results <--+
//! ```
//!
//! The server runs on one processor, the load on another, the S3 server wherever there is room. Rows that are compared are
//! measured in turns, round after round, and what is shown are medians. Whatever is empty before a measurement gets a server
//! and a directory of its own. Every chunk is checked by number and size.

mod arguments;
mod cells;
mod clients;
mod contents;
mod lab;
mod load;
mod plot;
mod remote;
mod results;
mod sample;
mod sections;
mod server;
mod store;
mod summary;
mod table;
mod tally;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use self::{
    cells::{Cell, Section},
    lab::{Lab, PREFIX},
    plot::Growth,
    remote::Remote,
    results::{Figures, Ratios, Results},
    sample::Sample,
    server::Starter,
    store::Store,
    table::{Setting, Statistics},
};
use crate::{
    bytes::bytes_text,
    cleanup::Cleanup,
    cli::{bail_usage, cpus, find_busload},
    clock::utc_now,
    machine,
    report::figure,
};

pub use self::arguments::Chunks;

/// The records of the tables.
const STATISTICS: &str = "statistics.csv";

/// The numbers of other sections.
const FIGURES: &str = "figures.csv";

/// Runs the experiment.
///
/// # Errors
///
/// Wrong arguments, a server that cannot be started, or wrong answers.
pub fn chunks(arguments: &Chunks) -> Result<()> {
    arguments.check()?;
    let busload = busload(arguments)?;
    let cleanup = Cleanup::install()?;
    std::fs::create_dir_all(&arguments.out)
        .with_context(|| format!("cannot make {}", arguments.out.display()))?;
    let parent = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    // Goes last: everything else is in it or reads from it.
    let directory = cleanup.directory(&parent)?;
    let remote = Remote::start(directory.path(), arguments.distance(), arguments.seed)?;
    let store = Store::make(&remote.directory().join(PREFIX), &arguments.design())?;
    let about = about(arguments, &busload, &store)?;
    println!("{about}");
    let setting = Setting {
        chunk_bytes: store.means().0,
        store_bytes: store.bytes(),
        first_byte_ms: arguments.first_byte,
    };
    let statistics = Statistics::open(&arguments.out.join(STATISTICS), &about, setting)?;
    let figures = Figures::open(&arguments.out.join(FIGURES), &about)?;
    let starter = Starter {
        busload,
        arguments: arguments.busload_args.split_ascii_whitespace().map(str::to_owned).collect(),
        cpus: cpus(&arguments.server_cpu)?,
        directory: directory.path().to_owned(),
    };
    // From here on this thread is the load. Threads of the object store are older and run anywhere.
    cpus(&arguments.load_cpu)?.map_or(Ok(()), |cpus| cpus.bind_thread())?;
    let lab = Lab::new(arguments, cleanup, starter, remote, store)?;
    let mut run = Run { lab, statistics, figures, results: Results::default(), growth: Growth::default() };
    run.sections()?;
    plot::draw_all(&arguments.out, &run.results, &run.growth)?;
    summary::print(&run.results, &run.figures);
    run.check()
}

/// The binary, looked for before anything takes time.
fn busload(arguments: &Chunks) -> Result<PathBuf> {
    match &arguments.busload {
        Some(path) if path.is_file() => Ok(path.clone()),
        Some(path) => bail_usage!("no busload binary at {}", path.display()),
        None => find_busload(),
    }
}

/// Date, machine, versions and what is shared by all rows, in one line.
fn about(arguments: &Chunks, busload: &Path, store: &Store) -> Result<String> {
    let (mean, ratio) = store.means();
    let mut parts = vec![utc_now(), machine::describe(), machine::program_version(busload)?];
    parts.push(format!(
        "{} chunks of {} B on average in {} table files, {}, stored at {:.0}%",
        store.count(),
        figure(mean),
        store.files.len(),
        bytes_text(store.bytes()),
        ratio * 100.0
    ));
    parts.push(format!(
        "store {} ms away, +-{}, {} a second and response",
        arguments.first_byte,
        arguments.jitter,
        if arguments.bandwidth == 0 {
            "no limit of bytes".to_owned()
        } else {
            bytes_text(arguments.bandwidth)
        }
    ));
    parts.push(format!("server on {}, load on {}", arguments.server_cpu, arguments.load_cpu));
    Ok(parts.join("; "))
}

/// The experiment as it goes.
struct Run<'a> {
    lab: Lab<'a>,
    statistics: Statistics,
    figures: Figures,
    results: Results,
    growth: Growth,
}

impl Run<'_> {
    fn sections(&mut self) -> Result<()> {
        let arguments = self.lab.arguments;
        let ms = arguments.first_byte;
        if arguments.wants(Section::Chain) {
            let title = format!("A chain of {} dependent reads, store {ms} ms away", arguments.chain);
            self.group(&title, &cells::chain())?;
        }
        if arguments.wants(Section::Reads) {
            let cells = cells::reads(&arguments.callers, arguments.batches());
            self.group(&format!("Random reads, store {ms} ms away"), &cells)?;
        }
        if arguments.wants(Section::Throughput) {
            let cells = cells::throughput(arguments.throughput_callers, arguments.batches());
            self.group("As many warm chunks as the server's processor gives", &cells)?;
        }
        self.lab.stop()?;
        if arguments.wants(Section::Cold) {
            sections::cold::run(&self.lab, &mut self.figures)?;
        }
        if arguments.wants(Section::Herd) {
            sections::herd::run(&self.lab, &mut self.figures)?;
        }
        if arguments.wants(Section::Open) {
            sections::open::run(&self.lab, &mut self.figures)?;
        }
        if arguments.wants(Section::Memory) {
            self.growth = sections::memory::run(&self.lab, &mut self.figures)?;
        }
        Ok(())
    }

    /// Measures rows in turns: forwards in one round, backwards in the next, so that a machine that gets slower or faster
    /// does so for all.
    fn group(&mut self, title: &str, cells: &[Cell]) -> Result<()> {
        let rounds = self.lab.arguments.rounds;
        let mut samples = vec![Vec::new(); cells.len()];
        for round in 1..=rounds {
            let forwards = 0..cells.len();
            let order: Vec<_> = if round % 2 == 1 { forwards.collect() } else { forwards.rev().collect() };
            for index in order {
                let cell = &cells[index];
                let sample = self.lab.measure(cell, round).with_context(|| cell.name())?;
                self.statistics.append(cell, &sample, round, Ratios::default())?;
                tell(round, rounds, cell, &sample);
                samples[index].push(sample);
            }
        }
        let first = self.results.rows().len();
        for (cell, samples) in cells.iter().zip(&samples) {
            self.results.add(*cell, Sample::median(samples));
        }
        let rows: Vec<_> = self.results.rows()[first..].iter().collect();
        table::print(title, &rows, &self.results);
        for row in rows {
            self.statistics.append(&row.cell, &row.sample, 0, self.results.ratios(row))?;
        }
        Ok(())
    }

    /// A fast wrong answer is none, nor is a refusal.
    fn check(&self) -> Result<()> {
        let failed = |row: &results::Measured| row.sample.wrong.count + row.sample.refused.count;
        let failed: u64 = self.results.rows().iter().map(failed).sum();
        if 0 < failed {
            bail!("{failed} requests were refused or answered wrongly; see the notes of their rows");
        }
        Ok(())
    }
}

/// One line for whoever waits.
fn tell(round: usize, rounds: usize, cell: &Cell, sample: &Sample) {
    let (per_s, p50) = (figure(sample.per_s / 1_000.0), figure(sample.p50_us));
    eprintln!("round {round} of {rounds}: {}: {per_s} k/s, p50 {p50} us {}", cell.name(), sample.notes());
}
