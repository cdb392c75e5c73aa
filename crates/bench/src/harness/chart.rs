//! Charts as SVG: axes, lines or dots by kind, a legend beside them.

use std::path::Path;

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
const COLOURS: [&str; 8] = ["red", "blue", "green", "orange", "purple", "gray", "black", "brown"];

/// A direction of a chart; a logarithmic one has a base.
#[derive(Clone, Debug)]
pub struct Axis {
    title: String,
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

    /// Says where a value is on the axis, without knowing its ends.
    fn at(&self, value: f64) -> f64 {
        self.base.map_or(value, |base| value.max(f64::MIN_POSITIVE).log(base))
    }

    /// Finds the marks of an axis that holds all values, the first and the last being its ends.
    fn marks(&self, values: impl Iterator<Item = f64>) -> Vec<f64> {
        let values: Vec<_> = values.filter(|value| 0.0 < *value).collect();
        let most = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let least = values.iter().copied().fold(most, f64::min);
        let power = 10_f64.powf((most / 5.0).log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
        let step = steps.into_iter().find(|step| most <= step * 6.0).unwrap_or(most);
        let first = self.base.map_or(0.0, |base| base.powf(self.at(least / 1.1).floor()));
        let next = |mark: f64| self.base.map_or(mark + step, |base| mark * base);
        let mut marks = vec![first, next(first)];
        while marks[marks.len() - 1] < most * 1.02 {
            marks.push(next(marks[marks.len() - 1]));
        }
        marks
    }

    /// Says where a value is on the way from the first mark to the last, 0 to 1.
    fn share(&self, marks: &[f64], value: f64) -> f64 {
        let (from, to) = (self.at(marks[0]), self.at(marks[marks.len() - 1]));
        ((self.at(value) - from) / (to - from)).clamp(0.0, 1.0)
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
    pub fn joined(self, points: impl IntoIterator<Item = (String, Point)>) -> Self {
        self.with(true, points)
    }

    /// Adds points that are not joined.
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

    fn draw(&self, top: f64) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x_marks = self.x.marks(points().map(|point| point.x));
        let y_marks = self.y.marks(points().map(|point| point.y));
        let x_at = |value| LEFT + self.x.share(&x_marks, value) * (RIGHT - LEFT);
        let y_at = |value| BOTTOM - self.y.share(&y_marks, value) * (BOTTOM - TOP);
        let middle = f64::midpoint(LEFT, RIGHT);
        let mut out = vec![
            format!("<g transform=\"translate(0 {top})\">"),
            text((middle, 28.0), "text-anchor=\"middle\" font-size=\"18\"", &self.title),
            text((middle, BOTTOM + 44.0), "text-anchor=\"middle\"", &self.x.title),
            text((10.0, TOP - 12.0), "", &self.y.title),
        ];
        for (mark, x) in x_marks.iter().map(|mark| (mark, x_at(*mark))) {
            out.push(line(&[(x, TOP), (x, BOTTOM)], "#ddd"));
            out.push(text((x, BOTTOM + 20.0), "text-anchor=\"middle\"", &tick(*mark)));
        }
        for (mark, y) in y_marks.iter().map(|mark| (mark, y_at(*mark))) {
            out.push(line(&[(LEFT, y), (RIGHT, y)], "#ddd"));
            out.push(text((LEFT - 8.0, y + 5.0), "text-anchor=\"end\"", &tick(*mark)));
        }
        let mut legend = TOP;
        for (kind, colour) in self.lines.iter().zip(COLOURS.iter().cycle()) {
            let places: Vec<_> = kind.points.iter().map(|at| (x_at(at.x), y_at(at.y))).collect();
            out.extend(kind.is_joined.then(|| line(&places, colour)));
            out.extend(places.iter().map(|place| dot(*place, colour)));
            for (point, (x, y)) in kind.points.iter().zip(places) {
                let style = format!("fill=\"{colour}\"");
                out.push(text((x + 7.0, y - 6.0), &style, &point.label));
            }
            out.push(dot((RIGHT + 24.0, legend), colour));
            out.push(text((RIGHT + 36.0, legend + 5.0), "", &kind.title));
            legend += 20.0;
        }
        out.push("</g>\n".to_owned());
        out.join("\n")
    }
}

/// Writes charts below each other to a file of this name; without points there is none.
pub fn draw(directory: &Path, name: &str, charts: &[Chart]) -> Result<()> {
    let charts: Vec<_> = charts.iter().filter(|chart| !chart.lines.is_empty()).collect();
    if charts.is_empty() {
        return Ok(());
    }
    let path = directory.join(name);
    let written = std::fs::write(&path, svg(&charts));
    written.with_context(|| format!("cannot write {}", path.display()))?;
    println!("drawn: {}", path.display());
    Ok(())
}

fn svg(charts: &[&Chart]) -> String {
    let top_of = |index| crate::stats::float_of(index) * HEIGHT;
    let body = charts.iter().enumerate().map(|(index, chart)| chart.draw(top_of(index)));
    let (body, height) = (body.collect::<String>(), top_of(charts.len()));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

fn line(places: &[(f64, f64)], colour: &str) -> String {
    let points: Vec<_> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    format!("<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\"/>", points.join(" "))
}

fn dot((x, y): (f64, f64), colour: &str) -> String {
    format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>")
}

fn text((x, y): (f64, f64), style: &str, text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{text}</text>")
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
                .dots([("dots".to_owned(), point(290.0, 240.0))]);
            let text = svg(&[&chart, &chart]);
            // Three points and two in the legend, on two charts.
            assert_eq!(text.matches("<circle").count(), 10);
            for wanted in ["A &lt; B", "&lt;16&gt;", "a &amp; b", "dots", "batch"] {
                assert!(text.contains(wanted), "{wanted} is not in {text}");
            }
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        }
        let marks = |axis: Axis, values: [f64; 2]| axis.marks(values.into_iter());
        let logarithmic = Axis::logarithmic("", 10.0);
        assert_eq!(marks(logarithmic, [3.0, 700.0]), [1.0, 10.0, 100.0, 1_000.0]);
        assert_eq!(marks(Axis::linear(""), [3.0, 700.0]), [0.0, 200.0, 400.0, 600.0, 800.0]);
    }
}
