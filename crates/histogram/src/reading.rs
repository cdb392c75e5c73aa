//! Counts of a histogram at one moment, and what follows from them.

use std::time::Duration;

use crate::{BUCKET_COUNT, OCTAVE_COUNT, PARTS_PER_OCTAVE, lower_bound_ns};

/// Counts of a histogram at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Counts by bucket: [`BUCKET_COUNT`] of them.
    pub(crate) buckets: Box<[u64]>,
    pub(crate) sum_ns: u64,
    pub(crate) max_ns: u64,
}

impl Default for Reading {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKET_COUNT].into(), sum_ns: 0, max_ns: 0 }
    }
}

impl Reading {
    /// Returns how many durations were recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the sum of all durations.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns)
    }

    /// Returns the mean duration, zero if there is none.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.sum_ns.checked_div(self.count()).unwrap_or(0))
    }

    /// Returns the longest duration.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max_ns)
    }

    /// Returns the duration that the share `quantile` (0.99, for example) of all durations does not
    /// exceed: interpolated within its bucket and never above the longest. Zero if there is none.
    pub fn quantile(&self, quantile: f64) -> Duration {
        let count = self.count();
        let rank = (quantile.clamp(0.0, 1.0) * count as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        for (bucket, &in_bucket) in self.buckets.iter().enumerate() {
            if in_bucket == 0 || below + in_bucket < rank {
                below += in_bucket;
                continue;
            }
            let low = lower_bound_ns(bucket).min(self.max_ns);
            let high = match bucket + 1 {
                BUCKET_COUNT => self.max_ns,
                next => lower_bound_ns(next).min(self.max_ns),
            };
            let share = (rank - below) as f64 / in_bucket as f64;
            return Duration::from_nanos(low + ((high - low) as f64 * share) as u64);
        }
        Duration::ZERO
    }

    /// Iterates over the buckets that count anything: the least duration that the next bucket
    /// counts (`None` for the last bucket, which has no bound), and the count.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> + '_ {
        let bound = |bucket: usize| {
            let next = bucket + 1;
            (next < BUCKET_COUNT).then(|| Duration::from_nanos(lower_bound_ns(next)))
        };
        let filled = self.buckets.iter().enumerate().filter(|(_, count)| **count != 0);
        filled.map(move |(bucket, &count)| (bound(bucket), count))
    }

    /// Iterates over the powers of two in microseconds, up to [`BOUND_MAX`](crate::BOUND_MAX): the
    /// bound, and how many durations are below it. The total is [`count`](Self::count).
    pub fn cumulative(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        (0..OCTAVE_COUNT).scan(0, |below, octave| {
            let first = PARTS_PER_OCTAVE * octave;
            *below += self.buckets[first..first + PARTS_PER_OCTAVE].iter().sum::<u64>();
            Some((Duration::from_micros(1 << octave), *below))
        })
    }

    /// Adds the counts of another histogram to these.
    pub fn merge(&mut self, other: &Reading) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(count, more)| *count += more);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Histogram;

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    #[test]
    fn quantiles_are_close_to_those_of_the_sorted_durations() {
        let mut seed = 7_u64;
        for magnitude in [3, 10, 20, 30, 40] {
            let histogram = Histogram::default();
            let mut sorted = Vec::new();
            for step in 0..5_000_u64 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step | 1);
                let ns = 1_000 + seed % (1 << magnitude) * 10;
                histogram.record(Duration::from_nanos(ns), 1);
                sorted.push(ns);
            }
            sorted.sort_unstable();
            let reading = histogram.read();
            assert_eq!(reading.count(), 5_000);
            assert_eq!(reading.max(), Duration::from_nanos(sorted[4_999]).min(reading.max()));
            for quantile in [0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0] {
                let rank = ((quantile * 5_000.0_f64).ceil() as usize).max(1);
                let exact = sorted[rank - 1] as f64;
                let found = reading.quantile(quantile).as_nanos() as f64;
                // Within the bucket of the exact one, whose bounds are a quarter apart.
                let overflow = crate::BOUND_MAX.as_nanos() as f64 <= exact;
                let close = (found - exact).abs() <= exact / 4.0;
                assert!(close || overflow, "{quantile} of {magnitude}: {found}, not {exact}");
            }
        }
    }

    #[test]
    fn nothing_recorded_is_zero_everywhere() {
        let reading = Reading::default();
        assert_eq!(reading.count(), 0);
        assert!(reading.cumulative().all(|(_, below)| below == 0));
        assert_eq!((reading.mean(), reading.quantile(0.5)), (us(0), us(0)));
        assert_eq!(reading.buckets().count(), 0);
    }

    #[test]
    fn cumulative_counts_end_with_the_total_and_have_all_bounds() {
        let histogram = Histogram::default();
        histogram.record(Duration::from_nanos(600), 2);
        histogram.record(us(1), 3);
        histogram.record(us(5), 4);
        let reading = histogram.read();
        let expected = [(us(1), 2), (us(2), 5), (us(4), 5), (us(8), 9)];
        assert_eq!(reading.cumulative().take(4).collect::<Vec<_>>(), expected);
        assert_eq!(reading.cumulative().count(), OCTAVE_COUNT);
        assert!(reading.cumulative().skip(4).all(|(_, below)| below == 9));
        assert_eq!(reading.sum(), Duration::from_nanos(2 * 600 + 3_000 + 20_000));
        assert_eq!(reading.max(), us(5));
        histogram.record(Duration::from_secs(100), 1);
        let reading = histogram.read();
        let bounded = reading.cumulative().last();
        assert_eq!((bounded, reading.count()), (Some((crate::BOUND_MAX, 9)), 10));
        assert_eq!(reading.buckets().last(), Some((None, 1)));
        assert_eq!(reading.quantile(1.0), Duration::from_secs(100));
    }

    #[test]
    fn merged_counts_are_those_of_both() {
        let (a, b, both) = (Histogram::default(), Histogram::default(), Histogram::default());
        a.record(us(3), 2);
        b.record(us(70), 5);
        both.record(us(3), 2);
        both.record(us(70), 5);
        let mut merged = a.read();
        merged.merge(&b.read());
        assert_eq!(merged, both.read());
    }
}
