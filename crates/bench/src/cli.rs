//! The command line.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};

use crate::{
    busload::{Binary, Processors},
    case::Case,
    experiment::{Chunks, Disk, Dolt, Postgres},
    limits::{CLIENTS_MAX, KEYS_MAX, PIPELINE_MAX, VALUE_BYTES_MAX},
    machine::CpuList,
    requests::{KeySpace, Operation},
    schedule::parse_rate,
    server::{Durability, Kind, Programs},
};

const ABOUT: &str = "\
Experiments against busload and its peers.

Each experiment starts the servers itself, each in a temporary directory and on a processor of \
its own, runs its load from one thread on another processor, prints a table and can append to a \
CSV file. Compare ratios within one run, never times of different runs: machines differ, and so \
do their days.";

const KV_HELP: &str = "\
What is measured
  A case is an operation, a pipeline length (or an open-loop rate), a durability and a wiring.
  For each case all servers are started afresh and filled with all keys; then they are
  measured in turn, --rounds times, and every measurement of the table is the median of its rounds.
  `ratio` is the throughput beside that of the baseline, the server named last in --servers;
  `p99x` the same for the 99th percentile.

  Closed loop (default): every connection has one pipeline of requests under way; latency is
  the time from sending it until its last reply. Open loop (--rate): requests are due on a
  fixed schedule spread over the connections, sent even when earlier ones are unanswered, and
  latency counts from when a request was due. The load thread polls while the next request is
  less than 200 us away, so it uses its whole processor.

  us/req is the server's processor time (all threads) per request. Notes: `load-bound` (the
  load side had no processor time left while the server had), `sent-late` (open loop: 99th
  percentile of the sending delay above 100 us), `overloaded` (open loop: the server fell 2
  million requests behind), `nil` (reads of absent keys), `disturbed`
  (the load waited for its processor, or the host took one away, in more than 5% of the time),
  `ERRORS` (error replies, with one).

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

/// Arguments that cannot be followed; the program ends with another code than for what fails later.
#[derive(Debug)]
pub struct UsageError(pub String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Returns a [`UsageError`] with a formatted message.
macro_rules! bail_usage {
    ($($message:tt)*) => {
        return Err($crate::cli::UsageError(format!($($message)*)).into())
    };
}
pub(crate) use bail_usage;

/// Experiments against busload and its peers.
#[derive(Debug, Parser)]
#[command(name = "busload-bench", version, long_about = ABOUT, max_term_width = 110)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Throughput and latency of reads and writes beside other servers
    #[command(after_long_help = KV_HELP)]
    Kv(Kv),
    /// Latency and memory while a table grows from nothing
    Growth(Growth),
    /// How fast a server comes back after it was stopped
    Recovery(Recovery),
    /// Throughput and system calls per request, from one connection to many
    Connections(Connections),
    /// Many clients' single-key reads and writes of a Postgres table, batched and not
    Postgres(Box<Postgres>),
    /// Chunks of a store that is milliseconds away: read directly, and through busload cold,
    /// filling and warm
    Chunks(Box<Chunks>),
    /// What Dolt's own client does with a remote, replayed: directly, and through busload cold and
    /// warm
    Dolt(Box<Dolt>),
    /// Random reads of a file, with percentiles as fio prints them
    Disk(Disk),
    /// Answers without doing anything
    #[command(hide = true)]
    NullServer(NullServer),
}

#[derive(Debug, Args)]
pub struct Kv {
    /// Servers to measure; the last one is the baseline of the ratios
    #[arg(long, value_enum, value_delimiter = ',', default_value = "busload,redis")]
    pub servers: Vec<Kind>,
    /// Lengths of pipelines
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,16,64,256")]
    pub pipelines: Vec<usize>,
    /// Open loop instead of pipelines: requests per second, as 10000, 10k, 1M
    #[arg(long, value_name = "RATE", value_delimiter = ',', value_parser = parse_rate)]
    pub rate: Vec<u64>,
    /// Operations
    #[arg(long, value_enum, value_delimiter = ',', default_value = "get,set,mix")]
    pub ops: Vec<Operation>,
    /// Durabilities
    #[arg(long, value_enum, value_delimiter = ',', default_value = "none,os,always")]
    pub durability: Vec<Durability>,
    /// Wirings of busload: its --net-threads
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0,1")]
    pub net_threads: Vec<u32>,
    /// One case instead of all combinations, as get:64:none or get:64:none:1 (the last is the
    /// wiring); with --rate as get:none or get:none:1. Can be given several times
    #[arg(long, value_name = "CASE")]
    pub case: Vec<String>,
    /// Measurements of every server in a case
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
    /// Do not fill the servers before a case
    #[arg(long)]
    pub no_preload: bool,
    /// Measure this server, which already runs, instead of starting any. Its keys key:000000000000
    /// and up are overwritten; what its durability is stays its own business
    #[arg(long, value_name = "ADDR")]
    pub attach: Option<SocketAddr>,
    /// Process of the attached server, to report its processor time
    #[arg(long, value_name = "PID", requires = "attach")]
    pub attach_pid: Option<i32>,
    /// Load
    #[command(flatten)]
    pub load: Load,
    /// Servers
    #[command(flatten)]
    pub setup: Setup,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Some connections write new keys at full pipelined speed; one more asks for one of the keys \
written so far, alone on its connection, and every one of its replies is timed. At each step the \
writers pause and the server's resident memory is read: what it has grown by since its start, \
less the bytes of keys and values, by entry, is `over B`. `lost ms` is how long threads of the \
server or of this program were ready but had no processor in the step (other programs, or the \
host of a virtual machine): slow replies that it explains are not the server's.")]
pub struct Growth {
    /// Servers to measure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "busload")]
    pub servers: Vec<Kind>,
    /// Keys at the end
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    pub keys: u64,
    /// Keys between two looks at the memory
    #[arg(long, value_name = "N", default_value_t = 500_000)]
    pub step: u64,
    /// Connections that write
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub clients: usize,
    /// Bytes of a value
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub value_bytes: usize,
    /// Durability
    #[arg(long, value_enum, default_value = "none")]
    pub durability: Durability,
    /// Wiring of busload: its --net-threads
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub net_threads: u32,
    /// Servers
    #[command(flatten)]
    pub setup: Setup,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Writes every key once, stops the server (SIGTERM), starts it again on the same directory, and \
times that until it serves. The files are in the page cache, as after a crash of the process but \
not of the machine.")]
pub struct Recovery {
    /// Servers to measure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "busload")]
    pub servers: Vec<Kind>,
    /// Records to write
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    pub records: u64,
    /// Distinct keys; fewer than records means overwriting. Default: as many as records
    #[arg(long, value_name = "N")]
    pub keys: Option<u64>,
    /// Bytes of a value
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub value_bytes: usize,
    /// Durability
    #[arg(long, value_enum, default_value = "os")]
    pub durability: Durability,
    /// Wiring of busload: its --net-threads
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub net_threads: u32,
    /// Restarts to measure
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub rounds: usize,
    /// Servers
    #[command(flatten)]
    pub setup: Setup,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
System calls are counted by strace (where it is installed) over one second of a run of their \
own, as it slows the server; the counts per request stay meaningful, the throughput of that run \
is not shown.")]
pub struct Connections {
    /// Servers to measure; the last one is the baseline of the ratios
    #[arg(long, value_enum, value_delimiter = ',', default_value = "busload,redis")]
    pub servers: Vec<Kind>,
    /// Numbers of connections
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "1,2,5,10,50,100,200,500"
    )]
    pub counts: Vec<usize>,
    /// Operation
    #[arg(long, value_enum, default_value = "get")]
    pub op: Operation,
    /// Requests under way on a connection
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub pipeline: usize,
    /// Durability
    #[arg(long, value_enum, default_value = "none")]
    pub durability: Durability,
    /// Wiring of busload: its --net-threads
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub net_threads: u32,
    /// Measurements of every server at each number of connections
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub rounds: usize,
    /// Load; --clients is of no use here
    #[command(flatten)]
    pub load: Load,
    /// Servers
    #[command(flatten)]
    pub setup: Setup,
}

#[derive(Debug, Args)]
pub struct NullServer {
    /// Where to listen
    #[arg(long, value_name = "ADDR")]
    pub listen: SocketAddr,
    /// Bytes of the value in every reply; 0: the reply is OK
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub reply_bytes: usize,
}

/// Arguments about the load.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
pub struct Load {
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub clients: usize,
    /// Distinct keys, chosen uniformly at random
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub keys: u64,
    /// Bytes of a value
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub value_bytes: usize,
    /// Seconds of a measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    pub seconds: f64,
    /// Seconds before it that are not counted
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5)]
    pub warm_up: f64,
    /// Decides keys and values
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// Arguments about servers and the machine.
#[derive(Debug, Args)]
#[command(next_help_heading = "Servers and machine")]
pub struct Setup {
    /// Which busload
    #[command(flatten)]
    pub binary: Binary,
    /// The redis-server binary
    #[arg(long, value_name = "PATH", default_value = "redis-server")]
    pub redis: PathBuf,
    /// Further arguments for redis-server, separated by spaces
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true, default_value = "")]
    pub redis_args: String,
    /// The machine
    #[command(flatten)]
    pub processors: Processors,
    /// Where the servers' temporary directories are made; must be on a disk for durable cases
    /// [default: the system's directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Append the measurements to this file
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
}

impl Setup {
    /// The programs, found and checked by name.
    pub fn programs(&self, kinds: &[Kind]) -> Result<Programs> {
        let busload = match &self.binary.busload {
            Some(path) => path.clone(),
            None if kinds.contains(&Kind::Busload) => find_busload()?,
            None => PathBuf::from("busload"),
        };
        let words = |text: &str| text.split_ascii_whitespace().map(str::to_owned).collect();
        Ok(Programs {
            busload,
            redis: self.redis.clone(),
            busload_arguments: words(&self.binary.busload_args),
            redis_arguments: words(&self.redis_args),
            cpus: self.processors.of_server()?,
        })
    }

    /// Returns the parent of temporary directories.
    pub fn directory(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(std::env::temp_dir)
    }
}

impl Load {
    /// Keys and values, checked.
    pub fn space(&self) -> Result<KeySpace> {
        key_space(self.keys, self.value_bytes, self.seed)
    }

    /// Warm-up and measurement, checked.
    pub fn times(&self) -> Result<(Duration, Duration)> {
        times(self.warm_up, self.seconds)
    }
}

impl Kv {
    /// The cases to measure, checked.
    pub fn cases(&self) -> Result<Vec<Case>> {
        check_clients(self.load.clients)?;
        check_rounds(self.rounds)?;
        let cases = if self.case.is_empty() {
            Case::combinations(self)
        } else {
            let cases: Result<Vec<Vec<Case>>> =
                self.case.iter().map(|case| Case::parse(case, self)).collect();
            cases?.concat()
        };
        cases.iter().try_for_each(|case| case.check())?;
        Ok(cases)
    }
}

/// Keys and values, checked.
pub fn key_space(keys: u64, value_bytes: usize, seed: u64) -> Result<KeySpace> {
    if keys == 0 || KEYS_MAX < keys {
        bail_usage!("the number of keys is 1 to {KEYS_MAX}");
    }
    if VALUE_BYTES_MAX < value_bytes {
        bail_usage!("a value has at most {VALUE_BYTES_MAX} bytes");
    }
    Ok(KeySpace { keys, value_bytes, seed })
}

/// Seconds of a warm-up and of a measurement, checked.
pub fn times(warm_up: f64, seconds: f64) -> Result<(Duration, Duration)> {
    if !(0.01..=3_600.0).contains(&seconds) || !(0.0..=3_600.0).contains(&warm_up) {
        bail_usage!("--seconds is 0.01 to 3600, --warm-up 0 to 3600");
    }
    let times = (Duration::try_from_secs_f64(warm_up), Duration::try_from_secs_f64(seconds));
    Ok((times.0.context("--warm-up")?, times.1.context("--seconds")?))
}

/// A number of rounds, checked.
pub fn check_rounds(rounds: usize) -> Result<()> {
    if rounds == 0 {
        bail_usage!("--rounds is at least 1");
    }
    Ok(())
}

/// A number of connections, checked.
pub fn check_clients(clients: usize) -> Result<()> {
    if clients == 0 || CLIENTS_MAX < clients {
        bail_usage!("the number of connections is 1 to {CLIENTS_MAX}");
    }
    Ok(())
}

/// A length of a pipeline, checked.
pub fn check_pipeline(pipeline: usize) -> Result<()> {
    if pipeline == 0 || PIPELINE_MAX < pipeline {
        bail_usage!("a pipeline has 1 to {PIPELINE_MAX} requests");
    }
    Ok(())
}

/// Processors as `0-3`, or `any`, which is none in particular.
pub fn cpus(text: &str) -> Result<Option<CpuList>> {
    match text {
        "any" => Ok(None),
        list => Ok(Some(list.parse().map_err(UsageError)?)),
    }
}

/// The busload binary that was named, or else found; looked for before anything takes time.
pub fn busload_at(named: Option<&Path>) -> Result<PathBuf> {
    match named {
        Some(path) if path.is_file() => Ok(path.to_owned()),
        Some(path) => bail_usage!("no busload binary at {}", path.display()),
        None => find_busload(),
    }
}

/// The busload binary beside this program, or where cargo builds it.
fn find_busload() -> Result<PathBuf> {
    let own = std::env::current_exe().context("the path of this program")?;
    let candidates = [own.with_file_name("busload"), PathBuf::from("target/release/busload")];
    let Some(found) = candidates.into_iter().find(|path| path.is_file()) else {
        bail_usage!(
            "no busload binary beside this program nor in target/release: \
             build it (cargo build --release) or name it by --busload"
        );
    };
    Ok(found)
}
