//! What the experiment is to show: each number that was set as a target beside what was measured.

use super::{
    cases::{Case, Layout, Section, Way},
    client::Streams,
    results::{Measured, Results},
};
use crate::{
    stats::{float, ratio},
    targets::{self, Target, Unit, Wanted},
};

/// Rounding to extents and the chunk of the root may be read beside a file.
const ONCE: f64 = 1.01;

/// Prints them; `store_bytes` are those of all files.
pub fn print(results: &Results, layouts: &[Layout], store_bytes: u64) {
    targets::print(&numbers(results, layouts, store_bytes));
}

fn numbers(results: &Results, layouts: &[Layout], store_bytes: u64) -> Vec<Target> {
    let target = |what: String, value, wanted| Target { what, unit: Unit::Times, value, wanted };
    let cold_clone = find(results, Section::Clone, Way::Cold, None);
    let clones = find(results, Section::Clones, Way::Cold, None);
    let of_files = |row: &Measured| ratio(row.sample.store_bytes, float(store_bytes));
    let mut numbers = vec![
        target(
            "a cold clone, throughput beside one plain ranged download".to_owned(),
            cold_clone.and_then(|row| results.ratios(row).of_plain),
            Wanted::AtLeast(0.6),
        ),
        target(
            "bytes from the store for it, beside those of the files".to_owned(),
            cold_clone.and_then(of_files),
            Wanted::AtMost(ONCE),
        ),
        target(
            "the same for all clones at once".to_owned(),
            clones.and_then(of_files),
            Wanted::AtMost(ONCE),
        ),
    ];
    for layout in layouts {
        let row = |section, way| find(results, section, way, Some(*layout));
        let of_near = |section| row(section, Way::Warm).and_then(|row| results.ratios(row).of_near);
        let of_plain = row(Section::Scan, Way::Cold).and_then(|row| results.ratios(row).of_plain);
        let name = layout.name();
        numbers.push(target(
            format!("a cold scan, time beside one plain download of its bytes, {name}"),
            of_plain.and_then(|faster| ratio(1.0, faster)),
            Wanted::AtMost(2.0),
        ));
        for section in [Section::Scan, Section::Point] {
            numbers.push(target(
                format!(
                    "{}, warm, time beside that with the store at 0 ms, {name}",
                    section.name()
                ),
                of_near(section),
                Wanted::AtMost(1.1),
            ));
        }
    }
    numbers
}

/// By the streams that clients use today.
fn find(
    results: &Results,
    section: Section,
    way: Way,
    layout: Option<Layout>,
) -> Option<&Measured> {
    let is_it = |case: &Case| {
        case.section == section
            && case.way == way
            && case.layout == layout
            && case.streams == Streams::New
    };
    results.find(is_it).filter(|row| row.sample.failed.count() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::dolt::{results::tests::add, sample::Sample};

    #[test]
    fn numbers_are_reached_or_not_or_not_measured() {
        let mut results = Results::default();
        let records = Some(Layout::Records);
        add(&mut results, Section::Clone, Way::Download, None, 1.0);
        add(&mut results, Section::Clone, Way::Cold, None, 1.25);
        add(&mut results, Section::Scan, Way::Download, None, 1.0);
        add(&mut results, Section::Scan, Way::Cold, records, 2.5);
        add(&mut results, Section::Point, Way::Warm, records, 0.0105);
        add(&mut results, Section::Point, Way::Near, records, 0.01);
        let case = Case { clients: 20, ..results.rows()[1].case };
        let sample = Sample { store_bytes: 1_000.0, ..Sample::default() };
        results.add(Case { section: Section::Clones, ..case }, sample);
        let numbers = numbers(&results, &[Layout::Records], 1_000);
        let lines: Vec<_> = numbers.iter().map(|target| target.cases().join(" | ")).collect();
        assert_eq!(
            lines,
            [
                "a cold clone, throughput beside one plain ranged download | 0.80x | at least 0.60x | reached",
                "bytes from the store for it, beside those of the files | 0.00x | at most 1.01x | reached",
                "the same for all clones at once | 1.00x | at most 1.01x | reached",
                "a cold scan, time beside one plain download of its bytes, records | 2.50x | at most 2.00x | NOT REACHED",
                "scan, warm, time beside that with the store at 0 ms, records | - | at most 1.10x | not measured",
                "point, warm, time beside that with the store at 0 ms, records | 1.05x | at most 1.10x | reached",
            ]
        );
    }
}
