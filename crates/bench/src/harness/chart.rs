//! Charts as SVG: axes, lines or dots by kind, a legend beside them.

use std::{fmt::Write, path::Path};

use anyhow::{Context, Result};

/// Size of one chart in pixels; several stand below each other.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 480.0;

/// Edges of the area that points lie in. The legend stands to its right.
const LEFT: f64 = 80.0;
const RIGHT: f64 = 700.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 420.0;

/// Colours of the kinds, in the order in which these are first seen.
const COLOURS: [&str; 10] = [
    "#c83c32", "#1464c8", "#14966e", "#e19114", "#9650aa", "#6e6e6e", "#78961e", "#1e1e1e",
    "#5ab4dc", "#b4785a",
];

/// A direction of a chart.
#[derive(Clone, Debug)]
pub struct Axis {
    title: String,
    /// Base of a logarithmic axis.
    base: Option<f64>,
}

impl Axis {
    pub fn linear(title: &str) -> Self {
        Self { title: title.to_owned(), base: None }
    }

    /// Makes an axis with a mark at every power of `base`.
    pub fn logarithmic(title: &str, base: f64) -> Self {
        Self { title: title.to_owned(), base: Some(base) }
    }

    /// Finds the ends of the axis that hold all values.
    fn scale(&self, values: impl Iterator<Item = f64>) -> Scale {
        let values: Vec<_> = values.filter(|value| 0.0 < *value).collect();
        let most = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let least = values.iter().copied().fold(most, f64::min);
        let Some(base) = self.base else {
            let power = 10_f64.powf((most / 5.0).log10().floor());
            let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
            let step = steps.into_iter().find(|step| most <= step * 6.0).unwrap_or(most);
            return Scale { base: None, from: 0.0, to: (most * 1.02 / step).ceil() * step, step };
        };
        let (from, to) = ((least / 1.1).log(base).floor(), (most * 1.1).log(base).ceil());
        Scale { base: Some(base), from, to: to.max(from + 1.0), step: 1.0 }
    }
}

/// The ends of an axis and the distance of its marks; of a logarithmic one the logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Scale {
    base: Option<f64>,
    from: f64,
    to: f64,
    step: f64,
}

impl Scale {
    /// Says where a value is on the way from one end of the axis to the other, 0 to 1.
    fn share(&self, value: f64) -> f64 {
        let value = self.base.map_or(value, |base| value.max(f64::MIN_POSITIVE).log(base));
        ((value - self.from) / (self.to - self.from)).clamp(0.0, 1.0)
    }

    /// Returns the values that have a mark.
    fn marks(self) -> impl Iterator<Item = f64> {
        let marks = std::iter::successors(Some(self.from), move |mark| Some(mark + self.step));
        let marks = marks.take_while(move |mark| *mark <= self.to + self.step / 2.0);
        marks.map(move |mark| self.base.map_or(mark, |base| base.powf(mark)))
    }
}

/// A place on a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    /// Text beside it; may be empty.
    pub label: String,
}

impl Point {
    /// Makes a point without a label.
    pub fn new(x: f64, y: f64) -> Self {
        Self { x, y, label: String::new() }
    }
}

/// Points of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub title: String,
    pub is_joined: bool,
    pub points: Vec<Point>,
}

/// A chart, made of points that are sorted by the title of their kind.
#[derive(Clone, Debug)]
pub struct Chart {
    title: String,
    x: Axis,
    y: Axis,
    pub lines: Vec<Line>,
}

impl Chart {
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self { title: title.into(), x, y, lines: Vec::new() }
    }

    /// Adds points that are joined with the others of their kind.
    #[must_use]
    pub fn joined(self, points: impl IntoIterator<Item = (String, Point)>) -> Self {
        self.with(true, points)
    }

    /// Adds points that are not joined.
    #[must_use]
    pub fn dots(self, points: impl IntoIterator<Item = (String, Point)>) -> Self {
        self.with(false, points)
    }

    fn with(mut self, is_joined: bool, points: impl IntoIterator<Item = (String, Point)>) -> Self {
        for (title, point) in points {
            match self.lines.iter_mut().find(|line| line.title == title) {
                Some(line) => line.points.push(point),
                None => self.lines.push(Line { title, is_joined, points: vec![point] }),
            }
        }
        self
    }

    fn draw(&self, out: &mut String, top: f64) -> std::fmt::Result {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x_scale = self.x.scale(points().map(|point| point.x));
        let y_scale = self.y.scale(points().map(|point| point.y));
        let x_at = |value| LEFT + x_scale.share(value) * (RIGHT - LEFT);
        let y_at = |value| BOTTOM - y_scale.share(value) * (BOTTOM - TOP);
        writeln!(out, "<g transform=\"translate(0 {top})\">")?;
        let middle = f64::midpoint(LEFT, RIGHT);
        text(out, (middle, 28.0), "text-anchor=\"middle\" font-size=\"18\"", &self.title)?;
        text(out, (middle, BOTTOM + 44.0), "text-anchor=\"middle\"", &self.x.title)?;
        text(out, (10.0, TOP - 12.0), "", &self.y.title)?;
        for (x, mark) in x_scale.marks().map(|mark| (x_at(mark), mark)) {
            line(out, &[(x, TOP), (x, BOTTOM)], "#ddd", 1)?;
            text(out, (x, BOTTOM + 20.0), "text-anchor=\"middle\"", &tick(mark))?;
        }
        for (y, mark) in y_scale.marks().map(|mark| (y_at(mark), mark)) {
            line(out, &[(LEFT, y), (RIGHT, y)], "#ddd", 1)?;
            text(out, (LEFT - 8.0, y + 5.0), "text-anchor=\"end\"", &tick(mark))?;
        }
        let mut legend = TOP;
        for (kind, colour) in self.lines.iter().zip(COLOURS.iter().cycle()) {
            let places: Vec<_> = kind.points.iter().map(|at| (x_at(at.x), y_at(at.y))).collect();
            if kind.is_joined {
                line(out, &places, colour, 2)?;
            }
            for (point, (x, y)) in kind.points.iter().zip(places) {
                dot(out, (x, y), colour)?;
                text(out, (x + 7.0, y - 6.0), &format!("fill=\"{colour}\""), &point.label)?;
            }
            dot(out, (RIGHT + 24.0, legend), colour)?;
            text(out, (RIGHT + 36.0, legend + 5.0), "", &kind.title)?;
            legend += 20.0;
        }
        writeln!(out, "</g>")
    }
}

/// Writes charts below each other to a file of this name; without points there is none.
pub fn draw(directory: &Path, name: &str, charts: &[Chart]) -> Result<()> {
    let charts: Vec<_> = charts.iter().filter(|chart| !chart.lines.is_empty()).collect();
    if charts.is_empty() {
        return Ok(());
    }
    let path = directory.join(name);
    let svg = svg(&charts).with_context(|| format!("cannot draw {name}"))?;
    std::fs::write(&path, svg).with_context(|| format!("cannot write {}", path.display()))?;
    println!("drawn: {}", path.display());
    Ok(())
}

fn svg(charts: &[&Chart]) -> Result<String, std::fmt::Error> {
    let (mut body, mut top) = (String::new(), 0.0);
    for chart in charts {
        chart.draw(&mut body, top)?;
        top += HEIGHT;
    }
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{top}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
    ))
}

fn line(out: &mut String, points: &[(f64, f64)], colour: &str, width: u32) -> std::fmt::Result {
    let points: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let style = format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"");
    writeln!(out, "<polyline points=\"{}\" {style}/>", points.join(" "))
}

fn dot(out: &mut String, (x, y): (f64, f64), colour: &str) -> std::fmt::Result {
    writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>")
}

fn text(out: &mut String, (x, y): (f64, f64), style: &str, text: &str) -> std::fmt::Result {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{text}</text>")
}

/// Formats a number on an axis with as many digits as it needs.
fn tick(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_holds_every_point_and_label() {
        let point = |x, y| Point { x, y, label: "<16>".to_owned() };
        for y in [Axis::linear("k/s"), Axis::logarithmic("ms", 10.0)] {
            let joined = [point(1.0, 25.0), point(16.0, 100.0)];
            let chart = Chart::new("A < B", Axis::logarithmic("batch", 2.0), y)
                .joined(joined.map(|point| ("a & b".to_owned(), point)))
                .dots([("dots".to_owned(), Point::new(290.0, 240.0))]);
            let text = svg(&[&chart, &chart]).unwrap();
            // Three points and two in the legend, on two charts.
            assert_eq!(text.matches("<circle").count(), 10);
            for wanted in ["A &lt; B", "&lt;16&gt;", "a &amp; b", "dots", "batch"] {
                assert!(text.contains(wanted), "{wanted} is not in {text}");
            }
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        }
    }

    #[test]
    fn axes_hold_all_values() {
        let scale = |axis: Axis, values: &[f64]| {
            let Scale { from, to, step, .. } = axis.scale(values.iter().copied());
            (from, to, step)
        };
        assert_eq!(scale(Axis::logarithmic("", 10.0), &[3.0, 700.0]), (0.0, 3.0, 1.0));
        assert_eq!(scale(Axis::linear(""), &[3.0, 700.0]), (0.0, 800.0, 200.0));
        assert_eq!(scale(Axis::logarithmic("", 2.0), &[1.0]), (-1.0, 1.0, 1.0));
    }
}
