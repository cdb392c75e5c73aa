//! Numbers that were set as targets, each beside what was measured. What was not measured is said
//! to be so, never guessed.

use crate::report::{self, Column, measurement, number, text};

const COLUMNS: &[Column] =
    &[text("number", 66), number("measured", 10), text("wanted", 16), text("", 12)];

/// What a number is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Count,
    Seconds,
    Mebibytes,
    Bytes,
    Times,
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
        }
    }

    /// A value and its unit.
    pub fn text(self, value: f64) -> String {
        match self {
            Self::Count if value.fract() == 0.0 => format!("{value:.0}"),
            Self::Count => measurement(value),
            Self::Times => format!("{}x", measurement(value)),
            _ => format!("{} {}", measurement(value), self.name()),
        }
    }
}

/// What a number is to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wanted {
    AtLeast(f64),
    AtMost(f64),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    pub what: String,
    pub unit: Unit,
    pub value: Option<f64>,
    /// What it is to be.
    pub wanted: Wanted,
}

impl Target {
    /// A row of the table: the number, as measured, as wanted, and whether it was reached.
    pub fn cases(&self) -> Vec<String> {
        let (wanted, is_reached) = match self.wanted {
            Wanted::AtLeast(wanted) => (
                format!("at least {}", self.unit.text(wanted)),
                self.value.map(|value| wanted <= value),
            ),
            Wanted::AtMost(wanted) => (
                format!("at most {}", self.unit.text(wanted)),
                self.value.map(|value| value <= wanted),
            ),
        };
        let verdict = match is_reached {
            None => "not measured",
            Some(true) => "reached",
            Some(false) => "NOT REACHED",
        };
        let measured = self.value.map_or_else(|| "-".to_owned(), |value| self.unit.text(value));
        vec![self.what.clone(), measured, wanted, verdict.to_owned()]
    }
}

pub fn print(targets: &[Target]) {
    report::print("Numbers, from the medians above", COLUMNS, targets.iter().map(Target::cases));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units() {
        assert_eq!(Unit::Count.text(256.0), "256");
        assert_eq!(Unit::Seconds.text(1.234), "1.23 s");
        assert_eq!(Unit::Times.text(1.056), "1.06x");
    }

    #[test]
    fn targets_are_reached_or_not_or_not_measured() {
        let verdict = |value, wanted| {
            Target { what: "it".to_owned(), unit: Unit::Count, value, wanted }.cases().join(" | ")
        };
        assert_eq!(verdict(Some(2.0), Wanted::AtLeast(2.0)), "it | 2 | at least 2 | reached");
        assert_eq!(verdict(Some(2.0), Wanted::AtMost(1.0)), "it | 2 | at most 1 | NOT REACHED");
        assert_eq!(verdict(None, Wanted::AtMost(1.0)), "it | - | at most 1 | not measured");
    }
}
