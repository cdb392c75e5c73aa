//! Histograms of durations: fixed buckets, one thread that writes, any number that read.
//!
//! ```text
//!  Histogram (atomics) --read--> Reading: count, mean, quantiles, cumulative counts by bound
//!  SharedHistogram: the same for many threads that write
//! ```
//!
//! The buckets are log-linear. A *tick* is a quarter of a microsecond; durations below four ticks
//! have a bucket for each tick, and above that each power of two is divided into
//! [`PARTS_PER_OCTAVE`] buckets of the same width. So a quantile is wrong by at most an eighth,
//! and each power of two in microseconds is a bound of a bucket. Durations of [`BOUND_MAX`] and
//! more share the last bucket.
//!
//! Nothing here reads a clock.

#![forbid(unsafe_code)]

mod reading;
mod shared;

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

pub use reading::Reading;
pub use shared::SharedHistogram;

/// Nanoseconds of one tick.
const TICK_NS: u64 = 250;

/// Number of buckets between two powers of two.
pub const PARTS_PER_OCTAVE: usize = 4;

/// Number of powers of two in microseconds, from 1 us on, that are bounds of buckets.
pub const OCTAVE_COUNT: usize = 27;

/// Duration from which on the last bucket counts: 2^26 microseconds, about 67 seconds.
pub const BOUND_MAX: Duration = Duration::from_micros(1 << (OCTAVE_COUNT - 1));

/// Number of buckets: four of one tick, four for each octave from 1 us to [`BOUND_MAX`], the last.
pub const BUCKET_COUNT: usize = PARTS_PER_OCTAVE * OCTAVE_COUNT + 1;

/// Counts of durations by bucket. Only one thread may record; any thread may read.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKET_COUNT],
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: [const { AtomicU64::new(0) }; BUCKET_COUNT],
            sum_ns: AtomicU64::new(0),
            max_ns: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    /// Records that `count` things took `time` each. With a single writer, loads and stores
    /// suffice; no locked instruction is needed.
    pub fn record(&self, time: Duration, count: u64) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        add(&self.buckets[bucket_of(ns)], count);
        add(&self.sum_ns, ns.saturating_mul(count));
        if self.max_ns.load(Relaxed) < ns {
            self.max_ns.store(ns, Relaxed);
        }
    }

    /// Returns the counts at this moment.
    pub fn read(&self) -> Reading {
        Reading {
            buckets: self.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect(),
            sum_ns: self.sum_ns.load(Relaxed),
            max_ns: self.max_ns.load(Relaxed),
        }
    }

    /// Resets all counts to zero (CONFIG RESETSTAT).
    pub fn reset(&self) {
        self.buckets.iter().for_each(|bucket| bucket.store(0, Relaxed));
        self.sum_ns.store(0, Relaxed);
        self.max_ns.store(0, Relaxed);
    }
}

fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(amount), Relaxed);
}

/// Returns the index of the bucket of a duration.
#[inline]
fn bucket_of(ns: u64) -> usize {
    let ticks = ns / TICK_NS;
    if ticks < PARTS_PER_OCTAVE as u64 {
        return ticks as usize;
    }
    // The highest bit names the octave, the two below it the part.
    let octave = ticks.ilog2() as usize;
    let part = (ticks >> (octave - 2)) as usize % PARTS_PER_OCTAVE;
    (PARTS_PER_OCTAVE * (octave - 1) + part).min(BUCKET_COUNT - 1)
}

/// Returns the lower bound of a bucket, in nanoseconds.
fn lower_bound_ns(bucket: usize) -> u64 {
    if bucket < PARTS_PER_OCTAVE {
        return bucket as u64 * TICK_NS;
    }
    let (octave, part) = (bucket / PARTS_PER_OCTAVE + 1, bucket % PARTS_PER_OCTAVE);
    (((PARTS_PER_OCTAVE + part) as u64) << (octave - 2)) * TICK_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_between_the_bounds_of_its_bucket() {
        let mut seed = 1_u64;
        for step in 0..100_000_u64 {
            // All small durations, then random ones of every magnitude.
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step);
            let ns = if step < 20_000 { step } else { seed >> (seed % 60) };
            let bucket = bucket_of(ns);
            assert!(lower_bound_ns(bucket) <= ns, "{ns} in {bucket}");
            if bucket + 1 < BUCKET_COUNT {
                assert!(ns < lower_bound_ns(bucket + 1), "{ns} in {bucket}");
            }
        }
    }

    #[test]
    fn buckets_are_an_eighth_wide_at_most_from_their_middle_and_powers_of_two_are_bounds() {
        for bucket in PARTS_PER_OCTAVE..BUCKET_COUNT - 1 {
            let (low, high) = (lower_bound_ns(bucket), lower_bound_ns(bucket + 1));
            assert!((high - low) * 4 <= low, "{bucket}: {low} to {high}");
        }
        for octave in 0..OCTAVE_COUNT {
            assert_eq!(lower_bound_ns(PARTS_PER_OCTAVE * (octave + 1)), 1000 << octave);
        }
        assert_eq!(bucket_of(BOUND_MAX.as_nanos() as u64 - 1), BUCKET_COUNT - 2);
        assert_eq!(bucket_of(BOUND_MAX.as_nanos() as u64), BUCKET_COUNT - 1);
        assert_eq!(bucket_of(u64::MAX), BUCKET_COUNT - 1);
    }

    #[test]
    fn a_reset_forgets_everything() {
        let histogram = Histogram::default();
        histogram.record(Duration::from_millis(3), 7);
        assert_ne!(histogram.read(), Reading::default());
        histogram.reset();
        assert_eq!(histogram.read(), Reading::default());
    }
}
