//! Cases of the experiment: a row of the table is a case; its columns, what it is compared with,
//! and the numbers that were set as targets.

use clap::ValueEnum;

use super::arguments::{Dolt, Layout, Section};
use crate::{
    cli::name_of,
    harness::{
        Number, Row, Table, TableLayout, Target, Unit, Wanted, hidden, label,
        sample::{CPU_LOAD, CPU_OTHERS, SECONDS},
        shown,
    },
    stats::ratio,
};

/// Rounding to extents and the chunk of the root may be read beside a file.
const ONCE: f64 = 1.01;

/// Sources of the data, and their states; the command line's help tells them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    #[value(name = "plain download")]
    Download,
    #[value(name = "plain downloads")]
    Downloads,
    Direct,
    Cold,
    Warm,
    #[value(name = "warm 0 ms")]
    Near,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    pub section: Section,
    pub way: Way,
    /// Busload's layout, where it matters.
    pub layout: Option<Layout>,
    pub clients: usize,
}

/// Returns the cases of a section; those that people compare are neighbours.
pub fn of(section: Section, arguments: &Dolt) -> Vec<Case> {
    use Way::{Cold, Direct, Download, Downloads, Near, Warm};
    if section == Section::Query {
        let of_clients = arguments.query_clients.iter().flat_map(|clients| {
            let case = |way, layout| Case { section, way, layout, clients: *clients };
            let layouts = arguments.layout.iter().copied().map(Some);
            let served = layouts.flat_map(move |layout| [case(Cold, layout), case(Warm, layout)]);
            std::iter::once(case(Direct, None)).chain(served)
        });
        return of_clients.collect();
    }
    let clients = if section == Section::Clones { arguments.clients } else { 1 };
    let case = |way, layout| Case { section, way, layout, clients };
    // The ways without a layout, and those in each.
    let (plain, in_layouts): (&[Way], &[Way]) = match section {
        Section::Clone => (&[Download, Downloads, Cold, Warm], &[]),
        Section::Clones => (&[Cold, Warm], &[]),
        Section::Scan => (&[Download, Direct], &[Cold, Warm, Near]),
        Section::Point => (&[Direct], &[Cold, Warm, Near]),
        Section::Fetch | Section::Query => (&[Direct], &[Cold, Warm]),
    };
    let mut cases: Vec<_> = plain.iter().map(|way| case(*way, None)).collect();
    for layout in &arguments.layout {
        cases.extend(in_layouts.iter().map(|way| case(*way, Some(*layout))));
    }
    cases
}

const X_DIRECT: Number = Number::new("x_direct", "x direct");
const X_PLAIN: Number = Number::new("x_plain", "x plain");
/// Time beside that with the store at 0 ms.
const X_NEAR: Number = Number::new("of_near", "of 0 ms");
/// Replays that the times come from.
pub const REPLAYS: Number = Number::count("replays", "replays");
/// Times of a replay's parts.
pub const P50_MS: Number = Number::new("p50_ms", "p50 ms");
pub const P99_MS: Number = Number::new("p99_ms", "p99 ms");
/// Calls, GETs, those of dictionaries, and bytes of bodies per replay.
pub const CALLS: Number = Number::count("calls", "calls");
pub const GETS: Number = Number::count("gets", "GETs");
pub const DICTIONARY_GETS: Number = Number::count("dictionary_gets", "dict.");
pub const CLIENT_BYTES: Number = Number::scaled("client_bytes", "MiB", 1.0 / 1_048_576.0);
/// Requests for table files at the object store and bytes of them, in all replays together.
pub const READ_GETS: Number = Number::count("read_gets", "store GETs");
pub const READ_BYTES: Number = Number::scaled("read_bytes", "MiB", 1.0 / 1_048_576.0);
/// Bytes of the store's files, and how many times they were read from there.
pub const STORE_BYTES: Number = Number::count("store_bytes", "");
const READ_TIMES: Number = Number::new("read_times", "");
/// Seconds of processor that the server used, per replay.
pub const SERVER_S: Number = Number::new("cpu_server_s", "cpu s");

pub const LAYOUT: TableLayout<Case> = TableLayout {
    columns: &[
        label("section", "", 0, |case| name_of(&case.section)),
        label("way", "way", 15, |case| name_of(&case.way)),
        label("layout", "layout", 7, |case| case.layout.as_ref().map(name_of).unwrap_or_default()),
        label("clients", "clients", 7, |case| case.clients.to_string()),
        hidden(STORE_BYTES),
        hidden(REPLAYS),
        shown(SECONDS),
        shown(X_DIRECT),
        shown(X_PLAIN),
        shown(X_NEAR),
        shown(P50_MS),
        shown(P99_MS),
        shown(CALLS),
        shown(GETS),
        shown(DICTIONARY_GETS),
        shown(CLIENT_BYTES),
        shown(READ_GETS),
        shown(READ_BYTES),
        hidden(READ_TIMES),
        shown(SERVER_S),
        shown(CPU_LOAD),
        hidden(CPU_OTHERS),
    ],
    main: SECONDS,
    ratios,
};

fn ratios(row: &Row<Case>, rows: &[Row<Case>]) -> Vec<(Number, Option<f64>)> {
    let Row { case, sample, .. } = row;
    let seconds = sample.or_zero(SECONDS);
    let seconds_of = |is_it: &dyn Fn(&Case) -> bool| {
        rows.iter().find(|other| is_it(&other.case))?.sample.get(SECONDS)
    };
    let faster_than = |way| {
        let base = seconds_of(&|other| {
            (other.section, other.way, other.clients) == (case.section, way, case.clients)
        });
        base.and_then(|base| ratio(base, seconds))
    };
    let is_busload = matches!(case.way, Way::Cold | Way::Warm | Way::Near);
    // What is downloaded as it is compares with a download of the same bytes; chains and fetches
    // wait for each other.
    let is_bulk =
        matches!(case.section, Section::Clone | Section::Scan) && case.way != Way::Download;
    let near = seconds_of(&|other| *other == Case { way: Way::Near, ..*case });
    let near = near.filter(|_| case.way == Way::Warm);
    vec![
        (X_DIRECT, faster_than(Way::Direct).filter(|_| is_busload)),
        (X_PLAIN, faster_than(Way::Download).filter(|_| is_bulk)),
        (X_NEAR, near.and_then(|near| ratio(seconds, near))),
        (READ_TIMES, ratio(sample.or_zero(READ_BYTES), sample.or_zero(STORE_BYTES))),
    ]
}

const PLAIN: &str = "speed by a plain download";
const READ: &str = "bytes read by those of files";
const NEAR: &str = "time by that at 0 ms";

/// Numbers that were set as targets, and the rows that have them.
const TARGETS: [(Section, Way, Number, &str, Wanted); 6] = [
    (Section::Clone, Way::Cold, X_PLAIN, PLAIN, Wanted::AtLeast(0.6)),
    (Section::Clone, Way::Cold, READ_TIMES, READ, Wanted::AtMost(ONCE)),
    (Section::Clones, Way::Cold, READ_TIMES, READ, Wanted::AtMost(ONCE)),
    (Section::Scan, Way::Cold, X_PLAIN, PLAIN, Wanted::AtLeast(0.5)),
    (Section::Scan, Way::Warm, X_NEAR, NEAR, Wanted::AtMost(1.1)),
    (Section::Point, Way::Warm, X_NEAR, NEAR, Wanted::AtMost(1.1)),
];

/// Returns the targets beside what was measured, for each layout that was.
pub fn targets(table: &Table<Case>) -> Vec<Target> {
    let targets = TARGETS.into_iter().flat_map(|(section, way, number, text, wanted)| {
        let what = format!("{}, {}", name_of(&section), name_of(&way));
        let rows = table.rows.iter().map(|row| (row.case, &row.sample));
        let rows = rows.filter(|(case, _)| (case.section, case.way) == (section, way));
        let mut measured: Vec<_> = rows
            .map(|(case, sample)| {
                let value = sample.get(number).filter(|_| sample.failed.count() == 0);
                let layout = case.layout.map(|layout| format!(", {}", name_of(&layout)));
                (format!("{what}{}: {text}", layout.unwrap_or_default()), value)
            })
            .collect();
        if measured.is_empty() {
            measured.push((format!("{what}: {text}"), None));
        }
        let target = move |(what, value)| Target::new(what, Unit::Times, value, wanted);
        measured.into_iter().map(target)
    });
    targets.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Sample;

    #[test]
    fn targets_are_reached_or_not_or_not_measured() {
        let records = Some(Layout::Records);
        let rows = [
            (Section::Clone, Way::Download, None, 1.0, 0.0),
            (Section::Clone, Way::Cold, None, 1.25, 1_000.0),
            (Section::Scan, Way::Download, None, 1.0, 0.0),
            (Section::Scan, Way::Cold, records, 2.5, 0.0),
            (Section::Point, Way::Warm, records, 0.0105, 0.0),
            (Section::Point, Way::Near, records, 0.01, 0.0),
        ];
        let rows = rows.map(|(section, way, layout, seconds, read_bytes)| {
            let case = Case { section, way, layout, clients: 1 };
            let sample = Sample::default().with(SECONDS, seconds).with(STORE_BYTES, 1_000.0);
            Row { case, sample: sample.with(READ_BYTES, read_bytes), round: 0 }
        });
        let mut table = Table::open(&LAYOUT, None, "").unwrap();
        for mut row in rows.clone() {
            ratios(&row, &rows).into_iter().for_each(|(number, is)| row.sample.set(number, is));
            table.rows.push(row);
        }
        let shown: Vec<_> = targets(&table).iter().map(Target::shown).collect();
        let expected = [
            "clone, cold: speed by a plain download | 0.80x | at least 0.60x | reached",
            "clone, cold: bytes read by those of files | 1.00x | at most 1.01x | reached",
            "clones, cold: bytes read by those of files | - | at most 1.01x | not measured",
            "scan, cold, records: speed by a plain download | 0.40x | at least 0.50x | NOT REACHED",
            "scan, warm: time by that at 0 ms | - | at most 1.10x | not measured",
            "point, warm, records: time by that at 0 ms | 1.05x | at most 1.10x | reached",
        ];
        assert_eq!(shown, expected);
    }
}
