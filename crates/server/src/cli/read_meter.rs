//! Progress of tools that read a log or its snapshots: what counts is the bytes read from the disk,
//! so that nothing below the tools has to know of it.

use std::{
    io::{self, IsTerminal},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use busload_io::Disk;
use busload_objects::Progress;

use super::progress::Meter;

/// Meter of the bytes read from a disk. Clones share it.
#[derive(Clone, Default)]
pub struct ReadMeter(Arc<Mutex<Option<Shown>>>);

/// Meter that is shown, and how far the reading has come.
struct Shown {
    meter: Meter,
    progress: Progress,
}

impl ReadMeter {
    /// Shows work of this name that reads about this many bytes, until the guard is dropped: before
    /// a result or an error is printed.
    pub fn show(&self, what: &str, total: u64) -> MeterGuard<'_> {
        let progress = Progress { total, ..Progress::default() };
        *self.shown() = Some(Shown { meter: Meter::new(what), progress });
        MeterGuard(self)
    }

    /// Does the same for work that prints a line for each of very many things; nothing is shown if
    /// those go to a terminal.
    pub fn show_beside_output(&self, what: &str, total: u64) -> Option<MeterGuard<'_>> {
        (!io::stdout().is_terminal()).then(|| self.show(what, total))
    }

    /// Counts bytes that were read.
    pub fn add(&self, bytes: u64) {
        if let Some(Shown { meter, progress }) = &mut *self.shown() {
            // What is read twice may be more than the work was said to read.
            progress.done = progress.total.min(progress.done.saturating_add(bytes));
            meter.show(*progress);
        }
    }

    fn shown(&self) -> MutexGuard<'_, Option<Shown>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Guard of a meter that is shown.
#[must_use]
pub struct MeterGuard<'a>(&'a ReadMeter);

impl MeterGuard<'_> {
    /// Prints to standard output without disturbing a bar on the same terminal.
    pub fn above(&self, print: impl FnOnce()) {
        match &*self.0.shown() {
            Some(shown) => shown.meter.above(print),
            None => print(),
        }
    }
}

impl Drop for MeterGuard<'_> {
    fn drop(&mut self) {
        if let Some(shown) = self.0.shown().take() {
            shown.meter.clear();
        }
    }
}

impl std::fmt::Debug for ReadMeter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadMeter").finish_non_exhaustive()
    }
}

/// Returns the length of all files of a directory whose names satisfy `counts`. A file that cannot
/// be opened counts nothing: whoever reads it says so.
pub fn file_bytes<D: Disk>(disk: &D, counts: impl Fn(&str) -> bool) -> u64 {
    let names = disk.list().unwrap_or_default().into_iter().filter(|name| counts(name));
    names.filter_map(|name| disk.length(&disk.open(&name).ok()?).ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_from_the_start_to_the_end_of_the_work_and_never_above_its_total() {
        let meter = ReadMeter::default();
        let done = |meter: &ReadMeter| meter.shown().as_ref().map(|shown| shown.progress.done);
        meter.add(5);
        assert_eq!(done(&meter), None);
        let guard = meter.show("read", 10);
        meter.add(7);
        assert_eq!(done(&meter.clone()), Some(7));
        meter.add(7);
        assert_eq!(done(&meter), Some(10));
        let mut printed = false;
        guard.above(|| printed = true);
        assert!(printed);
        drop(guard);
        assert_eq!(done(&meter), None);
    }
}
