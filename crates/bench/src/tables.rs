//! Tables of measured rows: measured in turns, shown as medians, compared with each other, and
//! appended to a CSV file.
//!
//! An experiment names its [`Case`]s (a row of a table is a case); [`Rows::group`] does the rest.

use anyhow::{Context, Result};

use crate::{
    failures::Failed,
    report::{self, Column, Csv, Field},
};

/// Measurements of a row: of one round, or the medians of several.
pub trait Measured: Clone {
    /// Returns the median of every number, each for itself. Failures add up.
    fn median(samples: &[Self]) -> Self;

    /// Says what a reader must know before trusting the numbers.
    fn notes(&self) -> String;

    /// Says in a few words what was measured, for whoever waits.
    fn headline(&self) -> String;

    /// Returns refused requests and wrong answers.
    fn failed(&self) -> &Failed;
}

/// Case that a row of a table measures.
pub trait Case: Copy + 'static {
    /// Result of measuring it.
    type Sample: Measured;
    /// Comparisons of its sample with others.
    type Ratios: Copy + Default;
    /// Facts that all records of a run have in common.
    type Setting: Clone;

    /// The columns of its table.
    const COLUMNS: &'static [Column<Row<Self>>];
    /// The fields of its records in `statistics.csv`.
    const FIELDS: &'static [Field<Row<Self>>];

    /// Returns the name in messages.
    fn name(&self) -> String;

    /// Compares a row with the others.
    fn ratios(row: &Row<Self>, rows: &Rows<Self>) -> Self::Ratios;
}

/// A row of a table, and a record of `statistics.csv`.
#[derive(Clone)]
pub struct Row<C: Case> {
    pub case: C,
    pub sample: C::Sample,
    pub ratios: C::Ratios,
    pub setting: C::Setting,
    /// Number of the measurement from 1; 0 for the medians, the only ones with ratios.
    pub round: usize,
}

/// Rows measured so far, in their order.
pub struct Rows<C: Case> {
    rows: Vec<Row<C>>,
    pub setting: C::Setting,
}

impl<C: Case> Rows<C> {
    /// Makes an empty list of rows.
    pub fn new(setting: C::Setting) -> Self {
        Self { rows: Vec::new(), setting }
    }

    /// Measures cases in turns, see [`in_turns`], appends every measurement and the medians to
    /// the file, and shows the medians as a table. Returns the new rows.
    pub fn group(
        &mut self,
        title: &str,
        cases: &[C],
        rounds: usize,
        csv: &mut Csv<Row<C>>,
        mut measure: impl FnMut(&C, usize) -> Result<C::Sample>,
    ) -> Result<&[Row<C>]> {
        let first = self.rows.len();
        let samples = in_turns(cases.len(), rounds, |index, round| {
            let case = cases[index];
            let sample = measure(&case, round).with_context(|| case.name())?;
            let ratios = C::Ratios::default();
            let row = Row { case, sample, ratios, setting: self.setting.clone(), round };
            csv.append(&row)?;
            let (headline, notes) = (row.sample.headline(), row.sample.notes());
            eprintln!("round {round} of {rounds}: {}: {headline} {notes}", case.name());
            Ok(row.sample)
        })?;
        let medians = samples.iter().map(|samples| C::Sample::median(samples));
        cases.iter().zip(medians).for_each(|(case, sample)| self.add(*case, sample));
        for index in first..self.rows.len() {
            self.rows[index].ratios = C::ratios(&self.rows[index], self);
            csv.append(&self.rows[index])?;
        }
        if first < self.rows.len() {
            report::print(title, C::COLUMNS, &self.rows[first..]);
        }
        Ok(&self.rows[first..])
    }

    /// Adds the medians of a case.
    pub fn add(&mut self, case: C, sample: C::Sample) {
        let (ratios, setting) = (C::Ratios::default(), self.setting.clone());
        self.rows.push(Row { case, sample, ratios, setting, round: 0 });
    }

    /// Returns the first row whose case `chosen` picks.
    pub fn find(&self, chosen: impl Fn(&C) -> bool) -> Option<&Row<C>> {
        self.rows.iter().find(|row| chosen(&row.case))
    }

    /// Returns all rows, in the order they were measured.
    pub fn rows(&self) -> &[Row<C>] {
        &self.rows
    }

    /// Returns what failed in all rows.
    pub fn failed(&self) -> Failed {
        Failed::sum(self.rows.iter().map(|row| row.sample.failed()))
    }
}

/// Measures `count` rows in turns: forwards in one round, backwards in the next, so that a machine
/// that gets slower or faster does so for all. Rounds count from 1. Returns each row's samples.
fn in_turns<S>(
    count: usize,
    rounds: usize,
    mut measure: impl FnMut(usize, usize) -> Result<S>,
) -> Result<Vec<Vec<S>>> {
    let mut samples: Vec<Vec<S>> = (0..count).map(|_| Vec::with_capacity(rounds)).collect();
    for round in 1..=rounds {
        for turn in 0..count {
            let index = if round % 2 == 1 { turn } else { count - 1 - turn };
            samples[index].push(measure(index, round)?);
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_round_goes_backwards() {
        let mut order = Vec::new();
        let samples = in_turns(3, 2, |index, round| {
            order.push((round, index));
            Ok(index * 10 + round)
        });
        assert_eq!(samples.unwrap(), [[1, 2], [11, 12], [21, 22]]);
        assert_eq!(order, [(1, 0), (1, 1), (1, 2), (2, 2), (2, 1), (2, 0)]);
    }

    #[test]
    fn a_measurement_that_fails_ends_them() {
        let mut measured = 0;
        let failed = in_turns(2, 3, |index, round| {
            measured += 1;
            if round == 2 && index == 1 { Err(anyhow::anyhow!("no")) } else { Ok(()) }
        });
        assert!(failed.is_err());
        assert_eq!(measured, 3);
    }
}
