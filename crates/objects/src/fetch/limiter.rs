//! Sends fetches one after the other over a slow link.
//!
//! Fetches that share a slow link all come late, the first of them too, for which somebody waits.
//! So each is sent when those before it are due soon ([`readahead::may_send`]). Before a fast store
//! none waits.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::Fetch;
use crate::{
    limits::{READAHEAD_POLL_INTERVAL, READAHEAD_SHARE},
    readahead,
    remote::{Remote, Sink},
};

/// Fetches ahead of one stream, or parts of the fills of one cache, in the order of sending.
#[derive(Debug, Default)]
pub(crate) struct ReadaheadLimiter {
    /// Time within which the fetches under way should be due.
    time: Duration,
    fetches: Vec<Weak<Fetch>>,
}

/// Turn of a fetch behind others, which were all added before it: no two wait for each other.
#[derive(Debug)]
pub(crate) struct ReadaheadTurn {
    time: Duration,
    before: Vec<Weak<Fetch>>,
}

impl ReadaheadLimiter {
    /// Lets as much be under way as is due within this time.
    pub(crate) fn new(time: Duration) -> Self {
        Self { time, fetches: Vec::new() }
    }

    /// Limits the readahead of a stream with this timeout.
    pub(crate) fn of_stream(timeout: Duration) -> Self {
        Self::new(timeout / READAHEAD_SHARE)
    }

    /// Adds a fetch behind all that are there.
    pub(crate) fn add(&mut self, fetch: &Arc<Fetch>) -> ReadaheadTurn {
        self.fetches.retain(|other| other.upgrade().is_some_and(|other| !other.has_ended()));
        let before = self.fetches.clone();
        self.fetches.push(Arc::downgrade(fetch));
        ReadaheadTurn { time: self.time, before }
    }

    /// Waits until all that are there are due soon.
    pub(crate) async fn wait(&self, remote: &Remote) {
        while !may_send_after(&self.fetches, self.time, remote) {
            sleep(READAHEAD_POLL_INTERVAL).await;
        }
    }
}

impl ReadaheadTurn {
    /// Waits until the fetch may be sent, or nobody wants it any more.
    pub(crate) async fn wait(self, mut fetch: &Fetch, remote: &Remote) {
        while !may_send_after(&self.before, self.time, remote) && fetch.is_wanted() {
            sleep(READAHEAD_POLL_INTERVAL).await;
        }
    }
}

/// Returns whether the next fetch may be sent after the given ones.
fn may_send_after(fetches: &[Weak<Fetch>], time: Duration, remote: &Remote) -> bool {
    let under_way = fetches.iter().filter_map(Weak::upgrade).filter(|fetch| !fetch.has_ended());
    let before: Vec<_> = under_way.map(|fetch| (fetch.range.end, fetch.progress())).collect();
    let pace = (remote.pace().bandwidth, remote.gains_by_one_more());
    readahead::may_send(&before, pace, time, Instant::now())
}
