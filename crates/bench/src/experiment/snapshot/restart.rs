//! Starts from a snapshot and from the log.

use std::path::Path;

use anyhow::Result;

use super::Snapshot;
use crate::{
    experiment::{
        memory_tables::Bench,
        recovery::{Case, LAYOUT, READY_S, RECORDS, Source, restarts},
    },
    harness::{
        Target, Unit,
        Wanted::{AtLeast, AtMost},
    },
    server::ServerKind,
};

/// Keys that are overwritten again and again.
const FEW_KEYS: u64 = 10_000;

/// Keys of the target for a whole start.
const KEYS_WANTED: u64 = 10_000_000;

pub fn measure_all(
    arguments: &Snapshot,
    bench: &Bench<'_>,
    csv: Option<&Path>,
) -> Result<Vec<Target>> {
    let mut table = bench.table_in("Starts", &LAYOUT, csv)?;
    let records = arguments.setup.keys;
    for launch in arguments.setup.launches() {
        let few_keys = records.min(FEW_KEYS);
        for (source, keys) in
            [(Source::Snapshot, records), (Source::Log, records), (Source::Log, few_keys)]
        {
            let case = Case { launch, source, keys, records };
            restarts(bench, &mut table, case, arguments.rounds.rounds)?;
        }
    }
    let ours = |wanted, is_few| {
        table.find(|Case { launch, source, keys, .. }| {
            let is_wanted = *source == wanted && (*keys < records) == is_few;
            launch.kind == ServerKind::Busload && is_wanted
        })
    };
    let rate = |what: &str, source, is_few, least| {
        let per_s = ours(source, is_few).and_then(|row| row.sample.get(RECORDS));
        Target::new(what, Unit::Count, per_s.map(|per_s| per_s / 1e6), AtLeast(least))
    };
    let whole = ours(Source::Snapshot, false).filter(|row| row.case.keys == KEYS_WANTED);
    let whole = whole.and_then(|row| row.sample.get(READY_S));
    Ok(vec![
        rate("from a snapshot, M entries/s", Source::Snapshot, false, 5.0),
        Target::new("from a snapshot of 10 M keys", Unit::Seconds, whole, AtMost(3.0)),
        rate("from the log of distinct keys, M records/s", Source::Log, false, 3.0),
        rate("from the log of overwrites, M records/s", Source::Log, true, 3.0),
    ])
}
