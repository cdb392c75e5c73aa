//! `kv`: cases of operation, pace, durability and wiring, server beside server.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use rustix::process::Pid;

use super::{Bench, Target, fill_all, medians, require};
use crate::{
    case::Case,
    cli::Kv,
    measure::{Pace, Plan, Sample},
    report::{
        self, Column, Field, exact_or_empty, field, measurement, measurement_or_dash, number,
        percent_or_dash, text,
    },
    requests::{KeySpace, Pool},
    server::Durability,
    stats::ratio,
};

/// A server in a case, and what it is compared with.
struct Row {
    case: Case,
    server: &'static str,
    clients: usize,
    space: KeySpace,
    rounds: usize,
    sample: Sample,
    /// The baseline's sample; the baseline itself has none.
    base: Option<Sample>,
}

impl Row {
    /// A number beside the same of the baseline.
    fn ratio(&self, of: fn(&Sample) -> f64) -> Option<f64> {
        self.base.as_ref().and_then(|base| ratio(of(&self.sample), of(base)))
    }
}

const COLUMNS: &[Column<Row>] = &[
    text("op", 3, |row| row.case.operation.name().to_owned()),
    number("pipe", 6, |row| row.case.pace_name()),
    text("durable", 6, |row| row.case.durability.name().to_owned()),
    number("net", 3, |row| row.case.net_threads.to_string()),
    text("server", 8, |row| row.server.to_owned()),
    number("kreq/s", 7, |row| measurement(row.sample.requests_per_s / 1_000.0)),
    number("ratio", 5, |row| measurement_or_dash(row.ratio(|sample| sample.requests_per_s))),
    number("p50 us", 7, |row| measurement(row.sample.p50_us)),
    number("p99 us", 7, |row| measurement(row.sample.p99_us)),
    number("p99.9 us", 8, |row| measurement(row.sample.p999_us)),
    number("p99x", 5, |row| measurement_or_dash(row.ratio(|sample| sample.p99_us))),
    number("us/req", 6, |row| measurement_or_dash(row.sample.server_us_per_request)),
    number("server", 6, |row| percent_or_dash(row.sample.server_cpu)),
    number("load", 5, |row| percent_or_dash(Some(row.sample.load_cpu))),
    text("notes", 5, |row| row.sample.notes()),
];

const FIELDS: &[Field<Row>] = &[
    field("op", |row| row.case.operation.name().to_owned()),
    field("pace", |row| row.case.pace_name()),
    field("durability", |row| row.case.durability.name().to_owned()),
    field("net_threads", |row| row.case.net_threads.to_string()),
    field("server", |row| row.server.to_owned()),
    field("clients", |row| row.clients.to_string()),
    field("keys", |row| row.space.keys.to_string()),
    field("value_bytes", |row| row.space.value_bytes.to_string()),
    field("rounds", |row| row.rounds.to_string()),
    field("requests_per_s", |row| format!("{:.1}", row.sample.requests_per_s)),
    field("ratio", |row| exact_or_empty(row.ratio(|sample| sample.requests_per_s))),
    field("p50_us", |row| format!("{:.1}", row.sample.p50_us)),
    field("p99_us", |row| format!("{:.1}", row.sample.p99_us)),
    field("p999_us", |row| format!("{:.1}", row.sample.p999_us)),
    field("p99_ratio", |row| exact_or_empty(row.ratio(|sample| sample.p99_us))),
    field("server_us_per_request", |row| exact_or_empty(row.sample.server_us_per_request)),
    field("server_cpu", |row| exact_or_empty(row.sample.server_cpu)),
    field("load_cpu", |row| format!("{:.4}", row.sample.load_cpu)),
    field("lost", |row| format!("{:.4}", row.sample.lost)),
    field("late_p99_us", |row| exact_or_empty(row.sample.late_p99_us)),
    field("unanswered", |row| row.sample.unanswered.to_string()),
    field("errors", |row| row.sample.oddities.errors.to_string()),
    field("nils", |row| row.sample.oddities.nils.to_string()),
    field("notes", |row| row.sample.notes()),
];

pub fn kv(arguments: &Kv) -> Result<()> {
    let cases = arguments.cases()?;
    require(&cases, "a list of cases")?;
    require(&arguments.servers, "--servers")?;
    let (space, rounds) = (arguments.load.space()?, arguments.rounds);
    arguments.load.times()?;
    let kinds = if arguments.attach.is_some() { &[] } else { &arguments.servers[..] };
    let durable = cases.iter().any(|case| case.durability != Durability::None);
    let bench = Bench::new(&arguments.setup, kinds, durable)?;
    let mut csv = bench.csv(FIELDS)?;
    let (clients, seconds) = (arguments.load.clients, arguments.load.seconds);
    println!(
        "{clients} connections, {} keys, {}-byte values, {seconds} s a measurement, medians of \
         {rounds}",
        space.keys, space.value_bytes
    );
    println!("{}", report::heading(COLUMNS));
    for case in &cases {
        let measured = run_case(&bench, arguments, space, case)
            .with_context(|| format!("case {}:{}", case.operation.name(), case.pace_name()))?;
        let (last, base) = (measured.len() - 1, measured.last().map(|(_, base)| base.clone()));
        for (index, (server, sample)) in measured.into_iter().enumerate() {
            let base = base.clone().filter(|_| index < last);
            let row = Row { case: *case, server, clients, space, rounds, sample, base };
            println!("{}", report::line(COLUMNS, &row));
            csv.as_mut().map_or(Ok(()), |csv| csv.append(&row))?;
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
    if !arguments.no_preload {
        fill_all(&targets, arguments.load.clients, space)?;
    }
    let (warm_up, window) = arguments.load.times()?;
    let plan = Plan {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        pid: None,
        clients: arguments.load.clients,
        pace: case.pace,
        pool: &pool,
        start: 0,
        warm_up,
        window,
        progress: None,
    };
    let samples = medians(&targets, arguments.rounds, space.seed, case.durability, &plan)?;
    let names: Vec<_> = targets.iter().map(|target| target.name).collect();
    targets.into_iter().for_each(Target::discard);
    Ok(names.into_iter().zip(samples).collect())
}

fn start_targets(
    bench: &Bench<'_>,
    arguments: &Kv,
    space: KeySpace,
    case: &Case,
) -> Result<Vec<Target>> {
    if let Some(address) = arguments.attach {
        let pid = arguments.attach_pid.and_then(Pid::from_raw);
        return Ok(vec![Target { name: "attached", address, pid, started: None }]);
    }
    let null = (case.operation, space.value_bytes);
    let start = |kind: &_| bench.start(*kind, case.durability, case.net_threads, null);
    arguments.servers.iter().map(start).collect()
}
