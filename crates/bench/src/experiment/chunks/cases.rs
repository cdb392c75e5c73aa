//! Cases of the experiment: a row of a table is a case; its columns, and what it is compared with.

use super::{
    arguments::{Chunks, Section},
    clients::Form,
};
use crate::{
    experiment::store_bench::name_of,
    harness::{
        Number, Row, TableLayout, hidden, label,
        sample::{CPU_LOAD, CPU_OTHERS, CPU_SERVER, MEAN_US, P50_US, P99_US, PER_S, SECONDS},
        shown,
    },
    stats::ratio,
};

/// Callers that read a cold file.
const COLD_CALLERS: usize = 16;

/// State of busload's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Cache {
    /// Nowhere: each read is the first of its extent.
    Cold,
    /// Fills of whole files are under way.
    Filling,
    #[value(name = "warm disk")]
    Disk,
    /// Chunks are in its memory, decoded.
    #[value(name = "warm RAM")]
    Memory,
    /// Busload has no part in it.
    #[value(name = "-")]
    Unused,
}

/// Ways to ask for chunks, and what they are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum Way {
    /// The object store, by range, indexes known.
    #[value(name = "direct")]
    Direct,
    /// Calls with one chunk each.
    GetChunk,
    /// Calls with many chunks each.
    GetChunks,
    /// `GET` over RESP, one under way on a connection.
    #[value(name = "RESP")]
    Resp,
    /// `GET` over RESP, many under way on a connection.
    #[value(name = "RESP pipelined")]
    RespPipelined,
    /// An empty call of the health service.
    #[value(name = "health Check")]
    Check,
    /// Reads of a local copy by the load itself.
    #[value(name = "pread")]
    Pread,
    /// Reads by a thread that sends the bytes over loopback.
    #[value(name = "pread+send")]
    PreadSend,
    /// Not asked for: a store is opened.
    #[value(name = "open")]
    Open,
    /// Not asked for: a file comes to disk.
    #[value(name = "fill")]
    Fill,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    pub section: Section,
    pub cache: Cache,
    pub way: Way,
    pub form: Form,
    pub callers: usize,
    /// Chunks of one request, or under way on one connection.
    pub batch: usize,
}

impl Case {
    /// Names the way and the state of the cache.
    pub fn title(&self) -> String {
        match self.cache {
            Cache::Unused => name_of(&self.way),
            cache => format!("{}, {}", name_of(&self.way), name_of(&cache)),
        }
    }
}

/// Makes a case of the form that a way usually has.
pub const fn case(section: Section, cache: Cache, way: Way, callers: usize, batch: usize) -> Case {
    // The bare loops read records as the file holds them.
    let form = match way {
        Way::Pread | Way::PreadSend => Form::Stored,
        _ => Form::Decoded,
    };
    Case { section, cache, way, form, callers, batch }
}

/// Returns the cases of a section; those that people compare are neighbours.
pub fn of(section: Section, arguments: &Chunks) -> Vec<Case> {
    const STATES: [Cache; 4] = [Cache::Cold, Cache::Filling, Cache::Disk, Cache::Memory];
    let case = |cache, way, callers, batch| case(section, cache, way, callers, batch);
    let (call, pipeline) = (arguments.batch, arguments.pipeline);
    let mut cases = Vec::new();
    match section {
        Section::Chain => {
            cases.push(case(Cache::Unused, Way::Direct, 1, 1));
            for cache in STATES {
                cases.extend([Way::GetChunk, Way::Resp].map(|way| case(cache, way, 1, 1)));
            }
            cases.push(case(Cache::Unused, Way::Check, 1, 1));
        }
        Section::Reads => {
            for &callers in &arguments.callers {
                cases.push(case(Cache::Unused, Way::Direct, callers, 1));
                for cache in STATES {
                    cases.push(case(cache, Way::GetChunk, callers, 1));
                    cases.push(case(cache, Way::GetChunks, callers, call));
                    cases.push(case(cache, Way::Resp, callers, 1));
                    if matches!(cache, Cache::Disk | Cache::Memory) {
                        cases.push(case(cache, Way::RespPipelined, callers, pipeline));
                    }
                }
                cases.push(case(Cache::Unused, Way::Check, callers, 1));
                cases.push(case(Cache::Unused, Way::PreadSend, callers, 1));
            }
            cases.push(case(Cache::Unused, Way::Pread, 1, 1));
        }
        Section::Throughput => {
            let callers = arguments.throughput_callers;
            for form in [Form::Stored, Form::Decoded] {
                let warm = |way, batch| Case { form, ..case(Cache::Disk, way, callers, batch) };
                cases.push(warm(Way::GetChunks, call));
                cases.push(warm(Way::RespPipelined, pipeline));
            }
            cases.push(case(Cache::Unused, Way::PreadSend, 1, callers * pipeline));
            cases.push(case(Cache::Unused, Way::Pread, 1, 1));
        }
        Section::Cold => cases.push(case(Cache::Filling, Way::GetChunk, COLD_CALLERS, 1)),
        Section::ThunderingHerd => {
            cases.push(case(Cache::Cold, Way::GetChunk, arguments.thundering_herd, 1));
        }
        Section::Open => {
            cases.extend([Cache::Cold, Cache::Disk].map(|cache| case(cache, Way::Open, 1, 1)));
        }
        Section::Memory => cases.push(case(Cache::Filling, Way::Fill, 1, 1)),
    }
    cases
}

/// Chunks per second beside direct reads at the same load.
const X_DIRECT: Number = Number::new("x_direct", "x direct");

/// Median time beside that of an empty call by as many callers.
pub const X_CHECK: Number = Number::new("x_check", "x check");

/// Requests to the object store and bytes from it; ranges that somebody waited for, those of them
/// asked for again, whole extents, and indexes.
pub const GETS: Number = Number::count("gets", "GETs");
pub const GOT_BYTES: Number = Number::scaled("got_bytes", "MiB", 1.0 / 1_048_576.0);

pub const FOREGROUND: Number = Number::count("foreground", "");
pub const REPEATED: Number = Number::count("repeated", "");
pub const FILLS: Number = Number::count("fills", "");
pub const INDEX_READS: Number = Number::count("index_reads", "");
/// Bytes from the store by those of the file.
pub const X_FILE: Number = Number::new("x_file", "");
/// Seconds of an opening until the server answered `PING`.
pub const PING_S: Number = Number::new("ping_s", "");
/// Bytes of the index and lookup for each chunk.
pub const INDEX_BYTES: Number = Number::new("index_bytes", "");
/// Resident size before a fill, how far it grew meanwhile, and after.
pub const BEFORE_MIB: Number = Number::new("before_mib", "");
pub const GROWN_MIB: Number = Number::new("grown_mib", "");
pub const AFTER_MIB: Number = Number::new("after_mib", "");

pub const LAYOUT: TableLayout<Case> = TableLayout {
    columns: &[
        label("section", "", 0, |case| name_of(&case.section)),
        label("state", "state", 9, |case| name_of(&case.cache)),
        label("way", "way", 14, |case| name_of(&case.way)),
        label("form", "form", 7, |case| format!("{:?}", case.form).to_lowercase()),
        label("callers", "callers", 7, |case| case.callers.to_string()),
        label("batch", "batch", 5, |case| case.batch.to_string()),
        shown(SECONDS),
        shown(PER_S),
        shown(X_DIRECT),
        shown(MEAN_US),
        shown(P50_US),
        shown(P99_US),
        shown(X_CHECK),
        shown(CPU_LOAD),
        shown(CPU_SERVER),
        hidden(CPU_OTHERS),
        shown(GETS),
        shown(GOT_BYTES),
        hidden(FOREGROUND),
        hidden(REPEATED),
        hidden(FILLS),
        hidden(INDEX_READS),
        hidden(X_FILE),
        hidden(PING_S),
        hidden(INDEX_BYTES),
        hidden(BEFORE_MIB),
        hidden(GROWN_MIB),
        hidden(AFTER_MIB),
    ],
    main: PER_S,
    ratios,
};

fn ratios(row: &Row<Case>, rows: &[Row<Case>]) -> Vec<(Number, Option<f64>)> {
    let Case { section, callers, batch, .. } = row.case;
    if row.case.cache == Cache::Unused {
        return Vec::new();
    }
    let alike = |way| {
        let is_it = move |other: &&Row<Case>| {
            (other.case.section, other.case.way, other.case.callers) == (section, way, callers)
        };
        rows.iter().find(is_it)
    };
    let beside = |other: Option<&Row<Case>>, number| {
        ratio(row.sample.or_zero(number), other?.sample.or_zero(number))
    };
    let check = alike(Way::Check).filter(|_| batch == 1);
    vec![(X_DIRECT, beside(alike(Way::Direct), PER_S)), (X_CHECK, beside(check, P50_US))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Sample, Table};

    #[test]
    fn rows_are_compared_at_the_same_load() {
        let row = |cache, way, callers, per_s, p50_us| Row {
            case: case(Section::Reads, cache, way, callers, 1),
            sample: Sample::default().with(PER_S, per_s).with(P50_US, p50_us),
            round: 0,
        };
        let rows = [
            row(Cache::Unused, Way::Direct, 1, 30.0, 33_000.0),
            row(Cache::Unused, Way::Direct, 16, 480.0, 33_000.0),
            row(Cache::Unused, Way::Check, 1, 20_000.0, 50.0),
            row(Cache::Disk, Way::GetChunk, 1, 15_000.0, 75.0),
            row(Cache::Disk, Way::GetChunk, 16, 48_000.0, 75.0),
        ];
        let of = |row| ratios(row, &rows).into_iter().map(|(_, ratio)| ratio).collect::<Vec<_>>();
        assert_eq!(of(&rows[3]), [Some(500.0), Some(1.5)]);
        assert_eq!(of(&rows[4]), [Some(100.0), None]);
        assert_eq!(of(&rows[0]), []);
        let table = Table::open(&LAYOUT, None, "").unwrap();
        let record = table.record(&rows[4]);
        assert!(record.starts_with("reads,warm disk,GetChunk,decoded,16,1,,48000,"), "{record}");
    }
}
