//! The plot: for each number of cores, the reads of each policy beside the best one's.

use std::path::Path;

use plotters::prelude::*;

use super::{CORES, Cell, World};

const WIDTH: u32 = 960;
const HEIGHT_OF_CORES: u32 = 320;
const NAMES: [&str; 4] = ["adaptive", "best eager", "best window", "one mean batch"];

/// Draws the cells to a file: along the axis distances, and within each the numbers of readers.
pub fn draw(path: &Path, cells: &[Cell]) -> Result<(), Box<dyn std::error::Error>> {
    let height = HEIGHT_OF_CORES * u32::try_from(CORES.len())?;
    let area = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE)?;
    for (area, cores) in area.split_evenly((CORES.len(), 1)).into_iter().zip(CORES) {
        let cells: Vec<&Cell> = cells.iter().filter(|cell| cell.world.cores == cores).collect();
        let label = |x: &f64| match cells.get(x.round() as usize) {
            Some(Cell { world: World { distance, readers, .. }, .. }) => {
                format!("{} ms, {readers}", distance.as_secs_f64() * 1e3)
            }
            None => String::new(),
        };
        let mut chart = ChartBuilder::on(&area)
            .margin(20)
            .x_label_area_size(40)
            .y_label_area_size(90)
            .build_cartesian_2d(-0.5..cells.len() as f64, 0.0..1.1)?;
        let title = format!("reads beside the best, {cores} cores");
        let mut mesh = chart.configure_mesh();
        mesh.x_labels(12).x_label_formatter(&label).x_desc("distance, readers").y_desc(title);
        mesh.draw()?;
        for (index, name) in NAMES.into_iter().enumerate() {
            let shares = cells.iter().map(|cell| cell.of_best().nth(index).unwrap_or(0.0));
            let points = shares.enumerate().map(|(x, share)| (x as f64, share));
            let colour = Palette99::pick(index).to_rgba();
            let line = LineSeries::new(points, colour.filled()).point_size(4);
            let square =
                move |(x, y)| Rectangle::new([(x, y - 5), (x + 10, y + 5)], colour.filled());
            chart.draw_series(line)?.label(name).legend(square);
        }
        chart.configure_series_labels().border_style(BLACK).background_style(WHITE).draw()?;
    }
    area.present()?;
    println!("drawn: {}", path.display());
    Ok(())
}
