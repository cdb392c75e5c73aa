use std::sync::Arc;

use bytes::Bytes;
use object_store::ObjectStore;
use tokio::runtime::Handle;

use super::*;
use crate::{
    ObjectMeta,
    remote::{
        fake::{Answer, Fake, contents, options},
        ranged::Whole,
    },
};

const LATE: Duration = Duration::from_secs(2);

struct Bench {
    fake: Arc<Fake>,
    remote: Arc<Remote>,
    meta: ObjectMeta,
    bytes: Bytes,
}

impl Bench {
    async fn new(is_hedged: bool) -> Self {
        let fake = Fake::new();
        let bytes = contents(1 << 20);
        fake.store("a", bytes.clone()).await;
        let store = Arc::clone(&fake) as Arc<dyn ObjectStore>;
        let options = super::super::RemoteOptions {
            hedge: is_hedged,
            stall_timeout: Duration::from_secs(10),
            ..options(Handle::current())
        };
        let remote = Remote::over(store, options);
        let meta = remote.list("").await.unwrap().remove(0);
        Self { fake, remote, meta, bytes }
    }

    /// Reads some bytes; returns the time that it took.
    async fn read(&self, urgency: Urgency) -> Duration {
        let (began, mut sink) = (Instant::now(), Whole::default());
        self.remote.read_range(&self.meta, 4_096..8_192, urgency, &mut sink).await.unwrap();
        assert!(sink.0 == self.bytes[4_096..8_192]);
        began.elapsed()
    }

    /// Returns the times of so many reads, one after the other.
    async fn read_often(&self, count: usize) -> Vec<Duration> {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            times.push(self.read(Urgency::Foreground).await);
        }
        times
    }
}

fn late(times: &[Duration]) -> usize {
    times.iter().filter(|time| LATE <= **time).count()
}

#[tokio::test(start_paused = true)]
async fn hedges_cut_off_the_slowest_percent_within_their_budget() {
    let late_of = async |is_hedged| {
        let bench = Bench::new(is_hedged).await;
        bench.fake.late_each(125, LATE);
        let times = bench.read_often(5_000).await;
        (late(&times), bench.remote.stats())
    };
    let (without, stats) = late_of(false).await;
    assert_eq!((without, stats.hedges), (40, 0));
    let (with, stats) = late_of(true).await;
    assert!(with < without / 5, "{with} of {without} are still late: {stats:?}");
    assert!(30 <= stats.hedges_won && stats.hedges_won <= stats.hedges, "{stats:?}");
    assert!(stats.hedges <= 5_000 / 100, "{stats:?}");
    assert_eq!((stats.requests, stats.retries), (5_001 + stats.hedges, 0));
}

/// The request that lost was dropped, and gave its slot back.
#[tokio::test(start_paused = true)]
async fn a_request_that_lost_ends_at_once() {
    let bench = Bench::new(true).await;
    bench.read_often(200).await;
    bench.fake.answer([Answer::Silence]);
    let took = bench.read(Urgency::Foreground).await;
    assert!(took < Duration::from_millis(200), "{took:?}");
    let stats = bench.remote.stats();
    assert_eq!((stats.hedges, stats.hedges_won, stats.in_flight), (1, 1, 0));
    assert_eq!(bench.fake.under_way(), 0);
}

#[tokio::test(start_paused = true)]
async fn hedges_are_rare_when_everything_gets_slow_at_once() {
    let bench = Bench::new(true).await;
    bench.read_often(1_000).await;
    bench.fake.pace(LATE, 64 << 10, Duration::ZERO);
    bench.read_often(1_000).await;
    let stats = bench.remote.stats();
    let most = HEDGES_SAVED_MAX + 1_000.0 * HEDGE_BUDGET;
    assert!(0 < stats.hedges && stats.hedges as f64 <= most, "{stats:?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_hedged_while_the_store_asks_to_slow_down_and_nothing_of_a_fill() {
    let bench = Bench::new(true).await;
    bench.read_often(1_000).await;
    bench.fake.late_each(1, LATE);
    bench.read(Urgency::Fill).await;
    assert_eq!(bench.remote.stats().hedges, 0, "a fill");
    bench.fake.answer([Answer::Status(503)]);
    bench.read_often(10).await;
    assert_eq!(bench.remote.stats().hedges, 0, "the window is smaller than it was");
    bench.fake.late_each(0, LATE);
    bench.read_often(3_000).await;
    bench.fake.late_each(1, LATE);
    bench.read(Urgency::Foreground).await;
    assert_eq!(bench.remote.stats().hedges, 1, "it has recovered");
}

/// An error of one request is no answer as long as the other one may bring one.
#[tokio::test(start_paused = true)]
async fn a_hedge_that_fails_leaves_the_first_request_alone() {
    for failed in [Answer::Status(503), Answer::Reset] {
        let bench = Bench::new(true).await;
        bench.read_often(1_000).await;
        bench.fake.answer([Answer::Late(LATE), failed]);
        assert!(LATE <= bench.read(Urgency::Foreground).await);
        let stats = bench.remote.stats();
        assert_eq!((stats.hedges, stats.hedges_won, stats.retries), (1, 0, 0));
        assert_eq!(stats.slow_downs, u64::from(failed == Answer::Status(503)));
        assert_eq!(stats.window < 64, failed == Answer::Status(503));
    }
}

#[test]
fn the_slowest_percent_follows_what_was_seen_lately() {
    let budget = HedgeBudget::default();
    let note = |milliseconds, count| {
        (0..count).for_each(|_| budget.note(Duration::from_millis(milliseconds)));
    };
    note(30, HEDGE_SAMPLES_MIN - 1);
    assert_eq!(budget.slowest(), None);
    note(30, 2_000);
    let fast = budget.slowest().unwrap();
    assert!((30..=36).contains(&fast.as_millis()), "{fast:?}");
    note(800, 5_000);
    let slow = budget.slowest().unwrap();
    assert!((800..=960).contains(&slow.as_millis()), "{slow:?}");
    note(30, 20_000);
    assert_eq!(budget.slowest().unwrap(), fast);
    note(u64::from(u32::MAX), 1);
}
