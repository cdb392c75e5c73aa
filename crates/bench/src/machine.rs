//! Facts that the system tells about processors and processes. Numbers of `/proc` that cannot be
//! read, as those of a process that is gone, are `None`.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

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
#[derive(Clone, Debug)]
pub struct CpuList {
    text: String,
    cpus: Vec<usize>,
}

impl std::str::FromStr for CpuList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no list of processors as 0 or 0-3,8");
        let mut cpus = Vec::new();
        for part in text.split(',').filter(|_| text != "any") {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: usize = first.parse().map_err(|_| wrong())?;
            let last: usize = last.parse().map_err(|_| wrong())?;
            if last < first || CpuSet::MAX_CPU <= last {
                return Err(wrong());
            }
            cpus.extend(first..=last);
        }
        Ok(Self { text: text.to_owned(), cpus })
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
        self.cpus.iter().for_each(|cpu| set.set(*cpu));
        let bound = if self.cpus.is_empty() { Ok(()) } else { sched_setaffinity(None, &set) };
        bound.with_context(|| format!("cannot run on processor {self}; choose others or `any`"))
    }
}

impl std::fmt::Display for CpuList {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.text)
    }
}

/// Processor time a process has used, all its threads together, in nanoseconds. Exact to one clock
/// tick (10 ms).
pub fn process_cpu_ns(pid: Pid) -> Option<u64> {
    cpu_ns(&read(pid, "stat")?, 2)
}

/// Processor time of a process, its children and those of its children that ended, in nanoseconds:
/// a Postgres server, whose sessions are processes.
pub fn family_cpu_ns(parent: Pid) -> Option<u64> {
    let own_ns = cpu_ns(&read(parent, "stat")?, 4)?;
    let children_ns = fs::read_dir("/proc").ok()?.filter_map(|entry| {
        let pid = Pid::from_raw(entry.ok()?.file_name().to_str()?.parse().ok()?)?;
        let stat = read(pid, "stat")?;
        (parent_in(&stat)? == parent).then_some(())?;
        // A session is a single thread, which `schedstat` is about: exact where the kernel says so.
        thread_cpu_ns_of(pid).or_else(|| cpu_ns(&stat, 2))
    });
    Some(own_ns + children_ns.sum::<u64>())
}

/// Processor time of one thread, in nanoseconds.
pub fn thread_cpu_ns_of(thread: Pid) -> Option<u64> {
    read(thread, "schedstat").and_then(|text| word(&text, 0))
}

/// Returns the parent of a process, if that process has this name.
pub fn parent_named(pid: Pid, name: &str) -> Option<Pid> {
    let stat = read(pid, "stat")?;
    let (_, own_name) = stat.rsplit_once(')')?.0.split_once('(')?;
    parent_in(&stat).filter(|_| own_name == name)
}

/// Time the machine's processors spent in programs, in nanoseconds, to one clock tick.
pub fn busy_ns() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    // User, nice, system.
    (1..=3).map(|position| word(&stat, position).map(ticks_ns)).sum()
}

/// Time the host gave the machine's processors to others, in nanoseconds, to one clock tick.
pub fn steal_ns() -> Option<u64> {
    word(&fs::read_to_string("/proc/stat").ok()?, 8).map(ticks_ns)
}

/// Memory of the machine, in bytes.
pub fn memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    word(line, 1).map(|kibibytes| kibibytes * 1_024)
}

/// Memory of a process that is in RAM, in bytes.
pub fn resident_bytes(pid: Pid) -> Option<u64> {
    Some(word(&read(pid, "statm")?, 1)? * u64::try_from(page_size()).ok()?)
}

/// Threads of a process.
pub fn threads(pid: Pid) -> Option<u64> {
    let tasks = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).ok()?;
    u64::try_from(tasks.count()).ok()
}

/// Bytes that a process, and its children that ended, handed to write calls, those of sockets
/// included. (What `/proc` says of bytes sent to disk is no use: a large folio counts whole.)
pub fn written_bytes(pid: Pid) -> Option<u64> {
    word(read(pid, "io")?.lines().find(|line| line.starts_with("wchar:"))?, 1)
}

/// Bytes that the disk of a directory was asked to write since it is there, by all programs. A file
/// system over several disks, or none, has no such number.
pub fn disk_written_bytes(directory: &Path) -> Option<u64> {
    let device = fs::metadata(directory).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let stat = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    word(&stat, 6).map(|sectors| sectors * 512)
}

/// Space that the files below a directory take on disk, in bytes. Files may come and go meanwhile.
pub fn disk_bytes(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        Err(_) => 0,
    });
    bytes.sum()
}

/// Time the threads of a process were ready but had no processor, in nanoseconds: what other
/// programs took.
pub fn run_queue_wait_ns(pid: Pid) -> Option<u64> {
    let tasks = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).ok()?;
    // A thread may end between its listing and its reading.
    let waits = tasks
        .filter_map(|task| word(&fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?, 1));
    Some(waits.sum())
}

/// Reads a file of a process below `/proc`, as `stat`.
fn read(pid: Pid, file: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/{}/{file}", pid.as_raw_nonzero())).ok()
}

/// Parses one of the words of a text, counted from 0.
fn word(text: &str, position: usize) -> Option<u64> {
    text.split_ascii_whitespace().nth(position)?.parse().ok()
}

/// Names a directory, and says so if its files live in memory, where a sync costs nothing and
/// proves nothing.
pub fn directory_text(directory: &Path) -> Result<String> {
    let named = directory.display();
    let status =
        rustix::fs::statfs(directory).with_context(|| format!("cannot look at {named}"))?;
    let is_memory = matches!(status.f_type, TMPFS_MAGIC | RAMFS_MAGIC);
    let warning = if is_memory { ", WHICH IS IN MEMORY: no disk is measured" } else { "" };
    Ok(format!("files in {named}{warning}"))
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
    let cpu_info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu_info.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(": ")).map_or("unknown", |(_, model)| model);
    let processors = cpu_info.lines().filter(|line| line.starts_with("processor")).count();
    let system = rustix::system::uname();
    let (name, release) = (system.sysname().to_string_lossy(), system.release().to_string_lossy());
    let machine = format!("cpu {model}; {processors} processors; {name} {release}");
    let versions: Result<Vec<_>> =
        programs.iter().map(|program| program_version(program)).collect();
    let mut parts = vec![crate::clock::utc_now(), machine];
    parts.extend(versions?);
    parts.extend(more.into_iter().map(Into::into));
    Ok(parts.join("; "))
}

/// The first line of what a program prints about its version, or its name where it has none to
/// tell.
fn program_version(program: &Path) -> Result<String> {
    let output = std::process::Command::new(program)
        .arg("--version")
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.lines().next().map(str::trim).filter(|_| output.status.success());
    Ok(version.map_or_else(|| program.display().to_string(), str::to_owned))
}

fn parent_in(stat: &str) -> Option<Pid> {
    Pid::from_raw(i32::try_from(word(after_name(stat)?, 1)?).ok()?)
}

/// Adds up user and system time, and with four `fields` those of children that ended.
fn cpu_ns(stat: &str, fields: usize) -> Option<u64> {
    (11..11 + fields).map(|position| word(after_name(stat)?, position).map(ticks_ns)).sum()
}

/// Returns the fields of `/proc/PID/stat` behind the name in parentheses, which may hold anything:
/// 0 is the state, 1 the parent, 11 and 12 user and system time, 13 and 14 those of children that
/// ended.
fn after_name(stat: &str) -> Option<&str> {
    stat.rsplit_once(')').map(|(_, fields)| fields)
}

fn ticks_ns(ticks: u64) -> u64 {
    ticks * 1_000_000_000 / clock_ticks_per_second()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_have_ranges_and_are_checked() {
        assert_eq!("0-2,5".parse::<CpuList>().unwrap().cpus, [0, 1, 2, 5]);
        assert!("any".parse::<CpuList>().unwrap().cpus.is_empty());
        for bad in ["", "x", "3-1", "0,", "99999999", "-1"] {
            assert!(bad.parse::<CpuList>().is_err(), "{bad}");
        }
    }

    #[test]
    fn fields_are_read_past_a_name_with_spaces_and_parentheses() {
        let stat = "12 (a ) b) (c) S 1 2 3 4 5 6 7 8 9 10 700 30 99 98";
        assert_eq!((cpu_ns(stat, 2), parent_in(stat)), (Some(ticks_ns(730)), Pid::from_raw(1)));
        assert_eq!(cpu_ns("nonsense", 2), None);
    }

    #[test]
    fn the_space_of_files_counts_in_all_directories() {
        let directory = tempfile::TempDir::new().unwrap();
        fs::create_dir(directory.path().join("inner")).unwrap();
        assert_eq!(disk_bytes(&directory.path().join("absent")), 0);
        let empty = disk_bytes(directory.path());
        for file in ["one", "inner/two"] {
            let path = directory.path().join(file);
            fs::write(&path, vec![1; 100_000]).unwrap();
            fs::File::open(&path).unwrap().sync_all().unwrap();
        }
        assert!((200_000..400_000).contains(&(disk_bytes(directory.path()) - empty)));
    }

    #[test]
    fn a_family_uses_at_least_the_time_of_its_parent() {
        let own = rustix::process::getpid();
        // In this order: other tests of this process go on meanwhile.
        let parent = process_cpu_ns(own).unwrap();
        assert!(parent <= family_cpu_ns(own).unwrap() + 50_000_000);
        let comm = read(own, "comm").unwrap();
        let [parent, other] = [comm.trim_end(), "postgres"].map(|name| parent_named(own, name));
        assert!(parent.is_some() && other.is_none());
        assert!(written_bytes(own).is_some());
        assert!(busy_ns().is_some() && steal_ns().is_some() && memory_bytes().is_some());
        assert!(100_000 < resident_bytes(own).unwrap() && run_queue_wait_ns(own).is_some());
    }
}
