//! `recovery`: how fast a server comes back.

use anyhow::{Context, Result, bail};
use clap::Args;

use super::memory_tables::{Bench, Setup};
use crate::{
    cli::{bail_usage, name_of},
    clock::now_ns,
    harness::{
        Number, Sample, TableLayout,
        arguments::{count, keys},
        label, shown,
    },
    limits::ROUNDS_MAX,
    measure::fill,
    server::{Durability, Launch, ServerKind, ask},
    stats::float,
};

/// Connections that write the records.
const WRITERS: usize = 16;

#[derive(Debug, Args)]
#[command(
    after_long_help = "\
Writes every key once, stops the server (SIGTERM), starts it again on the same directory, and \
times that until it serves. The files are in the page cache, as after a crash of the process but \
not of the machine.",
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

const WRITTEN: Number = Number::scaled("written_per_s", "written k/s", 1e-3);
const STOP_S: Number = Number::new("stop_s", "stop s");
const READY_S: Number = Number::new("ready_s", "ready s");
const RECORDS: Number = Number::scaled("records_per_s", "krecords/s", 1e-3);

const LAYOUT: TableLayout<Launch> = TableLayout {
    columns: &[
        label("server", "server", 8, |launch| name_of(&launch.kind)),
        label("durability", "durable", 6, |launch| name_of(&launch.durability)),
        label("net_threads", "net", 3, |launch| launch.net_threads.to_string()),
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
    let mut space = setup.space(1);
    space.keys = space.keys.min(records);
    let lasts = |launch: &Launch| {
        launch.durability != Durability::None && !matches!(launch.kind, ServerKind::Null)
    };
    if !setup.launches().all(|launch| lasts(&launch)) {
        bail_usage!(
            "without a log nothing comes back: --durability os or always, and servers that have one"
        );
    }
    let bench = Bench::new(setup, &setup.servers, &format!("{records} records"))?;
    let mut table = bench.table("Restarts", &LAYOUT)?;
    for launch in setup.launches() {
        let server = bench.start(&launch)?;
        let began_ns = now_ns();
        let mut left = records;
        while 0 < left {
            let count = left.min(space.keys);
            fill(server.resp(), WRITERS, space, 0..count)?;
            left -= count;
        }
        let written_per_s = float(records) / (float(now_ns() - began_ns) / 1e9);
        let mut running = Some(server);
        table.group("", &[launch], *rounds, |launch, _| {
            let began_ns = now_ns();
            let data = running.take().context("the server of the round before")?.stop()?;
            let stop_s = float(now_ns() - began_ns) / 1e9;
            let server = bench.starter.launch(&bench.cleanup, data, launch, &[])?;
            let ready_s = server.ready_after().as_secs_f64();
            let size = ask(server.resp(), "DBSIZE")?;
            if size != format!(":{}", space.keys) {
                bail!("{} keys written; after the restart DBSIZE answers {size}", space.keys);
            }
            running = Some(server);
            Ok(Sample::default()
                .with(WRITTEN, written_per_s)
                .with(STOP_S, stop_s)
                .with(READY_S, ready_s)
                .with(RECORDS, float(records) / ready_s.max(1e-9)))
        })?;
    }
    Ok(())
}
