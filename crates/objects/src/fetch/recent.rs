//! Completed foreground fetches whose bytes stay in memory for a while.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use super::Fetch;
use crate::{
    limits::{RECEIVED_BYTES_MAX, RECEIVED_FETCH_BYTES},
    object::ObjectCore,
};

/// Bytes of the last completed foreground fetches of a cache. Readers find them in the fetch table
/// of their object.
#[derive(Debug, Default)]
pub(crate) struct RecentFetches(Mutex<RecentQueue>);

/// Fetches, oldest first, with their bytes.
#[derive(Debug, Default)]
struct RecentQueue {
    fetches: VecDeque<(Weak<ObjectCore>, Weak<Fetch>, u64)>,
    bytes: u64,
}

impl RecentFetches {
    /// Adds a completed fetch; the oldest ones leave their tables when there are too many bytes.
    pub(crate) fn add(&self, object: &Arc<ObjectCore>, fetch: &Arc<Fetch>) {
        let bytes = fetch.range.end - fetch.range.start + RECEIVED_FETCH_BYTES;
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        queue.bytes += bytes;
        queue.fetches.push_back((Arc::downgrade(object), Arc::downgrade(fetch), bytes));
        let mut old = Vec::new();
        while RECEIVED_BYTES_MAX < queue.bytes
            && let Some((object, fetch, bytes)) = queue.fetches.pop_front()
        {
            queue.bytes -= bytes;
            old.push((object, fetch));
        }
        drop(queue);
        for (object, fetch) in old {
            if let (Some(object), Some(fetch)) = (object.upgrade(), fetch.upgrade()) {
                object.fetches().remove_foreground(&fetch);
            }
        }
    }
}
