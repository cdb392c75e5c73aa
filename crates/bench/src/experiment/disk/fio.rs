//! Measurements the way fio 3 prints them, as text and as JSON.

use hdrhistogram::Histogram;

use super::jobs::Measured;
use crate::{bytes::bytes_text, stats::float};

const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];

/// Percentiles in a line.
const PER_LINE: usize = 4;

/// The block of one job group.
pub fn text(measured: &Measured) -> String {
    let latency = &measured.latency_ns;
    let unit = Unit::of(latency);
    let megabytes = measured.mib_per_s() * 1.048_576;
    let cached = match measured.cached_before {
        Some(share) => format!(", {:.0}% of the file in the page cache before", share * 100.0),
        None => String::new(),
    };
    format!(
        "randread-{}: (groupid=0, jobs={}): bs={}{cached}\n  \
         read: IOPS={}, BW={:.1}MiB/s ({megabytes:.1}MB/s)({}/{:.0}msec)\n    \
         clat ({}): min={}, max={}, avg={:.2}, stdev={:.2}\n    \
         clat percentiles ({}):\n{}",
        measured.mode.name(),
        measured.jobs,
        bytes_text(measured.block_bytes),
        short(measured.iops()),
        measured.mib_per_s(),
        bytes_text(measured.reads() * measured.block_bytes).replace(' ', ""),
        measured.seconds * 1e3,
        unit.name(),
        unit.whole(latency.min()),
        unit.whole(latency.max()),
        latency.mean() / float(unit.ns()),
        latency.stdev() / float(unit.ns()),
        unit.name(),
        percentiles(latency, unit),
    )
}

fn percentiles(latency: &Histogram<u64>, unit: Unit) -> String {
    let of = |percent: f64| unit.whole(latency.value_at_percentile(percent));
    let width = PERCENTILES
        .map(|percent| of(percent).to_string().len())
        .into_iter()
        .max()
        .unwrap_or(1)
        .max(5);
    let cases = PERCENTILES.map(|percent| format!("{percent:>5.2}th=[{:>width$}]", of(percent)));
    let lines: Vec<_> =
        cases.chunks(PER_LINE).map(|cases| format!("     | {}", cases.join(", "))).collect();
    lines.join(",\n")
}

/// What latencies are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Nanoseconds,
    Microseconds,
    Milliseconds,
}

impl Unit {
    /// fio's rule: a larger unit when the smallest value has more than three digits left, and the
    /// largest more than five.
    fn of(latency: &Histogram<u64>) -> Self {
        let mut unit = Self::Nanoseconds;
        for larger in [Self::Microseconds, Self::Milliseconds] {
            if unit.whole(latency.min()) <= 2_000 || unit.whole(latency.max()) <= 99_999 {
                break;
            }
            unit = larger;
        }
        unit
    }

    fn name(self) -> &'static str {
        match self {
            Self::Nanoseconds => "nsec",
            Self::Microseconds => "usec",
            Self::Milliseconds => "msec",
        }
    }

    fn ns(self) -> u64 {
        match self {
            Self::Nanoseconds => 1,
            Self::Microseconds => 1_000,
            Self::Milliseconds => 1_000_000,
        }
    }

    fn whole(self, ns: u64) -> u64 {
        ns / self.ns()
    }
}

/// As fio writes rates: `987`, `11.1k`, `1234k`.
fn short(value: f64) -> String {
    if value < 1_000.0 {
        format!("{value:.0}")
    } else if value < 100_000.0 {
        format!("{:.1}k", value / 1e3)
    } else {
        format!("{:.0}k", value / 1e3)
    }
}

/// All job groups, with the names that fio's JSON gives to these measurements.
pub fn json(measured: &[Measured]) -> String {
    let jobs: Vec<_> = measured.iter().map(job).collect();
    format!("{{\n  \"jobs\": [\n{}\n  ]\n}}\n", jobs.join(",\n"))
}

fn job(measured: &Measured) -> String {
    let latency = &measured.latency_ns;
    let percentile =
        |percent: &f64| format!("\"{percent:.6}\": {}", latency.value_at_percentile(*percent));
    let percentiles: Vec<_> = PERCENTILES.iter().map(percentile).collect();
    let mode = measured.mode.name();
    let direct = if mode == "direct" { "1" } else { "0" };
    format!(
        "    {{\"jobname\": \"randread-{mode}\", \
         \"job options\": {{\"rw\": \"randread\", \"bs\": \"{}\", \"numjobs\": \"{}\", \"direct\": \"{direct}\"}}, \
         \"cached_before\": {}, \"read\": {{\"total_ios\": {}, \"io_bytes\": {}, \"runtime\": {:.0}, \
         \"iops\": {:.3}, \"bw_bytes\": {:.0}, \
         \"clat_ns\": {{\"min\": {}, \"max\": {}, \"mean\": {:.3}, \"stddev\": {:.3}, \"percentile\": {{{}}}}}}}}}",
        measured.block_bytes,
        measured.jobs,
        measured.cached_before.map_or("null".to_owned(), |share| format!("{share:.4}")),
        measured.reads(),
        measured.reads() * measured.block_bytes,
        measured.seconds * 1e3,
        measured.iops(),
        measured.mib_per_s() * 1_048_576.0,
        latency.min(),
        latency.max(),
        latency.mean(),
        latency.stdev(),
        percentiles.join(", "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{experiment::disk::Mode, stats::new_histogram};

    fn measured() -> Measured {
        let mut latency_ns = new_histogram().unwrap();
        (1..=1_000).for_each(|us| latency_ns.record(us * 1_000 + 60_000).unwrap());
        Measured {
            mode: Mode::Direct,
            jobs: 16,
            block_bytes: 16_384,
            seconds: 0.5,
            latency_ns,
            cached_before: None,
        }
    }

    #[test]
    fn text_has_the_shape_of_fio() {
        let text = text(&measured());
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "randread-direct: (groupid=0, jobs=16): bs=16 KiB");
        assert_eq!(lines[1], "  read: IOPS=2.0k, BW=31.2MiB/s (32.8MB/s)(15.6MiB/500msec)");
        assert!(
            lines[2].starts_with("    clat (usec): min=60, max=1060, avg=560."),
            "{}",
            lines[2]
        );
        assert_eq!(lines[3], "    clat percentiles (usec):");
        assert!(
            lines[4].starts_with("     |  1.00th=[   70],  5.00th=[  110], 10.00th=[  160]"),
            "{}",
            lines[4]
        );
        assert!(lines[8].starts_with("     | 99.99th=[ 10"), "{}", lines[8]);
        assert_eq!(lines.len(), 9);
    }

    #[test]
    fn fast_reads_are_told_in_nanoseconds_and_slow_ones_in_milliseconds() {
        let unit = |ns: [u64; 2]| {
            let mut latency = new_histogram().unwrap();
            ns.into_iter().for_each(|ns| latency.record(ns).unwrap());
            Unit::of(&latency)
        };
        assert_eq!(unit([1_500, 3_000_000]), Unit::Nanoseconds);
        assert_eq!(unit([70_000, 3_000_000]), Unit::Microseconds);
        assert_eq!(unit([5_000_000, 300_000_000]), Unit::Milliseconds);
    }

    #[test]
    fn json_is_balanced_and_has_every_percentile() {
        let json = json(&[measured(), measured()]);
        for (open, close) in [('{', '}'), ('[', ']')] {
            assert_eq!(json.matches(open).count(), json.matches(close).count());
        }
        assert_eq!(json.matches("\"99.990000\": ").count(), 2);
        assert!(
            json.contains("\"total_ios\": 1000, \"io_bytes\": 16384000, \"runtime\": 500"),
            "{json}"
        );
        assert_eq!(json.matches("\": ").count(), 2 * (PERCENTILES.len() + 19) + 1);
    }
}
