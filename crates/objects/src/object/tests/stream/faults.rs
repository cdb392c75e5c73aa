//! Stores and disks that fail in the middle.

use super::*;

const SIZE: u64 = 40 * MIB + 777;

fn disks() -> [Option<DiskOptions>; 3] {
    // The budget is too small to have all of it under way at once.
    [
        None,
        Some(DiskOptions { fill_bytes_max: 8 * MIB, ..AMPLE }),
        Some(DiskOptions { bytes_max: 6 * MIB, fill_whole_max: 0, ..AMPLE }),
    ]
}

#[tokio::test(start_paused = true)]
async fn faults_in_the_middle_cost_time_and_no_bytes() {
    let faults = [
        Answer::Status(503),
        Answer::Status(500),
        Answer::Status(206),
        Answer::Reset,
        Answer::OtherRange,
        Answer::Cut(1_500_000),
        Answer::Cut(0),
        Answer::Break(700_000),
        Answer::Stall(1_000_000),
        Answer::Silence,
        Answer::Long(3),
        Answer::Panic,
    ];
    for hint in [RANDOM, SEQUENTIAL] {
        for disk in disks() {
            for fault in faults {
                if fault == Answer::Panic && hint.hint == AccessHint::Random {
                    // A panic ends a fetch, and a stream with this hint has no other.
                    continue;
                }
                let bench = Bench::over(SIZE, disk).await;
                bench.fake.answer([Answer::Good, fault, Answer::Good, fault, fault]);
                bench.streams_well(0..SIZE, hint).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_part_that_fails_for_good_does_not_fail_the_stream() {
    // All attempts of the only part fail: none brings a byte, or the last ones do not.
    let none = [Answer::Status(500); 4];
    let some = [Answer::Break(1_000_000), Answer::Status(500), Answer::Reset, Answer::Cut(0)];
    for answers in [none, some] {
        for disk in [None, Some(AMPLE)] {
            let bench = Bench::over(EXTENT_DATA_BYTES, disk).await;
            bench.fake.answer(answers);
            bench.streams_well(0..EXTENT_DATA_BYTES, SEQUENTIAL).await;
            assert_eq!(bench.remote.stats().fill_reads, 4);
            assert!(0 < bench.foreground_reads());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_fills_does_not_stop_a_copy() {
    let bench = Bench::new(SIZE, AMPLE).await;
    bench.object.core.fetches().queue.pause(Instant::now() + limits::FILL_PAUSE);
    let began = Instant::now();
    bench.streams_well(0..4 * MIB, SEQUENTIAL).await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(!bench.object.is_local(0..1), "nothing is brought to disk meanwhile");
    tokio::time::sleep(limits::FILL_PAUSE).await;
    bench.streams_well(0..SIZE, SEQUENTIAL).await;
    bench.settled().await;
    assert!(bench.object.is_local(0..SIZE));
}

#[tokio::test(start_paused = true)]
async fn the_last_error_of_the_store_ends_the_stream() {
    for hint in [RANDOM, SEQUENTIAL] {
        for disk in disks() {
            let bench = Bench::over(SIZE, disk).await;
            let mut stream = bench.object.stream(0..SIZE, hint);
            let next = bench.takes(&mut stream, 2, 0).await;
            bench.fake.answer_always(Answer::Status(403));
            let error = take(&bench, &mut stream, next..SIZE).await.unwrap_err();
            assert!(matches!(error, Error::Denied(_)), "{error:?}");
            assert!(stream.next().await.is_none() && stream.held_bytes() == 0);

            bench.fake.answer_always(Answer::Good);
            bench.fake.store("a", contents(77)).await;
            let mut stream = bench.object.stream(SIZE - 100..SIZE, hint);
            let error = take(&bench, &mut stream, SIZE - 100..SIZE).await.unwrap_err();
            assert!(matches!(error, Error::Gone(_)), "{error:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_piece_that_takes_longer_than_the_timeout_is_an_error() {
    for hint in [AccessHint::Random, AccessHint::Sequential] {
        for disk in disks() {
            let bench = Bench::over(SIZE, disk).await;
            let options = StreamOptions { hint, timeout: Duration::from_secs(7) };
            bench.streams_well(0..2 * MIB, options).await;
            bench.settled().await;
            bench.fake.answer_always(Answer::Silence);
            bench.object.invalidate(0..SIZE);
            let began = Instant::now();
            let mut stream = bench.object.stream(0..SIZE, options);
            let error = stream.next().await.unwrap().unwrap_err();
            assert!(matches!(error, Error::DeadlineExceeded(_)), "{error:?}");
            assert_eq!(began.elapsed().as_secs(), 7);
            assert!(stream.next().await.is_none());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_is_not_a_slow_store() {
    let bench = Bench::new(20 * MIB, AMPLE).await;
    for hint in [AccessHint::Random, AccessHint::Sequential] {
        let options = StreamOptions { hint, timeout: Duration::from_secs(2) };
        let mut stream = bench.object.stream(0..20 * MIB, options);
        let mut next = 0;
        for _ in 0..10 {
            next = bench.takes(&mut stream, 1, next).await;
            tokio::time::sleep(Duration::from_secs(100)).await;
        }
        take(&bench, &mut stream, next..20 * MIB).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_gets_nothing_of_the_budget_reads_in_the_foreground() {
    for disk in [None, Some(AMPLE)] {
        let bench = Bench::over(SIZE, disk).await;
        let _permit = bench.object.core.cache.fills.reserve(64 * MIB).await;
        let began = Instant::now();
        bench.streams_well(0..SIZE, SEQUENTIAL).await;
        // The stream waits for its timeout once, not again and again.
        let half = SEQUENTIAL.timeout / 2;
        assert!(
            (half..half + Duration::from_secs(3)).contains(&began.elapsed()),
            "{:?}",
            began.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_keeps_nothing_costs_a_copy_no_more_than_a_second_way() {
    let full = DiskOptions { free_bytes_min: u64::MAX, ..AMPLE };
    let bench = Bench::new(SIZE, full).await;
    bench.streams_well(0..SIZE, SEQUENTIAL).await;
    assert!(bench.cache.stats().bypassed.is_some());
    assert!(bench.remote.stats().bytes <= 2 * SIZE, "{:?}", bench.remote.stats());
    let before = bench.remote.stats().bytes;
    bench.streams_well(0..SIZE, SEQUENTIAL).await;
    assert_eq!(bench.remote.stats().bytes - before, SIZE, "for a while it is not asked again");
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_vanishes_under_a_copy_ends_nothing() {
    for hint in [RANDOM, SEQUENTIAL] {
        let bench = Bench::new(SIZE, AMPLE).await;
        let mut stream = bench.object.stream(0..SIZE, hint);
        let next = bench.takes(&mut stream, 20, 0).await;
        // The journal, or a part, may be written into it while it is removed.
        let directory = bench.directory.as_ref().unwrap().path();
        assert!((0..100).any(|_| std::fs::remove_dir_all(directory).is_ok()), "it is removed");
        take(&bench, &mut stream, next..SIZE).await.unwrap();
        bench.streams_well(0..SIZE, hint).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_extent_evicted_before_the_stream_reads_it_comes_from_the_store() {
    let bench = Bench::new(SIZE, AMPLE).await;
    let mut stream = bench.object.stream(0..SIZE, SEQUENTIAL);
    let mut next = 0;
    for _ in 0..20 {
        next = bench.takes(&mut stream, 5, next).await;
        bench.settled().await;
        bench.cache.drop_object("memory://", "a").await;
    }
    take(&bench, &mut stream, next..SIZE).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn invalidated_bytes_make_a_later_stream_ask_the_store() {
    for (disk, hint) in
        [(None, RANDOM), (None, SEQUENTIAL), (Some(AMPLE), RANDOM), (Some(AMPLE), SEQUENTIAL)]
    {
        let bench = Bench::over(4 * MIB, disk).await;
        bench.streams_well(0..4 * MIB, hint).await;
        bench.settled().await;
        let before = bench.remote.stats().bytes;
        bench.object.invalidate(2 * MIB..2 * MIB + 1);
        bench.streams_well(0..4 * MIB, hint).await;
        assert!(before < bench.remote.stats().bytes);
    }
}

#[tokio::test(start_paused = true)]
async fn closing_the_cache_ends_no_stream() {
    for hint in [RANDOM, SEQUENTIAL] {
        let bench = Bench::new(SIZE, AMPLE).await;
        let mut stream = bench.object.stream(0..SIZE, hint);
        let next = bench.takes(&mut stream, 3, 0).await;
        bench.cache.close().await;
        take(&bench, &mut stream, next..SIZE).await.unwrap();
        assert_eq!(bench.cache.stats().fill_bytes, 0);
    }
}
