//! The tables on stdout and the records of statistics.csv.

use super::{
    approach::{Approach, Case, Pace},
    results::{Measured, Ratios, Results},
    sample::Sample,
    tasks::Operation,
};
use crate::report::{self, Column, exact_or_empty, measurement, measurement_or_dash, number, text};

const COLUMNS: &[Column] = &[
    text("way", 34),
    number("load", 7),
    number("s", 4),
    number("k/s", 6),
    number("of ceiling", 10),
    number("x plain", 7),
    number("mean us", 7),
    number("p50 us", 7),
    number("p99 us", 7),
    number("worst us", 8),
    number("batch", 6),
    number("kstmt/s", 7),
    number("cpu: pg", 7),
    number("busload", 7),
    number("load", 5),
    text("notes", 5),
];

/// The fields of statistics.csv.
pub const CSV_HEADER: &[&str] = &[
    "section",
    "way",
    "operation",
    "keys",
    "clients",
    "rate",
    "rows",
    "shared_buffers",
    "round",
    "seconds",
    "per_s",
    "of_ceiling",
    "x_plain",
    "mean_us",
    "p50_us",
    "p99_us",
    "worst_us",
    "batch",
    "statements_per_s",
    "cpu_postgres",
    "cpu_busload",
    "cpu_load",
    "cpu_others",
    "late_p99_us",
    "unanswered",
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
        row.case.approach.title(row.case.clients),
        load(&row.case),
        measurement(sample.seconds),
        measurement(sample.per_s / 1_000.0),
        report::percent_or_dash(ratios.of_ceiling),
        measurement_or_dash(ratios.of_plain),
        measurement(sample.mean_us),
        measurement(sample.p50_us),
        measurement(sample.p99_us),
        measurement(sample.max_us),
        measurement_or_dash(sample.batch),
        measurement_or_dash(sample.statements_per_s.map(|per_s| per_s / 1_000.0)),
        measurement_or_dash(sample.cpu.postgres),
        busload_cpu(row.case.approach, sample),
        measurement(sample.cpu.load),
        sample.notes(),
    ]
}

/// In process, busload is part of the load.
fn busload_cpu(approach: Approach, sample: &Sample) -> String {
    match approach {
        Approach::Window { .. } | Approach::Library => "=".to_owned(),
        _ => measurement_or_dash(sample.cpu.busload),
    }
}

fn load(case: &Case) -> String {
    match case.pace {
        Pace::Closed => case.clients.to_string(),
        Pace::Rate(rate) if rate % 1_000 == 0 => format!("{}k/s", rate / 1_000),
        Pace::Rate(rate) => format!("{rate}/s"),
    }
}

/// What all records of a file have in common at one time.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Rows of the table.
    pub rows: u64,
    /// As the server shows it.
    pub shared_buffers: String,
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
        let operation = match case.operation {
            Operation::Read => "read",
            Operation::Upsert => "upsert",
        };
        let rate = match case.pace {
            Pace::Closed => String::new(),
            Pace::Rate(rate) => rate.to_string(),
        };
        vec![
            case.section.name().to_owned(),
            case.approach.name(),
            operation.to_owned(),
            case.keys.name().to_owned(),
            case.clients.to_string(),
            rate,
            self.rows.to_string(),
            self.shared_buffers.clone(),
            round.to_string(),
            format!("{:.3}", sample.seconds),
            format!("{:.1}", sample.per_s),
            exact_or_empty(ratios.of_ceiling),
            exact_or_empty(ratios.of_plain),
            format!("{:.1}", sample.mean_us),
            format!("{:.1}", sample.p50_us),
            format!("{:.1}", sample.p99_us),
            format!("{:.1}", sample.max_us),
            exact_or_empty(sample.batch),
            exact_or_empty(sample.statements_per_s),
            exact_or_empty(sample.cpu.postgres),
            exact_or_empty(sample.cpu.busload),
            format!("{:.4}", sample.cpu.load),
            format!("{:.4}", sample.cpu.others),
            exact_or_empty(sample.late_p99_us),
            sample.unanswered.to_string(),
            sample.failed.refused.count.to_string(),
            sample.failed.wrong.count.to_string(),
            sample.notes(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::postgres::{approach::Section, results::tests::add, sample::Cpu};

    #[test]
    fn a_row_shows_throughput_ratios_and_times() {
        let mut results = Results::default();
        add(
            &mut results,
            Section::Ceiling,
            Approach::Ceiling { connections: 2 },
            2,
            (340_000.0, 6_000.0),
        );
        add(
            &mut results,
            Section::Readers,
            Approach::Plain { connections: 20 },
            300,
            (40_000.0, 7_500.0),
        );
        let mut row = results.rows()[1].clone();
        row.sample.seconds = 5.0;
        row.sample.batch = Some(1.0);
        row.sample.statements_per_s = Some(40_000.0);
        row.sample.cpu = Cpu { load: 0.4, postgres: Some(1.5), busload: None, others: 0.0 };
        let shown = report::row(COLUMNS, &cases(&row, results.ratios(&row)));
        assert_eq!(
            shown.split_ascii_whitespace().collect::<Vec<_>>().join(" "),
            "not batched, 20 connections 300 5.00 40.0 12% 1.00 7500 7500 0.00 0.00 1.00 40.0 1.50 - 0.40"
        );
    }

    #[test]
    fn every_record_has_every_field() {
        let mut results = Results::default();
        add(&mut results, Section::LowLoad, Approach::Library, 5, (1.0, 1.0));
        let row = &results.rows()[0];
        let setting = Setting { rows: 10, shared_buffers: "1GB".to_owned() };
        let fields = setting.fields(&row.case, &row.sample, 1, results.ratios(row));
        assert_eq!(fields.len(), CSV_HEADER.len());
        assert_eq!(fields[..4].join(" "), "low-load in-process read uniform");
    }

    #[test]
    fn in_process_the_load_and_busload_are_one() {
        let sample = Sample::default();
        assert_eq!(busload_cpu(Approach::Library, &sample), "=");
        assert_eq!(busload_cpu(Approach::Plain { connections: 1 }, &sample), "-");
    }
}
