//! The tables as pictures.

use std::{collections::BTreeMap, path::Path};

use anyhow::Result;

use super::{
    approach::{Approach, Case, Pace, Section},
    ceiling,
    results::{Measured, Results},
    rows::Distribution,
    sample::Sample,
};
use crate::{
    chart::{Axis, Chart, Corner, Line, Point, Style, write},
    stats::float,
};

/// Draws what was measured; what was not is left out.
pub fn draw_all(directory: &Path, results: &Results) -> Result<()> {
    for keys in [Distribution::Uniform, Distribution::Runs] {
        let name = match keys {
            Distribution::Uniform => "postgres-batch-size.svg",
            Distribution::Runs => "postgres-batch-size-runs.svg",
        };
        write(directory, name, &by_batch_size(results, keys))?;
    }
    write(directory, "postgres-readers.svg", &by_readers(results))?;
    write(directory, "postgres-rate.svg", &by_rate(results))
}

/// Throughput and response time by requests per statement.
fn by_batch_size(results: &Results, keys: Distribution) -> Vec<Chart> {
    let rows = results.of_group(Section::Readers).filter(|row| row.case.keys == keys);
    let rows: Vec<_> = rows.collect();
    let clients = rows.iter().map(|row| row.case.clients).max().unwrap_or_default();
    let lines = |y: fn(&Sample) -> f64, with_ceiling: bool| {
        let rows = rows.iter().filter(|row| with_ceiling || !is_ceiling(&row.case));
        lines(rows.copied(), batch_size, y)
    };
    let x = || Axis::logarithmic("requests per statement, mean", 2.0);
    vec![
        Chart {
            title: format!("{clients} readers, {} keys: throughput by batch size", keys.name()),
            x: x(),
            y: Axis::linear("thousand reads per second"),
            lines: lines(|sample| sample.per_s / 1e3, true),
            legend: Corner::UpperLeft,
        },
        Chart {
            title: format!(
                "{clients} readers, {} keys: mean response time by batch size",
                keys.name()
            ),
            x: x(),
            y: Axis::logarithmic("mean response time, ms", 10.0),
            lines: lines(|sample| sample.mean_us / 1e3, false),
            legend: Corner::LowerLeft,
        },
    ]
}

fn by_readers(results: &Results) -> Vec<Chart> {
    let chart = |title: &str, y_title: &str, y: fn(&Sample) -> f64| Chart {
        title: title.to_owned(),
        x: Axis::logarithmic("readers", 2.0),
        y: Axis::logarithmic(y_title, 10.0),
        lines: curves(results.of_group(Section::LowLoad), |case| float_of(case.clients), y),
        legend: Corner::UpperLeft,
    };
    vec![
        chart("Mean response time from one reader on", "mean response time, us", |sample| {
            sample.mean_us
        }),
        chart("99th percentile from one reader on", "99th percentile, us", |sample| sample.p99_us),
    ]
}

/// Rates at which requests were left over have no response time worth showing.
fn by_rate(results: &Results) -> Vec<Chart> {
    let chart = |title: &str, y_title: &str, y: fn(&Sample) -> f64| {
        let kept = results.of_group(Section::Rate).filter(|row| keeps_up(&row.sample));
        let rate = |case: &Case| match case.pace {
            Pace::Rate(rate) => float(rate) / 1e3,
            Pace::Closed => 0.0,
        };
        Chart {
            title: title.to_owned(),
            x: Axis::logarithmic("thousand requests per second, offered", 2.0),
            y: Axis::logarithmic(y_title, 10.0),
            lines: curves(kept, rate, y),
            legend: Corner::UpperLeft,
        }
    };
    vec![
        chart("Mean response time by offered load", "mean response time, us", |sample| {
            sample.mean_us
        }),
        chart("99th percentile by offered load", "99th percentile, us", |sample| sample.p99_us),
    ]
}

fn keeps_up(sample: &Sample) -> bool {
    !sample.overloaded && sample.unanswered == 0 && sample.failed.refused.count == 0
}

fn is_ceiling(case: &Case) -> bool {
    matches!(case.approach, Approach::Ceiling { .. })
}

/// What was counted; where nothing was, what was asked for.
fn batch_size(row: &Measured) -> f64 {
    let asked = match row.case.approach {
        Approach::Ceiling { .. } => ceiling::KEYS,
        Approach::Window { keys } => keys,
        _ => 1,
    };
    row.sample.batch.unwrap_or_else(|| float_of(asked)).max(1.0)
}

/// One line for the windows, points for all others.
fn lines<'a>(
    rows: impl Iterator<Item = &'a Measured>,
    x: fn(&Measured) -> f64,
    y: fn(&Sample) -> f64,
) -> Vec<Line> {
    let mut kinds: BTreeMap<Kind, Vec<Point>> = BTreeMap::new();
    for row in rows {
        let label = match row.case.approach {
            Approach::Window { keys } => keys.to_string(),
            Approach::Plain { connections } | Approach::Ceiling { connections } => {
                connections.to_string()
            }
            Approach::Resp { connections } => connections.to_string(),
            Approach::Library | Approach::Memory => String::new(),
        };
        kinds.entry(Kind::of(row.case.approach)).or_default().push(Point {
            x: x(row),
            y: y(&row.sample),
            label,
        });
    }
    let by = |kind| match kind {
        Kind::Window => ", by keys",
        Kind::Library | Kind::Memory => "",
        Kind::Ceiling | Kind::Plain | Kind::Resp => ", by connections",
    };
    let style = |kind| if kind == Kind::Window { Style::Joined } else { Style::Points };
    kinds.into_iter().map(|(kind, points)| kind.line(by(kind), style(kind), points)).collect()
}

/// One line for each kind.
fn curves<'a>(
    rows: impl Iterator<Item = &'a Measured>,
    x: impl Fn(&Case) -> f64,
    y: fn(&Sample) -> f64,
) -> Vec<Line> {
    let mut kinds: BTreeMap<Kind, Vec<Point>> = BTreeMap::new();
    for row in rows.filter(|row| row.case.approach != Approach::Memory) {
        let point = Point { x: x(&row.case), y: y(&row.sample), label: String::new() };
        kinds.entry(Kind::of(row.case.approach)).or_default().push(point);
    }
    kinds.into_iter().map(|(kind, points)| kind.line("", Style::Joined, points)).collect()
}

/// Rows that share a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Ceiling,
    Plain,
    Window,
    Library,
    Resp,
    Memory,
}

impl Kind {
    fn of(approach: Approach) -> Self {
        match approach {
            Approach::Ceiling { .. } => Self::Ceiling,
            Approach::Plain { .. } => Self::Plain,
            Approach::Window { .. } => Self::Window,
            Approach::Library => Self::Library,
            Approach::Resp { .. } => Self::Resp,
            Approach::Memory => Self::Memory,
        }
    }

    fn line(self, by: &str, style: Style, points: Vec<Point>) -> Line {
        let (title, colour) = match self {
            Self::Ceiling => ("1,024 keys a statement", (110, 110, 110)),
            Self::Plain => ("not batched", (200, 60, 50)),
            Self::Window => ("fixed window", (225, 145, 20)),
            Self::Library => ("busload in process", (20, 100, 200)),
            Self::Resp => ("busload over RESP", (20, 150, 110)),
            Self::Memory => ("memory table", (150, 80, 170)),
        };
        Line { title: format!("{title}{by}"), colour, style, points }
    }
}

fn float_of(count: usize) -> f64 {
    float(u64::try_from(count).expect("a count fits in 64 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::postgres::results::tests::add;

    fn results() -> Results {
        let mut results = Results::default();
        add(&mut results, Section::Ceiling, Approach::Ceiling { connections: 2 }, 2, (300e3, 6e3));
        add(&mut results, Section::Readers, Approach::Plain { connections: 20 }, 300, (40e3, 7e3));
        add(&mut results, Section::Windows, Approach::Window { keys: 1 }, 300, (25e3, 9e3));
        add(&mut results, Section::Windows, Approach::Window { keys: 16 }, 300, (100e3, 3e3));
        add(&mut results, Section::Readers, Approach::Library, 300, (225e3, 1e3));
        results
    }

    #[test]
    fn windows_are_a_line_and_all_others_points() {
        let charts = by_batch_size(&results(), Distribution::Uniform);
        let styles: Vec<_> =
            charts[0].lines.iter().map(|line| (line.style, line.points.len())).collect();
        assert_eq!(
            styles,
            [(Style::Points, 1), (Style::Points, 1), (Style::Joined, 2), (Style::Points, 1)]
        );
        assert_eq!(
            charts[0].lines[2].points[1],
            Point { x: 16.0, y: 100.0, label: "16".to_owned() }
        );
        // The time of a statement with 1,024 keys is no reader's response time.
        assert_eq!(charts[1].lines.len(), 3);
    }

    #[test]
    fn what_was_not_measured_is_not_drawn() {
        let directory =
            crate::cleanup::Cleanup::default().directory(&std::env::temp_dir()).unwrap();
        draw_all(directory.path(), &results()).unwrap();
        let drawn: Vec<_> = std::fs::read_dir(directory.path())
            .unwrap()
            .map(|file| file.unwrap().file_name())
            .collect();
        assert_eq!(drawn, ["postgres-batch-size.svg"]);
    }

    #[test]
    fn overloaded_rates_are_left_out() {
        let mut results = Results::default();
        for (rate, overloaded) in [(1_000, false), (2_000, true)] {
            let case = Case {
                section: Section::Rate,
                approach: Approach::Library,
                clients: 20,
                pace: Pace::Rate(rate),
                operation: crate::experiment::postgres::tasks::Operation::Read,
                keys: Distribution::Uniform,
            };
            results.add(case, Sample { mean_us: 5.0, overloaded, ..Sample::default() });
        }
        let charts = by_rate(&results);
        assert_eq!(charts[0].lines[0].points, [Point { x: 1.0, y: 5.0, label: String::new() }]);
    }
}
