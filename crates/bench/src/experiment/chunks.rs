//! `chunks`: chunks of a store some milliseconds away, read directly and through busload, cold,
//! filling and warm.
//!
//! ```text
//!   arguments --> cases: which rows --> runner: measures one -----------------------+
//!                                         |                                         |
//!         chain: a store and its chain <--+--> store_bench: S3 server, proxy, log,  |
//!                                         |                 servers of busload      |
//!      load: callers in turns --clients---+                                         |
//!          gRPC, RESP, S3, bare loops           tables, CSV files, charts, targets <+
//!                                               sections: numbers of their own <----+
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

pub use self::arguments::Chunks;
use self::{
    arguments::Section,
    cases::{Cache, Case, GETS, LAYOUT, Way, X_CHECK},
    chain::ChainStore,
    clients::Form,
    runner::Runner,
};
use super::store_bench::{PREFIX, StoreBench};
use crate::{
    harness::{
        Axis, Chart, Number, Point, Sample, Table, Target, Unit,
        Wanted::{self, AtLeast, AtMost},
        draw, print_targets,
        sample::{P50_US, PER_S},
    },
    stats::{float_of, ratio},
};

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
    for (section, title) in [
        (
            Section::Chain,
            format!("A chain of {} dependent reads, store {ms} ms away", arguments.chain),
        ),
        (Section::Reads, format!("Random reads, store {ms} ms away")),
        (Section::Throughput, "As many warm chunks as the server's processor gives".to_owned()),
    ] {
        if arguments.section.contains(&section) {
            let cases = cases::of(section, arguments);
            let rounds = arguments.rounds.rounds;
            table.group(&title, &cases, rounds, |case, round| runner.measure(case, round))?;
        }
    }
    runner.stop()?;
    draw(out, "chunks-reads.svg", &charts(&table))?;
    let sections = sections::Sections { runner: &runner, about: &about };
    let wants = |section| arguments.section.contains(&section).then_some(());
    let cold = wants(Section::Cold).map(|()| sections.cold()).transpose()?;
    let herd = wants(Section::ThunderingHerd).map(|()| sections.thundering_herd()).transpose()?;
    let open = wants(Section::Open).map(|()| sections.open()).transpose()?;
    let memory = wants(Section::Memory).map(|()| sections.memory()).transpose()?;
    let (opened_cold, opened_warm) = open.unzip();
    let mut targets = row_targets(&table);
    targets.extend(section_targets([cold, herd, opened_cold, opened_warm, memory]));
    print_targets(&targets);
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

/// Targets of the rows that are compared.
fn row_targets(table: &Table<Case>) -> Vec<Target> {
    // A single caller's time: many callers also wait for each other.
    let is_single = |case: &Case, section| {
        (case.section, case.cache, case.way, case.callers)
            == (section, Cache::Disk, Way::GetChunk, 1)
    };
    let single = |section| table.find(|case| is_single(case, section));
    let of_check = single(Section::Reads).or_else(|| single(Section::Chain));
    let of_check = of_check.and_then(|row| row.sample.get(X_CHECK));
    let k_per_s = |what: &str, way, form, wanted| {
        let is_it =
            |case: &Case| (case.section, case.way, case.form) == (Section::Throughput, way, form);
        let per_s = table.find(is_it).and_then(|row| row.sample.get(PER_S));
        Target::new(what, Unit::Count, per_s.map(|per_s| per_s / 1e3), AtLeast(wanted))
    };
    // Times of a step, of which throughput is the inverse.
    let step = |cache, way| {
        let is_it =
            |case: &Case| (case.section, case.cache, case.way) == (Section::Chain, cache, way);
        table.find(is_it).and_then(|row| row.sample.get(PER_S))
    };
    let steps = step(Cache::Disk, Way::GetChunk).zip(step(Cache::Unused, Way::Direct));
    let steps = steps.and_then(|(warm, direct)| ratio(warm, direct));
    let (stored, decoded) = (Form::Stored, Form::Decoded);
    let check = "warm GetChunk beside an empty unary call, median times";
    vec![
        Target::new(check, Unit::Times, of_check, AtMost(2.0)),
        k_per_s("GetChunks as stored, one core, k chunks/s", Way::GetChunks, stored, 150.0),
        k_per_s("RESP pipelined as stored, k chunks/s", Way::RespPipelined, stored, 150.0),
        k_per_s("GetChunks decoded, k chunks/s", Way::GetChunks, decoded, 80.0),
        k_per_s("RESP pipelined decoded, k chunks/s", Way::RespPipelined, decoded, 80.0),
        Target::new("a chain warm beside direct, GetChunk", Unit::Times, steps, AtLeast(50.0)),
    ]
}

/// Targets of the sections with numbers of their own.
fn section_targets(
    [cold, herd, opened_cold, opened_warm, memory]: [Option<Sample>; 5],
) -> [Target; 7] {
    use crate::harness::sample::SECONDS;
    let target = |what: &str, unit, sample: &Option<Sample>, number, wanted: Wanted| {
        Target::new(what, unit, sample.as_ref().and_then(|sample| sample.get(number)), wanted)
    };
    let bytes = "bytes from the store beside the file, random reads from cold";
    let repeated = "foreground reads of ranges read before";
    let gets = "GETs for one cold chunk that many ask for";
    let index = "memory of the index by chunk";
    let grown = "resident size beyond the idle server while a file fills";
    let most = AtMost(sections::GROWN_WANTED_MIB);
    [
        target(bytes, Unit::Times, &cold, sections::X_FILE, AtMost(1.3)),
        target(repeated, Unit::Count, &cold, sections::REPEATED, AtMost(0.0)),
        target(gets, Unit::Count, &herd, GETS, AtMost(1.0)),
        target("a store opened, cold", Unit::Seconds, &opened_cold, SECONDS, AtMost(2.0)),
        target("a store opened, warm", Unit::Seconds, &opened_warm, SECONDS, AtMost(0.2)),
        target(index, Unit::Bytes, &memory, sections::INDEX_BYTES, AtMost(40.0)),
        target(grown, Unit::Mebibytes, &memory, sections::GROWN, most),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Row;

    #[test]
    fn numbers_are_reached_or_not_or_not_measured() {
        let mut table = Table::open(&LAYOUT, None, "").unwrap();
        let case = cases::case(Section::Reads, Cache::Unused, Way::Check, 1, 1);
        let sample = |per_s, p50_us| Sample::default().with(PER_S, per_s).with(P50_US, p50_us);
        table.rows.push(Row { case, sample: sample(20_000.0, 50.0), round: 0 });
        let case = cases::case(Section::Reads, Cache::Disk, Way::GetChunk, 1, 1);
        let mut row = Row { case, sample: sample(15_000.0, 75.0), round: 0 };
        for (number, ratio) in (LAYOUT.ratios)(&row, &table.rows) {
            row.sample.set(number, ratio);
        }
        table.rows.push(row);
        let targets = row_targets(&table);
        let wanted = "warm GetChunk beside an empty unary call, median times | 1.50x | at most \
                      2.00x | reached";
        assert_eq!(targets[0].shown(), wanted);
        assert!(targets[1].shown().ends_with("| - | at least 150 | not measured"));
        assert_eq!(charts(&table)[0].lines.len(), 2);
    }
}
