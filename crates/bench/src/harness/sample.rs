//! Numbers that experiments measure, and what one measurement of a case gave.

use std::collections::{BTreeMap, BTreeSet};

use super::Usage;
use crate::{
    clock::Window,
    counters::Counters,
    failures::Failed,
    stats::{float, mean_us, median, percentile_us},
};

/// Above this share of its processor the load side may be what limits a measurement.
pub const LOAD_SHARE_HIGH: f64 = 0.95;
/// Below this share of a processor the server was not what limited it.
pub const SERVER_SHARE_LOW: f64 = 0.90;
/// Delay of an open loop's requests (99th percentile) above which a row is marked.
const LATE_US: f64 = 100.0;
/// Processors used by others, and share of the time in which the load waited for one, above which a
/// row is marked.
const DISTURBED: f64 = 0.1;
const LOST: f64 = 0.05;

/// A number that experiments measure.
#[derive(Clone, Copy, Debug)]
pub struct Number {
    /// Name in CSV files, with the unit.
    pub name: &'static str,
    /// Heading in tables, with the unit.
    pub title: &'static str,
    format: Format,
}

/// Way to show a number in a table.
#[derive(Clone, Copy, Debug)]
enum Format {
    Scaled(f64),
    Percent,
    Count,
}

impl Number {
    /// Makes a number that tables show with three digits or so.
    pub const fn new(name: &'static str, title: &'static str) -> Self {
        Self::scaled(name, title, 1.0)
    }

    /// Makes a number that tables show multiplied with `factor`.
    pub const fn scaled(name: &'static str, title: &'static str, factor: f64) -> Self {
        Self { name, title, format: Format::Scaled(factor) }
    }

    /// Makes a share that tables show as a percentage.
    pub const fn percent(name: &'static str, title: &'static str) -> Self {
        Self { name, title, format: Format::Percent }
    }

    /// Makes a number that tables show without a fraction.
    pub const fn count(name: &'static str, title: &'static str) -> Self {
        Self { name, title, format: Format::Count }
    }

    /// Returns a value as tables show it, in the unit of the title.
    pub fn in_unit(&self, value: f64) -> f64 {
        match self.format {
            Format::Scaled(factor) => value * factor,
            Format::Percent => value * 100.0,
            Format::Count => value,
        }
    }

    /// Shows a value for people.
    pub fn text(&self, value: f64) -> String {
        match self.format {
            Format::Scaled(factor) => measurement(value * factor),
            Format::Percent => format!("{:.0}%", value * 100.0),
            Format::Count => format!("{value:.0}"),
        }
    }
}

pub const SECONDS: Number = Number::new("seconds", "s");
/// Requests, rows or chunks that were answered each second.
pub const PER_S: Number = Number::scaled("per_s", "k/s", 1e-3);
pub const MEAN_US: Number = Number::new("mean_us", "mean us");
pub const P50_US: Number = Number::new("p50_us", "p50 us");
pub const P99_US: Number = Number::new("p99_us", "p99 us");
pub const P999_US: Number = Number::new("p999_us", "p99.9 us");
pub const MIN_US: Number = Number::new("min_us", "min us");
pub const MAX_US: Number = Number::new("max_us", "max us");
/// Requests, rows or chunks that were answered.
pub const ANSWERED: Number = Number::count("reads", "reads");
/// Delay of an open loop's requests, 99th percentile.
pub const LATE_P99_US: Number = Number::new("late_p99_us", "late p99 us");
/// Processors that the load used: its thread, or this whole program.
pub const CPU_LOAD: Number = Number::new("cpu_load", "cpu: load");
/// Processors that the server used.
pub const CPU_SERVER: Number = Number::new("cpu_server", "server");
/// Processors that Postgres used, where it runs here.
pub const CPU_POSTGRES: Number = Number::new("cpu_postgres", "postgres");
/// Processors that a proxy in this program used.
pub const CPU_PROXY: Number = Number::new("cpu_proxy", "proxy");
/// Processors used by programs that have nothing to do with it, and by the machine's host.
pub const CPU_OTHERS: Number = Number::new("cpu_others", "others");
/// Share of the time in which this program waited for a processor or the host took one away.
pub const LOST_SHARE: Number = Number::percent("lost", "lost");
/// Most less least of the leading number by its median, over the rounds.
pub const SPREAD: Number = Number::percent("spread", "spread");

/// Numbers of one case: of one round, or the medians of several.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    numbers: BTreeMap<&'static str, f64>,
    /// Things that should not happen, by name; they add up over the rounds.
    counts: BTreeMap<&'static str, u64>,
    /// Facts that a reader must know, as `overloaded`; kept if any round has them.
    flags: BTreeSet<&'static str>,
    /// Refused requests and wrong answers, the warm-up included.
    pub failed: Failed,
    /// Text beside the numbers; that of the last round is kept.
    pub remark: String,
}

/// End of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    WithWindow,
    /// With the last answer, if that comes before the window's end: the load had a list of
    /// requests.
    WithLastAnswer,
}

impl Sample {
    /// Makes a sample of what a load saw in a window.
    pub fn of(counters: &Counters, window: Window, ends: Ends) -> Self {
        let until_ns = match ends {
            Ends::WithLastAnswer if 0 < counters.answered => counters.last_ns.min(window.until_ns),
            _ => window.until_ns,
        };
        let seconds = float(until_ns.saturating_sub(window.from_ns).max(1)) / 1e9;
        let late_us = percentile_us(&counters.late_ns, 99.0);
        Self { failed: counters.failed.clone(), ..Self::default() }
            .with(SECONDS, seconds)
            .with(PER_S, float(counters.answered) / seconds)
            .with(MEAN_US, mean_us(&counters.latency_ns))
            .with(P50_US, percentile_us(&counters.latency_ns, 50.0))
            .with(P99_US, percentile_us(&counters.latency_ns, 99.0))
            .with(MIN_US, percentile_us(&counters.latency_ns, 0.0))
            .with(ANSWERED, float(counters.answered))
            .with(MAX_US, percentile_us(&counters.latency_ns, 100.0))
            .with(LATE_P99_US, (!counters.late_ns.is_empty()).then_some(late_us))
            .count("unanswered", counters.unanswered)
            .flag("overloaded", counters.overloaded)
    }

    pub fn with(mut self, number: Number, value: impl Into<Option<f64>>) -> Self {
        self.set(number, value);
        self
    }

    /// Sets a number, or leaves it out where there is none.
    pub fn set(&mut self, number: Number, value: impl Into<Option<f64>>) {
        if let Some(value) = value.into() {
            self.numbers.insert(number.name, value);
        }
    }

    /// Adds to the count of something that should not happen.
    pub fn count(mut self, name: &'static str, count: u64) -> Self {
        *self.counts.entry(name).or_default() += count;
        self
    }

    /// Remembers a fact that a reader must know, if it applies.
    pub fn flag(mut self, name: &'static str, applies: bool) -> Self {
        if applies {
            self.flags.insert(name);
        }
        self
    }

    /// Adds the processors used, the load being the thread that read the clocks.
    pub fn with_thread(self, usage: &Usage) -> Self {
        let idles = usage.server.is_some_and(|share| share < SERVER_SHARE_LOW);
        self.flag("load-bound", LOAD_SHARE_HIGH < usage.thread && idles)
            .with(CPU_LOAD, usage.thread)
            .with(CPU_SERVER, usage.server)
            .with(CPU_OTHERS, usage.others)
    }

    /// Adds the processors used, the load being this whole program.
    pub fn with_program(self, usage: &Usage) -> Self {
        self.with(CPU_LOAD, usage.own)
            .with(CPU_SERVER, usage.server)
            .with(CPU_POSTGRES, usage.postgres)
            .with(CPU_PROXY, usage.proxy)
            .with(CPU_OTHERS, usage.others)
    }

    pub fn get(&self, number: Number) -> Option<f64> {
        self.numbers.get(number.name).copied()
    }

    /// Returns a number, 0 if it was not measured.
    pub fn or_zero(&self, number: Number) -> f64 {
        self.get(number).unwrap_or_default()
    }

    pub fn counted(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or_default()
    }

    /// Takes the median of every number, each for itself; counts and failures add up.
    pub fn median(samples: &[Self]) -> Self {
        let mut whole = Self::default();
        let names: BTreeSet<_> = samples.iter().flat_map(|sample| sample.numbers.keys()).collect();
        for name in names {
            let values = samples.iter().filter_map(|sample| sample.numbers.get(name).copied());
            whole.numbers.extend(median(values).map(|value| (*name, value)));
        }
        for sample in samples {
            for (name, count) in &sample.counts {
                *whole.counts.entry(name).or_default() += count;
            }
            whole.flags.extend(&sample.flags);
            whole.failed.merge(&sample.failed);
            whole.remark.clone_from(&sample.remark);
        }
        whole
    }

    /// Says what a reader must know before trusting the numbers.
    pub fn notes(&self) -> String {
        let above = |number, most| self.get(number).filter(|value| most < *value);
        let mut notes: Vec<_> = self.flags.iter().map(|flag| (*flag).to_owned()).collect();
        let counts = self.counts.iter().filter(|(_, count)| 0 < **count);
        notes.extend(counts.map(|(name, count)| format!("{name}:{count}")));
        let late_us = above(LATE_P99_US, LATE_US);
        notes.extend(late_us.map(|late_us| format!("asked-late:{late_us:.0}us")));
        let disturbed = above(CPU_OTHERS, DISTURBED).or_else(|| above(LOST_SHARE, LOST));
        notes.extend(disturbed.map(|share| format!("disturbed:{:.0}%", share * 100.0)));
        notes.extend(self.failed.notes());
        notes.extend((!self.remark.is_empty()).then(|| self.remark.clone()));
        notes.join(" ")
    }
}

/// Shows a number with three digits or so: what a noisy one deserves.
pub fn measurement(value: f64) -> String {
    let digits = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        0.1.. => 2,
        _ if value == 0.0 => 0,
        _ => 4,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failures::Failure;

    #[test]
    fn numbers_follow_from_what_was_seen_in_the_window() {
        let window = Window { from_ns: 1_000_000_000, until_ns: 3_000_000_000 };
        let mut counters = Counters::new().unwrap();
        for (millisecond, latency_us) in
            [(500, 9_999), (1_000, 100), (1_500, 200), (2_000, 600), (3_000, 9_999)]
        {
            let now_ns = millisecond * 1_000_000;
            counters.answer(window, 1, now_ns - latency_us * 1_000, now_ns);
        }
        let near = |value: f64, wanted: f64| (value - wanted).abs() <= wanted * 0.002;
        let sample = Sample::of(&counters, window, Ends::WithWindow);
        assert!(near(sample.or_zero(SECONDS), 2.0) && near(sample.or_zero(PER_S), 1.5));
        assert!(near(sample.or_zero(MEAN_US), 300.0) && near(sample.or_zero(P50_US), 200.0));
        // The last answer that counts came after one second.
        let sample = Sample::of(&counters, window, Ends::WithLastAnswer);
        assert!(near(sample.or_zero(SECONDS), 1.0) && near(sample.or_zero(PER_S), 3.0));
        assert_eq!(sample.get(LATE_P99_US), None);
    }

    #[test]
    fn medians_are_taken_number_by_number_and_failures_add_up() {
        let round = |per_s: f64, p99_us: Option<f64>, is_late: bool| {
            let mut sample = Sample::default().with(PER_S, per_s).with(P99_US, p99_us);
            sample.failed.add(Failure::Refused("full".to_owned()));
            sample.flag("overloaded", is_late).count("nil", 2)
        };
        let rounds =
            [round(3.0, None, false), round(1.0, Some(8.0), true), round(2.0, None, false)];
        let whole = Sample::median(&rounds);
        assert_eq!((whole.get(PER_S), whole.get(P99_US)), (Some(2.0), Some(8.0)));
        assert_eq!(whole.notes(), "overloaded nil:6 REFUSED:3 (full)");
    }

    #[test]
    fn what_disturbs_or_limits_a_measurement_is_noted() {
        let notes = |thread, server, others| {
            let usage = Usage { thread, server: Some(server), others, ..Usage::default() };
            Sample::median(&[Sample::default().with_thread(&usage)]).notes()
        };
        assert_eq!(notes(0.99, 0.5, 0.0), "load-bound");
        assert_eq!(notes(0.99, 0.99, 0.5), "disturbed:50%");
        assert_eq!(Sample::default().with(LATE_P99_US, 300.0).notes(), "asked-late:300us");
    }

    #[test]
    fn numbers_keep_about_three_digits() {
        let shown = [1234.5, 99.94, 1.005, 0.0, 0.01234].map(measurement);
        assert_eq!(shown, ["1234", "99.9", "1.00", "0", "0.0123"]);
        assert_eq!(Number::percent("", "").text(0.256), "26%");
    }
}
