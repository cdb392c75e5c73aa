//! The command line of `postgres`, and the cases that each section measures.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use tokio_postgres::Config;

use crate::{
    harness::{
        Rounds,
        arguments::{clients, number, rate},
    },
    limits::{DISTANCE_MAX, KEYS_MAX},
    server::Binary,
    stats::float,
};

const HELP: &str = "\
Ways (--case): each of many clients asks for one row by key, waits for it, and asks for the next
  plain:N      not batched: a prepared SELECT for each read, on N connections; readers wait for one
  pipelined:N  the same statements, sent without waiting for the replies to those before
  window:K     the published design: a batch leaves with K keys or after 0.5 ms, on 20 connections
  in-process   busload's library and its own policy
  resp:N       the busload server, over N connections that the clients share
  ceiling:N    statements with 1,024 keys, one after the other on N connections: Postgres's limit

Distance (--distance): every connection to Postgres, also those of the busload server, goes through
  a proxy in this program that adds so much round trip time, half of it each way, and no limit of
  bandwidth. The first line says how much longer than that a statement takes.

The table: busload_bench(pk text COLLATE \"C\" PRIMARY KEY, payload text), keys of 20 digits and
  payloads of 35 bytes that end with the key, by which every reply is checked. It is loaded by COPY;
  a load that was interrupted goes on with the next run that finds the table. A new cluster has
  fsync on, checkpoints every 30 minutes or 8 GB, shared_buffers for the table (at most 40% of
  memory), and Postgres's defaults. With --database, PGPASSWORD is the password and there is no TLS;
  a table of that name that this program did not make is left alone, and the run refused.

Columns: response times are in microseconds. `of ceiling` is beside ceiling:2, `x plain` beside the
  best plain:N with as many readers. `batch` is requests per statement, counted by
  pg_stat_statements, and `stmts` thousands of statements a second. `db us` is processor time of
  Postgres by request. `cpu:` stands before the processors that the load, the busload server,
  Postgres (if it runs here) and the proxy used; in process, busload is part of the load. Nothing is
  bound to a processor. Notes: `disturbed` (other programs or the machine's host took over a tenth
  of a processor), `asked-late` (open loop: 99th percentile of the delay above 100 us),
  `overloaded`.

The last table has a line for each distance and number of readers: in-process beside the fastest of
  plain, pipelined and window there; reached is at most 5% fewer reads and 5% more time.

Examples
  busload-bench postgres --cluster /data/bench  everything: half an hour, 10 GB of disk that stay
  busload-bench postgres --rows 1M --section readers --case plain:20,in-process,ceiling:2
  busload-bench postgres --section readers --distance 0,0.25ms,1ms,5ms --readers 1,10,50,300";

#[derive(Debug, Args)]
#[command(
    after_long_help = HELP,
    mut_arg("seconds", |argument| argument.default_value("5")),
    mut_arg("warm_up", |argument| argument.default_value("1"))
)]
pub struct Postgres {
    /// Sections to measure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "readers,rate,upserts")]
    pub section: Vec<Section>,
    /// Ways to measure, with no more connections than there are readers. The section rate measures
    /// one of each kind, on 20 connections, with the best window of the section readers (of 32 keys
    /// without it)
    #[arg(long, value_name = "WAY", value_delimiter = ',')]
    #[arg(value_parser = Approach::parse, default_value = WAYS)]
    pub case: Vec<Approach>,
    /// Clients of the section readers; the section upserts has as many as the largest
    #[arg(long, value_name = "N", value_delimiter = ',')]
    #[arg(value_parser = clients, default_value = "1,10,50,300")]
    pub readers: Vec<usize>,
    /// Rates of the section rate, in requests per second, as 10000, 10k, 1M
    #[arg(long, value_name = "RATE", value_delimiter = ',')]
    #[arg(value_parser = rate, default_value = "5k,10k,20k,40k,80k,120k,160k")]
    pub rates: Vec<u64>,
    #[command(flatten)]
    pub common: Common,
}

impl Postgres {
    /// Returns the largest number of readers.
    pub fn readers_max(&self) -> usize {
        self.readers.iter().copied().max().unwrap_or(1)
    }
}

const LAKEFS_HELP: &str = "\
What lakeFS published in 2020 (treeverse/blogs, batchread): 300 readers of one table of 350 million
rows with keys of 20 digits, each reading one row at a time, `discrete` on 10 connections or
`batched`: a batch leaves with so many keys or after 0.5 ms, on 10 connections. Beside it busload's
library with its defaults (`busload`).

--locality 10 asks for runs of ten neighbouring keys, as the comment of the published program says.
(Its loop asks ten times for the same key; busload would read that once.)

statistics.csv has the published columns first: run type, batch size, duration, mean, maximum,
minimum, number of reads. `x discrete` is beside the fastest discrete row of the same distance and
locality. The table, the database and --distance are those of `busload-bench postgres`; 350M rows
take 60 GB of disk.

Examples
  busload-bench lakefs
  busload-bench lakefs --rows 350M --cluster /data/bench --distance 0,1ms";

/// Arguments of `lakefs`.
#[derive(Debug, Args)]
#[command(
    after_long_help = LAKEFS_HELP,
    mut_arg("seconds", |argument| argument.default_value("5")),
    mut_arg("warm_up", |argument| argument.default_value("1"))
)]
pub struct Lakefs {
    /// Ways to measure: discrete (plain:N), batched (window:K), busload (in-process, resp:N)
    #[arg(long, value_name = "WAY", value_delimiter = ',')]
    #[arg(value_parser = Approach::parse, default_value = LAKEFS_WAYS)]
    pub case: Vec<Approach>,
    /// Readers
    #[arg(long, value_name = "N", value_parser = clients, default_value_t = 300)]
    pub readers: usize,
    /// Lengths of the runs of neighbouring keys that are asked for
    #[arg(long, value_name = "N", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000), default_value = "1,10")]
    pub locality: Vec<u64>,
    #[command(flatten)]
    pub common: Common,
}

/// Arguments of every experiment on a table in Postgres.
#[derive(Debug, Args)]
pub struct Common {
    /// Distances to Postgres: each a round trip time that is added, as 0, 0.25ms, 1ms, up to 1s
    #[arg(long, value_name = "TIME", value_delimiter = ',')]
    #[arg(value_parser = parse_distance, default_value = "0")]
    pub distance: Vec<Duration>,
    /// Further options of busload's table, in process and in the server, as
    /// connections=4&batch=512
    #[arg(long, value_name = "QUERY")]
    pub table_options: Option<String>,
    #[command(flatten)]
    pub rounds: Rounds,
    /// Threads of the load; 0: the calling thread alone
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub workers: usize,
    /// Directory for statistics.csv (all measurements, medians as round 0)
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    /// A Postgres that runs, as postgres://user@host:port/database, instead of a cluster made for
    /// this. The table is dropped at the end
    #[arg(long, value_name = "URL", conflicts_with = "cluster", value_parser = parse_url)]
    pub database: Option<String>,
    /// Leave the table in that Postgres; the next run uses it again
    #[arg(long, requires = "database")]
    pub keep: bool,
    /// Make the cluster here and keep it; the next run uses it and its table again. The directory
    /// must be open to the user `postgres` if this program runs as root
    #[arg(long, value_name = "DIR")]
    pub cluster: Option<PathBuf>,
    /// Rows of the table, as 10000, 10k, 350M
    #[arg(long, value_name = "N", value_parser = parse_rows, default_value = "10M")]
    pub rows: u64,
    /// A setting of a cluster made here, as shared_buffers=128MB, or shared_preload_libraries=
    /// where pg_stat_statements is not installed; can be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting)]
    pub pg_setting: Vec<(String, String)>,
    #[command(flatten)]
    pub binary: Binary,
}

/// Ways that are measured unless others are named.
const WAYS: &str = "ceiling:1,ceiling:2,window:1,window:8,window:16,window:32,window:64,window:256,\
    plain:1,plain:10,plain:20,plain:50,plain:300,pipelined:4,pipelined:20,in-process,resp:20,\
    resp:300";

/// Ways of `lakefs` unless others are named: the published connections and batch sizes.
const LAKEFS_WAYS: &str = "plain:10,window:1,window:2,window:4,window:8,window:16,window:24,\
    window:32,in-process";

/// Most connections in sections that do not look at their number.
const CONNECTIONS: usize = 20;

/// Window of the sections that compare with one, where no window was measured with many readers.
pub const WINDOW_KEYS: usize = 32;

/// Ways to answer single-key requests from Postgres, and what they are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// Statements with very many keys.
    Ceiling,
    /// A statement for each request.
    Plain,
    /// Such statements, many of them under way on a connection.
    Pipelined,
    /// Batches of so many keys, or of what came in a fixed time.
    Window,
    /// busload's library.
    InProcess,
    /// The busload server.
    Resp,
}

/// A way, and how many connections or keys of a window it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Approach {
    pub way: Way,
    /// 0 in process.
    pub number: usize,
}

impl Approach {
    /// Returns the name in `--case`, in tables and in the CSV.
    pub fn name(self) -> String {
        match (crate::cli::name_of(&self.way), self.number) {
            (name, 0) => name,
            (name, number) => format!("{name}:{number}"),
        }
    }

    /// Parses a value of `--case`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (way, number) = text.split_once(':').unwrap_or((text, "0"));
        let parsed = Way::from_str(way, false).ok().zip(number.parse().ok());
        let is_whole = |(way, number): &(Way, usize)| match way {
            Way::InProcess => text == "in-process",
            _ => (1..=1_000).contains(number),
        };
        parsed.filter(is_whole).map(|(way, number)| Self { way, number }).ok_or_else(|| {
            format!(
                "`{text}` is none of plain:N, pipelined:N, window:K, \
                 in-process, resp:N, ceiling:N"
            )
        })
    }
}

/// Parts of the experiment; their texts are also the titles of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Section {
    /// Readers, each with one read under way
    Readers,
    /// Open loop at fixed rates: response times count from when requests were due
    Rate,
    /// Many writers, each with one INSERT .. ON CONFLICT DO UPDATE under way
    Upserts,
}

impl Section {
    pub fn title(self) -> String {
        let value = self.to_possible_value();
        let help = value.and_then(|value| value.get_help().map(ToString::to_string));
        help.unwrap_or_default()
    }
}

/// Row of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    pub section: Section,
    pub approach: Approach,
    /// Readers or writers; an open loop has a client for every request.
    pub clients: usize,
    /// Requests per second of an open loop.
    pub rate: Option<u64>,
    /// Distance to Postgres: the round trip time that is added.
    pub distance: Duration,
    /// Length of the runs of neighbouring keys that are asked for.
    pub locality: u64,
}

impl Case {
    /// Makes a case of a closed loop with uniformly random keys, with no more connections than its
    /// clients can use.
    pub fn new(section: Section, approach: Approach, clients: usize, distance: Duration) -> Self {
        let number = match approach.way {
            Way::Ceiling | Way::Window | Way::InProcess => approach.number,
            Way::Plain | Way::Pipelined | Way::Resp => approach.number.min(clients),
        };
        let clients = if approach.way == Way::Ceiling { number } else { clients };
        let approach = Approach { number, ..approach };
        Self { section, approach, clients, rate: None, distance, locality: 1 }
    }

    /// Tells whether another row reads or writes in the same circumstances.
    pub fn is_beside(&self, other: &Self) -> bool {
        // The clients of the ceiling are no readers.
        let is_ceiling = |case: &Self| case.approach.way == Way::Ceiling;
        let same = |case: &Self| (case.section, case.clients, case.distance, case.locality);
        same(self) == same(other) && is_ceiling(self) == is_ceiling(other)
    }
}

/// Returns the cases of a section at a distance, as groups that are measured one after the other:
/// the clients of each and its cases in the order they are shown. The section rate takes the window
/// of `window` keys.
pub fn groups(
    arguments: &Postgres,
    section: Section,
    distance: Duration,
    window: usize,
) -> Vec<(usize, Vec<Case>)> {
    let (approaches, most) = (arguments.case.iter().copied(), arguments.readers_max());
    let distinct = |cases: &mut dyn Iterator<Item = Case>| {
        let mut found = Vec::new();
        cases.for_each(|case| {
            if !found.contains(&case) {
                found.push(case)
            }
        });
        found
    };
    match section {
        Section::Readers => {
            let group = |&clients: &usize| {
                // The ceiling knows no readers.
                let has_ceiling = clients == most;
                let ways = approaches.clone().filter(|way| has_ceiling || way.way != Way::Ceiling);
                let mut cases = ways.map(|way| Case::new(section, way, clients, distance));
                (clients, distinct(&mut cases))
            };
            arguments.readers.iter().map(group).collect()
        }
        Section::Rate => {
            // One of each way that was asked for.
            let ways = [Way::Plain, Way::Window, Way::InProcess, Way::Resp].into_iter();
            let ways = ways.filter(|way| arguments.case.iter().any(|wanted| wanted.way == *way));
            let of_rate = |rate: &u64| {
                let rate = Some(*rate);
                ways.clone().map(move |way| {
                    let number = match way {
                        Way::Window => window,
                        Way::InProcess => 0,
                        _ => CONNECTIONS,
                    };
                    let approach = Approach { way, number };
                    Case { rate, ..Case::new(section, approach, CONNECTIONS, distance) }
                })
            };
            vec![(CONNECTIONS, arguments.rates.iter().flat_map(of_rate).collect())]
        }
        Section::Upserts => {
            let ways = approaches.filter(|way| !matches!(way.way, Way::Ceiling | Way::Window));
            let mut cases = ways.map(|way| Case::new(section, way, most, distance));
            vec![(most, distinct(&mut cases))]
        }
    }
}

/// Formats a distance as it is written on the command line.
pub fn distance_text(distance: Duration) -> String {
    match distance.as_nanos() {
        0 => "0".to_owned(),
        ns => format!("{}ms", float(u64::try_from(ns).unwrap_or(u64::MAX)) / 1e6),
    }
}

/// Parses a distance: `0`, or a number and its unit.
fn parse_distance(text: &str) -> Result<Duration, String> {
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let unit = units.into_iter().find_map(|(unit, s)| Some((text.strip_suffix(unit)?, s)));
    let (number, unit_s) = if text == "0" { (text, 1.0) } else { unit.unwrap_or(("", 1.0)) };
    let seconds = number.parse::<f64>().ok().map(|number| number * unit_s);
    let distance = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    distance.filter(|distance| *distance <= DISTANCE_MAX).ok_or_else(|| {
        format!("`{text}` is no distance: 0, or a number with its unit as 0.25ms, at most 1s")
    })
}

/// Parses a URL without a password, which would show in the arguments of the busload server.
fn parse_url(url: &str) -> Result<String, String> {
    let config = url.parse::<Config>();
    let has_none = config.is_ok_and(|config| config.get_password().is_none());
    (has_none && url.contains("://")).then(|| url.to_owned()).ok_or_else(|| {
        "it is postgres://user@host:port/database; the password is in PGPASSWORD".to_owned()
    })
}

fn parse_rows(text: &str) -> Result<u64, String> {
    let rows = number(text).ok().filter(|rows| (1..=KEYS_MAX).contains(rows));
    rows.ok_or_else(|| format!("rows are 1 to {KEYS_MAX}, as 10M"))
}

fn parse_setting(text: &str) -> Result<(String, String), String> {
    let setting = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let setting = setting.map(|(name, value)| (name.to_owned(), value.to_owned()));
    setting.ok_or_else(|| "a setting is NAME=VALUE".to_owned())
}

#[cfg(test)]
pub mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    pub fn parse(arguments: &[&str]) -> Result<Postgres, clap::Error> {
        let cli = Cli::try_parse_from(["busload-bench", "postgres"].iter().chain(arguments))?;
        let Command::Postgres(postgres) = cli.command else { panic!("another command") };
        Ok(*postgres)
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        for wrong in [
            ["--rows", "0"],
            ["--rows", "10G"],
            ["--case", "plain"],
            ["--case", "plain:0"],
            ["--case", "in-process:3"],
            ["--case", "magic:1"],
            ["--pg-setting", "fsync"],
            ["--database", "mysql://x"],
            ["--database", "host=x"],
            ["--database", "postgres://me:secret@db/x"],
            ["--database", "postgres://me@db/x?password=secret"],
            ["--keep", "--rows=5"],
            ["--distance", "1"],
            ["--distance", "ms"],
            ["--distance", "-1ms"],
            ["--distance", "0,1.5s"],
        ] {
            assert!(parse(&wrong).is_err(), "{wrong:?}");
        }
        assert!(parse(&["--database", "postgres://me@db:5433/x", "--keep"]).is_ok());
        let texts = ["0", "0.25ms", "50us", "5ms", "1s"];
        let distances = parse(&["--distance", &texts.join(",")]).unwrap().common.distance;
        let shown: Vec<_> = distances.into_iter().map(distance_text).collect();
        assert_eq!(shown, ["0", "0.25ms", "0.05ms", "5ms", "1000ms"]);
    }

    #[test]
    fn every_section_measures_the_ways_it_can_of_those_asked_for() {
        let names = |arguments: &[&str], section| {
            let arguments = parse(arguments).unwrap();
            let groups = groups(&arguments, section, Duration::ZERO, 16);
            let name = |case: &Case| format!("{}x{}", case.approach.name(), case.clients);
            let cases = groups.iter().flat_map(|(_, cases)| cases);
            cases.map(name).collect::<Vec<_>>().join(" ")
        };
        let ways = "ceiling:2,plain:5,plain:50,in-process,resp:3";
        let chosen = ["--readers", "1,7", "--case", ways];
        let wanted = "plain:1x1 in-processx1 resp:1x1 \
                      ceiling:2x2 plain:5x7 plain:7x7 in-processx7 resp:3x7";
        assert_eq!(names(&chosen, Section::Readers), wanted);
        assert_eq!(names(&chosen, Section::Upserts), "plain:5x7 plain:7x7 in-processx7 resp:3x7");
        let one_rate = ["--rates", "9", "--case", "window:1,plain:300"];
        assert_eq!(names(&one_rate, Section::Rate), "plain:20x20 window:16x20");
    }
}
