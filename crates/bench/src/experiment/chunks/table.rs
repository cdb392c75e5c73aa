//! The rows of the tables: what they show, and what they are compared with.

use super::cases::{Cache, Case, Way, Work};
use crate::{
    report::{
        Column, Field, exact_or_empty, field, measurement, measurement_or_dash, number, text,
    },
    sample::Sample,
    stats::{mebibytes, ratio},
    tables::{self, Rows},
};

pub type Row = tables::Row<Case>;

/// Facts that all records of a run have in common.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setting {
    /// Mean bytes of a chunk.
    pub chunk_bytes: f64,
    pub store_bytes: u64,
    pub first_byte_ms: u64,
}

/// Comparisons of a row with others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ratios {
    /// Chunks per second beside direct reads at the same load.
    pub of_direct: Option<f64>,
    /// Median time beside that of an empty call by as many callers.
    pub of_check: Option<f64>,
}

impl tables::Case for Case {
    type Sample = Sample;
    type Ratios = Ratios;
    type Setting = Setting;

    const COLUMNS: &'static [Column<Row>] = &[
        text("state", 9, |row| row.case.cache.name().to_owned()),
        text("way", 14, |row| row.case.way.name().to_owned()),
        text("form", 7, |row| form(&row.case)),
        text("callers", 8, |row| row.case.load()),
        number("s", 5, |row| measurement(row.sample.seconds)),
        number("k/s", 7, |row| measurement(row.sample.per_s / 1_000.0)),
        number("x direct", 8, |row| measurement_or_dash(row.ratios.of_direct)),
        number("mean us", 8, |row| measurement(row.sample.mean_us)),
        number("p50 us", 8, |row| measurement(row.sample.p50_us)),
        number("p99 us", 8, |row| measurement(row.sample.p99_us)),
        number("x check", 7, |row| measurement_or_dash(row.ratios.of_check)),
        number("cpu: server", 11, |row| measurement_or_dash(row.sample.cpu_server)),
        number("load", 5, |row| measurement(row.sample.cpu_load)),
        number("GETs", 6, |row| count(row.sample.store_requests).unwrap_or_else(|| "-".to_owned())),
        number("MiB", 6, |row| measurement_or_dash(row.sample.store_bytes.map(mebibytes))),
        text("notes", 5, |row| tables::Measured::notes(&row.sample)),
    ];

    const FIELDS: &'static [Field<Row>] = &[
        field("section", |row| row.case.section.name().to_owned()),
        field("state", |row| row.case.cache.name().to_owned()),
        field("way", |row| row.case.way.name().to_owned()),
        field("form", |row| form(&row.case)),
        field("work", |row| match row.case.work {
            Work::Chain => "chain".to_owned(),
            Work::Random => "random".to_owned(),
        }),
        field("callers", |row| row.case.callers.to_string()),
        field("batch", |row| row.case.batch.to_string()),
        field("chunk_bytes", |row| format!("{:.0}", row.setting.chunk_bytes)),
        field("store_bytes", |row| row.setting.store_bytes.to_string()),
        field("first_byte_ms", |row| row.setting.first_byte_ms.to_string()),
        field("round", |row| row.round.to_string()),
        field("seconds", |row| format!("{:.3}", row.sample.seconds)),
        field("per_s", |row| format!("{:.1}", row.sample.per_s)),
        field("x_direct", |row| exact_or_empty(row.ratios.of_direct)),
        field("mean_us", |row| format!("{:.1}", row.sample.mean_us)),
        field("p50_us", |row| format!("{:.1}", row.sample.p50_us)),
        field("p99_us", |row| format!("{:.1}", row.sample.p99_us)),
        field("x_check", |row| exact_or_empty(row.ratios.of_check)),
        field("cpu_server", |row| exact_or_empty(row.sample.cpu_server)),
        field("cpu_load", |row| format!("{:.4}", row.sample.cpu_load)),
        field("cpu_others", |row| format!("{:.4}", row.sample.cpu_others)),
        field("gets", |row| count(row.sample.store_requests).unwrap_or_default()),
        field("got_bytes", |row| count(row.sample.store_bytes).unwrap_or_default()),
        field("refused", |row| row.sample.failed.refused.count.to_string()),
        field("wrong", |row| row.sample.failed.wrong.count.to_string()),
        field("notes", |row| tables::Measured::notes(&row.sample)),
    ];

    fn name(&self) -> String {
        let (section, cache, way) = (self.section.name(), self.cache.name(), self.way.name());
        format!("{section} {cache} {way} {}", self.load())
    }

    fn ratios(row: &Row, rows: &Rows<Self>) -> Ratios {
        if row.case.cache == Cache::Unused {
            return Ratios::default();
        }
        let alike = |case: &Case, way| {
            case.way == way && case.section == row.case.section && case.callers == row.case.callers
        };
        let direct = rows.find(|case| alike(case, Way::Direct));
        let check = rows.find(|case| alike(case, Way::Check)).filter(|_| row.case.batch == 1);
        Ratios {
            of_direct: direct.and_then(|direct| ratio(row.sample.per_s, direct.sample.per_s)),
            of_check: check.and_then(|check| ratio(row.sample.p50_us, check.sample.p50_us)),
        }
    }
}

fn form(case: &Case) -> String {
    if case.way == Way::Check { String::new() } else { case.form.name().to_owned() }
}

fn count(value: Option<f64>) -> Option<String> {
    value.map(|value| format!("{value:.0}"))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::{
        experiment::chunks::{cases::Section, clients::Form},
        report,
        tables::Case as _,
    };

    /// Adds a row of random reads with the given throughput and median time.
    pub fn add(
        rows: &mut Rows<Case>,
        cache: Cache,
        way: Way,
        callers: usize,
        measurements: (f64, f64),
    ) {
        let (section, form, work) = (Section::Reads, Form::Decoded, Work::Random);
        let case = Case { section, cache, way, form, work, callers, batch: 1 };
        let (per_s, p50_us) = measurements;
        rows.add(case, Sample { per_s, p50_us, mean_us: p50_us, ..Sample::default() });
    }

    #[test]
    fn rows_are_compared_at_the_same_load() {
        let mut rows = Rows::new(Setting::default());
        add(&mut rows, Cache::Unused, Way::Direct, 1, (30.0, 33_000.0));
        add(&mut rows, Cache::Unused, Way::Direct, 16, (480.0, 33_000.0));
        add(&mut rows, Cache::Unused, Way::Check, 1, (20_000.0, 50.0));
        add(&mut rows, Cache::Disk, Way::GetChunk, 1, (15_000.0, 75.0));
        add(&mut rows, Cache::Disk, Way::GetChunk, 16, (48_000.0, 75.0));
        let ratios: Vec<_> = rows.rows().iter().map(|row| Case::ratios(row, &rows)).collect();
        assert_eq!(ratios[3], Ratios { of_direct: Some(500.0), of_check: Some(1.5) });
        assert_eq!(ratios[4], Ratios { of_direct: Some(100.0), of_check: None });
        assert_eq!(ratios[0], Ratios::default());
    }

    #[test]
    fn a_row_shows_throughput_ratios_and_what_the_store_was_asked_for() {
        let mut rows = Rows::new(Setting::default());
        add(&mut rows, Cache::Unused, Way::Direct, 16, (480.0, 33_000.0));
        add(&mut rows, Cache::Cold, Way::GetChunk, 16, (960.0, 31_000.0));
        let mut row = rows.rows()[1].clone();
        row.ratios = Case::ratios(&row, &rows);
        (row.sample.cpu_load, row.sample.cpu_server) = (0.4, Some(0.5));
        (row.sample.store_requests, row.sample.store_bytes) = (Some(17.0), Some(1_048_576.0));
        let shown = report::line(Case::COLUMNS, &row);
        assert_eq!(
            shown.split_ascii_whitespace().collect::<Vec<_>>().join(" "),
            "cold GetChunk decoded 16 0.00 0.96 2.00 31000 31000 0.00 - 0.50 0.40 17 1.00"
        );
        let record = report::record(Case::FIELDS, &row);
        assert!(record.starts_with("reads,cold,GetChunk,decoded,random,16,1,0,0,0,0,"), "{record}");
    }
}
