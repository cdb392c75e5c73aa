//! The tables as pictures.

use std::path::Path;

use anyhow::Result;

use super::{
    cases::{Cache, Case, Section, Way},
    table::Row,
};
use crate::{
    chart::{Axis, Chart, Corner, Line, Point, Style, lines, write},
    sample::Sample,
    stats::{float, float_of, mebibytes},
    tables::Rows,
};

/// Resident size over time: seconds, and bytes.
pub type Growth = Vec<(f64, u64)>;

/// Draws what was measured and leaves out what was not.
pub fn draw_all(directory: &Path, rows: &Rows<Case>, growth: &Growth) -> Result<()> {
    write(directory, "chunks-reads.svg", &by_callers(rows))?;
    write(directory, "chunks-memory.svg", &[by_time(growth)])
}

/// Throughput and time by callers.
fn by_callers(rows: &Rows<Case>) -> Vec<Chart> {
    let chart = |title: &str, y_title: &str, batch_max: usize, y: fn(&Sample) -> f64| {
        let shown = rows.rows().iter().filter(|row| is_shown(row, batch_max));
        let point = |row: &Row| {
            let kind = (row.case.cache, row.case.way);
            (kind, Point::new(float_of(row.case.callers), y(&row.sample)))
        };
        Chart {
            title: format!("Random reads{title} by callers"),
            x: Axis::logarithmic("callers", 2.0),
            y: Axis::logarithmic(y_title, 10.0),
            lines: lines(shown.map(point), line),
            legend: Corner::UpperLeft,
        }
    };
    vec![
        chart(": chunks a second", "chunks per second", usize::MAX, |sample| sample.per_s),
        chart(" of single chunks: median time", "median time, us", 1, |sample| sample.p50_us),
    ]
}

fn is_shown(row: &Row, batch_max: usize) -> bool {
    row.case.section == Section::Reads
        && row.case.way != Way::Pread
        && row.case.batch <= batch_max
        && 0.0 < row.sample.per_s
}

/// Ways have colours, states of the cache shades of them.
fn line((cache, way): (Cache, Way), points: Vec<Point>) -> Line {
    let (red, green, blue) = match way {
        Way::Direct => (200, 60, 50),
        Way::GetChunk => (20, 100, 200),
        Way::GetChunks => (110, 60, 190),
        Way::Resp => (20, 150, 110),
        Way::RespPipelined => (120, 150, 20),
        Way::Check => (110, 110, 110),
        Way::Pread | Way::PreadSend => (30, 30, 30),
    };
    let shade = match cache {
        Cache::Cold => 60,
        Cache::Filling => 80,
        Cache::Disk | Cache::Unused => 100,
        Cache::Memory => 125,
    };
    let [red, green, blue] = [red, green, blue]
        .map(|part: u32| u8::try_from((part * shade / 100).min(255)).unwrap_or(255));
    let title = match cache {
        Cache::Unused => way.name().to_owned(),
        _ => format!("{}, {}", way.name(), cache.name()),
    };
    Line { title, colour: (red, green, blue), style: Style::Joined, points }
}

fn by_time(growth: &Growth) -> Chart {
    let points = growth.iter().map(|(seconds, bytes)| {
        ((Cache::Unused, Way::GetChunk), Point::new(*seconds, mebibytes(float(*bytes))))
    });
    Chart {
        title: "Resident size of the server while a file fills".to_owned(),
        x: Axis::linear("seconds"),
        y: Axis::linear("MiB"),
        lines: lines(points, |kind, points| Line {
            title: "resident".to_owned(),
            ..line(kind, points)
        }),
        legend: Corner::UpperLeft,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::chunks::table::{Setting, tests::add};

    #[test]
    fn every_way_in_every_state_is_a_line() {
        let mut rows = Rows::new(Setting::default());
        for callers in [1, 16] {
            add(&mut rows, Cache::Unused, Way::Direct, callers, (30.0, 33_000.0));
            add(&mut rows, Cache::Disk, Way::GetChunk, callers, (15_000.0, 75.0));
            add(&mut rows, Cache::Memory, Way::GetChunk, callers, (16_000.0, 70.0));
        }
        let charts = by_callers(&rows);
        let titles: Vec<_> = charts[0].lines.iter().map(|line| line.title.as_str()).collect();
        assert_eq!(titles, ["GetChunk, warm disk", "GetChunk, warm RAM", "direct"]);
        assert!(charts.iter().all(|chart| chart.lines.iter().all(|line| line.points.len() == 2)));
    }
}
