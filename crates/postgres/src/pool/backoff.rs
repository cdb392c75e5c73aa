//! The pauses between attempts to open one session.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use crate::limits::{BACKOFF_MAX, BACKOFF_MIN};

/// Two sequences of pauses: none, the shortest, twice that, and so on. Failed attempts advance one
/// until a session opens; short-lived sessions advance the other, so that opening and losing them
/// is no hot loop either.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: Ladder,
    losses: Ladder,
}

impl Backoff {
    /// Returns the pause after a failed attempt.
    pub(super) fn after_failure(&mut self) -> Duration {
        self.failures.next = self.failures.next.max(BACKOFF_MIN);
        self.failures.pause()
    }

    /// Returns the pause after a session that was open for `open_for`: `None` when it had worked
    /// for longer than the next pause, and once when it had not.
    pub(super) fn after_session(&mut self, open_for: Duration) -> Option<Duration> {
        self.failures = Ladder::default();
        if self.losses.next.max(BACKOFF_MIN) <= open_for {
            self.losses = Ladder::default();
        }
        Some(self.losses.pause()).filter(|pause| !pause.is_zero())
    }
}

#[derive(Debug, Default)]
struct Ladder {
    next: Duration,
}

impl Ladder {
    /// Returns half of the nominal pause plus up to as much again, by chance.
    fn pause(&mut self) -> Duration {
        let nominal = self.next;
        self.next = (2 * nominal).clamp(BACKOFF_MIN, BACKOFF_MAX);
        nominal / 2 + (nominal / 2).mul_f64(chance())
    }
}

/// Returns a number between 0 and 1. Every state of the standard library's hasher has its own seed.
fn chance() -> f64 {
    let bits = u32::try_from(RandomState::new().hash_one(0_u8) >> 32).unwrap_or(0);
    f64::from(bits) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_limit_and_vary() {
        let mut backoff = Backoff::default();
        let mut nominal = BACKOFF_MIN;
        for _ in 0..12 {
            let pause = backoff.after_failure();
            assert!(nominal / 2 <= pause && pause <= nominal, "{pause:?} of {nominal:?}");
            nominal = (2 * nominal).min(BACKOFF_MAX);
        }
        assert_eq!(nominal, BACKOFF_MAX);
        let first = || Backoff::default().after_failure();
        assert!((0..100).any(|_| first() != first()));
    }

    #[test]
    fn a_session_that_worked_for_longer_than_the_next_pause_starts_anew() {
        let mut backoff = Backoff::default();
        for _ in 0..3 {
            assert_eq!(backoff.after_session(BACKOFF_MIN), None);
        }
        assert!(backoff.after_session(BACKOFF_MIN / 2).is_some_and(|pause| pause <= BACKOFF_MIN));
        // The next pause would be twice as long, and a session must now hold for that time.
        assert!(backoff.after_session(BACKOFF_MIN).is_some_and(|pause| BACKOFF_MIN <= pause));
        assert_eq!(backoff.after_session(4 * BACKOFF_MIN), None);
    }

    #[test]
    fn an_outage_does_not_count_against_the_sessions_behind_it() {
        let mut backoff = Backoff::default();
        for _ in 0..12 {
            backoff.after_failure();
        }
        assert_eq!(backoff.after_session(Duration::ZERO), None);
        assert!(backoff.after_failure() <= BACKOFF_MIN);
    }

    #[test]
    fn the_first_session_that_does_not_hold_is_opened_anew_at_once() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.after_session(Duration::ZERO), None);
        assert!(backoff.after_session(Duration::ZERO).is_some());
    }
}
