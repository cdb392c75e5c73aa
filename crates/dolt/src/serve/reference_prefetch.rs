//! Prefetches the chunks that a chunk refers to, because its reader is likely to ask for them.
//!
//! ```text
//!  read from the store --> references --> in the index, not local --> Prefetcher
//!  any read ------------> prefetched before? --> share of those that are read --> goes on or not
//! ```
//!
//! * **Only where it helps**: for contents that came from the store, in files that do not come to
//!   disk whole by themselves, and while the store is idle and not behind a slow link.
//! * **Limits**: chunks and bytes of one read; and those of all prefetches.
//! * **It turns itself down**: if few of the chunks that it brought are read afterwards, only one
//!   in many reads goes on to be followed, until that changes.

use std::{
    collections::{HashSet, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use busload_chunks::{ChunkAddress, references};
use bytes::Bytes;

use super::{Located, Location, location, prefetch::Prefetcher};
use crate::{
    Chunk,
    limits::{
        REFERENCES_BYTES_MAX, REFERENCES_IDLE_REQUESTS_MAX, REFERENCES_PREFETCHED_MAX,
        REFERENCES_READ_SHARE_MIN, REFERENCES_READ_WEIGHT, REFERENCES_REMEMBERED_MAX,
        REFERENCES_TRIED_EACH, SLOW_LINK_BANDWIDTH,
    },
    read::{decode::Decoded, file_chunk_reader::FileChunkReader},
    stats::Origin,
    versions::{Versions, table_file::range, version::Version},
};

/// Follows the references of chunks that are read.
pub(crate) struct ReferencePrefetcher {
    versions: Arc<Versions>,
    file_chunks: Arc<FileChunkReader>,
    prefetcher: Arc<Prefetcher>,
    usefulness: Mutex<Usefulness>,
    /// True if some prefetched chunks are remembered: reads from disk look no further otherwise.
    has_some: AtomicBool,
    prefetched: AtomicU64,
    read: AtomicU64,
}

/// Prefetched chunks that nobody has read so far, and the share of those that somebody reads.
#[derive(Debug)]
struct Usefulness {
    /// Prefetched chunks, oldest first.
    order: VecDeque<ChunkAddress>,
    unread: HashSet<ChunkAddress>,
    /// Moving average of the share that is read.
    share: f64,
    /// Reads since the last that was followed although the share is small.
    since_tried: u32,
}

impl ReferencePrefetcher {
    pub fn new(
        versions: Arc<Versions>,
        file_chunks: Arc<FileChunkReader>,
        prefetcher: Arc<Prefetcher>,
    ) -> Self {
        Self {
            versions,
            file_chunks,
            prefetcher,
            usefulness: Mutex::new(Usefulness::new()),
            has_some: AtomicBool::new(false),
            prefetched: AtomicU64::new(0),
            read: AtomicU64::new(0),
        }
    }

    /// Number of chunks prefetched because others refer to them.
    pub fn prefetched(&self) -> u64 {
        self.prefetched.load(Relaxed)
    }

    /// Number of those that were read afterwards.
    pub fn read(&self) -> u64 {
        self.read.load(Relaxed)
    }

    /// Handles that a chunk was read; starts to prefetch what it refers to.
    pub fn handle_read(
        self: &Arc<Self>,
        address: &ChunkAddress,
        (decoded, origin): (&Decoded, Origin),
    ) {
        if self.has_some.load(Relaxed) {
            let mut usefulness = self.usefulness();
            if usefulness.handle_read(address) {
                self.read.fetch_add(1, Relaxed);
            }
            self.has_some.store(!usefulness.unread.is_empty(), Relaxed);
        }
        if let (Origin::Store, Decoded::Chunk(Chunk::Contents(contents))) = (origin, decoded)
            && self.is_idle()
            && self.usefulness().may_follow()
        {
            let (this, contents) = (Arc::clone(self), contents.clone());
            drop(self.file_chunks.lifecycle.spawn(async move { this.follow(&contents) }));
        }
    }

    /// Returns whether a prefetch delays nobody, as far as is known.
    fn is_idle(&self) -> bool {
        let remote = &self.file_chunks.source.remote;
        let is_slow = remote.bandwidth().is_some_and(|bandwidth| bandwidth < SLOW_LINK_BANDWIDTH);
        !is_slow && remote.in_flight() <= REFERENCES_IDLE_REQUESTS_MAX
    }

    fn follow(&self, contents: &Bytes) {
        let Some(version) = self.versions.current() else { return };
        let started = self.prefetcher.prefetch_some(&referenced(&version, contents));
        if started.is_empty() {
            return;
        }
        self.prefetched.fetch_add(started.len() as u64, Relaxed);
        self.usefulness().add(started);
        self.has_some.store(true, Relaxed);
    }

    fn usefulness(&self) -> MutexGuard<'_, Usefulness> {
        self.usefulness.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Locates the chunks that these contents refer to and that have to come from the store, as many as
/// one read prefetches.
fn referenced(version: &Version, contents: &Bytes) -> Located {
    let mut bytes = 0;
    let is_wanted = |location: &Location| {
        let object = &location.file.object;
        !object.comes_whole() && !object.is_local(range(location.span))
    };
    let addresses = references(contents);
    let locations = addresses
        .iter()
        .filter_map(|address| location(version, address))
        .filter(is_wanted)
        .take(REFERENCES_PREFETCHED_MAX)
        .take_while(|location| {
            bytes += u64::from(location.span.length);
            bytes <= REFERENCES_BYTES_MAX
        });
    let locations = locations.map(Some).collect();
    Located { snapshot: Arc::clone(&version.snapshot), locations }
}

impl Usefulness {
    fn new() -> Self {
        Self { order: VecDeque::new(), unread: HashSet::new(), share: 0.5, since_tried: 0 }
    }

    /// Adds prefetched chunks. The oldest ones that nobody has read count as useless.
    fn add(&mut self, addresses: Vec<ChunkAddress>) {
        for address in addresses {
            if self.unread.insert(address) {
                self.order.push_back(address);
            }
        }
        while REFERENCES_REMEMBERED_MAX < self.order.len()
            && let Some(oldest) = self.order.pop_front()
        {
            if self.unread.remove(&oldest) {
                self.share -= self.share * REFERENCES_READ_WEIGHT;
            }
        }
    }

    /// Returns whether the chunk had been prefetched and was not read before.
    fn handle_read(&mut self, address: &ChunkAddress) -> bool {
        let is_useful = self.unread.remove(address);
        if is_useful {
            self.share += (1.0 - self.share) * REFERENCES_READ_WEIGHT;
        }
        is_useful
    }

    /// Returns whether the references of a chunk are followed.
    fn may_follow(&mut self) -> bool {
        self.since_tried += 1;
        let may =
            REFERENCES_READ_SHARE_MIN <= self.share || REFERENCES_TRIED_EACH <= self.since_tried;
        if may {
            self.since_tried = 0;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(from: u32, count: u32) -> Vec<ChunkAddress> {
        (from..from + count).map(|number| ChunkAddress::of(&number.to_be_bytes())).collect()
    }

    #[test]
    fn useless_prefetches_get_rare_and_useful_ones_go_on() {
        let mut usefulness = Usefulness::new();
        let follows =
            |usefulness: &mut Usefulness| (0..640).filter(|_| usefulness.may_follow()).count();
        let many = u32::try_from(REFERENCES_REMEMBERED_MAX).unwrap();
        assert_eq!(follows(&mut usefulness), 640);
        usefulness.add(addresses(0, 2 * many));
        assert_eq!(follows(&mut usefulness), 640 / REFERENCES_TRIED_EACH as usize);
        assert_eq!(usefulness.order.len(), REFERENCES_REMEMBERED_MAX);
        let later = addresses(2 * many, 64);
        usefulness.add(later.clone());
        assert!(later.iter().all(|address| usefulness.handle_read(address)));
        assert!(!usefulness.handle_read(&later[0]), "once");
        assert_eq!(follows(&mut usefulness), 640);
    }
}
