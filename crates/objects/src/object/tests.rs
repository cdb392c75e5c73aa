//! Objects over a store in memory, on tokio's paused clock: times are exact, and nothing waits for
//! real.

use std::{ops::Range, sync::Arc, time::Duration};

use bytes::Bytes;
use tempfile::TempDir;
use tokio::{
    runtime::Handle,
    time::{Instant, timeout},
};

use crate::{
    AccessHint, Cache, CacheOptions, Error, FillFilter, Object, Progress, ReadOptions, Reading,
    Remote, StoreShare,
    disk::EXTENT_DATA_BYTES,
    limits,
    remote::fake::{Answer, Fake, contents},
};

mod far;
mod fetch;
mod fill;
mod model;
mod slow_link;
mod stream;

const MIB: u64 = 1 << 20;

struct Bench {
    fake: Arc<Fake>,
    remote: Arc<Remote>,
    cache: Arc<Cache>,
    object: Arc<Object>,
    bytes: Bytes,
    /// Directory of the cache, removed at the end.
    directory: Option<TempDir>,
}

/// Options of a cache with a disk.
#[derive(Clone, Copy)]
struct DiskOptions {
    bytes_max: u64,
    fill_bytes_max: u64,
    fill_whole_max: u64,
    free_bytes_min: u64,
}

const AMPLE: DiskOptions = DiskOptions {
    bytes_max: 256 * MIB,
    fill_bytes_max: 64 * MIB,
    fill_whole_max: 128 * MIB,
    free_bytes_min: 0,
};

impl Bench {
    /// Makes a cache without a disk.
    async fn diskless(length: u64) -> Self {
        Self::over(length, None).await
    }

    async fn new(length: u64, disk: DiskOptions) -> Self {
        Self::over(length, Some(disk)).await
    }

    async fn over(length: u64, disk: Option<DiskOptions>) -> Self {
        let runtime = Handle::current();
        let fake = Fake::new();
        let bytes = contents(usize::try_from(length).unwrap());
        fake.store("a", bytes.clone()).await;
        let remote = fake.remote();
        let meta = remote.list("").await.unwrap().remove(0);
        let directory = disk.map(|_| tempfile::tempdir().unwrap());
        let cache = match (disk, &directory) {
            (Some(disk), Some(directory)) => Cache::open(CacheOptions {
                directory: directory.path().to_owned(),
                bytes_max: disk.bytes_max,
                free_bytes_min: disk.free_bytes_min,
                fill_bytes_max: disk.fill_bytes_max,
                fill_whole_max: disk.fill_whole_max,
                store_share: StoreShare::default(),
                runtime,
            })
            .unwrap(),
            _ => Cache::none(64 * MIB, runtime),
        };
        let object = cache.object(&remote, &meta);
        Self { fake, remote, cache, object, bytes, directory }
    }

    /// Opens the object again, of a store with this filter.
    fn filtered(self, filter: &FillFilter) -> Self {
        let (meta, remote, cache) = (self.object.meta().clone(), self.remote, self.cache);
        drop(self.object);
        let object = cache.filtered_object(&remote, &meta, filter);
        Self { remote, cache, object, ..self }
    }

    fn read(&self, range: Range<u64>) -> Reading {
        self.object.read(range, within(Duration::from_secs(100)))
    }

    fn expected(&self, range: &Range<u64>) -> Bytes {
        let [start, end] =
            [range.start, range.end].map(|position| usize::try_from(position).unwrap());
        self.bytes.slice(start..end)
    }

    async fn reads_well(&self, range: Range<u64>) {
        let got = self.read(range.clone()).await.unwrap();
        assert!(got == self.expected(&range), "other bytes came for {range:?}");
    }

    fn foreground_reads(&self) -> u64 {
        self.remote.stats().foreground_reads
    }

    /// Waits until the fill has nothing more to do.
    async fn settled(&self) {
        let deadline = Instant::now() + Duration::from_secs(600);
        loop {
            let stats = self.cache.stats();
            if stats.fill_bytes == 0 && !self.object.core.fetches().queue.is_busy() {
                return;
            }
            assert!(Instant::now() < deadline, "the fill does not come to rest: {stats:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits for the last request: fetches without waiters go on, but not for ever.
    async fn requests_ended(&self) {
        let ended = async {
            while 0 < self.remote.stats().in_flight {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        timeout(Duration::from_secs(600), ended).await.expect("every request ends");
    }
}

fn within(time: Duration) -> ReadOptions {
    ReadOptions { deadline: (Instant::now() + time).into_std(), local_only: false }
}

const LOCAL: fn() -> ReadOptions =
    || ReadOptions { local_only: true, ..within(Duration::from_secs(100)) };
