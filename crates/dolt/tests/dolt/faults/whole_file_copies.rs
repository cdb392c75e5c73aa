//! Copies of whole files through a cache: a bit that flips once in transit is not in later copies.

use std::{fs, sync::Arc, time::Duration};

use busload_bucket::{Fault, Rule};
use busload_dolt::{FileBytes, Store, TableFile};
use busload_objects::{AccessHint, StreamOptions};
use futures_util::TryStreamExt;

use crate::faults::{
    open,
    support::{TIMEOUT, World, mix, now},
};

const FORMATS: [&str; 2] = ["real-classic", "real-archive-conjoined"];
const ROUNDS: u64 = 6;

struct Copied {
    file: Arc<TableFile>,
    expected: Vec<u8>,
}

impl Copied {
    async fn all(world: &World, store: &Store) -> Vec<Self> {
        let files = store.snapshot().unwrap().files.clone();
        let expected = |file: &TableFile| fs::read(world.path(file.name())).unwrap();
        files.into_iter().map(|file| Self { expected: expected(&file), file }).collect()
    }

    async fn bytes(&self, store: &Store) -> FileBytes {
        let Self { file, .. } = self;
        store
            .file_bytes(file.id, file.kind, file.version(), now() + TIMEOUT)
            .await
            .unwrap()
            .unwrap()
    }

    /// Returns whether a copy made now is right.
    async fn is_right(&self, store: &Store) -> bool {
        let bytes = self.bytes(store).await;
        let options = StreamOptions { hint: AccessHint::Sequential, timeout: TIMEOUT };
        let copy =
            bytes.stream(0..bytes.size(), options).try_collect::<Vec<_>>().await.unwrap().concat();
        assert_eq!(copy.len(), self.expected.len());
        copy == self.expected
    }
}

/// Copies each file of a store with a flipped bit somewhere: in chunks, dictionaries, indexes.
/// Returns the files that came wrong.
async fn copied_wrong(world: &World, store: &Store, seed: u64) -> Vec<Copied> {
    open(store).await;
    let mut wrong = Vec::new();
    for (number, copied) in (0..).zip(Copied::all(world, store).await) {
        // Nothing of the file is on disk but its index.
        store.cache().drop_object(store.url(), copied.file.name()).await;
        let at = mix(seed ^ mix(number)) % copied.expected.len() as u64;
        world.rules(vec![Rule::times(1, Fault::Flip(at))]);
        if !copied.is_right(store).await {
            wrong.push(copied);
        }
    }
    world.rules(Vec::new());
    wrong
}

fn start(world: &World, seed: u64) -> Store {
    world.start_with(|settings| settings.directory = world.directory.path().join(seed.to_string()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_bytes_of_a_copy_are_found_afterwards_and_not_sent_to_others() {
    for name in FORMATS {
        let (world, _) = World::with_fixture(710, name);
        let mut count = 0;
        for seed in 0..ROUNDS {
            let store = start(&world, seed);
            let wrong = copied_wrong(&world, &store, seed).await;
            count += wrong.len();
            let started = now();
            for copied in wrong {
                while !copied.is_right(&store).await {
                    assert!(started.elapsed() < TIMEOUT, "{name} {seed}: it stays wrong");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
            store.close().await;
        }
        assert!(0 < count, "{name}: no copy was wrong");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_bytes_of_an_earlier_process_are_found_by_verify_local() {
    for name in FORMATS {
        let (world, _) = World::with_fixture(711, name);
        let mut found = 0;
        for seed in 0..ROUNDS {
            let store = start(&world, seed);
            copied_wrong(&world, &store, seed).await;
            // Before the local verifier looks for it.
            store.close().await;
            let store = start(&world, seed);
            open(&store).await;
            let progress = store.verify_local(&mut |_| {}).await.unwrap();
            assert!(progress.corrupt <= progress.done && progress.done == progress.total);
            found += progress.corrupt;
            for copied in Copied::all(&world, &store).await {
                assert!(copied.is_right(&store).await, "{name} {seed}");
            }
            let again = store.verify_local(&mut |_| {}).await.unwrap();
            assert_eq!(again.corrupt, 0, "{name} {seed}");
            store.close().await;
        }
        assert!(0 < found, "{name}: nothing wrong was on disk");
    }
}
