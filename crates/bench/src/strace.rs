//! System calls of a running server, counted by strace.

use std::{
    io::{BufRead, BufReader},
    process::{ChildStderr, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::{cleanup::Cleanup, clock::pause, limits::READY, stats::float};

/// Length of the load around a count: long enough for strace to attach, count and leave.
pub const LOAD: Duration = Duration::from_secs(3);

/// Length of a count of calls.
const COUNT: Duration = Duration::from_secs(1);

/// Number of kinds of calls that are shown.
const KINDS_SHOWN: usize = 3;

/// System calls over some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemCalls {
    /// Kinds with their counts, most frequent first.
    kinds: Vec<(String, u64)>,
    requests: u64,
}

impl SystemCalls {
    /// Returns calls per request answered meanwhile.
    pub fn per_request(&self) -> f64 {
        let calls = self.kinds.iter().map(|(_, calls)| calls).sum();
        float(calls) / float(self.requests.max(1))
    }

    /// The most frequent kinds, per request.
    pub fn most(&self) -> String {
        let kinds = self.kinds.iter().take(KINDS_SHOWN);
        let kinds: Vec<_> = kinds
            .map(|(name, calls)| {
                format!("{name} {:.2}", float(*calls) / float(self.requests.max(1)))
            })
            .collect();
        kinds.join(", ")
    }
}

/// Whether strace can be run.
pub fn is_available() -> bool {
    let version =
        Command::new("strace").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// Counts the calls of process `pid` for a second while `load` runs on this thread; `requests`
/// tells how many requests were answered so far. `None` where strace may not attach.
pub fn count(
    cleanup: &Cleanup,
    pid: Pid,
    requests: impl Fn() -> u64 + Sync,
    load: impl FnOnce() -> Result<()>,
) -> Result<Option<SystemCalls>> {
    std::thread::scope(|scope| {
        let counting = scope.spawn(|| attach(cleanup, pid, &requests));
        load()?;
        match counting.join() {
            Ok(counted) => counted,
            Err(_) => bail!("the thread beside strace panicked"),
        }
    })
}

fn attach(cleanup: &Cleanup, pid: Pid, requests: &impl Fn() -> u64) -> Result<Option<SystemCalls>> {
    // Connecting is not what is counted: the load must be under way when strace attaches.
    pause(COUNT / 2);
    let mut command = Command::new("strace");
    command.args(["-c", "-f", "-p", &pid.as_raw_nonzero().to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let process = cleanup.spawn(&mut command)?;
    let pipe = process.with_child(|child| child.stderr.take()).context("strace without stderr")?;
    let mut output = BufReader::new(pipe);
    if !wait_attached(&mut output)? {
        return Ok(None);
    }
    let before = requests();
    pause(COUNT);
    kill_process(process.pid(), Signal::INT).context("stopping strace")?;
    let answered = requests() - before;
    let table = std::io::read_to_string(&mut output).context("reading strace's table")?;
    process.stop(Signal::INT, READY)?;
    Ok(Some(SystemCalls { kinds: parse(&table), requests: answered }))
}

fn wait_attached(output: &mut BufReader<ChildStderr>) -> Result<bool> {
    let mut line = String::new();
    while output.read_line(&mut line)? != 0 {
        if line.contains("attached") {
            return Ok(true);
        }
        line.clear();
    }
    Ok(false)
}

/// The rows of `strace -c`: share, seconds, microseconds per call, calls, perhaps errors, name.
fn parse(table: &str) -> Vec<(String, u64)> {
    let mut kinds: Vec<_> = table.lines().filter_map(parse_row).collect();
    kinds.sort_by_key(|(_, calls)| std::cmp::Reverse(*calls));
    kinds
}

fn parse_row(row: &str) -> Option<(String, u64)> {
    let words: Vec<_> = row.split_ascii_whitespace().collect();
    words.first()?.parse::<f64>().ok()?;
    let calls = words.get(3)?.parse().ok()?;
    let name = words.last().filter(|name| **name != "total")?;
    Some(((*name).to_owned(), calls))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
strace: Process 12 detached
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.100000           5       200           sendto
 30.00    0.050000           5       300        10 recvfrom
 10.00    0.010000           1       100           epoll_wait
------ ----------- ----------- --------- --------- ----------------
100.00    0.160000           2       600        10 total
";

    #[test]
    fn the_table_of_strace_is_understood() {
        let calls = SystemCalls { kinds: parse(TABLE), requests: 400 };
        assert!((calls.per_request() - 1.5).abs() < 1e-9);
        assert_eq!(calls.most(), "recvfrom 0.75, sendto 0.50, epoll_wait 0.25");
    }

    #[test]
    fn what_is_no_table_gives_no_calls() {
        assert_eq!(parse("strace: attach: Operation not permitted\n"), []);
    }
}
