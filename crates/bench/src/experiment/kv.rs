//! `kv`: cases of operation, pace, durability and wiring, server beside server.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use rustix::process::Pid;

use super::Bench;
use crate::{
    cli::{Load, Setup, UsageError},
    harness::{
        Number, Rounds, Row, Sample, Table, TableLayout,
        arguments::{count, rate},
        hidden, label,
        sample::{CPU_LOAD, CPU_SERVER, LATE_P99_US, LOST_SHARE, P50_US, P99_US, P999_US, PER_S},
        shown,
    },
    limits::PIPELINE_MAX,
    machine,
    measure::{Pace, Plan, SERVER_US, fill, measure},
    random::Random,
    requests::{KeySpace, Operation, Pool},
    server::{Durability, Launch, Server, ServerKind},
    stats::ratio,
};

const HELP: &str = "\
What is measured
  A case is an operation, a pipeline length (or an open-loop rate), a durability and a wiring.
  For each case all servers are started afresh and filled with all keys; then they are
  measured in turn, --rounds times, and every number of the table is the median of its rounds.
  `ratio` is the throughput beside that of the baseline, the server named last in --servers;
  `p99x` the same for the 99th percentile; `spread` is most less least throughput by the median.

  Closed loop (default): every connection has one pipeline of requests under way; latency is
  the time from sending it until its last reply. Open loop (--rate): requests are due on a
  fixed schedule spread over the connections, sent even when earlier ones are unanswered, and
  latency counts from when a request was due. The load thread polls while the next request is
  less than 200 us away, so it uses its whole processor.

  us/req is the server's processor time (all threads) per request. Notes: `load-bound` (the
  load side had no processor time left while the server had), `asked-late` (open loop: 99th
  percentile of the sending delay above 100 us), `overloaded` (open loop: the server fell 2
  million requests behind), `unanswered`, `nil` (reads of absent keys), `disturbed`
  (the load waited for its processor, or the host took one away, in more than 5% of the time),
  `REFUSED` (error replies, with one).

Durability
  none     busload sync=off       redis --appendonly no
  os       busload sync=os        redis --appendfsync everysec
  always   busload sync=always    redis --appendfsync always

Examples
  busload-bench kv                                    everything (hours)
  busload-bench kv --pipelines 64 --net-threads 0     one column of it
  busload-bench kv --case get:64:none --rounds 3      one case
  busload-bench kv --rate 10k,50k,100k --ops get      open loop
  busload-bench kv --servers null,redis --case get:64:none    how much the load side has in hand
  busload-bench kv --attach 127.0.0.1:6379 --case get:1:none  a server that already runs";

#[derive(Debug, Args)]
#[command(after_long_help = HELP, mut_arg("rounds", |argument| argument.default_value("5")))]
pub struct Kv {
    /// Servers to measure; the last one is the baseline of the ratios
    #[arg(long, value_enum, value_delimiter = ',', default_value = "busload,redis")]
    servers: Vec<ServerKind>,
    /// Lengths of pipelines
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "1,16,64,256",
        value_parser = count::<1, PIPELINE_MAX>
    )]
    pipelines: Vec<usize>,
    /// Open loop instead of pipelines: requests per second, as 10000, 10k, 1M
    #[arg(long, value_name = "RATE", value_delimiter = ',', value_parser = rate)]
    rate: Vec<u64>,
    /// Operations
    #[arg(long, value_enum, value_delimiter = ',', default_value = "get,set,mix")]
    ops: Vec<Operation>,
    /// Durabilities
    #[arg(long, value_enum, value_delimiter = ',', default_value = "none,os,always")]
    durability: Vec<Durability>,
    /// Wirings of busload: its --net-threads
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0,1")]
    net_threads: Vec<u32>,
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
    load: Load,
    #[command(flatten)]
    setup: Setup,
}

/// Combination of settings, and a server that is measured in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    pub operation: Operation,
    pub pace: Pace,
    pub durability: Durability,
    pub net_threads: u32,
    pub clients: usize,
    /// Name of the server, and its position among those measured beside it, 0 being the last.
    pub server: &'static str,
    pub behind: usize,
}

impl Case {
    pub fn new(op: Operation, pace: Pace, durability: Durability, net_threads: u32) -> Self {
        Self { operation: op, pace, durability, net_threads, clients: 0, server: "", behind: 0 }
    }
}

const RATIO: Number = Number::new("ratio", "ratio");
const P99_RATIO: Number = Number::new("p99_ratio", "p99x");
/// System calls of the server by request; of `connections` only.
pub const CALLS: Number = Number::new("calls_per_request", "calls/req");

pub const LAYOUT: TableLayout<Case> = TableLayout {
    columns: &[
        label("op", "op", 3, |case| case.operation.name().to_owned()),
        label("pace", "pipe", 6, |case| case.pace.name()),
        label("durability", "durable", 6, |case| case.durability.name().to_owned()),
        label("net_threads", "net", 3, |case| case.net_threads.to_string()),
        label("clients", "clients", 5, |case| case.clients.to_string()),
        label("server", "server", 8, |case| case.server.to_owned()),
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

/// A server under measurement.
pub struct Target {
    name: &'static str,
    pub address: SocketAddr,
    pub pid: Option<Pid>,
    server: Option<Server>,
}

impl Target {
    /// Starts servers for a case.
    pub fn start_all(
        bench: &Bench<'_>,
        kinds: &[ServerKind],
        case: &Case,
        space: KeySpace,
    ) -> Result<Vec<Self>> {
        let Case { durability, net_threads, .. } = *case;
        let reply_bytes = case.operation.reply_bytes(space.value_bytes);
        let start = |kind: &ServerKind| {
            let launch = Launch { kind: *kind, durability, net_threads, reply_bytes };
            let server = bench.start(&launch)?;
            let (name, address, pid) = (kind.name(), server.resp(), Some(server.pid()));
            Ok(Self { name, address, pid, server: Some(server) })
        };
        kinds.iter().map(start).collect()
    }

    /// Writes all keys to every server.
    pub fn fill_all(targets: &[Self], clients: usize, space: KeySpace) -> Result<()> {
        targets.iter().try_for_each(|Self { name, address, .. }| {
            fill(*address, clients, space, 0..space.keys).with_context(|| format!("filling {name}"))
        })
    }

    /// Writes out what the server has written so far, so that the next measurement of a durable
    /// case starts from a quiet disk.
    fn settle(&self, durability: Durability) -> Result<()> {
        match &self.server {
            Some(server) if durability != Durability::None => machine::settle(server.directory()),
            _ => Ok(()),
        }
    }
}

/// Measures servers in turns in one case. `finish` adds to a sample what only its caller wants.
pub fn measure_all(
    table: &mut Table<Case>,
    targets: &[Target],
    case: &Case,
    pool: &Pool,
    rounds: &Rounds,
    finish: impl Fn(&Plan<'_>, usize, &mut Sample) -> Result<()>,
) -> Result<()> {
    let behind = |position: usize| targets.len() - 1 - position;
    let cases = targets.iter().enumerate().map(|(position, target)| Case {
        server: target.name,
        behind: behind(position),
        ..*case
    });
    let cases: Vec<_> = cases.collect();
    let measured = table.group("", &cases, rounds.rounds, |case, round| {
        let target = &targets[behind(case.behind)];
        target.settle(case.durability)?;
        let plan = Plan {
            address: target.address,
            pid: target.pid,
            clients: case.clients,
            pace: case.pace,
            pool,
            // All servers of a round are asked the same.
            start: Random::new(rounds.seed_of(round)).next() >> 8,
            warm_up: rounds.warm_up,
            window: rounds.seconds,
            progress: None,
        };
        let mut sample = measure(&plan)?;
        finish(&plan, round, &mut sample)?;
        Ok(sample)
    });
    measured.map(drop)
}

pub fn kv(arguments: &Kv) -> Result<()> {
    let cases = arguments.cases()?;
    let kinds = if arguments.attach.is_some() { &[] } else { &arguments.servers[..] };
    let (load, rounds) = (arguments.load, arguments.rounds);
    let more = format!(
        "{} keys, {}-byte values, {:?} a measurement, medians of {}",
        load.keys, load.value_bytes, rounds.seconds, rounds.rounds
    );
    let durabilities = cases.iter().map(|case| case.durability);
    let bench = Bench::new(&arguments.setup, kinds, durabilities, &more)?;
    let mut table = bench.table("Reads and writes", &LAYOUT)?;
    for case in &cases {
        let space = load.space(rounds.seed);
        let pipeline = if let Pace::Pipeline(pipeline) = case.pace { pipeline } else { 1 };
        let pool = Pool::build(case.operation, space, pipeline);
        let mut targets = Target::start_all(&bench, kinds, case, space)?;
        let pid = arguments.attach_pid.and_then(Pid::from_raw);
        let attached = |address| Target { name: "attached", address, pid, server: None };
        targets.extend(arguments.attach.map(attached));
        if !arguments.no_preload {
            Target::fill_all(&targets, load.clients, space)?;
        }
        let case = Case { clients: load.clients, ..*case };
        measure_all(&mut table, &targets, &case, &pool, &rounds, |_, _, _| Ok(()))?;
    }
    Ok(())
}

impl Kv {
    /// Returns the cases to measure; those that people compare are neighbours.
    fn cases(&self) -> Result<Vec<Case>> {
        if !self.case.is_empty() {
            let cases: Option<Vec<_>> = self.case.iter().map(|text| self.parse(text)).collect();
            let wrong = "--case is as get:64:none or, with --rate, get:none";
            return Ok(cases.ok_or_else(|| UsageError(wrong.to_owned()))?.concat());
        }
        let mut cases = Vec::new();
        for &durability in &self.durability {
            for &net_threads in &self.net_threads {
                for &operation in &self.ops {
                    let case = |pace| Case::new(operation, pace, durability, net_threads);
                    cases.extend(self.paces().map(case));
                }
            }
        }
        Ok(cases)
    }

    fn paces(&self) -> impl Iterator<Item = Pace> {
        let pipelines = self.pipelines.iter().filter(|_| self.rate.is_empty());
        let rates = self.rate.iter().copied().map(Pace::Rate);
        pipelines.copied().map(Pace::Pipeline).chain(rates)
    }

    /// Returns the cases that `text` names: without a wiring one for each that was asked for, and
    /// in an open loop, where there is no pipeline, one for each rate.
    fn parse(&self, text: &str) -> Option<Vec<Case>> {
        let mut words = text.split(':');
        let operation = Operation::from_str(words.next()?, true).ok()?;
        let paces: Vec<_> = match self.rate.is_empty() {
            true => vec![Pace::Pipeline(count::<1, PIPELINE_MAX>(words.next()?).ok()?)],
            false => self.paces().collect(),
        };
        let durability = Durability::from_str(words.next()?, true).ok()?;
        let wirings = match words.next() {
            Some(word) => vec![word.parse().ok()?],
            None => self.net_threads.clone(),
        };
        let cases = wirings.iter().flat_map(|wiring| {
            paces.iter().map(move |pace| Case::new(operation, *pace, durability, *wiring))
        });
        words.next().is_none().then(|| cases.collect())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn cases(arguments: &[&str]) -> Result<Vec<Case>> {
        let cli = Cli::try_parse_from(["busload-bench", "kv"].iter().chain(arguments))?;
        let Command::Kv(kv) = cli.command else { panic!("another command") };
        kv.cases()
    }

    #[test]
    fn one_case_can_be_named() {
        let case = Case::new(Operation::Set, Pace::Pipeline(64), Durability::Always, 1);
        assert_eq!(cases(&["--case", "set:64:always:1"]).unwrap(), [case]);
        assert_eq!(cases(&["--case", "set:64:always"]).unwrap().len(), 2);
        assert_eq!(cases(&["--case", "set:64:always", "--net-threads", "1"]).unwrap(), [case]);
        assert_eq!(cases(&[]).unwrap().len(), 3 * 4 * 3 * 2);
    }

    #[test]
    fn rates_take_the_place_of_pipelines() {
        let cases = cases(&["--rate", "10k,1M", "--case", "get:none:0"]).unwrap();
        let paces: Vec<_> = cases.iter().map(|case| case.pace).collect();
        assert_eq!(paces, [Pace::Rate(10_000), Pace::Rate(1_000_000)]);
        assert_eq!(cases[0].pace.name(), "10k/s");
    }

    #[test]
    fn what_names_no_case_is_refused() {
        for bad in
            ["", "get", "get:x:none", "get:0:none", "get:1:some", "get:1:none:0:0", "get:1:none:x"]
        {
            assert!(cases(&["--case", bad]).is_err(), "{bad}");
        }
        assert!(cases(&["--clients", "0"]).is_err() && cases(&["--rounds", "0"]).is_err());
    }
}
