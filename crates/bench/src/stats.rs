//! Percentiles, medians, ratios.

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

use crate::limits::LATENCY_NS_MAX;

/// The mean in microseconds; 0 when nothing was recorded.
pub fn mean_us(histogram: &Histogram<u64>) -> f64 {
    if histogram.is_empty() { 0.0 } else { histogram.mean() / 1_000.0 }
}

/// A histogram of nanoseconds, exact to three digits.
pub fn new_histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).context("bounds of a histogram")
}

/// Adds a time; one beyond the histogram's end counts as its end.
#[inline]
pub fn record(histogram: &mut Histogram<u64>, ns: u64) {
    histogram.saturating_record(ns);
}

/// A percentile in microseconds; 0 when nothing was recorded.
pub fn percentile_us(histogram: &Histogram<u64>, percent: f64) -> f64 {
    if histogram.is_empty() {
        return 0.0;
    }
    float(histogram.value_at_percentile(percent)) / 1_000.0
}

/// The median of some values, `None` when there are none. Of an even count the mean of the middle
/// two.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// `value / base`, or `None` where that says nothing.
pub fn ratio(value: f64, base: f64) -> Option<f64> {
    (0.0 < base && value.is_finite()).then(|| value / base)
}

/// A count as a floating-point number; exact up to 2^53.
#[allow(clippy::cast_precision_loss, reason = "counts and nanoseconds here stay below 2^53")]
pub fn float(count: u64) -> f64 {
    count as f64
}

/// A count of things in memory as a floating-point number.
pub fn float_of(count: usize) -> f64 {
    float(u64::try_from(count).expect("a count fits in 64 bits"))
}

pub fn mebibytes(bytes: f64) -> f64 {
    bytes / 1_048_576.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one_and_a_ratio_to_nothing_is_none() {
        assert_eq!([2.0, 0.0].map(|base| ratio(3.0, base)), [Some(1.5), None]);
        let values = [5.0, 1.0, 3.0, 100.0];
        let medians = [0, 1, 3, 4].map(|count| median(values[..count].iter().copied()));
        assert_eq!(medians, [None, Some(5.0), Some(3.0), Some(4.0)]);
    }

    #[test]
    fn percentiles_are_exact_to_a_thousandth_and_bounded() {
        let mut histogram = new_histogram().unwrap();
        (1..=100_000).for_each(|us| record(&mut histogram, us * 1_000));
        for (percent, us) in [(50.0, 50_000.0), (99.9, 99_900.0), (100.0, 100_000.0)] {
            let found = percentile_us(&histogram, percent);
            assert!((found - us).abs() <= us / 1_000.0, "{percent}: {found}");
        }
        record(&mut histogram, u64::MAX);
        assert_eq!(histogram.len(), 100_001);
    }
}
