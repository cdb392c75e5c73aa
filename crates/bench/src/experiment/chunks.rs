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
mod figures;
mod lab;
mod load;
mod plot;
mod results;
mod sample;
mod sections;
mod store;
mod summary;
mod table;
mod tally;

use std::path::Path;

use anyhow::{Context, Result, bail};

use self::{
    cells::{Cell, Section},
    figures::Figures,
    lab::{Lab, PREFIX},
    plot::Growth,
    results::{Ratios, Results},
    sample::Sample,
    store::Store,
    table::Setting,
};
use crate::{
    bytes::bytes_text,
    cleanup::{Cleanup, directories},
    cli::busload_at,
    clock::utc_now,
    machine,
    remote::Remote,
    report::{Csv, figure},
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
    let busload = busload_at(arguments.served.binary.busload.as_deref())?;
    let cleanup = Cleanup::install()?;
    // Goes last: everything else is in it or reads from it.
    let directory = directories(&cleanup, &arguments.out, arguments.dir.as_deref())?;
    let remote = Remote::start(directory.path(), arguments.distance, arguments.seed)?;
    let store = Store::make(&remote.directory().join(PREFIX), &arguments.design())?;
    let about = about(arguments, &busload, &store)?;
    println!("{about}");
    let setting = Setting {
        chunk_bytes: store.means().0,
        store_bytes: store.bytes(),
        first_byte_ms: arguments.distance.first_byte,
    };
    let statistics = Csv::open(&arguments.out.join(STATISTICS), &about, table::CSV_HEADER)?;
    let figures = Figures::open(&arguments.out.join(FIGURES), &about)?;
    let starter = arguments.served.starter(busload, directory.path().to_owned())?;
    // From here on this thread is the load. Threads of the object store are older and run anywhere.
    arguments.served.bind_load()?;
    let lab = Lab::new(arguments, cleanup, starter, remote, store)?;
    let mut run =
        Run { lab, statistics, setting, figures, results: Results::default(), growth: Growth::default() };
    run.sections()?;
    plot::draw_all(&arguments.out, &run.results, &run.growth)?;
    summary::print(&run.results, &run.figures);
    run.check()
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
    parts.push(arguments.distance.text());
    parts.push(arguments.served.text());
    Ok(parts.join("; "))
}

/// The experiment as it goes.
struct Run<'a> {
    lab: Lab<'a>,
    statistics: Csv,
    setting: Setting,
    figures: Figures,
    results: Results,
    growth: Growth,
}

impl Run<'_> {
    fn sections(&mut self) -> Result<()> {
        let arguments = self.lab.arguments;
        let ms = arguments.distance.first_byte;
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

    /// Measures rows in turns and shows them as a table.
    fn group(&mut self, title: &str, cells: &[Cell]) -> Result<()> {
        let rounds = self.lab.arguments.rounds;
        let first = self.results.measure(cells, rounds, Sample::median, |cell, round| {
            let sample = self.lab.measure(cell, round).with_context(|| cell.name())?;
            self.statistics.append(&self.setting.fields(cell, &sample, round, Ratios::default()))?;
            tell(round, rounds, cell, &sample);
            Ok(sample)
        })?;
        let rows: Vec<_> = self.results.rows()[first..].iter().collect();
        table::print(title, &rows, &self.results);
        for row in rows {
            let fields = self.setting.fields(&row.cell, &row.sample, 0, self.results.ratios(row));
            self.statistics.append(&fields)?;
        }
        Ok(())
    }

    /// A fast wrong answer is none, nor is a refusal.
    fn check(&self) -> Result<()> {
        let failed: u64 = self.results.rows().iter().map(|row| row.sample.failed.count()).sum();
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
