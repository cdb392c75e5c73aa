//! Estimates whether a fetch in flight brings bytes soon enough to wait for them.

use std::{ops::Range, time::Duration};

use tokio::time::Instant;

use crate::{
    fetch::FetchProgress,
    limits::{
        BANDWIDTH_DEFAULT, FIRST_BYTE_DEFAULT, JOIN_WAIT_MAX, OWN_RATE_BYTES_MIN,
        OWN_RATE_TIME_MIN, QUIET_MAX,
    },
    remote::StorePace,
};

/// Returns whether a fetch in flight brings the end of a range sooner than a new fetch would.
pub(crate) fn is_sooner(
    progress: FetchProgress,
    range: &Range<u64>,
    pace: StorePace,
    now: Instant,
) -> bool {
    if range.end <= progress.position {
        return true;
    }
    let first_byte = pace.first_byte.unwrap_or(FIRST_BYTE_DEFAULT);
    let bandwidth = pace.bandwidth.unwrap_or(BANDWIDTH_DEFAULT);
    let fresh = first_byte + time_of(range.end - range.start, bandwidth);
    due(progress, range.end, first_byte, bandwidth, now).is_some_and(|due| due <= fresh)
}

/// Returns whether a foreground fetch gets to the begin of a range within [`JOIN_WAIT_MAX`]. If
/// not, a reader of the range starts a fetch of its own, although its bytes come twice then: over a
/// slow link the end of a long fetch is a minute away.
pub(crate) fn is_near(progress: FetchProgress, range: &Range<u64>, now: Instant) -> bool {
    let before = range.start.saturating_sub(progress.position);
    let Some(begun) = progress.begun else { return true };
    let took = now.saturating_duration_since(begun);
    // Before that nobody can tell.
    let rate = (progress.position - progress.start) as f64 / took.as_secs_f64().max(1e-3);
    before == 0 || took < OWN_RATE_TIME_MIN || time_of(before, rate) <= JOIN_WAIT_MAX
}

/// Returns the time until a fetch gets to `end`. None: nobody can tell, because the fetch waits for
/// a slot of the window or has come to a stop.
fn due(
    progress: FetchProgress,
    end: u64,
    first_byte: Duration,
    bandwidth: f64,
    now: Instant,
) -> Option<Duration> {
    let since = |then: Instant| now.saturating_duration_since(then);
    let sent = progress.sent?;
    let (Some(begun), Some(moved)) = (progress.begun, progress.moved) else {
        // A first byte that is overdue may be lost.
        let rest = first_byte.checked_sub(since(sent))?;
        return Some(rest + time_of(end - progress.start, bandwidth));
    };
    if begun < sent {
        // A resumed read whose answer has not begun again.
        let rest = first_byte.checked_sub(since(sent))?;
        return Some(rest + time_of(end - progress.position, bandwidth));
    }
    if QUIET_MAX.max(first_byte) < since(moved) {
        return None;
    }
    let received = progress.position - progress.start;
    let own = received as f64 / since(begun).as_secs_f64().max(1e-3);
    let tells = OWN_RATE_BYTES_MIN <= received || OWN_RATE_TIME_MIN <= since(begun);
    let rate = if tells { own } else { bandwidth };
    Some(time_of(end - progress.position, rate))
}

fn time_of(bytes: u64, rate: f64) -> Duration {
    Duration::try_from_secs_f64(bytes as f64 / rate.max(1.0)).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: StorePace =
        StorePace { first_byte: Some(Duration::from_millis(30)), bandwidth: Some(50e6) };

    fn progress(begin: Instant) -> FetchProgress {
        FetchProgress { position: 0, start: 0, sent: Some(begin), begun: None, moved: None }
    }

    #[test]
    fn a_part_is_waited_for_only_if_its_bytes_come_sooner() {
        let begin = Instant::now();
        let at = |milliseconds| begin + Duration::from_millis(milliseconds);
        let near = 0..4_092;
        let far = 8_000_000..8_004_092;
        assert!(is_sooner(progress(begin), &near, PACE, at(10)));
        assert!(!is_sooner(progress(begin), &far, PACE, at(10)), "160 ms of stream are before it");
        assert!(!is_sooner(progress(begin), &near, PACE, at(40)), "the first byte is overdue");
        let waits = FetchProgress { sent: None, ..progress(begin) };
        assert!(!is_sooner(waits, &near, PACE, begin), "it may wait for its turn for long");
    }

    #[test]
    fn the_own_rate_of_a_fetch_counts_once_it_is_known() {
        let begin = Instant::now();
        let now = begin + Duration::from_millis(100);
        let moving = |position| FetchProgress {
            position,
            start: 0,
            sent: Some(begin),
            begun: Some(begin),
            moved: Some(now),
        };
        let next = |position: u64| position + 1_000_000..position + 1_004_092;
        assert!(is_sooner(moving(5_000_000), &next(5_000_000), PACE, now), "50 MB/s: 20 ms");
        assert!(!is_sooner(moving(500_000), &next(500_000), PACE, now), "5 MB/s: 200 ms");
        assert!(is_sooner(moving(500_000), &(0..500_000), PACE, now), "there already");
    }

    #[test]
    fn a_fetch_that_brings_little_for_long_has_its_own_rate_too() {
        let begin = Instant::now();
        let (soon, late) = (begin + OWN_RATE_TIME_MIN / 2, begin + OWN_RATE_TIME_MIN);
        let moving = |now| FetchProgress {
            position: 9_000,
            start: 0,
            sent: Some(begin),
            begun: Some(begin),
            moved: Some(now),
        };
        let behind = 400_000..404_092;
        assert!(is_sooner(moving(soon), &behind, PACE, soon), "8 ms, at the store's bandwidth");
        assert!(!is_sooner(moving(late), &behind, PACE, late), "11 s, at its own rate");
    }

    #[test]
    fn bytes_far_ahead_on_a_slow_link_are_fetched_anew() {
        let begin = Instant::now();
        let at = |milliseconds| begin + Duration::from_millis(milliseconds);
        let moving = |position| FetchProgress {
            position,
            start: 0,
            sent: Some(begin),
            begun: Some(begin),
            moved: Some(begin),
        };
        let far = 500_000..504_092;
        assert!(!is_near(moving(50_000), &far, at(10_000)), "5 KB/s: 90 s");
        assert!(is_near(moving(50_000), &(55_000..60_000), at(10_000)), "one second");
        assert!(is_near(moving(1_000), &far, at(100)), "too early to tell");
        assert!(is_near(moving(5_000_000), &(9_000_000..9_000_100), at(1_000)), "5 MB/s");
        assert!(
            is_near(progress(begin), &far, at(10_000)),
            "not begun: a fresh one would not be sooner"
        );
        // Many waiters for the same bytes share one read, however slow it is.
        assert!(is_near(moving(0), &(0..4_092), at(10_000)));
    }

    #[test]
    fn a_stalled_fetch_is_not_joined() {
        let begin = Instant::now();
        let stopped = FetchProgress {
            position: 5_000_000,
            start: 0,
            sent: Some(begin),
            begun: Some(begin),
            moved: Some(begin),
        };
        let now = begin + Duration::from_secs(1);
        assert!(!is_sooner(stopped, &(5_000_000..5_000_100), PACE, now));
    }
}
