//! `dolt`: what Dolt's own client does with a remote, replayed against a store some milliseconds
//! away: directly, and through busload cold and warm.
//!
//! ```text
//!   arguments --> cases: which rows --> harness: measures one ----------------------------------+
//!                                         |                                                 |
//!        store: a tree in table files <-- remote: S3 server, proxy, log (far, and at 0 ms)  |
//!                                         |             ^                                   |
//!      client: clone, scan, point, fetch -+--> busload: a server                            |
//!          as Dolt's does on the wire,                                                      |
//!          or by ranges of the store                                                        |
//!                          tables, statistics.csv, plot, summary <---- rows <---- sample <--+
//! ```
//!
//! The server runs on one processor, the load on another, the S3 server wherever there is room.
//! Rows that are compared are measured in turns, round after round, and what is shown are medians.
//! What is cold has a server and a directory of its own. Every chunk is checked against its
//! address, every file against what was written.

mod arguments;
mod cases;
mod client;
mod harness;
mod plot;
mod sample;
mod store;
mod summary;
mod table;

use std::path::Path;

use anyhow::{Result, bail};

use self::{
    cases::{Case, Section},
    harness::{Harness, PREFIX, Remotes},
    store::Store,
    table::{Row, Setting},
};
use crate::{
    bytes::bytes_text,
    cleanup::{Cleanup, directories},
    cli::busload_at,
    clock::utc_now,
    machine,
    remote::{Distance, Remote},
    report::{Csv, measurement},
    tables::{Case as _, Rows},
};

pub use self::arguments::Dolt;

/// The records of the tables.
const STATISTICS: &str = "statistics.csv";

pub fn dolt(arguments: &Dolt) -> Result<()> {
    arguments.check()?;
    let busload = busload_at(arguments.served.binary.busload.as_deref())?;
    let cleanup = Cleanup::install()?;
    // Goes last: everything else is in it or reads from it.
    let directory = directories(&cleanup, &arguments.out, arguments.dir.as_deref())?;
    let far = Remote::start(directory.path(), arguments.distance, arguments.seed)?;
    let near = far.beside(Distance::ZERO, arguments.seed)?;
    let store = Store::make(&far.directory().join(PREFIX), &arguments.design())?;
    let about = about(arguments, &busload, &store)?;
    println!("{about}");
    let setting = Setting { store_bytes: store.bytes(), distance: arguments.distance };
    let statistics = Csv::open(&arguments.out.join(STATISTICS), &about, Case::FIELDS)?;
    let starter = arguments.served.starter(busload, directory.path().to_owned())?;
    // From here on this thread is the load. Threads of the object store are older and run anywhere.
    arguments.served.processors.bind_load()?;
    let harness = Harness::new(arguments, cleanup, starter, Remotes { far, near }, store)?;
    let mut run = Run { harness, statistics, rows: Rows::new(setting) };
    run.sections()?;
    plot::draw_all(&arguments.out, &run.rows)?;
    summary::print(&run.rows, &arguments.layout, setting.store_bytes);
    run.check()
}

/// Date, machine, versions and what is shared by all rows, in one line.
fn about(arguments: &Dolt, busload: &Path, store: &Store) -> Result<String> {
    let (mean, ratio) = store.means();
    let mut parts = vec![utc_now(), machine::describe(), machine::program_version(busload)?];
    parts.push(format!(
        "{} chunks of {} B on average in {} table files, {}, stored at {:.0}%, {} of them in the \
         current version",
        store.count(),
        measurement(mean),
        store.files.len(),
        bytes_text(store.bytes()),
        ratio * 100.0,
        store.current,
    ));
    parts.push(arguments.distance.text());
    parts.push(arguments.served.processors.text());
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
        let ms = arguments.distance.first_byte;
        let bytes = bytes_text(self.rows.setting.store_bytes);
        if arguments.wants(Section::Clone) {
            self.group(&format!("A clone of {bytes}, store {ms} ms away"), &cases::clone())?;
        }
        if arguments.wants(Section::Clones) {
            let clients = arguments.clients;
            self.group(&format!("{clients} clones at once of {bytes}"), &cases::clones(clients))?;
        }
        if arguments.wants(Section::Scan) {
            let (count, bytes) =
                (self.harness.store.current, bytes_text(self.harness.leaves_bytes()));
            let title = format!(
                "A scan of {count} chunks, node by node; plain: {bytes}, as long as the leaves"
            );
            self.group(&title, &cases::scan(&arguments.layout))?;
        }
        if arguments.wants(Section::Point) {
            let title = format!("{} rows by key, a chain of chunks each", arguments.chains);
            self.group(&title, &cases::point(&arguments.layout))?;
        }
        if arguments.wants(Section::Fetch) {
            let (new, pushes) = (arguments.new, arguments.pushes);
            let title = format!("A fetch of the last {new} of {pushes} pushes");
            self.group(&title, &cases::fetch(&arguments.layout))?;
        }
        self.harness.stop()
    }

    /// Measures rows in turns and shows them as a table, with the calls below it.
    fn group(&mut self, title: &str, cases: &[Case]) -> Result<()> {
        let (rounds, harness) = (self.harness.arguments.rounds, &mut self.harness);
        let measure = |case: &_, round| harness.measure(case, round);
        let rows = self.rows.group(title, cases, rounds, &mut self.statistics, measure)?;
        for (calls, titles) in table::by_calls(rows) {
            println!("{calls}: {}", titles.join("; "));
        }
        Ok(())
    }

    /// A fast wrong answer is none, nor is a refusal.
    fn check(&self) -> Result<()> {
        match self.rows.failed().count() {
            0 => Ok(()),
            failed => bail!("{failed} replays were refused or answered wrongly; see the notes"),
        }
    }
}
