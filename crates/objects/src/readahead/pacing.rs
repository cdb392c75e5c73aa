//! Decides whether the next readahead fetch may be sent yet.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    fetch::FetchProgress,
    limits::{OWN_RATE_BYTES_MIN, OWN_RATE_TIME_MIN},
};

/// Returns whether the next fetch may be sent: the fetches before it, each given with its end, are
/// due within the time at the rate at which they come. `bandwidth` is the store's, used as long as
/// they have no rate of their own. Fetches that come together sooner than one after the other
/// (`gains_by_one_more`) are sent when the answers of those before have begun.
pub(crate) fn may_send(
    before: &[(u64, FetchProgress)],
    (bandwidth, gains_by_one_more): (Option<f64>, bool),
    time: Duration,
    now: Instant,
) -> bool {
    let mut moving = before.iter().filter(|(_, progress)| !is_quiet(progress, time, now));
    if gains_by_one_more && moving.all(|(_, progress)| progress.begun.is_some()) {
        return true;
    }
    let (mut rest, mut received, mut longest) = (0, 0, Duration::ZERO);
    for (end, progress) in before.iter().filter(|(_, progress)| !is_quiet(progress, time, now)) {
        rest += end - progress.position;
        if let Some(begun) = progress.begun {
            let (bytes, took) =
                (progress.position - progress.start, now.saturating_duration_since(begun));
            received += bytes;
            longest = longest.max(took);
        }
    }
    let tells = OWN_RATE_BYTES_MIN <= received || OWN_RATE_TIME_MIN <= longest;
    // Not the sum of their rates: the first of them may have had the link to itself for a while.
    let rate = received as f64 / longest.as_secs_f64().max(1e-3);
    let rate = if tells { Some(rate) } else { bandwidth };
    rest == 0 || rate.is_some_and(|rate| rest as f64 <= rate * time.as_secs_f64())
}

/// Returns whether a fetch has come to a stop, so that it holds up nobody.
fn is_quiet(progress: &FetchProgress, time: Duration, now: Instant) -> bool {
    progress.sent.max(progress.moved).is_some_and(|last| time < now.saturating_duration_since(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(2);
    const PART: u64 = 8 << 20;

    /// Progress of a part that has been coming for a second.
    fn progress(now: Instant, received: u64) -> (u64, FetchProgress) {
        let begun = now - Duration::from_secs(1);
        let begun = FetchProgress {
            position: received,
            start: 0,
            sent: Some(begun),
            begun: Some(begun),
            moved: Some(now),
        };
        (PART, begun)
    }

    #[test]
    fn the_next_fetch_is_sent_when_those_before_it_are_due_soon() {
        let now = Instant::now() + Duration::from_secs(60);
        assert!(may_send(&[], (None, false), TIME, now));
        assert!(may_send(&[progress(now, PART / 3 + 1)], (None, false), TIME, now));
        assert!(!may_send(&[progress(now, PART / 3 - 10)], (None, false), TIME, now));
        let two = [progress(now, PART / 3 + 1), progress(now, PART / 3 - 10)];
        assert!(!may_send(&two, (None, false), TIME, now), "together");
    }

    #[test]
    fn the_rate_of_the_store_counts_until_a_fetch_has_its_own() {
        let now = Instant::now() + Duration::from_secs(60);
        let fresh = FetchProgress { position: 0, start: 0, sent: None, begun: None, moved: None };
        assert!(!may_send(&[(PART, fresh)], (None, false), TIME, now), "nothing is known");
        assert!(may_send(&[(PART, fresh)], (Some(80e6), false), TIME, now));
        assert!(
            !may_send(&[progress(now, 50_000)], (Some(80e6), false), TIME, now),
            "it has become slow"
        );
    }

    #[test]
    fn where_several_come_sooner_the_next_is_sent_when_those_before_have_begun() {
        let now = Instant::now() + Duration::from_secs(60);
        let slow = progress(now, 50_000);
        assert!(may_send(&[slow], (None, true), TIME, now));
        let fresh = FetchProgress { position: 0, start: 0, sent: None, begun: None, moved: None };
        assert!(!may_send(&[slow, (PART, fresh)], (None, true), TIME, now), "one at a time");
    }

    #[test]
    fn a_stalled_fetch_holds_up_no_other() {
        let now = Instant::now() + Duration::from_secs(60);
        let (end, stopped) = progress(now, 50_000);
        assert!(may_send(&[(end, stopped)], (None, false), TIME, now + TIME * 2));
    }
}
