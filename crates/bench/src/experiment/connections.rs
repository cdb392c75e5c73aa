//! `connections`: whether work per request falls as more clients come.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use clap::Args;

use super::{
    Bench,
    kv::{CALLS, Case, LAYOUT, Target, measure_all},
};
use crate::{
    cli::{Load, Setup},
    harness::{
        Rounds, Sample,
        arguments::{clients, count},
    },
    limits::PIPELINE_MAX,
    measure::{Pace, Plan, measure},
    requests::{Operation, Pool},
    server::{Durability, ServerKind},
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
    #[arg(long, value_enum, value_delimiter = ',', default_value = "busload,redis")]
    servers: Vec<ServerKind>,
    /// Numbers of connections
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
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
    #[command(flatten)]
    rounds: Rounds,
    /// Load; --clients is of no use here
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    setup: Setup,
}

pub fn connections(arguments: &Connections) -> Result<()> {
    let Connections { op, pipeline, durability, net_threads, rounds, load, .. } = *arguments;
    let case = Case::new(op, Pace::Pipeline(pipeline), durability, net_threads);
    let (kinds, space) = (&arguments.servers, load.space(rounds.seed));
    let more = format!("{} keys, {}-byte values", load.keys, load.value_bytes);
    let bench = Bench::new(&arguments.setup, kinds, std::iter::once(durability), &more)?;
    let has_strace = strace::is_available();
    if !has_strace {
        eprintln!("strace is not installed: system calls are not counted");
    }
    let pool = Pool::build(op, space, pipeline);
    let targets = Target::start_all(&bench, kinds, &case, space)?;
    Target::fill_all(&targets, WRITERS, space)?;
    let mut table = bench.table("From one connection to many", &LAYOUT)?;
    for clients in &arguments.counts {
        let finish = |plan: &Plan<'_>, round, sample: &mut Sample| {
            let is_wanted = has_strace && round == rounds.rounds;
            if is_wanted { count_calls(&bench, plan, sample) } else { Ok(()) }
        };
        let case = Case { clients: *clients, ..case };
        measure_all(&mut table, &targets, &case, &pool, &rounds, finish)?;
    }
    Ok(())
}

/// Counts a server's system calls in a run of their own.
fn count_calls(bench: &Bench<'_>, plan: &Plan<'_>, sample: &mut Sample) -> Result<()> {
    let progress = AtomicU64::new(0);
    let traced = Plan { progress: Some(&progress), window: strace::LOAD, ..*plan };
    let requests = || progress.load(Ordering::Relaxed);
    let pid = plan.pid.context("a server that this program started has a process")?;
    let calls = strace::count(&bench.cleanup, pid, requests, || measure(&traced).map(drop))?;
    if let Some(strace::SystemCalls { per_request, most }) = calls {
        sample.set(CALLS, per_request);
        sample.remark = format!("{per_request:.2} calls/req: {most}");
    }
    Ok(())
}
