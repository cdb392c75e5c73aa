//! Numbers that stand alone, of sections without rows that are compared.

use std::path::Path;

use anyhow::Result;

use super::cases::Section;
use crate::{
    report::{self, Column, Csv, Field, field, number, text},
    stats::median,
    targets::Unit,
};

/// A number of a section without a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    pub section: Section,
    pub name: String,
    pub unit: Unit,
    /// Values, one for each round.
    pub values: Vec<f64>,
}

impl Measurement {
    /// The one that is shown.
    pub fn median(&self) -> f64 {
        median(self.values.iter().copied()).unwrap_or_default()
    }

    fn is(&self, section: Section, name: &str) -> bool {
        self.section == section && self.name == name
    }

    fn text(&self, first: f64, of_two: fn(f64, f64) -> f64) -> String {
        self.unit.text(self.values.iter().copied().fold(first, of_two))
    }
}

const COLUMNS: &[Column<Measurement>] = &[
    text("", 64, |one| one.name.clone()),
    number("median", 10, |one| one.unit.text(one.median())),
    number("least", 10, |one| one.text(f64::INFINITY, f64::min)),
    number("most", 10, |one| one.text(f64::NEG_INFINITY, f64::max)),
];

/// The last value of a measurement, as a record of the CSV file.
const FIELDS: &[Field<Measurement>] = &[
    field("section", |one| one.section.name().to_owned()),
    field("measurement", |one| one.name.clone()),
    field("unit", |one| one.unit.name().to_owned()),
    field("round", |one| one.values.len().to_string()),
    field("value", |one| one.values.last().map(|value| format!("{value:.6}")).unwrap_or_default()),
];

/// List of measurements, and measurements.csv.
pub struct Measurements {
    csv: Csv<Measurement>,
    measurements: Vec<Measurement>,
}

impl Measurements {
    /// Opens the file and says in it what is measured where.
    pub fn open(path: &Path, about: &str) -> Result<Self> {
        Ok(Self { csv: Csv::open(path, about, FIELDS)?, measurements: Vec::new() })
    }

    /// Adds one round's value.
    pub fn add(&mut self, section: Section, name: &str, unit: Unit, value: f64) -> Result<()> {
        let known = self.measurements.iter().position(|one| one.is(section, name));
        let position = known.unwrap_or_else(|| {
            let name = name.to_owned();
            self.measurements.push(Measurement { section, name, unit, values: Vec::new() });
            self.measurements.len() - 1
        });
        self.measurements[position].values.push(value);
        self.csv.append(&self.measurements[position])
    }

    /// The median of a measurement.
    pub fn median(&self, section: Section, name: &str) -> Option<f64> {
        self.measurements.iter().find(|one| one.is(section, name)).map(Measurement::median)
    }

    /// Prints those of a section.
    pub fn print(&self, section: Section, title: &str) {
        let of_section = self.measurements.iter().filter(|one| one.section == section);
        report::print(title, COLUMNS, &of_section.cloned().collect::<Vec<_>>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_are_medians_of_their_rounds() {
        let directory =
            crate::cleanup::Cleanup::default().directory(&std::env::temp_dir()).unwrap();
        let path = directory.path().join("measurements.csv");
        let mut measurements = Measurements::open(&path, "about").unwrap();
        for value in [3.0, 1.0, 2.0] {
            measurements.add(Section::Open, "cold", Unit::Seconds, value).unwrap();
        }
        assert_eq!(measurements.median(Section::Open, "cold"), Some(2.0));
        assert_eq!(measurements.median(Section::Open, "warm"), None);
        let written = std::fs::read_to_string(&path).unwrap();
        let records =
            ["open,cold,s,1,3.000000", "open,cold,s,2,1.000000", "open,cold,s,3,2.000000"];
        let header = "# about\nsection,measurement,unit,round,value";
        assert_eq!(written, format!("{header}\n{}\n", records.join("\n")));
    }
}
