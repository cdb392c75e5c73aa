//! All rows measured so far, what they are compared with, and numbers that stand alone.

use std::path::Path;

use anyhow::Result;

use super::{
    cells::{Cell, Section, State, Way},
    sample::Sample,
};
use crate::{
    report::{self, Column, Csv, figure, number, text},
    stats::{median, ratio},
};

/// A row and its medians.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What was measured.
    pub cell: Cell,
    /// The figures.
    pub sample: Sample,
}

/// All rows.
#[derive(Clone, Debug, Default)]
pub struct Results {
    rows: Vec<Measured>,
}

/// Beside what a row stands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ratios {
    /// Chunks per second beside direct reads at the same load.
    pub of_direct: Option<f64>,
    /// Median time beside that of an empty call by as many callers.
    pub of_check: Option<f64>,
}

impl Results {
    /// Adds a row.
    pub fn add(&mut self, cell: Cell, sample: Sample) {
        self.rows.push(Measured { cell, sample });
    }

    /// All rows, in the order they were measured.
    pub fn rows(&self) -> &[Measured] {
        &self.rows
    }

    /// The first row that `chosen` picks.
    pub fn find(&self, chosen: impl Fn(&Cell) -> bool) -> Option<&Measured> {
        self.rows.iter().find(|row| chosen(&row.cell))
    }

    /// What a row is compared with in its table.
    pub fn ratios(&self, row: &Measured) -> Ratios {
        if row.cell.state == State::None {
            return Ratios::default();
        }
        let alike = |cell: &Cell, way| {
            cell.way == way && cell.section == row.cell.section && cell.callers == row.cell.callers
        };
        let direct = self.find(|cell| alike(cell, Way::Direct));
        let check = self.find(|cell| alike(cell, Way::Check)).filter(|_| row.cell.batch == 1);
        Ratios {
            of_direct: direct.and_then(|direct| ratio(row.sample.per_s, direct.sample.per_s)),
            of_check: check.and_then(|check| ratio(row.sample.p50_us, check.sample.p50_us)),
        }
    }
}

/// What a number is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Time.
    Seconds,
    /// Memory.
    Mebibytes,
    /// Memory by chunk.
    Bytes,
    /// A quotient.
    Times,
}

impl Unit {
    fn name(self) -> &'static str {
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
            Self::Count => figure(value),
            Self::Times => format!("{}x", figure(value)),
            _ => format!("{} {}", figure(value), self.name()),
        }
    }
}

/// A number of a section without a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Of which.
    pub section: Section,
    /// What it is.
    pub name: String,
    /// Of it.
    pub unit: Unit,
    /// One for each round.
    pub values: Vec<f64>,
}

impl Figure {
    /// The one that is shown.
    pub fn median(&self) -> f64 {
        median(self.values.iter().copied()).unwrap_or_default()
    }
}

const COLUMNS: &[Column] = &[text("", 64), number("median", 10), number("least", 10), number("most", 10)];

const CSV_HEADER: &[&str] = &["section", "figure", "unit", "round", "value"];

/// All of them, and figures.csv.
pub struct Figures {
    csv: Csv,
    figures: Vec<Figure>,
}

impl Figures {
    /// Opens the file and says in it what is measured where.
    ///
    /// # Errors
    ///
    /// It cannot be written, or holds something else.
    pub fn open(path: &Path, about: &str) -> Result<Self> {
        Ok(Self { csv: Csv::open(path, about, CSV_HEADER)?, figures: Vec::new() })
    }

    /// Adds one round's value.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn add(&mut self, section: Section, name: &str, unit: Unit, value: f64) -> Result<()> {
        let known = self.figures.iter().position(|figure| figure.section == section && figure.name == name);
        let position = known.unwrap_or_else(|| {
            self.figures.push(Figure { section, name: name.to_owned(), unit, values: Vec::new() });
            self.figures.len() - 1
        });
        let values = &mut self.figures[position].values;
        values.push(value);
        let round = values.len().to_string();
        let fields = [section.name(), name, unit.name(), &round, &format!("{value:.6}")];
        self.csv.append(&fields.map(str::to_owned))
    }

    /// The median of a figure.
    pub fn median(&self, section: Section, name: &str) -> Option<f64> {
        let found = self.figures.iter().find(|figure| figure.section == section && figure.name == name);
        found.map(Figure::median)
    }

    /// Prints those of a section.
    pub fn print(&self, section: Section, title: &str) {
        println!("\n{title}\n{}", report::heading(COLUMNS));
        for figure in self.figures.iter().filter(|figure| figure.section == section) {
            let of = |value: f64| figure.unit.text(value);
            let least = figure.values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = figure.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let cells = [figure.name.clone(), of(figure.median()), of(least), of(most)];
            println!("{}", report::row(COLUMNS, &cells));
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::experiment::chunks::{cells::Work, clients::Form};

    /// A row of random reads with the given throughput and median time.
    pub fn add(results: &mut Results, state: State, way: Way, callers: usize, figures: (f64, f64)) {
        let cell = Cell {
            section: Section::Reads,
            state,
            way,
            form: Form::Decoded,
            work: Work::Random,
            callers,
            batch: 1,
        };
        let (per_s, p50_us) = figures;
        results.add(cell, Sample { per_s, p50_us, mean_us: p50_us, ..Sample::default() });
    }

    #[test]
    fn rows_are_compared_at_the_same_load() {
        let mut results = Results::default();
        add(&mut results, State::None, Way::Direct, 1, (30.0, 33_000.0));
        add(&mut results, State::None, Way::Direct, 16, (480.0, 33_000.0));
        add(&mut results, State::None, Way::Check, 1, (20_000.0, 50.0));
        add(&mut results, State::Disk, Way::GetChunk, 1, (15_000.0, 75.0));
        add(&mut results, State::Disk, Way::GetChunk, 16, (48_000.0, 75.0));
        let ratios: Vec<_> = results.rows().iter().map(|row| results.ratios(row)).collect();
        assert_eq!(ratios[3], Ratios { of_direct: Some(500.0), of_check: Some(1.5) });
        assert_eq!(ratios[4], Ratios { of_direct: Some(100.0), of_check: None });
        assert_eq!(ratios[0], Ratios::default());
    }

    #[test]
    fn figures_are_medians_of_their_rounds() {
        let directory = crate::cleanup::Cleanup::default().directory(&std::env::temp_dir()).unwrap();
        let path = directory.path().join("figures.csv");
        let mut figures = Figures::open(&path, "about").unwrap();
        for value in [3.0, 1.0, 2.0] {
            figures.add(Section::Open, "cold", Unit::Seconds, value).unwrap();
        }
        assert_eq!(figures.median(Section::Open, "cold"), Some(2.0));
        assert_eq!(figures.median(Section::Open, "warm"), None);
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "# about\nsection,figure,unit,round,value\nopen,cold,s,1,3.000000\nopen,cold,s,2,1.000000\nopen,cold,s,3,2.000000\n"
        );
    }

    #[test]
    fn numbers_have_units() {
        assert_eq!(Unit::Count.text(256.0), "256");
        assert_eq!(Unit::Seconds.text(1.234), "1.23 s");
        assert_eq!(Unit::Times.text(1.056), "1.06x");
    }
}
