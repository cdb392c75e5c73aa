//! All rows measured so far, and what they are compared with.

use super::{
    approach::{Approach, Case, Pace, Section},
    rows::Distribution,
    sample::Sample,
    tasks::Operation,
};
use crate::{rounds, stats::ratio};

/// A row and its medians.
pub type Measured = rounds::Measured<Case, Sample>;

pub type Results = rounds::Rows<Case, Sample>;

/// Beside what a row stands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ratios {
    /// Throughput beside 1,024 keys a statement on two connections.
    pub of_ceiling: Option<f64>,
    /// Throughput beside the best row that is not batched.
    pub of_plain: Option<f64>,
}

impl Results {
    /// The sections whose rows are compared with each other.
    pub fn of_group(&self, section: Section) -> impl Iterator<Item = &Measured> {
        self.rows().iter().filter(move |row| group(row.case.section) == group(section))
    }

    /// The fastest of the rows that `chosen` picks.
    pub fn fastest(&self, section: Section, chosen: impl Fn(&Case) -> bool) -> Option<&Measured> {
        let rows = self.of_group(section).filter(|row| chosen(&row.case));
        rows.max_by(|first, second| first.sample.per_s.total_cmp(&second.sample.per_s))
    }

    /// The row of one approach.
    pub fn first(&self, section: Section, chosen: impl Fn(&Case) -> bool) -> Option<&Measured> {
        self.of_group(section).find(|row| chosen(&row.case))
    }

    /// What a row is compared with in its table. Response times of an open loop are not compared by
    /// throughput.
    pub fn ratios(&self, row: &Measured) -> Ratios {
        if row.case.pace != Pace::Closed || row.case.approach == Approach::Memory {
            return Ratios::default();
        }
        let alike =
            |case: &Case| case.keys == row.case.keys && case.operation == row.case.operation;
        let ceiling = match row.case.operation {
            Operation::Read => self.ceiling(row.case.section, alike),
            Operation::Upsert => None,
        };
        let plain = self.fastest(row.case.section, |case| {
            matches!(case.approach, Approach::Plain { .. })
                && alike(case)
                && case.clients == row.case.clients
        });
        let beside = |base: Option<&Measured>| {
            base.and_then(|base| ratio(row.sample.per_s, base.sample.per_s))
        };
        let of_plain = match row.case.approach {
            Approach::Ceiling { .. } => None,
            _ => beside(plain),
        };
        Ratios { of_ceiling: beside(ceiling), of_plain }
    }

    /// The ceiling beside which a section stands: its own, or else that of the many readers.
    fn ceiling(&self, section: Section, alike: impl Fn(&Case) -> bool) -> Option<&Measured> {
        let is_ceiling =
            |case: &Case| case.approach == Approach::Ceiling { connections: 2 } && alike(case);
        let own = self.first(section, is_ceiling);
        own.or_else(|| {
            self.first(Section::Ceiling, is_ceiling).filter(|_| section != Section::SmallMemory)
        })
    }

    /// The window that many readers get the most from, in keys.
    pub fn best_window(&self, keys: Distribution) -> Option<usize> {
        let is_window =
            |case: &Case| matches!(case.approach, Approach::Window { .. }) && case.keys == keys;
        let best = self.fastest(Section::Windows, is_window)?;
        match best.case.approach {
            Approach::Window { keys } => Some(keys),
            _ => None,
        }
    }
}

/// Sections with one number are measured in turns and shown in one table.
fn group(section: Section) -> u8 {
    match section {
        Section::Readers | Section::Ceiling | Section::Windows => 0,
        Section::LowLoad => 1,
        Section::Rate => 2,
        Section::SmallMemory => 3,
        Section::Upserts => 4,
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A row with the given throughput and response time.
    pub fn add(
        results: &mut Results,
        section: Section,
        approach: Approach,
        clients: usize,
        measurements: (f64, f64),
    ) {
        let operation =
            if section == Section::Upserts { Operation::Upsert } else { Operation::Read };
        let case = Case {
            section,
            approach,
            clients,
            pace: Pace::Closed,
            operation,
            keys: Distribution::Uniform,
        };
        let (per_s, us) = measurements;
        results.add(case, Sample { per_s, mean_us: us, p50_us: us, ..Sample::default() });
    }

    fn results() -> Results {
        let mut results = Results::default();
        let plain = |connections| Approach::Plain { connections };
        add(&mut results, Section::Ceiling, Approach::Ceiling { connections: 1 }, 1, (100.0, 1.0));
        add(&mut results, Section::Ceiling, Approach::Ceiling { connections: 2 }, 2, (200.0, 1.0));
        add(&mut results, Section::Readers, plain(20), 300, (10.0, 1.0));
        add(&mut results, Section::Readers, plain(50), 300, (20.0, 1.0));
        add(&mut results, Section::Readers, Approach::Library, 300, (150.0, 1.0));
        add(&mut results, Section::Windows, Approach::Window { keys: 8 }, 300, (90.0, 1.0));
        add(&mut results, Section::Windows, Approach::Window { keys: 16 }, 300, (120.0, 1.0));
        add(&mut results, Section::LowLoad, plain(1), 1, (5.0, 1.0));
        add(&mut results, Section::LowLoad, Approach::Library, 1, (4.0, 1.0));
        add(&mut results, Section::LowLoad, Approach::Library, 2, (8.0, 1.0));
        results
    }

    fn ratios(
        results: &Results,
        section: Section,
        approach: Approach,
        clients: usize,
    ) -> (Option<f64>, Option<f64>) {
        let row = results
            .first(section, |case| case.approach == approach && case.clients == clients)
            .unwrap();
        let ratios = results.ratios(row);
        (ratios.of_ceiling, ratios.of_plain)
    }

    #[test]
    fn many_readers_are_compared_with_two_connections_and_the_best_plain_row() {
        let results = results();
        assert_eq!(
            ratios(&results, Section::Readers, Approach::Library, 300),
            (Some(0.75), Some(7.5))
        );
        let ceiling = Approach::Ceiling { connections: 1 };
        assert_eq!(ratios(&results, Section::Ceiling, ceiling, 1), (Some(0.5), None));
    }

    #[test]
    fn at_low_load_plain_is_that_with_as_many_readers() {
        let results = results();
        assert_eq!(ratios(&results, Section::LowLoad, Approach::Library, 1).1, Some(0.8));
        assert_eq!(ratios(&results, Section::LowLoad, Approach::Library, 2).1, None);
    }

    #[test]
    fn the_best_window_is_the_one_with_the_most_reads() {
        assert_eq!(results().best_window(Distribution::Uniform), Some(16));
        assert_eq!(results().best_window(Distribution::Runs), None);
    }
}
