//! What the experiment is to show: each number that was set as a target beside what was measured.
//! What was not measured is said to be so, never guessed.

use super::{
    cases::{Section, State, Way},
    clients::Form,
    measurements::Measurements,
    results::{Measured, Results},
    sections::{cold, memory, open, thundering_herd},
};
use crate::{
    stats::ratio,
    targets::{self, Target, Unit, Wanted},
};

pub fn print(results: &Results, measurements: &Measurements) {
    targets::print(&numbers(results, &|section, name| measurements.median(section, name)));
}

fn numbers(results: &Results, measurement: &dyn Fn(Section, &str) -> Option<f64>) -> Vec<Target> {
    let line =
        |what: &str, unit, value, wanted| Target { what: what.to_owned(), unit, value, wanted };
    let per_s = |way, form| throughput(results, way, form).map(|row| row.sample.per_s / 1_000.0);
    let thousand = |what, value, wanted| line(what, Unit::Count, value, Wanted::AtLeast(wanted));
    vec![
        line(
            "warm GetChunk beside an empty unary call, median times",
            Unit::Times,
            of_check(results),
            Wanted::AtMost(2.0),
        ),
        thousand(
            "GetChunks as stored, one core, k chunks/s",
            per_s(Way::GetChunks, Form::Stored),
            150.0,
        ),
        thousand(
            "RESP pipelined as stored, k chunks/s",
            per_s(Way::RespPipelined, Form::Stored),
            150.0,
        ),
        thousand("GetChunks decoded, k chunks/s", per_s(Way::GetChunks, Form::Decoded), 80.0),
        thousand(
            "RESP pipelined decoded, k chunks/s",
            per_s(Way::RespPipelined, Form::Decoded),
            80.0,
        ),
        line(
            "a chain warm beside direct, GetChunk",
            Unit::Times,
            chain(results),
            Wanted::AtLeast(50.0),
        ),
        line(
            "bytes from the store beside the file, random reads from cold",
            Unit::Times,
            measurement(Section::Cold, cold::BYTES_OF_FILE),
            Wanted::AtMost(1.3),
        ),
        line(
            "foreground reads of ranges read before",
            Unit::Count,
            measurement(Section::Cold, cold::REPEATED),
            Wanted::AtMost(0.0),
        ),
        line(
            "GETs for one cold chunk that many ask for",
            Unit::Count,
            measurement(Section::ThunderingHerd, thundering_herd::GETS),
            Wanted::AtMost(1.0),
        ),
        line(
            "a store opened, cold",
            Unit::Seconds,
            measurement(Section::Open, open::COLD),
            Wanted::AtMost(2.0),
        ),
        line(
            "a store opened, warm",
            Unit::Seconds,
            measurement(Section::Open, open::WARM),
            Wanted::AtMost(0.2),
        ),
        line(
            "memory of the index by chunk",
            Unit::Bytes,
            measurement(Section::Memory, memory::INDEX_BYTES),
            Wanted::AtMost(40.0),
        ),
        line(
            "resident size beyond the idle server while a file fills",
            Unit::Mebibytes,
            measurement(Section::Memory, memory::GROWN),
            Wanted::AtMost(memory::GROWN_WANTED_MIB),
        ),
    ]
}

/// A single caller: with more of them, waiting for each other is a part of both.
fn of_check(results: &Results) -> Option<f64> {
    let row = results.find(|case| {
        case.section == Section::Reads
            && case.state == State::Disk
            && case.way == Way::GetChunk
            && case.callers == 1
    });
    let chain = || {
        results
            .find(|case| is_chain(case.section, case.state, case.way, State::Disk, Way::GetChunk))
    };
    row.or_else(chain).and_then(|row| results.ratios(row).of_check)
}

fn is_chain(section: Section, state: State, way: Way, wanted: State, wanted_way: Way) -> bool {
    section == Section::Chain && state == wanted && way == wanted_way
}

fn throughput(results: &Results, way: Way, form: Form) -> Option<&Measured> {
    results.find(|case| case.section == Section::Throughput && case.way == way && case.form == form)
}

/// By the time of a step, which throughput is the inverse of.
fn chain(results: &Results) -> Option<f64> {
    let find =
        |state, way| results.find(|case| is_chain(case.section, case.state, case.way, state, way));
    let (direct, warm) = (find(State::None, Way::Direct)?, find(State::Disk, Way::GetChunk)?);
    ratio(warm.sample.per_s, direct.sample.per_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::chunks::results::tests::add;

    #[test]
    fn numbers_are_reached_or_not_or_not_measured() {
        let mut results = Results::default();
        add(&mut results, State::None, Way::Check, 1, (20_000.0, 50.0));
        add(&mut results, State::Disk, Way::GetChunk, 1, (15_000.0, 75.0));
        let measurement = |section, name: &str| match (section, name) {
            (Section::ThunderingHerd, thundering_herd::GETS) => Some(2.0),
            _ => None,
        };
        let lines: Vec<_> =
            numbers(&results, &measurement).iter().map(|line| line.cases().join(" | ")).collect();
        assert_eq!(
            lines[0],
            "warm GetChunk beside an empty unary call, median times | 1.50x | at most 2.00x | reached"
        );
        assert_eq!(
            lines[1],
            "GetChunks as stored, one core, k chunks/s | - | at least 150 | not measured"
        );
        assert_eq!(
            lines[8],
            "GETs for one cold chunk that many ask for | 2 | at most 1 | NOT REACHED"
        );
    }
}
