//! The tables as pictures.

use std::path::Path;

use anyhow::Result;

use super::{
    approach::{Approach, Case, Pace, Section},
    ceiling,
    rows::Distribution,
    table::Row,
};
use crate::{
    chart::{Axis, Chart, Corner, Line, Point, Style, lines, write},
    sample::Sample,
    stats::{float, float_of},
    tables::Rows,
};

const READERS: &str = "from one reader on";
const OFFERED: &str = "by offered load";

/// Draws what was measured and leaves out what was not.
pub fn draw_all(directory: &Path, rows: &Rows<Case>) -> Result<()> {
    for (keys, name) in [
        (Distribution::Uniform, "postgres-batch-size.svg"),
        (Distribution::Runs, "postgres-batch-size-runs.svg"),
    ] {
        write(directory, name, &by_batch_size(rows, keys))?;
    }
    let readers = rows.of_group(Section::LowLoad).map(|row| (float_of(row.case.clients), row));
    let readers: Vec<_> = readers.collect();
    write(directory, "postgres-readers.svg", &times(READERS, "readers", &readers))?;
    let x = "thousand requests per second, offered";
    write(directory, "postgres-rate.svg", &times(OFFERED, x, &by_rate(rows)))
}

/// Throughput and response time by requests per statement: one line for the windows, points for
/// all others.
fn by_batch_size(rows: &Rows<Case>, keys: Distribution) -> Vec<Chart> {
    let rows: Vec<_> =
        rows.of_group(Section::Readers).filter(|row| row.case.keys == keys).collect();
    let clients = rows.iter().map(|row| row.case.clients).max().unwrap_or_default();
    let chart = |title: &str, y: Axis, legend, of: fn(&Sample) -> f64, with_ceiling: bool| {
        let shown = rows.iter().filter(|row| with_ceiling || Kind::of(row) != Kind::Ceiling);
        let point = |row: &&Row| {
            let (label, x, y) = (label(row.case.approach), batch_size(row), of(&row.sample));
            (Kind::of(row), Point { x, y, label })
        };
        let line = |kind: Kind, points| {
            let style = if kind == Kind::Window { Style::Joined } else { Style::Points };
            kind.line(kind.counted_by(), style, points)
        };
        Chart {
            title: format!("{clients} readers, {} keys: {title} by batch size", keys.name()),
            x: Axis::logarithmic("requests per statement, mean", 2.0),
            y,
            lines: lines(shown.map(point), line),
            legend,
        }
    };
    let per_s = Axis::linear("thousand reads per second");
    let ms = Axis::logarithmic("mean response time, ms", 10.0);
    vec![
        chart("throughput", per_s, Corner::UpperLeft, |sample| sample.per_s / 1e3, true),
        // The time of a statement with 1,024 keys is no reader's response time.
        chart("mean response time", ms, Corner::LowerLeft, |sample| sample.mean_us / 1e3, false),
    ]
}

/// Rates that the system kept up with: others have no response time worth showing.
fn by_rate(rows: &Rows<Case>) -> Vec<(f64, &Row)> {
    let keeps_up = |sample: &Sample| {
        !sample.overloaded && sample.unanswered == 0 && sample.failed.refused.count == 0
    };
    let kept = rows.of_group(Section::Rate).filter(|row| keeps_up(&row.sample));
    let rate = |row: &Row| match row.case.pace {
        Pace::Rate(rate) => float(rate) / 1e3,
        Pace::Closed => 0.0,
    };
    kept.map(|row| (rate(row), row)).collect()
}

/// Mean response times and 99th percentiles by something: a line for each kind of row.
fn times(by: &str, x_title: &str, rows: &[(f64, &Row)]) -> Vec<Chart> {
    let chart = |title: &str, y_title: &str, y: fn(&Sample) -> f64| {
        let shown = rows.iter().filter(|(_, row)| row.case.approach != Approach::Memory);
        let points = shown.map(|(x, row)| (Kind::of(row), Point::new(*x, y(&row.sample))));
        Chart {
            title: format!("{title} {by}"),
            x: Axis::logarithmic(x_title, 2.0),
            y: Axis::logarithmic(y_title, 10.0),
            lines: lines(points, |kind, points| kind.line("", Style::Joined, points)),
            legend: Corner::UpperLeft,
        }
    };
    vec![
        chart("Mean response time", "mean response time, us", |sample| sample.mean_us),
        chart("99th percentile", "99th percentile, us", |sample| sample.p99_us),
    ]
}

/// Returns the batch size that Postgres counted, or else the one asked for.
fn batch_size(row: &Row) -> f64 {
    let asked = match row.case.approach {
        Approach::Ceiling { .. } => ceiling::KEYS,
        Approach::Window { keys } => keys,
        _ => 1,
    };
    row.sample.batch.unwrap_or_else(|| float_of(asked)).max(1.0)
}

fn label(approach: Approach) -> String {
    match approach {
        Approach::Window { keys: number }
        | Approach::Plain { connections: number }
        | Approach::Ceiling { connections: number }
        | Approach::Resp { connections: number } => number.to_string(),
        Approach::Library | Approach::Memory => String::new(),
    }
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
    fn of(row: &Row) -> Self {
        match row.case.approach {
            Approach::Ceiling { .. } => Self::Ceiling,
            Approach::Plain { .. } => Self::Plain,
            Approach::Window { .. } => Self::Window,
            Approach::Library => Self::Library,
            Approach::Resp { .. } => Self::Resp,
            Approach::Memory => Self::Memory,
        }
    }

    fn counted_by(self) -> &'static str {
        match self {
            Self::Window => ", by keys",
            Self::Library | Self::Memory => "",
            Self::Ceiling | Self::Plain | Self::Resp => ", by connections",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::postgres::{
        table::{Setting, tests::add},
        tasks::Operation,
    };

    fn rows() -> Rows<Case> {
        let mut rows = Rows::new(Setting::default());
        add(&mut rows, Section::Ceiling, Approach::Ceiling { connections: 2 }, 2, (300e3, 6e3));
        add(&mut rows, Section::Readers, Approach::Plain { connections: 20 }, 300, (40e3, 7e3));
        add(&mut rows, Section::Windows, Approach::Window { keys: 1 }, 300, (25e3, 9e3));
        add(&mut rows, Section::Windows, Approach::Window { keys: 16 }, 300, (100e3, 3e3));
        add(&mut rows, Section::Readers, Approach::Library, 300, (225e3, 1e3));
        rows
    }

    #[test]
    fn windows_are_a_line_and_all_others_points() {
        let charts = by_batch_size(&rows(), Distribution::Uniform);
        let styles: Vec<_> =
            charts[0].lines.iter().map(|line| (line.style, line.points.len())).collect();
        let (joined, points) = (Style::Joined, Style::Points);
        assert_eq!(styles, [(points, 1), (points, 1), (joined, 2), (points, 1)]);
        let label = "16".to_owned();
        assert_eq!(charts[0].lines[2].points[1], Point { x: 16.0, y: 100.0, label });
        assert_eq!(charts[1].lines.len(), 3);
    }

    #[test]
    fn what_was_not_measured_is_not_drawn() {
        let directory =
            crate::cleanup::Cleanup::default().directory(&std::env::temp_dir()).unwrap();
        draw_all(directory.path(), &rows()).unwrap();
        let drawn = std::fs::read_dir(directory.path()).unwrap();
        let drawn: Vec<_> = drawn.map(|file| file.unwrap().file_name()).collect();
        assert_eq!(drawn, ["postgres-batch-size.svg"]);
    }

    #[test]
    fn overloaded_rates_are_left_out() {
        let mut rows = Rows::new(Setting::default());
        for (rate, overloaded) in [(1_000, false), (2_000, true)] {
            let case = Case {
                section: Section::Rate,
                approach: Approach::Library,
                clients: 20,
                pace: Pace::Rate(rate),
                operation: Operation::Read,
                keys: Distribution::Uniform,
            };
            rows.add(case, Sample { mean_us: 5.0, overloaded, ..Sample::default() });
        }
        let charts = times("", "", &by_rate(&rows));
        assert_eq!(charts[0].lines[0].points, [Point::new(1.0, 5.0)]);
    }
}
