//! `recovery`: how fast a server comes back.

use anyhow::{Context, Result, bail};

use super::{Bench, null_reply, require};
use crate::{
    cli::{Recovery, bail_usage, key_space},
    clock::now_ns,
    measure::fill,
    report::{self, Column, Csv, measurement, number, text},
    requests::KeySpace,
    server::{Durability, Kind, Server, ask},
    stats::{float, median},
};

/// Connections that write the records.
const WRITERS: usize = 16;

const COLUMNS: &[Column] = &[
    text("server", 8),
    text("durable", 6),
    number("records", 10),
    number("keys", 10),
    number("written k/s", 8),
    number("stop s", 7),
    number("ready s", 7),
    number("krecords/s", 8),
];

const CSV_HEADER: &[&str] = &[
    "server",
    "durability",
    "net_threads",
    "value_bytes",
    "records",
    "keys",
    "rounds",
    "written_per_s",
    "stop_s",
    "ready_s",
    "records_per_s",
];

pub fn recovery(arguments: &Recovery) -> Result<()> {
    require(&arguments.servers, "--servers")?;
    let keys = arguments.keys.unwrap_or(arguments.records);
    let space = key_space(keys, arguments.value_bytes, 1)?;
    if arguments.records < keys {
        bail_usage!("--keys is at most --records");
    }
    if arguments.rounds == 0 {
        bail_usage!("--rounds is at least 1");
    }
    if arguments.durability == Durability::None || arguments.servers.contains(&Kind::Null) {
        bail_usage!(
            "without a log nothing comes back: --durability os or always, and servers that have one"
        );
    }
    let bench = Bench::new(&arguments.setup, &arguments.servers, true)?;
    let csv = arguments.setup.csv.as_deref();
    let mut csv = csv.map(|path| Csv::open(path, &bench.about, CSV_HEADER)).transpose()?;
    println!("{}", report::heading(COLUMNS));
    let mut said = Vec::new();
    for kind in &arguments.servers {
        let came_back = recover(&bench, arguments, space, *kind, &mut said)
            .with_context(|| format!("recovery of {}", kind.name()))?;
        println!("{}", report::row(COLUMNS, &came_back.row(arguments, space, *kind)));
        if let Some(csv) = &mut csv {
            csv.append(&came_back.csv_fields(arguments, space, *kind))?;
        }
    }
    said.iter().for_each(|line| println!("{line}"));
    Ok(())
}

/// Measurements of one server.
struct CameBack {
    written_per_s: f64,
    stop_s: f64,
    ready_s: f64,
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

/// What the server itself said about its recovery.
fn own_words(server: &Server) -> impl Iterator<Item = String> {
    server.output().into_iter().filter(|line| {
        let line = line.to_lowercase();
        ["recover", "records", "db loaded"].iter().any(|word| line.contains(word))
    })
}

impl CameBack {
    fn records_per_s(&self, arguments: &Recovery) -> f64 {
        float(arguments.records) / self.ready_s.max(1e-9)
    }

    fn row(&self, arguments: &Recovery, space: KeySpace, kind: Kind) -> Vec<String> {
        vec![
            kind.name().to_owned(),
            arguments.durability.name().to_owned(),
            arguments.records.to_string(),
            space.keys.to_string(),
            measurement(self.written_per_s / 1_000.0),
            measurement(self.stop_s),
            measurement(self.ready_s),
            measurement(self.records_per_s(arguments) / 1_000.0),
        ]
    }

    fn csv_fields(&self, arguments: &Recovery, space: KeySpace, kind: Kind) -> Vec<String> {
        vec![
            kind.name().to_owned(),
            arguments.durability.name().to_owned(),
            arguments.net_threads.to_string(),
            space.value_bytes.to_string(),
            arguments.records.to_string(),
            space.keys.to_string(),
            arguments.rounds.to_string(),
            format!("{:.1}", self.written_per_s),
            format!("{:.4}", self.stop_s),
            format!("{:.4}", self.ready_s),
            format!("{:.1}", self.records_per_s(arguments)),
        ]
    }
}
