//! All rows measured so far, and what they are compared with.

use super::{
    cases::{Case, State, Way},
    sample::Sample,
};
use crate::{rounds, stats::ratio};

/// A row and its medians.
pub type Measured = rounds::Measured<Case, Sample>;

pub type Results = rounds::Rows<Case, Sample>;

/// Beside what a row stands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ratios {
    /// Chunks per second beside direct reads at the same load.
    pub of_direct: Option<f64>,
    /// Median time beside that of an empty call by as many callers.
    pub of_check: Option<f64>,
}

impl Results {
    /// What a row is compared with in its table.
    pub fn ratios(&self, row: &Measured) -> Ratios {
        if row.case.state == State::None {
            return Ratios::default();
        }
        let alike = |case: &Case, way| {
            case.way == way && case.section == row.case.section && case.callers == row.case.callers
        };
        let direct = self.find(|case| alike(case, Way::Direct));
        let check = self.find(|case| alike(case, Way::Check)).filter(|_| row.case.batch == 1);
        Ratios {
            of_direct: direct.and_then(|direct| ratio(row.sample.per_s, direct.sample.per_s)),
            of_check: check.and_then(|check| ratio(row.sample.p50_us, check.sample.p50_us)),
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::experiment::chunks::{
        cases::{Section, Work},
        clients::Form,
    };

    /// A row of random reads with the given throughput and median time.
    pub fn add(
        results: &mut Results,
        state: State,
        way: Way,
        callers: usize,
        measurements: (f64, f64),
    ) {
        let case = Case {
            section: Section::Reads,
            state,
            way,
            form: Form::Decoded,
            work: Work::Random,
            callers,
            batch: 1,
        };
        let (per_s, p50_us) = measurements;
        results.add(case, Sample { per_s, p50_us, mean_us: p50_us, ..Sample::default() });
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
}
