//! System calls of another process, counted by `perf stat` where that works: what `/proc` tells
//! leaves out those of sockets.
//!
//! perf counts the processor time of the process beside its calls. So the two need not be counted
//! in the window of a load: calls by microsecond of processor time, times microseconds by request,
//! are calls by request.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};

use crate::{
    cleanup::{Cleanup, Process},
    limits::STOP,
    stats::ratio,
};

const CALLS: &str = "raw_syscalls:sys_enter";
const PROCESSOR_MS: &str = "task-clock";

/// A count that goes on.
pub struct Counting {
    process: Process,
    output: PathBuf,
}

impl Counting {
    /// Starts to count those of a process and its threads, for a time.
    pub fn start(cleanup: &Cleanup, pid: Pid, time: Duration, output: PathBuf) -> Result<Self> {
        let mut perf = Command::new("perf");
        perf.args(["stat", "-x", ",", "-e", &format!("{CALLS},{PROCESSOR_MS}"), "-p"]);
        perf.arg(pid.as_raw_nonzero().to_string()).arg("-o").arg(&output);
        perf.args(["--", "sleep", &time.as_secs_f64().to_string()]);
        perf.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { process: cleanup.spawn(&mut perf)?, output })
    }

    /// Waits for the end, and returns the calls by microsecond of processor time.
    pub fn calls_per_us(self) -> Result<f64> {
        // It ends by itself when its time is over: the signal says nothing to it.
        let status = self.process.stop(Signal::CONT, STOP)?;
        let report = fs::read_to_string(&self.output).context("no report of perf")?;
        match calls_per_us(&report) {
            Some(calls) if status.success() => Ok(calls),
            _ => bail!("perf counts nothing here ({status})"),
        }
    }
}

/// Reads a report: lines of a value, its unit, the event, and more.
fn calls_per_us(report: &str) -> Option<f64> {
    let value = |event: &str| {
        let mut lines = report.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let fields = lines.find(|fields| fields.get(2).is_some_and(|name| *name == event))?;
        fields[0].parse::<f64>().ok()
    };
    ratio(value(CALLS)?, value(PROCESSOR_MS)? * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_processor_time() {
        let report = "# started on\n\n5000,,raw_syscalls:sys_enter,9,100.00,,\n\
                      20.000000,msec,task-clock,20000000,100.00,0.2,CPUs utilized\n";
        assert_eq!(calls_per_us(report), Some(0.25));
        let none = report.replace("5000,", "<not counted>,");
        assert_eq!((calls_per_us(&none), calls_per_us("")), (None, None));
    }
}
