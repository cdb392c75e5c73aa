//! `chunks`: chunks of a store some milliseconds away, read directly and through busload, cold,
//! filling and warm.
//!
//! ```text
//!   arguments --> cases: which rows --> runner: measures one -----------------------+
//!                                         |                                         |
//!         chain: a store and its chain <--+--> store_bench: S3 server, proxy, log,  |
//!                                         |                 servers of busload      |
//!      load: callers in turns --clients---+                                         |
//!          gRPC, RESP, S3, bare loops            tables, CSV file, charts, targets <+
//! ```
//!
//! The server runs on one processor, the load on another, the S3 server wherever there is room.
//! Rows that are compared are measured in turns, round after round, and what is shown are medians.
//! Whatever is empty before a measurement gets a server and a directory of its own. Every chunk is
//! checked by number and size.

mod arguments;
mod bare;
mod cases;
mod chain;
mod clients;
mod load;
mod runner;
mod sections;

use anyhow::{Result, bail};
use clap::ValueEnum;

pub use self::arguments::Chunks;
use self::{
    arguments::Section,
    cases::{
        Cache, Case, FOREGROUND, GROWN_MIB, INDEX_BYTES, LAYOUT, REPEATED, Way, X_CHECK, X_FILE,
    },
    chain::ChainStore,
    clients::Form,
    runner::Runner,
};
use super::store_bench::{PREFIX, StoreBench};
use crate::{
    harness::{
        Axis, Chart, Number, Point, Table, Target, Unit,
        Wanted::{AtLeast, AtMost},
        draw, print_targets,
        sample::{P50_US, PER_S, SECONDS},
    },
    stats::{float_of, ratio},
};

/// Memory that a fill may take by default: parts in flight (64 MiB), what has come and is joinable
/// (16 MiB), and buffers.
const GROWN_WANTED_MIB: f64 = 192.0;

pub fn chunks(arguments: &Chunks) -> Result<()> {
    arguments.check()?;
    let bench = StoreBench::start(&arguments.store, arguments.rounds.seed)?;
    arguments.store.served.processors.bind_load()?;
    let chain = ChainStore::make(&bench.directory(PREFIX), &arguments.design())?;
    let about = bench.about(chain.store.text())?;
    let out = &arguments.store.out;
    let mut table = Table::open(&LAYOUT, Some(&out.join("statistics.csv")), &about)?;
    let mut runner = Runner::new(arguments, bench, chain);
    let ms = arguments.store.distance.first_byte;
    for section in Section::value_variants() {
        let title = match section {
            Section::Chain => {
                format!("A chain of {} dependent reads, store {ms} ms away", arguments.chain)
            }
            Section::Reads => format!("Random reads, store {ms} ms away"),
            Section::Throughput => "As many warm chunks as the server's processor gives".into(),
            Section::Cold => "Random reads of a whole file from an empty cache".into(),
            Section::ThunderingHerd => {
                format!("{} callers, one cold chunk", arguments.thundering_herd)
            }
            Section::Open => {
                format!("Opening a store of {} table files, {ms} ms away", arguments.open_files)
            }
            Section::Memory => "Memory: the index, and while a file fills".into(),
        };
        if arguments.section.contains(section) {
            let cases = cases::of(*section, arguments);
            // A large file takes long.
            let rounds = if *section == Section::Memory { 1 } else { arguments.rounds.rounds };
            table.group(&title, &cases, rounds, |case, round| runner.measure(case, round))?;
        }
    }
    runner.stop()?;
    draw(out, "chunks-reads.svg", &charts(&table))?;
    let growth = runner.growth.into_iter().map(|point| ("resident".to_owned(), point));
    let title = "Resident size of the server while a file fills";
    let chart = Chart::new(title, Axis::linear("seconds"), Axis::linear("MiB")).joined(growth);
    draw(out, "chunks-memory.svg", &[chart])?;
    print_targets(&targets(&table));
    // A fast wrong answer is none, nor is a refusal.
    match table.failed().count() {
        0 => Ok(()),
        failed => bail!("{failed} requests were refused or answered wrongly; see the notes"),
    }
}

/// Throughput and time of random reads by callers.
fn charts(table: &Table<Case>) -> Vec<Chart> {
    let chart = |title: &str, y_title: &str, batch_max: usize, y: Number| {
        let shown = table.rows.iter().filter(|row| {
            let Case { section, way, batch, .. } = row.case;
            section == Section::Reads && way != Way::Pread && batch <= batch_max
        });
        let points = shown.map(|row| {
            let point = Point::new(float_of(row.case.callers), row.sample.or_zero(y));
            (row.case.title(), point)
        });
        let points: Vec<_> = points.filter(|(_, point)| 0.0 < point.y).collect();
        let (x, y) = (Axis::logarithmic("callers", 2.0), Axis::logarithmic(y_title, 10.0));
        Chart::new(format!("Random reads{title} by callers"), x, y).joined(points)
    };
    vec![
        chart(": chunks a second", "chunks per second", usize::MAX, PER_S),
        chart(" of single chunks: median time", "median time, us", 1, P50_US),
    ]
}

/// Numbers that were set as targets.
fn targets(table: &Table<Case>) -> Vec<Target> {
    let get = |number: Number, is_it: &dyn Fn(&Case) -> bool| {
        table.find(is_it).and_then(|row| row.sample.get(number))
    };
    let of_section = |section, number: Number| get(number, &|case: &Case| case.section == section);
    // A single caller's time: many callers also wait for each other.
    let of_check = |section| {
        let single = (section, Cache::Disk, Way::GetChunk, 1);
        get(X_CHECK, &|case| (case.section, case.cache, case.way, case.callers) == single)
    };
    let of_check = of_check(Section::Reads).or_else(|| of_check(Section::Chain));
    let k_per_s = |way, form| {
        let chosen = (Section::Throughput, way, form);
        let per_s = get(PER_S, &|case| (case.section, case.way, case.form) == chosen);
        per_s.map(|per_s| per_s / 1e3)
    };
    let step = |cache, way| {
        let chosen = (Section::Chain, cache, way);
        get(PER_S, &|case| (case.section, case.cache, case.way) == chosen)
    };
    // Times of a step, of which throughput is the inverse.
    let steps = step(Cache::Disk, Way::GetChunk).zip(step(Cache::Unused, Way::Direct));
    let steps = steps.and_then(|(warm, direct)| ratio(warm, direct));
    let opened = |cache| get(SECONDS, &|case| (case.section, case.cache) == (Section::Open, cache));
    let (stored, decoded) = (Form::Stored, Form::Decoded);
    let (many, piped) = (Way::GetChunks, Way::RespPipelined);
    let (cold, thundering_herd, memory) = (Section::Cold, Section::ThunderingHerd, Section::Memory);
    [
        (
            "warm GetChunk beside an empty unary call, median times",
            Unit::Times,
            of_check,
            AtMost(2.0),
        ),
        (
            "GetChunks as stored, one core, k chunks/s",
            Unit::Count,
            k_per_s(many, stored),
            AtLeast(150.0),
        ),
        (
            "RESP pipelined as stored, k chunks/s",
            Unit::Count,
            k_per_s(piped, stored),
            AtLeast(150.0),
        ),
        ("GetChunks decoded, k chunks/s", Unit::Count, k_per_s(many, decoded), AtLeast(80.0)),
        ("RESP pipelined decoded, k chunks/s", Unit::Count, k_per_s(piped, decoded), AtLeast(80.0)),
        ("a chain warm beside direct, GetChunk", Unit::Times, steps, AtLeast(50.0)),
        (
            "bytes from the store beside the file, random reads from cold",
            Unit::Times,
            of_section(cold, X_FILE),
            AtMost(1.3),
        ),
        (
            "foreground reads of ranges read before",
            Unit::Count,
            of_section(cold, REPEATED),
            AtMost(0.0),
        ),
        (
            "GETs for one cold chunk that many ask for",
            Unit::Count,
            of_section(thundering_herd, FOREGROUND),
            AtMost(1.0),
        ),
        ("a store opened, cold", Unit::Seconds, opened(Cache::Cold), AtMost(2.0)),
        ("a store opened, warm", Unit::Seconds, opened(Cache::Disk), AtMost(0.2)),
        (
            "memory of the index by chunk",
            Unit::Bytes,
            of_section(memory, INDEX_BYTES),
            AtMost(40.0),
        ),
        (
            "resident size beyond the idle server while a file fills",
            Unit::Mebibytes,
            of_section(memory, GROWN_MIB),
            AtMost(GROWN_WANTED_MIB),
        ),
    ]
    .map(|(what, unit, value, wanted)| Target::new(what, unit, value, wanted))
    .to_vec()
}
