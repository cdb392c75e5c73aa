//! The command line of `dolt`.

use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::{
    bytes::parse_bytes,
    cli::bail_usage,
    experiment::store_bench::StoreArguments,
    harness::arguments::{clients, count, warm_up},
    limits::{CHUNK_BYTES_MAX, CHUNKS_MAX, DOLT_PUSHES_MAX, ROUNDS_MAX, STORE_BYTES_MAX},
};

/// The manual page below the flags.
const HELP: &str = "\
What is measured
  A client that does on the wire what Dolt's own does replays commands on a store as Dolt writes
  it: each push is a table file with a tree of chunks (commit, root value, table, nodes of 300
  children, leaves). An S3 server in this process serves it behind a proxy that delays

  direct          against the object store: ranges merged with gaps of up to 512 KiB, every file's
                  index known
  cold            through busload, dolt_layout=files and =records, whose cache is empty: each
                  measurement has its own server
  warm            through busload that has everything on local disk
  warm, 0 ms      the same, with the object store right beside it
  plain download  as many bytes of the files from the object store, in ranges of 8 MiB, one after
                  the other; plain downloads: 64 at once

Columns
  `x direct` and `x plain` are how many times faster than directly, and than one plain download;
  `of 0 ms` is the time beside that with the store at 0 ms. p50 and p99 are of the parts: chains
  of point, nodes of scan, files of clone. Then what the client did: calls (a stream is one; the
  notes tell them by method), GETs, dictionaries among them, MiB of bodies; what the object store
  was asked for meanwhile, for table files only; processor seconds of the server, and the share of
  its processor that the load used. --out gets statistics.csv: all measurements, medians (round 0).
  Every chunk and every file is checked; a failure fails the run.

Examples
  busload-bench dolt  everything: about four minutes
  busload-bench dolt --section query --query-chains 900 --rounds 1
  busload-bench dolt --section clone,clones --leaves 40000 --bandwidth 0 --dir /data";

/// A part of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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
    /// A client that has all but the last push: a walk from the root, level by level
    Fetch,
    /// DoltHub's query that took 188 s from S3 and 27 s through a cache: rows by key, one after the
    /// other, by --query-clients at once, each its own rows. Measured only if named
    Query,
}

/// Busload's setting `dolt_layout`: where the advertised chunk locations are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Layout {
    /// The table files
    Files,
    /// Records encoded anew
    Records,
}

/// Design of a store.
#[derive(Clone, Copy, Debug, Args)]
pub struct Design {
    /// Pushes, each a table file
    #[arg(long, value_name = "N", default_value = "6", value_parser = count::<1, DOLT_PUSHES_MAX>)]
    pub pushes: usize,
    /// Leaves that each adds
    #[arg(long, value_name = "N", default_value = "4000", value_parser = count::<1, CHUNKS_MAX>)]
    pub leaves: usize,
    /// Mean bytes of a leaf, decoded
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "4k")]
    pub leaf_bytes: u64,
    /// Share of the files that are classic, the oldest of them, 0 to 1; the others are archives
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub classic: f64,
    /// Decides contents, delays and the order of reads
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct Dolt {
    /// Sections to measure
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "clone,clones,scan,point,fetch"
    )]
    pub section: Vec<Section>,
    /// Layouts to measure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "files,records")]
    pub layout: Vec<Layout>,
    #[command(flatten)]
    pub design: Design,
    /// Clients of the section clones
    #[arg(long, value_name = "N", default_value = "20", value_parser = clients)]
    pub clients: usize,
    /// Chains of the section point
    #[arg(long, value_name = "N", default_value = "20", value_parser = clients)]
    pub chains: usize,
    /// Clients of the section query
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "4,32",
        value_parser = clients)]
    pub query_clients: Vec<usize>,
    /// Rows by key of each client of the section query; 900 are as many reads as DoltHub's query
    #[arg(long, value_name = "N", default_value = "90", value_parser = clients)]
    pub query_chains: usize,
    /// Measurements of every row; what is shown are medians
    #[arg(long, value_name = "N", default_value = "3", value_parser = count::<1, ROUNDS_MAX>)]
    pub rounds: usize,
    /// Seconds for which a warm replay is repeated, at least; the time is the median
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = warm_up)]
    pub seconds: Duration,
    #[command(flatten)]
    pub store: StoreArguments,
}

impl Dolt {
    /// Refuses what cannot be measured, as far as single arguments do not tell.
    pub fn check(&self) -> Result<()> {
        let Design { pushes, leaves, leaf_bytes, classic, .. } = self.design;
        if CHUNK_BYTES_MAX < leaf_bytes || !(0.0..=1.0).contains(&classic) {
            bail_usage!("--leaf-bytes is at most {CHUNK_BYTES_MAX}, --classic is 0 to 1");
        }
        let leaves = u64::try_from(pushes.saturating_mul(leaves))?;
        if STORE_BYTES_MAX < leaves.saturating_mul(leaf_bytes.max(1)) {
            bail_usage!("a store has at most {STORE_BYTES_MAX} bytes");
        }
        Ok(())
    }
}
