//! The command line of `postgres`, and what it asks to measure.

use std::path::PathBuf;

use clap::Args;

use super::{
    cases::{Section, parse_way},
    rows::Distribution,
};
use crate::{
    harness::{
        Rounds,
        arguments::{clients, count, number, rate},
    },
    limits::KEYS_MAX,
    server::Binary,
};

/// The manual page below the flags.
const HELP: &str = "\
What is measured
  Many clients (--readers) each ask for one row by key, wait for it, and ask for the next. The
  ways to answer them:

  plain:N      not batched: each read is one execution of a prepared `SELECT payload .. WHERE pk =
               $1` on one of N connections; a reader waits until one is free
  window:K     the published design: a batch leaves with K keys or after 0.5 ms
               (--window-wait-us), whatever comes first, on --window-connections connections;
               busload's library with another dispatch policy
  in-process   busload's library and its own rule
  resp:N       the busload server, over N connections that share the readers among them, pipelined
               if there are fewer connections than readers
  ceiling:N    statements with 1,024 keys, one after the other, on N connections: as fast as
               Postgres gets
  memory       GET of a memory table of the same server on one connection: what RESP costs without
               Postgres

The table
  `random_read_test(pk text COLLATE \"C\" PRIMARY KEY, payload text)`, as published, keys of 20
  digits and payloads of 35 bytes that end with the key; every reply is checked by that. The
  collation is fixed, as the database's own may be several times slower to compare. A new cluster
  has fsync on, checkpoints every 30 minutes or 8 GB, and otherwise what Postgres comes with, but
  for --shared-buffers and --pg-setting. With --url the table is made and loaded if it is not
  there, used if it is as it should be, and only replaced with --reload. It stays. Passwords come
  from PGPASSWORD. Without TLS. Processor time of Postgres is known if it runs here.

Columns
  `clients` are readers or writers, `rate` is what an open loop offers. Response times are in
  microseconds. `of ceiling` is beside ceiling:2, `x plain` beside the best plain:N of the section.
  `batch` is requests per statement, `kstmt/s` thousands of statements per second, both counted by
  pg_stat_statements (which costs Postgres about a microsecond per statement; without the extension
  transactions are counted). `cpu:` is followed by the processors used by the load, by the busload
  server and by Postgres. In process, busload is part of the load: the readers, the library and the
  driver are one process. Over RESP, clients and server are two. `spread` is the most less the least
  throughput of the rounds, beside the median. Notes: `disturbed` (other programs, or the
  machine's host, took more than a tenth of a processor), `asked-late` (open loop: 99th percentile
  of the delay in asking above 100 us), `overloaded`, `unanswered`, `REFUSED`, `WRONG`. Nothing is
  bound to a processor: Postgres, busload and the load share them all, as on a machine of its own.

Examples
  busload-bench postgres  everything: half an hour and 10 GB of disk
  busload-bench postgres --cluster /data/bench --rows 10M
      the same, keeping the loaded table for the next time
  busload-bench postgres --rows 1M --section readers,ceiling --case plain:20,in-process,ceiling:2
  busload-bench postgres --url postgres://bench@db/bench --section low-load";

#[derive(Debug, Args)]
#[command(
    after_long_help = HELP,
    mut_arg("seconds", |argument| argument.default_value("5")),
    mut_arg("warm_up", |argument| argument.default_value("1"))
)]
pub struct Postgres {
    /// Sections to measure
    #[arg(long, value_enum, value_delimiter = ',')]
    #[arg(default_value = "readers,ceiling,windows,low-load,rate,small-memory,upserts")]
    pub section: Vec<Section>,
    /// Only these ways, as plain:20, window:16, in-process, resp:300, ceiling:2, memory; or all of
    /// a kind, as plain
    #[arg(long, value_name = "WAY", value_delimiter = ',', value_parser = parse_way)]
    pub case: Vec<String>,
    /// Readers of the sections with a fixed number, and writers of the upserts
    #[arg(long, value_name = "N", value_parser = clients, default_value_t = 300)]
    pub readers: usize,
    /// Distribution of the keys
    #[arg(long, value_enum, value_delimiter = ',', default_value = "uniform")]
    pub keys: Vec<Distribution>,
    /// Connections of the readers that are not batched
    #[arg(long, value_name = "N", value_delimiter = ',')]
    #[arg(value_parser = connections, default_value = "10,20,50,300")]
    pub connections: Vec<usize>,
    /// Connections of the writers that are not batched
    #[arg(long, value_name = "N", value_delimiter = ',')]
    #[arg(value_parser = connections, default_value = "10,20,50")]
    pub upsert_connections: Vec<usize>,
    /// Keys of the fixed windows
    #[arg(long, value_name = "K", value_delimiter = ',')]
    #[arg(value_parser = window, default_value = "1,2,4,8,16,24,32,64")]
    pub windows: Vec<usize>,
    /// Microseconds after which a window's batch leaves with fewer
    #[arg(long, value_name = "US", default_value_t = 500)]
    pub window_wait_us: u64,
    /// Connections to Postgres of the fixed windows
    #[arg(long, value_name = "N", value_parser = connections, default_value_t = 20)]
    pub window_connections: usize,
    /// Connections to Postgres of busload, in process and as a server [default: busload's own]
    #[arg(long, value_name = "N", value_parser = connections)]
    pub busload_connections: Option<usize>,
    /// Further options of busload's table, in process and in the server, as
    /// min_batch=16&write_partitions=8
    #[arg(long, value_name = "QUERY")]
    pub table_options: Option<String>,
    /// Connections over RESP
    #[arg(long, value_name = "N", value_delimiter = ',')]
    #[arg(value_parser = clients, default_value = "20,300")]
    pub resp_connections: Vec<usize>,
    /// Numbers of readers of the section low-load
    #[arg(long, value_name = "N", value_delimiter = ',')]
    #[arg(value_parser = clients, default_value = "1,2,5,10,20,50,100,300")]
    pub low_load: Vec<usize>,
    /// Rates of the section rate, in requests per second, as 10000, 10k, 1M
    #[arg(long, value_name = "RATE", value_delimiter = ',')]
    #[arg(value_parser = rate, default_value = "5k,10k,20k,40k,80k,120k,160k")]
    pub rates: Vec<u64>,
    /// Rounds of measurements
    #[command(flatten)]
    pub rounds: Rounds,
    /// Threads of the load in process; 0: the calling thread alone
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub workers: usize,
    /// Directory for statistics.csv (all measurements, medians as round 0) and the pictures
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    /// Postgres server to use
    #[command(flatten)]
    pub source: Source,
    /// busload server to use
    #[command(flatten)]
    pub binary: Binary,
}

/// Arguments about the Postgres server and its table.
#[derive(Debug, Args)]
#[command(next_help_heading = "Postgres")]
pub struct Source {
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
    /// The table's name
    #[arg(long, value_name = "NAME", default_value = "random_read_test", value_parser = parse_name)]
    pub relation: String,
    /// Drop the table if it is there and load it anew
    #[arg(long)]
    pub reload: bool,
    /// shared_buffers of a cluster made here [default: enough for the table, at most 40% of memory]
    #[arg(long, value_name = "SIZE")]
    pub shared_buffers: Option<String>,
    /// shared_buffers of the section small-memory
    #[arg(long, value_name = "SIZE", default_value = "128MB")]
    pub small_shared_buffers: String,
    /// A setting of a cluster made here; can be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting)]
    pub pg_setting: Vec<(String, String)>,
}

impl Postgres {
    /// Returns all numbers of connections to Postgres.
    pub fn database_connections(&self) -> impl Iterator<Item = usize> {
        let lists = self.connections.iter().chain(&self.upsert_connections);
        lists.chain([&self.window_connections]).chain(&self.busload_connections).copied()
    }
}

/// Parses a number of connections to Postgres.
fn connections(text: &str) -> Result<usize, String> {
    count::<1, 1_000>(text)
}

/// Parses the keys of a window.
fn window(text: &str) -> Result<usize, String> {
    count::<1, 10_000>(text)
}

fn parse_name(text: &str) -> Result<String, String> {
    let is_fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let is_name = !text.is_empty() && text.bytes().all(is_fine);
    let name = is_name.then(|| text.to_owned());
    name.ok_or_else(|| "it is a name of lower-case letters, digits and underscores".to_owned())
}

/// Parses a URL without a password, which would show in the arguments of the busload server.
fn parse_url(url: &str) -> Result<String, String> {
    let schemes = ["postgres://", "postgresql://"].iter();
    let Some(rest) = schemes.filter_map(|scheme| url.strip_prefix(scheme)).next() else {
        return Err("it is postgres://user@host:port/database".to_owned());
    };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    if user.contains(':') || rest.contains("password=") {
        return Err("no password in --url, where it shows in lists of processes: \
                    PGPASSWORD=... busload-bench .."
            .to_owned());
    }
    Ok(url.to_owned())
}

fn parse_rows(text: &str) -> Result<u64, String> {
    let rows = number(text).ok().filter(|rows| (1..=KEYS_MAX).contains(rows));
    rows.ok_or_else(|| format!("rows are 1 to {KEYS_MAX}, as 10M"))
}

fn parse_setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("a setting is NAME=VALUE".to_owned()),
    }
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
            ["--readers", "0"],
            ["--rows", "0"],
            ["--rows", "10G"],
            ["--windows", "0"],
            ["--connections", "0"],
            ["--seconds", "0"],
            ["--case", "plain:"],
            ["--case", "plain:0"],
            ["--case", "in-process:3"],
            ["--case", "magic"],
            ["--relation", "x; drop table y"],
            ["--pg-setting", "fsync"],
            ["--url", "mysql://x"],
            ["--url", "postgres://me:secret@db/x"],
            ["--url", "postgres://me@db/x?password=secret"],
        ] {
            assert!(parse(&wrong).is_err(), "{wrong:?}");
        }
        assert!(parse(&["--url", "postgres://me@db:5433/x"]).is_ok());
    }
}
