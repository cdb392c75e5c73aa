//! The command line of `chunks`.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use clap::Args;

use super::{
    cases::{Batches, Section},
    contents::{Filler, HEADER_BYTES},
    store::Design,
};
use crate::{
    busload::Served,
    bytes::{bytes_text, parse_bytes},
    cli::{bail_usage, check_clients, check_rounds, times},
    limits::{CHUNK_BATCH_MAX, CHUNK_BYTES_MAX, CHUNKS_MAX, STORE_BYTES_MAX},
    remote::Distance,
};

/// The manual page below the flags.
pub const HELP: &str = "\
What is measured
  A store is made as Dolt writes it: classic table files with chunks of made-up contents that
  compress about 2:1, a manifest, and a chain of chunks each of which contains the address of the
  next. An S3 server in this process serves it behind a proxy that delays the first byte of every
  response (--first-byte, --jitter) and keeps a log. Chunks are read

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

Sections
  chain        a chain of dependent reads by one caller, in every state
  reads        random reads by --callers
  throughput   as many warm chunks a second as one core gives, as stored and decoded: server on
               one processor, load on another
  cold         random reads of a whole file from an empty cache: foreground reads, fills and
               bytes, from the proxy's log
  thundering-herd         --thundering-herd callers ask for one cold chunk at once: GETs
  open         a store of --open-files table files: seconds until its chunks are found, with an
               empty and a warm cache
  memory       memory of the index by chunk; resident size while a file of --memory-bytes fills

Columns
  Times are of requests, in microseconds; k/s are thousands of chunks. `x direct` is how many
  times more chunks a second than directly, at the same load; `x check` the median time beside
  that of the empty call, with as many callers. The last columns are processors used by who
  answers and by the load, and what the object store was asked for (cold and filling). Contents
  are checked by number and size; a wrong one fails the run. Compare ratios within one run, never
  times of different runs. Notes: `load-bound`, `disturbed`, `filled-early` (everything was local
  before the measurement ended), `REFUSED`, `WRONG`.

Files
  statistics.csv in --out gets every measurement (round 1, 2, ..) and the medians (round 0),
  measurements.csv the numbers of the sections without a table; chunks-*.svg show them.

Examples
  busload-bench chunks  everything: about ten minutes, 10 GB of disk
  busload-bench chunks --section chain,throughput
  busload-bench chunks --section memory --memory-bytes 512M --dir /data
  busload-bench chunks --chunk-bytes 1k,4k,16k --chunks 20000 --section cold --rounds 1";

#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
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
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub files: usize,
    /// Chunks of a table file
    #[arg(long, value_name = "N", default_value_t = 16_384)]
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
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,16,64")]
    pub callers: Vec<usize>,
    /// Callers, and RESP connections, of the section throughput
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub throughput_callers: usize,
    /// Addresses of a GetChunks call
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub batch: usize,
    /// Requests under way on a pipelined RESP connection
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub pipeline: usize,
    /// Connections that gRPC callers share
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub grpc_connections: usize,
    /// Callers of the section thundering-herd
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub thundering_herd: usize,
    /// Table files of the section open
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub open_files: usize,
    /// Bytes of the file of the section memory
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "2G")]
    pub memory_bytes: u64,
    /// The object store
    #[command(flatten)]
    pub distance: Distance,
    /// The same while files fill
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "2M")]
    pub filling_bandwidth: u64,
    /// Measurements of every row; its measurements are the medians
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub rounds: usize,
    /// Seconds of a measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    pub seconds: f64,
    /// Seconds before it that are not counted
    #[arg(long, value_name = "SECONDS", default_value_t = 0.3)]
    pub warm_up: f64,
    /// Decides contents, delays and the order of reads
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Where statistics.csv, measurements.csv and the pictures go
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    /// Where stores and caches are made [default: the system's directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// busload and the machine
    #[command(flatten)]
    pub served: Served,
}

impl Chunks {
    /// Refuses what cannot be measured.
    pub fn check(&self) -> Result<()> {
        if self.section.is_empty() || self.callers.is_empty() || self.chunk_bytes.is_empty() {
            bail_usage!("--section, --callers and --chunk-bytes need at least one value");
        }
        for count in self.callers.iter().chain([
            &self.thundering_herd,
            &self.throughput_callers,
            &self.grpc_connections,
        ]) {
            check_clients(*count)?;
        }
        if [self.batch, self.pipeline].iter().any(|count| *count == 0 || CHUNK_BATCH_MAX < *count) {
            bail_usage!("--batch and --pipeline are 1 to {CHUNK_BATCH_MAX}");
        }
        check_rounds(self.rounds)?;
        let header = u64::try_from(HEADER_BYTES).context("a header's size")?;
        if self.chunk_bytes.iter().any(|bytes| *bytes < header || CHUNK_BYTES_MAX < *bytes) {
            bail_usage!("--chunk-bytes are {header} to {}", bytes_text(CHUNK_BYTES_MAX));
        }
        self.check_store()?;
        self.times()?;
        self.served.processors.check()
    }

    fn check_store(&self) -> Result<()> {
        let count =
            self.files.checked_mul(self.chunks).filter(|count| (1..=CHUNKS_MAX).contains(count));
        if count.is_none() || self.open_files == 0 || CHUNKS_MAX < self.open_files {
            bail_usage!("a store has 1 to {CHUNKS_MAX} chunks, in at least one file");
        }
        let chunks = u64::try_from(self.files * self.chunks).context("a count")?;
        let most =
            self.chunk_bytes.iter().copied().max().unwrap_or_default().saturating_mul(chunks);
        if STORE_BYTES_MAX < most
            || STORE_BYTES_MAX < self.memory_bytes
            || self.memory_bytes < 1 << 20
        {
            bail_usage!(
                "stores have at most {}, --memory-bytes is at least 1M",
                bytes_text(STORE_BYTES_MAX)
            );
        }
        if self.chain == 0 || self.files * self.chunks / 2 < self.chain {
            bail_usage!("--chain is 1 to half of all chunks");
        }
        Ok(())
    }

    pub fn times(&self) -> Result<(Duration, Duration)> {
        times(self.warm_up, self.seconds)
    }

    /// Whether a section was asked for.
    pub fn wants(&self, section: Section) -> bool {
        self.section.contains(&section)
    }

    /// The store that most sections read.
    pub fn design(&self) -> Design {
        let size = |bytes: &u64| usize::try_from(*bytes).expect("checked against a limit");
        Design {
            files: self.files,
            chunks_per_file: self.chunks,
            chunk_bytes: self.chunk_bytes.iter().map(size).collect(),
            filler: Filler::Half,
            chain: self.chain,
            seed: self.seed,
        }
    }

    /// Chunks at a time.
    pub fn batches(&self) -> Batches {
        Batches { call: self.batch, pipeline: self.pipeline }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn parse(arguments: &[&str]) -> Result<Chunks> {
        let cli = Cli::try_parse_from(["busload-bench", "chunks"].iter().chain(arguments))?;
        let Command::Chunks(chunks) = cli.command else { panic!("another command") };
        chunks.check()?;
        Ok(*chunks)
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        assert!(parse(&[]).is_ok());
        for wrong in [
            &["--chunk-bytes", "8"][..],
            &["--chain", "0"],
            &["--chain", "60000"],
            &["--files", "0"],
            &["--callers", "0"],
            &["--batch", "100000"],
            &["--rounds", "0"],
            &["--seconds", "0"],
            &["--server-cpu", "x"],
            &["--memory-bytes", "1k"],
            &["--chunks", "99999999999"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
