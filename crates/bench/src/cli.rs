//! The command line.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Parser, Subcommand, ValueEnum};

use crate::experiment::{
    Chunks, Connections, Costs, Disk, Dolt, Evict, Growth, Kv, Lakefs, Postgres, Recovery, Report,
    Snapshot, Stores,
};
use crate::server::Durability;
pub use crate::server::busload_at;

const ABOUT: &str = "\
Experiments against busload and its peers.

Each experiment starts the servers itself, each in a temporary directory and on a processor of \
its own, runs its load from one thread on another processor, prints a table and can append to a \
CSV file. Compare ratios within one run, never times of different runs: machines differ, and so \
do their days.";

/// Returns an error about arguments that cannot be followed. The program ends with another code
/// than for what fails later.
macro_rules! bail_usage {
    ($($message:tt)*) => {{
        let kind = clap::error::ErrorKind::ValueValidation;
        return Err(clap::Error::raw(kind, format!($($message)*) + "\n").into());
    }};
}
pub(crate) use bail_usage;

/// Returns the name of a value on the command line, in tables and in CSV files.
pub fn name_of(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Experiments against busload and its peers.
#[derive(Debug, Parser)]
#[command(name = "busload-bench", version, long_about = ABOUT, max_term_width = 110)]
pub struct Cli {
    /// Experiment to run
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Throughput and latency of reads and writes beside other servers
    Kv(Kv),
    /// Latency and memory while a table grows from nothing
    Growth(Growth),
    /// Hit rates of caches that hold a part of what is read, beside Redis
    Evict(Evict),
    /// Time that a server takes to come back after it was stopped
    Recovery(Recovery),
    /// Cost of snapshots under load and on disk, and restarts with them
    Snapshot(Box<Snapshot>),
    /// Throughput, latency and work per request, from one connection to many
    Connections(Connections),
    /// Many clients' single-key reads and writes of a Postgres table, batched and not
    Postgres(Box<Postgres>),
    /// Reads of a Postgres table in batches as lakeFS published them, and by busload
    Lakefs(Box<Lakefs>),
    /// Chunks of a store that is milliseconds away: read directly, and through busload cold,
    /// filling and warm
    Chunks(Box<Chunks>),
    /// Replay of what Dolt's own client does with a remote: directly, and through busload cold and
    /// warm
    Dolt(Box<Dolt>),
    /// Chunk stores by pattern: how fast they open, and what open and closed ones cost
    Stores(Box<Stores>),
    /// Reads of a file at random, and synced appends as a log makes them, by fio
    Disk(Disk),
    /// Price list of this machine: what an operation costs, by itself and shared by a batch
    Costs(Box<Costs>),
    /// Charts and tables of CSV files of the experiments, as one HTML file
    Report(Report),
    /// Answers without doing anything
    #[command(hide = true)]
    NullServer { listen: SocketAddr, reply_bytes: usize },
    /// Answers with a thread for each connection, a lock, a write and a sync
    #[command(hide = true)]
    NaiveServer { listen: SocketAddr, durability: Durability, log: PathBuf },
}
