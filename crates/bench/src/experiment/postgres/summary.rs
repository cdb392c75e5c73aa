//! The numbers that were set as targets, computed from medians.

use super::{
    approach::{Approach, Case, Section},
    rows::Distribution,
    table::Row,
};
use crate::{
    report::measurement,
    stats::ratio,
    tables::Rows,
    targets::{
        self, Target,
        Unit::{self, Percent, Times},
        Wanted::{self, AtLeast, AtMost},
    },
};

/// Readers up to which a lone request is looked at.
const LOW_LOAD_MAX: usize = 10;

/// Windows in keys that the published program was run with.
const PUBLISHED_WINDOWS: [usize; 3] = [16, 24, 32];

/// Prints the targets, if there is anything to compare.
pub fn print(rows: &Rows<Case>) {
    let targets = numbers(rows);
    if targets.iter().any(|target| target.value.is_some()) {
        targets::print(&targets);
    }
}

fn numbers(rows: &Rows<Case>) -> Vec<Target> {
    let Some(first) = rows.rows().first() else { return Vec::new() };
    let numbers = Numbers { rows, keys: first.case.keys };
    [numbers.many_readers(), numbers.windows(), numbers.one_reader(), numbers.upserts()].concat()
}

/// Unit of both sides of a quotient.
#[derive(Clone, Copy)]
enum Of {
    PerSecond,
    Microseconds,
}

fn target(
    what: String,
    unit: Unit,
    (value, base, of): (Option<f64>, Option<f64>, Of),
    wanted: Wanted,
) -> Target {
    let text = |value: f64| match of {
        Of::PerSecond => format!("{} k/s", measurement(value / 1e3)),
        Of::Microseconds => format!("{} us", measurement(value)),
    };
    let both = value.zip(base);
    let quotient = both.map(|(value, base)| format!("{} by {}", text(value), text(base)));
    let quotient = quotient.unwrap_or_default();
    Target {
        what,
        unit,
        value: both.and_then(|(value, base)| ratio(value, base)),
        wanted,
        quotient,
    }
}

/// Finds the rows that numbers are made of.
struct Numbers<'a> {
    rows: &'a Rows<Case>,
    keys: Distribution,
}

impl Numbers<'_> {
    fn many_readers(&self) -> Vec<Target> {
        let per_s = |chosen: fn(&Case) -> bool| self.throughput(Section::Readers, chosen);
        let (library, plain) = (per_s(is_library), per_s(is_plain));
        let ceiling = per_s(|case| case.approach == Approach::Ceiling { connections: 2 });
        let readers = self.readers();
        let line = |what: &str, unit, value, base, wanted| {
            target(format!("{readers} readers {what}"), unit, (value, base, Of::PerSecond), wanted)
        };
        let (pipelined, unpipelined) = (per_s(is_pipelined), per_s(is_unpipelined));
        let each = "over RESP, a connection each, beside the best not batched";
        vec![
            line("in process, of the ceiling", Percent, library, ceiling, AtLeast(0.75)),
            line("in process, beside the best not batched", Times, library, plain, AtLeast(5.0)),
            line("over RESP, pipelined, of the ceiling", Percent, pipelined, ceiling, AtLeast(0.6)),
            line(each, Times, unpipelined, plain, AtLeast(2.0)),
        ]
    }

    fn windows(&self) -> Vec<Target> {
        let per_s = |chosen: fn(&Case) -> bool| self.throughput(Section::Windows, chosen);
        let (library, best) = (per_s(is_library), per_s(is_window));
        let published = per_s(|case| {
            PUBLISHED_WINDOWS.iter().any(|keys| case.approach == Approach::Window { keys: *keys })
        });
        let readers = self.readers();
        let line = |what: &str, base, wanted| {
            let what = format!("{readers} readers in process, beside the {what}");
            target(what, Times, (library, base, Of::PerSecond), AtLeast(wanted))
        };
        let mut targets = vec![
            line("best window", best, 1.0),
            line("published windows (16 to 32 keys)", published, 1.5),
        ];
        targets.extend(self.windows_at_low_load());
        targets
    }

    fn windows_at_low_load(&self) -> Vec<Target> {
        let rows = self.rows.of_group(Section::LowLoad);
        let few = rows.filter(|row| is_library(&row.case) && row.case.clients <= LOW_LOAD_MAX);
        let targets: Vec<_> = few.map(|row| self.window_at(row)).collect();
        if !targets.is_empty() {
            return targets;
        }
        let what = "readers in process, mean response time beside the window's";
        vec![Target::new(&format!("1 to {LOW_LOAD_MAX} {what}"), Percent, None, AtMost(0.5))]
    }

    fn window_at(&self, library: &Row) -> Target {
        let clients = library.case.clients;
        let is_it = |case: &Case| is_window(case) && case.clients == clients;
        let window = self.rows.first(Section::LowLoad, is_it).map(|row| row.sample.mean_us);
        let s = if clients == 1 { "" } else { "s" };
        let what = "in process, mean response time beside the best window's";
        let times = (Some(library.sample.mean_us), window, Of::Microseconds);
        target(format!("{clients} reader{s} {what}"), Percent, times, AtMost(0.5))
    }

    fn one_reader(&self) -> Vec<Target> {
        let p50_us = |chosen: fn(&Case) -> bool| {
            let is_it = |case: &Case| case.clients == 1 && chosen(case);
            self.rows.first(Section::LowLoad, is_it).map(|row| row.sample.p50_us)
        };
        let (plain, library) = (p50_us(is_plain), p50_us(is_library));
        let resp = p50_us(|case| matches!(case.approach, Approach::Resp { .. }));
        let memory = p50_us(|case| case.approach == Approach::Memory);
        let more = resp.zip(plain).map(|(resp, plain)| resp - plain);
        let line = |what: &str, unit, value, base, wanted| {
            target(format!("1 reader {what}"), unit, (value, base, Of::Microseconds), wanted)
        };
        let round_trips = "over RESP, p50 above the plain one's in memory-table round trips";
        let statement = "in process, p50 beside the plain statement's";
        vec![
            line(statement, Percent, library, plain, AtMost(1.15)),
            line(round_trips, Times, more, memory, AtMost(1.5)),
        ]
    }

    fn upserts(&self) -> Vec<Target> {
        let per_s = |chosen: fn(&Case) -> bool| self.throughput(Section::Upserts, chosen);
        let plain = per_s(is_plain);
        let first = self.rows.first(Section::Upserts, |_| true);
        let writers = first.map_or(300, |row| row.case.clients);
        let line = |what: &str, value, wanted| {
            let what = format!("{writers} writers {what}, beside the best not batched");
            target(what, Times, (value, plain, Of::PerSecond), wanted)
        };
        vec![
            line("in process", per_s(is_library), AtLeast(5.0)),
            line("over RESP, pipelined", per_s(is_pipelined), Wanted::Nothing),
            line("over RESP, a connection each", per_s(is_unpipelined), Wanted::Nothing),
        ]
    }

    /// Rows per second of the fastest row that `chosen` picks.
    fn throughput(&self, section: Section, chosen: impl Fn(&Case) -> bool) -> Option<f64> {
        let row = self.rows.fastest(section, |case| case.keys == self.keys && chosen(case));
        row.map(|row| row.sample.per_s)
    }

    fn readers(&self) -> usize {
        let is_reader = |case: &Case| !matches!(case.approach, Approach::Ceiling { .. });
        self.rows.first(Section::Readers, is_reader).map_or(300, |row| row.case.clients)
    }
}

fn is_library(case: &Case) -> bool {
    case.approach == Approach::Library
}

fn is_window(case: &Case) -> bool {
    matches!(case.approach, Approach::Window { .. })
}

fn is_plain(case: &Case) -> bool {
    case.approach.is_plain()
}

fn is_pipelined(case: &Case) -> bool {
    matches!(case.approach, Approach::Resp { connections } if connections < case.clients)
}

fn is_unpipelined(case: &Case) -> bool {
    matches!(case.approach, Approach::Resp { connections } if case.clients <= connections)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::postgres::table::{Setting, tests::add};

    fn rows() -> Rows<Case> {
        let plain = |connections| Approach::Plain { connections };
        let resp = |connections| Approach::Resp { connections };
        let ceiling = |connections| Approach::Ceiling { connections };
        let window = |keys| Approach::Window { keys };
        let mut rows = Rows::new(Setting::default());
        for (section, approach, clients, measurements) in [
            (Section::Ceiling, ceiling(1), 1, (200e3, 100.0)),
            (Section::Ceiling, ceiling(2), 2, (300e3, 100.0)),
            (Section::Readers, plain(20), 300, (40e3, 100.0)),
            (Section::Readers, plain(50), 300, (30e3, 100.0)),
            (Section::Readers, Approach::Library, 300, (225e3, 100.0)),
            (Section::Readers, resp(20), 300, (150e3, 100.0)),
            (Section::Readers, resp(300), 300, (90e3, 100.0)),
            (Section::Windows, window(16), 300, (100e3, 100.0)),
            (Section::Windows, window(64), 300, (250e3, 100.0)),
            (Section::LowLoad, Approach::Memory, 1, (1.0, 20.0)),
            (Section::LowLoad, plain(1), 1, (1.0, 100.0)),
            (Section::LowLoad, window(64), 1, (1.0, 600.0)),
            (Section::LowLoad, Approach::Library, 1, (1.0, 110.0)),
            (Section::LowLoad, resp(1), 1, (1.0, 140.0)),
            (Section::LowLoad, Approach::Library, 50, (1.0, 600.0)),
            (Section::Upserts, plain(10), 300, (10e3, 100.0)),
            (Section::Upserts, Approach::Library, 300, (60e3, 100.0)),
        ] {
            add(&mut rows, section, approach, clients, measurements);
        }
        rows
    }

    #[test]
    fn every_number_stands_beside_its_target() {
        let shown: Vec<_> = numbers(&rows()).iter().map(Target::shown).collect();
        let verdicts = [
            "of the ceiling | 75.0% | at least 75.0% | reached | 225 k/s by 300 k/s",
            "not batched | 5.62x | at least 5.00x | reached | 225 k/s by 40.0 k/s",
            "of the ceiling | 50.0% | at least 60.0% | NOT REACHED | 150 k/s by 300 k/s",
            "not batched | 2.25x | at least 2.00x | reached | 90.0 k/s by 40.0 k/s",
            "best window | 0.90x | at least 1.00x | NOT REACHED | 225 k/s by 250 k/s",
            "(16 to 32 keys) | 2.25x | at least 1.50x | reached | 225 k/s by 100 k/s",
            "best window's | 18.3% | at most 50.0% | reached | 110 us by 600 us",
            "statement's | 110.0% | at most 115.0% | reached | 110 us by 100 us",
            "round trips | 2.00x | at most 1.50x | NOT REACHED | 40.0 us by 20.0 us",
            "not batched | 6.00x | at least 5.00x | reached | 60.0 k/s by 10.0 k/s",
            "not batched | - |  | not measured",
            "not batched | - |  | not measured",
        ];
        assert_eq!(shown.len(), verdicts.len());
        for (shown, verdict) in shown.iter().zip(verdicts) {
            assert!(shown.ends_with(verdict), "{shown} does not end with {verdict}");
        }
        assert!(shown[8].starts_with("1 reader over RESP, p50 above the plain one's"));
    }

    #[test]
    fn what_was_not_measured_is_said_to_be_so() {
        let mut rows = Rows::new(Setting::default());
        add(&mut rows, Section::Readers, Approach::Library, 300, (225e3, 1.0));
        let shown: Vec<_> = numbers(&rows).iter().map(Target::shown).collect();
        assert!(shown.iter().all(|shown| shown.ends_with("not measured")), "{shown:?}");
        assert!(numbers(&Rows::new(Setting::default())).is_empty());
    }
}
