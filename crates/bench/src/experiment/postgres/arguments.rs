//! The command line of `postgres`, and the cases that each section measures.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tokio_postgres::Config;

use crate::{
    harness::{
        Rounds,
        arguments::{clients, number, rate},
    },
    limits::KEYS_MAX,
    server::Binary,
};

const HELP: &str = "\
Ways (--case): each of many clients asks for one row by key, waits for it, and asks for the next
  plain:N      not batched: a prepared SELECT for each read, on N connections; readers wait for one
  window:K     the published design: a batch leaves with K keys or after 0.5 ms, on 20 connections
  in-process   busload's library and its own policy
  resp:N       the busload server, over N connections that the clients share
  ceiling:N    statements with 1,024 keys, one after the other on N connections: Postgres's limit

The table: random_read_test(pk text COLLATE \"C\" PRIMARY KEY, payload text), keys of 20 digits and
  payloads of 35 bytes that end with the key, by which every reply is checked. A new cluster has
  fsync on, checkpoints every 30 minutes or 8 GB, shared_buffers for the table (at most 40% of
  memory), and Postgres's defaults. With --url, PGPASSWORD is the password and there is no TLS; the
  table is made if it is not there, and stays.

Columns: response times are in microseconds. `of ceiling` is beside ceiling:2, `x plain` beside the
  best plain:N of the section. `batch` is requests per statement, counted by pg_stat_statements.
  `cpu:` stands before the processors that the load, the busload server and Postgres (if it runs
  here) used; in process, busload is part of the load. Nothing is bound to a processor. Notes:
  `disturbed` (other programs or the machine's host took over a tenth of a processor), `asked-late`
  (open loop: 99th percentile of the delay above 100 us), `overloaded`.

Examples
  busload-bench postgres --cluster /data/bench  everything: half an hour, 10 GB of disk that stay
  busload-bench postgres --rows 1M --section readers --case plain:20,in-process,ceiling:2";

#[derive(Debug, Args)]
#[command(
    after_long_help = HELP,
    mut_arg("seconds", |argument| argument.default_value("5")),
    mut_arg("warm_up", |argument| argument.default_value("1"))
)]
pub struct Postgres {
    /// Sections to measure
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "readers,low-load,rate,upserts"
    )]
    pub section: Vec<Section>,
    /// Ways to measure. low-load and rate measure one of each kind, on 20 connections or as many as
    /// there are readers, with the best window of the section readers (of 32 keys without it)
    #[arg(long, value_name = "WAY", value_delimiter = ',')]
    #[arg(value_parser = Approach::parse, default_value = WAYS)]
    pub case: Vec<Approach>,
    /// Clients of the sections readers and upserts; low-load has no more
    #[arg(long, value_name = "N", value_parser = clients, default_value_t = 300)]
    pub readers: usize,
    /// Further options of busload's table, in process and in the server, as
    /// connections=4&batch=512
    #[arg(long, value_name = "QUERY")]
    pub table_options: Option<String>,
    /// Rates of the section rate, in requests per second, as 10000, 10k, 1M
    #[arg(long, value_name = "RATE", value_delimiter = ',')]
    #[arg(value_parser = rate, default_value = "5k,10k,20k,40k,80k,120k,160k")]
    pub rates: Vec<u64>,
    #[command(flatten)]
    pub rounds: Rounds,
    /// Threads of the load; 0: the calling thread alone
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub workers: usize,
    /// Directory for statistics.csv (all measurements, medians as round 0)
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    /// A Postgres that runs, as postgres://user@host:port/database, instead of a cluster made for
    /// this
    #[arg(long, value_name = "URL", conflicts_with = "cluster", value_parser = parse_url)]
    pub url: Option<String>,
    /// Make the cluster here and keep it; the next run uses it and its table again. The directory
    /// must be open to the user `postgres` if this program runs as root
    #[arg(long, value_name = "DIR")]
    pub cluster: Option<PathBuf>,
    /// Rows of the table, as 10000, 10k, 350M
    #[arg(long, value_name = "N", value_parser = parse_rows, default_value = "10M")]
    pub rows: u64,
    /// Drop the table if it is there and load it anew
    #[arg(long)]
    pub reload: bool,
    /// A setting of a cluster made here, as shared_buffers=128MB, or shared_preload_libraries=
    /// where pg_stat_statements is not installed; can be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting)]
    pub pg_setting: Vec<(String, String)>,
    #[command(flatten)]
    pub binary: Binary,
}

/// Ways that are measured unless others are named.
const WAYS: &str = "ceiling:1,ceiling:2,window:1,window:2,window:4,window:8,window:16,\
    window:24,window:32,window:64,plain:10,plain:20,plain:50,plain:300,in-process,resp:20,resp:300";

/// Most connections in sections that do not look at their number.
const CONNECTIONS: usize = 20;

/// Window of the sections that compare with one, where no window was measured with many readers.
pub const WINDOW_KEYS: usize = 32;

const LOW_LOAD: [usize; 8] = [1, 2, 5, 10, 20, 50, 100, 300];

/// Ways to answer single-key requests from Postgres, and what they are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// Statements with very many keys.
    Ceiling,
    /// A statement for each request.
    Plain,
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
            format!("`{text}` is none of plain:N, window:K, in-process, resp:N, ceiling:N")
        })
    }
}

/// Parts of the experiment; their texts are also the titles of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Section {
    /// Many readers
    Readers,
    /// From one reader on: what a lone request pays
    LowLoad,
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
}

/// Returns the cases of a section in the order they are shown. Sections that compare with one
/// window take that of `window` keys.
pub fn cases(arguments: &Postgres, section: Section, window: usize) -> Vec<Case> {
    let case = |approach, clients, rate| Case { section, approach, clients, rate };
    let (approaches, readers) = (arguments.case.iter().copied(), arguments.readers);
    // One of each way that was asked for, with no more connections than its clients can use.
    let of_each_way = |clients: usize, rate| {
        let ways = [Way::Plain, Way::Window, Way::InProcess, Way::Resp].into_iter();
        let ways = ways.filter(|way| arguments.case.iter().any(|wanted| wanted.way == *way));
        ways.map(move |way| {
            let number = match way {
                Way::Window => window,
                Way::InProcess => 0,
                _ => clients.min(CONNECTIONS),
            };
            case(Approach { way, number }, clients, rate)
        })
    };
    match section {
        Section::Readers => {
            let clients = |of: Approach| if of.way == Way::Ceiling { of.number } else { readers };
            approaches.map(|approach| case(approach, clients(approach), None)).collect()
        }
        Section::LowLoad => {
            let counts = LOW_LOAD.into_iter().filter(|count| *count <= readers);
            counts.flat_map(|count| of_each_way(count, None)).collect()
        }
        Section::Rate => {
            let rates = arguments.rates.iter();
            rates.flat_map(|rate| of_each_way(CONNECTIONS, Some(*rate))).collect()
        }
        Section::Upserts => approaches
            .filter(|approach| !matches!(approach.way, Way::Ceiling | Way::Window))
            .map(|approach| case(approach, readers, None))
            .collect(),
    }
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
            ["--url", "mysql://x"],
            ["--url", "host=x"],
            ["--url", "postgres://me:secret@db/x"],
            ["--url", "postgres://me@db/x?password=secret"],
        ] {
            assert!(parse(&wrong).is_err(), "{wrong:?}");
        }
        assert!(parse(&["--url", "postgres://me@db:5433/x"]).is_ok());
    }

    #[test]
    fn every_section_measures_the_ways_it_can_of_those_asked_for() {
        let names = |arguments: &[&str], section| {
            let cases = cases(&parse(arguments).unwrap(), section, 16);
            let name = |case: &Case| format!("{}x{}", case.approach.name(), case.clients);
            cases.iter().map(name).collect::<Vec<_>>().join(" ")
        };
        let chosen = ["--readers", "7", "--case", "ceiling:2,plain:50,in-process,resp:3"];
        let wanted = "ceiling:2x2 plain:50x7 in-processx7 resp:3x7";
        assert_eq!(names(&chosen, Section::Readers), wanted);
        assert_eq!(names(&chosen, Section::Upserts), "plain:50x7 in-processx7 resp:3x7");
        let wanted = "plain:1x1 in-processx1 resp:1x1 plain:2x2 in-processx2 resp:2x2 \
                      plain:5x5 in-processx5 resp:5x5";
        assert_eq!(names(&chosen, Section::LowLoad), wanted);
        let one_rate = ["--rates", "9", "--case", "window:1,plain:300"];
        assert_eq!(names(&one_rate, Section::Rate), "plain:20x20 window:16x20");
    }
}
