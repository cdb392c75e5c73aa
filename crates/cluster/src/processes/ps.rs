//! Processes from the program `ps`, where there is no /proc.

use std::process::Command;

use super::{Entry, Run};

/// Lists all processes of the system.
pub(super) fn all() -> Vec<Entry> {
    let Ok(output) = Command::new("ps").args(["-A", "-o", "pid=,ppid=,stat="]).output() else {
        return Vec::new();
    };
    String::from_utf8_lossy(&output.stdout).lines().filter_map(parse).collect()
}

/// Returns 0: the CPU time is known on Linux only.
pub fn cpu_seconds(_ancestor: i32) -> f64 {
    0.0
}

fn parse(line: &str) -> Option<Entry> {
    let mut fields = line.split_ascii_whitespace();
    let pid = fields.next()?.parse().ok()?;
    let parent = fields.next()?.parse().ok()?;
    let run = match fields.next()?.chars().next()? {
        'T' => Run::Stopped,
        'Z' => Run::Zombie,
        _ => Run::Alive,
    };
    Some(Entry { pid, parent, run, started: 0, cpu_ticks: 0 })
}
