use super::*;
use crate::experiment::postgres::rows::Distribution;

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
        let fake = Fake::new(Answers::AtOnce);
        let tally = Tasks::new(workers).unwrap().run_closed(&fake, &plan(Operation::Read, 30), 7).unwrap();
        assert_eq!(tally.answered_ever, fake.asked(), "{workers} workers");
        assert!(0 < tally.answered && tally.answered <= tally.answered_ever);
        assert_eq!(tally.latency_ns.len(), tally.answered);
    }
}

#[test]
fn wrong_answers_are_no_answers() {
    let fake = Fake::new(Answers::Wrongly);
    let tally = Tasks::new(0).unwrap().run_closed(&fake, &plan(Operation::Read, 10), 2).unwrap();
    assert_eq!((tally.answered_ever, tally.failed.wrong.count), (0, fake.asked()));
}

#[test]
fn upserts_have_versions_of_their_own() {
    let fake = Fake::new(Answers::AtOnce);
    let tally = Tasks::new(0).unwrap().run_closed(&fake, &plan(Operation::Upsert, 10), 3).unwrap();
    assert_eq!(tally.versions, fake.asked());
    assert_eq!(fake.versions.load(Ordering::SeqCst), 500 + tally.versions - 1);
    assert!(!tally.acknowledged.is_empty());
}

#[test]
fn an_open_loop_asks_at_its_rate() {
    let fake = Fake::new(Answers::AtOnce);
    let tally = Tasks::new(0).unwrap().run_open(&fake, &plan(Operation::Read, 190), 1_000).unwrap();
    // 10 ms of warm-up and 190 ms of window, but for what passed before the schedule began.
    assert!((100..=200).contains(&fake.asked()), "{}", fake.asked());
    assert_eq!((tally.answered_ever, tally.unanswered, tally.overloaded), (fake.asked(), 0, false));
    assert!((90..=190).contains(&tally.latency_ns.len()), "{}", tally.latency_ns.len());
    assert_eq!(tally.latency_ns.len(), tally.late_ns.len());
}

#[test]
fn what_is_never_answered_counts_with_the_time_it_waited() {
    let fake = Fake::new(Answers::Never);
    let tally = Tasks::new(0).unwrap().run_open(&fake, &plan(Operation::Read, 40), 500).unwrap();
    assert_eq!(tally.answered_ever, 0);
    assert!((1..=20).contains(&tally.unanswered), "{tally:?}");
    assert_eq!(tally.latency_ns.len(), tally.unanswered);
    // The histogram is exact to a thousandth.
    assert!(OPEN_LOOP_DRAIN.mul_f64(0.99).as_nanos() <= u128::from(tally.latency_ns.min()));
}
