//! Ranges that clients ask for while their chunks are being verified: the bytes are right, or there
//! is an error.

use std::{collections::HashMap, fs, ops::Range, time::Duration};

use busload_bucket::{Fault, Rule};
use busload_chunks::{ChunkAddress, FileSpec};
use busload_dolt::{Error, FileBytes, Located, Location, Store};
use busload_objects::{AccessHint, StreamOptions};
use futures_util::TryStreamExt;
use tokio::task::JoinSet;

use crate::faults::{
    open,
    support::{TIMEOUT, World, mix, now, until},
};

/// Fixtures of each format, and how many times each is read.
const FORMATS: [&str; 2] = ["real-classic", "real-archive-conjoined"];
const ROUNDS: u64 = 120;

fn range(location: &Location) -> Range<u64> {
    location.span.offset..location.span.offset + u64::from(location.span.length)
}

async fn bytes_of(store: &Store, location: &Location) -> FileBytes {
    let file = &location.file;
    let found =
        store.file_bytes(file.id, file.kind, file.version(), now() + TIMEOUT).await.unwrap();
    found.expect("the file is there")
}

async fn take(file: &FileBytes, range: Range<u64>, timeout: Duration) -> Result<Vec<u8>, Error> {
    let length = range.end - range.start;
    let options = StreamOptions { hint: AccessHint::Random, timeout };
    let bytes = file.stream(range, options).try_collect::<Vec<_>>().await?.concat();
    assert_eq!(bytes.len() as u64, length, "ended early, as if that were all");
    Ok(bytes)
}

/// Bytes of a file in the bucket.
fn cut<'a>(bytes: &'a [u8], range: &Range<u64>) -> &'a [u8] {
    &bytes[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()]
}

/// For each file: all bytes between the first chunk and the last, and its chunks, which alone the
/// store verifies.
fn regions(located: &Located) -> Vec<(Range<u64>, Vec<Location>)> {
    let mut files: HashMap<String, Vec<Location>> = HashMap::new();
    for location in located.locations.iter().flatten() {
        files.entry(location.file.name().to_owned()).or_default().push(location.clone());
    }
    let region = |locations: Vec<Location>| {
        let start = locations.iter().map(|location| range(location).start).min().unwrap();
        let end = locations.iter().map(|location| range(location).end).max().unwrap();
        (start..end, locations)
    };
    files.into_values().map(region).collect()
}

/// Reads each chunk by itself and all of each file at once, started before anything else can
/// happen.
async fn take_all(world: &World, store: &Store, located: &Located) {
    let mut reads = JoinSet::new();
    let singles = located
        .locations
        .iter()
        .flatten()
        .map(|location| (range(location), vec![location.clone()]));
    for (region, locations) in regions(located).into_iter().chain(singles) {
        let file = bytes_of(store, &locations[0]).await;
        let expected = fs::read(world.path(locations[0].file.name())).unwrap();
        reads.spawn(async move {
            let got = take(&file, region.clone(), TIMEOUT).await.unwrap();
            for location in locations {
                let own = range(&location);
                let within = own.start - region.start..own.end - region.start;
                assert_eq!(
                    cut(&got, &within),
                    cut(&expected, &own),
                    "wrong bytes at {own:?} of {region:?}"
                );
            }
        });
    }
    reads.join_all().await;
}

/// Draws some of the addresses by seed.
fn draw(addresses: &[ChunkAddress], seed: u64) -> Vec<ChunkAddress> {
    let any = |index| {
        addresses[usize::try_from(mix(seed ^ mix(index)) % addresses.len() as u64).unwrap()]
    };
    (0..1 + mix(seed) % 12).map(any).collect()
}

/// Flips a bit in each of the first bodies; the prefetch finds some of them while clients ask for
/// their ranges.
async fn flip_first_bodies(name: &str, disk_bytes_max: u64) {
    let (world, addresses) = World::with_fixture(700, name);
    let mut corrupt = 0;
    for seed in 0..ROUNDS {
        let store = world.start_with(|settings| {
            settings.disk_bytes_max = disk_bytes_max;
            settings.directory = world.directory.path().join(seed.to_string());
            settings.fill_whole_max = if seed % 2 == 0 { 0 } else { 1 << 30 };
        });
        open(&store).await;
        let located = store.locate(&draw(&addresses, seed), now() + TIMEOUT).await.unwrap();
        // Dictionaries are pinned before the faults begin: this test is about chunks.
        store.pin_dictionaries(&located, now() + TIMEOUT).await.unwrap();
        // Their neighbours came with them, and on a quick machine whole files.
        store.cache().drop_all().await;
        let flips = (0..1 + seed % 2)
            .map(|body| Rule::times(1, Fault::Flip(mix(seed ^ mix(body)) % 60_000)));
        world.rules(flips.collect());
        // The prefetch budget is not always free.
        if seed % 3 != 0 {
            store.prefetch(&located);
        }
        take_all(&world, &store, &located).await;
        // And when all is over, as slow clients would.
        until("the prefetch has ended", || store.stats().prefetches == 0).await;
        take_all(&world, &store, &located).await;
        corrupt += store.stats().corrupt;
        world.rules(Vec::new());
        store.close().await;
    }
    assert!(0 < corrupt, "no flip hit a chunk that was checked");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bits_that_flip_on_the_way_do_not_reach_clients_quicker_than_the_prefetch() {
    for name in FORMATS {
        flip_first_bodies(name, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bits_that_flip_on_the_way_to_disk_do_not_reach_clients_quicker_than_the_prefetch() {
    for name in FORMATS {
        flip_first_bodies(name, 1 << 30).await;
    }
}

/// Makes a store of one file, open without a disk cache.
async fn one_file(seed: u64, chunks: u64) -> (World, Store, Located, FileSpec) {
    let world = World::new(seed);
    let (spec, addresses) = world.put_file(seed, chunks);
    world.put_manifest(addresses[0], &[spec]);
    let store = world.start_with(|settings| {
        settings.disk_bytes_max = 0;
        // Refreshes are reads, too, and tests count these.
        settings.poll = Duration::from_secs(3600);
    });
    open(&store).await;
    let located = store.locate(&addresses, now() + TIMEOUT).await.unwrap();
    (world, store, located, spec)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_store_has_wrong_is_an_error_that_names_the_chunk() {
    let (world, store, located, spec) = one_file(800, 100).await;
    store.close().await;
    let all: Vec<_> = located.locations.iter().flatten().collect();
    let wrong = 40;
    let mut bytes = fs::read(world.path(&spec.id.to_string())).unwrap();
    bytes[usize::try_from(range(all[wrong]).start + 7).unwrap()] ^= 16;
    world.put(&spec.id.to_string(), &bytes);

    let store = world.start_with(|settings| settings.disk_bytes_max = 0);
    open(&store).await;
    let addresses: Vec<_> =
        all.iter().map(|location| location.file.index.address(location.position)).collect();
    let located = store.locate(&addresses, now() + TIMEOUT).await.unwrap();
    let file = bytes_of(&store, located.locations[0].as_ref().unwrap()).await;
    store.prefetch(&located);
    let all: Vec<_> = located.locations.iter().flatten().collect();
    // During the prefetch, and then again.
    for _ in 0..2 {
        for (index, location) in all.iter().enumerate().skip(wrong - 2).take(5) {
            match take(&file, range(location), TIMEOUT).await {
                Ok(got) => {
                    assert_ne!(index, wrong, "wrong bytes");
                    assert_eq!(got, cut(&bytes, &range(location)));
                }
                Err(Error::Corrupt(text)) => {
                    assert_eq!(index, wrong, "{text}");
                    assert!(text.contains(&addresses[wrong].to_string()), "{text}");
                }
                Err(error) => panic!("{error:?}"),
            }
        }
        until("the prefetch has ended", || store.stats().prefetches == 0).await;
    }
    let end = range(all[99]).end;
    let region = take(&file, 0..end, TIMEOUT).await;
    assert!(matches!(region, Err(Error::Corrupt(_))), "one chunk of it is corrupt");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_hangs_delays_ranges_and_later_they_are_right() {
    let (world, store, located, spec) = one_file(801, 50).await;
    let location = located.locations[7].as_ref().unwrap();
    let file = bytes_of(&store, location).await;
    world.rules(vec![Rule::always(Fault::Stall(0))]);
    store.prefetch(&located);
    let timeout = Duration::from_millis(100);
    let late = take(&file, range(location), timeout).await;
    assert!(matches!(&late, Err(Error::DeadlineExceeded(_))), "{late:?}");
    // A stream that is dropped while it waits leaves nothing behind.
    let mut dropped =
        file.stream(range(location), StreamOptions { hint: AccessHint::Random, timeout: TIMEOUT });
    let soon = tokio::time::timeout(Duration::from_millis(1), dropped.try_next()).await;
    assert!(soon.is_err(), "{soon:?}");
    drop(dropped);
    world.rules(Vec::new());
    until("the prefetch has ended", || store.stats().prefetches == 0).await;
    let expected = fs::read(world.path(&spec.id.to_string())).unwrap();
    let got = take(&file, range(location), TIMEOUT).await.unwrap();
    assert_eq!(got, cut(&expected, &range(location)));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_the_store_fails_waiting_clients() {
    let (world, store, located, _) = one_file(802, 50).await;
    let location = located.locations[7].as_ref().unwrap();
    let file = bytes_of(&store, location).await;
    world.rules(vec![Rule::always(Fault::Stall(0))]);
    store.prefetch(&located);
    let options = StreamOptions { hint: AccessHint::Random, timeout: TIMEOUT };
    let waiting = file.stream(range(location), options);
    world.rules(vec![Rule::always(Fault::Status(403))]);
    store.close().await;
    let answer = waiting.try_collect::<Vec<_>>().await;
    assert!(matches!(answer, Err(Error::Closed)), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_files_and_chunks_that_were_verified_before_wait_for_nothing() {
    let (world, store, located, spec) = one_file(803, 50).await;
    store.close().await;
    let store = world.start();
    open(&store).await;
    store.warm(&mut |_| {}).await.unwrap();
    let addresses: Vec<_> =
        located.locations.iter().flatten().map(|at| at.file.index.address(at.position)).collect();
    let located = store.locate(&addresses, now() + TIMEOUT).await.unwrap();
    store.prefetch(&located);
    until("the disk was checked", || store.stats().prefetches == 0).await;
    world.rules(vec![Rule::always(Fault::Stall(0))]);
    store.prefetch(&located);
    assert_eq!(store.stats().prefetches, 0, "all is there and was checked");
    let expected = fs::read(world.path(&spec.id.to_string())).unwrap();
    let location = located.locations[7].as_ref().unwrap();
    let file = bytes_of(&store, location).await;
    // The store would never send it.
    let got = take(&file, range(location), TIMEOUT).await.unwrap();
    assert_eq!(got, cut(&expected, &range(location)));
    let options = StreamOptions { hint: AccessHint::Sequential, timeout: TIMEOUT };
    let whole = file.stream(0..file.size(), options).try_collect::<Vec<_>>().await.unwrap();
    assert_eq!(whole.concat(), expected);
    store.close().await;
}

/// Ranges get the bytes that the prefetch read: no byte is requested twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranges_that_waited_take_what_the_prefetch_has_read() {
    let (world, store, located, _) = one_file(804, 200).await;
    let name = located.locations[0].as_ref().unwrap().file.name().to_owned();
    world.proxy.forget();
    let reads = || store.stats().store.foreground_reads;
    let before = reads();
    store.prefetch(&located);
    until("the prefetch has begun", || before < reads()).await;
    take_all(&world, &store, &located).await;
    let seen = world.proxy.seen().into_iter().filter(|seen| seen.path.contains(&name));
    let mut ranges: Vec<_> = seen.filter_map(|seen| seen.range).collect();
    ranges.sort_by_key(|range| range.start);
    assert!(!ranges.is_empty());
    for pair in ranges.windows(2) {
        assert!(pair[0].end <= pair[1].start, "{pair:?} overlap");
    }
    store.close().await;
}

/// After a broken connection ranges begin and end anywhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_range_of_a_file_has_its_bytes() {
    let (world, store, located, spec) = one_file(805, 3_000).await;
    let expected = fs::read(world.path(&spec.id.to_string())).unwrap();
    let file = bytes_of(&store, located.locations[0].as_ref().unwrap()).await;
    let size = file.size();
    assert!(2 << 20 < size, "several segments");
    let draws = (0..150).map(|seed| {
        let start = mix(seed) % size;
        let length = mix(seed ^ 0xff) % [200, 20_000, size][usize::try_from(seed % 3).unwrap()] + 1;
        start..(start + length).min(size)
    });
    for range in draws.chain([0..size, 0..1, size - 1..size]) {
        let got = take(&file, range.clone(), TIMEOUT).await.unwrap();
        assert!(got == cut(&expected, &range), "{range:?}");
    }
    store.close().await;
}
