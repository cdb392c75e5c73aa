//! Cases of the experiment: a row of a table is a case; its columns, what it is compared with, and
//! what is wanted of it.

use busload_proto::v1::Form;
use clap::ValueEnum;

use crate::{
    cli::name_of,
    harness::{
        Number, Row, Table, TableLayout, Target, Unit,
        Wanted::{self, AtLeast, AtMost},
        hidden, label,
        sample::{CPU_LOAD, CPU_OTHERS, CPU_SERVER, MEAN_US, P50_US, P99_US, PER_S, SECONDS},
        shown,
    },
    stats::ratio,
};

/// Callers that read a cold file.
const COLD_CALLERS: usize = 16;

/// Callers that ask for one cold chunk at once.
const THUNDERING_CALLERS: usize = 256;

/// Callers of the section throughput.
const THROUGHPUT_CALLERS: usize = 4;

/// Addresses of a `GetChunks` call.
pub const BATCH: usize = 256;

/// Requests under way on a pipelined RESP connection.
const PIPELINE: usize = 64;

/// Memory that a fill may take by default: parts in flight (64 MiB), what has come and is joinable
/// (16 MiB), and buffers.
const GROWN_WANTED: Wanted = AtMost(192.0);

/// A part of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Section {
    /// Random reads, in every state; those of a single caller are a chain of dependent ones
    Reads,
    /// As many warm chunks a second as one core gives, as stored and decoded
    Throughput,
    /// Random reads of a whole file from an empty cache: what they cost the store, from the
    /// proxy's log
    Cold,
    /// 256 callers ask for one cold chunk at once
    ThunderingHerd,
    /// A store of 1000 table files: seconds until its chunks are found, with an empty and a warm
    /// cache
    Open,
    /// Memory of the index by chunk; resident size while a file of --memory-bytes fills
    Memory,
}

impl Section {
    /// Returns what the command line says of it.
    pub fn title(self) -> String {
        let value = self.to_possible_value().expect("the command line has every section");
        let help = value.get_help().map(ToString::to_string);
        format!("{}: {}", value.get_name(), help.unwrap_or_default())
    }
}

/// State of busload's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Cache {
    /// Nothing is there: each read is the first of its extent.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum Way {
    /// The object store, by range, indexes known.
    #[value(name = "direct")]
    Direct,
    GetChunk,
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
    /// `GET` over RESP of a server that always sends the same.
    #[value(name = "null server")]
    Null,
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

/// Returns the cases of a section; those that people compare are neighbours.
pub fn of(section: Section, callers: &[usize]) -> Vec<Case> {
    let case = |cache, way, callers| {
        let batch = match way {
            Way::GetChunks => BATCH,
            Way::RespPipelined | Way::Null => PIPELINE,
            _ => 1,
        };
        Case { section, cache, way, form: Form::Contents, callers, batch }
    };
    let mut cases = Vec::new();
    match section {
        Section::Reads => {
            for &callers in callers {
                cases.push(case(Cache::Unused, Way::Direct, callers));
                for cache in [Cache::Cold, Cache::Filling, Cache::Disk, Cache::Memory] {
                    let ways = [Way::GetChunk, Way::GetChunks, Way::Resp, Way::RespPipelined];
                    cases.extend(ways.map(|way| case(cache, way, callers)));
                }
                cases.push(case(Cache::Unused, Way::Check, callers));
            }
        }
        Section::Throughput => {
            for form in [Form::Stored, Form::Contents] {
                let warm = |way| Case { form, ..case(Cache::Disk, way, THROUGHPUT_CALLERS) };
                cases.extend([Way::GetChunks, Way::RespPipelined].map(warm));
            }
            cases.push(case(Cache::Unused, Way::Null, THROUGHPUT_CALLERS));
        }
        Section::Cold => cases.push(case(Cache::Filling, Way::GetChunk, COLD_CALLERS)),
        Section::ThunderingHerd => {
            cases.push(case(Cache::Cold, Way::GetChunk, THUNDERING_CALLERS));
        }
        Section::Open => {
            cases.extend([Cache::Cold, Cache::Disk].map(|cache| case(cache, Way::Open, 1)));
        }
        Section::Memory => cases.push(case(Cache::Filling, Way::Fill, 1)),
    }
    cases
}

/// Chunks per second beside direct reads at the same load.
const X_DIRECT: Number = Number::new("x_direct", "x direct");
/// Median time beside that of an empty call by as many callers.
const X_CHECK: Number = Number::new("x_check", "x check");
/// Requests for table files and bytes of them; ranges that somebody waited for, those of them asked
/// for again, and indexes.
pub const GETS: Number = Number::count("gets", "GETs");
pub const GOT_BYTES: Number = Number::scaled("got_bytes", "MiB", 1.0 / 1_048_576.0);
pub const FOREGROUND: Number = Number::count("foreground", "");
pub const REPEATED: Number = Number::count("repeated", "");
pub const INDEX_READS: Number = Number::count("index_reads", "");
/// Bytes from the store by those of the file.
pub const X_FILE: Number = Number::new("x_file", "");
/// Bytes of the index and lookup for each chunk.
pub const INDEX_BYTES: Number = Number::new("index_bytes", "");
/// Growth of the resident size while a file fills.
pub const GROWN_MIB: Number = Number::new("grown_mib", "");

pub const LAYOUT: TableLayout<Case> = TableLayout {
    columns: &[
        label("section", "", 0, |case| name_of(&case.section)),
        label("state", "state", 9, |case| name_of(&case.cache)),
        label("way", "way", 14, |case| name_of(&case.way)),
        label("form", "form", 7, |case| match case.form {
            Form::Stored => "stored".to_owned(),
            _ => "decoded".to_owned(),
        }),
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
        hidden(INDEX_READS),
        hidden(X_FILE),
        hidden(INDEX_BYTES),
        hidden(GROWN_MIB),
    ],
    main: PER_S,
    ratios,
};

fn ratios(row: &Row<Case>, rows: &[Row<Case>]) -> Vec<(Number, Option<f64>)> {
    let Case { section, callers, batch, .. } = row.case;
    if row.case.cache == Cache::Unused {
        return Vec::new();
    }
    let beside = |way, number| {
        let alike = (section, way, callers);
        let other =
            rows.iter().find(|Row { case, .. }| (case.section, case.way, case.callers) == alike);
        ratio(row.sample.or_zero(number), other?.sample.or_zero(number))
    };
    let x_check = beside(Way::Check, P50_US).filter(|_| batch == 1);
    vec![(X_DIRECT, beside(Way::Direct, PER_S)), (X_CHECK, x_check)]
}

/// Numbers that were set as targets.
pub fn targets(table: &Table<Case>) -> Vec<Target> {
    let row = |section, cache, way| {
        let wanted = (section, cache, way, Form::Contents);
        table.find(|case| {
            // A single caller's time: many callers also wait for each other.
            let is_single = section != Section::Reads || case.callers == 1;
            is_single && (case.section, case.cache, case.way, case.form) == wanted
        })
    };
    let get_chunk = row(Section::Reads, Cache::Disk, Way::GetChunk);
    let cold = row(Section::Cold, Cache::Filling, Way::GetChunk);
    let one = row(Section::ThunderingHerd, Cache::Cold, Way::GetChunk);
    let opened = |cache| row(Section::Open, cache, Way::Open);
    let memory = row(Section::Memory, Cache::Filling, Way::Fill);
    let stored = |way| table.find(|case| (case.way, case.form) == (way, Form::Stored));
    let decoded = |way| row(Section::Throughput, Cache::Disk, way);
    let (many, piped) = (Way::GetChunks, Way::RespPipelined);
    let (count, times) = (Unit::Count, Unit::Times);
    let targets = [
        ("warm GetChunk beside an empty unary call", get_chunk, X_CHECK, times, AtMost(2.0)),
        ("GetChunks as stored, a second", stored(many), PER_S, count, AtLeast(150e3)),
        ("RESP pipelined as stored, a second", stored(piped), PER_S, count, AtLeast(150e3)),
        ("GetChunks decoded, a second", decoded(many), PER_S, count, AtLeast(80e3)),
        ("RESP pipelined decoded, a second", decoded(piped), PER_S, count, AtLeast(80e3)),
        ("a chain of GetChunk, warm beside direct", get_chunk, X_DIRECT, times, AtLeast(50.0)),
        ("bytes of the store beside those of a file read cold", cold, X_FILE, times, AtMost(1.3)),
        ("foreground reads of ranges read before", cold, REPEATED, count, AtMost(0.0)),
        ("GETs for one cold chunk that many ask for", one, FOREGROUND, count, AtMost(1.0)),
        ("a store opened, cold", opened(Cache::Cold), SECONDS, Unit::Seconds, AtMost(2.0)),
        ("a store opened, warm", opened(Cache::Disk), SECONDS, Unit::Seconds, AtMost(0.2)),
        ("memory of the index by chunk", memory, INDEX_BYTES, Unit::Bytes, AtMost(40.0)),
        ("memory that a fill takes", memory, GROWN_MIB, Unit::Mebibytes, GROWN_WANTED),
    ];
    let target = |(what, row, number, unit, wanted): (_, Option<&Row<Case>>, _, _, _)| {
        Target::new(what, unit, row.and_then(|row| row.sample.get(number)), wanted)
    };
    targets.map(target).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Sample;

    #[test]
    fn rows_are_compared_at_the_same_load() {
        let row = |cache, way, callers, per_s, p50_us| {
            let (section, form) = (Section::Reads, Form::Contents);
            let sample = Sample::default().with(PER_S, per_s).with(P50_US, p50_us);
            Row { case: Case { section, cache, way, form, callers, batch: 1 }, sample, round: 0 }
        };
        let mut table = Table::open(&LAYOUT, None, "").unwrap();
        table.rows = vec![
            row(Cache::Unused, Way::Direct, 1, 30.0, 33_000.0),
            row(Cache::Unused, Way::Direct, 16, 480.0, 33_000.0),
            row(Cache::Unused, Way::Check, 1, 20_000.0, 50.0),
            row(Cache::Disk, Way::GetChunk, 16, 48_000.0, 75.0),
            row(Cache::Disk, Way::GetChunk, 1, 15_000.0, 75.0),
        ];
        let of = |row: usize| ratios(&table.rows[row], &table.rows);
        let values = |row| of(row).into_iter().map(|(_, ratio)| ratio).collect::<Vec<_>>();
        assert_eq!((values(0), values(3)), (vec![], vec![Some(100.0), None]));
        let record = table.record(&table.rows[3]);
        assert!(record.starts_with("reads,warm disk,GetChunk,decoded,16,1,,48000,"), "{record}");
        for (number, ratio) in of(4) {
            table.rows[4].sample.set(number, ratio);
        }
        let shown: Vec<_> = targets(&table).iter().map(Target::shown).collect();
        assert!(shown[0].ends_with("| 1.50x | at most 2.00x | reached"), "{shown:?}");
        assert!(shown[1].ends_with("| - | at least 150000 | not measured"), "{shown:?}");
        assert!(shown[5].ends_with("| 500.00x | at least 50.00x | reached"), "{shown:?}");
    }
}
