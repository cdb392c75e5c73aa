//! The task that runs a foreground fetch.

use std::sync::Arc;

use super::{Fetch, ReadaheadTurn};
use crate::{object::ObjectCore, read::stopped, remote::Urgency};

/// A fetch whose bytes go to its waiters and to no disk, for as long as its task lives.
pub(crate) struct ForegroundFetch {
    object: Arc<ObjectCore>,
    fetch: Arc<Fetch>,
}

impl ForegroundFetch {
    pub(crate) fn new(object: &Arc<ObjectCore>, fetch: Arc<Fetch>) -> Self {
        Self { object: Arc::clone(object), fetch }
    }

    /// Runs a readahead of a stream: within the budget and with the urgency of fills.
    pub(crate) async fn run_ahead(self, turn: ReadaheadTurn) {
        turn.wait(&self.fetch, &self.object.remote).await;
        if self.fetch.has_ended() {
            return;
        }
        let bytes = self.fetch.range.end - self.fetch.range.start;
        let _permit = self.object.cache.fills.reserve(bytes).await;
        self.run(Urgency::Fill).await;
    }

    pub(crate) async fn run(self, urgency: Urgency) {
        let ObjectCore { remote, meta, cache, .. } = &*self.object;
        let mut sink = &*self.fetch;
        let read = remote.read_range(meta, self.fetch.range.clone(), urgency, &mut sink).await;
        match read {
            Ok(()) => cache.recent.add(&self.object, &self.fetch),
            Err(error) => {
                // Out of the table first: a reader that comes now starts a new fetch.
                self.object.fetches().remove_foreground(&self.fetch);
                self.fetch.fail(&error);
            }
        }
    }
}

impl Drop for ForegroundFetch {
    /// A task that is aborted, or that panics, leaves nobody waiting.
    fn drop(&mut self) {
        if self.fetch.received().is_none() {
            self.object.fetches().remove_foreground(&self.fetch);
            self.fetch.fail(&stopped(&self.object.what()));
        }
    }
}
