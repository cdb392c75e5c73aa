//! Charts, as SVG: numbers by another number, which has a logarithmic axis.
//!
//! A chart is text without any resource of elsewhere. Its colours are classes that [`STYLE`]
//! defines for light and for dark; a page holds that once, an SVG file for itself.

use std::{collections::BTreeMap, fmt::Write, fs, path::Path};

use anyhow::{Context, Result};

use super::{Number, Row, Table, sample::measurement};
use crate::stats::float_of;

/// Size of a chart, and what surrounds its plot; a phone shows it at about this size.
const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 270.0;
const LEFT: f64 = 48.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 42.0;
/// Width of a character of a label, and the distance between two labels and two ticks.
const CHARACTER: f64 = 7.1;
const LABEL_HEIGHT: f64 = 14.0;
const TICK_WIDTH: f64 = 30.0;
/// Characters of a line's label at most.
const LABEL_CHARACTERS: usize = 22;
/// Greatest value by the least from which on the vertical axis is logarithmic.
const LOGARITHMIC: f64 = 20.0;
/// Colours; those of further lines come again.
const TONES: usize = 8;

/// Colours and strokes of charts.
pub const STYLE: &str = "\
:root{--ink:#1b1f24;--soft:#5b6470;--grid:#dfe3e8;--ground:#fff;--t0:#1f5fbf;--t1:#c2570c;\
--t2:#1a7f4b;--t3:#8a3ab9;--t4:#c0243b;--t5:#0b7a8a;--t6:#7a5a1e;--t7:#b8327f}
@media(prefers-color-scheme:dark){:root{--ink:#e8eaed;--soft:#a2abb8;--grid:#333a44;\
--ground:#14171c;--t0:#6ea8ff;--t1:#ff9d57;--t2:#5fd39a;--t3:#cf9bff;--t4:#ff7f8f;--t5:#56cfe0;\
--t6:#d8b36a;--t7:#ff8ac4}}
svg text{font:12px system-ui,sans-serif;fill:var(--soft)}
svg .grid{stroke:var(--grid);fill:none}svg .line{fill:none;stroke-width:2;stroke:currentColor}
svg .mark{fill:currentColor}svg .label{fill:currentColor;font-weight:600;font-size:11px}
svg .lead{stroke:currentColor;stroke-width:1;opacity:.4}
svg .ceiling{color:var(--soft)}svg .ceiling .line{stroke-dasharray:5 4;stroke-width:1.5}
svg .t0{color:var(--t0)}svg .t1{color:var(--t1)}svg .t2{color:var(--t2)}svg .t3{color:var(--t3)}\
svg .t4{color:var(--t4)}svg .t5{color:var(--t5)}svg .t6{color:var(--t6)}svg .t7{color:var(--t7)}
";

/// Lines over one pair of axes.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    pub title: String,
    /// Titles of the axes, with their units.
    pub x_title: String,
    pub y_title: String,
    pub lines: Vec<Line>,
}

/// Line of a chart.
#[derive(Clone, Debug)]
pub struct Line {
    pub name: String,
    /// Colour and mark, counted from 0; `None` for what nothing can exceed.
    pub tone: Option<usize>,
    pub points: Vec<(f64, f64)>,
}

impl Chart {
    /// Adds a point to the line of this name; what was measured again replaces what was there.
    /// Leaves out what a logarithmic axis cannot show.
    pub fn add(&mut self, name: &str, tone: Option<usize>, point: (f64, f64)) {
        if !(0.0 < point.0 && point.0.is_finite() && 0.0 <= point.1 && point.1.is_finite()) {
            return;
        }
        let found = self.lines.iter().position(|line| line.name == name);
        let index = found.unwrap_or_else(|| {
            self.lines.push(Line { name: name.to_owned(), tone, points: Vec::new() });
            self.lines.len() - 1
        });
        let points = &mut self.lines[index].points;
        points.retain(|(x, _)| (*x - point.0).abs() > f64::EPSILON * point.0);
        points.push(point);
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
    }

    /// Returns the different places along the axis below.
    pub fn xs(&self) -> Vec<f64> {
        let mut xs: Vec<_> = self.points().map(|point| point.0).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        xs
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.lines.iter().flat_map(|line| line.points.iter().copied())
    }

    /// Draws the chart; with nothing to draw, only its axes.
    pub fn svg(&self) -> String {
        let label = |line: &Line| float_of(line.name.chars().count().min(LABEL_CHARACTERS));
        let label = self.lines.iter().map(label).fold(0.0, f64::max);
        let right = WIDTH - label * CHARACTER - 16.0;
        let x = Axis::new(self.points().map(|point| point.0), Scale::Logarithmic, (LEFT, right));
        let scale = Scale::of(self.points().map(|point| point.1));
        let y = Axis::new(self.points().map(|point| point.1), scale, (HEIGHT - BOTTOM, TOP));
        let mut out = String::new();
        self.draw_axes(&mut out, &x, &y)
            .and_then(|()| self.draw_lines(&mut out, &x, &y))
            .expect("memory takes what is written to it");
        out + "</svg>"
    }

    fn draw_axes(&self, out: &mut String, x: &Axis, y: &Axis) -> std::fmt::Result {
        let (title, x_title) = (escaped(&self.title), escaped(&self.x_title));
        let logarithmic = if y.scale == Scale::Logarithmic { ", log scale" } else { "" };
        let y_title = escaped(&format!("{}{logarithmic}", self.y_title));
        let (bottom, right) = (HEIGHT - BOTTOM, x.pixels.1);
        writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             role=\"img\" aria-label=\"{title}: {y_title} by {x_title}\">"
        )?;
        for tick in y.ticks(&[]) {
            let (at, text) = (y.at(tick), short(tick));
            writeln!(
                out,
                "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{right:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
                LEFT - 6.0,
                at + 4.0
            )?;
        }
        // A ceiling measured once is drawn across: its own place says nothing.
        let placed = self.lines.iter().filter(|line| line.tone.is_some() || 1 < line.points.len());
        let placed = Self { lines: placed.cloned().collect(), ..Self::default() };
        for tick in x.ticks(&placed.xs()) {
            let (at, text) = (x.at(tick), short(tick));
            writeln!(
                out,
                "<path class=\"grid\" d=\"M{at:.1} {bottom}v4\"/>\
                 <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
                bottom + 17.0
            )?;
        }
        let middle = f64::midpoint(LEFT, right);
        writeln!(
            out,
            "<text x=\"2\" y=\"14\">{y_title}</text>\
             <text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{x_title}</text>",
            HEIGHT - 7.0
        )
    }

    fn draw_lines(&self, out: &mut String, x: &Axis, y: &Axis) -> std::fmt::Result {
        let ends = self.lines.iter().map(|line| line.points.last().map_or(0.0, |end| y.at(end.1)));
        let labels = spread_out(&ends.collect::<Vec<_>>(), (TOP, HEIGHT - BOTTOM));
        for (line, label) in self.lines.iter().zip(labels) {
            let class = line.tone.map_or("ceiling".to_owned(), |tone| format!("t{}", tone % TONES));
            writeln!(out, "<g class=\"{class}\">")?;
            let at: Vec<_> =
                line.points.iter().map(|point| (x.at(point.0), y.at(point.1))).collect();
            match (&at[..], line.tone) {
                // A ceiling that was measured once holds everywhere.
                ([(_, at)], None) => {
                    writeln!(
                        out,
                        "<path class=\"line\" d=\"M{LEFT} {at:.1}H{:.1}\"/>",
                        x.pixels.1
                    )?;
                }
                _ => {
                    let path = at.iter().map(|(x, y)| format!("{x:.1} {y:.1}"));
                    let path = path.collect::<Vec<_>>().join("L");
                    writeln!(out, "<path class=\"line\" d=\"M{path}\"/>")?;
                }
            }
            for (point, at) in line.points.iter().zip(&at) {
                let text = format!("{}: {} at {}", line.name, short(point.1), short(point.0));
                let mark = line.tone.map_or(String::new(), |tone| mark(tone, *at));
                writeln!(
                    out,
                    "<path class=\"mark\" d=\"{mark}\"><title>{}</title></path>",
                    escaped(&text)
                )?;
            }
            let (end, from) = (at.last().copied().unwrap_or_default(), x.pixels.1 + 8.0);
            if 1 < at.len() && (6.0 < (label - end.1).abs() || 20.0 < from - end.0) {
                writeln!(
                    out,
                    "<path class=\"lead\" d=\"M{:.1} {:.1}L{from:.1} {label:.1}\"/>",
                    end.0 + 5.0,
                    end.1
                )?;
            }
            let name: String = line.name.chars().take(LABEL_CHARACTERS).collect();
            writeln!(
                out,
                "<text class=\"label\" x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
                from + 2.0,
                label + 4.0,
                escaped(&name)
            )?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Linear,
    Logarithmic,
}

impl Scale {
    /// Chooses logarithms for values that differ much.
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let (least, most) = bounds(values);
        if 0.0 < least && LOGARITHMIC * least < most { Self::Logarithmic } else { Self::Linear }
    }
}

/// Axis from one value to another, and from one pixel to another.
struct Axis {
    scale: Scale,
    values: (f64, f64),
    pixels: (f64, f64),
}

impl Axis {
    fn new(values: impl Iterator<Item = f64>, scale: Scale, pixels: (f64, f64)) -> Self {
        let (least, most) = bounds(values);
        let values = match scale {
            _ if most <= 0.0 || least.is_infinite() => (0.5, 2.0),
            Scale::Linear => (0.0, most * 1.08),
            Scale::Logarithmic if least < most => (least / 1.12, most * 1.12),
            Scale::Logarithmic => (least / 2.0, most * 2.0),
        };
        Self { scale, values, pixels }
    }

    fn at(&self, value: f64) -> f64 {
        let ((from, to), (first, last)) = (self.values, self.pixels);
        let share = match self.scale {
            Scale::Linear => (value - from) / (to - from),
            Scale::Logarithmic => (value / from).ln() / (to / from).ln(),
        };
        first + share * (last - first)
    }

    /// Returns what to write beside the axis: of these values as many as have room, or round ones.
    fn ticks(&self, wanted: &[f64]) -> Vec<f64> {
        let candidates = match self.scale {
            Scale::Logarithmic if (2..=9).contains(&wanted.len()) => wanted.to_vec(),
            Scale::Logarithmic => self.decades(),
            Scale::Linear => {
                let rough = self.values.1 / 5.0;
                let power = 10_f64.powf(rough.log10().floor());
                let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
                let step = steps.into_iter().find(|step| rough <= *step).unwrap_or(rough);
                (0..=6).map(|count| float_of(count) * step).collect()
            }
        };
        let is_within = |value: &f64| (self.values.0..=self.values.1).contains(value);
        let room = if self.pixels.0 < self.pixels.1 { TICK_WIDTH } else { LABEL_HEIGHT };
        let mut ticks: Vec<f64> = Vec::new();
        for value in candidates.into_iter().filter(is_within) {
            let is_free = |last: &f64| room <= (self.at(value) - self.at(*last)).abs();
            if ticks.last().is_none_or(is_free) {
                ticks.push(value);
            }
        }
        ticks
    }

    /// Returns the powers of ten, with what lies between if these are few.
    fn decades(&self) -> Vec<f64> {
        let parts: &[f64] =
            if self.values.1 / self.values.0 < 1e3 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let mut power = 10_f64.powf(self.values.0.log10().floor());
        let mut values = Vec::new();
        while power <= self.values.1 {
            values.extend(parts.iter().map(|part| part * power));
            power *= 10.0;
        }
        values
    }
}

fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let bounds = (f64::INFINITY, f64::NEG_INFINITY);
    values.fold(bounds, |(least, most), value| (least.min(value), most.max(value)))
}

/// Moves heights apart that are too close for their labels, and keeps them within bounds.
fn spread_out(heights: &[f64], (top, bottom): (f64, f64)) -> Vec<f64> {
    let mut order: Vec<usize> = (0..heights.len()).collect();
    order.sort_by(|one, other| heights[*one].total_cmp(&heights[*other]));
    let mut placed = heights.to_vec();
    let mut free = top;
    for &index in &order {
        placed[index] = placed[index].max(free);
        free = placed[index] + LABEL_HEIGHT;
    }
    let mut free = bottom;
    for &index in order.iter().rev() {
        placed[index] = placed[index].min(free);
        free = placed[index] - LABEL_HEIGHT;
    }
    placed
}

/// Draws a mark around a point: lines differ also where colours do not.
fn mark(tone: usize, (x, y): (f64, f64)) -> String {
    let (left, top) = (x - 3.5, y - 3.5);
    match tone % 4 {
        0 => format!("M{left:.1} {y:.1}a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0"),
        1 => format!("M{left:.1} {top:.1}h7v7h-7z"),
        2 => format!("M{x:.1} {:.1}l4.5 8h-9z", y - 5.0),
        _ => format!("M{x:.1} {:.1}l5 5l-5 5l-5-5z", y - 5.0),
    }
}

/// Writes a number as short as axes need it.
pub fn short(value: f64) -> String {
    let units = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    let unit = units.into_iter().find(|(unit, _)| *unit <= value.abs() * 1.000_001);
    let (unit, name) = unit.unwrap_or((1.0, ""));
    let text = measurement(value / unit);
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{name}")
}

/// Makes text safe within elements and attributes of HTML and SVG.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // XML has no others.
            control if control.is_control() && control != '\n' => safe.push('\u{fffd}'),
            other => safe.push(other),
        }
    }
    safe
}

impl<C: Copy> Table<C> {
    /// Draws a number of rows by another one to a file: a line for the rows of each series. Rows
    /// without a series or a number are left out; without any row there is no file.
    pub fn draw(
        &self,
        path: &Path,
        (x, y): (Number, Number),
        series: impl Fn(&C) -> Option<String>,
    ) -> Result<()> {
        let (x_title, y_title) = (x.title.to_owned(), y.title.to_owned());
        let mut chart = Chart { x_title, y_title, ..Chart::default() };
        let mut tones = BTreeMap::new();
        for Row { case, sample, .. } in &self.rows {
            let Some((name, point)) = series(case).zip(sample.get(x).zip(sample.get(y))) else {
                continue;
            };
            let next = tones.len();
            let tone = *tones.entry(name.clone()).or_insert(next);
            chart.add(&name, Some(tone), (point.0, y.in_unit(point.1)));
        }
        if !chart.lines.is_empty() {
            let ground = "svg{background:var(--ground)}";
            let svg = chart.svg().replacen('\n', &format!("<style>{STYLE}{ground}</style>\n"), 1);
            fs::write(path, svg).with_context(|| format!("cannot draw {}", path.display()))?;
            println!("drawn: {}", path.display());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: &[(&str, f64, f64)]) -> Chart {
        let mut chart = Chart { y_title: "us".to_owned(), ..Chart::default() };
        for (name, x, y) in points {
            chart.add(name, (*name != "null").then_some(0), (*x, *y));
        }
        chart
    }

    /// Returns the coordinates of the path of each line.
    fn paths(svg: &str) -> Vec<Vec<(f64, f64)>> {
        let paths = svg.split("class=\"line\" d=\"M").skip(1);
        let paths = paths.map(|rest| rest.split('"').next().unwrap().split('L'));
        let number = |text: &str| text.parse().unwrap();
        paths
            .map(|path| {
                path.map(|point| {
                    let (x, y) = point.split_once(' ').unwrap();
                    (number(x), y.split('H').next().map(number).unwrap())
                })
                .collect()
            })
            .collect()
    }

    #[test]
    fn points_lie_where_their_numbers_are() {
        let svg = chart(&[("a", 1.0, 10.0), ("a", 100.0, 20.0), ("a", 10.0, 15.0)]).svg();
        let [path] = &paths(&svg)[..] else { panic!("{svg}") };
        let [first, middle, last] = path[..] else { panic!("{svg}") };
        // Equal factors are equal distances; a linear axis begins at 0.
        assert!((middle.0 - f64::midpoint(first.0, last.0)).abs() < 0.2, "{path:?}");
        assert!((middle.1 - f64::midpoint(first.1, last.1)).abs() < 0.2, "{path:?}");
        let zero = HEIGHT - BOTTOM;
        assert!((zero - last.1 - 2.0 * (zero - first.1)).abs() < 0.3, "{path:?}");
        assert!(svg.contains(">a: 20 at 100<") && !svg.contains("log scale"), "{svg}");
    }

    #[test]
    fn values_that_differ_much_have_a_logarithmic_axis() {
        let points = [("a", 1.0, 1.0), ("a", 2.0, 10.0), ("a", 4.0, 100.0), ("a", 8.0, 1_000.0)];
        let svg = chart(&points).svg();
        let [path] = &paths(&svg)[..] else { panic!("{svg}") };
        let steps: Vec<_> = path.windows(2).map(|pair| pair[0].1 - pair[1].1).collect();
        assert!(steps.iter().all(|step| (step - steps[0]).abs() < 0.3 && 20.0 < *step), "{path:?}");
        assert!(svg.contains("us, log scale") && svg.contains(">1k</text>"), "{svg}");
    }

    #[test]
    fn what_cannot_be_shown_is_left_out_and_what_is_measured_again_replaces() {
        let mut chart = chart(&[("a", 1.0, 5.0), ("a", 1.0, 7.0)]);
        chart.add("a", Some(0), (0.0, 1.0));
        chart.add("a", Some(0), (1.0, f64::NAN));
        chart.add("a", Some(0), (f64::INFINITY, 1.0));
        assert_eq!((chart.lines.len(), &chart.lines[0].points[..]), (1, &[(1.0, 7.0)][..]));
        for svg in [chart.svg(), Chart::default().svg()] {
            assert!(
                !svg.contains("NaN") && !svg.contains("inf") && svg.ends_with("</svg>"),
                "{svg}"
            );
        }
    }

    #[test]
    fn a_ceiling_measured_once_goes_across_and_labels_do_not_touch() {
        let svg = chart(&[("null", 2.0, 10.0), ("a", 1.0, 9.9), ("a", 4.0, 9.9)]).svg();
        assert!(svg.contains("class=\"ceiling\"") && svg.contains(&format!("M{LEFT} ")), "{svg}");
        let placed = spread_out(&[50.0, 51.0, 200.0, 49.0, 227.0, 228.0], (28.0, 228.0));
        let mut sorted = placed.clone();
        sorted.sort_by(f64::total_cmp);
        assert!(
            sorted.windows(2).all(|pair| LABEL_HEIGHT <= pair[1] - pair[0] + 0.001),
            "{placed:?}"
        );
        assert!(placed[3] < placed[0] && placed[0] < placed[1] && placed[5] <= 228.0, "{placed:?}");
    }

    #[test]
    fn names_cannot_leave_their_place() {
        let hostile = "</svg><script>alert('1')</script>\"&\u{1}";
        let mut chart = chart(&[(hostile, 1.0, 1.0)]);
        (chart.title, chart.x_title) = (hostile.to_owned(), hostile.to_owned());
        let svg = chart.svg();
        assert!(!svg.contains("<script") && !svg.contains('\u{1}'), "{svg}");
        assert_eq!(svg.matches("</svg>").count(), 1);
        assert_eq!(escaped("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
    }

    #[test]
    fn numbers_on_axes_are_short() {
        let shown = [0.0, 0.05, 1.0, 2.5, 64.0, 999.0, 1_000.0, 1_500_000.0, 2e9].map(short);
        assert_eq!(shown, ["0", "0.05", "1", "2.5", "64", "999", "1k", "1.5M", "2G"]);
    }
}
