//! The measurements of one row, and what they come from.

use std::collections::BTreeMap;

use super::client::Report;
use crate::{
    failures::{Failed, Failure},
    remote::Count,
    sample::{Cpu, disturbed},
    stats::{float, float_of, median, medians, new_histogram, percentile_us, record},
    tables::Measured,
};

/// The measurements of one row, or their medians over several rounds.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Replays that the times come from.
    pub replays: f64,
    /// Time of one replay.
    pub seconds: f64,
    /// Times of a replay's parts in milliseconds.
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// Bytes of contents per replay: of chunks that were right, or of whole files.
    pub contents_bytes: f64,
    /// Calls by method per replay; a stream is one.
    pub calls: BTreeMap<&'static str, f64>,
    /// GETs per replay, those of dictionaries among them, and bytes of their bodies.
    pub gets: f64,
    pub dictionary_gets: f64,
    pub client_bytes: f64,
    /// Calls and GETs made again because they had failed.
    pub retries: f64,
    /// GETs of table files at the object store and bytes of them, in all replays together.
    pub store_gets: f64,
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
    /// Makes a sample of replays of the same, of which one may have failed and ended them, with
    /// what the object store saw meanwhile.
    pub fn new(reports: &[Report], failure: Option<Failure>, cpu: Cpu, store: Count) -> Self {
        let mut failed = Failed::default();
        failure.into_iter().for_each(|failure| failed.add(failure));
        let mut parts = new_histogram().expect("the bounds of a histogram are right");
        reports.iter().flat_map(|report| &report.parts_ns).for_each(|ns| record(&mut parts, *ns));
        // Replays of the same differ in what was merged, and by repeated calls.
        let of = |count: fn(&Report) -> u64| {
            median(reports.iter().map(|report| float(count(report)))).unwrap_or(0.0)
        };
        let replays = float_of(reports.len());
        let calls = reports.last().into_iter().flat_map(|report| &report.counts.rpcs);
        Self {
            replays,
            seconds: of(|report| report.elapsed_ns) / 1e9,
            p50_ms: percentile_us(&parts, 50.0) / 1e3,
            p99_ms: percentile_us(&parts, 99.0) / 1e3,
            contents_bytes: of(|report| report.counts.contents_bytes),
            calls: calls.map(|(method, count)| (*method, float(*count))).collect(),
            gets: of(|report| report.counts.gets),
            dictionary_gets: of(|report| report.counts.dictionary_gets),
            client_bytes: of(|report| report.counts.body_bytes),
            retries: of(|report| report.counts.retries),
            store_gets: float(store.requests),
            store_bytes: float(store.bytes),
            server_s: cpu.server.map(|server| server * cpu.wall_s / replays.max(1.0)),
            load: cpu.thread,
            others: cpu.others,
            failed,
        }
    }

    /// Formats the calls by method.
    pub fn calls_text(&self) -> String {
        let calls = self.calls.iter().map(|(method, count)| format!("{count:.0} {method}"));
        calls.collect::<Vec<_>>().join(" + ")
    }
}

impl Measured for Sample {
    fn median(samples: &[Self]) -> Self {
        let methods = samples.iter().flat_map(|sample| sample.calls.keys().copied());
        let calls_of = |method: &'static str| {
            let calls = samples.iter().filter_map(|sample| sample.calls.get(method).copied());
            (method, median(calls).unwrap_or(0.0))
        };
        let medians = medians!(
            samples,
            [
                replays,
                seconds,
                p50_ms,
                p99_ms,
                contents_bytes,
                gets,
                dictionary_gets,
                client_bytes,
                retries,
                store_gets,
                store_bytes,
                load,
                others
            ],
            [server_s]
        );
        Self {
            calls: methods.map(calls_of).collect(),
            failed: Failed::sum(samples.iter().map(|sample| &sample.failed)),
            ..medians
        }
    }

    fn notes(&self) -> String {
        let retries = (0.0 < self.retries).then(|| format!("retries:{:.0}", self.retries));
        let notes = disturbed(self.others).into_iter().chain(retries).chain(self.failed.notes());
        notes.collect::<Vec<_>>().join(" ")
    }

    fn headline(&self) -> String {
        format!("{:.4} s, median of {}", self.seconds, self.replays)
    }

    fn failed(&self) -> &Failed {
        &self.failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::dolt::client::Counts;

    const CPU: Cpu =
        Cpu { wall_s: 1.0, thread: 0.4, own: 0.4, server: Some(0.8), postgres: None, others: 0.0 };

    fn report(milliseconds: u64, gets: u64) -> Report {
        let counts = Counts { gets, rpcs: BTreeMap::from([("Root", 1)]), ..Counts::default() };
        let parts_ns = vec![1_000_000, 3_000_000];
        Report { elapsed_ns: milliseconds * 1_000_000, parts_ns, counts }
    }

    fn near(value: f64, wanted: f64) -> bool {
        (value - wanted).abs() < 0.01
    }

    #[test]
    fn measurements_are_those_of_one_replay() {
        let reports = [report(300, 4), report(100, 4), report(200, 6)];
        let sample = Sample::new(&reports, None, CPU, Count { requests: 2, bytes: 10 });
        assert!(near(sample.seconds, 0.2) && near(sample.gets, 4.0), "{sample:?}");
        assert!(near(sample.p99_ms, 3.0) && near(sample.p50_ms, 1.0), "{sample:?}");
        assert!(near(sample.server_s.unwrap(), 0.8 / 3.0) && near(sample.load, 0.4), "{sample:?}");
        assert_eq!((sample.calls_text().as_str(), sample.notes().as_str()), ("1 Root", ""));
    }

    #[test]
    fn a_replay_that_failed_is_shown() {
        let failure = Failure::Wrong("another chunk".to_owned());
        let sample = Sample::new(&[], Some(failure), CPU, Count::default());
        assert_eq!((sample.failed.count(), &*sample.notes()), (1, "WRONG:1 (another chunk)"));
        let middle = Sample::median(&[sample.clone(), Sample::default(), sample]);
        assert_eq!(middle.failed.wrong.count, 2);
    }

    #[test]
    fn the_median_is_taken_number_by_number() {
        let sample = |ms, gets| Sample::new(&[report(ms, gets)], None, CPU, Count::default());
        let middle = Sample::median(&[sample(100, 9), sample(300, 7), sample(200, 8)]);
        assert!(near(middle.seconds, 0.2) && near(middle.gets, 8.0), "{middle:?}");
        assert_eq!(middle.calls_text(), "1 Root");
    }
}
