//! `snapshot`: what snapshots cost a server under load, in memory and on disk, and how fast it
//! comes back with them.
//!
//! ```text
//!   Section::Load           --> under_load:    load | load beside a snapshot | ...
//!   Section::Amplification  --> amplification: overwrites at a fixed rate, then a restart
//!   Section::Restart        --> restart:       from a snapshot, from the log
//!                                  |
//!                                  +--> saving: makes a snapshot and waits for it
//! ```
//!
//! A section is a table, and with `--csv` a file, of its own.

mod amplification;
mod restart;
mod saving;
mod under_load;

pub use self::saving::Way;

use anyhow::Result;
use clap::{Args, ValueEnum};

use super::memory_tables::{Bench, Setup};
use crate::{
    cli::{bail_usage, name_of},
    harness::{
        Rounds,
        arguments::{clients, count, keys, rate},
        print_targets,
    },
    limits::{HASH_FIELDS_MAX, MINUTES_MAX, PIPELINE_MAX, VALUE_BYTES_MAX},
    server::{Durability, ServerKind},
};

const HELP: &str = "\
What is measured
  load           A server with --keys keys and a hash of --fields fields takes SETs, without a
                 snapshot (`before`) and while one is made: `bgsave`, for Redis also `rewrite`
                 (BGREWRITEAOF). At full speed (`pipe` is the length of the pipelines), then in an
                 open loop at half the throughput that one reaches without a snapshot, or at
                 --open-rate; then the same while the first of the clients writes fields of the
                 large hash instead. busload makes no other snapshots (--snapshot-log none), and
                 there is a fresh one before each that is measured, so that all do the same work.
                 The load lasts as long as the snapshot, but at most a minute (`unfinished`).
  amplification  --write-keys keys are overwritten at random at --write-rate for --minutes, with
                 the servers' own rules for when to make a snapshot; then the server is restarted.
  restart        Time from the start of a server until it serves: from a snapshot of --keys keys;
                 from the log of as many SETs of distinct keys; from the log of as many overwrites
                 of 10,000 keys. For Redis from an RDB file and from append-only files that were
                 never rewritten. Files are in the page cache.

Columns
  ratio, p99x    throughput and 99th percentile beside `before`
  >5 ms/s        replies (at full speed: pipelines) a second that took longer than 5 ms
  resident MiB   highest resident memory of the server; for Redis and what its forked child has
                 copied, as Redis tells it
  mem x          the same beside the memory after the keys were written and before any snapshot
  snap s         time from asking for the snapshot until it was made
  calls/log      bytes that the server and its children handed to write calls, by bytes of the
                 log: what busload says that it has logged, for Redis the requests
  disk/log       bytes that the disk was asked to write meanwhile, by whatever program, by bytes of
                 the log; disk/data by bytes of the written keys and values
  live MiB       keys and values; `most MiB` and `end MiB` are the space of the server's files

  With two processors the load has one and all of the server's threads the other: a snapshot's
  thread, or Redis' child, takes its time from the server itself. `load-bound` marks rows that the
  load limited. `kv --help` tells about the other columns and notes.

Examples
  busload-bench snapshot  everything beside redis-server: an hour, 30 GB of disk
  busload-bench snapshot --section load --servers busload --work set  one part of it
  busload-bench snapshot --servers busload,redis,valkey --section restart
  busload-bench snapshot --keys 1000000 --seconds 2 --rounds 1 --minutes 0.5  in ten minutes";

#[derive(Debug, Args)]
#[command(
    after_long_help = HELP,
    mut_arg("seconds", |argument| argument.default_value("5")),
    mut_arg("keys", |argument| argument.default_value("10000000")),
    mut_arg("durability", |argument| argument.default_value("always")),
    mut_arg("csv", |argument| argument.help(
        "Append the measurements to files named like this one and the section: FILE `a.csv` makes \
         `a-load.csv`"
    )),
)]
pub struct Snapshot {
    /// Sections to measure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "load,amplification,restart")]
    section: Vec<Section>,
    /// Writes of the section load
    #[arg(long, value_enum, value_delimiter = ',', default_value = "set,hset")]
    work: Vec<Work>,
    /// Connections of the load
    #[arg(long, value_name = "N", default_value = "50", value_parser = clients)]
    clients: usize,
    /// Length of the pipelines of the section load
    #[arg(long, value_name = "N", default_value = "64", value_parser = count::<1, PIPELINE_MAX>)]
    pipeline: usize,
    /// Requests per second of the open loop of the section load, instead of half the limit
    #[arg(long, value_name = "RATE", value_parser = rate)]
    open_rate: Option<u64>,
    /// Fields of the large hash
    #[arg(long, value_name = "N", default_value = "1000000")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=HASH_FIELDS_MAX))]
    fields: u64,
    /// Keys of the section amplification
    #[arg(long, value_name = "N", default_value = "1000000", value_parser = keys)]
    write_keys: u64,
    /// Bytes of a value of the section amplification
    #[arg(long, value_name = "N", default_value = "100")]
    #[arg(value_parser = count::<0, VALUE_BYTES_MAX>)]
    write_value_bytes: usize,
    /// Requests per second of the section amplification, as 10000, 10k, 1M
    #[arg(long, value_name = "RATE", default_value = "100k", value_parser = rate)]
    write_rate: u64,
    /// Minutes of the section amplification
    #[arg(long, value_name = "MINUTES", default_value = "10", value_parser = minutes)]
    minutes: f64,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    setup: Setup,
}

/// A part of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Section {
    /// Throughput, latency and memory while a snapshot is made
    Load,
    /// Bytes written and space used while keys are overwritten
    Amplification,
    /// Time to come back, from a snapshot and from the log
    Restart,
}

/// Requests of the section load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Work {
    /// All clients set keys
    Set,
    /// The first client sets fields of one large hash, the others set keys
    Hset,
}

fn minutes(text: &str) -> Result<f64, String> {
    let minutes = text.parse().ok().filter(|minutes| (0.001..=MINUTES_MAX).contains(minutes));
    minutes.ok_or_else(|| format!("`{text}` is no number of minutes from 0.001 to {MINUTES_MAX}"))
}

pub fn snapshot(arguments: &Snapshot) -> Result<()> {
    let Snapshot { setup, rounds, .. } = arguments;
    let has_none = setup.durability.contains(&Durability::None);
    let makes_none = |kind: &ServerKind| matches!(kind, ServerKind::Null | ServerKind::Naive);
    if has_none || setup.servers.iter().any(makes_none) {
        bail_usage!("snapshots: --durability os or always, and servers that make them");
    }
    let more = format!("{:?} a measurement, medians of {}", rounds.seconds, rounds.rounds);
    let bench = Bench::new(setup, &setup.servers, &more)?;
    for section in &arguments.section {
        let csv = setup.csv.as_ref().map(|path| {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            path.with_file_name(format!("{stem}-{}.csv", name_of(section)))
        });
        let csv = csv.as_deref();
        print_targets(&match section {
            Section::Load => under_load::measure_all(arguments, &bench, csv)?,
            Section::Amplification => amplification::measure_all(arguments, &bench, csv)?,
            Section::Restart => restart::measure_all(arguments, &bench, csv)?,
        });
    }
    Ok(())
}
