//! `lakefs`: what lakeFS published about its batches, with its table, readers, connections and
//! columns, and busload beside it.

use anyhow::Result;

use super::{
    arguments::{Case, Lakefs, Section, Way, distance_text},
    bench::Bench,
    refuse_wrong,
    results::{BATCH, DATABASE_US, fastest_plain},
};
use crate::harness::{
    Number, Row, Table, TableLayout, hidden, label,
    sample::{
        ANSWERED, CPU_LOAD, CPU_POSTGRES, CPU_PROXY, MAX_US, MEAN_US, MIN_US, P50_US, P99_US,
        PER_S, SECONDS,
    },
    shown,
};
use crate::stats::ratio;

/// Connections of the published program, each with one batch in flight.
const CONNECTIONS: usize = 10;

/// Throughput beside the fastest discrete row.
const OF_DISCRETE: Number = Number::new("x_discrete", "x discrete");

/// The published columns, then what else is known of a row.
const LAYOUT: TableLayout<Case> = TableLayout {
    columns: &[
        label("run_type", "run type", 8, run_type),
        label("batch_size", "batch size", 10, |case| match case.approach.way {
            Way::Window => case.approach.number.to_string(),
            Way::InProcess | Way::Resp => "any".to_owned(),
            Way::Plain | Way::Pipelined => "1".to_owned(),
            Way::Ceiling => "1024".to_owned(),
        }),
        shown(SECONDS),
        shown(MEAN_US),
        shown(MAX_US),
        shown(MIN_US),
        shown(ANSWERED),
        label("distance", "distance", 8, |case| distance_text(case.distance)),
        label("locality", "locality", 8, |case| case.locality.to_string()),
        label("way", "", 0, |case| case.approach.name()),
        shown(PER_S),
        shown(OF_DISCRETE),
        hidden(P50_US),
        shown(P99_US),
        shown(BATCH),
        shown(DATABASE_US),
        shown(CPU_LOAD),
        shown(CPU_POSTGRES),
        hidden(CPU_PROXY),
    ],
    main: PER_S,
    ratios: |row, rows| {
        let discrete =
            |base: &Row<Case>| ratio(row.sample.or_zero(PER_S), base.sample.or_zero(PER_S));
        vec![(OF_DISCRETE, fastest_plain(&row.case, rows).and_then(discrete))]
    },
};

fn run_type(case: &Case) -> String {
    let name = match case.approach.way {
        Way::Plain | Way::Pipelined => "discrete",
        Way::Window | Way::Ceiling => "batched",
        Way::InProcess | Way::Resp => "busload",
    };
    name.to_owned()
}

pub fn lakefs(arguments: &Lakefs) -> Result<()> {
    let common = &arguments.common;
    let (mut bench, about) = Bench::open(common, &arguments.case, CONNECTIONS)?;
    let mut table = Table::open(&LAYOUT, Some(&common.out.join("statistics.csv")), &about)?;
    for &distance in &common.distance {
        bench.go_to(distance)?;
        for &locality in &arguments.locality {
            let (section, readers) = (Section::Readers, arguments.readers);
            let cases = arguments.case.iter().map(|approach| Case {
                locality,
                ..Case::new(section, *approach, readers, distance)
            });
            let cases: Vec<_> = cases.collect();
            let text = distance_text(distance);
            let title = format!("Readers {readers}, distance {text}, locality {locality}");
            let measure = |case: &_, round| bench.measure(case, round);
            table.group(&title, &cases, common.rounds.rounds, measure)?;
        }
    }
    bench.close()?;
    refuse_wrong(&table)
}
