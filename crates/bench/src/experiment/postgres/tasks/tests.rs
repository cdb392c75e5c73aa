use super::*;
use crate::{clock::TRIES, experiment::postgres::rows::Distribution};

/// Answers as it was told to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answers {
    AtOnce,
    Never,
    Wrongly,
}

#[derive(Debug)]
struct Fake {
    answers: Answers,
    asked: AtomicU64,
    versions: AtomicU64,
}

impl Fake {
    fn new(answers: Answers) -> Arc<Self> {
        Arc::new(Self { answers, asked: AtomicU64::new(0), versions: AtomicU64::new(0) })
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    async fn answer(&self) -> Result<(), Failure> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        match self.answers {
            Answers::AtOnce => {
                tokio::task::yield_now().await;
                Ok(())
            }
            Answers::Never => std::future::pending().await,
            Answers::Wrongly => {
                tokio::task::yield_now().await;
                Err(Failure::Wrong("no".to_owned()))
            }
        }
    }
}

impl Requests for Fake {
    async fn read(&self, row: u64) -> Result<(), Failure> {
        assert!(row < 1_000);
        self.answer().await
    }

    async fn upsert(&self, _row: u64, version: u64) -> Result<(), Failure> {
        self.versions.fetch_max(version, Ordering::SeqCst);
        self.answer().await
    }
}

fn plan(operation: Operation, milliseconds: u64) -> Plan {
    let from_ns = now_ns() + 10_000_000;
    Plan {
        operation,
        sequences: Sequences::new(Distribution::Uniform, 1_000, 1),
        window: Window { from_ns, until_ns: from_ns + milliseconds * 1_000_000 },
        first_version: 500,
    }
}

#[test]
fn every_answer_of_a_closed_loop_is_counted_once_on_any_number_of_threads() {
    for workers in [0, 1, 3] {
        let answers_count = (0..TRIES).any(|_| {
            let fake = Fake::new(Answers::AtOnce);
            let tasks = Tasks::new(workers).unwrap();
            let counters = tasks.run_closed(&fake, &plan(Operation::Read, 30), 7).unwrap();
            assert_eq!(counters.answered_ever, fake.asked(), "{workers} workers");
            assert!(counters.answered <= counters.answered_ever);
            assert_eq!(counters.latency_ns.len(), counters.answered);
            0 < counters.answered
        });
        assert!(answers_count, "{workers} workers");
    }
}

#[test]
fn wrong_answers_are_no_answers() {
    let fake = Fake::new(Answers::Wrongly);
    let counters = Tasks::new(0).unwrap().run_closed(&fake, &plan(Operation::Read, 10), 2).unwrap();
    assert_eq!((counters.answered_ever, counters.failed.wrong.count), (0, fake.asked()));
}

#[test]
fn upserts_have_versions_of_their_own() {
    let asks = (0..TRIES).any(|_| {
        let fake = Fake::new(Answers::AtOnce);
        let counters =
            Tasks::new(0).unwrap().run_closed(&fake, &plan(Operation::Upsert, 10), 3).unwrap();
        assert_eq!(counters.versions, fake.asked());
        if counters.versions == 0 {
            return false;
        }
        assert_eq!(fake.versions.load(Ordering::SeqCst), 500 + counters.versions - 1);
        assert!(!counters.acknowledged.is_empty());
        true
    });
    assert!(asks);
}

#[test]
fn an_open_loop_asks_at_its_rate() {
    let keeps_its_rate = (0..TRIES).any(|_| {
        let fake = Fake::new(Answers::AtOnce);
        let counters =
            Tasks::new(0).unwrap().run_open(&fake, &plan(Operation::Read, 190), 1_000).unwrap();
        let (asked, counted) = (fake.asked(), counters.latency_ns.len());
        assert_eq!(
            (counters.answered_ever, counters.unanswered, counters.overloaded),
            (asked, 0, false)
        );
        assert_eq!(counted, counters.late_ns.len());
        // 10 ms of warm-up and 190 ms of window, but for what passed before the schedule began.
        assert!(asked <= 200 && counted <= 190, "{asked} {counted}");
        100 <= asked && 90 <= counted
    });
    assert!(keeps_its_rate);
}

#[test]
fn what_is_never_answered_counts_with_the_time_it_waited() {
    let asks = (0..TRIES).any(|_| {
        let fake = Fake::new(Answers::Never);
        let counters =
            Tasks::new(0).unwrap().run_open(&fake, &plan(Operation::Read, 40), 500).unwrap();
        assert_eq!(counters.answered_ever, 0);
        assert!(counters.unanswered <= 20, "{counters:?}");
        assert_eq!(counters.latency_ns.len(), counters.unanswered);
        if counters.unanswered == 0 {
            return false;
        }
        // The histogram is exact to a thousandth.
        assert!(OPEN_LOOP_DRAIN.mul_f64(0.99).as_nanos() <= u128::from(counters.latency_ns.min()));
        true
    });
    assert!(asks);
}
