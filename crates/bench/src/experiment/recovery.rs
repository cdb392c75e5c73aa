//! `recovery`: how fast a server comes back.

use anyhow::{Context, Result, bail};
use clap::Args;

use super::Bench;
use crate::{
    cleanup::Directory,
    cli::{Setup, bail_usage},
    clock::now_ns,
    harness::{
        Number, Sample, TableLayout,
        arguments::{count, keys},
        label, shown,
    },
    limits::{ROUNDS_MAX, VALUE_BYTES_MAX},
    measure::fill,
    requests::KeySpace,
    server::{Durability, Launch, Server, ServerKind, ask},
    stats::float,
};

/// Connections that write the records.
const WRITERS: usize = 16;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Writes every key once, stops the server (SIGTERM), starts it again on the same directory, and \
times that until it serves. The files are in the page cache, as after a crash of the process but \
not of the machine.")]
pub struct Recovery {
    /// Servers to measure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "busload")]
    servers: Vec<ServerKind>,
    /// Records to write
    #[arg(
        long,
        value_name = "N",
        default_value = "10000000",
        value_parser = keys
    )]
    records: u64,
    /// Distinct keys; fewer than records means overwriting. Default: as many as records
    #[arg(long, value_name = "N", value_parser = keys)]
    keys: Option<u64>,
    /// Bytes of a value
    #[arg(long, value_name = "N", default_value = "32", value_parser = count::<0, VALUE_BYTES_MAX>)]
    value_bytes: usize,
    /// Durability
    #[arg(long, value_enum, default_value = "os")]
    durability: Durability,
    /// Wiring of busload: its --net-threads
    #[arg(long, value_name = "N", default_value_t = 0)]
    net_threads: u32,
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

const LAYOUT: TableLayout<ServerKind> = TableLayout {
    columns: &[
        label("server", "server", 8, |kind| kind.name().to_owned()),
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
    let Recovery { records, durability, net_threads, value_bytes, .. } = *arguments;
    let keys = arguments.keys.unwrap_or(records);
    if records < keys {
        bail_usage!("--keys is at most --records");
    }
    if durability == Durability::None || arguments.servers.contains(&ServerKind::Null) {
        bail_usage!(
            "without a log nothing comes back: --durability os or always, and servers that have one"
        );
    }
    let space = KeySpace { keys, value_bytes, seed: 1 };
    let more = format!(
        "{records} records of {keys} keys, {value_bytes}-byte values, durability {}, net-threads \
         {net_threads}",
        durability.name()
    );
    let durabilities = std::iter::once(durability);
    let bench = Bench::new(&arguments.setup, &arguments.servers, durabilities, &more)?;
    let mut table = bench.table("Restarts", &LAYOUT)?;
    let mut said = Vec::new();
    for &kind in &arguments.servers {
        let launch = Launch { kind, durability, net_threads, reply_bytes: 0 };
        let restart = |data: Directory| bench.starter.launch(&bench.cleanup, data, &launch, &[]);
        let mut running = Some(bench.start(&launch)?);
        let mut written_per_s = None;
        table.group("", &[kind], arguments.rounds, |_, _| {
            let server = running.take().context("the server of the round before")?;
            if written_per_s.is_none() {
                written_per_s = Some(write_records(&server, records, space)?);
            }
            let began_ns = now_ns();
            let data = server.stop()?;
            let stop_s = float(now_ns() - began_ns) / 1e9;
            let server = restart(data)?;
            let ready_s = server.ready_after().as_secs_f64();
            let size = ask(server.resp(), "DBSIZE")?;
            if size != format!(":{keys}") {
                bail!("{keys} keys were written; after the restart DBSIZE answers {size}");
            }
            running = Some(server);
            Ok(Sample::default()
                .with(WRITTEN, written_per_s)
                .with(STOP_S, stop_s)
                .with(READY_S, ready_s)
                .with(RECORDS, float(records) / ready_s.max(1e-9)))
        })?;
        let words = running.iter().flat_map(own_words);
        said.extend(words.map(|line| format!("{}: {line}", kind.name())));
    }
    said.iter().for_each(|line| println!("{line}"));
    Ok(())
}

/// Writes all keys, again and again until there are enough records; records per second.
fn write_records(server: &Server, records: u64, space: KeySpace) -> Result<f64> {
    let began_ns = now_ns();
    let mut left = records;
    while 0 < left {
        let count = left.min(space.keys);
        fill(server.resp(), WRITERS, space, 0..count)?;
        left -= count;
    }
    Ok(float(records) / (float(now_ns() - began_ns) / 1e9))
}

/// Returns what the server itself printed about its recovery.
fn own_words(server: &Server) -> Vec<String> {
    let is_about_it = |line: &String| {
        let line = line.to_lowercase();
        ["recover", "records", "db loaded"].iter().any(|word| line.contains(word))
    };
    server.output().into_iter().filter(is_about_it).collect()
}
