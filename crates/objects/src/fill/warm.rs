//! Brings a whole object to disk, and says how far it has come.

use std::{ops::Range, sync::Arc};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::sync::watch;

use super::PartOutcome;
use crate::{Error, Progress, disk::DiskObject, object::ObjectCore, read::stopped, readahead};

/// One warming of an object. The parts it started go on when the caller drops it.
pub(crate) struct Warming<'a> {
    object: &'a Arc<ObjectCore>,
    disk: &'a Arc<DiskObject>,
    report: &'a mut (dyn FnMut(Progress) + Send),
    parts: FuturesUnordered<PartOutcome>,
    progress: Progress,
    is_refused: bool,
}

/// State of the next extents.
enum Next {
    /// Number of the next extents that are on disk.
    Present(u64),
    /// A part that brings the next one; the channel closes when it has ended.
    UnderWay(watch::Receiver<()>),
    /// Run of extents that are missing and not under way.
    Missing(Range<u64>),
}

impl<'a> Warming<'a> {
    pub(crate) fn new(
        object: &'a Arc<ObjectCore>,
        disk: &'a Arc<DiskObject>,
        report: &'a mut (dyn FnMut(Progress) + Send),
    ) -> Self {
        let progress = Progress { total: object.meta.size, ..Progress::default() };
        Self { object, disk, report, parts: FuturesUnordered::new(), progress, is_refused: false }
    }

    /// Fills what is missing. Returns what is on disk at the end: less than all if the disk does
    /// not take it.
    pub(crate) async fn run(mut self) -> Result<Progress, Error> {
        self.advance(0);
        let mut extent = 0;
        while extent < self.object.extents() && !self.is_refused {
            extent = self.step(extent).await?;
        }
        while let Some(kept) = self.parts.next().await {
            self.count(kept.unwrap_or_else(|_| Err(stopped(&self.object.what()))))?;
        }
        self.progress.done = self.bytes_present();
        self.advance(0);
        Ok(self.progress)
    }

    /// Handles the next extents. Returns the extent to go on with.
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
        let (end, is_there) = (self.object.extents(), |extent: &u64| self.disk.has_extent(*extent));
        let present = (extent..end).find(|extent| !is_there(extent)).unwrap_or(end) - extent;
        if 0 < present {
            return Next::Present(present);
        }
        let fetches = self.object.fetches();
        if let Some((_, ends)) = fetches.part_of_extent(extent) {
            return Next::UnderWay(ends.clone());
        }
        // Its part has ended since the check above.
        if is_there(&extent) {
            return Next::Present(1);
        }
        let is_taken = |extent| is_there(&extent) || fetches.part_of_extent(extent).is_some();
        let size = self.object.cache.fills.part_extents(self.object.remote.pace());
        Next::Missing(extent..readahead::run_end(extent, end, size, is_taken))
    }

    /// Starts a part when those of all fills before it are due soon. Returns false if others filled
    /// some of it while this waited.
    async fn start(&mut self, run: Range<u64>) -> Result<bool, Error> {
        let span = self.object.span(&run);
        let object = Arc::clone(self.object);
        let fills = &object.cache.fills;
        let turn = async {
            let limiter = fills.limiter.lock().await;
            limiter.wait(&object.remote).await;
            (limiter, fills.reserve(span.end - span.start).await)
        };
        let mut turn = std::pin::pin!(turn);
        let (mut limiter, permit) = loop {
            tokio::select! {
                turn = &mut turn => break turn,
                Some(kept) = self.parts.next() => {
                    self.count(kept.unwrap_or_else(|_| Err(stopped(&self.object.what()))))?;
                }
            }
        };
        let Some((part, kept)) = self.object.fill(self.disk, run, permit) else {
            return Ok(false);
        };
        limiter.add(&part);
        self.parts.push(kept);
        Ok(true)
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

    /// Counts the bytes on disk, without those that were evicted meanwhile.
    fn bytes_present(&self) -> u64 {
        let present = (0..self.object.extents()).filter(|extent| self.disk.has_extent(*extent));
        present
            .map(|extent| self.object.span(&(extent..extent + 1)))
            .map(|span| span.end - span.start)
            .sum()
    }
}
