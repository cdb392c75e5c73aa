//! `connections`: does work per request fall as more clients come?

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};

use super::{Bench, Target, require};
use crate::{
    cli::{Connections, bail_usage, check_clients, check_pipeline},
    measure::{Pace, Plan, Sample, fill, measure},
    random::Random,
    report::{
        self, Column, Csv, exact_or_empty, measurement, measurement_or_dash, number,
        percent_or_dash, text,
    },
    requests::Pool,
    server::Durability,
    stats::ratio,
    strace::{self, SystemCalls},
};

/// Connections that fill the servers.
const WRITERS: usize = 16;

const COLUMNS: &[Column] = &[
    number("clients", 7),
    text("server", 8),
    number("kreq/s", 7),
    number("ratio", 5),
    number("p50 us", 7),
    number("p99 us", 7),
    number("us/req", 6),
    number("server", 6),
    number("load", 5),
    number("calls/req", 6),
    text("most", 30),
    text("notes", 5),
];

const CSV_HEADER: &[&str] = &[
    "op",
    "pipeline",
    "durability",
    "net_threads",
    "clients",
    "server",
    "rounds",
    "requests_per_s",
    "ratio",
    "p50_us",
    "p99_us",
    "server_us_per_request",
    "server_cpu",
    "load_cpu",
    "calls_per_request",
    "notes",
];

pub fn connections(arguments: &Connections) -> Result<()> {
    require(&arguments.servers, "--servers")?;
    require(&arguments.counts, "--counts")?;
    arguments.counts.iter().try_for_each(|count| check_clients(*count))?;
    check_pipeline(arguments.pipeline)?;
    if arguments.rounds == 0 {
        bail_usage!("--rounds is at least 1");
    }
    let space = arguments.load.space()?;
    arguments.load.times()?;
    let bench =
        Bench::new(&arguments.setup, &arguments.servers, arguments.durability != Durability::None)?;
    let csv = arguments.setup.csv.as_deref();
    let mut csv = csv.map(|path| Csv::open(path, &bench.about, CSV_HEADER)).transpose()?;
    if !strace::is_available() {
        eprintln!("strace is not installed: system calls are not counted");
    }
    let pool = Pool::build(arguments.op, space, arguments.pipeline);
    let null = (arguments.op, space.value_bytes);
    let start = |kind: &_| bench.start(*kind, arguments.durability, arguments.net_threads, null);
    let targets = arguments.servers.iter().map(start).collect::<Result<Vec<_>>>()?;
    for target in &targets {
        fill(target.address, WRITERS, space, 0..space.keys)
            .with_context(|| format!("filling {}", target.name))?;
    }
    println!("{}", report::heading(COLUMNS));
    for &clients in &arguments.counts {
        let measurements = run_count(&bench, arguments, &pool, &targets, clients)?;
        let base = measurements.last().map(|(sample, _)| sample.clone()).unwrap_or_default();
        for (index, (target, (sample, calls))) in targets.iter().zip(&measurements).enumerate() {
            let base = (index + 1 < targets.len()).then_some(&base);
            println!(
                "{}",
                report::row(COLUMNS, &row(clients, target, sample, base, calls.as_ref()))
            );
            if let Some(csv) = &mut csv {
                csv.append(&csv_fields(arguments, clients, target, sample, base, calls.as_ref()))?;
            }
        }
    }
    targets.into_iter().for_each(Target::discard);
    Ok(())
}

/// Medians and system calls of every server at one number of connections.
fn run_count(
    bench: &Bench<'_>,
    arguments: &Connections,
    pool: &Pool,
    targets: &[Target],
    clients: usize,
) -> Result<Vec<(Sample, Option<SystemCalls>)>> {
    let (warm_up, window) = arguments.load.times()?;
    let mut random = Random::new(arguments.load.seed);
    let mut samples = vec![Vec::new(); targets.len()];
    let plan = |target: &Target, start| Plan {
        address: target.address,
        pid: target.pid,
        clients,
        pace: Pace::Pipeline(arguments.pipeline),
        pool,
        start,
        warm_up,
        window,
        progress: None,
    };
    for _ in 0..arguments.rounds {
        let start = random.next() >> 8;
        for (target, samples) in targets.iter().zip(&mut samples).rev() {
            samples.push(
                measure(&plan(target, start))
                    .with_context(|| format!("measuring {}", target.name))?,
            );
        }
    }
    let mut measurements = Vec::new();
    for (target, samples) in targets.iter().zip(&samples) {
        let calls = match target.pid {
            Some(pid) if strace::is_available() => {
                let progress = AtomicU64::new(0);
                let traced =
                    Plan { progress: Some(&progress), window: strace::LOAD, ..plan(target, 0) };
                let requests = || progress.load(Ordering::Relaxed);
                strace::count(&bench.cleanup, pid, requests, || measure(&traced).map(drop))?
            }
            _ => None,
        };
        measurements.push((Sample::median(samples), calls));
    }
    Ok(measurements)
}

fn row(
    clients: usize,
    target: &Target,
    sample: &Sample,
    base: Option<&Sample>,
    calls: Option<&SystemCalls>,
) -> Vec<String> {
    vec![
        clients.to_string(),
        target.name.to_owned(),
        measurement(sample.requests_per_s / 1_000.0),
        measurement_or_dash(
            base.and_then(|base| ratio(sample.requests_per_s, base.requests_per_s)),
        ),
        measurement(sample.p50_us),
        measurement(sample.p99_us),
        measurement_or_dash(sample.server_us_per_request),
        percent_or_dash(sample.server_cpu),
        percent_or_dash(Some(sample.load_cpu)),
        measurement_or_dash(calls.map(SystemCalls::per_request)),
        calls.map(SystemCalls::most).unwrap_or_default(),
        sample.notes(),
    ]
}

fn csv_fields(
    arguments: &Connections,
    clients: usize,
    target: &Target,
    sample: &Sample,
    base: Option<&Sample>,
    calls: Option<&SystemCalls>,
) -> Vec<String> {
    vec![
        arguments.op.name().to_owned(),
        arguments.pipeline.to_string(),
        arguments.durability.name().to_owned(),
        arguments.net_threads.to_string(),
        clients.to_string(),
        target.name.to_owned(),
        arguments.rounds.to_string(),
        format!("{:.1}", sample.requests_per_s),
        exact_or_empty(base.and_then(|base| ratio(sample.requests_per_s, base.requests_per_s))),
        format!("{:.1}", sample.p50_us),
        format!("{:.1}", sample.p99_us),
        exact_or_empty(sample.server_us_per_request),
        exact_or_empty(sample.server_cpu),
        format!("{:.4}", sample.load_cpu),
        exact_or_empty(calls.map(SystemCalls::per_request)),
        sample.notes(),
    ]
}
