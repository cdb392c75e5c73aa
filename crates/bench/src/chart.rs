//! Charts as SVG: axes, lines, points with labels, a legend.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context, Result, anyhow};
use plotters::{
    chart::SeriesLabelPosition,
    coord::{
        Shift,
        combinators::IntoLogRange,
        ranged1d::{AsRangedCoord, Ranged, ValueFormatter},
    },
    prelude::{
        BLACK, Cartesian2d, ChartBuilder, ChartContext, Circle, Color, DrawingArea, EmptyElement,
        IntoDrawingArea, IntoFont, LineSeries, PathElement, RGBColor, SVGBackend, Text, WHITE,
    },
    style::text_anchor::{HPos, Pos, VPos},
};

/// Size of one chart in pixels; several stand below each other.
const WIDTH: u32 = 960;
const HEIGHT: u32 = 520;

const FONT: &str = "sans-serif";

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

    /// Returns the range that holds all values and some space.
    fn range(&self, values: impl Iterator<Item = f64> + Clone) -> std::ops::Range<f64> {
        let most = values.clone().fold(f64::MIN_POSITIVE, f64::max);
        let Some(base) = self.base else { return 0.0..most * 1.1 };
        let least = values.filter(|value| 0.0 < *value).fold(most, f64::min);
        let whole = |value: f64, round: fn(f64) -> f64| base.powf(round(value.log(base)));
        let (from, to) = (whole(least / 1.1, f64::floor), whole(most * 1.1, f64::ceil));
        if from < to { from..to } else { from..from * base }
    }
}

/// A place on a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    pub label: String,
}

impl Point {
    /// Makes a point without a label.
    pub fn new(x: f64, y: f64) -> Self {
        Self { x, y, label: String::new() }
    }
}

/// Sorts points by their kind and makes a line of each kind.
pub fn lines<K: Ord>(
    points: impl IntoIterator<Item = (K, Point)>,
    line: impl Fn(K, Vec<Point>) -> Line,
) -> Vec<Line> {
    let mut kinds: BTreeMap<K, Vec<Point>> = BTreeMap::new();
    for (kind, point) in points {
        kinds.entry(kind).or_default().push(point);
    }
    kinds.into_iter().map(|(kind, points)| line(kind, points)).collect()
}

/// Whether points are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Joined,
    Points,
}

/// Points of one kind.
#[derive(Clone, Debug)]
pub struct Line {
    pub title: String,
    pub colour: (u8, u8, u8),
    pub style: Style,
    pub points: Vec<Point>,
}

impl Line {
    fn colour(&self) -> RGBColor {
        let (red, green, blue) = self.colour;
        RGBColor(red, green, blue)
    }
}

/// Corner of the legend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corner {
    /// Corner above lines that rise.
    UpperLeft,
    /// Corner below lines that fall.
    LowerLeft,
}

#[derive(Clone, Debug)]
pub struct Chart {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub lines: Vec<Line>,
    pub legend: Corner,
}

impl Chart {
    /// Whether there is nothing on it.
    pub fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.points.is_empty())
    }

    fn values(&self, of: fn(&Point) -> f64) -> impl Iterator<Item = f64> + Clone + '_ {
        self.lines.iter().flat_map(|line| &line.points).map(of)
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Writes charts below each other to a file of this name; without points there is none.
pub fn write(directory: &Path, name: &str, charts: &[Chart]) -> Result<()> {
    if charts.iter().all(Chart::is_empty) {
        return Ok(());
    }
    let path = directory.join(name);
    let svg = svg(charts).with_context(|| format!("cannot draw {name}"))?;
    std::fs::write(&path, svg).with_context(|| format!("cannot write {}", path.display()))?;
    println!("drawn: {}", path.display());
    Ok(())
}

/// Charts below each other, as the text of an SVG file.
fn svg(charts: &[Chart]) -> Result<String> {
    let mut text = String::new();
    {
        let count = charts.len().max(1);
        let height = HEIGHT * u32::try_from(count).map_err(|_| anyhow!("too many charts"))?;
        let root = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        for (chart, area) in charts.iter().zip(root.split_evenly((count, 1))) {
            draw(chart, &area)?;
        }
        root.present().map_err(failed)?;
    }
    Ok(text)
}

fn draw(chart: &Chart, area: &Area<'_>) -> Result<()> {
    let x = chart.x.range(chart.values(|point| point.x));
    let y = chart.y.range(chart.values(|point| point.y));
    match (chart.x.base, chart.y.base) {
        (None, None) => draw_on(chart, area, x, y),
        (None, Some(base)) => draw_on(chart, area, x, y.log_scale().base(base)),
        (Some(base), None) => draw_on(chart, area, x.log_scale().base(base), y),
        (Some(x_base), Some(base)) => {
            draw_on(chart, area, x.log_scale().base(x_base), y.log_scale().base(base))
        }
    }
}

fn draw_on<'a, X, Y>(chart: &Chart, area: &Area<'a>, x: X, y: Y) -> Result<()>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut builder = ChartBuilder::on(area);
    builder
        .caption(&chart.title, (FONT, 20))
        .margin(16)
        .x_label_area_size(46)
        .y_label_area_size(72);
    let mut context = builder.build_cartesian_2d(x, y).map_err(failed)?;
    let mut mesh = context.configure_mesh();
    mesh.light_line_style(WHITE).bold_line_style(BLACK.mix(0.12)).label_style((FONT, 15));
    mesh.axis_desc_style((FONT, 16)).x_desc(&chart.x.title).y_desc(&chart.y.title);
    mesh.x_label_formatter(&|value| tick(*value)).y_label_formatter(&|value| tick(*value));
    mesh.draw().map_err(failed)?;
    for line in &chart.lines {
        draw_line(&mut context, line)?;
    }
    let corner = match chart.legend {
        Corner::UpperLeft => SeriesLabelPosition::UpperLeft,
        Corner::LowerLeft => SeriesLabelPosition::LowerLeft,
    };
    let mut legend = context.configure_series_labels();
    legend.position(corner).background_style(WHITE.mix(0.85)).border_style(BLACK.mix(0.3));
    legend.label_font((FONT, 15)).draw().map_err(failed)
}

fn draw_line<'a, X, Y>(
    context: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
    line: &Line,
) -> Result<()>
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    let colour = line.colour();
    let places = line.points.iter().map(|point| (point.x, point.y));
    if line.style == Style::Joined {
        context.draw_series(LineSeries::new(places, colour.stroke_width(2))).map_err(failed)?;
    }
    let dots = line.points.iter().enumerate().map(|(index, point)| {
        let font = (FONT, 14).into_font().color(&colour);
        let (side, place) = label_place(line.style, index);
        let label = Text::new(point.label.clone(), place, font.pos(Pos::new(side, VPos::Center)));
        EmptyElement::at((point.x, point.y)) + Circle::new((0, 0), 4, colour.filled()) + label
    });
    let series = context.draw_series(dots).map_err(failed)?;
    let joined = line.style == Style::Joined;
    series.label(&line.title).legend(move |(x, y)| {
        let reach = if joined { 9 } else { 0 };
        EmptyElement::at((x + 10, y))
            + PathElement::new([(-reach, 0), (reach, 0)], colour.stroke_width(2))
            + Circle::new((0, 0), 4, colour.filled())
    });
    Ok(())
}

/// Points that are not joined lie close to each other: their labels take turns around them.
fn label_place(style: Style, index: usize) -> (HPos, (i32, i32)) {
    match (style, index % 4) {
        (Style::Joined, _) | (Style::Points, 0) => (HPos::Left, (8, -9)),
        (Style::Points, 1) => (HPos::Right, (-8, -9)),
        (Style::Points, 2) => (HPos::Left, (8, 9)),
        (Style::Points, _) => (HPos::Right, (-8, 9)),
    }
}

/// A number on an axis, with as many digits as it needs.
fn tick(value: f64) -> String {
    if 10.0 <= value || value == value.round() { format!("{value:.0}") } else { format!("{value}") }
}

fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("drawing: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(y: Axis) -> Chart {
        let point = |x, y, label: &str| Point { x, y, label: label.to_owned() };
        let line = |title: &str, style, points| Line {
            title: title.to_owned(),
            colour: (1, 2, 3),
            style,
            points,
        };
        Chart {
            title: "A < B & \"C\"".to_owned(),
            x: Axis::logarithmic("batch", 2.0),
            y,
            lines: vec![
                line(
                    "joined",
                    Style::Joined,
                    vec![point(1.0, 25.0, "1"), point(16.0, 100.0, "<16>")],
                ),
                line("points", Style::Points, vec![point(290.0, 240.0, "")]),
            ],
            legend: Corner::UpperLeft,
        }
    }

    /// The elements of a document, each seen to be closed in order. No more of XML is needed: there
    /// are no comments, no processing instructions beside the first, and no `<` outside of tags.
    fn elements(text: &str) -> Vec<&str> {
        let mut open = Vec::new();
        let mut seen = Vec::new();
        for tag in text.split('<').skip(1) {
            let (tag, after) = tag.split_once('>').expect("a tag ends");
            assert!(
                !after.contains('>') && !tag.contains('&')
                    || tag.contains("&quot;")
                    || tag.contains("&amp;"),
                "{tag}"
            );
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            let name = tag.trim_start_matches('/').split([' ', '\n', '/']).next().unwrap();
            if tag.starts_with('?') {
                continue;
            }
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name));
                continue;
            }
            seen.push(name);
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
        assert!(open.is_empty(), "{open:?}");
        seen
    }

    #[test]
    fn a_picture_is_well_formed_and_holds_every_point_and_label() {
        for y in [Axis::linear("k/s"), Axis::logarithmic("ms", 10.0)] {
            let text = svg(&[chart(y.clone()), chart(y)]).unwrap();
            let elements = elements(&text);
            assert_eq!(elements[0], "svg");
            // Three points and two in the legend, on two charts.
            assert_eq!(elements.iter().filter(|name| **name == "circle").count(), 10);
            for wanted in
                ["A &lt; B &amp; &quot;C&quot;", "&lt;16&gt;", "joined", "points", "batch"]
            {
                assert!(text.contains(wanted), "{wanted} is not in {text}");
            }
        }
    }

    #[test]
    fn axes_hold_all_values() {
        let values = || [3.0, 700.0].into_iter();
        assert_eq!(Axis::logarithmic("", 10.0).range(values()), 1.0..1_000.0);
        assert_eq!(Axis::logarithmic("", 2.0).range(values()), 2.0..1_024.0);
        assert_eq!(Axis::linear("").range(values()), 0.0..770.0000000000001);
        let one = Axis::logarithmic("", 2.0).range([1.0].into_iter());
        assert!(one.start < 1.0 && 1.0 < one.end, "{one:?}");
    }
}
