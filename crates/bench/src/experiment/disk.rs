//! `disk`: random reads of a file, with the percentiles of their latencies: what the disk below a
//! cache can do.
//!
//! ```text
//!   arguments --> file: made once, its cached pages dropped --> jobs: threads that read blocks --> Measured
//!                                                                                                    |
//!                                                         fio: as fio prints it, table, JSON, CSV <--+
//! ```
//!
//! Every block is read at most once in a measurement, so that what one read brought to the page
//! cache serves no other.

mod file;
mod fio;
mod jobs;

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use clap::Args;

use self::{
    file::TestFile,
    jobs::{Measured, Plan},
};
use crate::{
    bytes::{bytes_text, parse_bytes},
    cleanup::Cleanup,
    cli::bail_usage,
    clock::utc_now,
    limits::{DISK_BLOCK_BYTES_MAX, DISK_BLOCKS_MAX, DISK_JOBS_MAX},
    machine,
    report::{self, Column, Csv, measurement, number, text},
    stats::percentile_us,
};

const HELP: &str = "\
What is measured
  Jobs (threads) read blocks of a file at random, one after the other, for --seconds or until every block was read once.
  Latency is that of the read call (fio's clat with its engine psync).

  buffered   through the page cache, whose pages of the file are dropped before (POSIX_FADV_DONTNEED), without read-ahead
             (POSIX_FADV_RANDOM). How much was still cached afterwards is said; a host's own cache cannot be dropped.
  direct     O_DIRECT, past the page cache. File systems without it are left out.

  The file is written once with random bytes, synced, and removed at the end.

Examples
  busload-bench disk --dir /data                     1 GiB, 16 KiB, buffered and direct, 1 and 16 jobs
  busload-bench disk --size 4G --block 4k --jobs 1,4,32 --mode direct --json disk.json";

#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct Disk {
    /// Where the file is made [default: the system's directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Bytes of the file, as 512M, 1G
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "1G")]
    pub size: u64,
    /// Bytes of a read; a multiple of 512
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "16k")]
    pub block: u64,
    /// Numbers of threads that read
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,16")]
    pub jobs: Vec<usize>,
    /// Through the page cache, or past it
    #[arg(long, value_enum, value_delimiter = ',', default_value = "buffered,direct")]
    pub mode: Vec<Mode>,
    /// Seconds of a measurement, at most
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    pub seconds: f64,
    /// Decides the order of the blocks
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write the measurements to this file, in the shape of fio's JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Append the measurements to this file
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
}

/// How the file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Through the page cache
    Buffered,
    /// Past it: `O_DIRECT`
    Direct,
}

impl Mode {
    /// The name in `--mode` and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Buffered => "buffered",
            Self::Direct => "direct",
        }
    }
}

const COLUMNS: &[Column] = &[
    text("mode", 8),
    number("jobs", 4),
    number("IOPS", 8),
    number("MiB/s", 7),
    number("mean us", 8),
    number("p50 us", 8),
    number("p99 us", 8),
    number("p99.9 us", 8),
    number("p99.99 us", 9),
    number("max us", 8),
    number("cached", 6),
];

const CSV_HEADER: &[&str] = &[
    "mode",
    "jobs",
    "file_bytes",
    "block_bytes",
    "seconds",
    "reads",
    "iops",
    "mib_per_s",
    "mean_us",
    "min_us",
    "p50_us",
    "p90_us",
    "p99_us",
    "p999_us",
    "p9999_us",
    "max_us",
    "cached_before",
];

impl Disk {
    fn check(&self) -> Result<Duration> {
        if self.block == 0 || !self.block.is_multiple_of(512) || DISK_BLOCK_BYTES_MAX < self.block {
            bail_usage!("--block is a multiple of 512, up to {}", bytes_text(DISK_BLOCK_BYTES_MAX));
        }
        let blocks = self.size / self.block;
        if blocks == 0 || DISK_BLOCKS_MAX < blocks {
            bail_usage!("--size is 1 to {DISK_BLOCKS_MAX} times --block");
        }
        if self.jobs.is_empty() || self.mode.is_empty() {
            bail_usage!("--jobs and --mode need at least one value");
        }
        if self.jobs.iter().any(|jobs| *jobs == 0 || DISK_JOBS_MAX < *jobs) {
            bail_usage!("--jobs are 1 to {DISK_JOBS_MAX}");
        }
        if self.seconds < 0.01 || 3_600.0 < self.seconds {
            bail_usage!("--seconds is 0.01 to 3600");
        }
        Duration::try_from_secs_f64(self.seconds).context("--seconds")
    }
}

pub fn disk(arguments: &Disk) -> Result<()> {
    let limit = arguments.check()?;
    let cleanup = Cleanup::install()?;
    let parent = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let directory = cleanup.directory(&parent)?;
    let about = about(arguments, &parent)?;
    println!("{about}");
    let csv = arguments.csv.as_deref();
    let mut csv = csv.map(|path| Csv::open(path, &about, CSV_HEADER)).transpose()?;
    let size = arguments.size - arguments.size % arguments.block;
    let file = TestFile::make(&directory.path().join("random"), size, arguments.seed)?;
    let mut measured = Vec::new();
    for mode in &arguments.mode {
        for jobs in &arguments.jobs {
            let plan = Plan {
                mode: *mode,
                jobs: *jobs,
                block_bytes: arguments.block,
                limit,
                seed: arguments.seed,
            };
            let Some(one) = jobs::measure(&file, &plan)
                .with_context(|| format!("{} reads, {jobs} jobs", mode.name()))?
            else {
                println!("\n{}: left out, the file system has no O_DIRECT", mode.name());
                break;
            };
            println!("\n{}", fio::text(&one));
            if let Some(csv) = &mut csv {
                csv.append(&csv_fields(&one, size))?;
            }
            measured.push(one);
        }
    }
    println!("\n{}", report::heading(COLUMNS));
    measured.iter().for_each(|one| println!("{}", report::row(COLUMNS, &cases(one))));
    if let Some(path) = &arguments.json {
        std::fs::write(path, fio::json(&measured))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn about(arguments: &Disk, parent: &std::path::Path) -> Result<String> {
    let mut parts = vec![utc_now(), machine::describe()];
    parts.push(format!("a file of {} in {}", bytes_text(arguments.size), parent.display()));
    parts.push(format!("random reads of {}", bytes_text(arguments.block)));
    if machine::is_memory_file_system(parent)? {
        parts.push("WHICH IS IN MEMORY: no disk is measured".to_owned());
    }
    Ok(parts.join("; "))
}

fn cases(measured: &Measured) -> Vec<String> {
    let percentile = |percent| measurement(percentile_us(&measured.latency_ns, percent));
    vec![
        measured.mode.name().to_owned(),
        measured.jobs.to_string(),
        measurement(measured.iops()),
        measurement(measured.mib_per_s()),
        measurement(measured.latency_ns.mean() / 1_000.0),
        percentile(50.0),
        percentile(99.0),
        percentile(99.9),
        percentile(99.99),
        percentile(100.0),
        report::percent_or_dash(measured.cached_before),
    ]
}

fn csv_fields(measured: &Measured, file_bytes: u64) -> Vec<String> {
    let percentile = |percent| format!("{:.3}", percentile_us(&measured.latency_ns, percent));
    vec![
        measured.mode.name().to_owned(),
        measured.jobs.to_string(),
        file_bytes.to_string(),
        measured.block_bytes.to_string(),
        format!("{:.3}", measured.seconds),
        measured.reads().to_string(),
        format!("{:.1}", measured.iops()),
        format!("{:.2}", measured.mib_per_s()),
        format!("{:.3}", measured.latency_ns.mean() / 1_000.0),
        percentile(0.0),
        percentile(50.0),
        percentile(90.0),
        percentile(99.0),
        percentile(99.9),
        percentile(99.99),
        percentile(100.0),
        measured.cached_before.map(|share| format!("{share:.4}")).unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn check(arguments: &[&str]) -> Result<Duration> {
        let cli = Cli::try_parse_from(["busload-bench", "disk"].iter().chain(arguments))?;
        match cli.command {
            Command::Disk(disk) => disk.check(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        assert_eq!(check(&[]).unwrap(), Duration::from_secs(5));
        assert!(
            check(&["--size", "2M", "--block", "4k", "--jobs", "3", "--mode", "direct"]).is_ok()
        );
        for wrong in [
            &["--block", "1000"][..],
            &["--block", "0"],
            &["--size", "4k"],
            &["--jobs", "0"],
            &["--seconds", "0"],
            &["--block", "1T"],
        ] {
            assert!(check(wrong).is_err(), "{wrong:?}");
        }
    }
}
