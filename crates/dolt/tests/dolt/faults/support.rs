//! Chunk stores in a bucket behind a proxy with faults, and readers that verify every chunk.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use busload_bucket::{Bucket, Fault, FaultProxy, Faults, Rule, url};
use busload_chunks::{
    ChunkAddress, FileSpec,
    write::{ClassicWriter, manifest},
};
use busload_dolt::{Chunk, Error, Form, Occasion, Request, Requester, Settings, Store};
use tempfile::TempDir;
use tokio::{runtime::Handle, task::JoinSet};

/// Time within which anything awaited has to happen.
pub const TIMEOUT: Duration = Duration::from_secs(60);

pub const MIB: u64 = 1 << 20;

/// Every chunk store of the fixtures whose chunks are what their addresses say, in all of its
/// formats.
pub const FIXTURES: [&str; 5] = [
    "real-classic",
    "real-archive-v3",
    "real-archive-conjoined",
    "real-localbs",
    "real-generational",
];

/// A bucket with one chunk store.
pub struct World {
    _root: TempDir,
    pub directory: TempDir,
    pub bucket: Bucket,
    pub proxy: FaultProxy,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let root = TempDir::new().unwrap();
        let bucket = Bucket::start(root.path()).unwrap();
        let proxy = FaultProxy::start(bucket.address(), seed, Faults::default()).unwrap();
        Self { _root: root, directory: TempDir::new().unwrap(), bucket, proxy }
    }

    /// Puts a copy of a fixture into the bucket; returns the addresses of its chunks.
    pub fn with_fixture(seed: u64, name: &str) -> (Self, Vec<ChunkAddress>) {
        let world = Self::new(seed);
        let fixture =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../chunks/tests/fixtures/dolt").join(name);
        let store = fixture.join("store");
        for path in files(&store) {
            let key = path.strip_prefix(&store).unwrap().to_str().unwrap();
            world.put(key, &fs::read(&path).unwrap());
        }
        let mut addresses = addresses(&fixture.join("chunks.jsonl"));
        let old = fixture.join("chunks-oldgen.jsonl");
        if old.exists() {
            addresses.extend(self::addresses(&old));
        }
        (world, addresses)
    }

    pub fn put(&self, name: &str, bytes: &[u8]) {
        self.bucket.put(&format!("db/{name}"), bytes).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.bucket.directory().join("db").join(name)
    }

    /// Puts a new table file of so many chunks, whose contents follow from the seed.
    pub fn put_file(&self, seed: u64, chunks: u64) -> (FileSpec, Vec<ChunkAddress>) {
        let mut writer = ClassicWriter::new(Vec::new());
        let addresses =
            (0..chunks).map(|index| writer.push(&contents(seed, index)).unwrap()).collect();
        let (spec, bytes) = writer.finish().unwrap();
        self.put(&spec.id.to_string(), &bytes);
        (spec, addresses)
    }

    pub fn put_manifest(&self, root: ChunkAddress, files: &[FileSpec]) {
        self.put("manifest", manifest(root, files).as_bytes());
    }

    /// Starts a store on the bucket.
    pub fn start(&self) -> Store {
        self.start_with(|_| {})
    }

    pub fn start_with(&self, change: impl FnOnce(&mut Settings)) -> Store {
        let mut settings = Settings {
            name: "db".to_owned(),
            url: url(self.proxy.address(), "db"),
            directory: self.directory.path().join("cache"),
            disk_bytes_max: 1 << 30,
            disk_free_bytes_min: 0,
            fill_whole_max: 1 << 30,
            fill_bytes_max: 16 * MIB,
            poll: Duration::from_millis(200),
            memory_bytes_max: 0,
            requests_max: 32,
            hedge: true,
            grace_period: Duration::from_secs(600),
            occasion: Occasion::Configured,
            peers: None,
            tables: busload_dolt::DynamoTables::default(),
            environment: Arc::new(|_| None),
            runtime: Handle::current(),
        };
        change(&mut settings);
        Store::start(settings).unwrap()
    }

    pub fn rules(&self, rules: Vec<Rule>) {
        self.proxy.set(Faults { rules, ..Faults::default() });
    }

    pub fn rule(&self, fault: Fault, probability: f64) {
        self.rules(vec![Rule::sometimes(probability, fault)]);
    }
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let (mut found, mut pending) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { pending.push(path) } else { found.push(path) }
        }
    }
    found
}

fn addresses(list: &Path) -> Vec<ChunkAddress> {
    let lines = fs::read_to_string(list).unwrap();
    let address = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        ChunkAddress::from_key(line["addr"].as_str().unwrap().as_bytes()).unwrap()
    };
    lines.lines().map(address).collect()
}

/// Makes contents that compress about 2:1 and differ for every seed and index.
pub fn contents(seed: u64, index: u64) -> Vec<u8> {
    let start = mix(seed ^ mix(index));
    let words = 8 + start % 500;
    (0..words).flat_map(|word| (mix(start ^ word) & 0xffff_ffff).to_le_bytes()).collect()
}

/// Hashes a number (SplitMix64).
pub fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[allow(clippy::disallowed_methods, reason = "deadlines of tests are real")]
pub fn now() -> Instant {
    Instant::now()
}

pub fn patiently() -> Request {
    Request {
        form: Form::Contents,
        local_only: false,
        requester: Requester::Client,
        deadline: now() + TIMEOUT,
    }
}

/// Makes an address that no chunk has.
pub fn absent(seed: u64) -> ChunkAddress {
    ChunkAddress::of(format!("nobody wrote this: {seed}").as_bytes())
}

/// Counts outcomes of reads. Panics on a wrong chunk, and on nil for one that exists.
#[derive(Debug, Default)]
pub struct Counters {
    pub right: u64,
    pub absent: u64,
    pub errors: Vec<Error>,
}

impl Counters {
    #[track_caller]
    pub fn count(
        &mut self,
        address: &ChunkAddress,
        exists: bool,
        answer: Result<Option<Chunk>, Error>,
    ) {
        match answer {
            Ok(Some(Chunk::Contents(bytes))) => {
                assert_eq!(ChunkAddress::of(&bytes), *address, "a wrong chunk");
                assert!(exists, "{address} should not exist");
                self.right += 1;
            }
            Ok(Some(other)) => panic!("contents were asked for: {other:?}"),
            Ok(None) => {
                assert!(!exists, "nil for {address}, which exists");
                self.absent += 1;
            }
            Err(error) => self.errors.push(error),
        }
    }
}

/// Reads chunks that exist, one after the other.
pub async fn read_each<'a>(
    store: &Store,
    addresses: impl IntoIterator<Item = &'a ChunkAddress>,
) -> Counters {
    let mut counters = Counters::default();
    for address in addresses {
        counters.count(address, true, store.get(*address, patiently()).await);
    }
    counters
}

/// Reads single chunks and many at once, now and then one that does not exist.
pub async fn read_randomly(
    store: Store,
    addresses: Arc<Vec<ChunkAddress>>,
    seed: u64,
    rounds: u64,
) -> Counters {
    let mut counters = Counters::default();
    for round in 0..rounds {
        let draw = |what: u64| mix(seed ^ mix(round) ^ mix(what).rotate_left(7));
        let any =
            |what: u64| addresses[usize::try_from(draw(what) % addresses.len() as u64).unwrap()];
        if draw(0).is_multiple_of(3) {
            let address = any(1);
            counters.count(&address, true, store.get(address, patiently()).await);
            continue;
        }
        let mut wanted: Vec<_> = (0..1 + draw(2) % 40).map(any).collect();
        if draw(3).is_multiple_of(4) {
            wanted.push(absent(draw(4)));
        }
        let last = wanted.len() - 1;
        let is_last_absent = draw(3).is_multiple_of(4);
        let mut reads = store.get_many(wanted.clone(), patiently());
        let (mut answers, mut is_answered) = (Vec::new(), vec![false; wanted.len()]);
        loop {
            let is_more = reads.next(&mut answers).await;
            for (index, answer) in answers.drain(..) {
                let index = usize::try_from(index).unwrap();
                assert!(!std::mem::replace(&mut is_answered[index], true), "one answer for each");
                counters.count(&wanted[index], !(is_last_absent && index == last), answer);
            }
            if !is_more {
                break;
            }
        }
        assert!(is_answered.iter().all(|answered| *answered), "an answer for each");
    }
    counters
}

/// Runs many random readers at once.
pub async fn read_by_many(
    store: &Store,
    addresses: &Arc<Vec<ChunkAddress>>,
    seed: u64,
    rounds: u64,
) -> Counters {
    let mut readers = JoinSet::new();
    for reader in 0..8 {
        readers.spawn(read_randomly(
            store.clone(),
            Arc::clone(addresses),
            mix(seed ^ mix(reader)),
            rounds,
        ));
    }
    let mut all = Counters::default();
    for counters in readers.join_all().await {
        all.right += counters.right;
        all.absent += counters.absent;
        all.errors.extend(counters.errors);
    }
    all
}

/// Waits until a condition holds.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = now();
    while !is_so() {
        assert!(started.elapsed() < TIMEOUT, "not within a minute: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
