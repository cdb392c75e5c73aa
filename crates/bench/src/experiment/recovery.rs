//! `recovery`: how fast a server comes back.

use anyhow::{Context, Result, bail};

use super::{Bench, null_reply, require};
use crate::{
    cli::{Recovery, bail_usage, check_rounds, key_space},
    clock::now_ns,
    measure::fill,
    report::{self, Column, Field, field, measurement, number, text},
    requests::KeySpace,
    server::{Durability, Kind, Server, ask},
    stats::{float, median},
};

/// Connections that write the records.
const WRITERS: usize = 16;

/// Result of a server's restarts.
struct CameBack {
    kind: Kind,
    durability: Durability,
    net_threads: u32,
    space: KeySpace,
    records: u64,
    rounds: usize,
    written_per_s: f64,
    stop_s: f64,
    ready_s: f64,
}

impl CameBack {
    fn records_per_s(&self) -> f64 {
        float(self.records) / self.ready_s.max(1e-9)
    }
}

const COLUMNS: &[Column<CameBack>] = &[
    text("server", 8, |row| row.kind.name().to_owned()),
    text("durable", 6, |row| row.durability.name().to_owned()),
    number("records", 10, |row| row.records.to_string()),
    number("keys", 10, |row| row.space.keys.to_string()),
    number("written k/s", 8, |row| measurement(row.written_per_s / 1_000.0)),
    number("stop s", 7, |row| measurement(row.stop_s)),
    number("ready s", 7, |row| measurement(row.ready_s)),
    number("krecords/s", 8, |row| measurement(row.records_per_s() / 1_000.0)),
];

const FIELDS: &[Field<CameBack>] = &[
    field("server", |row| row.kind.name().to_owned()),
    field("durability", |row| row.durability.name().to_owned()),
    field("net_threads", |row| row.net_threads.to_string()),
    field("value_bytes", |row| row.space.value_bytes.to_string()),
    field("records", |row| row.records.to_string()),
    field("keys", |row| row.space.keys.to_string()),
    field("rounds", |row| row.rounds.to_string()),
    field("written_per_s", |row| format!("{:.1}", row.written_per_s)),
    field("stop_s", |row| format!("{:.4}", row.stop_s)),
    field("ready_s", |row| format!("{:.4}", row.ready_s)),
    field("records_per_s", |row| format!("{:.1}", row.records_per_s())),
];

/// Runs the experiment and fails if a server comes back with less than was written.
pub fn recovery(arguments: &Recovery) -> Result<()> {
    require(&arguments.servers, "--servers")?;
    let keys = arguments.keys.unwrap_or(arguments.records);
    let space = key_space(keys, arguments.value_bytes, 1)?;
    if arguments.records < keys {
        bail_usage!("--keys is at most --records");
    }
    check_rounds(arguments.rounds)?;
    if arguments.durability == Durability::None || arguments.servers.contains(&Kind::Null) {
        bail_usage!(
            "without a log nothing comes back: --durability os or always, and servers that have one"
        );
    }
    let bench = Bench::new(&arguments.setup, &arguments.servers, true)?;
    let mut csv = bench.csv(FIELDS)?;
    println!("{}", report::heading(COLUMNS));
    let mut said = Vec::new();
    for kind in &arguments.servers {
        let came_back = recover(&bench, arguments, space, *kind, &mut said)
            .with_context(|| format!("recovery of {}", kind.name()))?;
        println!("{}", report::line(COLUMNS, &came_back));
        csv.as_mut().map_or(Ok(()), |csv| csv.append(&came_back))?;
    }
    said.iter().for_each(|line| println!("{line}"));
    Ok(())
}

fn recover(
    bench: &Bench<'_>,
    arguments: &Recovery,
    space: KeySpace,
    kind: Kind,
    said: &mut Vec<String>,
) -> Result<CameBack> {
    let directory = bench.cleanup.directory(&bench.setup.directory())?;
    let start = || {
        bench.start_in(
            directory.path(),
            kind,
            arguments.durability,
            arguments.net_threads,
            null_reply(space),
        )
    };
    let mut server = start()?;
    let written_per_s = write_records(&server, arguments.records, space)?;
    let (mut stops_s, mut readies_s) = (Vec::new(), Vec::new());
    for _ in 0..arguments.rounds {
        stops_s.push(server.stop()?.as_secs_f64());
        server = start()?;
        readies_s.push(server.ready_after().as_secs_f64());
        check_size(&server, space)?;
    }
    said.extend(own_words(&server).map(|line| format!("{}: {line}", kind.name())));
    drop(server);
    Ok(CameBack {
        kind,
        durability: arguments.durability,
        net_threads: arguments.net_threads,
        space,
        records: arguments.records,
        rounds: arguments.rounds,
        written_per_s,
        stop_s: median(stops_s).unwrap_or_default(),
        ready_s: median(readies_s).unwrap_or_default(),
    })
}

/// Writes all keys, again and again until there are enough records; records per second.
fn write_records(server: &Server, records: u64, space: KeySpace) -> Result<f64> {
    let started_ns = now_ns();
    let mut left = records;
    while 0 < left {
        let count = left.min(space.keys);
        fill(server.address(), WRITERS, space, 0..count)?;
        left -= count;
    }
    Ok(float(records) / (float(now_ns() - started_ns) / 1e9))
}

fn check_size(server: &Server, space: KeySpace) -> Result<()> {
    let size = ask(server.address(), "DBSIZE")?;
    if size != format!(":{}", space.keys) {
        bail!("{} keys were written; after the restart DBSIZE answers {size}", space.keys);
    }
    Ok(())
}

/// Returns what the server itself printed about its recovery.
fn own_words(server: &Server) -> impl Iterator<Item = String> {
    server.output().into_iter().filter(|line| {
        let line = line.to_lowercase();
        ["recover", "records", "db loaded"].iter().any(|word| line.contains(word))
    })
}
