//! The tables on stdout and the records of statistics.csv.

use super::{
    cases::{Case, Way, Work},
    results::{Measured, Ratios, Results},
    sample::Sample,
};
use crate::report::{self, Column, exact_or_empty, measurement, measurement_or_dash, number, text};

const COLUMNS: &[Column] = &[
    text("state", 9),
    text("way", 14),
    text("form", 7),
    text("callers", 8),
    number("s", 5),
    number("k/s", 7),
    number("x direct", 8),
    number("mean us", 8),
    number("p50 us", 8),
    number("p99 us", 8),
    number("x check", 7),
    number("cpu: server", 11),
    number("load", 5),
    number("GETs", 6),
    number("MiB", 6),
    text("notes", 5),
];

/// The fields of statistics.csv.
pub const CSV_HEADER: &[&str] = &[
    "section",
    "state",
    "way",
    "form",
    "work",
    "callers",
    "batch",
    "chunk_bytes",
    "store_bytes",
    "first_byte_ms",
    "round",
    "seconds",
    "per_s",
    "x_direct",
    "mean_us",
    "p50_us",
    "p99_us",
    "x_check",
    "cpu_server",
    "cpu_load",
    "cpu_others",
    "gets",
    "got_bytes",
    "refused",
    "wrong",
    "notes",
];

/// Prints the rows of one table.
pub fn print(title: &str, rows: &[&Measured], results: &Results) {
    report::print(title, COLUMNS, rows.iter().map(|row| cases(row, results.ratios(row))));
}

fn cases(row: &Measured, ratios: Ratios) -> Vec<String> {
    let sample = &row.sample;
    vec![
        row.case.state.name().to_owned(),
        row.case.way.name().to_owned(),
        form(&row.case),
        row.case.load(),
        measurement(sample.seconds),
        measurement(sample.per_s / 1_000.0),
        measurement_or_dash(ratios.of_direct),
        measurement(sample.mean_us),
        measurement(sample.p50_us),
        measurement(sample.p99_us),
        measurement_or_dash(ratios.of_check),
        measurement_or_dash(sample.cpu.server),
        measurement(sample.cpu.load),
        sample.store_requests.map_or_else(|| "-".to_owned(), |count| format!("{count:.0}")),
        measurement_or_dash(sample.store_bytes.map(|bytes| bytes / 1_048_576.0)),
        sample.notes(),
    ]
}

fn form(case: &Case) -> String {
    if case.way == Way::Check { String::new() } else { case.form.name().to_owned() }
}

/// What all records of a run have in common.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Mean bytes of a chunk.
    pub chunk_bytes: f64,
    /// Bytes of the store.
    pub store_bytes: u64,
    /// How far away it is.
    pub first_byte_ms: u64,
}

impl Setting {
    /// One measurement (`round` from 1), or the medians (`round` 0, with ratios).
    pub fn fields(
        &self,
        case: &Case,
        sample: &Sample,
        round: usize,
        ratios: Ratios,
    ) -> Vec<String> {
        let work = match case.work {
            Work::Chain => "chain",
            Work::Random => "random",
        };
        vec![
            case.section.name().to_owned(),
            case.state.name().to_owned(),
            case.way.name().to_owned(),
            form(case),
            work.to_owned(),
            case.callers.to_string(),
            case.batch.to_string(),
            format!("{:.0}", self.chunk_bytes),
            self.store_bytes.to_string(),
            self.first_byte_ms.to_string(),
            round.to_string(),
            format!("{:.3}", sample.seconds),
            format!("{:.1}", sample.per_s),
            exact_or_empty(ratios.of_direct),
            format!("{:.1}", sample.mean_us),
            format!("{:.1}", sample.p50_us),
            format!("{:.1}", sample.p99_us),
            exact_or_empty(ratios.of_check),
            exact_or_empty(sample.cpu.server),
            format!("{:.4}", sample.cpu.load),
            format!("{:.4}", sample.cpu.others),
            sample.store_requests.map(|count| format!("{count:.0}")).unwrap_or_default(),
            sample.store_bytes.map(|bytes| format!("{bytes:.0}")).unwrap_or_default(),
            sample.failed.refused.count.to_string(),
            sample.failed.wrong.count.to_string(),
            sample.notes(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::chunks::{cases::State, results::tests::add, sample::Cpu};

    #[test]
    fn a_row_shows_throughput_ratios_and_what_the_store_was_asked_for() {
        let mut results = Results::default();
        add(&mut results, State::None, Way::Direct, 16, (480.0, 33_000.0));
        add(&mut results, State::Cold, Way::GetChunk, 16, (960.0, 31_000.0));
        let mut row = results.rows()[1].clone();
        row.sample.cpu = Cpu { load: 0.4, server: Some(0.5), others: 0.0 };
        row.sample.store_requests = Some(17.0);
        row.sample.store_bytes = Some(1_048_576.0);
        let shown = report::row(COLUMNS, &cases(&row, results.ratios(&row)));
        assert_eq!(
            shown.split_ascii_whitespace().collect::<Vec<_>>().join(" "),
            "cold GetChunk decoded 16 0.00 0.96 2.00 31000 31000 0.00 - 0.50 0.40 17 1.00"
        );
    }

    #[test]
    fn every_record_has_every_field() {
        let mut results = Results::default();
        add(&mut results, State::Disk, Way::Resp, 5, (1.0, 1.0));
        let row = &results.rows()[0];
        let setting = Setting { chunk_bytes: 4_096.0, store_bytes: 10, first_byte_ms: 30 };
        let fields = setting.fields(&row.case, &row.sample, 1, results.ratios(row));
        assert_eq!(fields.len(), CSV_HEADER.len());
        assert_eq!(fields[..6].join(" "), "reads warm disk RESP decoded random 5");
    }
}
