//! Random streams beside reads, fills, invalidations and faults: right bytes, in order, or an error
//! that says why.

use proptest::prelude::*;

use super::{super::model::common_answer, *};

#[derive(Clone, Debug)]
enum Operation {
    /// Streams a range, by start and end in thousandths of the object, with a rest after each
    /// piece, and drops the stream after `pieces_max`.
    Stream {
        from: u64,
        to: u64,
        hint: AccessHint,
        rest_milliseconds: u64,
        pieces_max: usize,
    },
    Read {
        from: u64,
        to: u64,
    },
    /// Sets the answers of the next requests.
    Fault(Vec<Answer>),
    Invalidate {
        from: u64,
        to: u64,
    },
    Drop,
    Pass {
        milliseconds: u64,
    },
}

fn operation() -> impl Strategy<Value = Operation> {
    let hint = prop_oneof![Just(AccessHint::Random), Just(AccessHint::Sequential)];
    let pieces = prop_oneof![3 => Just(usize::MAX), 1 => 0usize..20];
    let rest = prop_oneof![2 => Just(0u64), 1 => 1u64..400];
    prop_oneof![
        5 => (0u64..=1_000, 0u64..=1_000, hint, rest, pieces).prop_map(
            |(from, to, hint, rest_milliseconds, pieces_max)| {
                let (from, to) = (from.min(to), from.max(to));
                Operation::Stream { from, to, hint, rest_milliseconds, pieces_max }
            }
        ),
        2 => (0u64..990, 1u64..10)
            .prop_map(|(from, length)| Operation::Read { from, to: from + length }),
        2 => prop::collection::vec(common_answer(), 1..6).prop_map(Operation::Fault),
        1 => (0u64..990, 1u64..10)
            .prop_map(|(from, length)| Operation::Invalidate { from, to: from + length }),
        1 => Just(Operation::Drop),
        3 => (0u64..500).prop_map(|milliseconds| Operation::Pass { milliseconds }),
    ]
}

const SIZE: u64 = 12_345_678;

fn span(from: u64, to: u64) -> Range<u64> {
    from * SIZE / 1_000..to * SIZE / 1_000
}

/// Reads a stream as the operation says and checks its bytes.
async fn follow(
    bench: Arc<Bench>,
    range: Range<u64>,
    hint: AccessHint,
    rest: Duration,
    pieces_max: usize,
) {
    let options = StreamOptions { hint, timeout: Duration::from_secs(40) };
    let mut stream = bench.object.stream(range.clone(), options);
    let mut next = range.start;
    for _ in 0..pieces_max {
        let Some(piece) = stream.next().await else {
            assert_eq!(next, range.end, "it ended early");
            return;
        };
        match piece {
            Ok(piece) => {
                let end = next + piece.len() as u64;
                assert!(
                    end <= range.end && piece == bench.expected(&(next..end)),
                    "other bytes at {next}"
                );
                next = end;
            }
            Err(Error::DeadlineExceeded(_) | Error::Unreachable(_) | Error::Gone(_)) => {
                assert!(stream.next().await.is_none());
                return;
            }
            Err(other) => panic!("{range:?}: {other}"),
        }
        tokio::time::sleep(rest).await;
    }
}

async fn play(operations: Vec<Operation>, disk: Option<DiskOptions>) {
    let bench = Arc::new(Bench::over(SIZE, disk).await);
    let mut running = tokio::task::JoinSet::new();
    for operation in operations {
        match operation {
            Operation::Stream { from, to, hint, rest_milliseconds, pieces_max } => {
                let rest = Duration::from_millis(rest_milliseconds);
                running.spawn(follow(Arc::clone(&bench), span(from, to), hint, rest, pieces_max));
            }
            Operation::Read { from, to } => drop(bench.read(span(from, to))),
            Operation::Fault(answers) => bench.fake.answer(answers),
            Operation::Invalidate { from, to } => bench.object.invalidate(span(from, to)),
            Operation::Drop => drop(bench.cache.drop_object("memory://", "a").await),
            Operation::Pass { milliseconds } => {
                tokio::time::sleep(Duration::from_millis(milliseconds)).await
            }
        }
    }
    timeout(Duration::from_secs(3_600), running.join_all()).await.expect("nothing hangs");
    bench.fake.forget_answers();
    // A stream that joins a fetch in its last attempt shares that fetch's fault.
    bench.requests_ended().await;
    for options in [SEQUENTIAL, RANDOM] {
        timeout(Duration::from_secs(600), bench.streams_well(0..SIZE, options))
            .await
            .expect("nothing hangs");
    }
    bench.settled().await;
    bench.requests_ended().await;
    assert_eq!(bench.object.core.cache.bypassing.load(Relaxed), 0);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 32,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn streams_give_right_bytes_in_order_or_an_error_and_never_hang(
        operations in prop::collection::vec(operation(), 1..24),
        has_disk in any::<bool>(),
        megabytes in 3u64..40,
        fill_megabytes in 1u64..20,
        is_whole in any::<bool>(),
    ) {
        let disk = has_disk.then_some(DiskOptions {
            bytes_max: megabytes * MIB,
            fill_bytes_max: fill_megabytes * MIB,
            fill_whole_max: if is_whole { u64::MAX } else { 0 },
            free_bytes_min: 0,
        });
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(play(operations, disk));
    }
}
