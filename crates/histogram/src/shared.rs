//! A histogram that many threads write.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use crate::{Histogram, Reading, bucket_of};

/// Counts of durations by bucket. Any thread may record, with three locked instructions; any may
/// read.
#[derive(Debug, Default)]
pub struct SharedHistogram(Histogram);

impl SharedHistogram {
    /// Records that one thing took `time`.
    pub fn record(&self, time: Duration) {
        let Histogram { buckets, sum_ns, max_ns } = &self.0;
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        buckets[bucket_of(ns)].fetch_add(1, Relaxed);
        sum_ns.fetch_add(ns, Relaxed);
        max_ns.fetch_max(ns, Relaxed);
    }

    /// Returns the counts at this moment.
    pub fn read(&self) -> Reading {
        self.0.read()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn nothing_is_lost_when_threads_record_at_once() {
        let shared = SharedHistogram::default();
        thread::scope(|scope| {
            for thread in 1..=4 {
                let record = |us| shared.record(Duration::from_micros(us));
                scope.spawn(move || (0..10_000).for_each(|_| record(thread)));
            }
        });
        let reading = shared.read();
        assert_eq!(reading.count(), 40_000);
        assert_eq!(reading.sum(), Duration::from_micros(10_000 * (1 + 2 + 3 + 4)));
        assert_eq!(reading.max(), Duration::from_micros(4));
    }

    #[test]
    fn it_counts_as_a_histogram_with_one_writer_does() {
        let (shared, single) = (SharedHistogram::default(), Histogram::default());
        for us in [0, 1, 3, 90, 5_000, 1 << 40] {
            shared.record(Duration::from_micros(us));
            single.record(Duration::from_micros(us), 1);
        }
        assert_eq!(shared.read(), single.read());
    }
}
