use std::sync::{Mutex, atomic::AtomicBool};

use object_store::ObjectStoreExt;

use super::{
    fake::{Answer, Fake, contents, options},
    ranged::Whole,
    *,
};

struct Bench {
    fake: Arc<Fake>,
    remote: Arc<Remote>,
    bytes: Bytes,
    meta: ObjectMeta,
}

impl Bench {
    async fn new(length: usize) -> Self {
        let fake = Fake::new();
        let bytes = contents(length);
        fake.store("a", bytes.clone()).await;
        let remote = fake.remote();
        let meta = remote.list("").await.unwrap().remove(0);
        Self { fake, remote, bytes, meta }
    }

    /// Reads a range. Returns the bytes that came, and how the read ended.
    async fn read(&self, range: std::ops::Range<u64>) -> (BytesMut, Result<(), Error>) {
        let mut sink = Whole::default();
        let outcome =
            self.remote.read_range(&self.meta, range, Urgency::Foreground, &mut sink).await;
        (sink.0, outcome)
    }

    async fn reads_well(&self, range: std::ops::Range<u64>) {
        let expected = &self.bytes[range.start as usize..range.end as usize];
        let (got, outcome) = self.read(range).await;
        outcome.unwrap();
        assert!(got == expected, "other bytes came");
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_asks_for_exactly_the_range_of_exactly_the_version() {
    let bench = Bench::new(100_000).await;
    bench.reads_well(10..50_000).await;
    let asked = bench.fake.requests();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].range, Some(10..50_000));
    assert_eq!(asked[0].if_match, Some(bench.meta.etag.clone()));
}

#[tokio::test(start_paused = true)]
async fn wrong_answers_never_give_a_byte_and_are_asked_again() {
    for wrong in [Answer::OtherRange, Answer::OtherSize, Answer::OtherEtag, Answer::Status(206)] {
        let bench = Bench::new(10_000).await;
        bench.fake.answer([wrong]);
        bench.reads_well(100..9_000).await;
        let stats = bench.remote.stats();
        assert_eq!(
            (stats.wrong_responses, stats.retries, stats.foreground_reads),
            (1, 1, 2),
            "{wrong:?}"
        );

        bench.fake.answer_always(wrong);
        let (got, outcome) = bench.read(100..9_000).await;
        assert!(got.is_empty(), "{wrong:?} gave {} bytes", got.len());
        let error = outcome.unwrap_err();
        match wrong {
            Answer::OtherSize | Answer::OtherEtag => {
                assert!(matches!(error, Error::Gone(_)), "{error:?}")
            }
            _ => assert!(matches!(error, Error::Unreachable(_)), "{error:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_too_long_is_refused() {
    let bench = Bench::new(10_000).await;
    bench.fake.answer_always(Answer::Long(1));
    let (got, outcome) = bench.read(0..9_000).await;
    assert!(got.is_empty());
    assert!(matches!(outcome, Err(Error::Unreachable(text)) if text.contains("longer")));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_cut_breaks_or_stalls_goes_on_at_the_next_byte() {
    for fault in [Answer::Cut(70_000), Answer::Break(70_000), Answer::Stall(70_000)] {
        let bench = Bench::new(300_000).await;
        bench.fake.answer([fault, fault]);
        bench.reads_well(1_000..250_000).await;
        let ranges: Vec<_> =
            bench.fake.requests().into_iter().map(|asked| asked.range.unwrap()).collect();
        assert_eq!(ranges, [1_000..250_000, 71_000..250_000, 141_000..250_000], "{fault:?}");
        let stats = bench.remote.stats();
        assert_eq!((stats.retries, stats.bytes), (2, 249_000), "no byte comes twice");
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_are_bounded_and_what_brings_bytes_is_not_counted() {
    let bench = Bench::new(300_000).await;
    bench.fake.answer_always(Answer::Reset);
    let (_, outcome) = bench.read(0..1).await;
    assert!(matches!(outcome, Err(Error::Unreachable(text)) if text.contains("8 attempts")));
    assert_eq!(bench.fake.requests().len(), 8);

    bench.fake.answer_always(Answer::Break(50_000));
    bench.reads_well(0..300_000).await;
    assert_eq!(bench.fake.requests().len(), 8 + 6);
}

#[tokio::test(start_paused = true)]
async fn silence_ends_an_attempt() {
    let bench = Bench::new(1_000).await;
    bench.fake.answer([Answer::Silence]);
    let began = Instant::now();
    bench.reads_well(0..1_000).await;
    let took = began.elapsed();
    assert!(Duration::from_secs(3) <= took && took < Duration::from_secs(4), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_was_deleted_or_replaced_is_gone_at_once() {
    let bench = Bench::new(1_000).await;
    bench.fake.store("a", contents(1_000)).await;
    let (got, outcome) = bench.read(0..1_000).await;
    assert!(got.is_empty() && matches!(outcome, Err(Error::Gone(_))), "{outcome:?}");
    assert_eq!(bench.fake.requests().len(), 1, "asking again does not bring it back");

    let bench = Bench::new(1_000).await;
    bench.fake.delete(&Path::from("a")).await.unwrap();
    let (_, outcome) = bench.read(0..1_000).await;
    assert!(matches!(outcome, Err(Error::Gone(_))), "{outcome:?}");
    assert_eq!(bench.remote.head("a").await.unwrap(), None);
    assert_eq!(bench.remote.fetch("a", None, 9_999).await.unwrap(), Fetched::Missing);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_be_asked_is_never_taken_for_one_without_the_object() {
    for (fault, denied) in [
        (Answer::Reset, false),
        (Answer::Status(500), false),
        (Answer::Status(503), false),
        (Answer::Status(403), true),
        (Answer::Status(400), true),
    ] {
        let bench = Bench::new(1_000).await;
        bench.fake.answer_always(fault);
        for error in [
            bench.remote.head("a").await.unwrap_err(),
            bench.remote.fetch("a", None, 9_999).await.unwrap_err(),
            bench.read(0..10).await.1.unwrap_err(),
        ] {
            let is_right = match error {
                Error::Denied(_) => denied,
                Error::Unreachable(_) => !denied,
                _ => false,
            };
            assert!(is_right, "{fault:?}: {error:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn slow_downs_narrow_the_window_and_successes_widen_it() {
    let bench = Bench::new(1_000).await;
    bench.fake.answer([Answer::Status(503), Answer::Status(503), Answer::Status(429)]);
    bench.reads_well(0..1_000).await;
    let stats = bench.remote.stats();
    assert_eq!((stats.slow_downs, stats.window), (3, 8));
    for _ in 0..9 {
        bench.reads_well(0..1_000).await;
    }
    assert_eq!(bench.remote.stats().window, 9);
    assert_eq!(bench.remote.stats().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn no_more_requests_than_the_window_are_under_way() {
    let bench = Bench::new(100_000).await;
    let reads = (0..300u64).map(|index| bench.reads_well(index * 100..index * 100 + 50));
    futures_util::future::join_all(reads).await;
    assert_eq!(bench.fake.under_way_most(), 64);
}

#[tokio::test(start_paused = true)]
async fn what_reads_take_is_measured() {
    let bench = Bench::new(1 << 20).await;
    bench.fake.pace(Duration::from_millis(30), 10_000, Duration::from_millis(1));
    for _ in 0..20 {
        bench.reads_well(0..1 << 20).await;
    }
    let stats = bench.remote.stats();
    let milliseconds = stats.first_byte.as_millis();
    assert!((29..=33).contains(&milliseconds), "{milliseconds}");
    assert!((4e6..=12e6).contains(&stats.bandwidth), "{}", stats.bandwidth);
}

#[tokio::test(start_paused = true)]
async fn a_small_object_is_fetched_whole_or_found_unchanged() {
    let bench = Bench::new(100_000).await;
    let Fetched::Object { bytes, etag } = bench.remote.fetch("a", None, 100_000).await.unwrap()
    else {
        panic!("it is there");
    };
    assert_eq!(bytes, bench.bytes);
    let unchanged = bench.remote.fetch("a", Some(&etag), 100_000).await.unwrap();
    assert_eq!(unchanged, Fetched::NotModified);
    bench.fake.store("a", "new").await;
    let changed = bench.remote.fetch("a", Some(&etag), 100_000).await.unwrap();
    assert!(matches!(changed, Fetched::Object { bytes, .. } if bytes == "new"));
    let error = bench.remote.fetch("a", None, 2).await.unwrap_err();
    assert!(matches!(error, Error::Denied(text) if text.contains("at most 2 bytes, it has 3")));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_an_object_is_read_by_name_and_wrong_answers_are_asked_again() {
    let bench = Bench::new(10_000).await;
    let reads_well = async |bytes: u64| {
        let start = 10_000 - bytes.min(10_000) as usize;
        let end = bench.remote.fetch_end("a", bytes).await.unwrap();
        assert_eq!(end, Some((bench.meta.clone(), bench.bytes.slice(start..))), "{bytes}");
    };
    for bytes in [1, 4_000, 10_000, 20_000] {
        reads_well(bytes).await;
    }
    let requests = bench.fake.requests().len();
    bench.fake.answer([Answer::OtherRange]);
    reads_well(4_000).await;
    assert_eq!(bench.fake.requests().len(), requests + 2);
    assert_eq!(bench.remote.fetch_end("b", 10).await, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_is_cut_begins_anew() {
    for fault in [Answer::Cut(10), Answer::Break(10), Answer::Stall(10), Answer::Long(3)] {
        let bench = Bench::new(100_000).await;
        bench.fake.answer([fault]);
        let fetched = bench.remote.fetch("a", None, 100_000).await.unwrap();
        assert!(
            matches!(fetched, Fetched::Object { bytes, .. } if bytes == bench.bytes),
            "{fault:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_listing_holds_what_is_directly_below_a_folder() {
    let fake = Fake::new();
    for name in ["top", "store/manifest", "store/x.darc", "store/oldgen/manifest", "storehouse/y"] {
        fake.store(name, "1").await;
    }
    let address = Address {
        store: Arc::clone(&fake) as Arc<dyn ObjectStore>,
        prefix: Path::from("store"),
        url: "memory://store".to_owned(),
        directory: None,
        item: None,
    };
    let remote = Remote::at(address, options(Handle::current()));
    let names = |list: Vec<ObjectMeta>| list.into_iter().map(|meta| meta.name).collect::<Vec<_>>();
    fake.answer([Answer::Reset, Answer::Status(503)]);
    assert_eq!(names(remote.list("").await.unwrap()), ["manifest", "x.darc"]);
    assert_eq!(names(remote.list("oldgen").await.unwrap()), ["oldgen/manifest"]);
    assert!(remote.list("none").await.unwrap().is_empty());
    assert_eq!(remote.head("oldgen/manifest").await.unwrap().unwrap().size, 1);
    fake.answer([Answer::Status(403)]);
    assert!(matches!(remote.list("").await, Err(Error::Denied(_))));
}

/// Tasks of other crates hold these futures, which must be `Send`.
#[test]
fn calls_can_be_spawned() {
    fn is_send<T: Send>(_: &T) {}
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let remote = Remote::over(Fake::new(), options(runtime.handle().clone()));
    is_send(&remote.list(""));
    is_send(&remote.head(""));
    is_send(&remote.fetch("", None, 0));
}

/// Reads of a store of files, on the real clock because files are read by other threads.
#[tokio::test]
async fn files_are_objects_with_versions() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("a store, 100% \u{e4}#");
    std::fs::create_dir_all(root.join("oldgen")).unwrap();
    let bytes = contents(2_000_000);
    std::fs::write(root.join("abc"), &bytes).unwrap();
    std::fs::write(root.join("oldgen/manifest"), "m").unwrap();
    let url = url::Url::from_directory_path(&root).unwrap();
    let remote = Remote::new(url.as_str(), options(Handle::current())).unwrap();
    let listed = remote.list("").await.unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!((listed[0].name.as_str(), listed[0].size), ("abc", 2_000_000));
    assert_eq!(remote.head("abc").await.unwrap().as_ref(), Some(&listed[0]));
    assert!(matches!(
        remote.fetch("oldgen/manifest", None, 9).await,
        Ok(Fetched::Object { bytes, .. }) if bytes == "m"
    ));

    let mut sink = Whole::default();
    remote.read_range(&listed[0], 5..1_999_999, Urgency::Fill, &mut sink).await.unwrap();
    assert!(sink.0 == bytes[5..1_999_999]);

    // Replaces the file as a program does: writes it beside, renames it.
    std::fs::write(root.join("new"), contents(3_000_000)).unwrap();
    std::fs::rename(root.join("new"), root.join("abc")).unwrap();
    let mut sink = Whole::default();
    let replaced = remote.read_range(&listed[0], 5..1_999_999, Urgency::Fill, &mut sink).await;
    assert!(sink.0.is_empty() && matches!(replaced, Err(Error::Gone(_))), "{replaced:?}");
    assert_eq!(remote.head("none").await.unwrap(), None);
    assert!(remote.list("none").await.unwrap().is_empty());
}

#[tokio::test]
async fn a_directory_that_is_not_there_is_not_an_empty_store() {
    let directory = tempfile::tempdir().unwrap();
    let url = url::Url::from_directory_path(directory.path().join("unmounted")).unwrap();
    let options = RemoteOptions { attempts_max: 1, ..options(Handle::current()) };
    let remote = Remote::new(url.as_str(), options).unwrap();
    let errors = [
        remote.list("").await.unwrap_err(),
        remote.head("manifest").await.unwrap_err(),
        remote.fetch("manifest", None, 9).await.unwrap_err(),
    ];
    for error in errors {
        assert!(
            matches!(&error, Error::Unreachable(text) if text.contains("unmounted")),
            "{error:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_error_is_shown() {
    let bench = Bench::new(10).await;
    assert_eq!(bench.remote.stats().last_error, None);
    bench.fake.answer([Answer::Status(500)]);
    bench.reads_well(0..10).await;
    assert!(bench.remote.stats().last_error.unwrap().contains("status 500"));
}

#[tokio::test(start_paused = true)]
async fn retries_are_spread() {
    let times = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..20 {
        let bench = Bench::new(10).await;
        bench.fake.answer([Answer::Reset, Answer::Reset]);
        let began = Instant::now();
        bench.reads_well(0..10).await;
        times.lock().unwrap().push(began.elapsed());
    }
    let times = times.lock().unwrap();
    assert!(times.iter().any(|time| *time != times[0]), "{times:?}");
}

/// Sink of a fill that is wanted until somebody says that it is not.
struct Abandonable<'a>(&'a AtomicBool);

impl Sink for Abandonable<'_> {
    fn is_waited_for(&self) -> bool {
        !self.0.load(Relaxed)
    }

    fn has_reader(&self) -> bool {
        false
    }

    fn is_wanted(&mut self) -> bool {
        self.is_waited_for()
    }

    fn handle_sent(&mut self) {}

    fn handle_begun(&mut self) {}

    fn handle_bytes(&mut self, _: Bytes) {}
}

/// A fill that gave way noticed only when its pause was over that nobody wanted it any more.
#[tokio::test(start_paused = true)]
async fn a_fill_that_gives_way_ends_when_nobody_wants_it() {
    let bench = Bench::new(16 << 20).await;
    bench.fake.link(200_000);
    bench.reads_well(0..2 << 20).await;
    assert!(bench.remote.pace().is_slow());
    let is_abandoned = AtomicBool::new(false);
    let mut sink = Abandonable(&is_abandoned);
    let fill = bench.remote.read_range(&bench.meta, 0..8 << 20, Urgency::Fill, &mut sink);
    let read = bench.read(8 << 20..16 << 20);
    let (mut fill, mut read) = (std::pin::pin!(fill), std::pin::pin!(read));
    let both = async {
        tokio::select! {
            _ = &mut fill => panic!("the fill has ended"),
            _ = &mut read => panic!("the read has ended"),
        }
    };
    // The read is sent, and the fill pauses beside it: it ends no pause before three seconds.
    let beside = Duration::from_millis(500);
    assert!(tokio::time::timeout(beside, both).await.is_err());
    is_abandoned.store(true, Relaxed);
    let began = Instant::now();
    tokio::select! {
        outcome = &mut fill => assert!(matches!(outcome, Err(Error::DeadlineExceeded(_)))),
        _ = &mut read => panic!("the read has ended"),
    }
    let interval = limits::INTEREST_CHECK_INTERVAL;
    let late = Duration::from_millis(100);
    assert!(began.elapsed() <= 2 * interval + late, "{:?}", began.elapsed());
}
