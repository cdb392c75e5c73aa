//! The numbers that were set as targets.

use super::{
    cases::{Cache, Case, Section, Way},
    clients::Form,
    measurements::Measurements,
    sections::{cold, memory, open, thundering_herd},
    table::Row,
};
use crate::{
    stats::ratio,
    tables::{Case as _, Rows},
    targets::{
        self, Target, Unit,
        Wanted::{self, AtLeast, AtMost},
    },
};

/// Prints the targets beside what was measured.
pub fn print(rows: &Rows<Case>, measurements: &Measurements) {
    targets::print(&numbers(rows, &|section, name| measurements.median(section, name)));
}

fn numbers(rows: &Rows<Case>, median: &dyn Fn(Section, &str) -> Option<f64>) -> Vec<Target> {
    use Section::{Cold, Memory, Open, ThunderingHerd};
    let k_per_s = |what, way, form, wanted| {
        let row = throughput(rows, way, form);
        Target::new(what, Unit::Count, row.map(|row| row.sample.per_s / 1e3), AtLeast(wanted))
    };
    let measured = |what, unit, section, name, wanted: Wanted| {
        Target::new(what, unit, median(section, name), wanted)
    };
    let (stored, decoded) = (Form::Stored, Form::Decoded);
    vec![
        Target::new(
            "warm GetChunk beside an empty unary call, median times",
            Unit::Times,
            of_check(rows),
            AtMost(2.0),
        ),
        k_per_s("GetChunks as stored, one core, k chunks/s", Way::GetChunks, stored, 150.0),
        k_per_s("RESP pipelined as stored, k chunks/s", Way::RespPipelined, stored, 150.0),
        k_per_s("GetChunks decoded, k chunks/s", Way::GetChunks, decoded, 80.0),
        k_per_s("RESP pipelined decoded, k chunks/s", Way::RespPipelined, decoded, 80.0),
        Target::new(
            "a chain warm beside direct, GetChunk",
            Unit::Times,
            chain(rows),
            AtLeast(50.0),
        ),
        measured(
            "bytes from the store beside the file, random reads from cold",
            Unit::Times,
            Cold,
            cold::BYTES_OF_FILE,
            AtMost(1.3),
        ),
        measured(
            "foreground reads of ranges read before",
            Unit::Count,
            Cold,
            cold::REPEATED,
            AtMost(0.0),
        ),
        measured(
            "GETs for one cold chunk that many ask for",
            Unit::Count,
            ThunderingHerd,
            thundering_herd::GETS,
            AtMost(1.0),
        ),
        measured("a store opened, cold", Unit::Seconds, Open, open::COLD, AtMost(2.0)),
        measured("a store opened, warm", Unit::Seconds, Open, open::WARM, AtMost(0.2)),
        measured(
            "memory of the index by chunk",
            Unit::Bytes,
            Memory,
            memory::INDEX_BYTES,
            AtMost(40.0),
        ),
        measured(
            "resident size beyond the idle server while a file fills",
            Unit::Mebibytes,
            Memory,
            memory::GROWN,
            AtMost(memory::GROWN_WANTED_MIB),
        ),
    ]
}

/// Compares a single caller's time: many callers also wait for each other.
fn of_check(rows: &Rows<Case>) -> Option<f64> {
    let is_warm = |case: &Case| case.cache == Cache::Disk && case.way == Way::GetChunk;
    let of =
        |section| rows.find(|case| case.section == section && is_warm(case) && case.callers == 1);
    let row = of(Section::Reads).or_else(|| of(Section::Chain))?;
    Case::ratios(row, rows).of_check
}

fn throughput(rows: &Rows<Case>, way: Way, form: Form) -> Option<&Row> {
    rows.find(|case| case.section == Section::Throughput && case.way == way && case.form == form)
}

/// Compares the times of a step, of which throughput is the inverse.
fn chain(rows: &Rows<Case>) -> Option<f64> {
    let find = |cache, way| {
        rows.find(|case| case.section == Section::Chain && case.cache == cache && case.way == way)
    };
    let (direct, warm) = (find(Cache::Unused, Way::Direct)?, find(Cache::Disk, Way::GetChunk)?);
    ratio(warm.sample.per_s, direct.sample.per_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::chunks::table::{Setting, tests::add};

    #[test]
    fn numbers_are_reached_or_not_or_not_measured() {
        let mut rows = Rows::new(Setting::default());
        add(&mut rows, Cache::Unused, Way::Check, 1, (20_000.0, 50.0));
        add(&mut rows, Cache::Disk, Way::GetChunk, 1, (15_000.0, 75.0));
        let median = |section, name: &str| {
            let is_it = (section, name) == (Section::ThunderingHerd, thundering_herd::GETS);
            is_it.then_some(2.0)
        };
        let shown: Vec<_> = numbers(&rows, &median).iter().map(Target::shown).collect();
        let wanted = "warm GetChunk beside an empty unary call, median times | 1.50x | at most \
                      2.00x | reached";
        assert_eq!(shown[0], wanted);
        let wanted = "GetChunks as stored, one core, k chunks/s | - | at least 150 | not measured";
        assert_eq!(shown[1], wanted);
        let wanted = "GETs for one cold chunk that many ask for | 2 | at most 1 | NOT REACHED";
        assert_eq!(shown[8], wanted);
    }
}
