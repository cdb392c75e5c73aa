//! Conclusions from the rows: charts, and the numbers that were set as targets.

use std::path::Path;

use anyhow::Result;

use super::{
    cases::{Approach, Case, Pace, Section},
    direct::CEILING_KEYS,
    rows::Distribution,
    table::{BATCH, fastest, value_name},
};
use crate::{
    harness::{
        Axis, Chart, Number, Point, Row, Target,
        Unit::{self, Percent, Times},
        Wanted::{self, AtLeast, AtMost, Nothing},
        draw,
        sample::{MEAN_US, P50_US, P99_US, PER_S},
    },
    stats::{float, float_of, ratio},
};

/// Draws what was measured and leaves out what was not.
pub fn draw_all(directory: &Path, rows: &[Row<Case>]) -> Result<()> {
    for (keys, name) in [
        (Distribution::Uniform, "postgres-batch-size.svg"),
        (Distribution::Runs, "postgres-batch-size-runs.svg"),
    ] {
        draw(directory, name, &by_batch_size(rows, keys))?;
    }
    let readers = "readers";
    draw(
        directory,
        "postgres-readers.svg",
        &times(rows, readers, |row| {
            (row.case.section == Section::LowLoad).then(|| float_of(row.case.clients))
        }),
    )?;
    let offered = "thousand requests per second, offered";
    draw(directory, "postgres-rate.svg", &times(rows, offered, by_rate))
}

/// Returns the rate of a row that kept up with it: others have no response time worth showing.
fn by_rate(row: &Row<Case>) -> Option<f64> {
    let Pace::Rate(rate) = row.case.pace else { return None };
    let is_behind = row.sample.has_flag("overloaded")
        || 0 < row.sample.counted("unanswered")
        || 0 < row.sample.failed.refused.count;
    (!is_behind).then(|| float(rate) / 1e3)
}

/// Draws throughput and response time by requests per statement: one line for the windows, dots for
/// all others.
fn by_batch_size(rows: &[Row<Case>], keys: Distribution) -> [Chart; 2] {
    let is_shown = |case: &Case| case.section.is_beside(Section::Readers) && case.keys == keys;
    let rows: Vec<_> = rows.iter().filter(|row| is_shown(&row.case)).collect();
    let chart = |title: &str, y: Axis, of: Number, with_ceiling: bool| {
        let points = |is_window: bool| {
            rows.iter().filter_map(move |row| {
                let (asked, is_shown) = match row.case.approach {
                    Approach::Ceiling(_) => (CEILING_KEYS, with_ceiling && !is_window),
                    Approach::Window(keys) => (keys, is_window),
                    _ => (1, !is_window),
                };
                // What Postgres counted, or else what was asked for.
                let x = row.sample.get(BATCH).unwrap_or_else(|| float_of(asked)).max(1.0);
                let (kind, label) = row.case.approach.parts();
                let point = Point { x, y: row.sample.or_zero(of) / 1e3, label };
                is_shown.then_some((kind, point))
            })
        };
        let title = format!("Many readers, {} keys: {title} by batch size", value_name(&keys));
        let x = Axis::logarithmic("requests per statement, mean", 2.0);
        Chart::new(title, x, y).dots(points(false)).joined(points(true))
    };
    let (per_s, ms) = ("thousand reads per second", "mean response time, ms");
    [
        chart("throughput", Axis::linear(per_s), PER_S, true),
        // The time of a statement with 1,024 keys is no reader's response time.
        chart("response time", Axis::logarithmic(ms, 10.0), MEAN_US, false),
    ]
}

/// Draws response times of the rows that have a place on the other axis: a line for each kind.
fn times(rows: &[Row<Case>], x_title: &str, x: impl Fn(&Row<Case>) -> Option<f64>) -> [Chart; 2] {
    [("Mean response time", MEAN_US), ("99th percentile", P99_US)].map(|(title, of)| {
        let rows = rows.iter().filter(|row| row.case.approach != Approach::Memory);
        let points = rows.filter_map(|row| {
            Some((row.case.approach.parts().0, Point::new(x(row)?, row.sample.or_zero(of))))
        });
        let y = Axis::logarithmic("microseconds", 10.0);
        Chart::new(title, Axis::logarithmic(x_title, 2.0), y).joined(points)
    })
}

/// A number that was set as a target: whose, where, of what, the bound, and the ways whose fastest
/// rows are divided by each other.
type Goal = (&'static str, Section, Number, Unit, Wanted, &'static str, &'static str);

const GOALS: [Goal; 10] = {
    use Section::{LowLoad, Readers, Upserts};
    [
        ("readers", Readers, PER_S, Percent, AtLeast(0.75), "in-process", "ceiling:2"),
        ("readers", Readers, PER_S, Times, AtLeast(5.0), "in-process", "plain"),
        ("readers", Readers, PER_S, Times, AtLeast(1.0), "in-process", "window"),
        ("readers", Readers, PER_S, Times, AtLeast(1.5), "in-process", PUBLISHED),
        ("readers", Readers, PER_S, Percent, AtLeast(0.6), PIPELINED, "ceiling:2"),
        ("readers", Readers, PER_S, Times, AtLeast(2.0), UNPIPELINED, "plain"),
        ("1 reader, mean", LowLoad, MEAN_US, Percent, AtMost(0.5), "in-process", "window"),
        ("1 reader, p50", LowLoad, P50_US, Percent, AtMost(1.15), "in-process", "plain"),
        ("1 reader, p50", LowLoad, P50_US, Times, Nothing, "resp", "plain"),
        ("writers", Upserts, PER_S, Times, AtLeast(5.0), "in-process", "plain"),
    ]
};

/// Names of ways that are no names in `--case`.
const PIPELINED: &str = "resp, pipelined";
const UNPIPELINED: &str = "resp, a connection each";
const PUBLISHED: &str = "windows of 16 to 32 keys as published";

fn is_of(case: &Case, ways: &str) -> bool {
    match (ways, case.approach) {
        (PIPELINED, Approach::Resp(connections)) => connections < case.clients,
        (UNPIPELINED, Approach::Resp(connections)) => case.clients <= connections,
        (PUBLISHED, Approach::Window(keys)) => [16, 24, 32].contains(&keys),
        (name, approach) => approach.name() == name || approach.parts().0 == name,
    }
}

/// Returns the numbers that were set as targets, computed from medians; none if nothing can be
/// compared.
pub fn targets(rows: &[Row<Case>]) -> Vec<Target> {
    let Some(keys) = rows.first().map(|row| row.case.keys) else { return Vec::new() };
    let targets = GOALS.map(|(clients, section, of, unit, wanted, ways, base)| {
        let best = |ways| {
            let row = fastest(rows, section, |case| {
                let is_it = section != Section::LowLoad || case.clients == 1;
                is_it && case.keys == keys && is_of(case, ways)
            });
            row.and_then(|row| row.sample.get(of))
        };
        let both = best(ways).zip(best(base));
        let value = both.and_then(|(value, base)| ratio(value, base));
        let title = of.title.trim_start_matches("mean ").trim_start_matches("p50 ");
        let quotient = both.map(|(value, base)| {
            format!("{} {title} by {} {title}", of.text(value), of.text(base))
        });
        let what = format!("{clients}: {ways} beside {base}");
        let target = Target::new(what, unit, value, wanted);
        Target { quotient: quotient.unwrap_or_default(), ..target }
    });
    let is_any = targets.iter().any(|target| target.value.is_some());
    if is_any { targets.to_vec() } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        experiment::postgres::{cases::Operation, table::LAYOUT},
        harness::Sample,
    };

    /// Makes a row of a closed loop with this throughput and these response times.
    fn row(
        section: Section,
        approach: Approach,
        clients: usize,
        (per_s, us): (f64, f64),
    ) -> Row<Case> {
        let operation =
            if section == Section::Upserts { Operation::Upsert } else { Operation::Read };
        let (pace, keys) = (Pace::Closed, Distribution::Uniform);
        let case = Case { section, approach, clients, pace, operation, keys };
        let sample = Sample::default().with(PER_S, per_s).with(MEAN_US, us).with(P50_US, us);
        Row { case, sample, round: 0 }
    }

    fn rows() -> Vec<Row<Case>> {
        vec![
            row(Section::Ceiling, Approach::Ceiling(1), 1, (200e3, 100.0)),
            row(Section::Ceiling, Approach::Ceiling(2), 2, (300e3, 100.0)),
            row(Section::Readers, Approach::Plain(20), 300, (40e3, 100.0)),
            row(Section::Readers, Approach::Plain(50), 300, (30e3, 100.0)),
            row(Section::Readers, Approach::Library, 300, (225e3, 100.0)),
            row(Section::Readers, Approach::Resp(20), 300, (150e3, 100.0)),
            row(Section::Readers, Approach::Resp(300), 300, (90e3, 100.0)),
            row(Section::Windows, Approach::Window(16), 300, (100e3, 100.0)),
            row(Section::Windows, Approach::Window(64), 300, (250e3, 100.0)),
            row(Section::LowLoad, Approach::Memory, 1, (1.0, 20.0)),
            row(Section::LowLoad, Approach::Plain(1), 1, (1.0, 100.0)),
            row(Section::LowLoad, Approach::Window(64), 1, (1.0, 600.0)),
            row(Section::LowLoad, Approach::Library, 1, (1.0, 110.0)),
            row(Section::LowLoad, Approach::Resp(1), 1, (1.0, 140.0)),
            row(Section::LowLoad, Approach::Library, 50, (1.0, 600.0)),
            row(Section::Upserts, Approach::Library, 300, (60e3, 100.0)),
        ]
    }

    #[test]
    fn every_number_stands_beside_its_target() {
        let shown: Vec<_> = targets(&rows()).iter().map(Target::shown).collect();
        for (index, verdict) in [
            "beside ceiling:2 | 75.0% | at least 75.0% | reached | 225 k/s by 300 k/s",
            "beside plain | 5.62x | at least 5.00x | reached | 225 k/s by 40.0 k/s",
            "beside window | 0.90x | at least 1.00x | NOT REACHED | 225 k/s by 250 k/s",
            "as published | 2.25x | at least 1.50x | reached | 225 k/s by 100 k/s",
            "beside ceiling:2 | 50.0% | at least 60.0% | NOT REACHED | 150 k/s by 300 k/s",
            "beside plain | 2.25x | at least 2.00x | reached | 90.0 k/s by 40.0 k/s",
            "beside window | 18.3% | at most 50.0% | reached | 110 us by 600 us",
            "beside plain | 110.0% | at most 115.0% | reached | 110 us by 100 us",
            "beside plain | 1.40x |  |  | 140 us by 100 us",
            "writers: in-process beside plain | - | at least 5.00x | not measured",
        ]
        .into_iter()
        .enumerate()
        {
            assert!(shown[index].ends_with(verdict), "{shown:?} {verdict}");
        }
        assert!(targets(&rows()[..1]).is_empty());
    }

    #[test]
    fn rows_are_compared_with_two_connections_and_the_best_plain_row() {
        let rows = rows();
        let ratios = |index: usize| {
            let ratios = (LAYOUT.ratios)(&rows[index], &rows);
            ratios.iter().map(|(_, ratio)| *ratio).collect::<Vec<_>>()
        };
        assert_eq!(
            (ratios(0), ratios(4)),
            (vec![Some(2.0 / 3.0), None], vec![Some(0.75), Some(5.625)])
        );
        // At low load the plain row is that with as many readers; the ceiling is that of reads.
        assert_eq!((ratios(12)[1], ratios(14)[1]), (Some(1.0), None));
        assert_eq!((ratios(9), ratios(15)), (vec![], vec![None, None]));
    }

    #[test]
    fn windows_are_a_line_and_overloaded_rates_are_left_out() {
        let [throughput, times] = by_batch_size(&rows(), Distribution::Uniform);
        let lines = throughput.lines.iter().map(|line| (line.is_joined, line.points.len()));
        let lines: Vec<_> = lines.collect();
        assert_eq!(lines, [(false, 2), (false, 2), (false, 1), (false, 2), (true, 2)]);
        let label = "64".to_owned();
        assert_eq!(throughput.lines[4].points[1], Point { x: 64.0, y: 250.0, label });
        assert_eq!(times.lines.len(), 4);
        let mut row = row(Section::Rate, Approach::Library, 20, (1.0, 5.0));
        row.case.pace = Pace::Rate(2_000);
        assert_eq!(by_rate(&row), Some(2.0));
        row.sample = row.sample.flag("overloaded", true);
        assert_eq!(by_rate(&row), None);
    }
}
