//! `chunks`: chunks of a store some milliseconds away, read directly and through busload, cold,
//! filling and warm.
//!
//! ```text
//!   arguments --> cases: which rows --> harness: measures one ---------------------------+
//!                                         |                                          |
//!      contents --> store: files, manifest, chain <-- remote: S3 server, proxy, log  |
//!                                         |             ^                            |
//!      load: callers in turns --clients---+--> server: busload                       |
//!          gRPC, RESP, S3, bare loops                                                |
//!                 tables, statistics.csv, measurements.csv, plot, summary <--- rows <-----+
//! ```
//!
//! The server runs on one processor, the load on another, the S3 server wherever there is room.
//! Rows that are compared are measured in turns, round after round, and what is shown are medians.
//! Whatever is empty before a measurement gets a server and a directory of its own. Every chunk is
//! checked by number and size.

mod arguments;
mod cases;
mod clients;
mod contents;
mod harness;
mod load;
mod measurements;
mod plot;
mod sections;
mod store;
mod summary;
mod table;

use std::path::Path;

use anyhow::{Result, bail};

use self::{
    cases::{Case, Section},
    harness::{Harness, PREFIX},
    measurements::Measurements,
    plot::Growth,
    store::Store,
    table::{Row, Setting},
};
use crate::{
    bytes::bytes_text,
    cleanup::{Cleanup, directories},
    cli::busload_at,
    clock::utc_now,
    machine,
    remote::Remote,
    report::{Csv, measurement},
    tables::{Case as _, Rows},
};

pub use self::arguments::Chunks;

/// The records of the tables.
const STATISTICS: &str = "statistics.csv";

/// The numbers of other sections.
const MEASUREMENTS: &str = "measurements.csv";

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
    let statistics = Csv::open(&arguments.out.join(STATISTICS), &about, Case::FIELDS)?;
    let measurements = Measurements::open(&arguments.out.join(MEASUREMENTS), &about)?;
    let starter = arguments.served.starter(busload, directory.path().to_owned())?;
    // From here on this thread is the load. Threads of the object store are older and run anywhere.
    arguments.served.processors.bind_load()?;
    let harness = Harness::new(arguments, cleanup, starter, remote, store)?;
    let mut run = Run {
        harness,
        statistics,
        measurements,
        rows: Rows::new(setting),
        growth: Growth::default(),
    };
    run.sections()?;
    plot::draw_all(&arguments.out, &run.rows, &run.growth)?;
    summary::print(&run.rows, &run.measurements);
    run.check()
}

/// Date, machine, versions and what is shared by all rows, in one line.
fn about(arguments: &Chunks, busload: &Path, store: &Store) -> Result<String> {
    let (mean, ratio) = store.means();
    let mut parts = vec![utc_now(), machine::describe(), machine::program_version(busload)?];
    parts.push(format!(
        "{} chunks of {} B on average in {} table files, {}, stored at {:.0}%",
        store.count(),
        measurement(mean),
        store.files.len(),
        bytes_text(store.bytes()),
        ratio * 100.0
    ));
    parts.push(arguments.distance.text());
    parts.push(arguments.served.processors.text());
    Ok(parts.join("; "))
}

/// The experiment as it goes.
struct Run<'a> {
    harness: Harness<'a>,
    statistics: Csv<Row>,
    measurements: Measurements,
    rows: Rows<Case>,
    growth: Growth,
}

impl Run<'_> {
    fn sections(&mut self) -> Result<()> {
        let arguments = self.harness.arguments;
        let ms = arguments.distance.first_byte;
        if arguments.wants(Section::Chain) {
            let title =
                format!("A chain of {} dependent reads, store {ms} ms away", arguments.chain);
            self.group(&title, &cases::chain())?;
        }
        if arguments.wants(Section::Reads) {
            let cases = cases::reads(&arguments.callers, arguments.batches());
            self.group(&format!("Random reads, store {ms} ms away"), &cases)?;
        }
        if arguments.wants(Section::Throughput) {
            let cases = cases::throughput(arguments.throughput_callers, arguments.batches());
            self.group("As many warm chunks as the server's processor gives", &cases)?;
        }
        self.harness.stop()?;
        if arguments.wants(Section::Cold) {
            sections::cold::run(&self.harness, &mut self.measurements)?;
        }
        if arguments.wants(Section::ThunderingHerd) {
            sections::thundering_herd::run(&self.harness, &mut self.measurements)?;
        }
        if arguments.wants(Section::Open) {
            sections::open::run(&self.harness, &mut self.measurements)?;
        }
        if arguments.wants(Section::Memory) {
            self.growth = sections::memory::run(&self.harness, &mut self.measurements)?;
        }
        Ok(())
    }

    fn group(&mut self, title: &str, cases: &[Case]) -> Result<()> {
        let (rounds, harness) = (self.harness.arguments.rounds, &mut self.harness);
        let measure = |case: &_, round| harness.measure(case, round);
        self.rows.group(title, cases, rounds, &mut self.statistics, measure).map(drop)
    }

    /// A fast wrong answer is none, nor is a refusal.
    fn check(&self) -> Result<()> {
        match self.rows.failed().count() {
            0 => Ok(()),
            failed => bail!("{failed} requests were refused or answered wrongly; see the notes"),
        }
    }
}
