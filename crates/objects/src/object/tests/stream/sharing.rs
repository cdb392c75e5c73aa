//! Many streams at once: each byte is fetched once, and hot extents stay.

use super::*;

/// Makes so many copies of the object, each begun a little after the one before.
async fn copies(bench: &Bench, count: u64, apart: Duration) {
    let size = bench.bytes.len() as u64;
    let copies = (0..count).map(|index| async move {
        tokio::time::sleep(apart * u32::try_from(index).unwrap()).await;
        bench.streams_well(0..size, SEQUENTIAL).await;
    });
    join_all(copies).await;
    bench.settled().await;
}

#[tokio::test(start_paused = true)]
async fn twenty_copies_at_once_ask_for_every_byte_once() {
    let size = 60 * MIB + 1;
    for apart in [0, 7, 200] {
        for fill_whole_max in [0, 128 * MIB] {
            let bench = Bench::new(size, DiskOptions { fill_whole_max, ..AMPLE }).await;
            copies(&bench, 20, Duration::from_millis(apart)).await;
            let stats = bench.remote.stats();
            assert_eq!((stats.bytes, stats.foreground_reads), (size, 0), "{apart} ms apart");
            let mut asked: Vec<_> =
                bench.fake.requests().into_iter().map(|asked| asked.range.unwrap()).collect();
            asked.sort_by_key(|range| range.start);
            assert!(asked.windows(2).all(|pair| pair[0].end == pair[1].start), "{asked:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn copies_without_a_disk_share_what_they_can() {
    let size = 60 * MIB + 1;
    for apart in [0, 7] {
        let bench = Bench::diskless(size).await;
        copies(&bench, 20, Duration::from_millis(apart)).await;
        assert_eq!(bench.remote.stats().bytes, size, "{apart} ms apart");
    }
    // Copies that are too far apart fetch their own bytes.
    let bench = Bench::diskless(size).await;
    copies(&bench, 2, Duration::from_secs(10)).await;
    assert_eq!(bench.remote.stats().bytes, 2 * size);
}

#[tokio::test(start_paused = true)]
async fn copies_beside_a_warming_and_a_fill_share_their_parts() {
    let size = 60 * MIB + 1;
    let bench = Bench::new(size, AMPLE).await;
    let mut ignore = |_| ();
    let warming = bench.object.warm(&mut ignore);
    let (warmed, (), ()) = tokio::join!(warming, bench.streams_well(0..size, SEQUENTIAL), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        bench.streams_well(0..size, SEQUENTIAL).await;
    });
    assert_eq!(warmed.unwrap().done, size);
    assert_eq!(bench.remote.stats().bytes, size);
}

#[tokio::test(start_paused = true)]
async fn a_small_read_does_not_wait_for_a_copy() {
    let bench = Bench::diskless(60 * MIB).await;
    // The copy gets nothing of the budget, so its fetches are not sent.
    let permit = bench.object.core.cache.fills.reserve(64 * MIB).await;
    let mut copy = bench.object.stream(0..60 * MIB, SEQUENTIAL);
    assert!(tokio::time::timeout(Duration::from_secs(1), copy.next()).await.is_err());
    let began = Instant::now();
    bench.reads_well(1_000..2_000).await;
    assert!(began.elapsed() < Duration::from_millis(40), "{:?}", began.elapsed());
    drop(permit);
    take(&bench, &mut copy, 0..60 * MIB).await.unwrap();
}

/// Readers read 20 of 42 MiB of disk again and again; then a stream copies a much larger object,
/// and one whose names are among the ghosts.
#[tokio::test(start_paused = true)]
async fn a_copy_does_not_evict_extents_that_are_read_again_and_again() {
    // Earlier reads protect an extent for three rounds of the main queue: the second object is
    // copied more often than that.
    for (copied, times) in [(130 * MIB, 2), (60 * MIB, 6)] {
        let bench =
            Bench::new(copied, DiskOptions { bytes_max: 42 * MIB, fill_whole_max: 0, ..AMPLE })
                .await;
        let hot_bytes = contents(usize::try_from(20 * MIB).unwrap());
        bench.fake.store("hot", hot_bytes.clone()).await;
        let meta = bench.remote.head("hot").await.unwrap().unwrap();
        let hot = bench.cache.object(&bench.remote, &meta);
        hot.warm(&mut |_| ()).await.unwrap();
        let extents = meta.size / EXTENT_DATA_BYTES;
        // Other things come and go, as they do in a cache that is in use, and what is read
        // meanwhile gets into the main queue.
        bench.fake.store("other", contents(usize::try_from(60 * MIB).unwrap())).await;
        let other =
            bench.cache.object(&bench.remote, &bench.remote.head("other").await.unwrap().unwrap());
        for extent in 0..other.meta().size / EXTENT_DATA_BYTES {
            let start = extent * EXTENT_DATA_BYTES;
            other.read(start..start + 10, within(Duration::from_secs(9))).await.unwrap();
            // Waits for the fill that the read caused.
            while !other.is_local(start..start + 10) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            for hot_extent in 0..extents {
                let start = hot_extent * EXTENT_DATA_BYTES;
                hot.read(start..start + 10, within(Duration::from_secs(9))).await.unwrap();
            }
        }
        let local = |object: &Object| {
            (0..extents)
                .filter(|extent| {
                    object.is_local(extent * EXTENT_DATA_BYTES..(extent + 1) * EXTENT_DATA_BYTES)
                })
                .count()
        };
        assert_eq!(local(&hot), 20, "it is there before");
        for _ in 0..times {
            bench.streams_well(0..copied, SEQUENTIAL).await;
            bench.settled().await;
        }
        assert_eq!(
            local(&hot),
            20,
            "a copy of {copied} bytes has driven it out: {:?}",
            bench.cache.stats()
        );
        assert!(1 < bench.cache.stats().evicted);
    }
}
