//! Numbers that stand alone, of sections without rows that are compared.

use std::path::Path;

use anyhow::Result;

use super::cases::Section;
use crate::{
    report::{self, Column, Csv, number, text},
    stats::median,
    targets::Unit,
};

/// A number of a section without a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    pub section: Section,
    pub name: String,
    pub unit: Unit,
    /// One for each round.
    pub values: Vec<f64>,
}

impl Measurement {
    /// The one that is shown.
    pub fn median(&self) -> f64 {
        median(self.values.iter().copied()).unwrap_or_default()
    }
}

const COLUMNS: &[Column] =
    &[text("", 64), number("median", 10), number("least", 10), number("most", 10)];

const CSV_HEADER: &[&str] = &["section", "measurement", "unit", "round", "value"];

/// All of them, and measurements.csv.
pub struct Measurements {
    csv: Csv,
    measurements: Vec<Measurement>,
}

impl Measurements {
    /// Opens the file and says in it what is measured where.
    pub fn open(path: &Path, about: &str) -> Result<Self> {
        Ok(Self { csv: Csv::open(path, about, CSV_HEADER)?, measurements: Vec::new() })
    }

    /// Adds one round's value.
    pub fn add(&mut self, section: Section, name: &str, unit: Unit, value: f64) -> Result<()> {
        let known = self
            .measurements
            .iter()
            .position(|measurement| measurement.section == section && measurement.name == name);
        let position = known.unwrap_or_else(|| {
            self.measurements.push(Measurement {
                section,
                name: name.to_owned(),
                unit,
                values: Vec::new(),
            });
            self.measurements.len() - 1
        });
        let values = &mut self.measurements[position].values;
        values.push(value);
        let round = values.len().to_string();
        let fields = [section.name(), name, unit.name(), &round, &format!("{value:.6}")];
        self.csv.append(&fields.map(str::to_owned))
    }

    /// The median of a measurement.
    pub fn median(&self, section: Section, name: &str) -> Option<f64> {
        let found = self
            .measurements
            .iter()
            .find(|measurement| measurement.section == section && measurement.name == name);
        found.map(Measurement::median)
    }

    /// Prints those of a section.
    pub fn print(&self, section: Section, title: &str) {
        let row = |measurement: &Measurement| {
            let of = |value: f64| measurement.unit.text(value);
            let least = measurement.values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = measurement.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            vec![measurement.name.clone(), of(measurement.median()), of(least), of(most)]
        };
        let measurements =
            self.measurements.iter().filter(|measurement| measurement.section == section);
        report::print(title, COLUMNS, measurements.map(row));
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
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "# about\nsection,measurement,unit,round,value\nopen,cold,s,1,3.000000\nopen,cold,s,2,1.000000\nopen,cold,s,3,2.000000\n"
        );
    }
}
