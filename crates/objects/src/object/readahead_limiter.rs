//! How much is under way ahead of a stream at once: what the store brings in a part of the stream's
//! timeout. The same for the fills of a cache, for which nobody waits.
//!
//! Fetches that share a slow link all come late, the first of them too, which is the one that is
//! waited for. So each leaves when those before it are due soon, at the rate at which they come.
//! Before a quick store none waits.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::{
    fetch::{Course, Fetch},
    limits::{OWN_RATE_BYTES_MIN, OWN_RATE_TIME_MIN, READAHEAD_LOOK, READAHEAD_SHARE},
};
use crate::remote::{Remote, Sink};

/// The fetches ahead of one stream, or the fills of one cache, the first one first.
#[derive(Debug, Default)]
pub(super) struct ReadaheadLimiter {
    /// What is on its way should be due within this time.
    time: Duration,
    fetches: Vec<Weak<Fetch>>,
}

/// A fetch's place behind others, which were all there before it: no two wait for each other.
#[derive(Debug)]
pub(super) struct Turn {
    time: Duration,
    before: Vec<Weak<Fetch>>,
}

impl ReadaheadLimiter {
    /// What is in it is to be due within this time.
    pub(super) fn new(time: Duration) -> Self {
        Self { time, fetches: Vec::new() }
    }

    /// Of what is ahead of a stream that is so patient.
    pub(super) fn of_stream(timeout: Duration) -> Self {
        Self::new(timeout / READAHEAD_SHARE)
    }

    /// The fetch is behind all that are there.
    pub(super) fn add(&mut self, fetch: &Arc<Fetch>) -> Turn {
        self.fetches.retain(|other| other.upgrade().is_some_and(|other| !other.has_ended()));
        let before = self.fetches.clone();
        self.fetches.push(Arc::downgrade(fetch));
        Turn { time: self.time, before }
    }

    /// Waits until all that are there are due soon.
    pub(super) async fn clear(&self, remote: &Remote) {
        while !may_follow(&self.fetches, self.time, remote) {
            sleep(READAHEAD_LOOK).await;
        }
    }
}

impl Turn {
    /// Waits until it has come, or nobody wants the fetch any more.
    pub(super) async fn come(self, mut fetch: &Fetch, remote: &Remote) {
        while !may_follow(&self.before, self.time, remote) && fetch.is_wanted() {
            sleep(READAHEAD_LOOK).await;
        }
    }
}

/// Whether these are due within the time.
fn may_follow(fetches: &[Weak<Fetch>], time: Duration, remote: &Remote) -> bool {
    let under_way = fetches.iter().filter_map(Weak::upgrade).filter(|fetch| !fetch.has_ended());
    let before: Vec<_> = under_way.map(|fetch| (fetch.range.end, fetch.course())).collect();
    may_leave(&before, remote.pace().bandwidth, time, Instant::now())
}

/// Whether what is under way, by its end, is due within the time.
fn may_leave(
    before: &[(u64, Course)],
    bandwidth: Option<f64>,
    time: Duration,
    now: Instant,
) -> bool {
    let (mut rest, mut received, mut rate, mut longest) = (0, 0, 0.0, Duration::ZERO);
    for (end, course) in before.iter().filter(|(_, course)| !is_quiet(course, time, now)) {
        rest += end - course.position;
        if let Some(begun) = course.begun {
            let (bytes, took) =
                (course.position - course.start, now.saturating_duration_since(begun));
            received += bytes;
            rate += bytes as f64 / took.as_secs_f64().max(1e-3);
            longest = longest.max(took);
        }
    }
    let tells = OWN_RATE_BYTES_MIN <= received || OWN_RATE_TIME_MIN <= longest;
    let rate = if tells { Some(rate) } else { bandwidth };
    rest == 0 || rate.is_some_and(|rate| rest as f64 <= rate * time.as_secs_f64())
}

/// What has come to a stop holds nobody up.
fn is_quiet(course: &Course, time: Duration, now: Instant) -> bool {
    course.sent.max(course.moved).is_some_and(|last| time < now.saturating_duration_since(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(2);
    const PART: u64 = 8 << 20;

    /// One part that has been coming for a second.
    fn course(now: Instant, received: u64) -> (u64, Course) {
        let begun = now - Duration::from_secs(1);
        let begun = Course {
            position: received,
            start: 0,
            sent: Some(begun),
            begun: Some(begun),
            moved: Some(now),
        };
        (PART, begun)
    }

    #[test]
    fn the_next_leaves_when_what_is_before_it_is_due_soon() {
        let now = Instant::now() + Duration::from_secs(60);
        assert!(may_leave(&[], None, TIME, now));
        assert!(may_leave(&[course(now, PART / 3 + 1)], None, TIME, now));
        assert!(!may_leave(&[course(now, PART / 3 - 10)], None, TIME, now));
        let two = [course(now, PART / 3 + 1), course(now, PART / 3 - 10)];
        assert!(!may_leave(&two, None, TIME, now), "together");
    }

    #[test]
    fn what_the_store_has_shown_counts_until_a_fetch_tells_its_own_rate() {
        let now = Instant::now() + Duration::from_secs(60);
        let fresh = Course { position: 0, start: 0, sent: None, begun: None, moved: None };
        assert!(!may_leave(&[(PART, fresh)], None, TIME, now), "nothing is known");
        assert!(may_leave(&[(PART, fresh)], Some(80e6), TIME, now));
        assert!(!may_leave(&[course(now, 50_000)], Some(80e6), TIME, now), "it has become slow");
    }

    #[test]
    fn what_has_come_to_a_stop_holds_nobody_up() {
        let now = Instant::now() + Duration::from_secs(60);
        let (end, stopped) = course(now, 50_000);
        assert!(may_leave(&[(end, stopped)], None, TIME, now + TIME * 2));
    }
}
