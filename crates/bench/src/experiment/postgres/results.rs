//! The table, and conclusions from its rows: ratios, the numbers that were set as targets.

use super::arguments::{Approach, Case, Section, Way};
use crate::{
    cli::name_of,
    harness::{
        Number, Row, TableLayout, Target,
        Unit::{self, Percent, Times},
        Wanted::{self, AtLeast, AtMost, Nothing},
        hidden, label,
        sample::{
            CPU_LOAD, CPU_OTHERS, CPU_POSTGRES, CPU_SERVER, LATE_P99_US, MAX_US, MEAN_US, P50_US,
            P99_US, PER_S,
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

pub const LAYOUT: TableLayout<Case> = TableLayout {
    columns: &[
        label("section", "", 0, |case| name_of(&case.section)),
        label("way", "way", 11, |case| case.approach.name()),
        label("clients", "clients", 7, |case| case.clients.to_string()),
        label("rate", "rate", 6, |case| case.rate.map(|rate| rate.to_string()).unwrap_or_default()),
        shown(PER_S),
        shown(OF_CEILING),
        shown(OF_PLAIN),
        shown(MEAN_US),
        shown(P50_US),
        shown(P99_US),
        shown(MAX_US),
        shown(BATCH),
        shown(CPU_LOAD),
        shown(CPU_SERVER),
        shown(CPU_POSTGRES),
        hidden(CPU_OTHERS),
        hidden(LATE_P99_US),
    ],
    main: PER_S,
    ratios,
};

/// Returns the fastest of the rows that `chosen` picks.
pub fn fastest(rows: &[Row<Case>], chosen: impl Fn(&Case) -> bool) -> Option<&Row<Case>> {
    let per_s = |row: &Row<Case>| row.sample.or_zero(PER_S);
    let rows = rows.iter().filter(|row| chosen(&row.case));
    rows.max_by(|first, second| per_s(first).total_cmp(&per_s(second)))
}

/// Compares a closed loop with the ceiling and with what is not batched.
fn ratios(row: &Row<Case>, rows: &[Row<Case>]) -> Vec<(Number, Option<f64>)> {
    let Case { section, clients, rate, .. } = row.case;
    if rate.is_some() {
        return Vec::new();
    }
    let beside =
        |base: Option<&Row<Case>>| ratio(row.sample.or_zero(PER_S), base?.sample.or_zero(PER_S));
    let ceiling = fastest(rows, |other| {
        section != Section::Upserts && other.approach == Approach { way: Way::Ceiling, number: 2 }
    });
    let plain = fastest(rows, |other| {
        other.approach.way == Way::Plain && (other.section, other.clients) == (section, clients)
    });
    vec![(OF_CEILING, beside(ceiling)), (OF_PLAIN, beside(plain))]
}

/// A number that was set as a target: whose, where, of what, the bound, and the ways whose fastest
/// rows are divided by each other.
type Goal = (&'static str, Section, Number, Unit, Wanted, &'static str, &'static str);

const GOALS: [Goal; 10] = {
    use Section::{LowLoad, Readers, Upserts};
    [
        ("readers", Readers, PER_S, Percent, AtLeast(0.75), "in-process", "ceiling:2"),
        ("readers", Readers, PER_S, Times, AtLeast(5.0), "in-process", "plain"),
        ("readers", Readers, PER_S, Times, AtLeast(1.0), "in-process", "window"),
        ("readers", Readers, PER_S, Times, AtLeast(1.5), "in-process", PUBLISHED),
        ("readers", Readers, PER_S, Percent, AtLeast(0.6), PIPELINED, "ceiling:2"),
        ("readers", Readers, PER_S, Times, AtLeast(2.0), UNPIPELINED, "plain"),
        ("1 reader, mean", LowLoad, MEAN_US, Percent, AtMost(0.5), "in-process", "window"),
        ("1 reader, p50", LowLoad, P50_US, Percent, AtMost(1.15), "in-process", "plain"),
        ("1 reader, p50", LowLoad, P50_US, Times, Nothing, "resp", "plain"),
        ("writers", Upserts, PER_S, Times, AtLeast(5.0), "in-process", "plain"),
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
    let targets = GOALS.into_iter().map(|(clients, section, of, unit, wanted, ways, base)| {
        let best = |ways| {
            let row = fastest(rows, |case| {
                let is_lone = section != Section::LowLoad || case.clients == 1;
                case.section == section && is_lone && is_of(case, ways)
            });
            row.and_then(|row| row.sample.get(of))
        };
        let both = best(ways).zip(best(base));
        let value = both.and_then(|(value, base)| ratio(value, base));
        let title = of.title.trim_start_matches("mean ").trim_start_matches("p50 ");
        let quotient = both.map(|(value, base)| {
            format!("{} {title} by {} {title}", of.text(value), of.text(base))
        });
        let what = format!("{clients}: {ways} beside {base}");
        let target = Target::new(what, unit, value, wanted);
        Target { quotient: quotient.unwrap_or_default(), ..target }
    });
    targets.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Sample;

    /// Makes rows with these throughputs and response times.
    fn rows() -> Vec<Row<Case>> {
        use Section::{LowLoad, Readers, Upserts};
        let rows = [
            (Readers, "ceiling:1", 1, 200e3, 100.0),
            (Readers, "ceiling:2", 2, 300e3, 100.0),
            (Readers, "plain:20", 300, 40e3, 100.0),
            (Readers, "plain:50", 300, 30e3, 100.0),
            (Readers, "in-process", 300, 225e3, 100.0),
            (Readers, "resp:20", 300, 150e3, 100.0),
            (Readers, "resp:300", 300, 90e3, 100.0),
            (Readers, "window:16", 300, 100e3, 100.0),
            (Readers, "window:64", 300, 250e3, 100.0),
            (LowLoad, "plain:1", 1, 1.0, 100.0),
            (LowLoad, "window:64", 1, 1.0, 600.0),
            (LowLoad, "in-process", 1, 1.0, 110.0),
            (LowLoad, "resp:1", 1, 1.0, 140.0),
            (LowLoad, "in-process", 50, 1.0, 600.0),
            (Upserts, "in-process", 300, 60e3, 100.0),
        ];
        let row = |(section, approach, clients, per_s, us)| {
            let approach = Approach::parse(approach).unwrap();
            let case = Case { section, approach, clients, rate: None };
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
            "beside window | 18.3% | at most 50.0% | reached | 110 us by 600 us",
            "beside plain | 110.0% | at most 115.0% | reached | 110 us by 100 us",
            "beside plain | 1.40x |  |  | 140 us by 100 us",
            "writers: in-process beside plain | - | at least 5.00x | not measured",
        ];
        for (shown, wanted) in shown.iter().zip(wanted) {
            assert!(shown.ends_with(wanted), "{shown} is not {wanted}");
        }
    }

    #[test]
    fn rows_are_compared_with_two_connections_and_the_best_plain_row() {
        let rows = rows();
        let ratios_of = |index: usize| {
            ratios(&rows[index], &rows).iter().map(|(_, ratio)| *ratio).collect::<Vec<_>>()
        };
        assert_eq!(ratios_of(0), [Some(2.0 / 3.0), None]);
        assert_eq!(ratios_of(4), [Some(0.75), Some(5.625)]);
        // At low load the plain row is that with as many readers; the ceiling is that of reads.
        assert_eq!((ratios_of(11)[1], ratios_of(13)[1]), (Some(1.0), None));
        assert_eq!(ratios_of(14), [None, None]);
    }
}
