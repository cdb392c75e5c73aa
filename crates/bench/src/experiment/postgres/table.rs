//! The table: what rows show, and what they are compared with.

use clap::ValueEnum;

use super::cases::{Approach, Case, Operation, Pace, Section};
use crate::{
    harness::{
        Column, Number, Row, TableLayout, hidden, label,
        sample::{
            CPU_LOAD, CPU_OTHERS, CPU_POSTGRES, CPU_SERVER, LATE_P99_US, MAX_US, MEAN_US, P50_US,
            P99_US, PER_S, SECONDS,
        },
        shown,
    },
    stats::ratio,
};

/// Throughput beside 1,024 keys a statement on two connections.
const OF_CEILING: Number = Number::percent("of_ceiling", "of ceiling");
/// Throughput beside the best row that is not batched.
const OF_PLAIN: Number = Number::new("x_plain", "x plain");
/// Requests per statement, as Postgres counted these.
pub const BATCH: Number = Number::new("batch", "batch");
pub const STATEMENTS_PER_S: Number = Number::scaled("statements_per_s", "kstmt/s", 1e-3);

const COLUMNS: &[Column<Case>] = &[
    label("section", "", 0, |case| value_name(&case.section)),
    label("way", "way", 11, |case| case.approach.name()),
    label("operation", "", 0, |case| match case.operation {
        Operation::Read => "read".to_owned(),
        Operation::Upsert => "upsert".to_owned(),
    }),
    label("keys", "", 0, |case| value_name(&case.keys)),
    label("clients", "clients", 7, |case| case.clients.to_string()),
    label("rate", "rate", 6, |case| match case.pace {
        Pace::Closed => String::new(),
        Pace::Rate(rate) => rate.to_string(),
    }),
    shown(SECONDS),
    shown(PER_S),
    shown(OF_CEILING),
    shown(OF_PLAIN),
    shown(MEAN_US),
    shown(P50_US),
    shown(P99_US),
    shown(MAX_US),
    shown(BATCH),
    shown(STATEMENTS_PER_S),
    shown(CPU_LOAD),
    shown(CPU_SERVER),
    shown(CPU_POSTGRES),
    hidden(CPU_OTHERS),
    hidden(LATE_P99_US),
];

pub const LAYOUT: TableLayout<Case> = TableLayout { columns: COLUMNS, main: PER_S, ratios };

/// Returns the name of a value in arguments.
pub fn value_name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Returns the fastest of the rows that `chosen` picks from the table of a section.
pub fn fastest(
    rows: &[Row<Case>],
    section: Section,
    chosen: impl Fn(&Case) -> bool,
) -> Option<&Row<Case>> {
    let rows = rows.iter().filter(|row| row.case.section.is_beside(section) && chosen(&row.case));
    let per_s = |row: &Row<Case>| row.sample.or_zero(PER_S);
    rows.max_by(|first, second| per_s(first).total_cmp(&per_s(second)))
}

/// Compares a closed loop with the ceiling and with what is not batched.
fn ratios(row: &Row<Case>, rows: &[Row<Case>]) -> Vec<(Number, Option<f64>)> {
    let case = row.case;
    if case.pace != Pace::Closed || case.approach == Approach::Memory {
        return Vec::new();
    }
    let beside = |section, chosen: &dyn Fn(&Case) -> bool| {
        let is_alike = |other: &Case| other.keys == case.keys && other.operation == case.operation;
        let base = fastest(rows, section, |other| is_alike(other) && chosen(other))?;
        ratio(row.sample.or_zero(PER_S), base.sample.or_zero(PER_S))
    };
    let of_ceiling = |section| beside(section, &|other| other.approach == Approach::Ceiling(2));
    let general =
        if case.section == Section::SmallMemory { case.section } else { Section::Ceiling };
    let of_plain = beside(case.section, &|other| {
        matches!(other.approach, Approach::Plain(_)) && other.clients == case.clients
    });
    let is_ceiling = matches!(case.approach, Approach::Ceiling(_));
    vec![
        (OF_CEILING, of_ceiling(case.section).or_else(|| of_ceiling(general))),
        (OF_PLAIN, of_plain.filter(|_| !is_ceiling)),
    ]
}
