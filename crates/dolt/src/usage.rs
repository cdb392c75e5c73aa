//! Counters of what clients got: of each store, and of all stores of a set together.
//!
//! An event counts for the store and for its set at once. So the counters of a set need nothing of
//! the stores that are open, and a store that is closed takes nothing away from them.

use std::sync::{
    Arc,
    atomic::{
        AtomicBool, AtomicU64,
        Ordering::{AcqRel, Relaxed},
    },
};

use busload_objects::PathTraffic;

use crate::{
    Error, Requester,
    limits::ITEM_UNIT_BYTES,
    stats::{Origin, ReadFrom},
};

/// Counts of what clients got, of one store or of all stores of a set. Reads for peers and for
/// bundles do not count: the peer counts what its client got, and the download the bundle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageStats {
    /// Chunks that clients got from memory, from local disk, or with the read of another client.
    pub hits: u64,
    /// Chunks that clients got from the object store or from a peer.
    pub misses: u64,
    /// Reads of chunks that do not exist.
    pub absent: u64,
    /// Reads that failed. That a chunk is not on local disk, or that there is no such store, is no
    /// failure.
    pub errors: u64,
    /// Downloads of Dolt's clients that were answered.
    pub downloads: u64,
    /// Bytes of the chunks that clients got, as table files have them, and bytes of downloads.
    pub bytes: u64,
    /// Read units of DynamoDB that reads of the manifest took.
    pub item_units: u64,
}

impl UsageStats {
    /// Chunks that clients asked for.
    pub fn reads(&self) -> u64 {
        self.hits + self.misses + self.absent + self.errors
    }

    /// GETs that clients would have sent to the object store themselves: one for each chunk that
    /// they got, and one for each download.
    pub fn direct_requests(&self) -> u64 {
        self.hits + self.misses + self.downloads
    }
}

/// Counters of one store, which also count for its set.
#[derive(Debug, Default)]
pub struct StoreUsage {
    name: String,
    own: Counters,
    of_set: Option<Arc<Counters>>,
    /// Requests and bytes of the object store.
    traffic: Arc<PathTraffic>,
    /// Set while the busiest stores are chosen among others and this one.
    is_ranked: AtomicBool,
}

/// Counters that [`UsageStats`] are read from.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    absent: AtomicU64,
    errors: AtomicU64,
    downloads: AtomicU64,
    bytes: AtomicU64,
    item_units: AtomicU64,
}

impl StoreUsage {
    pub(crate) fn new(name: &str, traffic: Arc<PathTraffic>) -> Self {
        Self { name: name.to_owned(), traffic, ..Self::default() }
    }

    /// Makes the counters of a store of a set.
    pub(crate) fn of_set(name: &str, of_set: &Arc<Counters>) -> Self {
        Self { name: name.to_owned(), of_set: Some(of_set.clone()), ..Self::default() }
    }

    /// Returns the name of the store.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the counts of this store.
    pub fn stats(&self) -> UsageStats {
        self.own.stats()
    }

    /// Returns the requests and bytes of the store's path in the bucket.
    pub fn traffic(&self) -> &Arc<PathTraffic> {
        &self.traffic
    }

    /// Number of reads and downloads so far.
    pub(crate) fn activity(&self) -> u64 {
        let stats = self.stats();
        stats.reads() + stats.downloads
    }

    /// Notes whether the store is ranked; returns whether it was.
    pub(crate) fn set_ranked(&self, is_ranked: bool) -> bool {
        self.is_ranked.swap(is_ranked, AcqRel)
    }

    /// Counts a chunk that was read.
    pub(crate) fn count_found(&self, requester: Requester, from: ReadFrom) {
        if requester != Requester::Client {
            return;
        }
        let ReadFrom { origin, stored_bytes } = from;
        self.each(|counters| {
            let chunks = match origin {
                Origin::Memory | Origin::Disk => &counters.hits,
                Origin::Store | Origin::Peer => &counters.misses,
            };
            chunks.fetch_add(1, Relaxed);
            counters.bytes.fetch_add(u64::from(stored_bytes), Relaxed);
        });
    }

    /// Counts a chunk that a client got with another one's read, for which its bytes count.
    pub fn count_shared(&self) {
        self.each(|counters| _ = counters.hits.fetch_add(1, Relaxed));
    }

    /// Counts a read that gave no chunk.
    pub fn count_other(&self, requester: Requester, error: Option<&Error>) {
        // A store that does not exist shall not be one of the busiest.
        let is_other = matches!(error, Some(Error::NotLocal | Error::NoStore(_)));
        if requester != Requester::Client || is_other {
            return;
        }
        self.each(|counters| {
            let reads = if error.is_some() { &counters.errors } else { &counters.absent };
            reads.fetch_add(1, Relaxed);
        });
    }

    /// Counts a read of the item with the manifest, of this many bytes.
    pub(crate) fn count_item_read(&self, bytes: u64) {
        let units = bytes.div_ceil(ITEM_UNIT_BYTES).max(1);
        self.each(|counters| _ = counters.item_units.fetch_add(units, Relaxed));
    }

    /// Counts a download that was answered.
    pub fn count_download(&self) {
        self.each(|counters| _ = counters.downloads.fetch_add(1, Relaxed));
    }

    /// Counts bytes of downloads that were handed to their connections.
    pub fn count_sent(&self, bytes: u64) {
        self.each(|counters| _ = counters.bytes.fetch_add(bytes, Relaxed));
    }

    fn each(&self, count: impl Fn(&Counters)) {
        count(&self.own);
        self.of_set.iter().for_each(|counters| count(counters));
    }
}

impl Counters {
    pub fn stats(&self) -> UsageStats {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        UsageStats {
            hits: read(&self.hits),
            misses: read(&self.misses),
            absent: read(&self.absent),
            errors: read(&self.errors),
            downloads: read(&self.downloads),
            bytes: read(&self.bytes),
            item_units: read(&self.item_units),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_disk(stored_bytes: u32) -> ReadFrom {
        ReadFrom { origin: Origin::Disk, stored_bytes }
    }

    #[test]
    fn every_event_counts_for_the_store_and_for_its_set() {
        let of_set = Arc::default();
        let stores = ["a", "b"].map(|name| StoreUsage::of_set(name, &of_set));
        for usage in &stores {
            usage.count_found(Requester::Client, of_disk(10));
            usage
                .count_found(Requester::Client, ReadFrom { origin: Origin::Peer, stored_bytes: 5 });
            usage.count_other(Requester::Client, None);
            usage.count_other(Requester::Client, Some(&Error::Closed));
            usage.count_download();
            usage.count_sent(100);
            usage.count_item_read(0);
            usage.count_item_read(ITEM_UNIT_BYTES + 1);
        }
        let expected = UsageStats {
            hits: 1,
            misses: 1,
            absent: 1,
            errors: 1,
            downloads: 1,
            bytes: 115,
            item_units: 3,
        };
        assert_eq!(stores[0].stats(), expected);
        assert_eq!((expected.reads(), expected.direct_requests()), (4, 3));
        drop(stores);
        assert_eq!(of_set.stats().bytes, 230, "closed stores take nothing away");
        assert_eq!(of_set.stats().reads(), 8);
    }

    #[test]
    fn what_no_client_of_this_process_got_does_not_count() {
        let usage = StoreUsage::default();
        for requester in [Requester::Peer, Requester::Bundle] {
            usage.count_found(requester, of_disk(10));
            usage.count_other(requester, None);
        }
        usage.count_other(Requester::Client, Some(&Error::NotLocal));
        let no_store = Error::NoStore("there is no store a/b".to_owned());
        usage.count_other(Requester::Client, Some(&no_store));
        assert_eq!(usage.stats(), UsageStats::default());
    }
}
