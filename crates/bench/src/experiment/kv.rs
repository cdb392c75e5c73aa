//! `kv`: cases of operation, pace, durability and wiring, server beside server. `connections`: one
//! of them with ever more clients.

use std::{net::SocketAddr, path::Path};

use anyhow::Result;
use clap::Args;

use super::memory_tables::{Bench, Setup};
use crate::{
    cli::name_of,
    harness::{
        Number, Rounds, Sample, TableLayout,
        arguments::{clients, count, rate},
        hidden, label,
        sample::{CPU_LOAD, CPU_SERVER, LATE_P99_US, LOST_SHARE, P50_US, P99_US, P999_US, PER_S},
        shown,
    },
    limits::PIPELINE_MAX,
    machine,
    measure::{BATCH, CALLS, Pace, Plan, SERVER_US, fill, measure},
    random::Random,
    requests::{Operation, Pool, Pools},
    server::{Durability, Info, Launch, Server, ServerKind, ask},
    stats::ratio,
    system_calls::Counting,
};

const HELP: &str = "\
What is measured
  A case is an operation, a pipeline length (or an open-loop rate), a durability and a wiring. For
  each, all servers are started afresh, filled with all keys and measured in turn, --rounds times;
  numbers are medians. `ratio` is the throughput beside that of the baseline, the server named last
  in --servers; `p99x` the same for the 99th percentile; `spread` is most less least throughput by
  the median; `us/req` the server's processor time by request, `calls` its system calls by request
  (--system-calls), `batch` how many requests busload's tx stage took at once on average.

  Closed loop (default): every connection has one pipeline of requests under way; latency is the
  time from sending it until its last reply. Open loop (--rate): requests are sent when they are
  due, and latency counts from then; the load polls, so it uses its whole processor.

  Notes: `load-bound` (the load had no processor time left while the server had), `asked-late`
  (open loop: sent more than 100 us late, 99th percentile), `overloaded` (open loop: 2 million
  requests behind), `unanswered`, `nil` (reads of absent keys), `disturbed` (the load waited for its
  processor, or the host took one away), `REFUSED` (error replies, with one).

Durability
  none, os, always     busload sync=off, os, always     redis appendonly no, everysec, always

Examples
  busload-bench kv --ops get --pipelines 64 --durability none --net-threads 0
                                                        one case; all of them take hours
  busload-bench kv --rate 10k,50k,100k --ops get        open loop
  busload-bench kv --servers null,redis --ops get       how much the load side has in hand
  busload-bench kv --attach 127.0.0.1:6379 --durability none --net-threads 0
                                                        a server that already runs";

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
    /// Do not fill the servers before a case
    #[arg(long)]
    no_preload: bool,
    /// Measure this server, which already runs, instead of starting any. Its keys key:000000000000
    /// and up are overwritten; what its durability is stays its own business
    #[arg(long, value_name = "ADDR")]
    attach: Option<SocketAddr>,
    /// Count the servers' system calls by `perf stat`, which slows each of them a little
    #[arg(long)]
    system_calls: bool,
    #[command(flatten)]
    pub rounds: Rounds,
    #[command(flatten)]
    pub setup: Setup,
}

/// `kv` with other defaults.
#[derive(Debug, Args)]
#[command(
    after_long_help = "`us/req` tells whether work per request falls as more clients come. \
                       `kv --help` tells about the other columns.",
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
    /// Server among those measured beside each other, and its kind unless it already ran.
    index: usize,
    server: Option<ServerKind>,
}

const RATIO: Number = Number::new("ratio", "ratio");
const P99_RATIO: Number = Number::new("p99_ratio", "p99x");

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
        shown(CALLS),
        shown(BATCH),
        shown(CPU_LOAD),
        shown(CPU_SERVER),
        hidden(LOST_SHARE),
        hidden(LATE_P99_US),
    ],
    main: PER_S,
    ratios: |row, rows| {
        // The baseline was measured in the same group, whose last row it is.
        let base = rows.last().filter(|base| row.case.index < base.case.index);
        let beside = |number| ratio(row.sample.or_zero(number), base?.sample.or_zero(number));
        vec![(RATIO, beside(PER_S)), (P99_RATIO, beside(P99_US))]
    },
};

/// Connections that fill a server.
const WRITERS: usize = 50;

pub fn kv(arguments: &Kv) -> Result<()> {
    run(arguments, "Reads and writes")
}

pub fn connections(arguments: &Connections) -> Result<()> {
    run(&arguments.kv, "From one connection to many")
}

fn run(arguments: &Kv, title: &str) -> Result<()> {
    let Kv { setup, rounds, attach, .. } = arguments;
    let kinds = if attach.is_some() { &[] } else { &setup.servers[..] };
    let more = format!("{:?} a measurement, medians of {}", rounds.seconds, rounds.rounds);
    run_in(&Bench::new(setup, kinds, &more)?, arguments, title, setup.csv.as_deref())
}

/// Measures all cases, and appends them to this file.
pub fn run_in(bench: &Bench<'_>, arguments: &Kv, title: &str, csv: Option<&Path>) -> Result<()> {
    let Kv { setup, rounds, attach, .. } = arguments;
    let kinds = if attach.is_some() { &[] } else { &setup.servers[..] };
    let mut table = bench.table_in(title, &LAYOUT, csv)?;
    for case in arguments.cases() {
        let Case { operation, pace, durability, net_threads, .. } = case;
        let space = setup.space(rounds.seed);
        let pipeline = if let Pace::Pipeline(pipeline) = pace { pipeline } else { 1 };
        let pool = Pool::build(operation, space, pipeline);
        let reply_bytes = if operation == Operation::Set { 0 } else { setup.value_bytes };
        let start = |&kind| {
            let arguments = &[];
            bench.start(&Launch { kind, durability, net_threads, reply_bytes, arguments })
        };
        let servers = kinds.iter().map(start).collect::<Result<Vec<_>>>()?;
        let addresses: Vec<_> = servers.iter().map(Server::resp).chain(*attach).collect();
        if !arguments.no_preload {
            addresses
                .iter()
                .try_for_each(|address| fill(*address, WRITERS, space, 0..space.keys))?;
        }
        for &clients in &arguments.clients {
            let subject =
                |index| Case { clients, server: kinds.get(index).copied(), index, ..case };
            let cases: Vec<_> = (0..addresses.len()).map(subject).collect();
            table.group("", &cases, rounds.rounds, |case, round| {
                let server = servers.get(case.index);
                // The next measurement of a durable case starts from a quiet disk.
                if let Some(server) = server.filter(|_| durability != Durability::None) {
                    machine::settle(server.directory())?;
                }
                let plan = Plan {
                    address: addresses[case.index],
                    pid: server.map(Server::pid),
                    clients,
                    pace,
                    pools: Pools { all: &pool, first: None },
                    stop: None,
                    // All servers of a round are asked the same.
                    start: Random::new(rounds.seed_of(round)).next() >> 8,
                    warm_up: rounds.warm_up,
                    window: rounds.seconds,
                };
                match server {
                    Some(server) => arguments.measure_watched(bench, server, &plan),
                    None => measure(&plan),
                }
            })?;
        }
    }
    Ok(())
}

impl Kv {
    /// Measures a server that was started here, which can also be asked and watched.
    fn measure_watched(
        &self,
        bench: &Bench<'_>,
        server: &Server,
        plan: &Plan<'_>,
    ) -> Result<Sample> {
        let is_busload = server.kind() == ServerKind::Busload;
        if is_busload {
            ask(server.resp(), "CONFIG RESETSTAT")?;
        }
        let counting = self.system_calls.then(|| {
            let (time, output) = (plan.warm_up + plan.window / 2, server.directory().join("calls"));
            Counting::start(&bench.cleanup, server.pid(), time, output)
        });
        let mut sample = measure(plan)?;
        match counting.map(|counting| counting?.calls_per_us()) {
            Some(Ok(calls)) => sample.set(CALLS, sample.get(SERVER_US).map(|us| us * calls)),
            Some(Err(error)) => eprintln!("system calls: not measured: {error:#}"),
            None => {}
        }
        if is_busload {
            let info = Info::stages(server.resp()).ok();
            sample.set(BATCH, info.and_then(|info| info.decimal("tx_batch_mean")));
        }
        Ok(sample)
    }

    /// Returns the cases to measure; those that people compare are neighbours.
    fn cases(&self) -> Vec<Case> {
        let paces: Vec<_> = match self.rate.is_empty() {
            true => self.pipelines.iter().copied().map(Pace::Pipeline).collect(),
            false => self.rate.iter().copied().map(Pace::Rate).collect(),
        };
        let mut cases = Vec::new();
        for (durability, net_threads) in self.setup.settings() {
            for &operation in &self.ops {
                cases.extend(paces.iter().map(|&pace| {
                    let (clients, server, index) = (0, None, 0);
                    Case { operation, pace, durability, net_threads, clients, server, index }
                }));
            }
        }
        cases
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn cases(arguments: &str) -> Result<Vec<Case>> {
        let arguments = arguments.split(' ');
        match Cli::try_parse_from(["busload-bench"].into_iter().chain(arguments))?.command {
            Command::Kv(kv) | Command::Connections(Connections { kv }) => Ok(kv.cases()),
            _ => panic!("another command"),
        }
    }

    #[test]
    fn every_combination_is_a_case() {
        assert_eq!(cases("kv").unwrap().len(), 3 * 4 * 3 * 2);
        let cases = |arguments| cases(arguments).unwrap();
        let one = cases("kv --ops set --pipelines 64 --durability always --net-threads 1");
        let [Case { operation, pace, durability, net_threads, .. }] = one[..] else { panic!() };
        assert_eq!((operation, pace), (Operation::Set, Pace::Pipeline(64)));
        assert_eq!((durability, net_threads), (Durability::Always, 1));
        let few = "kv --ops get --pipelines 1 --durability none --net-threads 0";
        assert_eq!(cases("connections"), cases(few));
        let rates = cases("kv --rate 10k,1M --ops get --durability none --net-threads 0");
        let paces: Vec<_> = rates.iter().map(|case| case.pace.name()).collect();
        assert_eq!(paces, ["10k/s", "1000k/s"]);
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        for bad in
            ["kv --clients 0", "kv --pipelines 0", "kv --ops get:1", "connections --rounds 0"]
        {
            assert!(cases(bad).is_err(), "{bad}");
        }
    }
}
