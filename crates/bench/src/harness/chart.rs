//! Charts of a table's rows, as SVG.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use super::{Number, Row, Table};

/// Size of a chart in pixels.
const SIZE: (u32, u32) = (960, 480);

impl<C: Copy> Table<C> {
    /// Draws a number of rows by another one, which has a logarithmic axis, to a file: a line with
    /// dots for the rows of each series. Rows without a series or a number are left out; without
    /// any row there is no file.
    pub fn draw(
        &self,
        path: &Path,
        (x, y): (Number, Number),
        series: impl Fn(&C) -> Option<String>,
    ) -> Result<()> {
        let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
        for Row { case, sample, .. } in &self.rows {
            let point = sample.get(x).filter(|x| 0.0 < *x).zip(sample.get(y));
            let (Some(name), Some(point)) = (series(case), point) else { continue };
            match lines.iter_mut().find(|(line, _)| *line == name) {
                Some((_, points)) => points.push(point),
                None => lines.push((name, vec![point])),
            }
        }
        if !lines.is_empty() {
            let drawn = draw(path, (x.title, y.title), lines);
            drawn.map_err(|error| anyhow!("cannot draw {}: {error}", path.display()))?;
            println!("drawn: {}", path.display());
        }
        Ok(())
    }
}

fn draw(
    path: &Path,
    (x_title, y_title): (&str, &str),
    lines: Vec<(String, Vec<(f64, f64)>)>,
) -> Result<(), Box<dyn std::error::Error>> {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let least_x = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let most = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(f64::MIN_POSITIVE, f64::max);
    let xs = (least_x / 1.1..most(|point| point.0) * 1.1).log_scale();
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(20)
        .x_label_area_size(40)
        .y_label_area_size(90)
        .build_cartesian_2d(xs, 0.0..most(|point| point.1) * 1.05)?;
    chart.configure_mesh().x_desc(x_title).y_desc(y_title).draw()?;
    for (index, (name, mut points)) in lines.into_iter().enumerate() {
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        let colour = Palette99::pick(index).to_rgba();
        let line = LineSeries::new(points, colour.filled()).point_size(4);
        let square = move |(x, y)| Rectangle::new([(x, y - 5), (x + 10, y + 5)], colour.filled());
        chart.draw_series(line)?.label(name).legend(square);
    }
    chart.configure_series_labels().border_style(BLACK).background_style(WHITE).draw()?;
    area.present()?;
    Ok(())
}
