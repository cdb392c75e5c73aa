//! Cases of the experiment: a row of a table is a case; its columns, and what it is compared with.

use super::{
    arguments::{Dolt, Layout, Section},
    client::Streams,
};
use crate::{
    experiment::store_bench::name_of,
    harness::{
        Number, Row, TableLayout, hidden, label,
        sample::{CPU_LOAD, CPU_OTHERS, SECONDS},
        shown,
    },
    stats::ratio,
};

/// Sources of the data, and their states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    /// A plain download of as many bytes from the object store, one range after the other.
    #[value(name = "plain download")]
    Download,
    /// A plain download with many ranges at once.
    #[value(name = "plain downloads")]
    Downloads,
    /// The replay itself against the object store, indexes known.
    Direct,
    /// Through busload whose cache is empty.
    Cold,
    /// Through busload that has everything on local disk.
    Warm,
    /// Through a warm busload with the object store at 0 ms.
    #[value(name = "warm 0 ms")]
    Near,
}

impl Way {
    pub fn is_busload(self) -> bool {
        matches!(self, Self::Cold | Self::Warm | Self::Near)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    pub section: Section,
    pub way: Way,
    /// Busload's layout, where it matters.
    pub layout: Option<Layout>,
    pub streams: Streams,
    pub clients: usize,
}

impl Case {
    fn layout(&self) -> String {
        self.layout.as_ref().map(name_of).unwrap_or_default()
    }

    fn streams(&self) -> String {
        format!("{:?}", self.streams).to_lowercase()
    }
}

/// Returns the cases of a section; those that people compare are neighbours.
pub fn of(section: Section, arguments: &Dolt) -> Vec<Case> {
    let case = |way| Case { section, way, layout: None, streams: Streams::New, clients: 1 };
    let in_layouts = |ways: &[Way], streams| {
        let of_layout = |layout: &Layout| {
            let layout = Some(*layout);
            ways.iter().map(|way| Case { layout, streams, ..case(*way) }).collect::<Vec<_>>()
        };
        arguments.layout.iter().flat_map(of_layout).collect::<Vec<_>>()
    };
    let busload = [Way::Cold, Way::Warm, Way::Near];
    match section {
        Section::Clone => [Way::Download, Way::Downloads, Way::Cold, Way::Warm].map(case).to_vec(),
        Section::Clones => {
            let clients = arguments.clients;
            [Way::Cold, Way::Warm].map(|way| Case { clients, ..case(way) }).to_vec()
        }
        Section::Scan => {
            let mut cases = vec![case(Way::Download), case(Way::Direct)];
            cases.extend(in_layouts(&busload, Streams::New));
            cases.extend(in_layouts(&busload[..2], Streams::Legacy));
            cases
        }
        Section::Point => [vec![case(Way::Direct)], in_layouts(&busload, Streams::New)].concat(),
        Section::Fetch => {
            [vec![case(Way::Direct)], in_layouts(&busload[..2], Streams::New)].concat()
        }
    }
}

/// Speed beside the same against the object store.
const X_DIRECT: Number = Number::new("x_direct", "x direct");
/// Speed beside one plain download of as many bytes.
pub const X_PLAIN: Number = Number::new("x_plain", "x plain");
/// Time beside that with the store at 0 ms.
pub const X_NEAR: Number = Number::new("of_near", "of 0 ms");
/// Replays that the times come from.
pub const REPLAYS: Number = Number::count("replays", "replays");
/// Times of a replay's parts in milliseconds.
pub const P50_MS: Number = Number::new("p50_ms", "p50 ms");
pub const P99_MS: Number = Number::new("p99_ms", "p99 ms");
/// Calls, GETs and those of dictionaries per replay.
pub const CALLS: Number = Number::count("calls", "calls");
pub const GETS: Number = Number::count("gets", "GETs");
pub const DICTIONARY_GETS: Number = Number::count("dictionary_gets", "dict.");
/// Bytes of bodies, and of the contents of chunks, per replay.
pub const CLIENT_BYTES: Number = Number::scaled("client_bytes", "MiB", 1.0 / 1_048_576.0);
pub const CONTENTS_BYTES: Number = Number::count("contents_bytes", "");
pub const MIB_PER_S: Number = Number::new("mib_per_s", "MiB/s");
/// Requests for table files at the object store and bytes of them, in all replays together.
pub const READ_GETS: Number = Number::count("read_gets", "store GETs");
pub const READ_BYTES: Number = Number::scaled("read_bytes", "MiB", 1.0 / 1_048_576.0);
/// Bytes of the store's files.
pub const STORE_BYTES: Number = Number::count("store_bytes", "");
/// Seconds of processor that the server used, per replay.
pub const SERVER_S: Number = Number::new("cpu_server_s", "cpu s");

pub const LAYOUT: TableLayout<Case> = TableLayout {
    columns: &[
        label("section", "", 0, |case| name_of(&case.section)),
        label("way", "way", 15, |case| name_of(&case.way)),
        label("layout", "layout", 7, Case::layout),
        label("stream", "streams", 7, Case::streams),
        label("clients", "clients", 7, |case| case.clients.to_string()),
        hidden(STORE_BYTES),
        hidden(REPLAYS),
        shown(SECONDS),
        shown(X_DIRECT),
        shown(X_PLAIN),
        shown(X_NEAR),
        shown(MIB_PER_S),
        shown(P50_MS),
        shown(P99_MS),
        shown(CALLS),
        shown(GETS),
        shown(DICTIONARY_GETS),
        hidden(CONTENTS_BYTES),
        shown(CLIENT_BYTES),
        shown(READ_GETS),
        shown(READ_BYTES),
        shown(SERVER_S),
        shown(CPU_LOAD),
        hidden(CPU_OTHERS),
    ],
    main: SECONDS,
    ratios,
};

fn ratios(row: &Row<Case>, rows: &[Row<Case>]) -> Vec<(Number, Option<f64>)> {
    let Row { case, sample, .. } = row;
    let seconds_of = |is_it: &dyn Fn(&Case) -> bool| {
        rows.iter().find(|other| is_it(&other.case))?.sample.get(SECONDS)
    };
    let seconds = sample.or_zero(SECONDS);
    let faster_than = |way| {
        let base = seconds_of(&|other| other.section == case.section && other.way == way);
        base.and_then(|base| ratio(base, seconds))
    };
    // What is downloaded as it is compares with a download of the same bytes; chains and fetches
    // wait for each other.
    let is_bulk =
        matches!(case.section, Section::Clone | Section::Scan) && case.way != Way::Download;
    let near = seconds_of(&|other| *other == Case { way: Way::Near, ..*case });
    let near = near.filter(|_| case.way == Way::Warm);
    vec![
        (X_DIRECT, faster_than(Way::Direct).filter(|_| case.way.is_busload())),
        (X_PLAIN, faster_than(Way::Download).filter(|_| is_bulk)),
        (X_NEAR, near.and_then(|near| ratio(seconds, near))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        experiment::dolt::targets,
        harness::{Sample, Table, Target},
    };

    fn row(section: Section, way: Way, layout: Option<Layout>, seconds: f64) -> Row<Case> {
        let case = Case { section, way, layout, streams: Streams::New, clients: 1 };
        Row { case, sample: Sample::default().with(SECONDS, seconds), round: 0 }
    }

    #[test]
    fn targets_are_reached_or_not_or_not_measured() {
        let records = Some(Layout::Records);
        let mut table = Table::open(&LAYOUT, None, "").unwrap();
        table.rows = vec![
            row(Section::Clone, Way::Download, None, 1.0),
            row(Section::Clone, Way::Cold, None, 1.25),
            row(Section::Clones, Way::Cold, None, 1.0),
            row(Section::Scan, Way::Download, None, 1.0),
            row(Section::Scan, Way::Cold, records, 2.5),
            row(Section::Point, Way::Warm, records, 0.0105),
            row(Section::Point, Way::Near, records, 0.01),
        ];
        table.rows[2].sample.set(READ_BYTES, 1_000.0);
        for index in 0..table.rows.len() {
            for (number, ratio) in ratios(&table.rows[index], &table.rows) {
                table.rows[index].sample.set(number, ratio);
            }
        }
        let targets = targets(&table, &[Layout::Records], 1_000);
        let expected = [
            "plain ranged download | 0.80x | at least 0.60x | reached",
            "beside those of the files | - | at most 1.01x | not measured",
            "for all clones at once | 1.00x | at most 1.01x | reached",
            "download of its bytes, records | 2.50x | at most 2.00x | NOT REACHED",
            "at 0 ms, records | - | at most 1.10x | not measured",
            "at 0 ms, records | 1.05x | at most 1.10x | reached",
        ];
        assert_eq!(targets.len(), expected.len());
        for (shown, expected) in targets.iter().map(Target::shown).zip(expected) {
            assert!(shown.ends_with(expected), "{shown} does not end with {expected}");
        }
    }
}
