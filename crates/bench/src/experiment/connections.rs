//! `connections`: does work per request fall as more clients come?

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::Result;

use super::{Bench, Target, fill_all, medians, require};
use crate::{
    cli::{Connections, check_clients, check_pipeline, check_rounds},
    measure::{Pace, Plan, Sample, measure},
    report::{
        self, Column, Field, exact_or_empty, field, measurement, measurement_or_dash, number,
        percent_or_dash, text,
    },
    requests::{Operation, Pool},
    server::Durability,
    stats::ratio,
    strace::{self, SystemCalls},
};

/// Connections that fill the servers.
const WRITERS: usize = 16;

/// A server at one number of connections.
struct Row {
    op: Operation,
    pipeline: usize,
    durability: Durability,
    net_threads: u32,
    rounds: usize,
    clients: usize,
    server: &'static str,
    sample: Sample,
    /// Requests a second of the baseline; the baseline itself has none.
    base_per_s: Option<f64>,
    calls: Option<SystemCalls>,
}

impl Row {
    fn ratio(&self) -> Option<f64> {
        self.base_per_s.and_then(|base| ratio(self.sample.requests_per_s, base))
    }

    fn calls_per_request(&self) -> Option<f64> {
        self.calls.as_ref().map(SystemCalls::per_request)
    }
}

const COLUMNS: &[Column<Row>] = &[
    number("clients", 7, |row| row.clients.to_string()),
    text("server", 8, |row| row.server.to_owned()),
    number("kreq/s", 7, |row| measurement(row.sample.requests_per_s / 1_000.0)),
    number("ratio", 5, |row| measurement_or_dash(row.ratio())),
    number("p50 us", 7, |row| measurement(row.sample.p50_us)),
    number("p99 us", 7, |row| measurement(row.sample.p99_us)),
    number("us/req", 6, |row| measurement_or_dash(row.sample.server_us_per_request)),
    number("server", 6, |row| percent_or_dash(row.sample.server_cpu)),
    number("load", 5, |row| percent_or_dash(Some(row.sample.load_cpu))),
    number("calls/req", 6, |row| measurement_or_dash(row.calls_per_request())),
    text("most", 30, |row| row.calls.as_ref().map(SystemCalls::most).unwrap_or_default()),
    text("notes", 5, |row| row.sample.notes()),
];

const FIELDS: &[Field<Row>] = &[
    field("op", |row| row.op.name().to_owned()),
    field("pipeline", |row| row.pipeline.to_string()),
    field("durability", |row| row.durability.name().to_owned()),
    field("net_threads", |row| row.net_threads.to_string()),
    field("clients", |row| row.clients.to_string()),
    field("server", |row| row.server.to_owned()),
    field("rounds", |row| row.rounds.to_string()),
    field("requests_per_s", |row| format!("{:.1}", row.sample.requests_per_s)),
    field("ratio", |row| exact_or_empty(row.ratio())),
    field("p50_us", |row| format!("{:.1}", row.sample.p50_us)),
    field("p99_us", |row| format!("{:.1}", row.sample.p99_us)),
    field("server_us_per_request", |row| exact_or_empty(row.sample.server_us_per_request)),
    field("server_cpu", |row| exact_or_empty(row.sample.server_cpu)),
    field("load_cpu", |row| format!("{:.4}", row.sample.load_cpu)),
    field("calls_per_request", |row| exact_or_empty(row.calls_per_request())),
    field("notes", |row| row.sample.notes()),
];

pub fn connections(arguments: &Connections) -> Result<()> {
    let Connections { op, pipeline, durability, net_threads, rounds, .. } = *arguments;
    require(&arguments.servers, "--servers")?;
    require(&arguments.counts, "--counts")?;
    arguments.counts.iter().try_for_each(|count| check_clients(*count))?;
    check_pipeline(pipeline)?;
    check_rounds(rounds)?;
    let space = arguments.load.space()?;
    let (warm_up, window) = arguments.load.times()?;
    let bench = Bench::new(&arguments.setup, &arguments.servers, durability != Durability::None)?;
    let mut csv = bench.csv(FIELDS)?;
    if !strace::is_available() {
        eprintln!("strace is not installed: system calls are not counted");
    }
    let pool = Pool::build(op, space, pipeline);
    let null = (op, space.value_bytes);
    let start = |kind: &_| bench.start(*kind, durability, net_threads, null);
    let targets = arguments.servers.iter().map(start).collect::<Result<Vec<_>>>()?;
    fill_all(&targets, WRITERS, space)?;
    println!("{}", report::heading(COLUMNS));
    for &clients in &arguments.counts {
        let plan = Plan {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            pid: None,
            clients,
            pace: Pace::Pipeline(pipeline),
            pool: &pool,
            start: 0,
            warm_up,
            window,
            progress: None,
        };
        let samples = medians(&targets, rounds, arguments.load.seed, durability, &plan)?;
        let base = samples.last().map(|sample| sample.requests_per_s);
        for (index, (target, sample)) in targets.iter().zip(samples).enumerate() {
            let calls = count_calls(&bench, target, &plan)?;
            let base_per_s = base.filter(|_| index + 1 < targets.len());
            let server = target.name;
            let row = Row {
                op,
                pipeline,
                durability,
                net_threads,
                rounds,
                clients,
                server,
                sample,
                base_per_s,
                calls,
            };
            println!("{}", report::line(COLUMNS, &row));
            csv.as_mut().map_or(Ok(()), |csv| csv.append(&row))?;
        }
    }
    targets.into_iter().for_each(Target::discard);
    Ok(())
}

/// Counts a server's system calls in a run of their own.
fn count_calls(bench: &Bench<'_>, target: &Target, plan: &Plan<'_>) -> Result<Option<SystemCalls>> {
    let Some(pid) = target.pid.filter(|_| strace::is_available()) else { return Ok(None) };
    let progress = AtomicU64::new(0);
    let traced = Plan { progress: Some(&progress), window: strace::LOAD, ..target.plan(plan) };
    let requests = || progress.load(Ordering::Relaxed);
    strace::count(&bench.cleanup, pid, requests, || measure(&traced).map(drop))
}
