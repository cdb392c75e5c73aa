//! Processes killed in the middle of fills and journal writes, with corruption on disk between two
//! of them: the next process never takes a wrong byte for a right one, and keeps most extents.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::Read,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::support::{
    AMPLE, MIB, Numbers, Sizes, Store, assert_right, cache, child, child::Player, contents,
    locally, meta, mix, options, patiently, read_randomly, remote, remote_without_stalls, until,
};
use busload_bucket::Faults;
use busload_objects::{Cache, Error, Object};
use bytes::Bytes;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

const SIZE: u64 = 16 * MIB + 1234;
const SEED: u64 = 77;

/// Little memory for fills: extents come to disk one by one, and not all at the end.
const LARGE: Sizes = Sizes { fill_memory: 4 * MIB, ..AMPLE };

/// Disk space for half of the object.
const TIGHT: Sizes = Sizes { disk: 8 * MIB, ..LARGE };

/// Reads of one process, at most: one that has written nothing more after them never will.
const LINES_MAX: u64 = 3_000;

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Role of the process that is killed: it reads and fills until then, and reports its progress.
async fn read_until_killed(sizes: Sizes) {
    let (url, directory) = (child::given("URL"), child::given("DIRECTORY"));
    let contents = contents(SEED, SIZE);
    let cache = cache(Path::new(&directory), sizes);
    let remote = remote(&url);
    let object = cache.object(&remote, &meta(&remote, "object").await);
    let mut numbers = Numbers(child::given("SEED").parse().unwrap());
    loop {
        let counters = read_randomly(Arc::clone(&object), contents.clone(), numbers, 1).await;
        numbers.below(2);
        assert!(counters.errors.is_empty(), "{:?}", counters.errors);
        let stats = cache.stats();
        child::say(&(stats.extents + stats.evicted).to_string());
    }
}

/// Counts the bytes of an object on disk; wrong ones fail the test.
async fn local_bytes(object: &Object, contents: &[u8], why: &str) -> u64 {
    const STEP: u64 = 10_000;
    let mut right = 0;
    for start in (0..object.meta().size).step_by(usize::try_from(STEP).unwrap()) {
        let range = start..(start + STEP).min(object.meta().size);
        match object.read(range.clone(), locally()).await {
            Ok(bytes) => {
                assert_right(&bytes, contents, &range, why);
                right += range.end - range.start;
            }
            Err(error) => assert_eq!(error, Error::NotLocal, "{why}"),
        }
    }
    right
}

/// Runs and kills processes over one directory; between two of them, checks its contents while the
/// store is away.
fn kill_many_times(test: &str, sizes: Sizes, rounds: u64) {
    if child::role().is_some() {
        return runtime().block_on(read_until_killed(sizes));
    }
    let runtime = runtime();
    let store = Store::start(1);
    let directory = TempDir::new().unwrap();
    let contents = contents(SEED, SIZE);
    store.put("object", &contents);
    let meta = runtime.block_on(async { meta(&store.remote(), "object").await });
    let mut numbers = Numbers(SEED);
    let mut most = 0;
    for round in 0..rounds {
        store.proxy.set(Faults { bandwidth: 5_000_000, ..Faults::default() });
        let seed = mix(round).to_string();
        let (url, seed) = (store.url(), OsStr::new(&seed));
        let given = [
            ("URL", OsStr::new(&url)),
            ("DIRECTORY", directory.path().as_os_str()),
            ("SEED", seed),
        ];
        let mut player = Player::start(test, "victim", &given);
        // Waits until it has written so many extents, in this process or before.
        let target = numbers.below(20);
        for _ in 0..LINES_MAX {
            let written =
                player.listen().unwrap_or_else(|| panic!("round {round} ended by itself"));
            if target <= written.parse().unwrap() {
                break;
            }
        }
        player.kill();

        store.proxy.go_away();
        let local = runtime.block_on(async {
            let cache = cache(directory.path(), sizes);
            let object = cache.object(&remote(&store.url()), &meta);
            let local = local_bytes(&object, &contents, &format!("after round {round}")).await;
            cache.close().await;
            local
        });
        store.proxy.come_back();
        most = most.max(local);
    }
    // The last writes, four parts at once, may not be in the journal.
    let enough = sizes.disk.min(SIZE) / 3;
    assert!(most > enough, "{most} bytes survived at most: expected more than {enough}");
}

#[test]
fn a_process_killed_while_it_fills_leaves_only_right_bytes() {
    kill_many_times("kill::a_process_killed_while_it_fills_leaves_only_right_bytes", LARGE, 10);
}

#[test]
fn a_process_killed_while_it_evicts_leaves_only_right_bytes() {
    kill_many_times("kill::a_process_killed_while_it_evicts_leaves_only_right_bytes", TIGHT, 10);
}

/// Fills, reports it, and waits to be killed, so that there is no clean shutdown.
async fn fill_and_wait() {
    let cache = cache(Path::new(&child::given("DIRECTORY")), LARGE);
    let remote = remote(&child::given("URL"));
    let object = cache.object(&remote, &meta(&remote, "object").await);
    object.warm(&mut |_| {}).await.unwrap();
    child::say("filled");
    std::future::pending().await
}

#[test]
fn what_was_filled_a_moment_before_the_kill_is_there() {
    const TEST: &str = "kill::what_was_filled_a_moment_before_the_kill_is_there";
    if child::role().is_some() {
        return runtime().block_on(fill_and_wait());
    }
    let store = Store::start(2);
    let directory = TempDir::new().unwrap();
    let contents = contents(SEED, SIZE);
    store.put("object", &contents);
    // Slow enough that most of it was written long before the last of it.
    store.proxy.set(Faults { bandwidth: 2_000_000, ..Faults::default() });
    let url = store.url();
    let given = [("URL", OsStr::new(&url)), ("DIRECTORY", directory.path().as_os_str())];
    let mut player = Player::start(TEST, "victim", &given);
    assert_eq!(player.listen().as_deref(), Some("filled"));
    player.kill();
    runtime().block_on(async {
        let remote = store.remote();
        let meta = meta(&remote, "object").await;
        store.proxy.go_away();
        let cache = cache(directory.path(), AMPLE);
        let object = cache.object(&remote, &meta);
        let local = local_bytes(&object, &contents, "after the kill").await;
        assert!(local > SIZE / 2, "{local} of {SIZE} bytes are there");
        cache.close().await;
    });
}

/// Fills several objects and closes the directory cleanly.
struct Filled {
    store: Store,
    directory: TempDir,
    objects: Vec<(busload_objects::ObjectMeta, Bytes)>,
}

const OBJECTS: u64 = 6;

impl Filled {
    async fn new() -> Self {
        let store = Store::start(3);
        let directory = TempDir::new().unwrap();
        let mut objects = Vec::new();
        let cache = cache(directory.path(), AMPLE);
        let remote = remote_without_stalls(&store.url());
        for index in 0..OBJECTS {
            let contents = contents(index, 3 * MIB + index * 1000);
            store.put(&index.to_string(), &contents);
            let meta = meta(&remote, &index.to_string()).await;
            cache.object(&remote, &meta).warm(&mut |_| {}).await.unwrap();
            objects.push((meta, contents));
        }
        cache.write_sidecar("s3://b", "kept-blob", b"kept");
        cache.close().await;
        Self { store, directory, objects }
    }

    /// Copies the directory with its files.
    fn copy(&self) -> TempDir {
        let copy = TempDir::new().unwrap();
        for path in files(self.directory.path()) {
            let to = copy.path().join(path.strip_prefix(self.directory.path()).unwrap());
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(path, to).unwrap();
        }
        copy
    }

    /// Opens a directory, reads everything without the store and then with it. Returns the bytes
    /// that were local.
    async fn check(&self, directory: &Path, why: &str) -> u64 {
        let cache = cache(directory, AMPLE);
        let remote = remote_without_stalls(&self.store.url());
        let mut local = 0;
        self.store.proxy.go_away();
        for (meta, contents) in &self.objects {
            local += local_bytes(&cache.object(&remote, meta), contents, why).await;
        }
        self.store.proxy.come_back();
        for (meta, contents) in &self.objects {
            let object = cache.object(&remote, meta);
            let range = 0..meta.size;
            assert_right(
                &object.read(range.clone(), patiently()).await.unwrap(),
                contents,
                &range,
                why,
            );
        }
        // Fills that began while the store was away may be late.
        until("something of it is on disk", || 0 < cache.stats().extents).await;
        let kept = cache.read_sidecar("s3://b", "kept-blob");
        assert!(kept.is_none_or(|kept| *kept == *b"kept"), "{why}");
        cache.close().await;
        local
    }

    fn total(&self) -> u64 {
        self.objects.iter().map(|(meta, _)| meta.size).sum()
    }
}

/// All files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let (mut found, mut pending) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { pending.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}

/// Returns whether a file is the journal: a small one that is neither the lock nor a sidecar.
fn is_journal(path: &Path) -> bool {
    path.file_name().unwrap().to_string_lossy().contains("journal")
}

fn is_data(path: &Path) -> bool {
    fs::metadata(path).unwrap().len() > MIB
}

fn flip(path: &Path, at: u64, bits: u8) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ bits], at).unwrap();
}

fn zero(path: &Path, at: u64, bytes: usize) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&vec![0; bytes], at).unwrap();
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

#[test]
fn what_was_closed_in_order_is_there_whole() {
    runtime().block_on(async {
        let filled = Filled::new().await;
        filled.store.proxy.forget();
        let local = filled.check(filled.directory.path(), "untouched").await;
        assert_eq!(local, filled.total());
        assert_eq!(filled.store.gets(), [], "nothing comes from the store");
    });
}

#[test]
fn corruption_in_data_files_costs_what_was_corrupt() {
    runtime().block_on(async {
        let filled = Filled::new().await;
        let mut numbers = Numbers(5);
        for kind in [
            "flipped bytes",
            "zeroed pages",
            "a page moved",
            "half of a file gone",
            "another file's bytes",
        ] {
            let copy = filled.copy();
            let data: Vec<_> =
                files(copy.path()).into_iter().filter(|path| is_data(path)).collect();
            assert_eq!(data.len() as u64, OBJECTS, "one data file for each object");
            let victim = &data[0];
            let at = numbers.below(length(victim) / 4096 - 1) * 4096;
            match kind {
                "flipped bytes" => (0..20).for_each(|_| {
                    flip(victim, numbers.below(length(victim)), 1 << numbers.below(8))
                }),
                "zeroed pages" => zero(victim, at, 4096),
                "a page moved" => {
                    let mut page = [0; 4096];
                    let file = OpenOptions::new().read(true).write(true).open(victim).unwrap();
                    file.read_exact_at(&mut page, at).unwrap();
                    file.write_all_at(&page, (at + 8192) % (length(victim) / 4096 * 4096)).unwrap();
                }
                "half of a file gone" => {
                    OpenOptions::new()
                        .write(true)
                        .open(victim)
                        .unwrap()
                        .set_len(length(victim) / 2)
                        .unwrap();
                }
                _ => drop(fs::copy(&data[1], victim).unwrap()),
            }
            let local = filled.check(copy.path(), kind).await;
            let others =
                filled.total() - filled.objects.iter().map(|(meta, _)| meta.size).max().unwrap();
            assert!(
                local >= others,
                "{kind}: {local} bytes are left, of {others} in files that are whole"
            );
        }
    });
}

#[test]
fn corruption_in_the_journal_never_makes_a_wrong_byte() {
    runtime().block_on(async {
        let filled = Filled::new().await;
        let mut numbers = Numbers(6);
        let (mut kept, mut rounds) = (0, 0);
        for round in 0..24 {
            let copy = filled.copy();
            let journals: Vec<_> =
                files(copy.path()).into_iter().filter(|path| is_journal(path)).collect();
            assert!(!journals.is_empty(), "{:?}", files(copy.path()));
            let victim = &journals[numbers.below(journals.len() as u64) as usize];
            let size = length(victim);
            let at = numbers.below(size);
            match round % 4 {
                0 | 1 => flip(victim, at, 1 << numbers.below(8)),
                2 => OpenOptions::new().write(true).open(victim).unwrap().set_len(at).unwrap(),
                _ => zero(victim, at, usize::try_from((size - at).min(100)).unwrap()),
            }
            let local =
                filled.check(copy.path(), &format!("round {round}, at {at} of {size}")).await;
            if round % 4 < 2 {
                (kept, rounds) = (kept + local, rounds + 1);
            }
        }
        let total = filled.total() * rounds;
        assert!(
            kept > total / 2,
            "one flipped byte costs what its record said: {kept} of {total} bytes are left"
        );
    });
}

#[test]
fn a_directory_full_of_rubbish_is_an_empty_cache() {
    runtime().block_on(async {
        let filled = Filled::new().await;
        let mut random = vec![0; 65_536];
        File::open("/dev/urandom").unwrap().read_exact(&mut random).unwrap();
        let copy = filled.copy();
        for path in files(copy.path()) {
            fs::write(path, &random).unwrap();
        }
        assert_eq!(filled.check(copy.path(), "rubbish").await, 0);
        let again = filled.check(copy.path(), "what replaced the rubbish").await;
        assert!(again > 0, "it keeps again what it read");
    });
}

#[test]
fn a_second_process_is_refused_and_the_next_one_let_in() {
    const TEST: &str = "kill::a_second_process_is_refused_and_the_next_one_let_in";
    if child::role().is_some() {
        return runtime().block_on(fill_and_wait());
    }
    let store = Store::start(4);
    let directory = TempDir::new().unwrap();
    store.put("object", &contents(SEED, MIB));
    let url = store.url();
    let given = [("URL", OsStr::new(&url)), ("DIRECTORY", directory.path().as_os_str())];
    let mut player = Player::start(TEST, "holder", &given);
    assert_eq!(player.listen().as_deref(), Some("filled"));
    runtime().block_on(async {
        let is_refused = || {
            let error = Cache::open(options(directory.path(), AMPLE)).unwrap_err();
            assert!(matches!(error, Error::Locked(_)), "{error:?}");
            assert!(error.to_string().contains(directory.path().to_str().unwrap()), "{error}");
        };
        is_refused();
        player.kill();
        let next = cache(directory.path(), AMPLE);
        is_refused();
        next.close().await;
    });
}
