//! Brings the table files of a version to local disk.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use busload_objects::Progress;
use futures_util::{StreamExt, stream};
use tokio::sync::Notify;

use super::Reporter;
use crate::{
    Error,
    limits::WARMING_FILES_MAX,
    versions::{Versions, table_file::TableFile, version::Snapshot},
};

/// Brings the files of the current version, if they are to be on this disk, to a cache of this many
/// bytes.
pub(crate) async fn warm(
    versions: Arc<Versions>,
    disk_bytes_max: u64,
    reporter: Reporter,
) -> Result<Progress, Error> {
    let wanted = wanted(&versions.opened().await?.snapshot);
    let total = bytes_of(&wanted);
    check_capacity(disk_bytes_max, total)?;
    let sum = ProgressSum::new(total);
    let files = wanted.into_iter().map(|file| warm_file(file, &sum));
    let mut files = stream::iter(files).buffer_unordered(WARMING_FILES_MAX);
    loop {
        tokio::select! {
            file = files.next() => match file {
                Some(outcome) => outcome?,
                None => break,
            },
            () = sum.changed() => {}
        }
        reporter.send((sum.get(), None)).await;
    }
    reporter.send((sum.get(), None)).await;
    Ok(sum.get())
}

/// Returns the files of a version that are to be on this disk.
pub(crate) fn wanted(snapshot: &Snapshot) -> Vec<Arc<TableFile>> {
    let is_wanted = |file: &&Arc<TableFile>| file.object.is_filled();
    snapshot.files.iter().filter(is_wanted).cloned().collect()
}

/// Returns the sum of the sizes of files.
pub(crate) fn bytes_of(files: &[Arc<TableFile>]) -> u64 {
    files.iter().map(|file| file.object.meta().size).sum()
}

fn check_capacity(disk_bytes_max: u64, bytes: u64) -> Result<(), Error> {
    match disk_bytes_max {
        0 => Err(Error::Refused(
            "there is no cache on disk to bring anything to (disk = 0)".to_owned(),
        )),
        max if max < bytes => Err(Error::Refused(format!(
            "the table files have {bytes} bytes, but the cache may take only {max}: raise `disk`"
        ))),
        _ => Ok(()),
    }
}

async fn warm_file(file: Arc<TableFile>, sum: &ProgressSum) -> Result<(), Error> {
    let mut before = Progress::default();
    let mut report = |now: Progress| {
        sum.add(before, now);
        before = now;
    };
    let end = file.object.warm(&mut report).await;
    if let Err(busload_objects::Error::Gone(_)) = &end {
        file.set_gone();
    }
    report(end?);
    Ok(())
}

/// Sum of the progress of many files, or of many stores.
pub(crate) struct ProgressSum {
    progress: Mutex<Progress>,
    changed: Notify,
}

impl ProgressSum {
    pub fn new(total: u64) -> Self {
        let progress = Progress { total, ..Progress::default() };
        Self { progress: Mutex::new(progress), changed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self) -> Progress {
        *self.lock()
    }

    /// Waits until the progress has changed.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Adds bytes that are to be brought to disk.
    pub fn add_total(&self, bytes: u64) {
        self.lock().total += bytes;
    }

    /// Adds the progress of one file from `before` to `now`.
    pub fn add(&self, before: Progress, now: Progress) {
        let mut sum = self.lock();
        sum.done += now.done.saturating_sub(before.done);
        sum.corrupt += now.corrupt.saturating_sub(before.corrupt);
        self.changed.notify_one();
    }
}
