//! The tables as pictures.

use std::{collections::BTreeMap, path::Path};

use anyhow::Result;

use super::{
    cases::{Section, State, Way},
    results::{Measured, Results},
    sample::Sample,
};
use crate::{
    chart::{Axis, Chart, Corner, Line, Point, Style, write},
    stats::float,
};

/// Resident size over time.
#[derive(Clone, Debug, Default)]
pub struct Growth {
    pub points: Vec<(f64, u64)>,
}

/// Draws what was measured; what was not is left out.
pub fn draw_all(directory: &Path, results: &Results, growth: &Growth) -> Result<()> {
    write(directory, "chunks-reads.svg", &by_callers(results))?;
    write(directory, "chunks-memory.svg", &[by_time(growth)])
}

/// Throughput and time by callers.
fn by_callers(results: &Results) -> Vec<Chart> {
    let chart = |title: &str, y_title: &str, singles: bool, y: fn(&Sample) -> f64| Chart {
        title: title.to_owned(),
        x: Axis::logarithmic("callers", 2.0),
        y: Axis::logarithmic(y_title, 10.0),
        lines: curves(results, singles, y),
        legend: Corner::UpperLeft,
    };
    vec![
        chart("Random reads: chunks a second by callers", "chunks per second", false, |sample| {
            sample.per_s
        }),
        chart(
            "Random reads of single chunks: median time by callers",
            "median time, us",
            true,
            |sample| sample.p50_us,
        ),
    ]
}

/// With one chunk a request, or all.
fn curves(results: &Results, singles: bool, y: fn(&Sample) -> f64) -> Vec<Line> {
    let mut kinds: BTreeMap<(State, Way), Vec<Point>> = BTreeMap::new();
    let shown = |row: &&Measured| {
        row.case.section == Section::Reads
            && row.case.way != Way::Pread
            && (!singles || row.case.batch == 1)
            && 0.0 < row.sample.per_s
    };
    for row in results.rows().iter().filter(shown) {
        let x = float(u64::try_from(row.case.callers).expect("a count fits in 64 bits"));
        let point = Point { x, y: y(&row.sample), label: String::new() };
        kinds.entry((row.case.state, row.case.way)).or_default().push(point);
    }
    kinds.into_iter().map(|((state, way), points)| line(state, way, points)).collect()
}

/// Ways have colours, states shades of them.
fn line(state: State, way: Way, points: Vec<Point>) -> Line {
    let (red, green, blue) = match way {
        Way::Direct => (200, 60, 50),
        Way::GetChunk => (20, 100, 200),
        Way::GetChunks => (110, 60, 190),
        Way::Resp => (20, 150, 110),
        Way::RespPipelined => (120, 150, 20),
        Way::Check => (110, 110, 110),
        Way::Pread | Way::PreadSend => (30, 30, 30),
    };
    let shade = match state {
        State::Cold => 60,
        State::Filling => 80,
        State::Disk | State::None => 100,
        State::Memory => 125,
    };
    let colour = [red, green, blue]
        .map(|part: u32| u8::try_from((part * shade / 100).min(255)).unwrap_or(255));
    let title = if state == State::None {
        way.name().to_owned()
    } else {
        format!("{}, {}", way.name(), state.name())
    };
    Line { title, colour: (colour[0], colour[1], colour[2]), style: Style::Joined, points }
}

fn by_time(growth: &Growth) -> Chart {
    let points = growth.points.iter().map(|(seconds, bytes)| Point {
        x: *seconds,
        y: float(*bytes) / 1_048_576.0,
        label: String::new(),
    });
    Chart {
        title: "Resident size of the server while a file fills".to_owned(),
        x: Axis::linear("seconds"),
        y: Axis::linear("MiB"),
        lines: vec![Line {
            title: "resident".to_owned(),
            colour: (20, 100, 200),
            style: Style::Joined,
            points: points.collect(),
        }],
        legend: Corner::UpperLeft,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::chunks::results::tests::add;

    #[test]
    fn every_way_in_every_state_is_a_line() {
        let mut results = Results::default();
        for callers in [1, 16] {
            add(&mut results, State::None, Way::Direct, callers, (30.0, 33_000.0));
            add(&mut results, State::Disk, Way::GetChunk, callers, (15_000.0, 75.0));
            add(&mut results, State::Memory, Way::GetChunk, callers, (16_000.0, 70.0));
        }
        let charts = by_callers(&results);
        let titles: Vec<_> = charts[0].lines.iter().map(|line| line.title.as_str()).collect();
        assert_eq!(titles, ["GetChunk, warm disk", "GetChunk, warm RAM", "direct"]);
        assert!(charts.iter().all(|chart| chart.lines.iter().all(|line| line.points.len() == 2)));
    }

    #[test]
    fn what_was_not_measured_is_not_drawn() {
        let directory =
            crate::cleanup::Cleanup::default().directory(&std::env::temp_dir()).unwrap();
        let growth = Growth { points: vec![(0.0, 50 << 20), (0.5, 90 << 20)] };
        draw_all(directory.path(), &Results::default(), &growth).unwrap();
        let drawn: Vec<_> = std::fs::read_dir(directory.path())
            .unwrap()
            .map(|file| file.unwrap().file_name())
            .collect();
        assert_eq!(drawn, ["chunks-memory.svg"]);
    }
}
