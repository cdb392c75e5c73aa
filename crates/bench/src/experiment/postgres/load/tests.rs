use super::*;
use crate::{
    clock::TRIES,
    experiment::postgres::{
        cases::{Approach, Section},
        rows::Distribution,
    },
};

/// Way in which a target answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answers {
    AtOnce,
    Never,
    Wrongly,
    /// The 60th request keeps all later ones waiting for so long.
    Stalls(Duration),
}

#[derive(Debug)]
struct Fake {
    answers: Answers,
    asked: AtomicU64,
    version: AtomicU64,
    stall: tokio::sync::Mutex<()>,
}

impl Target for Arc<Fake> {
    async fn ask(&self, request: Request) -> Result<u64, Failure> {
        assert!(request.row < 1_000);
        let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        self.version.fetch_max(request.version.unwrap_or_default(), Ordering::SeqCst);
        tokio::task::yield_now().await;
        match self.answers {
            Answers::AtOnce => Ok(1),
            Answers::Never => std::future::pending().await,
            Answers::Wrongly => Err(Failure::Wrong("no".to_owned())),
            Answers::Stalls(stall) => {
                let _turn = self.stall.lock().await;
                if number == 60 {
                    tokio::time::sleep(stall).await;
                }
                Ok(1)
            }
        }
    }
}

/// Runs a load for some milliseconds after a warm-up of ten. Returns what it counted, and how many
/// requests and which version the target saw.
fn run(
    answers: Answers,
    pace: Pace,
    operation: Operation,
    ms: u64,
    workers: usize,
) -> (Counters, u64, u64) {
    let (asked, version, stall) = Default::default();
    let fake = Arc::new(Fake { answers, asked, version, stall });
    let (section, approach, keys) = (Section::Readers, Approach::Library, Distribution::Uniform);
    let case = Case { section, approach, clients: 7, pace, operation, keys };
    let from_ns = now_ns() + 10_000_000;
    let window = Window { from_ns, until_ns: from_ns + ms * 1_000_000 };
    let plan = Plan { case, rows: 1_000, seed: 1, window, first_version: 500 };
    let counters = Tasks::new(workers).unwrap().run(Arc::clone(&fake), plan).unwrap();
    (counters, fake.asked.load(Ordering::SeqCst), fake.version.load(Ordering::SeqCst))
}

/// Runs reads of an open loop.
fn run_open(answers: Answers, rate: u64, ms: u64) -> (Counters, u64) {
    let (counters, asked, _) = run(answers, Pace::Rate(rate), Operation::Read, ms, 0);
    (counters, asked)
}

#[test]
fn every_answer_of_a_closed_loop_is_counted_once_on_any_number_of_threads() {
    for (workers, operation) in [(0, Operation::Read), (1, Operation::Upsert), (3, Operation::Read)]
    {
        let answers_count = (0..TRIES).any(|_| {
            let (counters, asked, version) =
                run(Answers::AtOnce, Pace::Closed, operation, 30, workers);
            assert_eq!((counters.answered_ever, counters.failed.count()), (asked, 0));
            assert_eq!(counters.latency_ns.len(), counters.answered);
            // Upserts have versions of their own.
            let versions = if operation == Operation::Upsert { asked } else { 0 };
            assert_eq!(counters.versions, versions);
            assert!(versions == 0 || version == 500 + versions - 1, "{version}");
            0 < counters.answered
        });
        assert!(answers_count, "{workers} workers");
    }
}

#[test]
fn wrong_answers_are_no_answers() {
    let (counters, asked, _) = run(Answers::Wrongly, Pace::Closed, Operation::Read, 10, 0);
    assert_eq!((counters.answered_ever, counters.failed.wrong.count), (0, asked));
}

#[test]
fn an_open_loop_asks_at_its_rate() {
    let keeps_its_rate = (0..TRIES).any(|_| {
        let (counters, asked) = run_open(Answers::AtOnce, 1_000, 190);
        assert_eq!((counters.answered_ever, counters.unanswered), (asked, 0));
        assert_eq!(counters.latency_ns.len(), counters.late_ns.len());
        assert!(asked <= 200 && !counters.overloaded, "{asked}");
        100 <= asked
    });
    assert!(keeps_its_rate);
}

#[test]
fn what_is_never_answered_counts_with_the_time_it_waited() {
    let asks = (0..TRIES).any(|_| {
        let (counters, _) = run_open(Answers::Never, 500, 40);
        assert_eq!(counters.answered_ever, 0);
        assert!(counters.unanswered <= 20, "{counters:?}");
        assert_eq!(counters.latency_ns.len(), counters.unanswered);
        // The histogram is exact to a thousandth.
        let least = u128::from(counters.latency_ns.min());
        0 < counters.unanswered && OPEN_LOOP_DRAIN.mul_f64(0.99).as_nanos() <= least
    });
    assert!(asks);
}

#[test]
fn a_stall_is_charged_for_every_request_it_kept_waiting() {
    let is_charged = (0..TRIES).any(|_| {
        let (counters, _) = run_open(Answers::Stalls(Duration::from_millis(200)), 1_000, 390);
        // 200 of 390 requests waited, half of them at least 100 ms: a closed loop would have
        // noticed one. A machine that is busy stalls by itself: then more of them waited.
        80_000_000 < counters.latency_ns.value_at_quantile(0.8)
            && counters.latency_ns.value_at_quantile(0.2) < 80_000_000
    });
    assert!(is_charged);
}
