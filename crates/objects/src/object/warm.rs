//! Brings a whole object to disk, and says how far it has come.

use std::{ops::Range, sync::Arc};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::sync::watch;

use super::{Shared, fill::Kept, reading::given_up};
use crate::{Error, Progress, disk::DiskFile};

/// A warming. The parts it started go on when it is given up.
pub(super) struct Warming<'a> {
    object: &'a Arc<Shared>,
    file: &'a Arc<DiskFile>,
    report: &'a mut (dyn FnMut(Progress) + Send),
    parts: FuturesUnordered<Kept>,
    progress: Progress,
    is_refused: bool,
}

/// What to do about the next extents.
enum Next {
    /// So many are there.
    Present(u64),
    /// A fill brings the next one: when it has ended one has to look again.
    UnderWay(watch::Receiver<()>),
    /// These have to be brought.
    Missing(Range<u64>),
}

impl<'a> Warming<'a> {
    pub(super) fn new(
        object: &'a Arc<Shared>,
        file: &'a Arc<DiskFile>,
        report: &'a mut (dyn FnMut(Progress) + Send),
    ) -> Self {
        let progress = Progress { total: object.meta.size, ..Progress::default() };
        Self { object, file, report, parts: FuturesUnordered::new(), progress, is_refused: false }
    }

    /// Returns what is on disk at the end: less than all if the disk does not take it.
    pub(super) async fn run(mut self) -> Result<Progress, Error> {
        self.advance(0);
        let mut extent = 0;
        while extent < self.object.extents() && !self.is_refused {
            extent = self.step(extent).await?;
        }
        while let Some(kept) = self.parts.next().await {
            self.count(kept.unwrap_or_else(|_| Err(given_up(&self.object.what()))))?;
        }
        self.progress.done = self.bytes_present();
        self.advance(0);
        Ok(self.progress)
    }

    /// Returns the extent to go on with.
    async fn step(&mut self, extent: u64) -> Result<u64, Error> {
        match self.next(extent) {
            Next::Present(count) => {
                let span = self.object.span(&(extent..extent + count));
                self.advance(span.end - span.start);
                Ok(extent + count)
            }
            Next::UnderWay(mut ends) => {
                // Nothing is ever sent: the part's end closes the channel.
                while ends.changed().await.is_ok() {}
                Ok(extent)
            }
            Next::Missing(run) => {
                let end = run.end;
                Ok(if self.start(run).await? { end } else { extent })
            }
        }
    }

    fn next(&self, extent: u64) -> Next {
        let (end, is_there) = (self.object.extents(), |extent: &u64| self.file.has_extent(*extent));
        let present = (extent..end).find(|extent| !is_there(extent)).unwrap_or(end) - extent;
        if 0 < present {
            return Next::Present(present);
        }
        let table = self.object.table();
        if let Some((_, ends)) = table.part_of_extent(extent) {
            return Next::UnderWay(ends.clone());
        }
        let limit = (extent + 1).next_multiple_of(self.object.fills.part_extents()).min(end);
        let is_taken = |extent: &u64| is_there(extent) || table.part_of_extent(*extent).is_some();
        match (extent..limit).find(is_taken).unwrap_or(limit) {
            // Its part has ended since the look above.
            end if end == extent => Next::Present(1),
            end => Next::Missing(extent..end),
        }
    }

    /// False: others brought some of it while this waited for its turn.
    async fn start(&mut self, run: Range<u64>) -> Result<bool, Error> {
        let span = self.object.span(&run);
        let fills = Arc::clone(&self.object.fills);
        let mut reserve = std::pin::pin!(fills.reserve(span.end - span.start));
        let permit = loop {
            tokio::select! {
                permit = &mut reserve => break permit,
                Some(kept) = self.parts.next() => {
                    self.count(kept.unwrap_or_else(|_| Err(given_up(&self.object.what()))))?;
                }
            }
        };
        let kept = self.object.bring(self.file, run, permit);
        let is_brought = kept.is_some();
        self.parts.extend(kept.map(|(_, kept)| kept));
        Ok(is_brought)
    }

    fn count(&mut self, kept: Result<u64, Error>) -> Result<(), Error> {
        let kept = kept?;
        self.is_refused |= kept == 0;
        self.advance(kept);
        Ok(())
    }

    fn advance(&mut self, bytes: u64) {
        self.progress.done += bytes;
        (self.report)(self.progress);
    }

    /// What was evicted meanwhile does not count.
    fn bytes_present(&self) -> u64 {
        let present = (0..self.object.extents()).filter(|extent| self.file.has_extent(*extent));
        present
            .map(|extent| self.object.span(&(extent..extent + 1)))
            .map(|span| span.end - span.start)
            .sum()
    }
}
