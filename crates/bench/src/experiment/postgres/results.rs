//! The table, and conclusions from its rows: ratios, cells, the numbers that were set as targets.

use std::{path::Path, time::Duration};

use anyhow::Result;

use super::arguments::{Approach, Case, Section, Way, distance_text};
use crate::{
    cli::name_of,
    harness::{
        Number, Row, Sample, Table, TableLayout, Target,
        Unit::{self, Percent, Times},
        Wanted::{self, AtLeast, AtMost, Nothing},
        hidden, label,
        sample::{
            CPU_LOAD, CPU_OTHERS, CPU_POSTGRES, CPU_PROXY, CPU_SERVER, LATE_P99_US, MAX_US,
            MEAN_US, P50_US, P99_US, PER_S, SPREAD,
        },
        shown,
    },
    measure::SERVER_US,
    stats::ratio,
};

/// Throughput beside 1,024 keys a statement on two connections.
const OF_CEILING: Number = Number::percent("of_ceiling", "of ceiling");
/// Throughput beside the best row that is not batched.
const OF_PLAIN: Number = Number::new("x_plain", "x plain");
/// Requests per statement, as Postgres counted these.
pub const BATCH: Number = Number::new("batch", "batch");
/// Statements that Postgres executed each second.
const STATEMENTS: Number = Number::scaled("statements_per_s", "k stmts/s", 1e-3);
/// Processor time of Postgres by request.
pub const DATABASE_US: Number = Number::new("database_us_per_request", "db us");

pub const LAYOUT: TableLayout<Case> = TableLayout {
    columns: &[
        label("section", "", 0, |case| name_of(&case.section)),
        label("distance", "", 0, |case| distance_text(case.distance)),
        label("way", "way", 12, |case| case.approach.name()),
        label("clients", "clients", 7, |case| case.clients.to_string()),
        label("rate", "rate", 6, |case| case.rate.map(|rate| rate.to_string()).unwrap_or_default()),
        shown(PER_S),
        shown(OF_CEILING),
        shown(OF_PLAIN),
        shown(MEAN_US),
        shown(P50_US),
        shown(P99_US),
        hidden(MAX_US),
        shown(BATCH),
        shown(STATEMENTS),
        shown(DATABASE_US),
        hidden(SERVER_US),
        shown(CPU_LOAD),
        shown(CPU_SERVER),
        shown(CPU_POSTGRES),
        shown(CPU_PROXY),
        hidden(CPU_OTHERS),
        hidden(LATE_P99_US),
    ],
    main: PER_S,
    ratios,
};

/// Adds what follows for the database from the requests of a statement, and for each request.
pub fn with_database(sample: Sample, batch: Option<f64>) -> Sample {
    let per_s = sample.or_zero(PER_S);
    let us = |cpus: Number| ratio(sample.get(cpus)? * 1e6, per_s);
    let (database_us, server_us) = (us(CPU_POSTGRES), us(CPU_SERVER));
    sample
        .with(BATCH, batch)
        .with(STATEMENTS, batch.and_then(|batch| ratio(per_s, batch)))
        .with(DATABASE_US, database_us)
        .with(SERVER_US, server_us)
}

/// Returns the fastest of the rows that `chosen` picks.
pub fn fastest(rows: &[Row<Case>], chosen: impl Fn(&Case) -> bool) -> Option<&Row<Case>> {
    let per_s = |row: &Row<Case>| row.sample.or_zero(PER_S);
    let rows = rows.iter().filter(|row| chosen(&row.case));
    rows.max_by(|first, second| per_s(first).total_cmp(&per_s(second)))
}

/// Returns the fastest row that is not batched, in the same circumstances.
pub fn fastest_plain<'a>(case: &Case, rows: &'a [Row<Case>]) -> Option<&'a Row<Case>> {
    fastest(rows, |other| other.approach.way == Way::Plain && other.is_beside(case))
}

/// Compares a closed loop with the ceiling and with what is not batched.
fn ratios(row: &Row<Case>, rows: &[Row<Case>]) -> Vec<(Number, Option<f64>)> {
    let Case { section, distance, rate, .. } = row.case;
    if rate.is_some() {
        return Vec::new();
    }
    let beside =
        |base: Option<&Row<Case>>| ratio(row.sample.or_zero(PER_S), base?.sample.or_zero(PER_S));
    let ceiling = fastest(rows, |other| {
        let is_ceiling = other.approach == Approach { way: Way::Ceiling, number: 2 };
        section == Section::Readers && is_ceiling && other.distance == distance
    });
    vec![(OF_CEILING, beside(ceiling)), (OF_PLAIN, beside(fastest_plain(&row.case, rows)))]
}

/// Readers at a distance, and the best way there that is not busload's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    distance: Duration,
    readers: usize,
    best: Approach,
}

/// Reads each second beside the best.
const OF_BEST: Number = Number::percent("of_best", "of best");
/// Mean time beside that of the best.
const MEAN_OF_BEST: Number = Number::percent("mean_of_best", "of its mean");
/// Share of the best that may be missing.
const CELL_TOLERANCE: f64 = 0.05;

const CELLS: TableLayout<Cell> = TableLayout {
    columns: &[
        label("distance", "distance", 8, |cell| distance_text(cell.distance)),
        label("readers", "readers", 7, |cell| cell.readers.to_string()),
        label("best", "best", 12, |cell| cell.best.name()),
        shown(PER_S),
        shown(OF_BEST),
        shown(MEAN_US),
        shown(MEAN_OF_BEST),
    ],
    main: PER_S,
    ratios: |_, _| Vec::new(),
};

/// Compares the library in process with the best of what is not busload's, in every cell of
/// distance and readers.
fn cells(rows: &[Row<Case>]) -> Vec<(Cell, Sample)> {
    let compared = rows.iter().filter_map(|row| {
        let Case { section, approach, clients: readers, distance, .. } = row.case;
        let is_cell = section == Section::Readers && approach.way == Way::InProcess;
        let best = fastest(rows, |other| {
            let is_other = matches!(other.approach.way, Way::Plain | Way::Pipelined | Way::Window);
            is_cell && is_other && other.is_beside(&row.case)
        })?;
        let of = |number| ratio(row.sample.get(number)?, best.sample.get(number)?);
        let (reads, mean) = (of(PER_S)?, of(MEAN_US)?);
        let is_reached = 1.0 - CELL_TOLERANCE <= reads && mean <= 1.0 + CELL_TOLERANCE;
        let verdict = if is_reached { "reached" } else { "NOT REACHED" };
        let mut sample = Sample::default()
            .with(PER_S, row.sample.get(PER_S))
            .with(OF_BEST, reads)
            .with(MEAN_US, row.sample.get(MEAN_US))
            .with(MEAN_OF_BEST, mean)
            .with(SPREAD, row.sample.get(SPREAD));
        verdict.clone_into(&mut sample.remark);
        Some((Cell { distance, readers, best: best.case.approach }, sample))
    });
    compared.collect()
}

/// Prints the cells, and appends them to a file in `out`.
pub fn print_cells(rows: &[Row<Case>], out: &Path, about: &str) -> Result<()> {
    let cells = cells(rows);
    if cells.is_empty() {
        return Ok(());
    }
    let mut table = Table::open(&CELLS, Some(&out.join("cells.csv")), about)?;
    table.print_heading("in-process beside the best of plain, pipelined and window");
    cells.into_iter().try_for_each(|(cell, sample)| table.add(cell, sample))
}

/// A number that was set as a target: whose, where, of what, the bound, and the ways whose fastest
/// rows are divided by each other.
type Goal = (&'static str, Cohort, Number, Unit, Wanted, &'static str, &'static str);

/// Rows that a target is about: section, clients (none: the most there are), distance.
type Cohort = (Section, Option<usize>, Duration);

const GOALS: [Goal; 12] = {
    const READERS: Cohort = (Section::Readers, None, Duration::ZERO);
    const READER: Cohort = (Section::Readers, Some(1), Duration::ZERO);
    const FAR: Cohort = (Section::Readers, None, Duration::from_millis(1));
    const WRITERS: Cohort = (Section::Upserts, None, Duration::ZERO);
    [
        ("readers", READERS, PER_S, Percent, AtLeast(0.75), "in-process", "ceiling:2"),
        ("readers", READERS, PER_S, Times, AtLeast(5.0), "in-process", "plain"),
        ("readers", READERS, PER_S, Times, AtLeast(1.0), "in-process", "window"),
        ("readers", READERS, PER_S, Times, AtLeast(1.5), "in-process", PUBLISHED),
        ("readers", READERS, PER_S, Percent, AtLeast(0.6), PIPELINED, "ceiling:2"),
        ("readers", READERS, PER_S, Times, AtLeast(2.0), UNPIPELINED, "plain"),
        ("1 reader, mean", READER, MEAN_US, Percent, AtMost(0.5), "in-process", "window"),
        ("1 reader, p50", READER, P50_US, Percent, AtMost(1.1), "in-process", "plain"),
        ("1 reader, p50", READER, P50_US, Times, Nothing, "resp", "plain"),
        ("readers at 1ms", FAR, PER_S, Times, AtLeast(12.0), "in-process", "plain:10"),
        (
            "readers at 1ms, mean",
            FAR,
            MEAN_US,
            Percent,
            AtMost(1.0 / 14.0),
            "in-process",
            "plain:10",
        ),
        ("writers", WRITERS, PER_S, Times, AtLeast(5.0), "in-process", "plain"),
    ]
};

/// Names of ways that are no names in `--case`.
const PIPELINED: &str = "resp, pipelined";
const UNPIPELINED: &str = "resp, a connection each";
const PUBLISHED: &str = "windows of 16 to 32 keys as published";

fn is_of(case: &Case, ways: &str) -> bool {
    let Approach { way, number } = case.approach;
    match ways {
        PIPELINED => way == Way::Resp && number < case.clients,
        UNPIPELINED => way == Way::Resp && case.clients <= number,
        PUBLISHED => way == Way::Window && (16..=32).contains(&number),
        name => case.approach.name() == name || name_of(&way) == name,
    }
}

/// Returns the numbers that were set as targets, computed from medians.
pub fn targets(rows: &[Row<Case>]) -> Vec<Target> {
    let targets = GOALS.into_iter().map(|(who, cohort, of, unit, wanted, ways, base)| {
        let (section, clients, distance) = cohort;
        let is_there = |case: &Case| case.section == section && case.distance == distance;
        let most = rows.iter().map(|row| &row.case).filter(|case| is_there(case));
        let clients = clients.or(most.map(|case| case.clients).max());
        let best = |ways| {
            let row = fastest(rows, |case| {
                let are_they = case.approach.way == Way::Ceiling || Some(case.clients) == clients;
                is_there(case) && are_they && is_of(case, ways)
            });
            row.and_then(|row| row.sample.get(of))
        };
        let both = best(ways).zip(best(base));
        let value = both.and_then(|(value, base)| ratio(value, base));
        let title = of.title.trim_start_matches("mean ").trim_start_matches("p50 ");
        let quotient = both.map(|(value, base)| {
            format!("{} {title} by {} {title}", of.text(value), of.text(base))
        });
        let what = format!("{who}: {ways} beside {base}");
        let target = Target::new(what, unit, value, wanted);
        Target { quotient: quotient.unwrap_or_default(), ..target }
    });
    targets.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Sample;

    const NEAR: Duration = Duration::ZERO;
    const FAR: Duration = Duration::from_millis(1);

    /// Makes rows with these throughputs and response times.
    fn rows() -> Vec<Row<Case>> {
        use Section::{Readers, Upserts};
        let rows = [
            (Readers, NEAR, "ceiling:1", 1, 200e3, 100.0),
            (Readers, NEAR, "ceiling:2", 2, 300e3, 100.0),
            (Readers, NEAR, "plain:20", 300, 40e3, 100.0),
            (Readers, NEAR, "plain:50", 300, 30e3, 100.0),
            (Readers, NEAR, "in-process", 300, 225e3, 100.0),
            (Readers, NEAR, "resp:20", 300, 150e3, 100.0),
            (Readers, NEAR, "resp:300", 300, 90e3, 100.0),
            (Readers, NEAR, "window:16", 300, 100e3, 100.0),
            (Readers, NEAR, "window:64", 300, 250e3, 100.0),
            (Readers, NEAR, "plain:1", 1, 1.0, 100.0),
            (Readers, NEAR, "window:64", 1, 0.5, 600.0),
            (Readers, NEAR, "in-process", 1, 0.96, 104.0),
            (Readers, NEAR, "resp:1", 1, 1.0, 140.0),
            (Readers, NEAR, "in-process", 50, 1.0, 600.0),
            (Readers, FAR, "plain:10", 300, 10e3, 1400.0),
            (Readers, FAR, "in-process", 300, 150e3, 70.0),
            (Upserts, NEAR, "in-process", 300, 60e3, 100.0),
        ];
        let row = |(section, distance, approach, clients, per_s, us)| {
            let case = Case::new(section, Approach::parse(approach).unwrap(), clients, distance);
            let sample = Sample::default().with(PER_S, per_s).with(MEAN_US, us).with(P50_US, us);
            Row { case, sample, round: 0 }
        };
        rows.map(row).to_vec()
    }

    #[test]
    fn every_number_stands_beside_its_target() {
        let shown: Vec<_> = targets(&rows()).iter().map(Target::shown).collect();
        let wanted = [
            "beside ceiling:2 | 75.0% | at least 75.0% | reached | 225 k/s by 300 k/s",
            "beside plain | 5.62x | at least 5.00x | reached | 225 k/s by 40.0 k/s",
            "beside window | 0.90x | at least 1.00x | NOT REACHED | 225 k/s by 250 k/s",
            "as published | 2.25x | at least 1.50x | reached | 225 k/s by 100 k/s",
            "beside ceiling:2 | 50.0% | at least 60.0% | NOT REACHED | 150 k/s by 300 k/s",
            "beside plain | 2.25x | at least 2.00x | reached | 90.0 k/s by 40.0 k/s",
            "beside window | 17.3% | at most 50.0% | reached | 104 us by 600 us",
            "beside plain | 104.0% | at most 110.0% | reached | 104 us by 100 us",
            "beside plain | 1.40x |  |  | 140 us by 100 us",
            "beside plain:10 | 15.00x | at least 12.00x | reached | 150 k/s by 10.0 k/s",
            "beside plain:10 | 5.0% | at most 7.1% | reached | 70.0 us by 1400 us",
            "writers: in-process beside plain | - | at least 5.00x | not measured",
        ];
        for (shown, wanted) in shown.iter().zip(wanted) {
            assert!(shown.ends_with(wanted), "{shown} is not {wanted}");
        }
    }

    #[test]
    fn a_cell_is_reached_within_a_twentieth_of_its_best_row() {
        let shown = |(cell, sample): &(Cell, Sample)| {
            let (best, of_best) = (cell.best.name(), OF_BEST.text(sample.or_zero(OF_BEST)));
            let distance = distance_text(cell.distance);
            format!("{distance} {} {best} {of_best} {}", cell.readers, sample.remark)
        };
        let cells: Vec<_> = cells(&rows()).iter().map(shown).collect();
        let wanted = [
            "0 300 window:64 90% NOT REACHED",
            "0 1 plain:1 96% reached",
            "1ms 300 plain:10 1500% reached",
        ];
        assert_eq!(cells, wanted);
    }

    #[test]
    fn rows_are_compared_with_two_connections_and_the_best_plain_row() {
        let rows = rows();
        let ratios_of = |index: usize| {
            ratios(&rows[index], &rows).iter().map(|(_, ratio)| *ratio).collect::<Vec<_>>()
        };
        assert_eq!(ratios_of(0), [Some(2.0 / 3.0), None]);
        assert_eq!(ratios_of(4), [Some(0.75), Some(5.625)]);
        // The plain row is that with as many readers, and at the same distance.
        assert_eq!((ratios_of(11)[1], ratios_of(13)[1]), (Some(0.96), None));
        assert_eq!(ratios_of(15), [None, Some(15.0)]);
        assert_eq!(ratios_of(16), [None, None]);
    }

    #[test]
    fn what_a_request_costs_follows_from_processors_and_throughput() {
        let sample = Sample::default().with(PER_S, 50e3).with(CPU_POSTGRES, 0.5);
        let sample = with_database(sample, Some(10.0));
        let numbers = [STATEMENTS, DATABASE_US, SERVER_US].map(|number| sample.get(number));
        assert_eq!(numbers, [Some(5e3), Some(10.0), None]);
    }
}
