//! System calls of a running server, counted by strace.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::{cleanup::Cleanup, clock::pause, limits::READY, stats::float};

/// Length of the load around a count: long enough for strace to attach, count and leave.
pub const LOAD: Duration = Duration::from_secs(3);
const COUNT: Duration = Duration::from_secs(1);

/// Returns whether strace can be run.
pub fn is_available() -> bool {
    Command::new("strace").arg("-V").output().is_ok_and(|output| output.status.success())
}

/// Counts the calls of process `pid` for a second while `load` runs on this thread; `requests`
/// tells how many requests were answered so far. Returns calls per request and, in words, the most
/// frequent kinds; `None` where strace may not attach.
pub fn count(
    cleanup: &Cleanup,
    pid: Pid,
    requests: impl Fn() -> u64 + Sync,
    load: impl FnOnce() -> Result<()>,
) -> Result<Option<(f64, String)>> {
    std::thread::scope(|scope| {
        let counting = scope.spawn(|| attach(cleanup, pid, &requests));
        load()?;
        counting.join().unwrap_or_else(|_| bail!("the thread beside strace panicked"))
    })
}

fn attach(
    cleanup: &Cleanup,
    pid: Pid,
    requests: &impl Fn() -> u64,
) -> Result<Option<(f64, String)>> {
    // Connecting is not what is counted: the load must be under way when strace attaches.
    pause(COUNT / 2);
    let mut command = Command::new("strace");
    command.args(["-c", "-f", "-p", &pid.as_raw_nonzero().to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let process = cleanup.spawn(&mut command)?;
    let pipe = process.child().stderr.take().context("strace without stderr")?;
    let mut lines = BufReader::new(pipe).lines();
    let mut attached = lines
        .by_ref()
        .skip_while(|line| line.as_ref().is_ok_and(|line| !line.contains("attached")));
    if attached.next().transpose()?.is_none() {
        return Ok(None);
    }
    let before = requests();
    pause(COUNT);
    kill_process(process.pid(), Signal::INT).context("stopping strace")?;
    let answered = requests() - before;
    let table = lines.collect::<Result<Vec<_>, _>>().context("reading strace's table")?;
    process.wait(READY)?;
    Ok(Some(per_request(&table.join("\n"), answered)))
}

/// Reads the rows of `strace -c`: share, seconds, microseconds per call, calls, perhaps errors,
/// name.
fn per_request(table: &str, requests: u64) -> (f64, String) {
    let row = |row: &str| {
        let words: Vec<_> = row.split_ascii_whitespace().collect();
        words.first()?.parse::<f64>().ok()?;
        let calls: u64 = words.get(3)?.parse().ok()?;
        let name = words.last().filter(|name| **name != "total")?;
        Some((float(calls) / float(requests.max(1)), (*name).to_owned()))
    };
    let mut kinds: Vec<_> = table.lines().filter_map(row).collect();
    kinds.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let per_request = kinds.iter().map(|(calls, _)| calls).sum();
    let most = kinds.iter().take(3).map(|(calls, name)| format!("{name} {calls:.2}"));
    (per_request, most.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_strace_is_understood() {
        let table = "strace: Process 12 detached\n\
             % time     seconds  usecs/call     calls    errors syscall\n\
             ------ ----------- ----------- --------- --------- ----------------\n \
             60.00    0.100000           5       200           sendto\n \
             30.00    0.050000           5       300        10 recvfrom\n \
             10.00    0.010000           1       100           epoll_wait\n\
             100.00    0.160000           2       600        10 total\n";
        let most = "recvfrom 0.75, sendto 0.50, epoll_wait 0.25".to_owned();
        assert_eq!(per_request(table, 400), (1.5, most));
    }
}
