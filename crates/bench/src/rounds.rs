//! Rows of a table: measured in turns, kept with their medians.

use anyhow::Result;

/// A row and its medians.
#[derive(Clone, Debug)]
pub struct Measured<C, S> {
    pub case: C,
    pub sample: S,
}

/// All rows measured so far, in their order.
#[derive(Clone, Debug)]
pub struct Rows<C, S> {
    rows: Vec<Measured<C, S>>,
}

impl<C, S> Default for Rows<C, S> {
    fn default() -> Self {
        Self { rows: Vec::new() }
    }
}

impl<C: Copy, S> Rows<C, S> {
    /// Measures cases in turns, see [`in_turns`], and adds their medians; the position of the first
    /// of them.
    pub fn measure(
        &mut self,
        cases: &[C],
        rounds: usize,
        median: fn(&[S]) -> S,
        mut measure: impl FnMut(&C, usize) -> Result<S>,
    ) -> Result<usize> {
        let samples = in_turns(cases.len(), rounds, |index, round| measure(&cases[index], round))?;
        let first = self.rows.len();
        cases.iter().zip(&samples).for_each(|(case, samples)| self.add(*case, median(samples)));
        Ok(first)
    }

    /// The first row that `chosen` picks.
    pub fn find(&self, chosen: impl Fn(&C) -> bool) -> Option<&Measured<C, S>> {
        self.rows.iter().find(|row| chosen(&row.case))
    }

    pub fn add(&mut self, case: C, sample: S) {
        self.rows.push(Measured { case, sample });
    }

    /// All rows, in the order they were measured.
    pub fn rows(&self) -> &[Measured<C, S>] {
        &self.rows
    }
}

/// Measures `count` rows in turns: forwards in one round, backwards in the next, so that a machine
/// that gets slower or faster does so for all. Rounds count from 1; what it gives are the samples
/// of each row.
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
    fn rows_are_kept_with_their_medians_in_the_order_of_the_cases() {
        let mut rows = Rows::default();
        rows.add('x', 0);
        let sum = |samples: &[usize]| samples.iter().sum();
        let first = rows
            .measure(&['a', 'b'], 3, sum, |case, round| Ok(if *case == 'a' { round } else { 10 }));
        assert_eq!(first.unwrap(), 1);
        let kept: Vec<_> = rows.rows().iter().map(|row| (row.case, row.sample)).collect();
        assert_eq!(kept, [('x', 0), ('a', 6), ('b', 30)]);
        assert_eq!(rows.find(|case| *case == 'b').map(|row| row.sample), Some(30));
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
