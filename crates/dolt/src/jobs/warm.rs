//! Everything to local disk.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use busload_objects::Progress;
use futures_util::{StreamExt, stream};
use tokio::sync::{Notify, mpsc};

use super::{Told, tell};
use crate::{Error, limits::WARMING_FILES_MAX, shared::Shared, versions::table_file::TableFile};

pub(super) async fn warm(shared: &Arc<Shared>, to: mpsc::Sender<Told>) -> Result<Progress, Error> {
    let snapshot = shared.opened_version().await?.snapshot.clone();
    let total = snapshot.file_bytes();
    refuse_what_does_not_fit(shared, total)?;
    let sum = Sum::new(total);
    // Clones, so that the futures borrow nothing of the snapshot.
    let files = snapshot.files.clone().into_iter().map(|file| warm_file(file, &sum));
    let mut files = stream::iter(files).buffer_unordered(WARMING_FILES_MAX);
    loop {
        tokio::select! {
            file = files.next() => match file {
                Some(outcome) => outcome?,
                None => break,
            },
            () = sum.changed.notified() => {}
        }
        tell(&to, (sum.get(), None)).await;
    }
    tell(&to, (sum.get(), None)).await;
    Ok(sum.get())
}

fn refuse_what_does_not_fit(shared: &Shared, bytes: u64) -> Result<(), Error> {
    match shared.disk_bytes_max {
        0 => Err(Error::Refused(
            "there is no cache on disk to bring anything to (disk = 0)".to_owned(),
        )),
        max if max < bytes => Err(Error::Refused(format!(
            "the table files have {bytes} bytes, but the cache may take only {max}: raise `disk`"
        ))),
        _ => Ok(()),
    }
}

async fn warm_file(file: Arc<TableFile>, sum: &Sum) -> Result<(), Error> {
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

/// What is told of many files: the sum.
struct Sum {
    progress: Mutex<Progress>,
    changed: Notify,
}

impl Sum {
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

    /// One file is at `now` and was at `before`.
    fn add(&self, before: Progress, now: Progress) {
        let mut sum = self.lock();
        sum.done += now.done.saturating_sub(before.done);
        sum.corrupt += now.corrupt.saturating_sub(before.corrupt);
        self.changed.notify_one();
    }
}
