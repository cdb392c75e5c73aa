//! The postmaster's processes: signals to exactly these, and their CPU time.
//!
//! All other processes of a cluster descend from the postmaster. A stopped process creates no
//! children and reaps none, so a list made meanwhile stays true: ended processes are zombies, and
//! their ids are not reused.

#[cfg_attr(target_os = "linux", path = "processes/proc.rs")]
#[cfg_attr(not(target_os = "linux"), path = "processes/ps.rs")]
mod listing;

use std::collections::BTreeSet;

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    error::ClusterError,
    limits::{LISTING_COUNT_MAX, SIGNAL_TIMEOUT},
    wait,
};

pub use listing::cpu_seconds;

/// One process of the system.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Entry {
    pid: i32,
    parent: i32,
    run: Run,
    /// Start time, in the system's own unit: a reused id has another one. 0 where it is unknown.
    started: u64,
    /// CPU time of the process and of the children it has waited for, in clock ticks.
    cpu_ticks: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Run {
    Alive,
    Stopped,
    Zombie,
}

/// Stops the postmaster first, then all its descendants, and returns the latter.
///
/// # Errors
///
/// Fails if they do not stop in time.
pub fn freeze(postmaster: i32) -> Result<Vec<i32>, ClusterError> {
    signal(postmaster, Signal::STOP);
    settled(&BTreeSet::from([postmaster]))?;
    let mut frozen = BTreeSet::new();
    // A descendant may itself have made children (COPY TO PROGRAM) until it was stopped.
    for _ in 0..LISTING_COUNT_MAX {
        let living = family(postmaster, &listing::all());
        let new: BTreeSet<i32> = living.difference(&frozen).copied().collect();
        if new.is_empty() {
            return Ok(frozen.into_iter().collect());
        }
        new.iter().for_each(|pid| signal(*pid, Signal::STOP));
        settled(&new)?;
        frozen.extend(new);
    }
    Err(ClusterError::Signal)
}

/// Resumes the processes that [`freeze`] has stopped.
pub fn thaw(postmaster: i32) {
    for pid in family(postmaster, &listing::all()) {
        signal(pid, Signal::CONT);
    }
    signal(postmaster, Signal::CONT);
}

/// Kills the postmaster and all its descendants at once. The caller waits for the postmaster, which
/// is its child.
///
/// # Errors
///
/// Fails if they do not stop in time.
pub fn kill(postmaster: i32) -> Result<Killed, ClusterError> {
    let descendants = freeze(postmaster)?;
    let all = listing::all();
    let killed = all.iter().filter(|entry| descendants.contains(&entry.pid)).copied().collect();
    descendants.iter().for_each(|pid| signal(*pid, Signal::KILL));
    signal(postmaster, Signal::KILL);
    Ok(Killed(killed))
}

/// Descendants that were killed.
#[must_use]
pub struct Killed(Vec<Entry>);

impl Killed {
    /// Waits until all of them have released their resources: a new server refuses to start beside
    /// old backends.
    ///
    /// # Errors
    ///
    /// Fails if they do not end in time.
    pub fn wait(self) -> Result<(), ClusterError> {
        wait::until(SIGNAL_TIMEOUT, || self.are_gone().then_some(())).ok_or(ClusterError::Signal)
    }

    fn are_gone(&self) -> bool {
        let all = listing::all();
        self.0.iter().all(|killed| {
            let same = |entry: &&Entry| entry.pid == killed.pid && entry.started == killed.started;
            all.iter().find(same).is_none_or(|entry| entry.run == Run::Zombie)
        })
    }
}

/// Sends a signal to one process.
pub fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // The process may have ended, which is as good.
        let _ = kill_process(pid, signal);
    }
}

/// Waits until each of them is stopped or has ended.
fn settled(pids: &BTreeSet<i32>) -> Result<(), ClusterError> {
    let stopped = || {
        let all = listing::all();
        let runs = all.iter().any(|entry| pids.contains(&entry.pid) && entry.run == Run::Alive);
        (!runs).then_some(())
    };
    wait::until(SIGNAL_TIMEOUT, stopped).ok_or(ClusterError::Signal)
}

/// Returns the living descendants of a process.
fn family(ancestor: i32, all: &[Entry]) -> BTreeSet<i32> {
    descendants(ancestor, all)
        .filter(|entry| entry.run != Run::Zombie)
        .map(|entry| entry.pid)
        .collect()
}

fn descendants(ancestor: i32, all: &[Entry]) -> impl Iterator<Item = &Entry> {
    let mut found = BTreeSet::from([ancestor]);
    loop {
        let before = found.len();
        found.extend(
            all.iter()
                .filter(|entry| found.contains(&entry.parent))
                .map(|entry| entry.pid)
                .collect::<Vec<_>>(),
        );
        if found.len() == before {
            break;
        }
    }
    all.iter().filter(move |entry| entry.pid != ancestor && found.contains(&entry.pid))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(pid: i32, parent: i32, run: Run) -> Entry {
        Entry { pid, parent, run, started: 0, cpu_ticks: 0 }
    }

    #[test]
    fn descendants_are_those_of_the_ancestor_only_at_any_depth() {
        let all = [
            entry(90, 12, Run::Alive),
            entry(10, 1, Run::Alive),
            entry(11, 10, Run::Alive),
            entry(12, 11, Run::Stopped),
            entry(13, 10, Run::Zombie),
            entry(20, 1, Run::Alive),
            entry(21, 20, Run::Alive),
        ];
        assert_eq!(family(10, &all), BTreeSet::from([11, 12, 90]));
        assert_eq!(family(21, &all), BTreeSet::new());
    }

    #[test]
    fn this_process_is_listed_with_its_parent() {
        let me = i32::try_from(std::process::id()).unwrap();
        let all = listing::all();
        let found = all.iter().find(|entry| entry.pid == me).unwrap();
        assert_eq!(found.run, Run::Alive);
        assert!(all.iter().any(|entry| entry.pid == found.parent) || found.parent == 0);
    }
}
