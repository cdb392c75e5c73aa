//! An S3 server behind a proxy with faults, a cache in front of it, and readers that check every
//! byte.

pub mod child;

use std::{
    fs,
    ops::Range,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use busload_bucket::{Bucket, Fault, FaultProxy, Faults, Rule, url};
use busload_objects::{
    Cache, CacheOptions, Error, Object, ObjectMeta, ReadOptions, Remote, RemoteOptions, StoreShare,
};
use bytes::Bytes;
use tempfile::TempDir;
use tokio::{runtime::Handle, task::JoinSet};

/// Timeout of events that have to happen at some time.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Number of concurrent readers.
pub const READERS: u64 = 16;

/// Bytes of one MiB.
pub const MIB: u64 = 1 << 20;

/// A store and its directory.
pub struct Store {
    _root: TempDir,
    pub bucket: Bucket,
    pub proxy: FaultProxy,
}

impl Store {
    /// Starts a store with one seed for all random choices.
    pub fn start(seed: u64) -> Self {
        let root = TempDir::new().unwrap();
        let bucket = Bucket::start(root.path()).unwrap();
        let proxy = FaultProxy::start(bucket.address(), seed, Faults::default()).unwrap();
        Self { _root: root, bucket, proxy }
    }

    pub fn put(&self, name: &str, contents: &[u8]) {
        self.bucket.put(&format!("store/{name}"), contents).unwrap();
    }

    /// Stores a new object and opens it in a cache.
    pub async fn put_and_open(
        &self,
        cache: &Arc<Cache>,
        name: &str,
        contents: &[u8],
    ) -> Arc<Object> {
        self.put(name, contents);
        let remote = self.remote();
        cache.object(&remote, &meta(&remote, name).await)
    }

    pub fn url(&self) -> String {
        url(self.proxy.address(), "store")
    }

    pub fn remote(&self) -> Arc<Remote> {
        remote(&self.url())
    }

    pub fn rules(&self, rules: Vec<Rule>) {
        self.proxy.set(Faults { rules, ..Faults::default() });
    }

    pub fn rule(&self, fault: Fault, probability: f64) {
        self.rules(vec![Rule::sometimes(probability, fault)]);
    }

    /// Ranges of the GETs since the last [`FaultProxy::forget`].
    pub fn gets(&self) -> Vec<Range<u64>> {
        let seen = self.proxy.seen().into_iter();
        seen.filter(|seen| seen.method == "GET").filter_map(|seen| seen.range).collect()
    }

    pub fn bytes_sent(&self) -> u64 {
        self.proxy.seen().iter().map(|seen| seen.bytes).sum()
    }
}

/// Remote with many attempts and a short stall timeout.
pub fn remote(url: &str) -> Arc<Remote> {
    connect(url, 25, Duration::from_millis(250), true)
}

/// Remote with so many attempts, for stores that fail at once, and a stall timeout that a slow
/// machine does not reach.
pub fn remote_with(url: &str, attempts_max: u32) -> Arc<Remote> {
    connect(url, attempts_max, TIMEOUT, false)
}

/// Remote for tests that count requests: its stall timeout is never reached, even on a busy
/// machine, and it sends none twice.
pub fn remote_without_stalls(url: &str) -> Arc<Remote> {
    connect(url, 25, TIMEOUT, false)
}

fn connect(url: &str, attempts_max: u32, stall_timeout: Duration, hedge: bool) -> Arc<Remote> {
    let options = RemoteOptions {
        environment: Arc::new(|_| None),
        runtime: Handle::current(),
        requests_max: 64,
        stall_timeout,
        hedge,
        attempts_max,
    };
    Remote::new(url, options).unwrap()
}

/// Disk space and fill budget of a cache.
#[derive(Clone, Copy)]
pub struct Sizes {
    pub disk: u64,
    pub free: u64,
    pub fill_whole_max: u64,
    pub fill_memory: u64,
}

/// Room for everything; fills bring whole objects.
pub const AMPLE: Sizes =
    Sizes { disk: 1 << 30, free: 0, fill_whole_max: 1 << 30, fill_memory: 16 * MIB };

/// Room for everything; fills bring only the extents touched.
pub const TOUCHED: Sizes = Sizes { fill_whole_max: 0, ..AMPLE };

/// A child that another test starts at this moment has the lock's descriptor until it executes its
/// program.
pub fn cache(directory: &Path, sizes: Sizes) -> Arc<Cache> {
    let started = now();
    loop {
        match Cache::open(options(directory, sizes)) {
            Err(Error::Locked(_)) if started.elapsed() < TIMEOUT => std::thread::yield_now(),
            outcome => return outcome.unwrap(),
        }
    }
}

pub fn options(directory: &Path, sizes: Sizes) -> CacheOptions {
    CacheOptions {
        directory: directory.to_owned(),
        bytes_max: sizes.disk,
        free_bytes_min: sizes.free,
        fill_bytes_max: sizes.fill_memory,
        fill_whole_max: sizes.fill_whole_max,
        store_share: StoreShare::default(),
        runtime: Handle::current(),
    }
}

/// Bytes of an object, a function of their position.
pub fn contents(seed: u64, bytes: u64) -> Bytes {
    let mut words = Vec::with_capacity(usize::try_from(bytes).unwrap().next_multiple_of(8));
    for word in 0..bytes.div_ceil(8) {
        words.extend_from_slice(&mix(seed ^ mix(word)).to_le_bytes());
    }
    words.truncate(usize::try_from(bytes).unwrap());
    words.into()
}

/// Random numbers by SplitMix64.
pub fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Makes the numbers of a seed.
#[derive(Clone, Copy, Debug)]
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = mix(self.0);
        self.0 % end
    }

    /// Draws a range of an object of so many bytes; short ones more often than long ones.
    pub fn range(&mut self, size: u64) -> Range<u64> {
        let longest = 1 << self.below(18);
        let length = 1 + self.below(longest).min(size - 1);
        let start = self.below(size - length + 1);
        start..start + length
    }
}

pub fn slice<'a>(contents: &'a [u8], range: &Range<u64>) -> &'a [u8] {
    &contents[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()]
}

#[allow(clippy::disallowed_methods, reason = "deadlines of tests are real")]
pub fn now() -> Instant {
    Instant::now()
}

pub fn patiently() -> ReadOptions {
    ReadOptions { deadline: now() + TIMEOUT, local_only: false }
}

pub fn locally() -> ReadOptions {
    ReadOptions { local_only: true, ..patiently() }
}

/// Checks that the bytes are right.
#[track_caller]
pub fn assert_right(got: &[u8], contents: &[u8], range: &Range<u64>, why: &str) {
    let wanted = slice(contents, range);
    assert_eq!(got.len(), wanted.len(), "length of {range:?}: {why}");
    let wrong = got.iter().zip(wanted).position(|(got, wanted)| got != wanted);
    assert!(wrong.is_none(), "wrong byte at {} of {range:?}: {why}", wrong.unwrap_or(0));
}

/// Outcomes of a reader's reads. Wrong bytes fail the test at once.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    pub right: u64,
    pub errors: Vec<Error>,
}

/// Makes so many rounds of a few random reads each, by one reader.
pub async fn read_randomly(
    object: Arc<Object>,
    contents: Bytes,
    mut numbers: Numbers,
    rounds: u64,
) -> Counters {
    let mut counters = Counters::default();
    let seed = numbers.0;
    for _ in 0..rounds {
        let count = 1 + numbers.below(4);
        let ranges: Vec<_> = (0..count).map(|_| numbers.range(object.meta().size)).collect();
        // A reading that is dropped must disturb no other.
        let is_dropped = numbers.below(16) == 0;
        let readings = object.read_many(&ranges, patiently());
        assert_eq!(readings.len(), ranges.len());
        if is_dropped {
            continue;
        }
        for (range, reading) in ranges.iter().zip(readings) {
            match reading.await {
                Ok(bytes) => {
                    assert_right(&bytes, &contents, range, &format!("reader {seed:x}"));
                    counters.right += 1;
                }
                Err(error) => counters.errors.push(error),
            }
        }
    }
    counters
}

/// Runs many readers at once.
pub async fn read_by_many(
    object: &Arc<Object>,
    contents: &Bytes,
    seed: u64,
    rounds: u64,
) -> Counters {
    let mut readers = JoinSet::new();
    for reader in 0..READERS {
        let numbers = Numbers(mix(seed ^ mix(reader)));
        readers.spawn(read_randomly(Arc::clone(object), contents.clone(), numbers, rounds));
    }
    let mut all = Counters::default();
    for counters in readers.join_all().await {
        all.right += counters.right;
        all.errors.extend(counters.errors);
    }
    all
}

/// Metadata of an object, without faults.
pub async fn meta(remote: &Remote, name: &str) -> ObjectMeta {
    remote.head(name).await.unwrap().expect("the object is there")
}

/// Waits until a condition holds.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = now();
    while !is_so() {
        assert!(started.elapsed() < TIMEOUT, "not within a minute: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Disk space of the files of a directory. Files that vanish meanwhile use none.
pub fn disk_usage(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let sizes = entries.filter_map(Result::ok).map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_usage(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        Err(_) => 0,
    });
    sizes.sum()
}
