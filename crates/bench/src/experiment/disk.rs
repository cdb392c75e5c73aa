//! `disk`: what the disk below a cache and below a log can do, measured by fio.

use std::{
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use rustix::{fs::OFlags, process::Signal};
use serde_json::Value;

use crate::{
    bytes::{bytes_text, parse_bytes},
    cleanup::Cleanup,
    cli::{bail_usage, name_of},
    harness::{
        Number, Sample, Table, TableLayout,
        arguments::{count, seconds},
        label,
        sample::{MAX_US, MEAN_US, P50_US, P99_US, P999_US},
        shown,
    },
    limits::{DISK_JOBS_MAX, STOP},
    machine,
};

const HELP: &str = "\
What is measured
  fio (https://github.com/axboe/fio, engine psync) with --jobs threads, for --seconds or until every
  block was read or written once. Latency is that of the call (fio's clat), of an append that of
  fdatasync. The file is written once with random bytes, synced, and removed at the end. Each job
  reads a part of its own, each block once, so that no read finds in the page cache what another one
  brought there. `x first` is IOPS beside those of the first row of the mode.

  buffered   random reads through the page cache; fio drops the file's pages before it begins, and
             reads without readahead. The cache of a virtual machine's host cannot be dropped.
  direct     random reads by O_DIRECT, past the page cache; some file systems have none.
  append     blocks one after the other through the page cache, each followed by fdatasync, as a
             log writes: IOPS are syncs a second. Each job has a file of its own.

Examples
  busload-bench disk --dir /data          1 GiB, 16 KiB, every mode, 1 and 16 jobs
  busload-bench disk --dir /data --mode append --block 4k --jobs 1";

#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct Disk {
    /// Directory of the file [default: the system's directory for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Bytes of the file, as 512M, 1G
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "1G")]
    size: u64,
    /// Bytes of a read or an append; a multiple of 512
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "16k")]
    block: u64,
    /// Numbers of threads
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,16")]
    #[arg(value_parser = count::<1, DISK_JOBS_MAX>)]
    jobs: Vec<usize>,
    /// Patterns
    #[arg(long, value_enum, value_delimiter = ',', default_value = "buffered,direct,append")]
    mode: Vec<Mode>,
    /// Seconds of a measurement, at most
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    seconds: Duration,
    /// Append the measurements to this file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// The fio binary
    #[arg(long, value_name = "PATH", default_value = "fio")]
    fio: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Random reads through the page cache
    Buffered,
    /// Random reads past it: `O_DIRECT`
    Direct,
    /// Appends, each followed by fdatasync
    Append,
}

#[derive(Clone, Copy)]
struct Case {
    mode: Mode,
    jobs: usize,
}

const IOPS: Number = Number::new("iops", "IOPS");
const X_FIRST: Number = Number::new("x_first", "x first");
const MIB_PER_S: Number = Number::new("mib_per_s", "MiB/s");

const LAYOUT: TableLayout<Case> = TableLayout {
    columns: &[
        label("mode", "mode", 8, |case| name_of(&case.mode)),
        label("jobs", "jobs", 4, |case| case.jobs.to_string()),
        shown(IOPS),
        shown(X_FIRST),
        shown(MIB_PER_S),
        shown(MEAN_US),
        shown(P50_US),
        shown(P99_US),
        shown(P999_US),
        shown(MAX_US),
    ],
    main: IOPS,
    ratios: |row, rows| {
        let first = rows.iter().find(|other| other.case.mode == row.case.mode);
        let first = first.and_then(|first| first.sample.get(IOPS));
        vec![(X_FIRST, first.map(|first| row.sample.or_zero(IOPS) / first))]
    },
};

pub fn disk(arguments: &Disk) -> Result<()> {
    let Disk { size, block, seconds, .. } = *arguments;
    let jobs_max = u64::try_from(arguments.jobs.iter().copied().max().unwrap_or(1))?;
    if block == 0 || !block.is_multiple_of(512) || size / block < jobs_max {
        bail_usage!("--block is a multiple of 512, --size a block for each job at least");
    }
    let cleanup = Cleanup::install()?;
    let parent = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let sizes = format!("a file of {}, blocks of {}", bytes_text(size), bytes_text(block));
    let about = machine::about(&[&arguments.fio], [sizes, machine::directory_text(&parent)?]);
    let about = about.context("`disk` needs fio (apt install fio), or name it by --fio")?;
    println!("{about}");
    let directory = cleanup.directory(&parent)?;
    let mut table = Table::open(&LAYOUT, arguments.csv.as_deref(), &about)?;
    let file = format!("--filename={}", directory.path().join("random").display());
    let own_files = format!("--directory={}", directory.path().display());
    let fio = |place: &str, options: String| {
        let mut command = Command::new(&arguments.fio);
        fio(&cleanup, command.arg(place).args(options.split(' ')))
    };
    let make = "--name=make --rw=write --bs=1M --refill_buffers --end_fsync=1";
    fio(&file, format!("{make} --size={size}"))?;
    let mut modes = arguments.mode.clone();
    if modes.contains(&Mode::Direct) && !has_direct(&directory.path().join("random")) {
        println!("direct: left out, the file system has no O_DIRECT");
        modes.retain(|mode| *mode != Mode::Direct);
    }
    let of_mode = |&mode: &Mode| arguments.jobs.iter().map(move |&jobs| Case { mode, jobs });
    let cases: Vec<_> = modes.iter().flat_map(of_mode).collect();
    let measured = table.group("Reads and synced appends", &cases, 1, |case, _| {
        // Each job has whole blocks of its own.
        let part = (size / block / u64::try_from(case.jobs)? * block).max(block);
        let reads = format!("--rw=randread --fadvise_hint=random --offset_increment={part}");
        let (place, pattern) = match case.mode {
            Mode::Buffered => (&file, format!("{reads} --direct=0 --invalidate=1")),
            Mode::Direct => (&file, format!("{reads} --direct=1")),
            Mode::Append => (
                &own_files,
                "--rw=write --direct=0 --fdatasync=1 --fallocate=none --unlink=1".to_owned(),
            ),
        };
        let (name, jobs, milliseconds) = (name_of(&case.mode), case.jobs, seconds.as_millis());
        let always = format!(
            "--name={name} --size={part} --bs={block} --numjobs={jobs} --runtime={milliseconds}ms \
             --randseed=1 --ioengine=psync --thread --group_reporting"
        );
        let report = fio(place, format!("{always} {pattern}"))?;
        let job = &report["jobs"][0];
        let sample = sample_of(job, case.mode);
        if job["error"] != 0 || sample.or_zero(IOPS) == 0.0 {
            bail!("fio did nothing: {job}");
        }
        Ok(sample)
    });
    measured.map(drop)
}

/// Reads a job of fio's report; 0 where fio has no number.
fn sample_of(job: &Value, mode: Mode) -> Sample {
    let (of, times) = match mode {
        Mode::Append => (&job["write"], &job["sync"]["lat_ns"]),
        _ => (&job["read"], &job["read"]["clat_ns"]),
    };
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let percentile_us = |percent: &str| number(&times["percentile"][percent]) / 1e3;
    Sample::default()
        .with(IOPS, number(&of["iops"]))
        .with(MIB_PER_S, number(&of["bw_bytes"]) / 1_048_576.0)
        .with(MEAN_US, number(&times["mean"]) / 1e3)
        .with(P50_US, percentile_us("50.000000"))
        .with(P99_US, percentile_us("99.000000"))
        .with(P999_US, percentile_us("99.900000"))
        .with(MAX_US, number(&times["max"]) / 1e3)
}

/// Runs fio to its end and returns its report.
fn fio(cleanup: &Cleanup, command: &mut Command) -> Result<Value> {
    command.arg("--output-format=json").stdin(Stdio::null()).stdout(Stdio::piped());
    let process = cleanup.spawn(command)?;
    let pipe = process.child().stdout.take().context("fio without a pipe")?;
    let report = std::io::read_to_string(pipe).context("reading fio's report")?;
    // Its pipe is closed, so it has ended or is about to: the signal finds nothing to do.
    let status = process.stop(Signal::CONT, STOP)?;
    if !status.success() {
        bail!("fio ended with {status}: {}", report.trim());
    }
    // Notes of fio may stand before its report.
    let json = report.find('{').map(|from| &report[from..]).context("fio without JSON")?;
    serde_json::from_str(json).context("fio's JSON")
}

fn has_direct(file: &Path) -> bool {
    let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0);
    std::fs::OpenOptions::new().read(true).custom_flags(flags).open(file).is_ok()
}
