//! `recovery`: how fast a server comes back.

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use super::{
    memory_tables::{Bench, Setup},
    snapshot::Way,
};
use crate::{
    cli::{bail_usage, name_of},
    clock::now_ns,
    harness::{
        Number, Sample, Table, TableLayout,
        arguments::{count, keys},
        label, shown,
    },
    limits::ROUNDS_MAX,
    requests::KeySpace,
    server::{Durability, Launch, ServerKind},
    stats::float,
};

#[derive(Debug, Args)]
#[command(
    after_long_help = "\
Writes every key once, stops the server (SIGTERM), starts it again on the same directory, and \
times that until it serves. busload makes no snapshots meanwhile (`snapshot` measures starts with \
one). The files are in the page cache, as after a crash of the process but not of the machine.",
    mut_arg("servers", |argument| argument.default_value("busload")),
    mut_arg("durability", |argument| argument.default_value("os")),
    mut_arg("keys", |argument| argument.default_value("10000000")),
)]
pub struct Recovery {
    /// Records to write, again and again to the same keys [default: one for each key]
    #[arg(long, value_name = "N", value_parser = keys)]
    records: Option<u64>,
    /// Restarts to measure
    #[arg(long, value_name = "N", default_value = "3", value_parser = count::<1, ROUNDS_MAX>)]
    rounds: usize,
    #[command(flatten)]
    setup: Setup,
}

/// A server, and what it finds when it starts.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub launch: Launch,
    pub source: Source,
    pub keys: u64,
    /// Records that are written, again and again to the same keys.
    pub records: u64,
}

/// Data that a server starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Source {
    Log,
    Snapshot,
}

impl Source {
    /// Makes a server find nothing else when it starts. With an append-only file Redis does not
    /// look at its snapshot.
    fn prepare(self, launch: Launch) -> Launch {
        match launch.kind {
            ServerKind::Redis | ServerKind::Valkey if self == Self::Snapshot => {
                Launch { durability: Durability::None, ..launch }
            }
            _ => launch.without_snapshots(),
        }
    }
}

const WRITTEN: Number = Number::scaled("written_per_s", "written k/s", 1e-3);
const STOP_S: Number = Number::new("stop_s", "stop s");
pub const READY_S: Number = Number::new("ready_s", "ready s");
pub const RECORDS: Number = Number::scaled("records_per_s", "krecords/s", 1e-3);

pub const LAYOUT: TableLayout<Case> = TableLayout {
    columns: &[
        label("server", "server", 8, |case| name_of(&case.launch.kind)),
        label("durability", "durable", 6, |case| name_of(&case.launch.durability)),
        label("net_threads", "net", 3, |case| case.launch.net_threads.to_string()),
        label("from", "from", 8, |case| name_of(&case.source)),
        label("keys", "keys", 10, |case| case.keys.to_string()),
        shown(WRITTEN),
        shown(STOP_S),
        shown(READY_S),
        shown(RECORDS),
    ],
    main: READY_S,
    ratios: |_, _| Vec::new(),
};

/// Runs the experiment and fails if a server comes back with less than was written.
pub fn recovery(arguments: &Recovery) -> Result<()> {
    let Recovery { setup, rounds, .. } = arguments;
    let records = arguments.records.unwrap_or(setup.keys);
    let space = setup.space(1);
    let lasts = |launch: &Launch| {
        launch.durability != Durability::None
            && !matches!(launch.kind, ServerKind::Null | ServerKind::Naive)
    };
    if !setup.launches().all(|launch| lasts(&launch)) {
        bail_usage!(
            "without a log nothing comes back: --durability os or always, and servers that have one"
        );
    }
    let bench = Bench::new(setup, &setup.servers, &format!("{records} records"))?;
    let mut table = bench.table("Restarts", &LAYOUT)?;
    for launch in setup.launches() {
        let case = Case { launch, source: Source::Log, keys: space.keys.min(records), records };
        restarts(&bench, &mut table, case, *rounds)?;
    }
    Ok(())
}

/// Writes what a case starts from and measures restarts.
pub fn restarts(
    bench: &Bench<'_>,
    table: &mut Table<Case>,
    case: Case,
    rounds: usize,
) -> Result<()> {
    let launch = case.source.prepare(case.launch);
    let server = bench.start(&launch)?;
    let began_ns = now_ns();
    bench.write(&server, KeySpace { keys: case.keys, ..bench.space() }, case.records)?;
    let written_per_s = float(case.records) / (float(now_ns() - began_ns) / 1e9);
    if case.source == Source::Snapshot {
        Way::Bgsave.save(&server, || ())?;
    }
    let mut running = Some(server);
    table.group("", &[case], rounds, |case, _| {
        let server = running.take().context("the server of the round before")?;
        let (server, stop_s) = bench.restart(server, &launch, case.keys)?;
        let ready_s = server.ready_after().as_secs_f64();
        running = Some(server);
        Ok(Sample::default()
            .with(WRITTEN, written_per_s)
            .with(STOP_S, stop_s)
            .with(READY_S, ready_s)
            .with(RECORDS, float(case.records) / ready_s.max(1e-9)))
    })?;
    Ok(())
}
