//! The tables on stdout and the records of statistics.csv.

use std::collections::BTreeMap;

use super::{
    cases::{Case, Layout},
    client::Streams,
    results::{Measured, Ratios, Results},
    sample::Sample,
};
use crate::{
    remote::Distance,
    report::{self, Column, exact_or_empty, measurement, measurement_or_dash, number, text},
    stats::ratio,
};

const COLUMNS: &[Column] = &[
    text("way", 22),
    number("s", 7),
    number("x direct", 8),
    number("x plain", 7),
    number("of 0 ms", 7),
    number("MiB/s", 6),
    number("p50 ms", 6),
    number("p99 ms", 6),
    number("calls", 6),
    number("GETs", 6),
    number("dict.", 5),
    number("MiB", 6),
    number("store GETs", 10),
    number("MiB", 6),
    number("cpu s", 6),
    number("load", 5),
    text("notes", 5),
];

/// The fields of statistics.csv.
pub const CSV_HEADER: &[&str] = &[
    "section",
    "way",
    "layout",
    "stream",
    "clients",
    "store_bytes",
    "first_byte_ms",
    "bandwidth",
    "round",
    "replays",
    "seconds",
    "x_direct",
    "x_plain",
    "of_near",
    "p50_ms",
    "p99_ms",
    "contents_bytes",
    "calls",
    "gets",
    "dictionary_gets",
    "client_bytes",
    "retries",
    "read_gets",
    "read_bytes",
    "cpu_server_s",
    "cpu_load",
    "cpu_others",
    "refused",
    "wrong",
    "notes",
];

/// Prints the rows of one table, and which calls they made.
pub fn print(title: &str, rows: &[&Measured], results: &Results) {
    report::print(title, COLUMNS, rows.iter().map(|row| cases(row, results.ratios(row))));
    for (calls, titles) in by_calls(rows) {
        println!("{calls}: {}", titles.join("; "));
    }
}

/// Rows that made the same calls.
fn by_calls(rows: &[&Measured]) -> BTreeMap<String, Vec<String>> {
    let mut titles: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for row in rows.iter().filter(|row| !row.sample.calls.is_empty()) {
        titles.entry(row.sample.calls_text()).or_default().push(row.case.title());
    }
    titles
}

fn mebibytes(bytes: f64) -> f64 {
    bytes / 1_048_576.0
}

fn cases(row: &Measured, ratios: Ratios) -> Vec<String> {
    let sample = &row.sample;
    let is_busload = row.case.way.is_busload();
    let count = |count: f64| format!("{count:.0}");
    // A fetch has no parts.
    let part = |ms: f64| measurement_or_dash((0.0 < ms).then_some(ms));
    let of_server = |text: String| if is_busload { text } else { "-".to_owned() };
    vec![
        row.case.title(),
        seconds(sample.seconds),
        measurement_or_dash(ratios.of_direct),
        measurement_or_dash(ratios.of_plain),
        measurement_or_dash(ratios.of_near),
        measurement_or_dash(ratio(mebibytes(sample.client_bytes), sample.seconds)),
        part(sample.p50_ms),
        part(sample.p99_ms),
        of_server(count(sample.calls.values().sum())),
        count(sample.gets),
        count(sample.dictionary_gets),
        measurement(mebibytes(sample.client_bytes)),
        count(sample.store_gets),
        measurement(mebibytes(sample.store_bytes)),
        sample.server_s.map_or_else(|| "-".to_owned(), seconds),
        measurement(sample.load),
        sample.notes(),
    ]
}

/// What is warm may be done in milliseconds.
fn seconds(value: f64) -> String {
    if value < 1.0 { format!("{value:.4}") } else { measurement(value) }
}

/// What all records of a run have in common.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Bytes of the store.
    pub store_bytes: u64,
    /// How far away it is.
    pub distance: Distance,
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
        let count = |value: f64| format!("{value:.0}");
        let stream = match case.streams {
            Streams::New => "new",
            Streams::Legacy => "legacy",
        };
        vec![
            case.section.name().to_owned(),
            case.way.name().replace(',', ""),
            case.layout.map(Layout::name).unwrap_or_default().to_owned(),
            stream.to_owned(),
            case.clients.to_string(),
            self.store_bytes.to_string(),
            self.distance.first_byte.to_string(),
            self.distance.bandwidth.to_string(),
            round.to_string(),
            count(sample.replays),
            format!("{:.6}", sample.seconds),
            exact_or_empty(ratios.of_direct),
            exact_or_empty(ratios.of_plain),
            exact_or_empty(ratios.of_near),
            format!("{:.3}", sample.p50_ms),
            format!("{:.3}", sample.p99_ms),
            count(sample.contents_bytes),
            sample.calls_text(),
            count(sample.gets),
            count(sample.dictionary_gets),
            count(sample.client_bytes),
            count(sample.retries),
            count(sample.store_gets),
            count(sample.store_bytes),
            exact_or_empty(sample.server_s),
            format!("{:.4}", sample.load),
            format!("{:.4}", sample.others),
            sample.failed.refused.count.to_string(),
            sample.failed.wrong.count.to_string(),
            sample.notes(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::dolt::{
        cases::{Section, Way},
        results::tests::add,
    };

    fn results() -> Results {
        let mut results = Results::default();
        add(&mut results, Section::Scan, Way::Direct, None, 6.0);
        add(&mut results, Section::Scan, Way::Cold, Some(Layout::Records), 2.0);
        results
    }

    #[test]
    fn a_row_shows_what_the_client_and_the_store_did() {
        let results = results();
        let mut row = results.rows()[1].clone();
        row.sample.calls = [("Root", 1.0), ("StreamChunkLocations", 9.0)].into();
        (row.sample.gets, row.sample.dictionary_gets) = (12.0, 3.0);
        (row.sample.client_bytes, row.sample.store_bytes) = (2.0 * 1_048_576.0, 1_048_576.0);
        row.sample.store_gets = 5.0;
        row.sample.server_s = Some(0.5);
        let shown = report::row(COLUMNS, &cases(&row, results.ratios(&row)));
        assert_eq!(
            shown.split_ascii_whitespace().collect::<Vec<_>>().join(" "),
            "cold, records 2.00 3.00 - - 1.00 - - 10 12 3 2.00 5 1.00 0.5000 0.00"
        );
        let by_calls = by_calls(&[&row, &row, &results.rows()[0]]);
        let titles = &by_calls["1 Root + 9 StreamChunkLocations"];
        assert_eq!(
            (by_calls.len(), titles.join("; ").as_str()),
            (1, "cold, records; cold, records")
        );
    }

    #[test]
    fn every_record_has_every_field_and_none_needs_quotes() {
        let results = results();
        let row = &results.rows()[1];
        let distance = Distance { first_byte: 30, jitter: 5, bandwidth: 0 };
        let fields = Setting { store_bytes: 10, distance }.fields(
            &row.case,
            &row.sample,
            1,
            results.ratios(row),
        );
        assert_eq!(fields.len(), CSV_HEADER.len());
        assert_eq!(fields[..6].join(" "), "scan cold records new 1 10");
        assert!(fields.iter().all(|field| !field.contains(',')), "{fields:?}");
    }
}
