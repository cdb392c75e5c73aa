//! `dolt`: what Dolt's own client does with a remote, replayed against a store some milliseconds
//! away: directly, and through busload cold and warm.
//!
//! ```text
//!   arguments --> cases: which rows --> runner: measures one -------------------+
//!                                         |                                     |
//!                tree: pushes of a tree <-+--> store_bench: S3 server, proxies, |
//!                                         |    log (far, and at 0 ms), servers  |
//!      client: clone, scan, point, fetch -+    of busload                       |
//!          as Dolt's does on the wire,                                          |
//!          or by ranges of the store            table, CSV file, chart, targets <+
//! ```
//!
//! The server runs on one processor, the load on another, the S3 server wherever there is room.
//! Rows that are compared are measured in turns, round after round, and what is shown are medians.
//! What is cold has a server and a directory of its own. Every chunk is checked against its
//! address, every file against what was written.

mod arguments;
mod cases;
mod client;
mod runner;
mod tree;

use anyhow::{Result, bail};
use clap::ValueEnum;

pub use self::arguments::Dolt;
use self::{
    arguments::{Layout, Section},
    cases::{Case, LAYOUT, READ_BYTES, Way, X_NEAR, X_PLAIN},
    client::Streams,
    runner::Runner,
    tree::TreeStore,
};
use super::store_bench::{PREFIX, StoreBench, name_of};
use crate::{
    bytes::bytes_text,
    harness::{
        Axis, Chart, Number, Point, Table, Target, Unit, Wanted, draw, print_targets,
        sample::SECONDS,
    },
    remote::Distance,
    stats::{float, float_of, ratio},
};

/// Rounding to extents and the chunk of the root may be read beside a file.
const ONCE: f64 = 1.01;

pub fn dolt(arguments: &Dolt) -> Result<()> {
    arguments.check()?;
    let bench = StoreBench::start(&arguments.store, arguments.seed)?;
    let near = bench.remote.beside(Distance::ZERO, arguments.seed)?;
    arguments.store.served.processors.bind_load()?;
    let tree = TreeStore::make(&bench.directory(PREFIX), &arguments.design())?;
    let text = format!("{}, {} of them in the current version", tree.store.text(), tree.current);
    let about = bench.about(text)?;
    let out = &arguments.store.out;
    let mut table = Table::open(&LAYOUT, Some(&out.join("statistics.csv")), about)?;
    let store_bytes = tree.store.bytes();
    let (ms, bytes) = (arguments.store.distance.first_byte, bytes_text(store_bytes));
    let (current, leaves_bytes) = (tree.current, bytes_text(tree.leaves_bytes()));
    let mut runner = Runner::new(arguments, bench, near, tree);
    for section in Section::value_variants() {
        let title = match section {
            Section::Clone => format!("A clone of {bytes}, store {ms} ms away"),
            Section::Clones => format!("{} clones at once of {bytes}", arguments.clients),
            Section::Scan => format!(
                "A scan of {current} chunks, node by node; plain: {leaves_bytes}, as long as the \
                 leaves"
            ),
            Section::Point => format!("{} rows by key, a chain of chunks each", arguments.chains),
            Section::Fetch => {
                format!("A fetch of the last {} of {} pushes", arguments.new, arguments.pushes)
            }
        };
        if arguments.section.contains(section) {
            let cases = cases::of(*section, arguments);
            let rounds = arguments.rounds;
            table.group(&title, &cases, rounds, |case, round| runner.measure(case, round))?;
        }
    }
    runner.stop()?;
    draw(out, "dolt.svg", &[chart(&table)])?;
    print_targets(&targets(&table, &arguments.layout, store_bytes));
    // A fast wrong answer is none, nor is a refusal.
    match table.failed().count() {
        0 => Ok(()),
        failed => bail!("{failed} replays were refused or answered wrongly; see the notes"),
    }
}

/// Times of all rows: sections stand beside each other, and in each its ways.
fn chart(table: &Table<Case>) -> Chart {
    let points = Way::value_variants().iter().zip(0..).flat_map(|(way, index)| {
        table.rows.iter().filter(move |row| row.case.way == *way).map(move |row| {
            let sections = Section::value_variants();
            let section = sections.iter().position(|section| *section == row.case.section);
            let x = float_of(section.unwrap_or_default() + 1) + 0.13 * f64::from(index);
            let label = row.case.layout.as_ref().map(name_of).unwrap_or_default();
            (name_of(way), Point { x, y: row.sample.or_zero(SECONDS), label })
        })
    });
    let points: Vec<_> = points.filter(|(_, point)| 0.0 < point.y).collect();
    let title = "Time of a replay: clone, clones, scan, point, fetch";
    Chart::new(title, Axis::linear("section"), Axis::logarithmic("seconds", 10.0)).dots(points)
}

/// Numbers that were set as targets; `store_bytes` are those of all files.
fn targets(table: &Table<Case>, layouts: &[Layout], store_bytes: u64) -> Vec<Target> {
    let target = |what: String, value, wanted| Target::new(what, Unit::Times, value, wanted);
    // Rows with the streams that clients use today.
    let get = |section, way, layout, number: Number| {
        let is_it = |case: &Case| {
            (case.section, case.way, case.layout, case.streams)
                == (section, way, layout, Streams::New)
        };
        let row = table.find(is_it).filter(|row| row.sample.failed.count() == 0);
        row.and_then(|row| row.sample.get(number))
    };
    let of_files = |section| {
        get(section, Way::Cold, None, READ_BYTES).and_then(|bytes| ratio(bytes, float(store_bytes)))
    };
    let mut targets = vec![
        target(
            "a cold clone, throughput beside one plain ranged download".to_owned(),
            get(Section::Clone, Way::Cold, None, X_PLAIN),
            Wanted::AtLeast(0.6),
        ),
        target(
            "bytes from the store for it, beside those of the files".to_owned(),
            of_files(Section::Clone),
            Wanted::AtMost(ONCE),
        ),
        target(
            "the same for all clones at once".to_owned(),
            of_files(Section::Clones),
            Wanted::AtMost(ONCE),
        ),
    ];
    for layout in layouts {
        let name = name_of(layout);
        let faster = get(Section::Scan, Way::Cold, Some(*layout), X_PLAIN);
        targets.push(target(
            format!("a cold scan, time beside one plain download of its bytes, {name}"),
            faster.and_then(|faster| ratio(1.0, faster)),
            Wanted::AtMost(2.0),
        ));
        for section in [Section::Scan, Section::Point] {
            let what = name_of(&section);
            targets.push(target(
                format!("{what}, warm, time beside that with the store at 0 ms, {name}"),
                get(section, Way::Warm, Some(*layout), X_NEAR),
                Wanted::AtMost(1.1),
            ));
        }
    }
    targets
}
