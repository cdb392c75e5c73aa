use std::collections::VecDeque;
use std::iter;
use std::time::Duration;

use super::{Limiter, Measured, Sent, Unended};
use crate::limits::{LIMIT_INITIAL, PERIOD_BATCHES_MIN, STATEMENT_COST};

/// A backend some distance away, with requests in a closed loop: as many batches are in flight as
/// the limiter allows, and they share all `callers`.
struct World {
    distance: Duration,
    /// Batches that the backend serves at a time.
    cores: usize,
    per_batch: Duration,
    per_entry: Duration,
    callers: usize,
    now: Duration,
    limiter: Limiter,
}

impl World {
    fn new(distance: Duration, cores: usize, callers: usize) -> Self {
        Self {
            distance,
            cores,
            per_batch: Duration::from_micros(60),
            per_entry: Duration::from_micros(2),
            callers,
            now: Duration::ZERO,
            limiter: Limiter::new(32),
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        let mut in_flight = VecDeque::new();
        while self.now < end {
            while in_flight.len() < self.limiter.limit().min(self.callers) {
                self.limiter.advance(self.now, self.callers);
                let period = self.limiter.sent(in_flight.len() + 1, UNWAITED);
                in_flight.push_back((self.now, period));
            }
            let (sent, period) = in_flight.pop_front().expect("the limit is at least one");
            let slots = in_flight.len() + 1;
            let entries = self.callers.div_ceil(slots);
            let work = self.per_batch + self.per_entry * u32::try_from(entries).unwrap();
            // The backend finishes one batch in this time; a batch waits for those before it.
            let step = (work / u32::try_from(self.cores).unwrap())
                .max((work + self.distance) / u32::try_from(slots).unwrap());
            self.now += step;
            let took = self.now - sent;
            // Callers come back evenly, and wait for the next slot if all are in use.
            let waits = if slots < self.callers { step / 2 } else { Duration::ZERO };
            let waited = waits * u32::try_from(entries).unwrap();
            self.limiter.advance(self.now, self.callers);
            self.limiter.ended(self.now, period, Measured { entries, waited, took }, iter::empty());
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);
const ONE: Measured =
    Measured { entries: 1, waited: Duration::ZERO, took: Duration::from_millis(1) };
const UNWAITED: Sent = Sent { waited: Duration::ZERO, is_share: false, is_last_slot: false };

#[test]
fn limit_starts_small_and_never_leaves_its_bounds() {
    assert_eq!(Limiter::new(32).limit(), LIMIT_INITIAL);
    assert_eq!(Limiter::new(1).limit(), 1);
    let mut limiter = Limiter::new(32);
    for _ in 0..10 {
        let sent = limiter.sent(1, UNWAITED);
        limiter.overloaded(sent);
        assert!(1 <= limiter.limit());
    }
}

#[test]
fn limit_grows_with_distance_when_the_backend_is_idle() {
    let mut world = World::new(Duration::from_millis(5), 64, 300);
    world.run(SECOND);
    assert!(16 <= world.limiter.base, "{}", world.limiter.base);
}

#[test]
fn limit_is_small_beside_a_backend_with_one_core() {
    let mut world = World::new(Duration::ZERO, 1, 300);
    world.run(SECOND);
    assert!(world.limiter.base <= 3, "{}", world.limiter.base);
}

#[test]
fn limit_follows_a_change_of_distance_both_ways() {
    let mut world = World::new(Duration::ZERO, 1, 300);
    for (distance, low, high) in [(0, 1, 3), (5, 12, 32), (0, 1, 3)] {
        world.distance = Duration::from_millis(distance);
        world.run(SECOND);
        let base = world.limiter.base;
        assert!(low <= base && base <= high, "{base} at {distance} ms");
    }
}

#[test]
fn overload_halves_the_limit_once_for_all_batches_that_were_in_flight() {
    let mut world = World::new(Duration::from_millis(5), 64, 300);
    world.run(SECOND);
    let before = world.limiter.base;
    let sent = world.limiter.sent(before, UNWAITED);
    for _ in 0..before {
        world.limiter.overloaded(sent);
    }
    assert_eq!(world.limiter.limit(), before / 2);
    world.run(SECOND);
    assert!(before / 2 < world.limiter.base, "{}", world.limiter.base);
}

#[test]
fn batch_of_an_earlier_period_does_not_count() {
    let mut limiter = Limiter::new(32);
    let sent = limiter.sent(LIMIT_INITIAL, UNWAITED);
    limiter.overloaded(sent);
    let huge = Measured { entries: 1, waited: SECOND, took: SECOND };
    limiter.ended(SECOND, sent, huge, iter::empty());
    assert_eq!((limiter.period.batches, limiter.period.started), (0, None));
}

/// Returns the cost of a request when a period of one second had so many batches.
fn cost_of(batches: usize, entries: usize) -> f64 {
    let mut period = super::Period { started: Some(Duration::ZERO), ..Default::default() };
    (0..batches).for_each(|_| {
        let entries = entries / batches;
        period.outstanding += entries as f64;
        period.add(Measured { entries, waited: Duration::ZERO, took: SECOND });
    });
    period.cost(SECOND)
}

#[test]
fn batch_has_a_price_so_that_equal_times_mean_fewer_batches() {
    let difference = cost_of(10, 100) - cost_of(5, 100);
    let expected = 5.0 * STATEMENT_COST.as_secs_f64() / 100.0 / 100.0;
    assert!((difference / expected - 1.0).abs() < 1e-6, "{difference} instead of {expected}");
}

#[test]
fn more_requests_in_the_same_time_cost_less_each() {
    assert!(cost_of(10, 200) < cost_of(10, 100));
}

#[test]
fn limit_that_nobody_reaches_falls_to_the_number_in_use() {
    let mut world = World::new(Duration::from_millis(5), 64, 300);
    world.run(SECOND);
    world.callers = 6;
    world.run(2 * SECOND);
    assert!(world.limiter.base <= 6, "{}", world.limiter.base);
}

#[test]
fn shares_of_a_few_large_batches_raise_the_limit() {
    // Three batches of 100 share what is outstanding, and a fourth slot stays free.
    let mut limiter = Limiter::new(32);
    let mut now = Duration::ZERO;
    for _ in 0..100 {
        limiter.advance(now, 300);
        let is_share = limiter.limit() <= 8;
        let sent = Sent { is_share, ..UNWAITED };
        let period = limiter.sent(3, sent);
        now += Duration::from_millis(1);
        limiter.advance(now, 300);
        let took = Duration::from_millis(5);
        limiter.ended(
            now,
            period,
            Measured { entries: 100, waited: Duration::ZERO, took },
            iter::empty(),
        );
    }
    assert!(8 < limiter.base, "{}", limiter.base);
}

#[test]
fn nothing_is_judged_while_the_backend_opens_connections() {
    let mut limiter = Limiter::new(32);
    let mut now = Duration::ZERO;
    for _ in 0..1000 {
        let sent = Sent { waited: SECOND, is_share: true, ..UNWAITED };
        let period = limiter.sent(LIMIT_INITIAL, sent);
        now += Duration::from_millis(1);
        limiter.ended(
            now,
            period,
            Measured { entries: 1, waited: SECOND, took: SECOND },
            iter::empty(),
        );
        limiter.unsettled();
    }
    assert_eq!(limiter.limit(), LIMIT_INITIAL);
}

/// Batches that take long must not look like throughput: the fast ones that end meanwhile have a
/// shorter mean time, while the slow ones are outstanding.
#[test]
fn slow_batches_in_flight_count_with_their_time_so_far() {
    let cost = |slow: Duration| {
        let mut limiter = Limiter::new(LIMIT_INITIAL);
        let first = limiter.sent(2, UNWAITED);
        limiter.ended(Duration::ZERO, first, Measured { entries: 100, ..ONE }, iter::empty());
        let mark = limiter.sent(2, UNWAITED);
        let mut now = Duration::ZERO;
        for _ in 0..PERIOD_BATCHES_MIN {
            limiter.advance(now, 200);
            now += Duration::from_millis(1);
            limiter.advance(now, 200);
            let fast = Measured { entries: 100, ..ONE };
            let slow = Unended { mark, entries: 100, elapsed: slow };
            limiter.ended(now, mark, fast, iter::once(slow));
        }
        limiter.base_cost.expect("a period is over")
    };
    assert!(2.0 * cost(Duration::from_micros(500)) < cost(Duration::from_millis(10)));
}

#[test]
fn overload_counts_while_the_backend_opens_connections() {
    let mut limiter = Limiter::new(32);
    let sent = limiter.sent(LIMIT_INITIAL, UNWAITED);
    limiter.unsettled();
    limiter.overloaded(sent);
    assert_eq!(limiter.limit(), LIMIT_INITIAL / 2);
}

#[test]
fn first_period_with_new_connections_is_not_judged() {
    let mut limiter = Limiter::new(32);
    limiter.unsettled();
    let mut now = Duration::ZERO;
    for _ in 0..=PERIOD_BATCHES_MIN {
        let mark = limiter.sent(1, UNWAITED);
        now += Duration::from_millis(1);
        limiter.ended(now, mark, ONE, iter::empty());
    }
    assert_eq!(limiter.base_cost, None, "the first period is over, and was cold");
    for _ in 0..PERIOD_BATCHES_MIN {
        let mark = limiter.sent(1, UNWAITED);
        now += Duration::from_millis(1);
        limiter.ended(now, mark, ONE, iter::empty());
    }
    assert!(limiter.base_cost.is_some());
}

/// Requests that arrive at their own times, some distance away from a backend with many cores, must
/// find a slot: a limit that seems cheaper only because it was measured while the batches of the
/// other one ended would make them wait.
#[test]
fn limit_stays_high_for_requests_at_a_fixed_rate() {
    for (distance_ms, per_second) in [(5, 6_000), (20, 2_500)] {
        let distance = Duration::from_millis(distance_ms);
        let between = SECOND / per_second;
        let mut limiter = Limiter::new(32);
        let (mut now, mut in_flight) = (Duration::ZERO, VecDeque::new());
        let mut entries_in_flight = 0;
        let (mut oldest_waiting, mut waited) = (now, Duration::ZERO);
        let mut waits = Vec::new();
        while now < 4 * SECOND {
            now += between;
            while let Some((sent, period, entries, waited)) = in_flight.front().copied()
                && sent + distance <= now
            {
                limiter.advance(sent + distance, entries_in_flight);
                in_flight.pop_front();
                entries_in_flight -= entries;
                limiter.ended(
                    sent + distance,
                    period,
                    Measured { entries, waited, took: distance },
                    iter::empty(),
                );
            }
            if limiter.limit() <= in_flight.len() {
                continue;
            }
            // All requests since the last batch go along.
            let wait = now - oldest_waiting;
            let entries = (wait.as_nanos() / between.as_nanos()).max(1);
            waited = wait / 2 * u32::try_from(entries).unwrap();
            let entries = usize::try_from(entries).unwrap();
            limiter.advance(now, entries_in_flight);
            let sent = Sent { waited, ..UNWAITED };
            let period = limiter.sent(in_flight.len() + 1, sent);
            in_flight.push_back((now, period, entries, waited));
            entries_in_flight += entries;
            oldest_waiting = now;
            if 2 * SECOND < now {
                waits.push(wait);
            }
        }
        let mean = waits.iter().sum::<Duration>() / u32::try_from(waits.len()).unwrap();
        assert!(mean < distance / 8, "{mean:?} at {distance_ms} ms, last {waited:?}");
    }
}
