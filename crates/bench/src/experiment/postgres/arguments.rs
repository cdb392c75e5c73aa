//! The command line of `postgres`, and what it asks to measure.

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use clap::Args;

use super::{
    approach::{Approach, Choice, Section},
    rows::Distribution,
};
use crate::{
    busload::Binary,
    cli::{bail_usage, check_clients, check_rounds, times},
    limits::KEYS_MAX,
    schedule::parse_rate,
};

/// Most connections to Postgres of one row.
const CONNECTIONS_MAX: usize = 1_000;

/// Most keys of a window.
const WINDOW_KEYS_MAX: usize = 10_000;

/// The manual page below the flags.
pub const HELP: &str = "\
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

Sections
  readers, ceiling, windows   300 readers; measured together, in turns
  low-load                    1 to 300 readers (--low-load): what a lone request pays. Plain: as
                              many connections as readers, 20 at most; window: the one that was
                              best at 300 readers
  rate                        open loop (--rates): requests are due on a schedule, response times
                              count from then
  small-memory                the same table with --small-shared-buffers; own clusters only, which
                              are restarted. The system's page cache still holds the table unless
                              it is larger than memory
  upserts                     as many writers as readers, each with one INSERT .. ON CONFLICT DO
                              UPDATE under way

The table
  `random_read_test(pk text COLLATE \"C\" PRIMARY KEY, payload text)`, as published, keys of 20
  digits and payloads of 35 bytes that end with the key; every reply is checked by that. The
  collation is fixed, as the database's own may be several times slower to compare. A new cluster
  has fsync on, checkpoints every 30 minutes or 8 GB, and otherwise what Postgres comes with, but
  for --shared-buffers and --pg-setting. With --url the table is made and loaded if it is not
  there, used if it is as it should be, and only replaced with --reload. It stays. Passwords come
  from PGPASSWORD. Without TLS. Processor time of Postgres is known if it runs here.

Columns
  Response times are in microseconds. `of ceiling` is beside ceiling:2, `x plain` beside the best
  plain:N of the section. `batch` is requests per statement, `kstmt/s` thousands of statements per
  second, both counted by pg_stat_statements (which costs Postgres about a microsecond per
  statement; without the extension transactions are counted). The last columns are processors used
  by Postgres, by busload and by the load. In process, busload is part of the load (`=`): the
  readers, the library and the driver are one process. Notes: `disturbed` (other programs, or the
  machine's host, took more than a tenth of a processor), `asked-late` (open loop: 99th percentile
  of the delay in asking above 250 us), `overloaded`, `unanswered`, `REFUSED`, `WRONG`. Nothing is
  bound to a processor: Postgres, busload and the load share them all, as on a machine of its own.

Files
  statistics.csv in --out gets every measurement (round 1, 2, ..) and the medians (round 0);
  postgres-*.svg show them.

Examples
  busload-bench postgres  everything: half an hour and 10 GB of disk
  busload-bench postgres --cluster /data/bench --rows 10M
      the same, keeping the loaded table for the next time
  busload-bench postgres --rows 1M --section readers,ceiling --case plain:20,in-process,ceiling:2
  busload-bench postgres --url postgres://bench@db/bench --section low-load";

#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct Postgres {
    /// Sections to measure
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "readers,ceiling,windows,low-load,rate,small-memory,upserts"
    )]
    pub section: Vec<Section>,
    /// Only these ways, as plain:20, window:16, in-process, resp:300, ceiling:2, memory; or all of
    /// a kind, as plain
    #[arg(long, value_name = "WAY", value_delimiter = ',')]
    pub case: Vec<Choice>,
    /// Readers of the sections with a fixed number, and writers of the upserts
    #[arg(long, value_name = "N", default_value_t = 300)]
    pub readers: usize,
    /// How keys are drawn
    #[arg(long, value_enum, value_delimiter = ',', default_value = "uniform")]
    pub keys: Vec<Distribution>,
    /// Connections of the readers that are not batched
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "10,20,50,300")]
    pub connections: Vec<usize>,
    /// Connections of the writers that are not batched
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "10,20,50")]
    pub upsert_connections: Vec<usize>,
    /// Keys of the fixed windows
    #[arg(long, value_name = "K", value_delimiter = ',', default_value = "1,2,4,8,16,24,32,64")]
    pub windows: Vec<usize>,
    /// Microseconds after which a window's batch leaves with fewer
    #[arg(long, value_name = "US", default_value_t = 500)]
    pub window_wait_us: u64,
    /// Connections to Postgres of the fixed windows
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub window_connections: usize,
    /// Connections to Postgres of busload, in process and as a server [default: busload's own]
    #[arg(long, value_name = "N")]
    pub busload_connections: Option<usize>,
    /// Further options of busload's table, in process and in the server, as
    /// min_batch=16&write_partitions=8
    #[arg(long, value_name = "QUERY")]
    pub table_options: Option<String>,
    /// Connections over RESP
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "20,300")]
    pub resp_connections: Vec<usize>,
    /// Numbers of readers of the section low-load
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,5,10,20,50,100,300")]
    pub low_load: Vec<usize>,
    /// Rates of the section rate, in requests per second, as 10000, 10k, 1M
    #[arg(
        long,
        value_name = "RATE",
        value_delimiter = ',',
        value_parser = parse_rate,
        default_value = "5k,10k,20k,40k,80k,120k,160k"
    )]
    pub rates: Vec<u64>,
    /// Measurements of every row; its measurements are the medians
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub rounds: usize,
    /// Seconds of a measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    pub seconds: f64,
    /// Seconds before it that are not counted
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub warm_up: f64,
    /// Threads of the load in process; 0: the calling thread alone
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub workers: usize,
    /// Decides the keys
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Where statistics.csv and the pictures go
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    /// Which Postgres
    #[command(flatten)]
    pub source: Source,
    /// Which busload
    #[command(flatten)]
    pub binary: Binary,
}

/// Arguments about the Postgres server and its table.
#[derive(Debug, Args)]
#[command(next_help_heading = "Postgres")]
pub struct Source {
    /// A Postgres that runs, as postgres://user@host:port/database, instead of a cluster made for
    /// this
    #[arg(long, value_name = "URL", conflicts_with = "cluster")]
    pub url: Option<String>,
    /// Make the cluster here and keep it; the next run uses it and its table again. The directory
    /// must be open to the user `postgres` if this program runs as root
    #[arg(long, value_name = "DIR")]
    pub cluster: Option<PathBuf>,
    /// Rows of the table, as 10000, 10k, 350M
    #[arg(long, value_name = "N", value_parser = parse_rows, default_value = "10M")]
    pub rows: u64,
    /// The table's name
    #[arg(long, value_name = "NAME", default_value = "random_read_test")]
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
    /// Refuses what cannot be measured.
    pub fn check(&self) -> Result<()> {
        check_clients(self.readers)?;
        for readers in self.low_load.iter().chain(&self.resp_connections) {
            check_clients(*readers)?;
        }
        let connections = self.connections.iter().chain(&self.upsert_connections);
        let connections =
            connections.chain([&self.window_connections]).chain(&self.busload_connections);
        for count in connections {
            if *count == 0 || CONNECTIONS_MAX < *count {
                bail_usage!("the number of connections to Postgres is 1 to {CONNECTIONS_MAX}");
            }
        }
        if self.windows.iter().any(|keys| *keys == 0 || WINDOW_KEYS_MAX < *keys) {
            bail_usage!("a window has 1 to {WINDOW_KEYS_MAX} keys");
        }
        check_rounds(self.rounds)?;
        if self.section.is_empty() || self.keys.is_empty() {
            bail_usage!("--section and --keys need at least one value");
        }
        self.times()?;
        self.source.check()
    }

    pub fn times(&self) -> Result<(Duration, Duration)> {
        times(self.warm_up, self.seconds)
    }

    /// Whether this way was asked for.
    pub fn wants(&self, approach: Approach) -> bool {
        self.case.is_empty() || self.case.iter().any(|choice| choice.names(approach))
    }
}

impl Source {
    fn check(&self) -> Result<()> {
        let is_name = |text: &str| {
            !text.is_empty()
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        };
        if !is_name(&self.relation) {
            bail_usage!("--relation is a name of lower-case letters, digits and underscores");
        }
        if let Some(url) = &self.url {
            check_url(url)?;
        }
        Ok(())
    }
}

/// A password in the URL would show in the arguments of the busload server.
fn check_url(url: &str) -> Result<()> {
    let Some((_, rest)) =
        url.split_once("://").filter(|(scheme, _)| matches!(*scheme, "postgres" | "postgresql"))
    else {
        bail_usage!("--url is postgres://user@host:port/database");
    };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    if user.contains(':') || rest.contains("password=") {
        bail_usage!(
            "no password in --url, where it shows in lists of processes: \
             PGPASSWORD=... busload-bench .."
        );
    }
    Ok(())
}

fn parse_rows(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1_000),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1_000_000),
        _ => (text, 1),
    };
    let rows = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    rows.filter(|rows| (1..=KEYS_MAX).contains(rows))
        .ok_or_else(|| format!("rows are 1 to {KEYS_MAX}, as 10M"))
}

fn parse_setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("a setting is NAME=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn parse(arguments: &[&str]) -> Result<Postgres> {
        let cli = Cli::try_parse_from(["busload-bench", "postgres"].iter().chain(arguments))?;
        let Command::Postgres(postgres) = cli.command else { panic!("another command") };
        postgres.check()?;
        Ok(*postgres)
    }

    #[test]
    fn ways_can_be_chosen() {
        let postgres = parse(&["--case", "plain:20,in-process", "--section", "rate"]).unwrap();
        assert!(
            postgres.wants(Approach::Plain { connections: 20 })
                && postgres.wants(Approach::Library)
        );
        assert!(
            !postgres.wants(Approach::Plain { connections: 10 })
                && !postgres.wants(Approach::Memory)
        );
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        for wrong in [
            ["--readers", "0"],
            ["--rows", "0"],
            ["--rows", "10G"],
            ["--windows", "0"],
            ["--connections", "0"],
            ["--rounds", "0"],
            ["--seconds", "0"],
            ["--case", "plain:"],
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
