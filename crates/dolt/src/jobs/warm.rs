//! Brings the table files of a version to local disk.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use busload_objects::Progress;
use futures_util::{StreamExt, stream};
use tokio::sync::Notify;

use super::Reporter;
use crate::{
    Error,
    limits::WARMING_FILES_MAX,
    versions::{Versions, table_file::TableFile},
};

/// Brings the files of the current version, if they are to be on this disk, to a cache of this many
/// bytes.
pub(crate) async fn warm(
    versions: Arc<Versions>,
    disk_bytes_max: u64,
    reporter: Reporter,
) -> Result<Progress, Error> {
    let snapshot = versions.opened().await?.snapshot.clone();
    let is_wanted = |file: &&Arc<TableFile>| file.object.is_filled();
    let wanted: Vec<_> = snapshot.files.iter().filter(is_wanted).cloned().collect();
    let total = wanted.iter().map(|file| file.object.meta().size).sum();
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
            () = sum.changed.notified() => {}
        }
        reporter.send((sum.get(), None)).await;
    }
    reporter.send((sum.get(), None)).await;
    Ok(sum.get())
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

/// Sum of the progress of many files.
struct ProgressSum {
    progress: Mutex<Progress>,
    changed: Notify,
}

impl ProgressSum {
    fn new(total: u64) -> Self {
        let progress = Progress { total, ..Progress::default() };
        Self { progress: Mutex::new(progress), changed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self) -> Progress {
        *self.lock()
    }

    /// Adds the progress of one file from `before` to `now`.
    fn add(&self, before: Progress, now: Progress) {
        let mut sum = self.lock();
        sum.done += now.done.saturating_sub(before.done);
        sum.corrupt += now.corrupt.saturating_sub(before.corrupt);
        self.changed.notify_one();
    }
}
