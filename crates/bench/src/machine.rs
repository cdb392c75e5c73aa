//! Facts that the system tells about processors and processes.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context, Result};
use rustix::{
    param::{clock_ticks_per_second, page_size},
    process::Pid,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

/// `statfs` types of file systems that are memory.
const TMPFS_MAGIC: i64 = 0x0102_1994;
const RAMFS_MAGIC: i64 = 0x8584_58f6;

/// A set of processors, as `0` or `0-3,8`; an empty one, `any`, is none in particular.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuList(BTreeSet<usize>);

impl std::str::FromStr for CpuList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no list of processors as 0 or 0-3,8");
        let mut list = BTreeSet::new();
        for part in text.split(',').filter(|_| text != "any") {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: usize = first.parse().map_err(|_| wrong())?;
            let last: usize = last.parse().map_err(|_| wrong())?;
            if last < first || CpuSet::MAX_CPU <= last {
                return Err(wrong());
            }
            list.extend(first..=last);
        }
        Ok(Self(list))
    }
}

impl CpuList {
    /// Runs `action` with this thread bound to these processors; children started by it inherit
    /// that from their first instruction on. Afterwards the thread is bound as before.
    pub fn with<T>(&self, action: impl FnOnce() -> Result<T>) -> Result<T> {
        let before = sched_getaffinity(None).context("sched_getaffinity")?;
        self.bind_thread()?;
        let result = action();
        sched_setaffinity(None, &before).context("sched_setaffinity")?;
        result
    }

    /// Binds the calling thread to these processors.
    pub fn bind_thread(&self) -> Result<()> {
        let mut set = CpuSet::new();
        self.0.iter().for_each(|cpu| set.set(*cpu));
        let bound = if self.0.is_empty() { Ok(()) } else { sched_setaffinity(None, &set) };
        bound.with_context(|| format!("cannot run on processor {self}; choose others or `any`"))
    }
}

impl std::fmt::Display for CpuList {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let numbers: Vec<_> = self.0.iter().map(usize::to_string).collect();
        out.write_str(
            if numbers.is_empty() { "any".to_owned() } else { numbers.join(",") }.as_str(),
        )
    }
}

/// Processor time a process has used, all its threads together, in nanoseconds; `None` when it is
/// gone. Exact to one clock tick (10 ms).
pub fn process_cpu_ns(pid: Pid) -> Option<u64> {
    cpu_ns(&stat_of(pid)?, 2)
}

/// Processor time of a process, its children and those of its children that ended, in nanoseconds:
/// a Postgres server, whose sessions are processes. `None` when it is gone.
pub fn family_cpu_ns(parent: Pid) -> Option<u64> {
    let own_ns = cpu_ns(&stat_of(parent)?, 4)?;
    let children_ns = fs::read_dir("/proc").ok()?.filter_map(|entry| {
        let directory = entry.ok()?.path();
        directory.file_name()?.to_str()?.parse::<u32>().ok()?;
        let stat = fs::read_to_string(directory.join("stat")).ok()?;
        (parent_in(&stat)? == parent).then_some(())?;
        // A session is a single thread, which `schedstat` is about: exact where the kernel says so.
        let exact = fs::read_to_string(directory.join("schedstat")).ok();
        let exact = exact.and_then(|text| text.split_ascii_whitespace().next()?.parse().ok());
        exact.or_else(|| cpu_ns(&stat, 2))
    });
    Some(own_ns + children_ns.sum::<u64>())
}

/// Returns the parent of a process, if that process has this name.
pub fn parent_named(pid: Pid, name: &str) -> Option<Pid> {
    let stat = stat_of(pid)?;
    let (_, own_name) = stat.rsplit_once(')')?.0.split_once('(')?;
    parent_in(&stat).filter(|_| own_name == name)
}

/// Time the machine's processors spent in programs, in nanoseconds, to one clock tick.
pub fn busy_ns() -> Option<u64> {
    // User, nice, system.
    machine_ns(0, 3)
}

/// Time the host gave the machine's processors to others, in nanoseconds, to one clock tick.
pub fn steal_ns() -> Option<u64> {
    machine_ns(7, 1)
}

/// Adds up `count` of the times in `/proc/stat`.
fn machine_ns(first: usize, count: usize) -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let fields = stat.lines().next()?.split_ascii_whitespace().skip(1 + first).take(count);
    let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    Some(ticks * 1_000_000_000 / clock_ticks_per_second())
}

/// Memory of the machine, in bytes.
pub fn memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kibibytes * 1_024)
}

/// Memory of a process that is in RAM, in bytes; `None` when it is gone.
pub fn resident_bytes(pid: Pid) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{}/statm", pid.as_raw_nonzero())).ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * u64::try_from(page_size()).ok()?)
}

/// Time the threads of a process were ready but had no processor, in nanoseconds: what other
/// programs took.
pub fn run_queue_wait_ns(pid: Pid) -> Option<u64> {
    let tasks = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).ok()?;
    // A thread may end between its listing and its reading.
    let waits = tasks.filter_map(|task| {
        let schedstat = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        schedstat.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
    });
    Some(waits.sum())
}

/// Returns whether files in this directory live in memory, where a sync costs nothing and proves
/// nothing.
pub fn is_memory_file_system(directory: &Path) -> Result<bool> {
    let status = rustix::fs::statfs(directory)
        .with_context(|| format!("cannot look at {}", directory.display()))?;
    Ok(matches!(status.f_type, TMPFS_MAGIC | RAMFS_MAGIC))
}

/// Writes out what the file system of a directory still holds in memory, so that one server's
/// writes are not charged to the next.
pub fn settle(directory: &Path) -> Result<()> {
    let file = fs::File::open(directory)
        .with_context(|| format!("cannot open {}", directory.display()))?;
    rustix::fs::syncfs(file).context("syncfs")
}

/// Describes a run in one line: date, machine, versions of programs, and what more there is to say.
pub fn about(
    programs: &[&Path],
    more: impl IntoIterator<Item = impl Into<String>>,
) -> Result<String> {
    let versions: Result<Vec<_>> =
        programs.iter().map(|program| program_version(program)).collect();
    let mut parts = vec![crate::clock::utc_now(), describe()];
    parts.extend(versions?);
    parts.extend(more.into_iter().map(Into::into));
    Ok(parts.join("; "))
}

/// Describes the machine in one line.
pub fn describe() -> String {
    let cpu_info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let system = rustix::system::uname();
    format!(
        "cpu {}; {} processors; {} {}",
        cpu_model(&cpu_info).unwrap_or("unknown"),
        cpu_info.lines().filter(|line| line.starts_with("processor")).count(),
        system.sysname().to_string_lossy(),
        system.release().to_string_lossy(),
    )
}

/// The first line of what a program prints about its version, or its name where it has none to
/// tell.
pub fn program_version(program: &Path) -> Result<String> {
    let output = std::process::Command::new(program)
        .arg("--version")
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.lines().next().map(str::trim).filter(|_| output.status.success());
    Ok(version.map_or_else(|| program.display().to_string(), str::to_owned))
}

fn cpu_model(cpu_info: &str) -> Option<&str> {
    let line = cpu_info.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, model)| model.trim())
}

fn stat_of(pid: Pid) -> Option<String> {
    fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()
}

fn parent_in(stat: &str) -> Option<Pid> {
    Pid::from_raw(i32::try_from(*stat_fields(stat, 1, 1)?.first()?).ok()?)
}

/// Adds up user and system time, and with four `fields` those of children that ended.
fn cpu_ns(stat: &str, fields: usize) -> Option<u64> {
    let ticks: u64 = stat_fields(stat, 11, fields)?.iter().sum();
    Some(ticks * 1_000_000_000 / clock_ticks_per_second())
}

/// Reads `count` numbers from a line of `/proc/PID/stat`. The name in parentheses may hold
/// anything, so fields are counted from its end: 0 is the state, 1 the parent, 11 and 12 user and
/// system time, 13 and 14 those of children that ended.
fn stat_fields(stat: &str, first: usize, count: usize) -> Option<Vec<u64>> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields = fields.split_ascii_whitespace().skip(first).take(count);
    fields.map(|field| field.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_have_ranges_and_are_checked() {
        assert_eq!("0-2,5".parse::<CpuList>().unwrap().to_string(), "0,1,2,5");
        assert_eq!("any".parse::<CpuList>().unwrap().to_string(), "any");
        for bad in ["", "x", "3-1", "0,", "99999999", "-1"] {
            assert!(bad.parse::<CpuList>().is_err(), "{bad}");
        }
    }

    #[test]
    fn fields_are_read_past_a_name_with_spaces_and_parentheses() {
        let stat = "12 (a ) b) (c) S 1 2 3 4 5 6 7 8 9 10 700 30 99 98";
        assert_eq!(stat_fields(stat, 11, 2), Some(vec![700, 30]));
        assert_eq!((stat_fields(stat, 1, 1), cpu_ns("nonsense", 2)), (Some(vec![1]), None));
    }

    #[test]
    fn a_family_uses_at_least_the_time_of_its_parent() {
        let own = rustix::process::getpid();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        // In this order: other tests of this process go on meanwhile.
        let parent = process_cpu_ns(own).unwrap();
        assert_eq!(family_cpu_ns(own).map(|family| parent <= family + 50_000_000), Some(true));
        // Between fork and exec the child still has this program's name.
        while fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap() != "sleep\n" {
            std::thread::yield_now();
        }
        assert_eq!((parent_named(pid, "sleep"), parent_named(pid, "postgres")), (Some(own), None));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(busy_ns().is_some() && steal_ns().is_some() && memory_bytes().is_some());
        assert!(100_000 < resident_bytes(own).unwrap() && run_queue_wait_ns(own).is_some());
    }
}
