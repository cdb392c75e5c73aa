//! Pauses between attempts, and their number.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use tokio::time::sleep;

use crate::limits::{ATTEMPTS_IN_ALL_MAX, ATTEMPTS_MAX, BACKOFF_MAX, BACKOFF_MIN};

/// Attempts at the keys of a batch.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    /// Attempts since the last that answered a key.
    failed: u32,
    made: u32,
}

impl Backoff {
    /// Notes an attempt that left keys without an answer. Returns whether it was the last one.
    pub(crate) fn is_exhausted(&mut self, answered_some: bool) -> bool {
        self.made += 1;
        self.failed = if answered_some { 1 } else { self.failed + 1 };
        ATTEMPTS_MAX <= self.failed || ATTEMPTS_IN_ALL_MAX <= self.made
    }

    /// Number of attempts noted.
    pub(crate) fn made(&self) -> u32 {
        self.made
    }

    /// Waits before the next attempt.
    pub(crate) async fn pause(&self) {
        sleep(pause_after(self.failed, chance())).await;
    }
}

/// Pause that doubles with each failure, less up to half by chance, so that many clients do not
/// come back in step.
fn pause_after(failed: u32, chance: f64) -> Duration {
    let doubled = BACKOFF_MIN.saturating_mul(1 << failed.saturating_sub(1).min(16));
    doubled.min(BACKOFF_MAX).mul_f64(1.0 - chance / 2.0)
}

/// Random number in 0..1: the standard library's hasher has new keys every time.
fn chance() -> f64 {
    let bits = RandomState::new().hash_one(0u8) >> 11;
    bits as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_limit_and_differ() {
        assert_eq!(pause_after(1, 0.0), BACKOFF_MIN);
        assert_eq!(pause_after(2, 0.0), BACKOFF_MIN * 2);
        assert_eq!(pause_after(2, 1.0), BACKOFF_MIN);
        assert_eq!(pause_after(u32::MAX, 0.0), BACKOFF_MAX);
        let chances: Vec<_> = (0..100).map(|_| chance()).collect();
        assert!(chances.iter().all(|chance| (0.0..1.0).contains(chance)));
        assert!(chances.iter().any(|chance| *chance != chances[0]));
    }

    #[test]
    fn attempts_are_bounded_whether_or_not_they_answer_some_keys() {
        let attempts = |answered_some| {
            let mut backoff = Backoff::default();
            while !backoff.is_exhausted(answered_some) {}
            backoff.made()
        };
        assert_eq!(attempts(false), ATTEMPTS_MAX);
        assert_eq!(attempts(true), ATTEMPTS_IN_ALL_MAX);
    }
}
