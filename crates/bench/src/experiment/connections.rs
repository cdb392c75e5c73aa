//! `connections`: whether work per request falls as more clients come.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use clap::Args;

use super::{Bench, fill_all, settle};
use crate::{
    cli::{Load, Setup},
    harness::{
        Number, Rounds, Row, TableLayout,
        arguments::{clients, count},
        label,
        sample::{CPU_LOAD, CPU_SERVER, P50_US, P99_US, PER_S},
        shown,
    },
    limits::PIPELINE_MAX,
    measure::{Pace, Plan, SERVER_US, measure},
    random::Random,
    requests::{Operation, Pool},
    server::{Durability, Launch, Server, ServerKind},
    stats::ratio,
    strace,
};

/// Connections that fill the servers.
const WRITERS: usize = 16;

#[derive(Debug, Args)]
#[command(after_long_help = "\
System calls are counted by strace (where it is installed) over one second of a run of their \
own, as it slows the server; the counts per request stay meaningful, the throughput of that run \
is not shown. The notes name the most frequent calls per request.")]
pub struct Connections {
    /// Servers to measure; the last one is the baseline of the ratios
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        num_args = 1..,
        default_value = "busload,redis"
    )]
    servers: Vec<ServerKind>,
    /// Numbers of connections
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        num_args = 1..,
        default_value = "1,2,5,10,50,100,200,500",
        value_parser = clients
    )]
    counts: Vec<usize>,
    /// Operation
    #[arg(long, value_enum, default_value = "get")]
    op: Operation,
    /// Requests under way on a connection
    #[arg(long, value_name = "N", default_value = "1", value_parser = count::<1, PIPELINE_MAX>)]
    pipeline: usize,
    /// Durability
    #[arg(long, value_enum, default_value = "none")]
    durability: Durability,
    /// Wiring of busload: its --net-threads
    #[arg(long, value_name = "N", default_value_t = 0)]
    net_threads: u32,
    /// Rounds of measurements
    #[command(flatten)]
    rounds: Rounds,
    /// Load; --clients is of no use here
    #[command(flatten)]
    load: Load,
    /// Servers
    #[command(flatten)]
    setup: Setup,
}

/// A server at one number of connections.
#[derive(Clone, Copy)]
struct Case {
    clients: usize,
    server: &'static str,
    index: usize,
    is_base: bool,
}

const RATIO: Number = Number::new("ratio", "ratio");
const CALLS: Number = Number::new("calls_per_request", "calls/req");

const LAYOUT: TableLayout<Case> = TableLayout {
    columns: &[
        label("clients", "clients", 7, |case| case.clients.to_string()),
        label("server", "server", 8, |case| case.server.to_owned()),
        shown(PER_S),
        shown(RATIO),
        shown(P50_US),
        shown(P99_US),
        shown(SERVER_US),
        shown(CPU_LOAD),
        shown(CPU_SERVER),
        shown(CALLS),
    ],
    main: PER_S,
    ratios,
};

fn ratios(row: &Row<Case>, rows: &[Row<Case>]) -> Vec<(Number, Option<f64>)> {
    let is_base = |other: &&Row<Case>| other.case.is_base && other.case.clients == row.case.clients;
    let base = rows.iter().rev().find(is_base).filter(|_| !row.case.is_base);
    let beside = |base: &Row<Case>| ratio(row.sample.or_zero(PER_S), base.sample.or_zero(PER_S));
    vec![(RATIO, base.and_then(beside))]
}

pub fn connections(arguments: &Connections) -> Result<()> {
    let Connections { op, pipeline, durability, net_threads, rounds, load, .. } = *arguments;
    let space = load.space(rounds.seed);
    let more = format!(
        "{} in pipelines of {pipeline}, durability {}, net-threads {net_threads}, {} keys",
        op.name(),
        durability.name(),
        load.keys
    );
    let durabilities = std::iter::once(durability);
    let bench = Bench::new(&arguments.setup, &arguments.servers, durabilities, &more)?;
    let has_strace = strace::is_available();
    if !has_strace {
        eprintln!("strace is not installed: system calls are not counted");
    }
    let pool = Pool::build(op, space, pipeline);
    let reply_bytes = op.reply_bytes(space.value_bytes);
    let start = |kind: &ServerKind| {
        bench.start(&Launch { kind: *kind, durability, net_threads, reply_bytes })
    };
    let servers = arguments.servers.iter().map(start).collect::<Result<Vec<Server>>>()?;
    fill_all(&servers, WRITERS, space)?;
    let mut table = bench.table("From one connection to many", &LAYOUT)?;
    for &clients in &arguments.counts {
        let case = |(index, kind): (usize, &ServerKind)| Case {
            clients,
            server: kind.name(),
            index,
            is_base: index + 1 == servers.len(),
        };
        let cases: Vec<_> = arguments.servers.iter().enumerate().map(case).collect();
        table.group("", &cases, rounds.rounds, |case, round| {
            let server = &servers[case.index];
            settle(server, durability)?;
            let plan = Plan {
                address: server.resp(),
                pid: Some(server.pid()),
                clients,
                pace: Pace::Pipeline(pipeline),
                pool: &pool,
                start: Random::new(rounds.seed_of(round)).next() >> 8,
                warm_up: rounds.warm_up,
                window: rounds.seconds,
                progress: None,
            };
            let mut sample = measure(&plan)?;
            if has_strace && round == rounds.rounds {
                let calls = count_calls(&bench, server, &plan)?;
                sample.set(CALLS, calls.as_ref().map(|calls| calls.per_request));
                sample.remark = calls.map(|calls| calls.most).unwrap_or_default();
            }
            Ok(sample)
        })?;
    }
    Ok(())
}

/// Counts a server's system calls in a run of their own.
fn count_calls(
    bench: &Bench<'_>,
    server: &Server,
    plan: &Plan<'_>,
) -> Result<Option<strace::SystemCalls>> {
    let progress = AtomicU64::new(0);
    let traced = Plan { progress: Some(&progress), window: strace::LOAD, ..*plan };
    let requests = || progress.load(Ordering::Relaxed);
    strace::count(&bench.cleanup, server.pid(), requests, || measure(&traced).map(drop))
}
