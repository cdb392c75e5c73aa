//! Everything checked.

use std::sync::Arc;

use busload_chunks::ChunkAddress;
use busload_objects::{Progress, ReadOptions};
use futures_util::FutureExt;
use tokio::{sync::mpsc, time::Instant};

use super::{Told, tell};
use crate::{
    Error,
    fault::Fault,
    limits::VERIFYING_TIMEOUT,
    read::decode::Wanted,
    read::reader::ReadRequest,
    read::window::{PlannedRead, Window, sort},
    serve::LocalVerification,
    shared::Shared,
    task::blocking,
    versions::table_file::TableFile,
    versions::version::ChunkCopy,
};

/// What became of one chunk.
struct Checked {
    address: ChunkAddress,
    bytes: u64,
    outcome: Result<(), Fault>,
}

/// File by file, each from front to end. Bytes of indexes count as done with their file.
pub(super) async fn verify(
    shared: &Arc<Shared>,
    to: mpsc::Sender<Told>,
) -> Result<Progress, Error> {
    let snapshot = shared.opened_version().await?.snapshot.clone();
    let mut progress = Progress { total: snapshot.file_bytes(), ..Progress::default() };
    let mut end = 0;
    for file in &snapshot.files {
        end += file.object.meta().size;
        verify_file(shared, file, &mut progress, &to).await?;
        progress.done = end;
        tell(&to, (progress, None)).await;
    }
    Ok(progress)
}

/// What is on disk, as far as it is of the current version.
pub(super) async fn verify_local(
    shared: &Arc<Shared>,
    to: mpsc::Sender<Told>,
) -> Result<Progress, Error> {
    let snapshot = shared.opened_version().await?.snapshot.clone();
    let mut progress = Progress::default();
    for file in &snapshot.files {
        let before = progress;
        let after = |compared: LocalVerification| Progress {
            done: before.done + compared.bytes,
            corrupt: before.corrupt + compared.corrupt,
            ..before
        };
        // Progress that nobody takes is left out.
        let mut tell = |compared| _ = to.try_send((after(compared), None));
        progress = after(shared.compare_local(file, 0, &mut tell).await?);
    }
    Ok(Progress { total: progress.done, ..progress })
}

async fn verify_file(
    shared: &Arc<Shared>,
    file: &Arc<TableFile>,
    progress: &mut Progress,
    to: &mpsc::Sender<Told>,
) -> Result<(), Error> {
    let of = file.clone();
    let items = blocking(move || items(&of)).await?;
    let shared = shared.clone();
    let finish = Arc::new(move |item: PlannedRead, started| {
        let (shared, job) = (shared.clone(), job(&item));
        async move {
            // This copy, whatever other files have.
            let outcome = shared.read_copy(&item.place, Some(started), job).await;
            let bytes = u64::from(item.location.span.length);
            Checked { address: job.address, bytes, outcome: outcome.map(|_| ()) }
        }
        .boxed()
    });
    let mut window = Window::new(Box::new(options), items, finish);
    while let Some(checked) = window.next().await {
        let wrong = checked.note(file, progress)?;
        tell(to, (*progress, wrong)).await;
    }
    Ok(())
}

impl Checked {
    /// What is wrong with the chunk; an error if that cannot be known.
    fn note(
        self,
        file: &TableFile,
        progress: &mut Progress,
    ) -> Result<Option<(ChunkAddress, Error)>, Error> {
        progress.done = (progress.done + self.bytes).min(progress.total);
        match self.outcome {
            Ok(()) => Ok(None),
            Err(Fault::Corrupt(text)) => {
                progress.corrupt += self.bytes;
                Ok(Some((self.address, Error::Corrupt(text))))
            }
            Err(Fault::Gone) => Err(Error::Unreachable(format!(
                "{} was replaced while it was verified",
                file.name()
            ))),
            Err(Fault::Error(error)) => Err(error),
        }
    }
}

fn items(file: &Arc<TableFile>) -> Vec<PlannedRead> {
    let place = |position| ChunkCopy { file: file.clone(), position };
    let mut items: Vec<PlannedRead> =
        file.positions().map(|position| PlannedRead::new(0, place(position))).collect();
    sort(&mut items);
    items
}

fn job(item: &PlannedRead) -> ReadRequest {
    let address = item.place.file.index.address(item.place.position);
    ReadRequest { address, want: Wanted::Length, local_only: false, deadline: options().deadline }
}

fn options() -> ReadOptions {
    let deadline = (Instant::now() + VERIFYING_TIMEOUT).into_std();
    ReadOptions { deadline, local_only: false }
}
