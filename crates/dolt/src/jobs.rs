//! Jobs that take long: bring everything to local disk, or verify everything.
//!
//! A job runs on the store's runtime and reports to its caller over a short queue. Dropping the
//! call aborts the job.

pub(crate) mod verify;
pub(crate) mod warm;

use std::sync::Arc;

use busload_chunks::ChunkAddress;
use busload_objects::Progress;
use tokio::sync::mpsc;

use crate::{Error, lifecycle::Lifecycle, limits::JOB_REPORTS_QUEUED_MAX, task::AbortOnDrop};

/// Progress of a job, and a corrupt chunk if it has found one.
pub(crate) type Report = (Progress, Option<(ChunkAddress, Error)>);

/// Queue over which a job reports.
#[derive(Clone)]
pub(crate) struct Reporter(mpsc::Sender<Report>);

impl Reporter {
    /// Reports, and waits while the queue is full. A caller that is gone does not stop the job
    /// here: it aborts it.
    pub async fn send(&self, report: Report) {
        let _ = self.0.send(report).await;
    }

    /// Reports progress unless the queue is full.
    pub fn try_send(&self, progress: Progress) {
        let _ = self.0.try_send((progress, None));
    }
}

/// Runs a job until the store is closed, and hands its reports to `report`.
pub(crate) async fn run<W>(
    lifecycle: &Arc<Lifecycle>,
    job: impl FnOnce(Reporter) -> W,
    report: &mut (dyn FnMut(Progress, Option<(ChunkAddress, Error)>) + Send),
) -> Result<Progress, Error>
where
    W: Future<Output = Result<Progress, Error>> + Send + 'static,
{
    let (sender, mut reports) = mpsc::channel(JOB_REPORTS_QUEUED_MAX);
    let (job, owner) = (job(Reporter(sender)), lifecycle.clone());
    let work = async move { owner.until_closed(job).await };
    let task = AbortOnDrop::new(lifecycle.spawn(work));
    while let Some((progress, corrupt)) = reports.recv().await {
        report(progress, corrupt);
    }
    task.join().await?
}
