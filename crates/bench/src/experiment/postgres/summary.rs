//! What the experiment is to show: each number that was set as a target beside what was measured.
//!
//! All of it is computed from medians. A number whose rows were not measured is said to be so,
//! never guessed.

use super::{
    approach::{Approach, Case, Section},
    results::{Measured, Results},
    rows::Distribution,
};
use crate::{
    report::{self, Column, measurement, number, text},
    stats::ratio,
};

const COLUMNS: &[Column] = &[
    text("number", 74),
    number("measured", 8),
    text("wanted", 13),
    text("", 12),
    text("that is", 7),
];

/// Readers up to which a lone request is looked at.
const LOW_LOAD_MAX: usize = 10;

/// Windows in keys that the published program was run with.
const PUBLISHED_WINDOWS: [usize; 3] = [16, 24, 32];

/// How a number is written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Percent,
    Times,
}

/// What is divided by what.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Quotient {
    value: f64,
    base: f64,
    unit: Unit,
}

/// Of both sides of a quotient.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Unit {
    PerSecond,
    Microseconds,
}

impl Quotient {
    fn text(&self) -> String {
        let write = |value: f64| match self.unit {
            Unit::PerSecond => format!("{} k/s", measurement(value / 1e3)),
            Unit::Microseconds => format!("{} us", measurement(value)),
        };
        format!("{} by {}", write(self.value), write(self.base))
    }
}

/// What a number is to be.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wanted {
    AtLeast(f64),
    AtMost(f64),
    /// It is only told.
    Nothing,
}

#[derive(Clone, Debug, PartialEq)]
struct Line {
    what: String,
    form: Form,
    quotient: Option<Quotient>,
    wanted: Wanted,
}

impl Line {
    fn value(&self) -> Option<f64> {
        self.quotient.and_then(|quotient| ratio(quotient.value, quotient.base))
    }

    fn is_reached(&self) -> Option<bool> {
        let value = self.value()?;
        match self.wanted {
            Wanted::AtLeast(wanted) => Some(wanted <= value),
            Wanted::AtMost(wanted) => Some(value <= wanted),
            Wanted::Nothing => None,
        }
    }

    fn cases(&self) -> Vec<String> {
        let write = |value: f64| match self.form {
            Form::Percent => format!("{:.1}%", value * 100.0),
            Form::Times => format!("{}x", measurement(value)),
        };
        let wanted = match self.wanted {
            Wanted::AtLeast(wanted) => format!("at least {}", plain(self.form, wanted)),
            Wanted::AtMost(wanted) => format!("at most {}", plain(self.form, wanted)),
            Wanted::Nothing => String::new(),
        };
        let verdict = match (self.value(), self.is_reached()) {
            (None, _) => "not measured",
            (_, Some(true)) => "reached",
            (_, Some(false)) => "NOT REACHED",
            (_, None) => "",
        };
        let measured = self.value().map_or("-".to_owned(), write);
        let quotient = self.quotient.as_ref().map(Quotient::text).unwrap_or_default();
        vec![self.what.clone(), measured, wanted, verdict.to_owned(), quotient]
    }
}

/// A target without digits that say nothing.
fn plain(form: Form, value: f64) -> String {
    match form {
        Form::Percent => format!("{:.0}%", value * 100.0),
        Form::Times => format!("{value}x"),
    }
}

/// Prints them, if there is anything to compare.
pub fn print(results: &Results) {
    let lines = lines(results);
    if lines.iter().all(|line| line.value().is_none()) {
        return;
    }
    report::print("Numbers, from the medians above", COLUMNS, lines.iter().map(Line::cases));
}

fn lines(results: &Results) -> Vec<Line> {
    let Some(first) = results.rows().first() else { return Vec::new() };
    let numbers = Numbers { results, keys: first.case.keys };
    [numbers.many_readers(), numbers.windows(), numbers.one_reader(), numbers.upserts()].concat()
}

/// Finds the rows that numbers are made of.
struct Numbers<'a> {
    results: &'a Results,
    keys: Distribution,
}

impl Numbers<'_> {
    fn many_readers(&self) -> Vec<Line> {
        let section = Section::Readers;
        let library = self.throughput(section, |case| case.approach == Approach::Library);
        let ceiling =
            self.throughput(section, |case| case.approach == Approach::Ceiling { connections: 2 });
        let plain = self.throughput(section, is_plain);
        let pipelined = self.throughput(section, is_pipelined);
        let unpipelined = self.throughput(section, is_unpipelined);
        let readers = self.readers();
        let line = |what: &str, form, quotient, wanted| Line {
            what: format!("{readers} readers {what}"),
            form,
            quotient,
            wanted,
        };
        vec![
            line(
                "in process, of the ceiling",
                Form::Percent,
                of(library, ceiling),
                Wanted::AtLeast(0.75),
            ),
            line(
                "in process, beside the best not batched",
                Form::Times,
                of(library, plain),
                Wanted::AtLeast(5.0),
            ),
            line(
                "over RESP, pipelined, of the ceiling",
                Form::Percent,
                of(pipelined, ceiling),
                Wanted::AtLeast(0.6),
            ),
            line(
                "over RESP, a connection each, beside the best not batched",
                Form::Times,
                of(unpipelined, plain),
                Wanted::AtLeast(2.0),
            ),
        ]
    }

    fn windows(&self) -> Vec<Line> {
        let section = Section::Windows;
        let library = self.throughput(section, |case| case.approach == Approach::Library);
        let best =
            self.throughput(section, |case| matches!(case.approach, Approach::Window { .. }));
        let published = self.throughput(section, |case| {
            PUBLISHED_WINDOWS.iter().any(|keys| case.approach == Approach::Window { keys: *keys })
        });
        let readers = self.readers();
        let mut lines = vec![
            Line {
                what: format!("{readers} readers in process, beside the best window"),
                form: Form::Times,
                quotient: of(library, best),
                wanted: Wanted::AtLeast(1.0),
            },
            Line {
                what: format!(
                    "{readers} readers in process, beside the published windows (16 to 32 keys)"
                ),
                form: Form::Times,
                quotient: of(library, published),
                wanted: Wanted::AtLeast(1.5),
            },
        ];
        lines.extend(self.windows_at_low_load());
        lines
    }

    fn windows_at_low_load(&self) -> Vec<Line> {
        let rows = self.results.of_group(Section::LowLoad);
        let is_library = |row: &&Measured| row.case.approach == Approach::Library;
        let few = rows.filter(is_library).filter(|row| row.case.clients <= LOW_LOAD_MAX);
        let lines: Vec<_> = few.map(|row| self.window_at(row)).collect();
        if !lines.is_empty() {
            return lines;
        }
        vec![Line {
            what: format!(
                "1 to {LOW_LOAD_MAX} readers in process, mean response time beside the window's"
            ),
            form: Form::Percent,
            quotient: None,
            wanted: Wanted::AtMost(0.5),
        }]
    }

    fn window_at(&self, library: &Measured) -> Line {
        let clients = library.case.clients;
        let window = self.results.first(Section::LowLoad, |case| {
            matches!(case.approach, Approach::Window { .. }) && case.clients == clients
        });
        let quotient =
            of_times(Some(library.sample.mean_us), window.map(|window| window.sample.mean_us));
        let s = if clients == 1 { "" } else { "s" };
        Line {
            what: format!(
                "{clients} reader{s} in process, mean response time beside the best window's"
            ),
            form: Form::Percent,
            quotient,
            wanted: Wanted::AtMost(0.5),
        }
    }

    fn one_reader(&self) -> Vec<Line> {
        let p50_us = |chosen: fn(&Case) -> bool| {
            let row =
                self.results.first(Section::LowLoad, |case| case.clients == 1 && chosen(case));
            row.map(|row| row.sample.p50_us)
        };
        let plain = p50_us(is_plain);
        let library = p50_us(|case| case.approach == Approach::Library);
        let resp = p50_us(|case| matches!(case.approach, Approach::Resp { .. }));
        let memory = p50_us(|case| case.approach == Approach::Memory);
        let more = resp.zip(plain).map(|(resp, plain)| resp - plain);
        vec![
            Line {
                what: "1 reader in process, p50 beside the plain statement's".to_owned(),
                form: Form::Percent,
                quotient: of_times(library, plain),
                wanted: Wanted::AtMost(1.15),
            },
            Line {
                what: "1 reader over RESP, p50 above the plain one's in memory-table round trips"
                    .to_owned(),
                form: Form::Times,
                quotient: of_times(more, memory),
                wanted: Wanted::AtMost(1.5),
            },
        ]
    }

    fn upserts(&self) -> Vec<Line> {
        let section = Section::Upserts;
        let plain = self.throughput(section, is_plain);
        let writers = self.results.first(section, |_| true).map_or(300, |row| row.case.clients);
        let line = |what: &str, quotient, wanted| Line {
            what: format!("{writers} writers {what}, beside the best not batched"),
            form: Form::Times,
            quotient,
            wanted,
        };
        let library = self.throughput(section, |case| case.approach == Approach::Library);
        let pipelined = self.throughput(section, is_pipelined);
        let unpipelined = self.throughput(section, is_unpipelined);
        vec![
            line("in process", of(library, plain), Wanted::AtLeast(5.0)),
            line("over RESP, pipelined", of(pipelined, plain), Wanted::Nothing),
            line("over RESP, a connection each", of(unpipelined, plain), Wanted::Nothing),
        ]
    }

    /// Rows per second of the fastest row that `chosen` picks.
    fn throughput(&self, section: Section, chosen: impl Fn(&Case) -> bool) -> Option<f64> {
        let row = self.results.fastest(section, |case| case.keys == self.keys && chosen(case));
        row.map(|row| row.sample.per_s)
    }

    fn readers(&self) -> usize {
        let row = self
            .results
            .first(Section::Readers, |case| !matches!(case.approach, Approach::Ceiling { .. }));
        row.map_or(300, |row| row.case.clients)
    }
}

fn is_plain(case: &Case) -> bool {
    matches!(case.approach, Approach::Plain { .. })
}

fn is_pipelined(case: &Case) -> bool {
    matches!(case.approach, Approach::Resp { connections } if connections < case.clients)
}

fn is_unpipelined(case: &Case) -> bool {
    matches!(case.approach, Approach::Resp { connections } if case.clients <= connections)
}

fn of(value: Option<f64>, base: Option<f64>) -> Option<Quotient> {
    value.zip(base).map(|(value, base)| Quotient { value, base, unit: Unit::PerSecond })
}

fn of_times(value: Option<f64>, base: Option<f64>) -> Option<Quotient> {
    value.zip(base).map(|(value, base)| Quotient { value, base, unit: Unit::Microseconds })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::postgres::results::tests::add;

    fn plain_of(connections: usize) -> Approach {
        Approach::Plain { connections }
    }

    fn results() -> Results {
        let mut results = Results::default();
        let us = 100.0;
        add(&mut results, Section::Ceiling, Approach::Ceiling { connections: 1 }, 1, (200e3, us));
        add(&mut results, Section::Ceiling, Approach::Ceiling { connections: 2 }, 2, (300e3, us));
        add(&mut results, Section::Readers, plain_of(20), 300, (40e3, us));
        add(&mut results, Section::Readers, plain_of(50), 300, (30e3, us));
        add(&mut results, Section::Readers, Approach::Library, 300, (225e3, us));
        add(&mut results, Section::Readers, Approach::Resp { connections: 20 }, 300, (150e3, us));
        add(&mut results, Section::Readers, Approach::Resp { connections: 300 }, 300, (90e3, us));
        add(&mut results, Section::Windows, Approach::Window { keys: 16 }, 300, (100e3, us));
        add(&mut results, Section::Windows, Approach::Window { keys: 64 }, 300, (250e3, us));
        add(&mut results, Section::LowLoad, Approach::Memory, 1, (1.0, 20.0));
        add(&mut results, Section::LowLoad, plain_of(1), 1, (1.0, 100.0));
        add(&mut results, Section::LowLoad, Approach::Window { keys: 64 }, 1, (1.0, 600.0));
        add(&mut results, Section::LowLoad, Approach::Library, 1, (1.0, 110.0));
        add(&mut results, Section::LowLoad, Approach::Resp { connections: 1 }, 1, (1.0, 140.0));
        add(&mut results, Section::LowLoad, Approach::Window { keys: 64 }, 50, (1.0, 600.0));
        add(&mut results, Section::LowLoad, Approach::Library, 50, (1.0, 600.0));
        add(&mut results, Section::Upserts, plain_of(10), 300, (10e3, us));
        add(&mut results, Section::Upserts, Approach::Library, 300, (60e3, us));
        results
    }

    fn shown(results: &Results) -> String {
        let rows = lines(results).iter().map(|line| line.cases().join(" | ")).collect::<Vec<_>>();
        rows.join("\n")
    }

    #[test]
    fn every_number_stands_beside_its_target() {
        assert_eq!(
            shown(&results()),
            "300 readers in process, of the ceiling | 75.0% | at least 75% | reached | 225 k/s by 300 k/s
300 readers in process, beside the best not batched | 5.62x | at least 5x | reached | 225 k/s by 40.0 k/s
300 readers over RESP, pipelined, of the ceiling | 50.0% | at least 60% | NOT REACHED | 150 k/s by 300 k/s
300 readers over RESP, a connection each, beside the best not batched | 2.25x | at least 2x | reached | 90.0 k/s by 40.0 k/s
300 readers in process, beside the best window | 0.90x | at least 1x | NOT REACHED | 225 k/s by 250 k/s
300 readers in process, beside the published windows (16 to 32 keys) | 2.25x | at least 1.5x | reached | 225 k/s by 100 k/s
1 reader in process, mean response time beside the best window's | 18.3% | at most 50% | reached | 110 us by 600 us
1 reader in process, p50 beside the plain statement's | 110.0% | at most 115% | reached | 110 us by 100 us
1 reader over RESP, p50 above the plain one's in memory-table round trips | 2.00x | at most 1.5x | NOT REACHED | 40.0 us by 20.0 us
300 writers in process, beside the best not batched | 6.00x | at least 5x | reached | 60.0 k/s by 10.0 k/s
300 writers over RESP, pipelined, beside the best not batched | - |  | not measured | \n\
300 writers over RESP, a connection each, beside the best not batched | - |  | not measured | "
        );
    }

    #[test]
    fn what_was_not_measured_is_said_to_be_so() {
        let mut results = Results::default();
        add(&mut results, Section::Readers, Approach::Library, 300, (225e3, 1.0));
        let lines = lines(&results);
        assert!(lines.iter().all(|line| line.value().is_none() && line.is_reached().is_none()));
        assert_eq!(lines[0].cases()[3], "not measured");
        assert!(super::lines(&Results::default()).is_empty());
    }

    #[test]
    fn a_verdict_is_not_rounded() {
        let line = |value, wanted| Line {
            what: String::new(),
            form: Form::Percent,
            quotient: of(Some(value), Some(1.0)),
            wanted,
        };
        assert_eq!(line(0.7499, Wanted::AtLeast(0.75)).is_reached(), Some(false));
        assert_eq!(line(0.7499, Wanted::AtLeast(0.75)).cases()[1], "75.0%");
        assert_eq!(line(0.5001, Wanted::AtMost(0.5)).is_reached(), Some(false));
    }
}
