//! Numbers that were set as targets.

use super::{
    cases::{Case, Layout, Section, Way},
    client::Streams,
    table::Row,
};
use crate::{
    stats::{float, ratio},
    tables::{Case as _, Rows},
    targets::{self, Target, Unit, Wanted},
};

/// Rounding to extents and the chunk of the root may be read beside a file.
const ONCE: f64 = 1.01;

/// Prints them; `store_bytes` are those of all files.
pub fn print(rows: &Rows<Case>, layouts: &[Layout], store_bytes: u64) {
    targets::print(&numbers(rows, layouts, store_bytes));
}

fn numbers(rows: &Rows<Case>, layouts: &[Layout], store_bytes: u64) -> Vec<Target> {
    let target = |what: String, value, wanted| Target::new(&what, Unit::Times, value, wanted);
    let cold_clone = find(rows, Section::Clone, Way::Cold, None);
    let clones = find(rows, Section::Clones, Way::Cold, None);
    let of_files = |row: &Row| ratio(row.sample.store_bytes, float(store_bytes));
    let mut numbers = vec![
        target(
            "a cold clone, throughput beside one plain ranged download".to_owned(),
            cold_clone.and_then(|row| Case::ratios(row, rows).of_plain),
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
        let row = |section, way| find(rows, section, way, Some(*layout));
        let of_near =
            |section| row(section, Way::Warm).and_then(|row| Case::ratios(row, rows).of_near);
        let of_plain =
            row(Section::Scan, Way::Cold).and_then(|row| Case::ratios(row, rows).of_plain);
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

/// Finds a row measured with the streams that clients use today.
fn find(rows: &Rows<Case>, section: Section, way: Way, layout: Option<Layout>) -> Option<&Row> {
    let is_it = |case: &Case| {
        case.section == section
            && case.way == way
            && case.layout == layout
            && case.streams == Streams::New
    };
    rows.find(is_it).filter(|row| row.sample.failed.count() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::dolt::{
        sample::Sample,
        table::tests::{add, rows},
    };

    #[test]
    fn numbers_are_reached_or_not_or_not_measured() {
        let mut rows = rows();
        let records = Some(Layout::Records);
        add(&mut rows, Section::Clone, Way::Download, None, 1.0);
        add(&mut rows, Section::Clone, Way::Cold, None, 1.25);
        add(&mut rows, Section::Scan, Way::Download, None, 1.0);
        add(&mut rows, Section::Scan, Way::Cold, records, 2.5);
        add(&mut rows, Section::Point, Way::Warm, records, 0.0105);
        add(&mut rows, Section::Point, Way::Near, records, 0.01);
        let case = Case { clients: 20, ..rows.rows()[1].case };
        let sample = Sample { store_bytes: 1_000.0, ..Sample::default() };
        rows.add(Case { section: Section::Clones, ..case }, sample);
        let shown: Vec<_> =
            numbers(&rows, &[Layout::Records], 1_000).iter().map(Target::shown).collect();
        let verdicts = [
            "plain ranged download | 0.80x | at least 0.60x | reached",
            "beside those of the files | 0.00x | at most 1.01x | reached",
            "for all clones at once | 1.00x | at most 1.01x | reached",
            "download of its bytes, records | 2.50x | at most 2.00x | NOT REACHED",
            "at 0 ms, records | - | at most 1.10x | not measured",
            "at 0 ms, records | 1.05x | at most 1.10x | reached",
        ];
        assert_eq!(shown.len(), verdicts.len());
        for (shown, verdict) in shown.iter().zip(verdicts) {
            assert!(shown.ends_with(verdict), "{shown} does not end with {verdict}");
        }
    }
}
