//! The rows of the tables: what they show, and what they are compared with.

use std::collections::BTreeMap;

use super::{
    cases::{Case, Layout, Section, Way},
    client::Streams,
    sample::Sample,
};
use crate::{
    remote::Distance,
    report::{
        Column, Field, exact_or_empty, field, measurement, measurement_or_dash, number, text,
    },
    stats::{mebibytes, ratio},
    tables::{self, Rows},
};

pub type Row = tables::Row<Case>;

/// Facts that all records of a run have in common.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub store_bytes: u64,
    pub distance: Distance,
}

/// Comparisons of a row with others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ratios {
    /// Speed beside the same against the object store.
    pub of_direct: Option<f64>,
    /// Speed beside one plain download of as many bytes.
    pub of_plain: Option<f64>,
    /// Time beside that with the store at 0 ms.
    pub of_near: Option<f64>,
}

impl tables::Case for Case {
    type Sample = Sample;
    type Ratios = Ratios;
    type Setting = Setting;

    const COLUMNS: &'static [Column<Row>] = &[
        text("way", 22, |row| row.case.title()),
        number("s", 7, |row| seconds(row.sample.seconds)),
        number("x direct", 8, |row| measurement_or_dash(row.ratios.of_direct)),
        number("x plain", 7, |row| measurement_or_dash(row.ratios.of_plain)),
        number("of 0 ms", 7, |row| measurement_or_dash(row.ratios.of_near)),
        number("MiB/s", 6, |row| {
            let sample = &row.sample;
            measurement_or_dash(ratio(mebibytes(sample.client_bytes), sample.seconds))
        }),
        number("p50 ms", 6, |row| part(row.sample.p50_ms)),
        number("p99 ms", 6, |row| part(row.sample.p99_ms)),
        number("calls", 6, |row| match row.case.way.is_busload() {
            true => count(row.sample.calls.values().sum()),
            false => "-".to_owned(),
        }),
        number("GETs", 6, |row| count(row.sample.gets)),
        number("dict.", 5, |row| count(row.sample.dictionary_gets)),
        number("MiB", 6, |row| measurement(mebibytes(row.sample.client_bytes))),
        number("store GETs", 10, |row| count(row.sample.store_gets)),
        number("MiB", 6, |row| measurement(mebibytes(row.sample.store_bytes))),
        number("cpu s", 6, |row| row.sample.server_s.map_or_else(|| "-".to_owned(), seconds)),
        number("load", 5, |row| measurement(row.sample.load)),
        text("notes", 5, |row| tables::Measured::notes(&row.sample)),
    ];

    const FIELDS: &'static [Field<Row>] = &[
        field("section", |row| row.case.section.name().to_owned()),
        field("way", |row| row.case.way.name().replace(',', "")),
        field("layout", |row| row.case.layout.map(Layout::name).unwrap_or_default().to_owned()),
        field("stream", |row| match row.case.streams {
            Streams::New => "new".to_owned(),
            Streams::Legacy => "legacy".to_owned(),
        }),
        field("clients", |row| row.case.clients.to_string()),
        field("store_bytes", |row| row.setting.store_bytes.to_string()),
        field("first_byte_ms", |row| row.setting.distance.first_byte.to_string()),
        field("bandwidth", |row| row.setting.distance.bandwidth.to_string()),
        field("round", |row| row.round.to_string()),
        field("replays", |row| count(row.sample.replays)),
        field("seconds", |row| format!("{:.6}", row.sample.seconds)),
        field("x_direct", |row| exact_or_empty(row.ratios.of_direct)),
        field("x_plain", |row| exact_or_empty(row.ratios.of_plain)),
        field("of_near", |row| exact_or_empty(row.ratios.of_near)),
        field("p50_ms", |row| format!("{:.3}", row.sample.p50_ms)),
        field("p99_ms", |row| format!("{:.3}", row.sample.p99_ms)),
        field("contents_bytes", |row| count(row.sample.contents_bytes)),
        field("calls", |row| row.sample.calls_text()),
        field("gets", |row| count(row.sample.gets)),
        field("dictionary_gets", |row| count(row.sample.dictionary_gets)),
        field("client_bytes", |row| count(row.sample.client_bytes)),
        field("retries", |row| count(row.sample.retries)),
        field("read_gets", |row| count(row.sample.store_gets)),
        field("read_bytes", |row| count(row.sample.store_bytes)),
        field("cpu_server_s", |row| exact_or_empty(row.sample.server_s)),
        field("cpu_load", |row| format!("{:.4}", row.sample.load)),
        field("cpu_others", |row| format!("{:.4}", row.sample.others)),
        field("refused", |row| row.sample.failed.refused.count.to_string()),
        field("wrong", |row| row.sample.failed.wrong.count.to_string()),
        field("notes", |row| tables::Measured::notes(&row.sample)),
    ];

    fn name(&self) -> String {
        format!("{}: {}", self.section.name(), self.title())
    }

    fn ratios(row: &Row, rows: &Rows<Self>) -> Ratios {
        let (case, seconds) = (row.case, row.sample.seconds);
        let faster_than = |way| {
            let base = rows.find(|other| other.section == case.section && other.way == way)?;
            ratio(base.sample.seconds, seconds)
        };
        // What is downloaded as it is compares with a download of the same bytes; chains and
        // fetches wait for each other.
        let is_bulk =
            matches!(case.section, Section::Clone | Section::Scan) && case.way != Way::Download;
        let near = rows.find(|other| *other == Case { way: Way::Near, ..case });
        let near = near.filter(|_| case.way == Way::Warm);
        Ratios {
            of_direct: faster_than(Way::Direct).filter(|_| case.way.is_busload()),
            of_plain: faster_than(Way::Download).filter(|_| is_bulk),
            of_near: near.and_then(|near| ratio(seconds, near.sample.seconds)),
        }
    }
}

/// Groups rows by the calls they made.
pub fn by_calls(rows: &[Row]) -> BTreeMap<String, Vec<String>> {
    let mut titles: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for row in rows.iter().filter(|row| !row.sample.calls.is_empty()) {
        titles.entry(row.sample.calls_text()).or_default().push(row.case.title());
    }
    titles
}

fn count(value: f64) -> String {
    format!("{value:.0}")
}

/// A fetch has no parts.
fn part(ms: f64) -> String {
    measurement_or_dash((0.0 < ms).then_some(ms))
}

/// Formats seconds; a warm replay may take milliseconds.
fn seconds(value: f64) -> String {
    if value < 1.0 { format!("{value:.4}") } else { measurement(value) }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::{report, tables::Case as _};

    pub fn rows() -> Rows<Case> {
        Rows::new(Setting { store_bytes: 10, distance: Distance::ZERO })
    }

    /// Adds a row of a layout that took so long.
    pub fn add(
        rows: &mut Rows<Case>,
        section: Section,
        way: Way,
        layout: Option<Layout>,
        seconds: f64,
    ) {
        let case = Case { section, way, layout, streams: Streams::New, clients: 1 };
        rows.add(case, Sample { seconds, replays: 1.0, ..Sample::default() });
    }

    #[test]
    fn rows_are_compared_within_their_section() {
        let mut rows = rows();
        let files = Some(Layout::Files);
        add(&mut rows, Section::Scan, Way::Download, None, 1.0);
        add(&mut rows, Section::Scan, Way::Direct, None, 6.0);
        add(&mut rows, Section::Scan, Way::Cold, files, 2.0);
        add(&mut rows, Section::Scan, Way::Warm, files, 0.6);
        add(&mut rows, Section::Scan, Way::Near, files, 0.5);
        add(&mut rows, Section::Scan, Way::Warm, Some(Layout::Records), 0.6);
        add(&mut rows, Section::Point, Way::Warm, files, 0.6);
        let ratios: Vec<_> = rows.rows().iter().map(|row| Case::ratios(row, &rows)).collect();
        assert_eq!(ratios[0], Ratios::default());
        assert_eq!(ratios[1], Ratios { of_plain: Some(1.0 / 6.0), ..Ratios::default() });
        assert_eq!(ratios[2], Ratios { of_direct: Some(3.0), of_plain: Some(0.5), of_near: None });
        assert_eq!(ratios[3].of_near, Some(1.2));
        // Its own layout was not measured with the store at 0 ms, nor its section in another way.
        assert_eq!((ratios[5].of_near, ratios[6]), (None, Ratios::default()));
    }

    #[test]
    fn a_row_shows_what_the_client_and_the_store_did() {
        let mut rows = rows();
        add(&mut rows, Section::Scan, Way::Direct, None, 6.0);
        add(&mut rows, Section::Scan, Way::Cold, Some(Layout::Records), 2.0);
        let mut row = rows.rows()[1].clone();
        row.ratios = Case::ratios(&row, &rows);
        row.sample.calls = [("Root", 1.0), ("StreamChunkLocations", 9.0)].into();
        (row.sample.gets, row.sample.dictionary_gets) = (12.0, 3.0);
        (row.sample.client_bytes, row.sample.store_bytes) = (2.0 * 1_048_576.0, 1_048_576.0);
        (row.sample.store_gets, row.sample.server_s) = (5.0, Some(0.5));
        let shown = report::line(Case::COLUMNS, &row);
        assert_eq!(
            shown.split_ascii_whitespace().collect::<Vec<_>>().join(" "),
            "cold, records 2.00 3.00 - - 1.00 - - 10 12 3 2.00 5 1.00 0.5000 0.00"
        );
        let record = report::record(Case::FIELDS, &row);
        assert!(record.starts_with("scan,cold,records,new,1,10,0,0,0,1,"), "{record}");
        assert!(!record.contains('"'), "{record}");
        let by_calls = by_calls(&[row.clone(), row, rows.rows()[0].clone()]);
        let titles = &by_calls["1 Root + 9 StreamChunkLocations"];
        assert_eq!(
            (by_calls.len(), titles.join("; ").as_str()),
            (1, "cold, records; cold, records")
        );
    }
}
