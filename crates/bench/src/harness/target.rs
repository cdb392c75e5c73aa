//! Numbers that were set as targets, each beside what was measured. What was not measured is said
//! to be so, never guessed.

use super::measurement;

/// Unit of a target.
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
    /// Formats a value and its unit.
    pub fn text(self, value: f64) -> String {
        match self {
            Self::Count if value.fract() == 0.0 => format!("{value:.0}"),
            Self::Count => measurement(value),
            Self::Times => format!("{value:.2}x"),
            Self::Percent => format!("{:.1}%", value * 100.0),
            Self::Seconds => format!("{} s", measurement(value)),
            Self::Mebibytes => format!("{} MiB", measurement(value)),
            Self::Bytes => format!("{} B", measurement(value)),
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
    /// Division that gave the value, for people; may be empty.
    pub quotient: String,
}

impl Target {
    pub fn new(what: impl Into<String>, unit: Unit, value: Option<f64>, wanted: Wanted) -> Self {
        Self { what: what.into(), unit, value, wanted, quotient: String::new() }
    }

    /// Returns the parts of its line: value, bound, verdict, quotient. The exact value is compared,
    /// not the rounded one that is shown.
    fn parts(&self) -> [String; 4] {
        let bound = match self.wanted {
            Wanted::AtLeast(least) => format!("at least {}", self.unit.text(least)),
            Wanted::AtMost(most) => format!("at most {}", self.unit.text(most)),
            Wanted::Nothing => String::new(),
        };
        let verdict = match (self.value, self.wanted) {
            (None, _) => "not measured",
            (Some(_), Wanted::Nothing) => "",
            (Some(value), Wanted::AtLeast(least)) if least <= value => "reached",
            (Some(value), Wanted::AtMost(most)) if value <= most => "reached",
            _ => "NOT REACHED",
        };
        let value = self.value.map_or_else(|| "-".to_owned(), |value| self.unit.text(value));
        [value, bound, verdict.to_owned(), self.quotient.clone()]
    }

    /// Joins what its line says with bars, for tests.
    #[cfg(test)]
    pub fn shown(&self) -> String {
        let shown = format!("{} | {}", self.what, self.parts().join(" | "));
        shown.trim_end_matches(" | ").to_owned()
    }
}

/// Prints the targets beside what was measured.
pub fn print_targets(targets: &[Target]) {
    println!("\nNumbers, from the medians above");
    for target in targets {
        let [value, bound, verdict, quotient] = target.parts();
        let numbers = format!("{value:>10}  {bound:<16}  {verdict:<12}  {quotient}");
        println!("{:<74}  {}", target.what, numbers.trim_end());
    }
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
        // A verdict is not rounded.
        let target = Target::new("it", Unit::Percent, Some(0.7499), Wanted::AtLeast(0.75));
        assert_eq!(target.shown(), "it | 75.0% | at least 75.0% | NOT REACHED");
    }
}
