//! Long work: everything to local disk, everything checked.
//!
//! The work runs on the store's runtime and tells whoever waits for it over a short queue; it ends
//! when nobody does.

mod verify;
mod warm;

use std::sync::Arc;

use busload_chunks::ChunkAddress;
use busload_objects::Progress;
use tokio::sync::mpsc;

use crate::{Error, limits::JOB_REPORTS_QUEUED_MAX, shared::Shared, task::Owned};

/// How far it has come, and what was found on the way.
type Told = (Progress, Option<(ChunkAddress, Error)>);

impl Shared {
    /// Brings all files of the current version to local disk.
    pub async fn warm(
        self: &Arc<Self>,
        report: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Progress, Error> {
        let (tell, told) = mpsc::channel(JOB_REPORTS_QUEUED_MAX);
        let shared = self.clone();
        let work = async move { shared.until_closed(warm::warm(&shared, tell)).await };
        self.tell(work, told, &mut |progress, _| report(progress)).await
    }

    /// Reads and checks every chunk of the current version.
    pub async fn verify(
        self: &Arc<Self>,
        report: &mut (dyn FnMut(Progress, Option<(ChunkAddress, Error)>) + Send),
    ) -> Result<Progress, Error> {
        let (tell, told) = mpsc::channel(JOB_REPORTS_QUEUED_MAX);
        let shared = self.clone();
        let work = async move { shared.until_closed(verify::verify(&shared, tell)).await };
        self.tell(work, told, report).await
    }

    /// Compares all chunks on disk with their addresses.
    pub async fn verify_local(
        self: &Arc<Self>,
        report: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Progress, Error> {
        let (tell, told) = mpsc::channel(JOB_REPORTS_QUEUED_MAX);
        let shared = self.clone();
        let work = async move { shared.until_closed(verify::verify_local(&shared, tell)).await };
        self.tell(work, told, &mut |progress, _| report(progress)).await
    }

    async fn tell(
        &self,
        work: impl Future<Output = Result<Progress, Error>> + Send + 'static,
        mut told: mpsc::Receiver<Told>,
        report: &mut (dyn FnMut(Progress, Option<(ChunkAddress, Error)>) + Send),
    ) -> Result<Progress, Error> {
        let task = Owned::new(self.runtime.spawn(work));
        while let Some((progress, wrong)) = told.recv().await {
            report(progress, wrong);
        }
        task.join().await?
    }

    async fn until_closed<T>(
        &self,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        tokio::select! {
            biased;
            () = self.closed() => Err(Error::Closed),
            done = work => done,
        }
    }
}

/// Nobody listening is no reason to end: the task is ended then.
async fn tell(to: &mpsc::Sender<Told>, told: Told) {
    let _ = to.send(told).await;
}
