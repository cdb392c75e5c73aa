//! Stores that tests make.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use busload_chunks::{
    FileSpec,
    write::{ClassicWriter, manifest},
};
use busload_dolt::{
    Chunk, ChunkAddress, DynamoTables, Error, Form, ManyReads, Occasion, Request, Requester,
    Settings, Store, StoreStatus,
};
use tempfile::TempDir;
use tokio::{runtime::Handle, time::Instant};

/// Time within which anything awaited happens on a busy machine.
pub const LONG: Duration = Duration::from_secs(60);

/// Directory with a store and one with a cache.
pub struct Harness {
    directory: TempDir,
}

/// Chunk in a fixture's list.
pub struct Listed {
    pub address: ChunkAddress,
    pub length: u64,
}

impl Harness {
    pub fn new() -> Self {
        let harness = Self { directory: tempfile::tempdir().unwrap() };
        fs::create_dir(harness.store()).unwrap();
        harness
    }

    /// Makes a harness with a copy of a fixture.
    pub fn of_fixture(name: &str) -> Self {
        let harness = Self { directory: tempfile::tempdir().unwrap() };
        copy(&fixture(name).join("store"), &harness.store());
        harness
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn store(&self) -> PathBuf {
        self.path().join("store")
    }

    pub fn url(&self) -> String {
        format!("file://{}", self.store().display())
    }

    /// Settings on the test's runtime; the store reads the manifest only when a request asks.
    pub fn settings(&self) -> Settings {
        Settings {
            name: "db".to_owned(),
            url: self.url(),
            directory: self.path().join("cache"),
            disk_bytes_max: 1 << 30,
            disk_free_bytes_min: 0,
            fill_whole_max: 1 << 30,
            fill_bytes_max: 64 << 20,
            poll: Duration::from_secs(3600),
            memory_bytes_max: 0,
            requests_max: 64,
            hedge: false,
            grace_period: Duration::from_secs(3600),
            occasion: Occasion::Configured,
            peers: None,
            tables: DynamoTables::default(),
            environment: Arc::new(|_| None),
            runtime: Handle::current(),
        }
    }

    pub fn start(&self) -> Store {
        Store::start(self.settings()).unwrap()
    }

    pub async fn open(&self) -> Store {
        open(self.settings()).await
    }

    /// Writes a table file into the store.
    pub fn write_file(&self, chunks: &[Vec<u8>]) -> FileSpec {
        write_file(&self.store(), chunks)
    }

    /// Writes a manifest, as Dolt does: under another name first.
    pub fn write_manifest(&self, root: ChunkAddress, files: &[FileSpec]) {
        write_manifest(&self.store(), root, files);
    }
}

pub async fn open(settings: Settings) -> Store {
    let store = Store::start(settings).unwrap();
    tokio::time::timeout(LONG, store.opened()).await.unwrap().unwrap();
    store
}

pub fn write_file(store: &Path, chunks: &[Vec<u8>]) -> FileSpec {
    let mut writer = ClassicWriter::new(Vec::new());
    for chunk in chunks {
        writer.push(chunk).unwrap();
    }
    let (spec, bytes) = writer.finish().unwrap();
    fs::write(store.join(spec.id.to_string()), bytes).unwrap();
    spec
}

pub fn write_manifest(store: &Path, root: ChunkAddress, files: &[FileSpec]) {
    let next = store.join("nbs_manifest_next");
    fs::write(&next, manifest(root, files)).unwrap();
    fs::rename(next, store.join("manifest")).unwrap();
}

/// Makes contents that compress a little and differ for every number.
pub fn contents(number: usize) -> Vec<u8> {
    let line = format!("contents of chunk {number}, ");
    line.repeat(2 + number % 5).into_bytes()
}

/// Makes bytes that do not compress, so that nearly every byte of a file is one of them.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_be_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

pub fn addresses(chunks: &[Vec<u8>]) -> Vec<ChunkAddress> {
    chunks.iter().map(|chunk| ChunkAddress::of(chunk)).collect()
}

pub fn request(form: Form) -> Request {
    Request {
        form,
        local_only: false,
        requester: Requester::Client,
        deadline: (Instant::now() + LONG).into_std(),
    }
}

pub fn local(form: Form) -> Request {
    Request { local_only: true, ..request(form) }
}

/// Reads the contents of a chunk that exists.
pub async fn contents_of(store: &Store, address: ChunkAddress) -> Vec<u8> {
    match store.get(address, request(Form::Contents)).await {
        Ok(Some(Chunk::Contents(contents))) => contents.to_vec(),
        other => panic!("{address}: {other:?}"),
    }
}

pub async fn get(store: &Store, address: ChunkAddress) -> Result<Option<Chunk>, Error> {
    store.get(address, request(Form::Contents)).await
}

/// Collects all results, by index.
pub async fn collect(mut reads: ManyReads, count: usize) -> Vec<Result<Option<Chunk>, Error>> {
    let mut answers: Vec<Option<_>> = (0..count).map(|_| None).collect();
    let mut some = Vec::new();
    while tokio::time::timeout(LONG, reads.next(&mut some)).await.unwrap() {
        for (index, answer) in some.drain(..) {
            let before = answers[usize::try_from(index).unwrap()].replace(answer);
            assert!(before.is_none(), "{index} is answered twice");
        }
    }
    assert!(some.is_empty());
    answers.into_iter().map(|answer| answer.expect("each is answered")).collect()
}

/// Waits until the status is as wanted.
pub async fn until(store: &Store, wanted: impl Fn(&StoreStatus) -> bool) {
    let end = Instant::now() + LONG;
    while !wanted(&store.status()) {
        assert!(Instant::now() < end, "{:?}", store.status());
        // The outcome shows in the status.
        let _ = store.refresh().await;
    }
}

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../chunks/tests/fixtures/dolt").join(name)
}

pub fn fixture_list(name: &str, list: &str) -> Vec<Listed> {
    let text = fs::read_to_string(fixture(name).join(list)).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let listed = lines.map(|line| Listed {
        address: line["addr"].as_str().unwrap().parse().unwrap(),
        length: line["len"].as_u64().unwrap(),
    });
    listed.collect()
}

pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::write(to, fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}
