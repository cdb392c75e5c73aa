//! The pauses between attempts to open one session.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use crate::limits::{BACKOFF_MAX, BACKOFF_MIN};

/// Pauses that double.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: BACKOFF_MIN }
    }
}

impl Backoff {
    /// After a failed attempt: half of the nominal pause and up to as much again, by chance.
    pub(super) fn next_pause(&mut self) -> Duration {
        let nominal = self.next;
        self.next = (2 * nominal).min(BACKOFF_MAX);
        nominal / 2 + (nominal / 2).mul_f64(chance())
    }

    /// After a session that was open for so long: none when it had worked for a while.
    pub(super) fn after_session(&mut self, open_for: Duration) -> Option<Duration> {
        if self.next <= open_for {
            *self = Self::default();
            return None;
        }
        Some(self.next_pause())
    }
}

/// Between 0 and 1. Every state of the standard library's hasher has a seed of its own.
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
            let pause = backoff.next_pause();
            assert!(nominal / 2 <= pause && pause <= nominal, "{pause:?} of {nominal:?}");
            nominal = (2 * nominal).min(BACKOFF_MAX);
        }
        assert_eq!(nominal, BACKOFF_MAX);
        let first = || Backoff::default().next_pause();
        assert!((0..100).any(|_| first() != first()));
    }

    #[test]
    fn a_session_that_worked_for_longer_than_the_last_pause_starts_anew() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.after_session(BACKOFF_MIN), None);
        assert!(backoff.after_session(BACKOFF_MIN / 2).is_some());
        // The next pause would be twice as long, and so long a session must hold now.
        assert!(backoff.after_session(BACKOFF_MIN).is_some());
        assert_eq!(backoff.after_session(4 * BACKOFF_MIN), None);
        assert!(backoff.next_pause() <= BACKOFF_MIN);
    }
}
