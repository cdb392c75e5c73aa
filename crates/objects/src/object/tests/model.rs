//! Random reads beside fills, invalidations and faults: no reader gets other bytes than the
//! object's, and none waits for ever.

use super::*;
use futures_util::future::join_all;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Operation {
    /// Ranges by start and length, in thousandths of the object.
    Read {
        ranges: Vec<(u64, u64)>,
        local_only: bool,
        milliseconds: u64,
    },
    /// Sets the answers of the next requests.
    Fault(Vec<Answer>),
    Invalidate {
        start: u64,
        length: u64,
    },
    Drop,
    Pass {
        milliseconds: u64,
    },
}

/// Answers, good and bad, that reads as well as streams must survive.
pub fn common_answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        Just(Answer::Good),
        Just(Answer::Status(503)),
        Just(Answer::Reset),
        Just(Answer::Silence),
        Just(Answer::OtherRange),
        Just(Answer::OtherEtag),
        (0usize..2_000_000).prop_map(Answer::Cut),
        (0usize..2_000_000).prop_map(Answer::Break),
        (0usize..2_000_000).prop_map(Answer::Stall),
        (1usize..9).prop_map(Answer::Long),
    ]
}

fn fault() -> impl Strategy<Value = Answer> {
    prop_oneof![
        10 => common_answer(),
        1 => Just(Answer::Status(500)),
        1 => Just(Answer::Status(206)),
        1 => Just(Answer::OtherSize),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let ranges = prop::collection::vec((0u64..1_000, 1u64..60), 1..8);
    prop_oneof![
        6 => (ranges, any::<bool>(), 1u64..20_000)
            .prop_map(|(ranges, local_only, milliseconds)| {
                Operation::Read { ranges, local_only, milliseconds }
            }),
        3 => prop::collection::vec(fault(), 1..6).prop_map(Operation::Fault),
        1 => (0u64..1_000, 1u64..60)
            .prop_map(|(start, length)| Operation::Invalidate { start, length }),
        1 => Just(Operation::Drop),
        3 => (0u64..500).prop_map(|milliseconds| Operation::Pass { milliseconds }),
    ]
}

const SIZE: u64 = 6_000_000;

fn span(start: u64, length: u64) -> Range<u64> {
    let start = start * SIZE / 1_000;
    start..(start + length * length * 37).min(SIZE)
}

async fn play(operations: Vec<Operation>, disk: Option<DiskOptions>) {
    let bench = Bench::over(SIZE, disk).await;
    let mut waiting = Vec::new();
    for operation in operations {
        match operation {
            Operation::Read { ranges, local_only, milliseconds } => {
                let ranges: Vec<_> =
                    ranges.into_iter().map(|(start, length)| span(start, length)).collect();
                let options =
                    ReadOptions { local_only, ..within(Duration::from_millis(milliseconds)) };
                let readings = bench.object.read_many(&ranges, options);
                let deadline = Instant::now() + Duration::from_millis(milliseconds + 1_000);
                waiting.extend(
                    ranges
                        .into_iter()
                        .zip(readings)
                        .map(|(range, reading)| (range, deadline, reading)),
                );
            }
            Operation::Fault(answers) => bench.fake.answer(answers),
            Operation::Invalidate { start, length } => bench.object.invalidate(span(start, length)),
            Operation::Drop => drop(bench.cache.drop_object("memory://", "a").await),
            Operation::Pass { milliseconds } => {
                tokio::time::sleep(Duration::from_millis(milliseconds)).await
            }
        }
    }
    let answers = waiting.into_iter().map(|(range, deadline, reading)| async move {
        (range, tokio::time::timeout_at(deadline, reading).await)
    });
    for (range, answer) in join_all(answers).await {
        match answer.expect("an answer comes not later than its deadline") {
            Ok(bytes) => assert!(bytes == bench.expected(&range), "other bytes came for {range:?}"),
            // The object did not change, but a store that shows another version looks like one that
            // has another version.
            Err(
                Error::NotLocal
                | Error::DeadlineExceeded(_)
                | Error::Unreachable(_)
                | Error::Gone(_),
            ) => {}
            Err(other) => panic!("{range:?}: {other}"),
        }
    }
    bench.fake.forget_answers();
    // A reader that joins a part in its last attempt shares that part's fault.
    bench.requests_ended().await;
    let all = timeout(Duration::from_secs(600), bench.read(0..SIZE)).await.expect("nothing hangs");
    assert!(all.unwrap() == bench.bytes);
    bench.settled().await;
    bench.requests_ended().await;
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_reader_gets_other_bytes_and_none_waits_for_ever(
        operations in prop::collection::vec(operation(), 1..40),
        has_disk in any::<bool>(),
        is_tight in any::<bool>(),
    ) {
        let tight =
            DiskOptions { bytes_max: 4 * MIB, fill_bytes_max: 2 * MIB, fill_whole_max: 0, ..AMPLE };
        let disk = has_disk.then_some(if is_tight { tight } else { AMPLE });
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(play(operations, disk));
    }
}
