//! A chunk store behind a network and a disk that fail: chunks are right, or there is an error;
//! never nil for a chunk that exists.

mod ranges;
mod support;
mod verified_ranges;
mod versions;
mod whole_file_copies;

use std::{fs, sync::Arc, time::Duration};

use self::support::{
    Counters, FIXTURES, TIMEOUT, World, absent, contents, now, patiently, read_by_many, read_each,
    until,
};
use busload_bucket::{Fault, Rule};
use busload_chunks::{ChunkAddress, write::ClassicWriter};
use busload_dolt::{Error, Request, StoreStatus};

/// Everything that can happen to a response.
fn faults() -> Vec<Fault> {
    vec![
        Fault::Delay(Duration::from_millis(30)),
        Fault::Truncate(0),
        Fault::Truncate(100),
        Fault::Reset(0),
        Fault::Reset(3_000),
        Fault::Status(503),
        Fault::Status(500),
        Fault::WholeForRange,
        Fault::WrongRange,
        Fault::OtherEtag,
        Fault::HalfListing,
        Fault::NoAnswer,
    ]
}

/// Faults that no header shows. Indexes have no checksum, so these faults happen to an open store
/// only.
fn lies() -> Vec<Fault> {
    vec![Fault::Flip(50), Fault::Flip(3_333), Fault::LyingRange]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_from_the_first_request_on_cost_time_only() {
    for (index, fault) in faults().into_iter().enumerate() {
        let seed = index as u64;
        let (world, addresses) = World::with_fixture(seed, FIXTURES[index % FIXTURES.len()]);
        // A refresh that meets the fault six times in a row fails: with this probability, once in a
        // million.
        world.rule(fault.clone(), 0.1);
        let store = world.start();
        open(&store).await;
        let counters = read_by_many(&store, &Arc::new(addresses), seed, 8).await;
        assert!(counters.errors.is_empty(), "{fault:?}: {:?}", counters.errors);
        assert!(counters.right > 0);
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lies_about_chunks_are_found_out() {
    for (seed, name) in (100..).zip(FIXTURES) {
        for fault in lies() {
            for is_filled in [false, true] {
                let (world, addresses) = World::with_fixture(seed, name);
                let store = world.start_with(|settings| {
                    settings.fill_whole_max = if is_filled { 1 << 30 } else { 0 };
                });
                open(&store).await;
                world.rules(vec![Rule::times(5, fault.clone())]);
                let counters = read_by_many(&store, &Arc::new(addresses.clone()), seed, 6).await;
                // A chunk that came wrong twice is an error and not a wrong chunk; later it is
                // right.
                assert!(
                    counters.errors.iter().all(|error| matches!(error, Error::Corrupt(_))),
                    "{:?}",
                    counters.errors
                );
                let what = format!("{name} {fault:?}");
                read_until_right(&what, &store, &Arc::new(addresses), (seed, 6)).await;
                store.close().await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_mixed_by_seed() {
    for (seed, name) in (200..).zip(FIXTURES) {
        let (world, addresses) = World::with_fixture(seed, name);
        world.rules(faults().into_iter().map(|fault| Rule::sometimes(0.02, fault)).collect());
        let store = world.start();
        open(&store).await;
        let all = faults().into_iter().chain(lies());
        world.rules(all.map(|fault| Rule::sometimes(0.02, fault)).collect());
        let addresses = Arc::new(addresses);
        let counters = read_by_many(&store, &addresses, seed, 12).await;
        assert!(
            counters.errors.iter().all(|error| matches!(error, Error::Corrupt(_))),
            "{:?}",
            counters.errors
        );
        world.rules(Vec::new());
        read_until_right(name, &store, &addresses, (seed + 1, 12)).await;
        store.close().await;
    }
}

/// Waits until the store is open, however many attempts that takes.
async fn open(store: &busload_dolt::Store) {
    // The first attempt may fail; the store retries every poll.
    let _ = store.opened().await;
    until("the store is open", || store.status() == StoreStatus::Open).await;
}

/// Reads without faults until every chunk is right, perhaps not at once.
async fn read_until_right(
    what: &str,
    store: &busload_dolt::Store,
    addresses: &Arc<Vec<ChunkAddress>>,
    (seed, rounds): (u64, u64),
) {
    let started = now();
    loop {
        let counters = read_by_many(store, addresses, seed, rounds).await;
        if counters.errors.is_empty() {
            return;
        }
        // The store remembers chunks as corrupt for a while that came wrong in the same way each
        // time.
        let is_remembered = counters.errors.iter().all(|error| matches!(error, Error::Corrupt(_)));
        assert!(
            is_remembered && started.elapsed() < TIMEOUT,
            "{what}, seed {seed}: {:?}",
            counters.errors
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A table file's index has no checksum, and comes over the same network.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_bit_in_an_index_never_makes_a_chunk_nil() {
    for seed in 0..40u64 {
        let world = World::new(seed);
        let (spec, addresses) = world.put_file(1, 60);
        world.put_manifest(addresses[0], &[spec]);
        let tail = 60 * 28 + 20;
        world.rules(vec![
            Rule::times(1, Fault::Flip(support::mix(seed) % tail)).to(&spec.id.to_string()),
        ]);
        let store = world.start();
        open(&store).await;
        let counters = read_each(&store, &addresses).await;
        for error in &counters.errors {
            assert!(matches!(error, Error::Corrupt(_)), "seed {seed}: {error:?}");
        }
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_away_is_an_error_for_what_is_not_local_and_never_nil() {
    let (world, addresses) = World::with_fixture(1, "real-classic");
    let store = world.start_with(|settings| settings.fill_whole_max = 0);
    open(&store).await;
    assert_eq!(store.get(absent(1), patiently()).await, Ok(None));
    world.proxy.go_away();
    let quick = || Request { deadline: now() + Duration::from_secs(2), ..patiently() };
    for address in [absent(1), absent(2)] {
        let error = store.get(address, quick()).await.unwrap_err();
        assert!(matches!(error, Error::Unreachable(_) | Error::DeadlineExceeded(_)), "{error:?}");
        let error = store.has_many(&[address], quick()).await.unwrap_err();
        assert!(matches!(error, Error::Unreachable(_) | Error::DeadlineExceeded(_)), "{error:?}");
    }
    let error = store.get(addresses[0], quick()).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable(_) | Error::DeadlineExceeded(_)), "{error:?}");
    world.proxy.come_back();
    let counters = read_each(&store, addresses.iter().take(50)).await;
    assert!(counters.errors.is_empty(), "{:?}", counters.errors);
    assert_eq!(store.get(absent(1), patiently()).await, Ok(None));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_away_at_the_start_is_an_error_and_opens_later() {
    let (world, addresses) = World::with_fixture(2, "real-archive-v3");
    world.proxy.go_away();
    let store = world.start();
    assert!(store.opened().await.is_err());
    for address in [addresses[0], absent(1)] {
        let error = store.get(address, patiently()).await.unwrap_err();
        assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
    }
    assert!(
        matches!(store.status(), StoreStatus::Failed(Error::Unreachable(_))),
        "{:?}",
        store.status()
    );
    world.proxy.come_back();
    open(&store).await;
    let counters = read_by_many(&store, &Arc::new(addresses), 2, 5).await;
    assert!(counters.errors.is_empty(), "{:?}", counters.errors);
    store.close().await;
}

/// With everything on disk, the object store may be away for good, even when the next process
/// starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_warm_store_needs_the_object_store_only_for_what_does_not_exist() {
    let (world, addresses) = World::with_fixture(3, "real-archive-v3");
    let store = world.start();
    open(&store).await;
    store.warm(&mut |_| {}).await.unwrap();
    world.proxy.go_away();
    let counters = read_each(&store, &addresses).await;
    assert!(counters.errors.is_empty(), "{:?}", counters.errors);
    let quick = Request { deadline: now() + Duration::from_secs(2), ..patiently() };
    assert!(store.get(absent(3), quick).await.is_err());
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunk_corrupt_in_the_object_store_is_an_error_that_names_the_file() {
    let world = World::new(4);
    let (spec, addresses) = world.put_file(7, 200);
    world.put_manifest(addresses[0], &[spec]);
    let name = spec.id.to_string();
    let mut bytes = fs::read(world.path(&name)).unwrap();
    // In the middle of the first record.
    bytes[30] ^= 1;
    world.put(&name, &bytes);
    for fill_whole_max in [0, 1 << 30] {
        let store = world.start_with(|settings| settings.fill_whole_max = fill_whole_max);
        open(&store).await;
        let error = store.get(addresses[0], patiently()).await.unwrap_err();
        assert!(matches!(&error, Error::Corrupt(text) if text.contains(&name)), "{error:?}");
        let counters = read_each(&store, &addresses[1..]).await;
        assert!(counters.errors.is_empty(), "{:?}", counters.errors);
        assert!(store.stats().corrupt > 0);
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_corrupt_copy_of_a_chunk_is_made_up_for_by_a_whole_one() {
    let world = World::new(5);
    let mut corrupt = ClassicWriter::new(Vec::new());
    let address = corrupt.push(&contents(1, 1)).unwrap();
    corrupt.push(&contents(1, 2)).unwrap();
    let (first, mut bytes) = corrupt.finish().unwrap();
    bytes[20] ^= 1;
    world.put(&first.id.to_string(), &bytes);
    let mut whole = ClassicWriter::new(Vec::new());
    whole.push(&contents(1, 1)).unwrap();
    whole.push(&contents(1, 3)).unwrap();
    let (second, bytes) = whole.finish().unwrap();
    world.put(&second.id.to_string(), &bytes);
    for order in [[first, second], [second, first]] {
        world.put_manifest(address, &order);
        let store = world.start();
        open(&store).await;
        let counters = read_each(&store, [&address]).await;
        assert!(counters.errors.is_empty(), "{:?}", counters.errors);
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_corrupt_disk_is_read_again_from_the_object_store() {
    use std::os::unix::fs::FileExt;
    let (world, addresses) = World::with_fixture(6, "real-archive-conjoined");
    let store = world.start();
    open(&store).await;
    store.warm(&mut |_| {}).await.unwrap();
    // The fill writes in the background, under another name first.
    until("the listing is kept", || store.cache().read_sidecar(store.url(), "files").is_some())
        .await;
    store.close().await;
    drop(store);
    for entry in fs::read_dir(world.directory.path().join("cache")).unwrap() {
        let path = entry.unwrap().path();
        let length = fs::metadata(&path).unwrap().len();
        let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        for step in 0..length / 20_000 {
            let mut byte = [0];
            file.read_exact_at(&mut byte, step * 20_000).unwrap();
            file.write_all_at(&[byte[0] ^ 4], step * 20_000).unwrap();
        }
    }
    let store = world.start();
    open(&store).await;
    let counters = read_each(&store, &addresses).await;
    assert!(counters.errors.is_empty(), "{:?}", counters.errors);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_and_fifty_six_callers_of_one_cold_chunk_make_one_get() {
    let world = World::new(7);
    let (spec, addresses) = world.put_file(9, 500);
    world.put_manifest(addresses[0], &[spec]);
    let store = world.start_with(|settings| settings.disk_bytes_max = 0);
    open(&store).await;
    world.proxy.set(busload_bucket::Faults {
        first_byte: Duration::from_millis(30),
        ..Default::default()
    });
    world.proxy.forget();
    let address = addresses[250];
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..256 {
        let store = store.clone();
        callers.spawn(async move { store.get(address, patiently()).await });
    }
    let mut counters = Counters::default();
    for answer in callers.join_all().await {
        counters.count(&address, true, answer);
    }
    assert_eq!((counters.right, counters.errors.len()), (256, 0), "{:?}", counters.errors);
    let name = spec.id.to_string();
    let gets = world.proxy.seen().into_iter().filter(|seen| seen.path.contains(&name)).count();
    assert_eq!(gets, 1);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_to_a_store_that_never_answers_fail_in_time() {
    let (world, addresses) = World::with_fixture(8, "real-classic");
    let store = world.start_with(|settings| settings.disk_bytes_max = 0);
    open(&store).await;
    world.rules(vec![Rule::always(Fault::Stall(0))]);
    let started = now();
    let quick = Request { deadline: started + Duration::from_millis(300), ..patiently() };
    let error = store.get(addresses[0], quick).await.unwrap_err();
    assert!(matches!(error, Error::DeadlineExceeded(_)), "{error:?}");
    assert!(started.elapsed() < TIMEOUT / 2);
    store.close().await;
    let closed = store.get(ChunkAddress::of(b"any"), patiently()).await;
    assert_eq!(closed, Err(Error::Closed));
}
