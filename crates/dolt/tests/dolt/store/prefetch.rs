//! Prefetches of located chunks.

use std::{fs, ops::Range, time::Duration};

use busload_bucket::{Fault, Faults, Rule};
use busload_dolt::{ChunkAddress, FileBytes, Located, Store, limits};

use crate::store::{
    remote_store::{RemoteStore, deadline, stream, until},
    support::{Harness, addresses, noise, open},
};

/// Chunks of a block or more each, most of them next to each other.
struct Some {
    far: RemoteStore,
    name: String,
    known: Vec<ChunkAddress>,
}

impl Some {
    fn new() -> Self {
        let harness = Harness::new();
        let chunks: Vec<Vec<u8>> = (0..300).map(|seed| noise(seed, 6_000)).collect();
        let known = addresses(&chunks);
        let spec = harness.write_file(&chunks);
        harness.write_manifest(known[0], &[spec]);
        Self { far: RemoteStore::of(harness), name: spec.id.to_string(), known }
    }

    /// Some chunks next to each other, some alone.
    fn wanted(&self) -> Vec<ChunkAddress> {
        let is_wanted = |index: usize| (20..90).contains(&index) || index % 40 == 7;
        (0..300).filter(|index| is_wanted(*index)).map(|index| self.known[index]).collect()
    }

    /// Counts bytes requested of a file; panics if any byte was requested twice.
    fn asked_once(&self) -> Vec<Range<u64>> {
        let ranges = self.far.ranges(&self.name);
        for pair in ranges.windows(2) {
            assert!(pair[0].end <= pair[1].start, "{pair:?} overlap");
        }
        ranges
    }
}

fn spans(located: &Located) -> Vec<Range<u64>> {
    let spans = located.locations.iter().flatten().map(|location| location.span);
    spans.map(|span| span.offset..span.offset + u64::from(span.length)).collect()
}

/// Opens the first location's file by its name.
async fn file_of(store: &Store, located: &Located) -> FileBytes {
    let file = &located.locations.iter().flatten().next().unwrap().file;
    store.file_bytes(file.id, file.kind, file.version(), deadline()).await.unwrap().unwrap()
}

/// Reads every chunk by a range of its own, concurrently, as clients with many connections do.
async fn stream_all(store: &Store, located: &Located, expected: &[u8]) {
    let bytes = file_of(store, located).await;
    let reads: Vec<_> = spans(located)
        .into_iter()
        .map(|span| {
            let bytes = bytes.clone();
            tokio::spawn(async move { (span.clone(), stream(&bytes, span).await.unwrap()) })
        })
        .collect();
    for read in reads {
        let (span, bytes) = read.await.unwrap();
        let span = usize::try_from(span.start).unwrap()..usize::try_from(span.end).unwrap();
        assert_eq!(bytes, expected[span]);
    }
}

fn covers(ranges: &[Range<u64>], span: &Range<u64>) -> bool {
    ranges.iter().any(|range| range.start <= span.start && span.end <= range.end)
}

async fn until_read(some: &Some, store: &Store, located: &Located) {
    until("the chunks are there", || {
        let ranges = some.far.ranges(&some.name);
        let all = spans(located).iter().all(|span| covers(&ranges, span));
        all && store.stats().store.in_flight == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_that_come_after_the_prefetch_has_completed_ask_the_store_for_nothing() {
    let some = Some::new();
    let store = some.far.open_without_disk().await;
    let located = store.locate(&some.wanted(), deadline()).await.unwrap();
    some.far.proxy.forget();
    store.prefetch(&located);
    until_read(&some, &store, &located).await;
    let before = some.asked_once();
    assert!(before.len() < 12, "neighbours share batches: {before:?}");
    stream_all(&store, &located, &fs::read(some.far.path(&some.name)).unwrap()).await;
    assert_eq!(some.asked_once(), before);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_that_come_before_the_prefetch_has_completed_wait_for_it() {
    let some = Some::new();
    let store = some.far.open_without_disk().await;
    let located = store.locate(&some.wanted(), deadline()).await.unwrap();
    some.far.proxy.forget();
    some.far.proxy.set(Faults { first_byte: Duration::from_millis(300), ..Faults::default() });
    store.prefetch(&located);
    // The prefetch has begun once the store has received a request.
    until("the store is asked", || 0 < store.stats().store.in_flight).await;
    stream_all(&store, &located, &fs::read(some.far.path(&some.name)).unwrap()).await;
    let ranges = some.asked_once();
    assert!(spans(&located).iter().all(|span| covers(&ranges, span)));
    store.close().await;
}

/// On one thread, so that started tasks have run when the test goes on.
#[tokio::test]
async fn a_prefetch_verifies_what_is_on_disk_once_and_then_does_nothing() {
    let some = Some::new();
    let store = open(some.far.settings()).await;
    store.warm(&mut |_| {}).await.unwrap();
    some.far.proxy.forget();
    let located = store.locate(&some.known, deadline()).await.unwrap();
    let hits = || store.stats().cache.hits;
    let before = hits();
    store.prefetch(&located);
    until("all is checked", || store.stats().prefetches == 0).await;
    assert!(before + 300 <= hits());
    let before = hits();
    store.prefetch(&located);
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(hits(), before);
    assert!(some.far.proxy.seen().is_empty());
    store.close().await;
}

/// Bits flip as a network may flip them.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_bytes_are_found_and_read_again_before_clients_ask_for_them() {
    let some = Some::new();
    let store = some.far.open_without_disk().await;
    let located = store.locate(&some.known[100..101], deadline()).await.unwrap();
    // A ranged read begins less than a block of 4 KB before the chunk, which has 6,000 bytes.
    some.far.rules(vec![Rule::times(1, Fault::Flip(5_000)).to(&some.name)]);
    some.far.proxy.forget();
    store.prefetch(&located);
    until("it is read again", || {
        some.far.ranges(&some.name).len() == 2 && store.stats().store.in_flight == 0
    })
    .await;
    stream_all(&store, &located, &fs::read(some.far.path(&some.name)).unwrap()).await;
    assert_eq!((some.far.ranges(&some.name).len(), store.stats().corrupt), (2, 1));
    store.close().await;
}

/// A fill, which verifies nothing, brought the wrong bytes to disk.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_bytes_on_disk_are_found_and_read_again_before_clients_ask_for_them() {
    let some = Some::new();
    let store = open(some.far.settings()).await;
    // In the middle of the 100th chunk, give or take.
    some.far.rules(vec![Rule::times(1, Fault::Flip(600_000)).to(&some.name)]);
    store.warm(&mut |_| {}).await.unwrap();
    some.far.rules(Vec::new());
    let located = store.locate(&some.known, deadline()).await.unwrap();
    store.prefetch(&located);
    until("the corruption is found", || store.stats().corrupt == 1).await;
    until("and read again", || {
        let wrong = (95..105).map(|index| some.known[index]);
        let is_local = |address| {
            matches!(
                store.try_get(&address, busload_dolt::Form::Stored),
                busload_dolt::Attempt::Ready(Ok(_))
            )
        };
        wrong.into_iter().all(is_local)
    })
    .await;
    stream_all(&store, &located, &fs::read(some.far.path(&some.name)).unwrap()).await;
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn prefetches_are_limited_and_skipped_chunks_are_read_on_request() {
    let some = Some::new();
    let store = some.far.open_without_disk().await;
    some.far.rules(vec![Rule::always(Fault::Stall(0))]);
    some.far.proxy.forget();
    for address in &some.known {
        store.prefetch(&store.locate(&[*address], deadline()).await.unwrap());
    }
    let stats = store.stats();
    assert_eq!(stats.prefetches, limits::PREFETCHES_MAX as u64);
    assert_eq!(stats.prefetches + stats.prefetches_skipped, 300);
    some.far.rules(Vec::new());
    let located = store.locate(&some.known, deadline()).await.unwrap();
    stream_all(&store, &located, &fs::read(some.far.path(&some.name)).unwrap()).await;
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_of_one_prefetch_are_read_as_long_as_their_bytes_fit() {
    let harness = Harness::new();
    let chunks: Vec<Vec<u8>> = (0..8).map(|seed| noise(seed, 200 << 10)).collect();
    let known = addresses(&chunks);
    harness.write_manifest(known[0], &[harness.write_file(&chunks)]);
    let far = RemoteStore::of(harness);
    let store = far.open_without_disk().await;
    far.rules(vec![Rule::always(Fault::Stall(0))]);
    let located = store.locate(&known, deadline()).await.unwrap();
    store.prefetch(&located);
    // Five chunks of a little more than 200 KiB have less than the 1 MiB that is prefetched while
    // the bandwidth is not known.
    assert_eq!((store.stats().prefetches, store.stats().prefetches_skipped), (1, 3));
    store.prefetch(&located);
    assert_eq!(
        (store.stats().prefetches, store.stats().prefetches_skipped),
        (1, 3 + 8),
        "no room for one"
    );
    store.close().await;
    until("the room is given back", || store.stats().prefetches == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_ends_prefetches() {
    let some = Some::new();
    let store = some.far.open_without_disk().await;
    some.far.rules(vec![Rule::always(Fault::Stall(0))]);
    let located = store.locate(&some.known, deadline()).await.unwrap();
    let file = std::sync::Arc::downgrade(&located.locations[0].as_ref().unwrap().file);
    store.prefetch(&located);
    drop(located);
    store.close().await;
    drop(store);
    until("nothing holds the file any more", || file.strong_count() == 0).await;
}
