//! The tables as a picture.

use std::path::Path;

use anyhow::Result;

use super::{
    cases::{Case, Section, Way},
    table::Row,
};
use crate::{
    chart::{Axis, Chart, Corner, Line, Point, Style, write},
    stats::float_of,
    tables::Rows,
};

/// The sections that stand beside each other, in the order of their places.
const SECTIONS: [Section; 5] =
    [Section::Clone, Section::Clones, Section::Scan, Section::Point, Section::Fetch];

/// The ways, each a colour.
const WAYS: [(Way, (u8, u8, u8)); 6] = [
    (Way::Download, (110, 110, 110)),
    (Way::Downloads, (170, 170, 170)),
    (Way::Direct, (200, 60, 50)),
    (Way::Cold, (20, 100, 200)),
    (Way::Warm, (20, 150, 110)),
    (Way::Near, (120, 150, 20)),
];

/// Draws the times of all rows; without rows there is no picture.
pub fn draw_all(directory: &Path, rows: &Rows<Case>) -> Result<()> {
    write(directory, "dolt.svg", &[times(rows)])
}

fn times(rows: &Rows<Case>) -> Chart {
    // Ways of one section stand beside each other.
    let lines = WAYS.iter().enumerate().map(|(index, (way, colour))| {
        let rows = rows.rows().iter().filter(|row| row.case.way == *way);
        let points = rows.filter_map(|row| point(row, 0.13 * float_of(index))).collect();
        Line { title: way.name().to_owned(), colour: *colour, style: Style::Points, points }
    });
    Chart {
        title: "Time of a replay: clone, clones, scan, point, fetch".to_owned(),
        x: Axis::linear("section"),
        y: Axis::logarithmic("seconds", 10.0),
        lines: lines.filter(|line| !line.points.is_empty()).collect(),
        legend: Corner::LowerLeft,
    }
}

fn point(row: &Row, beside: f64) -> Option<Point> {
    let place = SECTIONS.iter().position(|section| *section == row.case.section)?;
    let x = float_of(place + 1) + beside;
    let label = row.case.layout.map_or_else(String::new, |layout| layout.name().to_owned());
    (0.0 < row.sample.seconds).then_some(Point { x, y: row.sample.seconds, label })
}
