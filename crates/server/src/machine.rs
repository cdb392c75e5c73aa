//! Processors, memory and open files that the machine or the container allows this process.

use std::{fs, path::Path, thread};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Directory above `/proc` and `/sys`; tests use another.
const ROOT: &str = "/";

/// Processors and memory this process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    pub processors: usize,
    /// Physical memory or the container's limit, whichever is less. `None` when neither is known.
    pub memory_bytes: Option<u64>,
}

impl Machine {
    /// Reads what this machine allows.
    pub fn this() -> Self {
        let physical = physical_memory();
        let limit = cgroup_limit(Path::new(ROOT));
        Self {
            processors: thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: physical.into_iter().chain(limit).min(),
        }
    }
}

#[cfg(target_os = "linux")]
fn physical_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(not(target_os = "linux"))]
fn physical_memory() -> Option<u64> {
    let output =
        std::process::Command::new("/usr/sbin/sysctl").args(["-n", "hw.memsize"]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

/// Returns the least memory limit between this process's control group and the root group, in
/// version 1 or 2 of control groups.
fn cgroup_limit(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    groups.lines().filter_map(|line| group_limit(root, line)).min()
}

/// Returns the least limit of the group in a line of /proc/self/cgroup
/// (`hierarchy:controllers:path`) and its ancestors.
fn group_limit(root: &Path, line: &str) -> Option<u64> {
    let mut fields = line.splitn(3, ':');
    let (hierarchy, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let (mount, file) = match (hierarchy, controllers) {
        ("0", "") => ("sys/fs/cgroup", "memory.max"),
        (_, "memory") => ("sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        _ => return None,
    };
    let mount = root.join(mount);
    // In a container the path may be the host's and not exist here; the container's own group is
    // then the mount's root, the last ancestor.
    let group = mount.join(path.trim_start_matches('/'));
    let limits =
        group.ancestors().take_while(|group| group.starts_with(&mount)).filter_map(|group| {
            let text = fs::read_to_string(group.join(file)).ok()?;
            text.trim().parse::<u64>().ok()
        });
    // Version 1 says "no limit" by a number beyond any memory.
    limits.min().filter(|&limit| limit < 1 << 60)
}

/// Raises the limit of open files to `wanted` if possible. Returns the limit afterwards; `None`
/// means no limit.
pub fn raise_open_files(wanted: u64) -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current?;
    if wanted <= current {
        return Some(current);
    }
    let reachable = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    // A privileged process may raise the hard limit as well.
    for maximum in [limit.maximum.map(|maximum| maximum.max(wanted)), limit.maximum] {
        let current = if maximum == limit.maximum { reachable } else { wanted };
        if setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum }).is_ok() {
            return Some(current);
        }
    }
    Some(current)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a root directory with these files.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, contents) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, contents).unwrap();
        }
        root
    }

    fn limit(files: &[(&str, &str)]) -> Option<u64> {
        cgroup_limit(root(files).path())
    }

    #[test]
    fn the_least_limit_of_version_2_on_the_way_up_holds() {
        let files = [
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/memory.max", "4096\n"),
            ("sys/fs/cgroup/memory.max", "8192\n"),
        ];
        assert_eq!(limit(&files), Some(4096));
        assert_eq!(limit(&files[..2]), None);
    }

    #[test]
    fn version_1_is_read_too() {
        let group = ("proc/self/cgroup", "5:cpu:/x\n4:memory:/docker/1\n0::/\n");
        let file = "sys/fs/cgroup/memory/memory.limit_in_bytes";
        assert_eq!(limit(&[group, (file, "1048576\n")]), Some(1_048_576));
        assert_eq!(limit(&[group, (file, "9223372036854771712\n")]), None);
    }

    #[test]
    fn without_control_groups_there_is_no_limit() {
        assert_eq!(limit(&[]), None);
    }

    #[test]
    fn this_machine_has_a_processor_and_memory() {
        let machine = Machine::this();
        assert!(1 <= machine.processors);
        assert!(machine.memory_bytes.is_some_and(|bytes| 1 << 20 < bytes));
    }

    #[test]
    fn a_limit_of_open_files_that_is_high_enough_stays() {
        let limit = getrlimit(Resource::Nofile).current;
        assert_eq!(raise_open_files(1), limit);
    }
}
