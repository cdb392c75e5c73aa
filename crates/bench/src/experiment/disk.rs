//! `disk`: random reads of a file by fio: what the disk below a cache can do.
//!
//! fio writes a file of random bytes once and then reads it in every mode with every number of
//! jobs. Each job reads a part of the file of its own, each block once, so that no read finds in
//! the page cache what another one brought there.

use std::{
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    bytes::{bytes_text, parse_bytes},
    cleanup::Cleanup,
    cli::bail_usage,
    clock::utc_now,
    limits::{DISK_BLOCK_BYTES_MAX, DISK_BLOCKS_MAX, DISK_JOBS_MAX, STOP},
    machine,
    report::{self, Column, Csv, Field, field, measurement, number, text},
};

const HELP: &str = "\
What is measured
  fio (https://github.com/axboe/fio, engine psync) reads blocks of a file at random with --jobs
  threads, for --seconds or until every block was read once. Latency is that of the read call
  (fio's clat).

  buffered   through the page cache; fio drops the file's pages before it begins, and reads
             without readahead. The cache of a virtual machine's host cannot be dropped.
  direct     O_DIRECT, past the page cache. File systems without it are left out.

  The file is written once with random bytes, synced, and removed at the end.

Examples
  busload-bench disk --dir /data          1 GiB, 16 KiB, buffered and direct, 1 and 16 jobs
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
    pub jobs: Vec<u64>,
    /// Through the page cache, or past it
    #[arg(long, value_enum, value_delimiter = ',', default_value = "buffered,direct")]
    pub mode: Vec<Mode>,
    /// Seconds of a measurement, at most
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    pub seconds: f64,
    /// Decides the order of the blocks
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write fio's JSON of all measurements to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Append the measurements to this file
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// The fio binary
    #[arg(long, value_name = "PATH", default_value = "fio")]
    pub fio: PathBuf,
}

/// Ways to open the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Through the page cache
    Buffered,
    /// Past it: `O_DIRECT`
    Direct,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::Buffered => "buffered",
            Self::Direct => "direct",
        }
    }
}

/// Measurement, as fio reports it in an element of `jobs`.
struct Measured {
    mode: Mode,
    jobs: u64,
    file_bytes: u64,
    block_bytes: u64,
    report: Value,
}

impl Measured {
    /// A number below `read`, as `/iops`; 0 where fio has none.
    fn number(&self, pointer: &str) -> f64 {
        self.report["read"].pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0)
    }

    fn mib_per_s(&self) -> f64 {
        self.number("/bw_bytes") / 1_048_576.0
    }

    /// A latency of the read call in microseconds, as `min` or `percentile/99.000000`.
    fn us(&self, name: &str) -> f64 {
        self.number(&format!("/clat_ns/{name}")) / 1_000.0
    }

    fn percentile_us(&self, percent: &str) -> f64 {
        self.us(&format!("percentile/{percent}0000"))
    }
}

const COLUMNS: &[Column<Measured>] = &[
    text("mode", 8, |one| one.mode.name().to_owned()),
    number("jobs", 4, |one| one.jobs.to_string()),
    number("IOPS", 8, |one| measurement(one.number("/iops"))),
    number("MiB/s", 7, |one| measurement(one.mib_per_s())),
    number("mean us", 8, |one| measurement(one.us("mean"))),
    number("p50 us", 8, |one| measurement(one.percentile_us("50.00"))),
    number("p99 us", 8, |one| measurement(one.percentile_us("99.00"))),
    number("p99.9 us", 8, |one| measurement(one.percentile_us("99.90"))),
    number("p99.99 us", 9, |one| measurement(one.percentile_us("99.99"))),
    number("max us", 8, |one| measurement(one.us("max"))),
];

const FIELDS: &[Field<Measured>] = &[
    field("mode", |one| one.mode.name().to_owned()),
    field("jobs", |one| one.jobs.to_string()),
    field("file_bytes", |one| one.file_bytes.to_string()),
    field("block_bytes", |one| one.block_bytes.to_string()),
    field("seconds", |one| format!("{:.3}", one.number("/runtime") / 1e3)),
    field("reads", |one| format!("{:.0}", one.number("/total_ios"))),
    field("iops", |one| format!("{:.1}", one.number("/iops"))),
    field("mib_per_s", |one| format!("{:.2}", one.mib_per_s())),
    field("mean_us", |one| format!("{:.3}", one.us("mean"))),
    field("min_us", |one| format!("{:.3}", one.us("min"))),
    field("p50_us", |one| format!("{:.3}", one.percentile_us("50.00"))),
    field("p90_us", |one| format!("{:.3}", one.percentile_us("90.00"))),
    field("p99_us", |one| format!("{:.3}", one.percentile_us("99.00"))),
    field("p999_us", |one| format!("{:.3}", one.percentile_us("99.90"))),
    field("p9999_us", |one| format!("{:.3}", one.percentile_us("99.99"))),
    field("max_us", |one| format!("{:.3}", one.us("max"))),
];

impl Disk {
    fn check(&self) -> Result<()> {
        if self.block == 0 || !self.block.is_multiple_of(512) || DISK_BLOCK_BYTES_MAX < self.block {
            bail_usage!("--block is a multiple of 512, up to {}", bytes_text(DISK_BLOCK_BYTES_MAX));
        }
        if self.jobs.is_empty() || self.mode.is_empty() {
            bail_usage!("--jobs and --mode need at least one value");
        }
        if self.jobs.iter().any(|jobs| *jobs == 0 || DISK_JOBS_MAX < *jobs) {
            bail_usage!("--jobs are 1 to {DISK_JOBS_MAX}");
        }
        let (blocks, jobs) = (self.size / self.block, self.jobs.iter().copied().max());
        if blocks < jobs.unwrap_or(1) || DISK_BLOCKS_MAX < blocks {
            bail_usage!("--size is a block for each job at least, {DISK_BLOCKS_MAX} at most");
        }
        if !(0.01..=3_600.0).contains(&self.seconds) {
            bail_usage!("--seconds is 0.01 to 3600");
        }
        Ok(())
    }

    /// fio's arguments for one measurement. Each job reads whole blocks of a part of its own.
    fn measurement(&self, file: &Path, mode: Mode, jobs: u64) -> Vec<String> {
        let part = self.size / self.block / jobs * self.block;
        let mut arguments = vec![
            format!("--name=randread-{}", mode.name()),
            format!("--filename={}", file.display()),
            format!("--size={part}"),
            format!("--offset_increment={part}"),
            format!("--bs={}", self.block),
            format!("--numjobs={jobs}"),
            format!("--direct={}", u8::from(mode == Mode::Direct)),
            format!("--runtime={}ms", (self.seconds * 1e3).ceil()),
            format!("--randseed={}", self.seed),
        ];
        let same = "--rw=randread --ioengine=psync --fadvise_hint=random --invalidate=1 --thread \
                    --group_reporting --output-format=normal,json";
        arguments.extend(same.split_ascii_whitespace().map(str::to_owned));
        arguments
    }
}

pub fn disk(arguments: &Disk) -> Result<()> {
    arguments.check()?;
    let cleanup = Cleanup::install()?;
    let parent = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let directory = cleanup.directory(&parent)?;
    let about = about(arguments, &parent)?;
    println!("{about}");
    let csv = arguments.csv.as_deref();
    let mut csv = csv.map(|path| Csv::open(path, &about, FIELDS)).transpose()?;
    let file = directory.path().join("random");
    let make = format!("--name=make --size={} --filename={}", arguments.size, file.display());
    let write = "--rw=write --bs=1M --refill_buffers --end_fsync=1 --output-format=terse";
    let make = make.split(' ').chain(write.split(' ')).map(str::to_owned).collect::<Vec<_>>();
    fio(&cleanup, &arguments.fio, &make)?;
    let mut measured = Vec::new();
    for mode in &arguments.mode {
        for jobs in &arguments.jobs {
            let run = fio(&cleanup, &arguments.fio, &arguments.measurement(&file, *mode, *jobs));
            let run = match run {
                Err(error) if *mode == Mode::Direct && format!("{error}").contains("direct=1") => {
                    println!("\ndirect: left out, the file system has no O_DIRECT");
                    break;
                }
                run => run.with_context(|| format!("{} reads, {jobs} jobs", mode.name()))?,
            };
            let (shown, report) = split(&run)?;
            println!("\n{shown}");
            let (file_bytes, block_bytes) = (arguments.size, arguments.block);
            let one = Measured { mode: *mode, jobs: *jobs, file_bytes, block_bytes, report };
            if let Some(csv) = &mut csv {
                csv.append(&one)?;
            }
            measured.push(one);
        }
    }
    report::print("Random reads", COLUMNS, &measured);
    if let Some(path) = &arguments.json {
        let jobs: Vec<_> = measured.iter().map(|one| &one.report).collect();
        std::fs::write(path, format!("{:#}\n", json!({ "jobs": jobs })))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn about(arguments: &Disk, parent: &Path) -> Result<String> {
    let version = machine::program_version(&arguments.fio)
        .context("`disk` needs fio, which is in most distributions (or name it by --fio)")?;
    let mut parts = vec![utc_now(), machine::describe(), version];
    parts.push(format!("a file of {} in {}", bytes_text(arguments.size), parent.display()));
    parts.push(format!("random reads of {}", bytes_text(arguments.block)));
    if machine::is_memory_file_system(parent)? {
        parts.push("WHICH IS IN MEMORY: no disk is measured".to_owned());
    }
    Ok(parts.join("; "))
}

/// Runs fio to its end; what it printed.
fn fio(cleanup: &Cleanup, fio: &Path, arguments: &[String]) -> Result<String> {
    let mut command = Command::new(fio);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let process = cleanup.spawn(&mut command)?;
    let (mut shown, mut warnings) = (String::new(), String::new());
    if let Some(mut pipe) = process.with_child(|child| child.stdout.take()) {
        pipe.read_to_string(&mut shown).context("reading fio's report")?;
    }
    if let Some(mut pipe) = process.with_child(|child| child.stderr.take()) {
        pipe.read_to_string(&mut warnings).context("reading fio's errors")?;
    }
    // Its pipes are closed, so it has ended or is about to: the signal finds nothing to do.
    let status = process.stop(Signal::CONT, STOP)?;
    if !status.success() {
        bail!("fio ended with {status}: {}{}", warnings.trim(), shown.trim());
    }
    Ok(shown)
}

/// fio's report for people, and the element of `jobs` in its JSON.
fn split(shown: &str) -> Result<(String, Value)> {
    let from = shown.find("\n{\n").map(|position| position + 1);
    let from =
        from.or_else(|| shown.starts_with("{\n").then_some(0)).context("fio without JSON")?;
    let mut values = serde_json::Deserializer::from_str(&shown[from..]).into_iter::<Value>();
    let mut json = values.next().context("fio without JSON")?.context("fio's JSON")?;
    let text = format!("{}\n{}", &shown[..from], &shown[from + values.byte_offset()..]);
    let report = json["jobs"][0].take();
    if report["error"] != 0 || report["read"]["total_ios"].as_u64().unwrap_or(0) == 0 {
        bail!("fio read nothing: {report}");
    }
    Ok((text.trim().to_owned(), report))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn parse(arguments: &[&str]) -> Result<Disk> {
        let cli = Cli::try_parse_from(["busload-bench", "disk"].iter().chain(arguments))?;
        let Command::Disk(disk) = cli.command else { panic!("another command") };
        disk.check()?;
        Ok(disk)
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        parse(&["--size", "2M", "--block", "4k", "--jobs", "3", "--mode", "direct"]).unwrap();
        for wrong in [
            ["--block", "1000"],
            ["--block", "0"],
            ["--size", "4k"],
            ["--jobs", "0"],
            ["--seconds", "0"],
            ["--block", "1T"],
        ] {
            assert!(parse(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn jobs_read_parts_that_do_not_overlap() {
        let disk = parse(&["--size", "1M", "--block", "16k"]).unwrap();
        let arguments = disk.measurement(Path::new("/f"), Mode::Buffered, 3);
        // 64 blocks are 21 for each of three jobs.
        assert!(arguments.contains(&format!("--size={}", 21 * 16_384)), "{arguments:?}");
        assert!(arguments.contains(&format!("--offset_increment={}", 21 * 16_384)));
    }

    #[test]
    fn a_report_is_split_into_text_and_measurements() {
        let shown = "randread: rw=randread\n{\n \"jobs\": [{\"error\": 0, \"read\": \
                     {\"total_ios\": 64, \"iops\": 9.5}}]}\n\nRun status";
        let (text, report) = split(shown).unwrap();
        assert_eq!(text, "randread: rw=randread\n\n\n\nRun status");
        assert_eq!(report["read"]["iops"], 9.5);
        assert!(split("no JSON").is_err());
        assert!(split("{\n\"jobs\": [{\"error\": 5}]}").is_err());
    }
}
