//! The measurements of one row, and the clocks they come from.

use std::fs;

use rustix::process::Pid;

use super::counters::Counters;
use crate::{
    clock::{Window, thread_cpu_ns},
    failures::{Failed, Failures},
    machine::process_cpu_ns,
    measure::{self, LOAD_SHARE_HIGH, SERVER_SHARE_LOW},
    stats::{float, median, percentile_us},
    usage::{Clocks, Span, disturbed},
};

/// Who answers, for the processor time that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answering {
    /// This program itself: the object store.
    Nobody,
    Process(Pid),
    /// A thread of this process, by its id.
    Thread(Pid),
}

impl Answering {
    fn cpu_ns(self) -> Option<u64> {
        match self {
            Self::Nobody => None,
            Self::Process(pid) => process_cpu_ns(pid),
            Self::Thread(thread) => {
                let path = format!("/proc/self/task/{}/schedstat", thread.as_raw_nonzero());
                fs::read_to_string(path).ok()?.split_ascii_whitespace().next()?.parse().ok()
            }
        }
    }
}

/// Clocks, read together by the thread of the load.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    clocks: Clocks,
    load_ns: u64,
    server_ns: Option<u64>,
    server_is_own: bool,
}

impl Mark {
    pub fn now(answering: Answering) -> Self {
        Self {
            clocks: Clocks::now(),
            load_ns: thread_cpu_ns(),
            server_ns: answering.cpu_ns(),
            server_is_own: matches!(answering, Answering::Thread(_)),
        }
    }
}

/// Processors used between two marks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cpu {
    /// By the thread of the load.
    pub load: f64,
    pub server: Option<f64>,
    /// By programs that have nothing to do with it, and by the machine's host.
    pub others: f64,
}

impl Cpu {
    pub fn between(start: &Mark, end: &Mark) -> Self {
        let span = Span { start: &start.clocks, end: &end.clocks };
        let server = span.share_of(start.server_ns, end.server_ns);
        let known = span.own() + if start.server_is_own { 0.0 } else { server.unwrap_or(0.0) };
        Self { load: span.share(start.load_ns, end.load_ns), server, others: span.others(known) }
    }
}

/// The measurements of one row, or their medians over several rounds.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Length of the measurement in seconds.
    pub seconds: f64,
    pub per_s: f64,
    /// Times of requests in microseconds: mean,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub cpu: Cpu,
    /// Requests to the object store, where it was read.
    pub store_requests: Option<f64>,
    pub store_bytes: Option<f64>,
    /// All of the store was on local disk before the measurement ended.
    pub filled_early: bool,
    /// Refused requests and wrong answers.
    pub failed: Failed,
}

impl Sample {
    /// From what callers saw between two marks.
    pub fn new(counters: &Counters, window: Window, cpu: Cpu) -> Self {
        // A load that ends when its work is done ends before its window.
        let until_ns = if counters.chunks == 0 {
            window.until_ns
        } else {
            counters.last_ns.min(window.until_ns)
        };
        let seconds = float(until_ns.saturating_sub(window.from_ns).max(1)) / 1e9;
        Self {
            seconds,
            per_s: float(counters.chunks) / seconds,
            mean_us: if counters.latency_ns.is_empty() {
                0.0
            } else {
                counters.latency_ns.mean() / 1e3
            },
            p50_us: percentile_us(&counters.latency_ns, 50.0),
            p99_us: percentile_us(&counters.latency_ns, 99.0),
            cpu,
            failed: counters.failed.clone(),
            ..Self::default()
        }
    }

    /// From a load of pipelines with `under_way` requests at any time.
    pub fn of_pipelines(sample: &measure::Sample, window_s: f64, under_way: f64) -> Self {
        let mut wrong = Failures { count: sample.oddities.nils, example: None };
        if 0 < wrong.count {
            wrong.example = Some("nil for a chunk that is there".to_owned());
        }
        let refused =
            Failures { count: sample.oddities.errors, example: sample.oddities.example.clone() };
        // Little's law: a pipeline's time is what all connections together need for one each.
        let mean_us =
            if 0.0 < sample.requests_per_s { under_way / sample.requests_per_s * 1e6 } else { 0.0 };
        Self {
            seconds: window_s,
            per_s: sample.requests_per_s,
            mean_us,
            p50_us: sample.p50_us,
            p99_us: sample.p99_us,
            cpu: Cpu { load: sample.load_cpu, server: sample.server_cpu, others: sample.lost },
            failed: Failed { refused, wrong },
            ..Self::default()
        }
    }

    /// The median of every measurement, each for itself; failures add up.
    pub fn median(samples: &[Self]) -> Self {
        let of =
            |measurement: fn(&Self) -> f64| median(samples.iter().map(measurement)).unwrap_or(0.0);
        let of_some =
            |measurement: fn(&Self) -> Option<f64>| median(samples.iter().filter_map(measurement));
        Self {
            seconds: of(|sample| sample.seconds),
            per_s: of(|sample| sample.per_s),
            mean_us: of(|sample| sample.mean_us),
            p50_us: of(|sample| sample.p50_us),
            p99_us: of(|sample| sample.p99_us),
            cpu: Cpu {
                load: of(|sample| sample.cpu.load),
                server: of_some(|sample| sample.cpu.server),
                others: of(|sample| sample.cpu.others),
            },
            store_requests: of_some(|sample| sample.store_requests),
            store_bytes: of_some(|sample| sample.store_bytes),
            filled_early: samples.iter().any(|sample| sample.filled_early),
            failed: Failed::sum(samples.iter().map(|sample| &sample.failed)),
        }
    }

    /// What a reader must know before trusting the measurements.
    pub fn notes(&self) -> String {
        let mut notes = Vec::new();
        if self.cpu.server.is_some_and(|share| share < SERVER_SHARE_LOW)
            && LOAD_SHARE_HIGH < self.cpu.load
        {
            notes.push("load-bound".to_owned());
        }
        notes.extend(disturbed(self.cpu.others));
        if self.filled_early {
            notes.push("filled-early".to_owned());
        }
        notes.extend(self.failed.notes());
        notes.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{TRIES, now_ns};

    const WINDOW: Window = Window { from_ns: 1_000_000_000, until_ns: 3_000_000_000 };

    fn near(value: f64, wanted: f64) -> bool {
        (value - wanted).abs() <= wanted.abs() * 0.002
    }

    #[test]
    fn measurements_follow_from_what_was_seen_in_the_window() {
        let mut counters = Counters::new().unwrap();
        for (millisecond, latency_us) in [(500, 9_999), (1_500, 100), (2_000, 300), (3_000, 9_999)]
        {
            let now_ns = millisecond * 1_000_000;
            counters.answer(WINDOW, 16, now_ns - latency_us * 1_000, now_ns);
        }
        let sample = Sample::new(&counters, WINDOW, Cpu::default());
        // The last answer that counts came after one second.
        assert!(near(sample.seconds, 1.0) && near(sample.per_s, 32.0), "{sample:?}");
        assert!(near(sample.mean_us, 200.0) && near(sample.p99_us, 300.0), "{sample:?}");
    }

    #[test]
    fn the_median_is_taken_measurement_by_measurement_and_failures_add_up() {
        let round = |per_s, store_bytes, wrong| {
            let wrong = Failures { count: wrong, example: (0 < wrong).then(|| "x".to_owned()) };
            let failed = Failed { wrong, ..Failed::default() };
            Sample { per_s, store_bytes, failed, ..Sample::default() }
        };
        let middle =
            Sample::median(&[round(3.0, None, 0), round(1.0, Some(8.0), 2), round(2.0, None, 1)]);
        assert!(
            near(middle.per_s, 2.0) && middle.store_bytes.is_some_and(|bytes| near(bytes, 8.0))
        );
        assert_eq!(middle.notes(), "WRONG:3 (x)");
    }

    #[test]
    fn a_thread_that_works_is_seen_to() {
        let answering = Answering::Thread(rustix::thread::gettid());
        let is_seen = (0..TRIES).any(|_| {
            let start = Mark::now(answering);
            while now_ns() < start.clocks.at_ns + 30_000_000 {
                std::hint::black_box(0);
            }
            let cpu = Cpu::between(&start, &Mark::now(answering));
            // Less where others had the processors.
            0.1 < cpu.load && cpu.server.is_some_and(|share| 0.1 < share)
        });
        assert!(is_seen);
    }
}
