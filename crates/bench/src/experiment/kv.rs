//! `kv`: cases of operation, pace, durability and wiring, server beside server. `connections`: some
//! of them with ever more clients, and the server's system calls.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use rustix::process::Pid;

use super::memory_tables::{Bench, Setup};
use crate::{
    cli::{UsageError, name_of},
    harness::{
        Number, Rounds, Row, Sample, TableLayout,
        arguments::{clients, count, rate},
        hidden, label,
        sample::{CPU_LOAD, CPU_SERVER, LATE_P99_US, LOST_SHARE, P50_US, P99_US, P999_US, PER_S},
        shown,
    },
    limits::PIPELINE_MAX,
    machine,
    measure::{Pace, Plan, SERVER_US, fill, measure},
    random::Random,
    requests::{Operation, Pool},
    server::{Durability, Launch, Server, ServerKind},
    stats::ratio,
    strace,
};

const HELP: &str = "\
What is measured
  A case is an operation, a pipeline length (or an open-loop rate), a durability and a wiring. For
  each, all servers are started afresh, filled with all keys and measured in turn, --rounds times;
  numbers are medians. `ratio` is the throughput beside that of the baseline, the server named last
  in --servers; `p99x` the same for the 99th percentile; `spread` is most less least throughput by
  the median; `us/req` the server's processor time by request.

  Closed loop (default): every connection has one pipeline of requests under way; latency is the
  time from sending it until its last reply. Open loop (--rate): requests are due on a fixed
  schedule, sent even when earlier ones are unanswered, and latency counts from when a request was
  due. The load polls for the last 200 us before each, so it uses its whole processor.

  Notes: `load-bound` (the load had no processor time left while the server had), `asked-late`
  (open loop: sent more than 100 us late, 99th percentile), `overloaded` (open loop: 2 million
  requests behind), `unanswered`, `nil` (reads of absent keys), `disturbed` (the load waited for its
  processor, or the host took one away), `REFUSED` (error replies, with one).

Durability
  none, os, always     busload sync=off, os, always     redis appendonly no, everysec, always

Examples
  busload-bench kv --case get:64:none --rounds 3      one case; all of them take hours
  busload-bench kv --rate 10k,50k,100k --ops get      open loop
  busload-bench kv --servers null,redis --case get:64:none    how much the load side has in hand
  busload-bench kv --attach 127.0.0.1:6379 --case get:1:none  a server that already runs";

#[derive(Debug, Args)]
#[command(
    after_long_help = HELP,
    mut_arg("rounds", |argument| argument.default_value("5")),
    mut_arg("durability", |argument| argument.default_value("none,os,always")),
    mut_arg("net_threads", |argument| argument.default_value("0,1")),
)]
pub struct Kv {
    /// Lengths of pipelines
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,16,64,256")]
    #[arg(value_parser = count::<1, PIPELINE_MAX>)]
    pipelines: Vec<usize>,
    /// Open loop instead of pipelines: requests per second, as 10000, 10k, 1M
    #[arg(long, value_name = "RATE", value_delimiter = ',', value_parser = rate)]
    rate: Vec<u64>,
    /// Operations
    #[arg(long, value_enum, value_delimiter = ',', default_value = "get,set,mix")]
    ops: Vec<Operation>,
    /// Numbers of connections
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "50")]
    #[arg(value_parser = clients)]
    clients: Vec<usize>,
    /// One case instead of all combinations, as get:64:none or get:64:none:1 (the last is the
    /// wiring); with --rate as get:none or get:none:1. Can be given several times
    #[arg(long, value_name = "CASE")]
    case: Vec<String>,
    /// Do not fill the servers before a case
    #[arg(long)]
    no_preload: bool,
    /// Measure this server, which already runs, instead of starting any. Its keys key:000000000000
    /// and up are overwritten; what its durability is stays its own business
    #[arg(long, value_name = "ADDR")]
    attach: Option<SocketAddr>,
    /// Process of the attached server, to report its processor time
    #[arg(long, value_name = "PID", requires = "attach")]
    attach_pid: Option<i32>,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    setup: Setup,
}

/// `kv` with other defaults, which also counts system calls.
#[derive(Debug, Args)]
#[command(
    after_long_help = "\
System calls are counted by strace (where it is installed) over one second of a run of their own, \
as it slows the server; the counts per request stay meaningful, the throughput of that run is not \
shown. The notes name the most frequent calls per request. `kv --help` tells about the rest.",
    mut_arg("clients", |argument| argument.default_value("1,2,5,10,50,100,200,500")),
    mut_arg("pipelines", |argument| argument.default_value("1")),
    mut_arg("ops", |argument| argument.default_value("get")),
    mut_arg("rounds", |argument| argument.default_value("3")),
    mut_arg("durability", |argument| argument.default_value("none")),
    mut_arg("net_threads", |argument| argument.default_value("0")),
)]
pub struct Connections {
    #[command(flatten)]
    kv: Kv,
}

/// Combination of settings, and a server that is measured in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    operation: Operation,
    pace: Pace,
    durability: Durability,
    net_threads: u32,
    clients: usize,
    /// Unknown of a server that already ran.
    server: Option<ServerKind>,
    /// Position among those measured beside it, 0 being the last.
    behind: usize,
}

const RATIO: Number = Number::new("ratio", "ratio");
const P99_RATIO: Number = Number::new("p99_ratio", "p99x");
/// System calls of the server by request; of `connections` only.
const CALLS: Number = Number::new("calls_per_request", "calls/req");

const LAYOUT: TableLayout<Case> = TableLayout {
    columns: &[
        label("op", "op", 3, |case| name_of(&case.operation)),
        label("pace", "pipe", 6, |case| case.pace.name()),
        label("durability", "durable", 6, |case| name_of(&case.durability)),
        label("net_threads", "net", 3, |case| case.net_threads.to_string()),
        label("clients", "clients", 5, |case| case.clients.to_string()),
        label("server", "server", 8, |case| {
            case.server.map_or_else(|| "attached".to_owned(), |kind| name_of(&kind))
        }),
        shown(PER_S),
        shown(RATIO),
        shown(P50_US),
        shown(P99_US),
        shown(P999_US),
        shown(P99_RATIO),
        shown(SERVER_US),
        shown(CPU_LOAD),
        shown(CPU_SERVER),
        hidden(CALLS),
        hidden(LOST_SHARE),
        hidden(LATE_P99_US),
    ],
    main: PER_S,
    ratios: |row, rows| {
        // The baseline was measured in the same group, whose last row it is.
        let Case { server, behind, .. } = row.case;
        let is_alike = |other: &&Row<Case>| Case { server, behind, ..other.case } == row.case;
        let base = rows.iter().rev().find(|other| other.case.behind == 0 && is_alike(other));
        let base = base.filter(|_| 0 < behind);
        let beside = |number| ratio(row.sample.or_zero(number), base?.sample.or_zero(number));
        vec![(RATIO, beside(PER_S)), (P99_RATIO, beside(P99_US))]
    },
};

/// A server under measurement, and the one that this program started.
struct Subject {
    kind: Option<ServerKind>,
    address: SocketAddr,
    pid: Option<Pid>,
    started: Option<Server>,
}

pub fn kv(arguments: &Kv) -> Result<()> {
    run(arguments, "Reads and writes", false)
}

pub fn connections(arguments: &Connections) -> Result<()> {
    let has_strace = strace::is_available();
    if !has_strace {
        eprintln!("strace is not installed: system calls are not counted");
    }
    run(&arguments.kv, "From one connection to many", has_strace)
}

fn run(arguments: &Kv, title: &str, with_calls: bool) -> Result<()> {
    let Kv { setup, rounds, .. } = arguments;
    let kinds = if arguments.attach.is_some() { &[] } else { &setup.servers[..] };
    let cases = arguments.cases()?;
    let more = format!("{:?} a measurement, medians of {}", rounds.seconds, rounds.rounds);
    let bench = Bench::new(setup, kinds, &more)?;
    let mut table = bench.table(title, &LAYOUT)?;
    for case in cases {
        let space = setup.space(rounds.seed);
        let pipeline = if let Pace::Pipeline(pipeline) = case.pace { pipeline } else { 1 };
        let pool = Pool::build(case.operation, space, pipeline);
        let subjects = arguments.subjects(&bench, kinds, &case)?;
        for Subject { kind, address, .. } in subjects.iter().filter(|_| !arguments.no_preload) {
            let filled = fill(*address, WRITERS, space, 0..space.keys);
            filled.with_context(|| format!("filling {kind:?}"))?;
        }
        for &clients in &arguments.clients {
            let behind = |position| subjects.len() - 1 - position;
            let subject_case = |(position, subject): (usize, &Subject)| Case {
                clients,
                server: subject.kind,
                behind: behind(position),
                ..case
            };
            let cases: Vec<_> = subjects.iter().enumerate().map(subject_case).collect();
            table.group("", &cases, rounds.rounds, |case, round| {
                let subject = &subjects[behind(case.behind)];
                subject.settle(case.durability)?;
                let plan = Plan {
                    address: subject.address,
                    pid: subject.pid,
                    clients,
                    pace: case.pace,
                    pool: &pool,
                    // All servers of a round are asked the same.
                    start: Random::new(rounds.seed_of(round)).next() >> 8,
                    warm_up: rounds.warm_up,
                    window: rounds.seconds,
                    progress: None,
                };
                let mut sample = measure(&plan)?;
                if with_calls && round == rounds.rounds {
                    count_calls(&bench, &plan, &mut sample)?;
                }
                Ok(sample)
            })?;
        }
    }
    Ok(())
}

/// Connections that fill a server.
const WRITERS: usize = 50;

impl Subject {
    /// Writes out what the server has written so far, so that the next measurement of a durable
    /// case starts from a quiet disk.
    fn settle(&self, durability: Durability) -> Result<()> {
        match &self.started {
            Some(server) if durability != Durability::None => machine::settle(server.directory()),
            _ => Ok(()),
        }
    }
}

/// Counts a server's system calls in a run of their own.
fn count_calls(bench: &Bench<'_>, plan: &Plan<'_>, sample: &mut Sample) -> Result<()> {
    let Some(pid) = plan.pid else { return Ok(()) };
    let progress = AtomicU64::new(0);
    let traced = Plan { progress: Some(&progress), window: strace::LOAD, ..*plan };
    let requests = || progress.load(Ordering::Relaxed);
    let calls = strace::count(&bench.cleanup, pid, requests, || measure(&traced).map(drop))?;
    if let Some(strace::SystemCalls { per_request, most }) = calls {
        sample.set(CALLS, per_request);
        sample.remark = format!("{per_request:.2} calls/req: {most}");
    }
    Ok(())
}

impl Kv {
    /// Starts the servers of a case, or takes the one that already runs.
    fn subjects(
        &self,
        bench: &Bench<'_>,
        kinds: &[ServerKind],
        case: &Case,
    ) -> Result<Vec<Subject>> {
        let Case { durability, net_threads, .. } = *case;
        let reply_bytes = case.operation.reply_bytes(self.setup.value_bytes);
        let start = |&kind: &ServerKind| {
            let server = bench.start(&Launch { kind, durability, net_threads, reply_bytes })?;
            let (address, pid) = (server.resp(), Some(server.pid()));
            Ok(Subject { kind: Some(kind), address, pid, started: Some(server) })
        };
        let attached = |address| {
            let pid = self.attach_pid.and_then(Pid::from_raw);
            Ok(Subject { kind: None, address, pid, started: None })
        };
        kinds.iter().map(start).chain(self.attach.map(attached)).collect()
    }

    /// Returns the cases to measure; those that people compare are neighbours.
    fn cases(&self) -> Result<Vec<Case>> {
        let Setup { durability, net_threads, .. } = &self.setup;
        if self.case.is_empty() {
            return Ok(combined(durability, net_threads, &self.ops, &self.paces()));
        }
        let cases: Option<Vec<_>> = self.case.iter().map(|text| self.named(text)).collect();
        let wrong = "--case is as get:64:none or, with --rate, get:none";
        Ok(cases.ok_or_else(|| UsageError(wrong.to_owned()))?.concat())
    }

    fn paces(&self) -> Vec<Pace> {
        match self.rate.is_empty() {
            true => self.pipelines.iter().copied().map(Pace::Pipeline).collect(),
            false => self.rate.iter().copied().map(Pace::Rate).collect(),
        }
    }

    /// Returns the cases that `text` names: without a wiring one for each that was asked for, and
    /// in an open loop, where there is no pipeline, one for each rate.
    fn named(&self, text: &str) -> Option<Vec<Case>> {
        let mut words = text.split(':');
        let operation = Operation::from_str(words.next()?, true).ok()?;
        let paces = match self.rate.is_empty() {
            true => vec![Pace::Pipeline(count::<1, PIPELINE_MAX>(words.next()?).ok()?)],
            false => self.paces(),
        };
        let durability = Durability::from_str(words.next()?, true).ok()?;
        let net_threads = match words.next() {
            Some(word) => vec![word.parse().ok()?],
            None => self.setup.net_threads.clone(),
        };
        let cases = combined(&[durability], &net_threads, &[operation], &paces);
        words.next().is_none().then_some(cases)
    }
}

fn combined(
    durabilities: &[Durability],
    net_threads: &[u32],
    operations: &[Operation],
    paces: &[Pace],
) -> Vec<Case> {
    let mut cases = Vec::new();
    for &durability in durabilities {
        for &net_threads in net_threads {
            for &operation in operations {
                cases.extend(paces.iter().map(|&pace| {
                    let (server, behind) = (None, 0);
                    Case { operation, pace, durability, net_threads, clients: 0, server, behind }
                }));
            }
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn cases(arguments: &[&str]) -> Result<Vec<Case>> {
        match Cli::try_parse_from(["busload-bench"].iter().chain(arguments))?.command {
            Command::Kv(kv) | Command::Connections(Connections { kv }) => kv.cases(),
            _ => panic!("another command"),
        }
    }

    #[test]
    fn cases_are_combined_or_named() {
        let pace = Pace::Pipeline(64);
        let case = combined(&[Durability::Always], &[1], &[Operation::Set], &[pace]);
        assert_eq!(cases(&["kv", "--case", "set:64:always:1"]).unwrap(), case);
        assert_eq!(cases(&["kv", "--case", "set:64:always"]).unwrap().len(), 2);
        let narrowed = ["kv", "--case", "set:64:always", "--net-threads", "1"];
        assert_eq!(cases(&narrowed).unwrap(), case);
        assert_eq!(cases(&["kv"]).unwrap().len(), 3 * 4 * 3 * 2);
        let reads = combined(&[Durability::None], &[0], &[Operation::Get], &[Pace::Pipeline(1)]);
        assert_eq!(cases(&["connections"]).unwrap(), reads);
    }

    #[test]
    fn rates_take_the_place_of_pipelines() {
        let cases = cases(&["kv", "--rate", "10k,1M", "--case", "get:none:0"]).unwrap();
        let paces: Vec<_> = cases.iter().map(|case| case.pace).collect();
        assert_eq!(paces, [Pace::Rate(10_000), Pace::Rate(1_000_000)]);
        assert_eq!(cases[0].pace.name(), "10k/s");
    }

    #[test]
    fn what_names_no_case_is_refused() {
        for bad in
            ["", "get", "get:x:none", "get:0:none", "get:1:some", "get:1:none:0:0", "get:1:none:x"]
        {
            assert!(cases(&["kv", "--case", bad]).is_err(), "{bad}");
        }
        assert!(cases(&["kv", "--clients", "0"]).is_err());
        assert!(cases(&["connections", "--rounds", "0"]).is_err());
    }
}
