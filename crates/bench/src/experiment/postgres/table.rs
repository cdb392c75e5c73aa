//! The rows of the tables: what they show, and what they are compared with.

use super::{
    approach::{Approach, Case, Pace, Section},
    rows::Distribution,
    tasks::Operation,
};
use crate::{
    report::{
        Column, Field, exact_or_empty, field, measurement, measurement_or_dash, number,
        percent_or_dash, text,
    },
    sample::Sample,
    stats::ratio,
    tables::{self, Rows},
};

pub type Row = tables::Row<Case>;

/// Facts that all records of a file have in common at one time.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// Rows of the table in Postgres.
    pub rows: u64,
    /// The setting as the server shows it.
    pub shared_buffers: String,
}

/// Comparisons of a row with others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ratios {
    /// Throughput beside 1,024 keys a statement on two connections.
    pub of_ceiling: Option<f64>,
    /// Throughput beside the best row that is not batched.
    pub of_plain: Option<f64>,
}

impl tables::Case for Case {
    type Sample = Sample;
    type Ratios = Ratios;
    type Setting = Setting;

    const COLUMNS: &'static [Column<Row>] = &[
        text("way", 34, |row| row.case.approach.title(row.case.clients)),
        number("load", 7, |row| load(&row.case)),
        number("s", 4, |row| measurement(row.sample.seconds)),
        number("k/s", 6, |row| measurement(row.sample.per_s / 1_000.0)),
        number("of ceiling", 10, |row| percent_or_dash(row.ratios.of_ceiling)),
        number("x plain", 7, |row| measurement_or_dash(row.ratios.of_plain)),
        number("mean us", 7, |row| measurement(row.sample.mean_us)),
        number("p50 us", 7, |row| measurement(row.sample.p50_us)),
        number("p99 us", 7, |row| measurement(row.sample.p99_us)),
        number("worst us", 8, |row| measurement(row.sample.max_us)),
        number("batch", 6, |row| measurement_or_dash(row.sample.batch)),
        number("kstmt/s", 7, |row| {
            measurement_or_dash(row.sample.statements_per_s.map(|per_s| per_s / 1_000.0))
        }),
        number("cpu: pg", 7, |row| measurement_or_dash(row.sample.cpu_postgres)),
        // In process, busload is part of the load.
        number("busload", 7, |row| match row.case.approach {
            Approach::Window { .. } | Approach::Library => "=".to_owned(),
            _ => measurement_or_dash(row.sample.cpu_server),
        }),
        number("load", 5, |row| measurement(row.sample.cpu_load)),
        text("notes", 5, |row| tables::Measured::notes(&row.sample)),
    ];

    const FIELDS: &'static [Field<Row>] = &[
        field("section", |row| row.case.section.name().to_owned()),
        field("way", |row| row.case.approach.name()),
        field("operation", |row| match row.case.operation {
            Operation::Read => "read".to_owned(),
            Operation::Upsert => "upsert".to_owned(),
        }),
        field("keys", |row| row.case.keys.name().to_owned()),
        field("clients", |row| row.case.clients.to_string()),
        field("rate", |row| match row.case.pace {
            Pace::Closed => String::new(),
            Pace::Rate(rate) => rate.to_string(),
        }),
        field("rows", |row| row.setting.rows.to_string()),
        field("shared_buffers", |row| row.setting.shared_buffers.clone()),
        field("round", |row| row.round.to_string()),
        field("seconds", |row| format!("{:.3}", row.sample.seconds)),
        field("per_s", |row| format!("{:.1}", row.sample.per_s)),
        field("of_ceiling", |row| exact_or_empty(row.ratios.of_ceiling)),
        field("x_plain", |row| exact_or_empty(row.ratios.of_plain)),
        field("mean_us", |row| format!("{:.1}", row.sample.mean_us)),
        field("p50_us", |row| format!("{:.1}", row.sample.p50_us)),
        field("p99_us", |row| format!("{:.1}", row.sample.p99_us)),
        field("worst_us", |row| format!("{:.1}", row.sample.max_us)),
        field("batch", |row| exact_or_empty(row.sample.batch)),
        field("statements_per_s", |row| exact_or_empty(row.sample.statements_per_s)),
        field("cpu_postgres", |row| exact_or_empty(row.sample.cpu_postgres)),
        field("cpu_busload", |row| exact_or_empty(row.sample.cpu_server)),
        field("cpu_load", |row| format!("{:.4}", row.sample.cpu_load)),
        field("cpu_others", |row| format!("{:.4}", row.sample.cpu_others)),
        field("late_p99_us", |row| exact_or_empty(row.sample.late_p99_us)),
        field("unanswered", |row| row.sample.unanswered.to_string()),
        field("refused", |row| row.sample.failed.refused.count.to_string()),
        field("wrong", |row| row.sample.failed.wrong.count.to_string()),
        field("notes", |row| tables::Measured::notes(&row.sample)),
    ];

    fn name(&self) -> String {
        let pace = match self.pace {
            Pace::Closed => format!("{} clients", self.clients),
            Pace::Rate(rate) => format!("{rate}/s"),
        };
        format!("{} {} {pace} {}", self.section.name(), self.approach.name(), self.keys.name())
    }

    /// Response times of an open loop are not compared by throughput.
    fn ratios(row: &Row, rows: &Rows<Self>) -> Ratios {
        let case = row.case;
        if case.pace != Pace::Closed || case.approach == Approach::Memory {
            return Ratios::default();
        }
        let alike = |other: &Case| other.keys == case.keys && other.operation == case.operation;
        let ceiling = match case.operation {
            Operation::Read => rows.ceiling(case.section, alike),
            Operation::Upsert => None,
        };
        let plain = rows.fastest(case.section, |other| {
            other.approach.is_plain() && alike(other) && other.clients == case.clients
        });
        let beside = |base: Option<&Row>| ratio(row.sample.per_s, base?.sample.per_s);
        let is_ceiling = matches!(case.approach, Approach::Ceiling { .. });
        let of_plain = if is_ceiling { None } else { beside(plain) };
        Ratios { of_ceiling: beside(ceiling), of_plain }
    }
}

impl Rows<Case> {
    /// Returns the rows of the sections that are compared with this one.
    pub fn of_group(&self, section: Section) -> impl Iterator<Item = &Row> {
        self.rows().iter().filter(move |row| group(row.case.section) == group(section))
    }

    /// Returns the fastest of the rows that `chosen` picks.
    pub fn fastest(&self, section: Section, chosen: impl Fn(&Case) -> bool) -> Option<&Row> {
        let rows = self.of_group(section).filter(|row| chosen(&row.case));
        rows.max_by(|first, second| first.sample.per_s.total_cmp(&second.sample.per_s))
    }

    /// Returns the first of the rows that `chosen` picks.
    pub fn first(&self, section: Section, chosen: impl Fn(&Case) -> bool) -> Option<&Row> {
        self.of_group(section).find(|row| chosen(&row.case))
    }

    /// Returns the ceiling beside which a section stands: its own, or else that of the many
    /// readers.
    fn ceiling(&self, section: Section, alike: impl Fn(&Case) -> bool) -> Option<&Row> {
        let is_ceiling =
            |case: &Case| case.approach == Approach::Ceiling { connections: 2 } && alike(case);
        self.first(section, is_ceiling).or_else(|| {
            self.first(Section::Ceiling, is_ceiling).filter(|_| section != Section::SmallMemory)
        })
    }

    /// Returns the window that many readers get the most from, in keys.
    pub fn best_window(&self, keys: Distribution) -> Option<usize> {
        let is_window =
            |case: &Case| matches!(case.approach, Approach::Window { .. }) && case.keys == keys;
        match self.fastest(Section::Windows, is_window)?.case.approach {
            Approach::Window { keys } => Some(keys),
            _ => None,
        }
    }
}

/// Sections with one number are measured in turns and shown in one table.
fn group(section: Section) -> u8 {
    match section {
        Section::Readers | Section::Ceiling | Section::Windows => 0,
        Section::LowLoad => 1,
        Section::Rate => 2,
        Section::SmallMemory => 3,
        Section::Upserts => 4,
    }
}

fn load(case: &Case) -> String {
    match case.pace {
        Pace::Closed => case.clients.to_string(),
        Pace::Rate(rate) if rate % 1_000 == 0 => format!("{}k/s", rate / 1_000),
        Pace::Rate(rate) => format!("{rate}/s"),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::{report, tables::Case as _};

    /// Adds a row with the given throughput and response time.
    pub fn add(
        rows: &mut Rows<Case>,
        section: Section,
        approach: Approach,
        clients: usize,
        measurements: (f64, f64),
    ) {
        let is_upsert = section == Section::Upserts;
        let operation = if is_upsert { Operation::Upsert } else { Operation::Read };
        let (pace, keys) = (Pace::Closed, Distribution::Uniform);
        let case = Case { section, approach, clients, pace, operation, keys };
        let (per_s, us) = measurements;
        rows.add(case, Sample { per_s, mean_us: us, p50_us: us, ..Sample::default() });
    }

    fn rows() -> Rows<Case> {
        let mut rows = Rows::new(Setting::default());
        let plain = |connections| Approach::Plain { connections };
        add(&mut rows, Section::Ceiling, Approach::Ceiling { connections: 1 }, 1, (100.0, 1.0));
        add(&mut rows, Section::Ceiling, Approach::Ceiling { connections: 2 }, 2, (200.0, 1.0));
        add(&mut rows, Section::Readers, plain(20), 300, (10.0, 1.0));
        add(&mut rows, Section::Readers, plain(50), 300, (20.0, 1.0));
        add(&mut rows, Section::Readers, Approach::Library, 300, (150.0, 1.0));
        add(&mut rows, Section::Windows, Approach::Window { keys: 8 }, 300, (90.0, 1.0));
        add(&mut rows, Section::Windows, Approach::Window { keys: 16 }, 300, (120.0, 1.0));
        add(&mut rows, Section::LowLoad, plain(1), 1, (5.0, 1.0));
        add(&mut rows, Section::LowLoad, Approach::Library, 1, (4.0, 1.0));
        add(&mut rows, Section::LowLoad, Approach::Library, 2, (8.0, 1.0));
        rows
    }

    fn ratios(section: Section, approach: Approach, clients: usize) -> (Option<f64>, Option<f64>) {
        let rows = rows();
        let is_it = |case: &Case| case.approach == approach && case.clients == clients;
        let ratios = Case::ratios(rows.first(section, is_it).unwrap(), &rows);
        (ratios.of_ceiling, ratios.of_plain)
    }

    #[test]
    fn many_readers_are_compared_with_two_connections_and_the_best_plain_row() {
        let library = ratios(Section::Readers, Approach::Library, 300);
        assert_eq!(library, (Some(0.75), Some(7.5)));
        let ceiling = Approach::Ceiling { connections: 1 };
        assert_eq!(ratios(Section::Ceiling, ceiling, 1), (Some(0.5), None));
    }

    #[test]
    fn at_low_load_plain_is_that_with_as_many_readers() {
        assert_eq!(ratios(Section::LowLoad, Approach::Library, 1).1, Some(0.8));
        assert_eq!(ratios(Section::LowLoad, Approach::Library, 2).1, None);
    }

    #[test]
    fn the_best_window_is_the_one_with_the_most_reads() {
        assert_eq!(rows().best_window(Distribution::Uniform), Some(16));
        assert_eq!(rows().best_window(Distribution::Runs), None);
    }

    #[test]
    fn a_row_shows_throughput_ratios_and_times() {
        let mut row = rows().rows()[2].clone();
        (row.ratios.of_ceiling, row.ratios.of_plain) = (Some(0.117), Some(1.0));
        (row.sample.seconds, row.sample.per_s, row.sample.batch) = (5.0, 40_000.0, Some(1.0));
        row.sample.statements_per_s = Some(40_000.0);
        (row.sample.cpu_load, row.sample.cpu_postgres) = (0.4, Some(1.5));
        let shown = |row: &Row| {
            let shown = report::line(Case::COLUMNS, row);
            shown.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            shown(&row),
            "not batched, 20 connections 300 5.00 40.0 12% 1.00 1.00 1.00 0.00 0.00 1.00 40.0 1.50 \
             - 0.40"
        );
        row.case.approach = Approach::Library;
        assert!(shown(&row).ends_with("1.50 = 0.40"));
        let record = report::record(Case::FIELDS, &row);
        assert!(record.starts_with("readers,in-process,read,uniform,300,,0,,0,5.000,"), "{record}");
    }
}
