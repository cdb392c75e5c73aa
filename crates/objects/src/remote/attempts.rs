//! Pauses between attempts, and their number.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use tokio::time::sleep;

use super::{
    fault::FaultKind,
    limits::{BACKOFF_MAX, BACKOFF_MIN, BACKOFF_SLOW_DOWN_MIN, RESUMES_MAX},
};

/// Attempts at one request.
#[derive(Debug)]
pub(super) struct Attempts {
    /// Failed attempts since the last that brought bytes.
    failed: u32,
    failed_max: u32,
    made: u32,
}

impl Attempts {
    pub(super) fn new(attempts_max: u32) -> Self {
        Self { failed: 0, failed_max: attempts_max.max(1), made: 0 }
    }

    /// Notes that the attempt that has just failed brought some bytes.
    pub(super) fn progressed(&mut self) {
        self.failed = 0;
    }

    /// Returns whether the attempt that has just failed was the last one.
    pub(super) fn are_exhausted(&mut self) -> bool {
        self.failed += 1;
        self.made += 1;
        self.failed_max <= self.failed || RESUMES_MAX <= self.made
    }

    pub(super) fn made(&self) -> u32 {
        self.made.max(1)
    }

    /// Waits before the next attempt.
    pub(super) async fn pause(&self, kind: FaultKind) {
        sleep(pause_after(self.failed, kind, chance())).await;
    }
}

/// Pause that doubles with each failure, less up to half by chance, so that many clients do not
/// come back in step.
fn pause_after(failed: u32, kind: FaultKind, chance: f64) -> Duration {
    let first = if kind == FaultKind::SlowDown { BACKOFF_SLOW_DOWN_MIN } else { BACKOFF_MIN };
    let doubled = first.saturating_mul(1 << failed.saturating_sub(1).min(16));
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
        let pause = |failed, chance| pause_after(failed, FaultKind::Transient, chance);
        assert_eq!(pause(1, 0.0), BACKOFF_MIN);
        assert_eq!(pause(2, 0.0), BACKOFF_MIN * 2);
        assert_eq!(pause(2, 1.0), BACKOFF_MIN);
        assert_eq!(pause(u32::MAX, 0.0), BACKOFF_MAX);
        assert_eq!(pause_after(1, FaultKind::SlowDown, 0.0), BACKOFF_SLOW_DOWN_MIN);
        let chances: Vec<_> = (0..100).map(|_| chance()).collect();
        assert!(chances.iter().all(|chance| (0.0..1.0).contains(chance)));
        assert!(chances.iter().any(|chance| *chance != chances[0]));
    }

    #[test]
    fn attempts_are_bounded_even_when_each_brings_a_byte() {
        let mut attempts = Attempts::new(3);
        assert!(!attempts.are_exhausted() && !attempts.are_exhausted() && attempts.are_exhausted());
        let mut attempts = Attempts::new(3);
        let mut count = 1;
        while !attempts.are_exhausted() {
            attempts.progressed();
            count += 1;
        }
        assert_eq!(count, RESUMES_MAX);
    }
}
