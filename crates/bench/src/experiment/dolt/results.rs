//! All rows measured so far, and what they are compared with.

use super::{
    cases::{Case, Section, Way},
    sample::Sample,
};
use crate::{rounds, stats::ratio};

/// A row and its medians.
pub type Measured = rounds::Measured<Case, Sample>;

pub type Results = rounds::Rows<Case, Sample>;

/// Beside what a row stands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ratios {
    /// How many times faster than the same against the object store.
    pub of_direct: Option<f64>,
    /// How many times faster than one plain download of as many bytes.
    pub of_plain: Option<f64>,
    /// Time beside that with the store at 0 ms.
    pub of_near: Option<f64>,
}

impl Results {
    /// What a row is compared with in its table.
    pub fn ratios(&self, row: &Measured) -> Ratios {
        let case = row.case;
        let faster_than = |way| {
            let base = self.find(|other| other.section == case.section && other.way == way)?;
            ratio(base.sample.seconds, row.sample.seconds)
        };
        // What is downloaded as it is compares with a download of the same bytes; chains and
        // fetches wait for each other.
        let is_bulk =
            matches!(case.section, Section::Clone | Section::Scan) && case.way != Way::Download;
        Ratios {
            of_direct: faster_than(Way::Direct).filter(|_| case.way.is_busload()),
            of_plain: faster_than(Way::Download).filter(|_| is_bulk),
            of_near: self.of_near(row).filter(|_| case.way == Way::Warm),
        }
    }

    fn of_near(&self, row: &Measured) -> Option<f64> {
        let near = self.find(|other| *other == Case { way: Way::Near, ..row.case })?;
        ratio(row.sample.seconds, near.sample.seconds)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::experiment::dolt::{cases::Layout, client::Streams};

    /// A row of a layout that took so long.
    pub fn add(
        results: &mut Results,
        section: Section,
        way: Way,
        layout: Option<Layout>,
        seconds: f64,
    ) {
        let case = Case { section, way, layout, streams: Streams::New, clients: 1 };
        results.add(case, Sample { seconds, replays: 1.0, ..Sample::default() });
    }

    #[test]
    fn rows_are_compared_within_their_section() {
        let mut results = Results::default();
        let files = Some(Layout::Files);
        add(&mut results, Section::Scan, Way::Download, None, 1.0);
        add(&mut results, Section::Scan, Way::Direct, None, 6.0);
        add(&mut results, Section::Scan, Way::Cold, files, 2.0);
        add(&mut results, Section::Scan, Way::Warm, files, 0.6);
        add(&mut results, Section::Scan, Way::Near, files, 0.5);
        add(&mut results, Section::Scan, Way::Warm, Some(Layout::Records), 0.6);
        add(&mut results, Section::Point, Way::Warm, files, 0.6);
        let ratios: Vec<_> = results.rows().iter().map(|row| results.ratios(row)).collect();
        assert_eq!(ratios[0], Ratios::default());
        assert_eq!(ratios[1], Ratios { of_plain: Some(1.0 / 6.0), ..Ratios::default() });
        assert_eq!(ratios[2], Ratios { of_direct: Some(3.0), of_plain: Some(0.5), of_near: None });
        assert_eq!(ratios[3].of_near, Some(1.2));
        // Its own layout was not measured with the store at 0 ms, nor its section in another way.
        assert_eq!((ratios[5].of_near, ratios[6]), (None, Ratios::default()));
    }
}
