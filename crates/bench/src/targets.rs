//! Numbers that were set as targets, each beside what was measured. What was not measured is said
//! to be so, never guessed.

use crate::report::{self, Column, measurement, number, text};

const COLUMNS: &[Column<Target>] = &[
    text("number", 74, |target| target.what.clone()),
    number("measured", 10, |target| {
        target.value.map_or_else(|| "-".to_owned(), |value| target.unit.text(value))
    }),
    text("wanted", 16, Target::wanted),
    text("", 12, |target| target.verdict().to_owned()),
    text("that is", 7, |target| target.quotient.clone()),
];

/// Unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Count,
    Seconds,
    Mebibytes,
    Bytes,
    Times,
    /// A quotient, shown as a percentage.
    Percent,
}

impl Unit {
    /// The name in tables and in the CSV.
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "",
            Self::Seconds => "s",
            Self::Mebibytes => "MiB",
            Self::Bytes => "B",
            Self::Times => "x",
            Self::Percent => "%",
        }
    }

    /// A value and its unit.
    pub fn text(self, value: f64) -> String {
        match self {
            Self::Count if value.fract() == 0.0 => format!("{value:.0}"),
            Self::Count => measurement(value),
            Self::Times => format!("{}x", measurement(value)),
            Self::Percent => format!("{:.1}%", value * 100.0),
            _ => format!("{} {}", measurement(value), self.name()),
        }
    }
}

/// Bound that a number is to keep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wanted {
    AtLeast(f64),
    AtMost(f64),
    /// The number is only told.
    Nothing,
}

/// A number that was set as a target.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    pub what: String,
    pub unit: Unit,
    pub value: Option<f64>,
    pub wanted: Wanted,
    /// Division that gave the value, for people.
    pub quotient: String,
}

impl Target {
    /// Makes a target whose value is no quotient, or one that needs no explanation.
    pub fn new(what: &str, unit: Unit, value: Option<f64>, wanted: Wanted) -> Self {
        Self { what: what.to_owned(), unit, value, wanted, quotient: String::new() }
    }

    fn wanted(&self) -> String {
        match self.wanted {
            Wanted::AtLeast(wanted) => format!("at least {}", self.unit.text(wanted)),
            Wanted::AtMost(wanted) => format!("at most {}", self.unit.text(wanted)),
            Wanted::Nothing => String::new(),
        }
    }

    /// Compares the exact value, not the rounded one that is shown.
    fn verdict(&self) -> &'static str {
        let is_reached = match (self.value, self.wanted) {
            (None, _) => return "not measured",
            (Some(_), Wanted::Nothing) => return "",
            (Some(value), Wanted::AtLeast(wanted)) => wanted <= value,
            (Some(value), Wanted::AtMost(wanted)) => value <= wanted,
        };
        if is_reached { "reached" } else { "NOT REACHED" }
    }

    /// Returns the cells of its row, separated by bars.
    #[cfg(test)]
    pub fn shown(&self) -> String {
        let value = self.value.map_or_else(|| "-".to_owned(), |value| self.unit.text(value));
        let cells = [&self.what, &value, &self.wanted(), self.verdict(), &self.quotient];
        cells.join(" | ").trim_end_matches(" | ").to_owned()
    }
}

/// Prints the targets beside what was measured.
pub fn print(targets: &[Target]) {
    report::print("Numbers, from the medians above", COLUMNS, targets);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_reached_or_not_or_not_measured() {
        let shown = |value, wanted| Target::new("it", Unit::Count, value, wanted).shown();
        assert_eq!(shown(Some(2.0), Wanted::AtLeast(2.0)), "it | 2 | at least 2 | reached");
        assert_eq!(shown(Some(2.0), Wanted::AtMost(1.0)), "it | 2 | at most 1 | NOT REACHED");
        assert_eq!(shown(None, Wanted::AtMost(1.0)), "it | - | at most 1 | not measured");
        assert_eq!(shown(Some(2.0), Wanted::Nothing), "it | 2");
    }

    #[test]
    fn a_verdict_is_not_rounded() {
        let target = Target::new("it", Unit::Percent, Some(0.7499), Wanted::AtLeast(0.75));
        assert_eq!(target.shown(), "it | 75.0% | at least 75.0% | NOT REACHED");
    }
}
