//! The command line of `chunks`.

use anyhow::{Context, Result};
use clap::Args;

use super::chain::Design;
use crate::{
    bytes::{bytes_text, parse_bytes},
    cli::bail_usage,
    experiment::store_bench::StoreArguments,
    harness::{
        Rounds,
        arguments::{clients, count},
    },
    limits::{CHUNK_BATCH_MAX, CHUNK_BYTES_MAX, CHUNKS_MAX, STORE_BYTES_MAX},
    store::Filler,
};

/// Shortest chunk: it begins with its number.
const CHUNK_BYTES_MIN: u64 = 16;

/// The manual page below the flags.
const HELP: &str = "\
What is measured
  A store is made as Dolt writes it: classic table files with chunks of made-up contents that
  compress about 2:1, and a manifest. An S3 server in this process serves it behind a proxy that
  delays the first byte of every response (--first-byte, --jitter) and keeps a log. Chunks are read

  direct       from the S3 server by ranged GET (object_store crate), every file's index known;
               decoded by the caller
  cold         through busload whose cache is empty (fill=touched); each read is the first of its
               extent
  filling      through busload while whole files come (fill=whole), at --filling-bandwidth
  warm disk    through busload that has everything on local disk
  warm RAM     the same with a memory cache of decoded chunks (memory=..)

  over GetChunk, GetChunks (--batch addresses a call), RESP (GET, one under way on each
  connection) and RESP pipelined (--pipeline on each connection), beside what such calls cost
  without chunks:

  health Check   an empty unary call to the same server
  pread          a loop over a local copy of the files, by the load itself
  pread+send     a thread on the server's processor that preads what is asked for and sends it
                 over loopback

Columns
  Times are of requests, in microseconds; k/s are thousands of chunks. `x direct` is how many
  times more chunks a second than directly, at the same load; `x check` the median time beside
  that of the empty call, with as many callers. `cpu: load` and `server` are the processors used by
  the load and by who answers; GETs and MiB what the object store was asked for (cold and filling).
  Contents are checked by number and size; a wrong one fails the run. Compare ratios within one run,
  never times of different runs. Notes: `load-bound`, `disturbed`, `filled-early` (everything was
  local before the measurement ended), `REFUSED`, `WRONG`; of the last four sections also what the
  store was asked for, or what memory was used.

Files
  statistics.csv in --out gets every measurement (round 1, 2, ..) and the medians (round 0), with
  more fields than the tables have columns; chunks-*.svg show them.

Examples
  busload-bench chunks  everything: about ten minutes, 10 GB of disk
  busload-bench chunks --section chain,throughput
  busload-bench chunks --section memory --memory-bytes 512M --dir /data
  busload-bench chunks --chunk-bytes 1k,4k,16k --chunks 20000 --section cold --rounds 1";

/// A part of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Section {
    /// Dependent reads in every state: --chain chunks one after the other, by one caller
    Chain,
    /// Random reads by --callers, in every state
    Reads,
    /// As many warm chunks a second as one core gives, as stored and decoded
    Throughput,
    /// Random reads of a whole file from an empty cache: what they cost the store, from the
    /// proxy's log
    Cold,
    /// --thundering-herd callers ask for one cold chunk at once
    ThunderingHerd,
    /// A store of --open-files table files: seconds until its chunks are found, with an empty
    /// and a warm cache
    Open,
    /// Memory of the index by chunk; resident size while a file of --memory-bytes fills
    Memory,
}

#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
#[command(mut_arg("seconds", |argument| argument.default_value("2")))]
#[command(mut_arg("warm_up", |argument| argument.default_value("0.3")))]
pub struct Chunks {
    /// Sections to measure
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "chain,reads,throughput,cold,thundering-herd,open,memory"
    )]
    pub section: Vec<Section>,
    /// Table files of the store
    #[arg(long, value_name = "N", default_value = "4", value_parser = count::<1, CHUNKS_MAX>)]
    pub files: usize,
    /// Chunks of a table file
    #[arg(long, value_name = "N", default_value = "16384", value_parser = count::<1, CHUNKS_MAX>)]
    pub chunks: usize,
    /// Bytes of chunks, decoded; several sizes are taken in turns
    #[arg(
        long,
        value_name = "BYTES",
        value_delimiter = ',',
        value_parser = parse_bytes,
        default_value = "4k"
    )]
    pub chunk_bytes: Vec<u64>,
    /// Chunks of the chain
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub chain: usize,
    /// Callers of the random reads
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "1,16,64",
        value_parser = clients
    )]
    pub callers: Vec<usize>,
    /// Callers, and RESP connections, of the section throughput
    #[arg(long, value_name = "N", default_value = "4", value_parser = clients)]
    pub throughput_callers: usize,
    /// Addresses of a GetChunks call
    #[arg(
        long,
        value_name = "N",
        default_value = "256",
        value_parser = count::<1, CHUNK_BATCH_MAX>
    )]
    pub batch: usize,
    /// Requests under way on a pipelined RESP connection
    #[arg(long, value_name = "N", default_value = "64", value_parser = count::<1, CHUNK_BATCH_MAX>)]
    pub pipeline: usize,
    /// Connections that gRPC callers share
    #[arg(long, value_name = "N", default_value = "1", value_parser = clients)]
    pub grpc_connections: usize,
    /// Callers of the section thundering-herd
    #[arg(long, value_name = "N", default_value = "256", value_parser = clients)]
    pub thundering_herd: usize,
    /// Table files of the section open
    #[arg(long, value_name = "N", default_value = "1000", value_parser = count::<1, CHUNKS_MAX>)]
    pub open_files: usize,
    /// Bytes of the file of the section memory
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "2G")]
    pub memory_bytes: u64,
    /// Bytes per second of one response while files fill
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "2M")]
    pub filling_bandwidth: u64,
    /// Rounds and seconds
    #[command(flatten)]
    pub rounds: Rounds,
    /// The object store, the server and the machine
    #[command(flatten)]
    pub store: StoreArguments,
}

impl Chunks {
    /// Refuses what cannot be measured, as far as single arguments do not tell.
    pub fn check(&self) -> Result<()> {
        let sizes = CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX;
        if self.chunk_bytes.iter().any(|bytes| !sizes.contains(bytes)) {
            let most = bytes_text(CHUNK_BYTES_MAX);
            bail_usage!("--chunk-bytes are {CHUNK_BYTES_MIN} to {most}");
        }
        let chunks = self.files.saturating_mul(self.chunks);
        if CHUNKS_MAX < chunks {
            bail_usage!("a store has at most {CHUNKS_MAX} chunks");
        }
        let most = self.chunk_bytes.iter().copied().max().unwrap_or_default();
        let most = most.saturating_mul(u64::try_from(chunks).context("a count")?);
        if STORE_BYTES_MAX < most || !(1 << 20..=STORE_BYTES_MAX).contains(&self.memory_bytes) {
            let most = bytes_text(STORE_BYTES_MAX);
            bail_usage!("stores have at most {most}, --memory-bytes is at least 1M");
        }
        if self.chain == 0 || chunks / 2 < self.chain {
            bail_usage!("--chain is 1 to half of all chunks");
        }
        Ok(())
    }

    /// Returns the store that most sections read.
    pub fn design(&self) -> Design {
        let size = |bytes: &u64| usize::try_from(*bytes).expect("checked against a limit");
        Design {
            files: self.files,
            chunks_per_file: self.chunks,
            chunk_bytes: self.chunk_bytes.iter().map(size).collect(),
            filler: Filler::Half,
            chain: self.chain,
            seed: self.rounds.seed,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn parse(arguments: &str) -> Result<()> {
        let words = ["busload-bench", "chunks"].into_iter().chain(arguments.split_whitespace());
        let Command::Chunks(chunks) = Cli::try_parse_from(words)?.command else {
            panic!("another command")
        };
        chunks.check()
    }

    #[test]
    fn arguments_that_cannot_be_measured_are_refused() {
        assert!(parse("").is_ok());
        for wrong in ["--chunk-bytes 8", "--chain 0", "--chain 60000", "--memory-bytes 1k"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse("--files 10000 --chunks 10000").is_err());
        assert!(parse("--server-cpu x").is_err());
    }
}
