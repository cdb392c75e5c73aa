//! The measurements of one row, and what they come from.

use std::collections::BTreeMap;

use rustix::process::Pid;

use super::client::Report;
use crate::{
    clock::thread_cpu_ns,
    failures::{Failed, Failure},
    machine::process_cpu_ns,
    remote::Count,
    stats::{float, median, new_histogram, percentile_us, record},
    usage::{Clocks, Span, disturbed},
};

/// Clocks, read together by the thread of the load.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    clocks: Clocks,
    load_ns: u64,
    server_ns: Option<u64>,
}

impl Mark {
    /// Reads them; `server` is the process that answers, if it is another than this.
    pub fn now(server: Option<Pid>) -> Self {
        Self {
            clocks: Clocks::now(),
            load_ns: thread_cpu_ns(),
            server_ns: server.and_then(process_cpu_ns),
        }
    }
}

/// What replays were like between two marks.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    pub start: Mark,
    /// When they had ended.
    pub end: Mark,
}

/// The measurements of one row, or their medians over several rounds.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Replays that the times come from.
    pub replays: f64,
    pub seconds: f64,
    /// Times of its parts in milliseconds: median
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// Bytes of contents per replay: of chunks that were right, or of whole files.
    pub contents_bytes: f64,
    /// Calls by method per replay; a stream is one.
    pub calls: BTreeMap<&'static str, f64>,
    pub gets: f64,
    /// of them those of dictionaries.
    pub dictionary_gets: f64,
    /// Bytes of their bodies.
    pub client_bytes: f64,
    /// What was asked for a second time because it had failed.
    pub retries: f64,
    /// GETs of table files at the object store, in all replays together,
    pub store_gets: f64,
    /// and bytes of them.
    pub store_bytes: f64,
    /// Seconds of processor that the server used, per replay.
    pub server_s: Option<f64>,
    /// Share of its processor that the load used.
    pub load: f64,
    /// Processors used by programs that have nothing to do with it, and by the machine's host.
    pub others: f64,
    /// Replays that were refused, or got what was not asked for.
    pub failed: Failed,
}

impl Sample {
    /// From replays of the same, of which one may have failed and ended them, and what the object
    /// store saw meanwhile.
    pub fn new(
        reports: &[Report],
        failure: Option<Failure>,
        watched: &Watched,
        store: Count,
    ) -> Self {
        let mut sample = Self {
            store_gets: float(store.requests),
            store_bytes: float(store.bytes),
            ..Self::default()
        };
        sample.set_processors(watched, reports.len());
        failure.into_iter().for_each(|failure| sample.failed.add(failure));
        sample.set_times(reports);
        // Replays of the same differ in what was merged, and by repeated calls.
        let of = |count: fn(&Report) -> u64| {
            median(reports.iter().map(|report| float(count(report)))).unwrap_or(0.0)
        };
        sample.contents_bytes = of(|report| report.counts.contents_bytes);
        sample.gets = of(|report| report.counts.gets);
        sample.dictionary_gets = of(|report| report.counts.dictionary_gets);
        sample.client_bytes = of(|report| report.counts.body_bytes);
        sample.retries = of(|report| report.counts.retries);
        if let Some(report) = reports.last() {
            sample.calls =
                report.counts.rpcs.iter().map(|(method, count)| (*method, float(*count))).collect();
        }
        sample
    }

    fn set_processors(&mut self, watched: &Watched, replays: usize) {
        let Watched { start, end } = watched;
        let span = Span { start: &start.clocks, end: &end.clocks };
        let server = span.share_of(start.server_ns, end.server_ns);
        self.replays = float(u64::try_from(replays).expect("a count fits in 64 bits"));
        let server_s = |ns: u64| float(ns) / 1e9 / self.replays.max(1.0);
        let ends = start.server_ns.zip(end.server_ns);
        self.server_s = ends.map(|(start_ns, end_ns)| server_s(end_ns.saturating_sub(start_ns)));
        self.load = span.share(start.load_ns, end.load_ns);
        self.others = span.others(span.own() + server.unwrap_or(0.0));
    }

    fn set_times(&mut self, reports: &[Report]) {
        self.seconds =
            median(reports.iter().map(|report| float(report.elapsed_ns) / 1e9)).unwrap_or(0.0);
        let mut parts = new_histogram().expect("the bounds of a histogram are right");
        reports.iter().flat_map(|report| &report.parts_ns).for_each(|ns| record(&mut parts, *ns));
        self.p50_ms = percentile_us(&parts, 50.0) / 1e3;
        self.p99_ms = percentile_us(&parts, 99.0) / 1e3;
    }

    /// The median of every measurement, each for itself; failures add up.
    pub fn median(samples: &[Self]) -> Self {
        let of =
            |measurement: fn(&Self) -> f64| median(samples.iter().map(measurement)).unwrap_or(0.0);
        let methods = samples.iter().flat_map(|sample| sample.calls.keys().copied());
        let calls_of = |method: &'static str| {
            median(samples.iter().filter_map(|sample| sample.calls.get(method).copied()))
                .unwrap_or(0.0)
        };
        Self {
            replays: of(|sample| sample.replays),
            seconds: of(|sample| sample.seconds),
            p50_ms: of(|sample| sample.p50_ms),
            p99_ms: of(|sample| sample.p99_ms),
            contents_bytes: of(|sample| sample.contents_bytes),
            calls: methods.map(|method| (method, calls_of(method))).collect(),
            gets: of(|sample| sample.gets),
            dictionary_gets: of(|sample| sample.dictionary_gets),
            client_bytes: of(|sample| sample.client_bytes),
            retries: of(|sample| sample.retries),
            store_gets: of(|sample| sample.store_gets),
            store_bytes: of(|sample| sample.store_bytes),
            server_s: median(samples.iter().filter_map(|sample| sample.server_s)),
            load: of(|sample| sample.load),
            others: of(|sample| sample.others),
            failed: Failed::sum(samples.iter().map(|sample| &sample.failed)),
        }
    }

    pub fn calls_text(&self) -> String {
        let calls = self.calls.iter().map(|(method, count)| format!("{count:.0} {method}"));
        calls.collect::<Vec<_>>().join(" + ")
    }

    /// What a reader must know before trusting the measurements.
    pub fn notes(&self) -> String {
        let mut notes = Vec::new();
        notes.extend(disturbed(self.others));
        if 0.0 < self.retries {
            notes.push(format!("retries:{:.0}", self.retries));
        }
        notes.extend(self.failed.notes());
        notes.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::dolt::client::Counts;

    fn watched() -> Watched {
        let mark = |at_ns, used| Mark {
            clocks: Clocks { at_ns, own_ns: used, busy_ns: Some(used * 3), steal_ns: Some(0) },
            load_ns: used,
            server_ns: Some(used * 2),
        };
        Watched { start: mark(0, 0), end: mark(1_000_000_000, 400_000_000) }
    }

    fn report(milliseconds: u64, gets: u64) -> Report {
        let counts = Counts { gets, rpcs: BTreeMap::from([("Root", 1)]), ..Counts::default() };
        Report {
            elapsed_ns: milliseconds * 1_000_000,
            parts_ns: vec![1_000_000, 3_000_000],
            counts,
        }
    }

    #[test]
    fn measurements_are_those_of_one_replay() {
        let reports = [report(300, 4), report(100, 4), report(200, 6)];
        let sample = Sample::new(&reports, None, &watched(), Count { requests: 2, bytes: 10 });
        assert!(
            (sample.seconds - 0.2).abs() < 1e-9 && (sample.gets - 4.0).abs() < 1e-9,
            "{sample:?}"
        );
        assert!(
            (sample.p99_ms - 3.0).abs() < 0.01 && (sample.p50_ms - 1.0).abs() < 0.01,
            "{sample:?}"
        );
        assert!(
            sample.server_s.is_some_and(|seconds| (seconds - 0.8 / 3.0).abs() < 1e-9),
            "{sample:?}"
        );
        assert!((sample.load - 0.4).abs() < 1e-9 && sample.others < 1e-9, "{sample:?}");
        assert_eq!((sample.calls_text().as_str(), sample.notes().as_str()), ("1 Root", ""));
    }

    #[test]
    fn a_replay_that_failed_is_shown() {
        let failure = Failure::Wrong("another chunk".to_owned());
        let sample = Sample::new(&[], Some(failure), &watched(), Count::default());
        assert_eq!(
            (sample.failed.count(), sample.notes().as_str()),
            (1, "WRONG:1 (another chunk)")
        );
        let middle = Sample::median(&[sample.clone(), Sample::default(), sample]);
        assert_eq!(middle.failed.wrong.count, 2);
    }

    #[test]
    fn the_median_is_taken_measurement_by_measurement() {
        let sample = |milliseconds, gets| {
            Sample::new(&[report(milliseconds, gets)], None, &watched(), Count::default())
        };
        let middle = Sample::median(&[sample(100, 9), sample(300, 7), sample(200, 8)]);
        assert!(
            (middle.seconds - 0.2).abs() < 1e-9 && (middle.gets - 8.0).abs() < 1e-9,
            "{middle:?}"
        );
        assert_eq!(middle.calls_text(), "1 Root");
    }
}
