//! `kv`: cases of operation, pace, durability and wiring, server beside server.

use anyhow::{Context, Result};
use rustix::process::Pid;

use super::{Bench, Target, require};
use crate::{
    case::Case,
    cli::Kv,
    measure::{Pace, Plan, Sample, fill, measure},
    random::Random,
    report::{
        self, Column, Csv, exact_or_empty, measurement, measurement_or_dash, number,
        percent_or_dash, text,
    },
    requests::{KeySpace, Pool},
    server::Durability,
    stats::ratio,
};

const COLUMNS: &[Column] = &[
    text("op", 3),
    number("pipe", 6),
    text("durable", 6),
    number("net", 3),
    text("server", 8),
    number("kreq/s", 7),
    number("ratio", 5),
    number("p50 us", 7),
    number("p99 us", 7),
    number("p99.9 us", 8),
    number("p99x", 5),
    number("us/req", 6),
    number("server", 6),
    number("load", 5),
    text("notes", 5),
];

const CSV_HEADER: &[&str] = &[
    "op",
    "pace",
    "durability",
    "net_threads",
    "server",
    "clients",
    "keys",
    "value_bytes",
    "rounds",
    "requests_per_s",
    "ratio",
    "p50_us",
    "p99_us",
    "p999_us",
    "p99_ratio",
    "server_us_per_request",
    "server_cpu",
    "load_cpu",
    "lost",
    "late_p99_us",
    "unanswered",
    "errors",
    "nils",
    "notes",
];

pub fn kv(arguments: &Kv) -> Result<()> {
    let cases = arguments.cases()?;
    require(&cases, "a list of cases")?;
    require(&arguments.servers, "--servers")?;
    let space = arguments.load.space()?;
    arguments.load.times()?;
    let kinds = if arguments.attach.is_some() { &[] } else { &arguments.servers[..] };
    let durable = cases.iter().any(|case| case.durability != Durability::None);
    let bench = Bench::new(&arguments.setup, kinds, durable)?;
    let csv = arguments.setup.csv.as_deref();
    let mut csv = csv.map(|path| Csv::open(path, &bench.about, CSV_HEADER)).transpose()?;
    println!(
        "{} connections, {} keys, {}-byte values, {} s a measurement, medians of {}",
        arguments.load.clients,
        space.keys,
        space.value_bytes,
        arguments.load.seconds,
        arguments.rounds
    );
    println!("{}", report::heading(COLUMNS));
    for case in &cases {
        let measurements = run_case(&bench, arguments, space, case)
            .with_context(|| format!("case {}:{}", case.operation.name(), case.pace_name()))?;
        let base = measurements.last().map(|(_, sample)| sample.clone()).unwrap_or_default();
        for (index, (name, sample)) in measurements.iter().enumerate() {
            let base = (index + 1 < measurements.len()).then_some(&base);
            println!("{}", report::row(COLUMNS, &row(case, name, sample, base)));
            if let Some(csv) = &mut csv {
                csv.append(&csv_fields(arguments, case, name, sample, base))?;
            }
        }
    }
    Ok(())
}

/// The medians of every server, in the order they were named.
fn run_case(
    bench: &Bench<'_>,
    arguments: &Kv,
    space: KeySpace,
    case: &Case,
) -> Result<Vec<(&'static str, Sample)>> {
    let pipeline = match case.pace {
        Pace::Pipeline(pipeline) => pipeline,
        Pace::Rate(_) => 1,
    };
    let pool = Pool::build(case.operation, space, pipeline);
    let targets = start_targets(bench, arguments, space, case)?;
    let (warm_up, window) = arguments.load.times()?;
    let mut samples = vec![Vec::new(); targets.len()];
    let mut random = Random::new(space.seed);
    for _ in 0..arguments.rounds {
        let start = random.next() >> 8;
        // The baseline, named last, goes first.
        for (target, samples) in targets.iter().zip(&mut samples).rev() {
            if case.durability != Durability::None {
                target.settle()?;
            }
            let plan = Plan {
                address: target.address,
                pid: target.pid,
                clients: arguments.load.clients,
                pace: case.pace,
                pool: &pool,
                start,
                warm_up,
                window,
                progress: None,
            };
            samples.push(measure(&plan).with_context(|| format!("measuring {}", target.name))?);
        }
    }
    let measurements = targets
        .iter()
        .zip(&samples)
        .map(|(target, samples)| (target.name, Sample::median(samples)));
    let measurements = measurements.collect();
    targets.into_iter().for_each(Target::discard);
    Ok(measurements)
}

fn start_targets(
    bench: &Bench<'_>,
    arguments: &Kv,
    space: KeySpace,
    case: &Case,
) -> Result<Vec<Target>> {
    let targets = match arguments.attach {
        Some(address) => {
            let pid = arguments.attach_pid.and_then(Pid::from_raw);
            vec![Target { name: "attached", address, pid, started: None }]
        }
        None => {
            let null = (case.operation, space.value_bytes);
            let start = |kind: &_| bench.start(*kind, case.durability, case.net_threads, null);
            arguments.servers.iter().map(start).collect::<Result<_>>()?
        }
    };
    if !arguments.no_preload {
        for target in &targets {
            fill(target.address, arguments.load.clients, space, 0..space.keys)
                .with_context(|| format!("filling {}", target.name))?;
        }
    }
    Ok(targets)
}

fn row(case: &Case, name: &str, sample: &Sample, base: Option<&Sample>) -> Vec<String> {
    vec![
        case.operation.name().to_owned(),
        case.pace_name(),
        case.durability.name().to_owned(),
        case.net_threads.to_string(),
        name.to_owned(),
        measurement(sample.requests_per_s / 1_000.0),
        measurement_or_dash(
            base.and_then(|base| ratio(sample.requests_per_s, base.requests_per_s)),
        ),
        measurement(sample.p50_us),
        measurement(sample.p99_us),
        measurement(sample.p999_us),
        measurement_or_dash(base.and_then(|base| ratio(sample.p99_us, base.p99_us))),
        measurement_or_dash(sample.server_us_per_request),
        percent_or_dash(sample.server_cpu),
        percent_or_dash(Some(sample.load_cpu)),
        sample.notes(),
    ]
}

fn csv_fields(
    arguments: &Kv,
    case: &Case,
    name: &str,
    sample: &Sample,
    base: Option<&Sample>,
) -> Vec<String> {
    vec![
        case.operation.name().to_owned(),
        case.pace_name(),
        case.durability.name().to_owned(),
        case.net_threads.to_string(),
        name.to_owned(),
        arguments.load.clients.to_string(),
        arguments.load.keys.to_string(),
        arguments.load.value_bytes.to_string(),
        arguments.rounds.to_string(),
        format!("{:.1}", sample.requests_per_s),
        exact_or_empty(base.and_then(|base| ratio(sample.requests_per_s, base.requests_per_s))),
        format!("{:.1}", sample.p50_us),
        format!("{:.1}", sample.p99_us),
        format!("{:.1}", sample.p999_us),
        exact_or_empty(base.and_then(|base| ratio(sample.p99_us, base.p99_us))),
        exact_or_empty(sample.server_us_per_request),
        exact_or_empty(sample.server_cpu),
        format!("{:.4}", sample.load_cpu),
        format!("{:.4}", sample.lost),
        exact_or_empty(sample.late_p99_us),
        sample.unanswered.to_string(),
        sample.oddities.errors.to_string(),
        sample.oddities.nils.to_string(),
        sample.notes(),
    ]
}
