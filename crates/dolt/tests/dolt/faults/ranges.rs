//! Clients that locate chunks and read ranges of files, as those of Dolt do.

use std::{collections::HashMap, ops::Range, sync::Arc, time::Duration};

use busload_bucket::{Fault, Rule};
use busload_dolt::{ChunkAddress, Error, FileBytes, Located, Store};
use busload_objects::{AccessHint, StreamOptions};
use futures_util::{StreamExt, TryStreamExt};
use tokio::task::JoinSet;

use crate::faults::{
    faults, lies, open,
    support::{FIXTURES, TIMEOUT, World, mix, now, until},
};

/// Largest gap between ranges of one file that are requested together.
const GAP_MAX: u64 = 8 << 10;

/// Outcomes of ranges. Wrong bytes fail at once.
#[derive(Debug, Default)]
struct Outcome {
    right: u64,
    errors: Vec<Error>,
}

/// Files of a store in the bucket, by name.
type Files = HashMap<String, Vec<u8>>;

fn files_of(world: &World, located: &Located) -> Files {
    let names = located.locations.iter().flatten().map(|location| location.file.name().to_owned());
    names.map(|name| (name.clone(), std::fs::read(world.path(&name)).unwrap())).collect()
}

/// Joins ranges of each file that are near each other.
fn regions(located: &Located) -> Vec<(FileKey, Vec<Range<u64>>)> {
    let mut by_file: HashMap<String, (FileKey, Vec<Range<u64>>)> = HashMap::new();
    for location in located.locations.iter().flatten() {
        let new = || (FileKey::of(location), Vec::new());
        let (_, ranges) = by_file.entry(location.file.name().to_owned()).or_insert_with(new);
        ranges.push(range(location.span));
    }
    let merged = |(key, mut ranges): (FileKey, Vec<Range<u64>>)| {
        ranges.sort_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            match merged.last_mut() {
                Some(last) if range.start < last.end + GAP_MAX => {
                    last.end = last.end.max(range.end)
                }
                _ => merged.push(range),
            }
        }
        (key, merged)
    };
    by_file.into_values().map(merged).collect()
}

fn range(span: busload_dolt::Span) -> Range<u64> {
    span.offset..span.offset + u64::from(span.length)
}

/// Name and version of a file, as a URL gives them.
#[derive(Clone, Debug)]
struct FileKey {
    name: String,
    id: busload_dolt::FileId,
    kind: busload_dolt::FileKind,
    version: u64,
}

impl FileKey {
    fn of(location: &busload_dolt::Location) -> Self {
        let file = &location.file;
        Self { name: file.name().to_owned(), id: file.id, kind: file.kind, version: file.version() }
    }

    async fn bytes(&self, store: &Store) -> Result<FileBytes, Error> {
        let found = store.file_bytes(self.id, self.kind, self.version, now() + TIMEOUT).await?;
        Ok(found.expect("the file is there"))
    }
}

/// Reads all of a range; a stream that ends early without an error fails the test.
async fn take(file: &FileBytes, range: Range<u64>) -> Result<Vec<u8>, Error> {
    let length = range.end - range.start;
    let options = StreamOptions { hint: AccessHint::Random, timeout: TIMEOUT };
    let pieces: Vec<_> = file.stream(range.clone(), options).try_collect().await?;
    let bytes = pieces.concat();
    assert_eq!(bytes.len() as u64, length, "{range:?} ended early, as if that were all");
    Ok(bytes)
}

fn cut<'a>(files: &'a Files, name: &str, range: &Range<u64>) -> &'a [u8] {
    &files[name][usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()]
}

/// Acts as one client: locates some chunks, then reads all of their ranges concurrently.
async fn fetch(
    store: Store,
    files: Arc<Files>,
    wanted: Vec<ChunkAddress>,
) -> Result<Outcome, Error> {
    let located = store.locate(&wanted, now() + TIMEOUT).await?;
    assert!(located.locations.iter().all(Option::is_some), "nil for a chunk that exists");
    store.prefetch(&located);
    let mut outcome = Outcome::default();
    let mut reads = JoinSet::new();
    for (key, ranges) in regions(&located) {
        let file = key.bytes(&store).await?;
        for range in ranges {
            let (file, files, name) = (file.clone(), files.clone(), key.name.clone());
            reads.spawn(async move {
                let bytes = take(&file, range.clone()).await?;
                assert_eq!(bytes, cut(&files, &name, &range), "wrong bytes of {name} at {range:?}");
                Ok(())
            });
        }
    }
    for read in reads.join_all().await {
        match read {
            Ok(()) => outcome.right += 1,
            Err(error) => outcome.errors.push(error),
        }
    }
    Ok(outcome)
}

/// Runs several clients at once, each with some requests.
async fn fetch_by_many(
    store: &Store,
    files: &Arc<Files>,
    addresses: &[ChunkAddress],
    seed: u64,
) -> Vec<Result<Outcome, Error>> {
    let mut clients = JoinSet::new();
    for client in 0..6u64 {
        let draw = |index: u64| mix(seed ^ mix(client) ^ mix(index).rotate_left(9));
        let any = |index| addresses[usize::try_from(draw(index) % addresses.len() as u64).unwrap()];
        let wanted: Vec<_> = (0..1 + draw(0) % 300).map(any).collect();
        clients.spawn(fetch(store.clone(), files.clone(), wanted));
    }
    clients.join_all().await
}

async fn files_of_all(world: &World, store: &Store, addresses: &[ChunkAddress]) -> Arc<Files> {
    let located = store.locate(addresses, now() + TIMEOUT).await.unwrap();
    Arc::new(files_of(world, &located))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranges_are_right_and_whole_whatever_the_network_does() {
    for (index, fault) in faults().into_iter().enumerate() {
        let seed = 300 + index as u64;
        let (world, addresses) = World::with_fixture(seed, FIXTURES[index % FIXTURES.len()]);
        let store = world.start_with(|settings| {
            settings.fill_whole_max = if index % 2 == 0 { 1 << 30 } else { 0 };
            settings.disk_bytes_max = if index % 3 == 0 { 0 } else { 1 << 30 };
        });
        open(&store).await;
        let files = files_of_all(&world, &store, &addresses).await;
        world.rule(fault.clone(), 0.15);
        for outcome in fetch_by_many(&store, &files, &addresses, seed).await {
            let outcome = outcome.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
            assert!(outcome.errors.is_empty() && 0 < outcome.right, "{fault:?}: {outcome:?}");
        }
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_goes_away_in_the_middle_makes_errors_and_no_short_ranges() {
    for (seed, name) in (400..).zip(FIXTURES) {
        let (world, addresses) = World::with_fixture(seed, name);
        let store = world.start_with(|settings| settings.disk_bytes_max = 0);
        open(&store).await;
        let files = files_of_all(&world, &store, &addresses).await;
        // Every answer ends after some bytes, cleanly or not, and then there are no answers.
        world.rules(vec![
            Rule::times(3, busload_bucket::Fault::Reset(2_000)),
            Rule::times(3, busload_bucket::Fault::Truncate(1_000)),
            Rule::always(busload_bucket::Fault::Status(403)),
        ]);
        for outcome in fetch_by_many(&store, &files, &addresses, seed).await {
            let outcome = outcome.expect("places are known");
            let is_away = |error: &Error| matches!(error, Error::Unreachable(_));
            assert!(outcome.errors.iter().all(is_away), "{:?}", outcome.errors);
        }
        // A reader that joins a fetch which the store refused gets its error.
        let is_idle = || store.stats().prefetches == 0 && store.stats().store.in_flight == 0;
        until("nothing is under way", is_idle).await;
        world.rules(Vec::new());
        for outcome in fetch_by_many(&store, &files, &addresses, seed + 50).await {
            assert!(outcome.unwrap().errors.is_empty(), "it is back");
        }
        store.close().await;
    }
}

/// Bits flip in transit, which only a dictionary's own chunks show.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dictionaries_that_are_advertised_are_right_whatever_lies_there_are() {
    for (seed, fault) in (500..).zip(lies().into_iter().chain(faults())) {
        let (world, addresses) = World::with_fixture(seed, "real-archive-conjoined");
        let store = world.start_with(|settings| {
            settings.disk_bytes_max = if seed % 2 == 0 { 0 } else { 1 << 30 }
        });
        open(&store).await;
        let files = files_of_all(&world, &store, &addresses).await;
        let located = store.locate(&addresses, now() + TIMEOUT).await.unwrap();
        world.rule(fault.clone(), 0.4);
        store.prefetch(&located);
        let mut pinned = store.pin_dictionaries(&located, now() + TIMEOUT).await;
        if let Err(error) = &pinned {
            // A chunk that came wrong each time is an error, and later it is right.
            assert!(
                matches!(error, Error::Corrupt(_) | Error::Unreachable(_)),
                "{fault:?}: {error:?}"
            );
            world.rules(Vec::new());
            let started = now();
            // The store remembers corruption for a while.
            while pinned.is_err() && started.elapsed() < TIMEOUT {
                tokio::time::sleep(Duration::from_millis(50)).await;
                pinned = store.pin_dictionaries(&located, now() + TIMEOUT).await;
            }
        }
        pinned.unwrap();
        world.proxy.go_away();
        store.cache().drop_all().await;
        let with = located
            .locations
            .iter()
            .flatten()
            .find(|location| location.dictionary.is_some())
            .unwrap();
        let (key, range) = (FileKey::of(with), range(with.dictionary.unwrap()));
        let file = key.bytes(&store).await.unwrap();
        assert_eq!(
            take(&file, range.clone()).await.unwrap(),
            cut(&files, &key.name, &range),
            "{fault:?}"
        );
        store.close().await;
    }
}

/// Prefetches verify chunks, so that wrong bytes are gone before a client reads them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_came_wrong_are_right_when_clients_read_them_after_the_prefetch() {
    for (seed, name) in (600..).zip(FIXTURES) {
        let (world, addresses) = World::with_fixture(seed, name);
        let store = world.start_with(|settings| settings.disk_bytes_max = 0);
        open(&store).await;
        let files = files_of_all(&world, &store, &addresses).await;
        world.rules(lies().into_iter().map(|fault| Rule::times(1, fault)).collect());
        let located = store.locate(&addresses, now() + TIMEOUT).await.unwrap();
        store.prefetch(&located);
        until("the prefetch has begun", || 0 < store.stats().store.foreground_reads).await;
        until("wrong bytes were found", || 0 < store.stats().corrupt).await;
        until("they were read again", || store.stats().prefetches == 0).await;
        // Reads from now on come right; bytes that stayed in memory were verified.
        world.rules(Vec::new());
        for location in located.locations.iter().flatten() {
            let file = FileKey::of(location).bytes(&store).await.unwrap();
            let range = range(location.span);
            assert_eq!(
                take(&file, range.clone()).await.unwrap(),
                cut(&files, location.file.name(), &range)
            );
        }
        store.close().await;
    }
}

/// The store once sent half a megabyte when all of it had come: over a slow link clients timed out
/// before its first byte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_are_sent_as_they_come_and_not_with_the_last_of_their_range() {
    let world = World::new(700);
    let (spec, addresses) = world.put_file(700, 400);
    world.put_manifest(addresses[0], &[spec]);
    let store = world.start_with(|settings| settings.disk_bytes_max = 0);
    open(&store).await;
    let files = files_of_all(&world, &store, &addresses).await;
    let located = store.locate(&addresses, now() + TIMEOUT).await.unwrap();
    let (key, ranges) = regions(&located).remove(0);
    assert!(ranges.len() == 1 && 200_000 < ranges[0].end, "{ranges:?}");
    // After so many bytes the store stalls for longer than the client's timeout.
    world.rules(vec![Rule::always(Fault::Stall(100_000)).to(&key.name)]);
    let options = StreamOptions { hint: AccessHint::Random, timeout: Duration::from_secs(4) };
    let mut pieces = key.bytes(&store).await.unwrap().stream(ranges[0].clone(), options);
    let (mut got, mut error) = (Vec::new(), None);
    while let Some(piece) = pieces.next().await {
        match piece {
            Ok(piece) => got.extend(piece),
            Err(told) => error = Some(told),
        }
    }
    assert!(matches!(error, Some(Error::DeadlineExceeded(_))), "{error:?}");
    // All complete chunks that came. None has more than 3 KB.
    assert!(97_000 < got.len() && got.len() <= 100_000, "{}", got.len());
    assert!(files[&key.name].starts_with(&got), "wrong bytes");
    store.close().await;
}
