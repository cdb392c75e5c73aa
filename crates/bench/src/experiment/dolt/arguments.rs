//! The command line of `dolt`.

use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;

use super::tree::{Design, Order};
use crate::{
    bytes::{bytes_text, parse_bytes},
    cli::bail_usage,
    experiment::store_bench::StoreArguments,
    harness::arguments::{clients, count, warm_up},
    limits::{CHUNK_BYTES_MAX, CHUNKS_MAX, DOLT_PUSHES_MAX, ROUNDS_MAX, STORE_BYTES_MAX},
};

/// Shortest leaf: shorter ones hold no rows.
const LEAF_BYTES_MIN: u64 = 64;

/// The manual page below the flags.
const HELP: &str = "\
What is measured
  A store is made as Dolt writes it: --pushes pushes, each a table file (archives; --classic share
  of them classic), whose chunks are a tree: commit, root value, table, nodes of 100 to 650
  children, leaves. An S3 server in this process serves it behind a proxy that delays the first
  byte of every response (--first-byte, --jitter), limits its speed (--bandwidth) and keeps a log.
  A client that does on the wire what Dolt's own does replays what commands do

  direct            against the object store: ranges merged with gaps of up to 512 KiB, every
                    file's index known
  cold              through busload whose cache is empty; every measurement has a server and a
                    directory of its own
  warm              through busload that has everything on local disk
  warm, 0 ms        the same, with the object store right beside it: what the distance still costs
  plain download    as many bytes of the files from the object store, in ranges of 8 MiB, one
                    after the other
  plain downloads   the same, --ranges at once

  in both layouts of busload's table (dolt_layout): `files` gives places in the table files,
  `records` lays chunks out anew. `legacy` asks as clients do that do not know
  StreamChunkLocations.

Columns
  `x direct` and `x plain` are how many times faster than directly, and than one plain download of
  as many bytes; `of 0 ms` is the time beside that with the store at 0 ms. p50 and p99 are of the
  parts: chains of point, nodes of scan, files of clone. What the client did: calls (a stream is
  one; the notes tell them by method), GETs, of them dictionaries, MiB of bodies. What the object
  store was asked for meanwhile, for table files only: store GETs and MiB. `cpu s` are the server's
  seconds of processor, `cpu: load` is what the load used of its own. Every chunk and every file is
  checked; nothing is tried again, a failure or a wrong one fails the run. Compare ratios within one
  run, never times of different runs.

Files
  statistics.csv in --out gets every measurement (round 1, 2, ..) and the medians (round 0);
  dolt.svg shows the times.

Examples
  busload-bench dolt  everything: about four minutes
  busload-bench dolt --section scan --layout records --rounds 1
  busload-bench dolt --section clone,clones --leaves 40000 --bandwidth 0 --dir /data
  busload-bench dolt --section point --order random --classic 1";

/// A part of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Section {
    /// One client: the list of files, then whole files, three at a time
    Clone,
    /// --clients of them at once
    Clones,
    /// Every chunk of the current version: for one node after the other all its children at once
    Scan,
    /// --chains rows by key: chains of chunks from the root to a leaf, each named by the one
    /// before
    Point,
    /// A client that has all but the last --new pushes: a walk from the root, as fast as chunks
    /// come
    Fetch,
}

/// Busload's setting `dolt_layout`: where the advertised chunk locations are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Layout {
    /// The table files
    Files,
    /// Records encoded anew
    Records,
}

#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct Dolt {
    /// Sections to measure
    #[arg(
        long,
        alias = "sections",
        value_enum,
        value_delimiter = ',',
        default_value = "clone,clones,scan,point,fetch"
    )]
    pub section: Vec<Section>,
    /// Layouts to measure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "files,records")]
    pub layout: Vec<Layout>,
    /// Pushes, each a table file
    #[arg(long, value_name = "N", default_value = "6", value_parser = count::<1, DOLT_PUSHES_MAX>)]
    pub pushes: usize,
    /// Leaves that each adds
    #[arg(long, value_name = "N", default_value = "4000", value_parser = count::<1, CHUNKS_MAX>)]
    pub leaves: usize,
    /// Mean bytes of a leaf, decoded
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "4k")]
    pub leaf_bytes: u64,
    /// Share of the files that are classic, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub classic: f64,
    /// The order of chunks in a file
    #[arg(long, value_enum, default_value = "walk")]
    pub order: Order,
    /// Clients of the section clones
    #[arg(long, value_name = "N", default_value = "20", value_parser = clients)]
    pub clients: usize,
    /// Chains of the section point
    #[arg(long, value_name = "N", default_value = "20", value_parser = clients)]
    pub chains: usize,
    /// Pushes that the client of the section fetch lacks
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub new: usize,
    /// Ranges of the plain downloads at once: as many requests as busload makes
    #[arg(long, value_name = "N", default_value = "64", value_parser = clients)]
    pub ranges: usize,
    /// Measurements of every row; its measurements are the medians
    #[arg(long, value_name = "N", default_value = "3", value_parser = count::<1, ROUNDS_MAX>)]
    pub rounds: usize,
    /// Seconds for which a warm replay is repeated, at least; the time is the median
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = warm_up)]
    pub seconds: Duration,
    /// Decides contents, delays and the order of reads
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The object store, the server and the machine
    #[command(flatten)]
    pub store: StoreArguments,
}

impl Dolt {
    /// Refuses what cannot be measured, as far as single arguments do not tell.
    pub fn check(&self) -> Result<()> {
        if self.new == 0 || self.pushes < self.new {
            bail_usage!("--new at least 1 and not more than --pushes");
        }
        if !(LEAF_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&self.leaf_bytes) {
            bail_usage!("--leaf-bytes is {LEAF_BYTES_MIN} to {}", bytes_text(CHUNK_BYTES_MAX));
        }
        if !(0.0..=1.0).contains(&self.classic) {
            bail_usage!("--classic is 0 to 1");
        }
        let count = self.pushes.saturating_mul(self.leaves);
        if CHUNKS_MAX < count {
            bail_usage!("a store has at most {CHUNKS_MAX} leaves");
        }
        let count = u64::try_from(count).context("a count")?;
        if STORE_BYTES_MAX < self.leaf_bytes.saturating_mul(count) {
            bail_usage!("a store has at most {}", bytes_text(STORE_BYTES_MAX));
        }
        Ok(())
    }

    pub fn design(&self) -> Design {
        Design {
            pushes: self.pushes,
            leaves_per_push: self.leaves,
            leaf_bytes: usize::try_from(self.leaf_bytes).expect("checked against a limit"),
            classic: self.classic,
            order: self.order,
            seed: self.seed,
        }
    }
}
