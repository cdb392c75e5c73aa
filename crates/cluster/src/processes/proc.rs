//! Processes from Linux' /proc, see proc_pid_stat(5).

use std::fs;

use super::{Entry, Run, descendants};
use crate::limits::LISTING_COUNT_MAX;

/// Lists all processes of the system.
pub(super) fn all() -> Vec<Entry> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| read(entry.ok()?.file_name().to_str()?.parse().ok()?)).collect()
}

/// Returns the CPU time of a process and its descendants, including ended ones that their parents
/// have waited for.
///
/// A child that ends while they are listed would count twice, in its own entry and in its parent's,
/// or not at all: then they are listed again.
pub fn cpu_seconds(ancestor: i32) -> f64 {
    let once = || {
        let before = reaped_ticks(ancestor);
        let all = all();
        let own = all.iter().find(|entry| entry.pid == ancestor);
        let ticks: u64 = descendants(ancestor, &all).chain(own).map(|entry| entry.cpu_ticks).sum();
        (ticks, before == reaped_ticks(ancestor))
    };
    let mut ticks = 0;
    for _ in 0..LISTING_COUNT_MAX {
        let (counted, is_exact) = once();
        ticks = counted;
        if is_exact {
            break;
        }
    }
    #[allow(clippy::cast_precision_loss, reason = "exact below 2^53 ticks, millions of years")]
    let seconds = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
    seconds
}

/// Returns the CPU time that a process has taken over from ended children.
fn reaped_ticks(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields = Fields::new(&stat)?;
    Some(fields.ticks(16)? + fields.ticks(17)?)
}

fn read(pid: i32) -> Option<Entry> {
    parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse(pid: i32, stat: &str) -> Option<Entry> {
    let fields = Fields::new(stat)?;
    let run = match fields.get(3)? {
        "T" | "t" => Run::Stopped,
        "Z" | "X" => Run::Zombie,
        _ => Run::Alive,
    };
    let cpu_ticks = (14..=17).map(|number| fields.ticks(number)).sum::<Option<u64>>()?;
    Some(Entry {
        pid,
        parent: fields.get(4)?.parse().ok()?,
        run,
        started: fields.ticks(22)?,
        cpu_ticks,
    })
}

/// Fields with the numbers of the manual page. The second, the name in parentheses, may hold
/// anything.
struct Fields<'a>(Vec<&'a str>);

impl<'a> Fields<'a> {
    fn new(stat: &'a str) -> Option<Self> {
        let rest = &stat[stat.rfind(')')? + 1..];
        Some(Self(rest.split_ascii_whitespace().collect()))
    }

    fn get(&self, number: usize) -> Option<&'a str> {
        self.0.get(number - 3).copied()
    }

    fn ticks(&self, number: usize) -> Option<u64> {
        self.get(number)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_spaces_and_parentheses() {
        let stat = "7 (a ) S (b)) T 5 7 7 0 -1 4194560 1 2 3 4 10 20 300 4000 20 0 1 0 999 1 2";
        let expected =
            Entry { pid: 7, parent: 5, run: Run::Stopped, started: 999, cpu_ticks: 4330 };
        assert_eq!(parse(7, stat), Some(expected));
        assert_eq!(parse(7, "7 (short) S 5"), None);
    }
}
