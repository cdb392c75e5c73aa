//! `chunks`: chunks of a store some milliseconds away, read directly and through busload, cold,
//! filling and warm.
//!
//! ```text
//!   arguments --> cases: which rows --> runner: measures one -----------------------+
//!                                         |                                         |
//!        numbered: a store on disk <------+--> store_bench: S3 server, proxy, log,  |
//!                                         |                 servers of busload      |
//!        clients: gRPC, RESP, S3 <--------+                                         |
//!                                                      table, CSV file, targets <---+
//! ```
//!
//! The server runs on one processor, the load on another, the S3 server wherever there is room.
//! Rows that are compared are measured in turns, round after round, and what is shown are medians.
//! Whatever is empty before a measurement gets a server and a directory of its own. Every chunk is
//! checked by number and size.

mod cases;
mod clients;
mod numbered;
mod runner;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};

use self::{cases::Section, numbered::Design, runner::Runner};
use super::store_bench::{PREFIX, StoreArguments, StoreBench};
use crate::{
    bytes::{bytes_text, parse_bytes},
    cli::bail_usage,
    harness::{
        Rounds, Table,
        arguments::{clients, count},
        print_targets,
    },
    limits::{CHUNK_BYTES_MAX, CHUNKS_MAX, STORE_BYTES_MAX},
    store::Filler,
};

/// Table files of the store that most sections read.
const FILES: usize = 4;

/// Shortest chunk: it begins with its number.
const CHUNK_BYTES_MIN: u64 = 16;

/// The manual page below the flags.
const HELP: &str = "\
What is measured
  A store is made as Dolt writes it: four classic table files with chunks that compress about 2:1.
  An S3 server in this process serves it behind a proxy that delays the first byte of every response
  and keeps a log. Callers with one request each read random chunks, over GetChunk, GetChunks (256
  addresses a call), RESP, and RESP pipelined (64 on each connection). `state` says from where:

  - (direct)     from the S3 server by ranged GET, indexes known, decoded by the caller
  cold           through busload whose cache is empty; each read is the first of its extent
  filling        through busload while whole files come, at 2 MiB a second and response
  warm disk      through busload that has everything on local disk
  warm RAM       the same with a memory cache of decoded chunks (memory=..)

  `health Check` is an empty unary call to the same server, `null server` one that sends as many
  bytes over RESP without looking at the request.

Columns
  Times are of requests, k/s thousands of chunks. `x direct` is how many times more chunks a second
  than directly, at the same load; `x check` the median time beside that of the empty call. GETs and
  MiB are what the object store was asked for of table files. Compare ratios within one run, never
  times of different runs. Notes: `load-bound`, `disturbed`, `filled-early` (everything was local
  before the measurement ended), `REFUSED` and `WRONG`, which fail the run. statistics.csv in --out
  gets every measurement and, as round 0, the medians.

Examples
  busload-bench chunks  everything: about ten minutes, 3 GB of disk
  busload-bench chunks --section memory --memory-bytes 2G --dir /data";

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
        default_value = "reads,throughput,cold,thundering-herd,open,memory"
    )]
    pub section: Vec<Section>,
    /// Chunks of each of the store's four table files
    #[arg(long, value_name = "N", default_value = "16384", value_parser = count::<1, CHUNKS_MAX>)]
    pub chunks: usize,
    /// Bytes of a chunk, decoded
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "4k")]
    pub chunk_bytes: u64,
    /// Callers of the random reads
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "1,16,64",
        value_parser = clients
    )]
    pub callers: Vec<usize>,
    /// Bytes of the file of the section memory, which is made in memory, too
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "512M")]
    pub memory_bytes: u64,
    /// Rounds and seconds
    #[command(flatten)]
    pub rounds: Rounds,
    /// The object store, the server and the machine
    #[command(flatten)]
    pub store: StoreArguments,
}

impl Chunks {
    /// Returns the store that most sections read; refuses what cannot be made.
    fn design(&self) -> Result<Design> {
        let chunks = u64::try_from(self.chunks.saturating_mul(FILES))?;
        let largest = self.chunk_bytes.saturating_mul(chunks).max(self.memory_bytes);
        let is_chunk = (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&self.chunk_bytes);
        if !is_chunk || STORE_BYTES_MAX < largest {
            let (chunk, store) = (bytes_text(CHUNK_BYTES_MAX), bytes_text(STORE_BYTES_MAX));
            bail_usage!("a chunk has {CHUNK_BYTES_MIN} B to {chunk}, a store at most {store}");
        }
        let (files, chunks, chunk_bytes) = (FILES, self.chunks, self.chunk_bytes);
        Ok(Design { files, chunks, chunk_bytes, filler: Filler::Half, seed: self.rounds.seed })
    }
}

pub fn chunks(arguments: &Chunks) -> Result<()> {
    let design = arguments.design()?;
    let bench = StoreBench::start(&arguments.store, arguments.rounds.seed)?;
    arguments.store.served.processors.bind_load()?;
    let store = design.make(&bench.directory(PREFIX))?;
    let about = bench.about(store.text())?;
    let out = &arguments.store.out;
    let mut table = Table::open(&cases::LAYOUT, Some(&out.join("statistics.csv")), &about)?;
    let mut runner = Runner::new(arguments, bench, store);
    for section in Section::value_variants() {
        if arguments.section.contains(section) {
            // A large file takes long.
            let rounds = if *section == Section::Memory { 1 } else { arguments.rounds.rounds };
            let cases = cases::of(*section, &arguments.callers);
            table.group(&section.title(), &cases, rounds, |case, round| {
                runner.measure(case, round)
            })?;
        }
    }
    runner.stop()?;
    print_targets(&cases::targets(&table));
    // A fast wrong answer is none, nor is a refusal.
    match table.failed().count() {
        0 => Ok(()),
        failed => bail!("{failed} requests were refused or answered wrongly; see the notes"),
    }
}
