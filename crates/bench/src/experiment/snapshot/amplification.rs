//! Overwrites at a fixed rate: bytes written for them, space that they take, and a restart.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Result, anyhow};

use super::Snapshot;
use crate::{
    cli::name_of,
    clock::pause,
    experiment::memory_tables::Bench,
    harness::{
        Number, Sample, TableLayout, Target, Unit,
        Wanted::AtMost,
        hidden, label,
        sample::{ANSWERED, CPU_LOAD, CPU_SERVER, LATE_P99_US, LOST_SHARE, MAX_US, P99_US, PER_S},
        shown,
    },
    limits::DISK_LOOK,
    machine::{disk_bytes, disk_written_bytes, settle, written_bytes},
    measure::{Pace, Plan, SLOW_PER_S, measure},
    requests::{KEY_BYTES, KeySpace, Operation, Pool, Pools},
    server::{Info, Launch, Server, ServerKind},
    stats::{float, float_of, mebibytes, ratio},
};

/// Redis rewrites its append-only file when it has doubled, as it does by itself.
const REWRITES: &[&str] = &["--auto-aof-rewrite-percentage", "100"];

/// Space that the log may take beside three times the live data.
const DISK_BESIDE: f64 = 128.0;

const MIB: f64 = 1.0 / 1_048_576.0;
const DISK_BY_LOG: Number = Number::new("disk_by_log", "disk/log");
const DISK_BY_DATA: Number = Number::new("disk_by_data", "disk/data");
const CALLS_BY_LOG: Number = Number::new("calls_by_log", "calls/log");
const LOG_BYTES: Number = Number::scaled("log_bytes", "log MiB", MIB);
const LIVE_BYTES: Number = Number::scaled("live_bytes", "live MiB", MIB);
const DISK_MOST: Number = Number::scaled("disk_bytes_most", "most MiB", MIB);
const DISK_END: Number = Number::scaled("disk_bytes_end", "end MiB", MIB);
const SNAPSHOTS: Number = Number::count("snapshots", "snaps");
const READY_S: Number = Number::new("ready_s", "ready s");

const LAYOUT: TableLayout<Launch> = TableLayout {
    columns: &[
        label("server", "server", 8, |launch| name_of(&launch.kind)),
        label("durability", "durable", 6, |launch| name_of(&launch.durability)),
        label("net_threads", "", 3, |launch| launch.net_threads.to_string()),
        shown(PER_S),
        shown(P99_US),
        shown(MAX_US),
        shown(SLOW_PER_S),
        shown(LOG_BYTES),
        shown(CALLS_BY_LOG),
        shown(DISK_BY_LOG),
        shown(DISK_BY_DATA),
        shown(LIVE_BYTES),
        shown(DISK_MOST),
        shown(DISK_END),
        shown(SNAPSHOTS),
        shown(READY_S),
        shown(CPU_LOAD),
        shown(CPU_SERVER),
        hidden(LOST_SHARE),
        hidden(LATE_P99_US),
    ],
    main: PER_S,
    ratios: |_, _| Vec::new(),
};

pub fn measure_all(
    arguments: &Snapshot,
    bench: &Bench<'_>,
    csv: Option<&Path>,
) -> Result<Vec<Target>> {
    let title = format!(
        "Overwrites of {} keys with {}-byte values, {} minutes",
        arguments.write_keys, arguments.write_value_bytes, arguments.minutes
    );
    let mut table = bench.table_in(&title, &LAYOUT, csv)?;
    let Snapshot { write_keys: keys, write_value_bytes: value_bytes, rounds, .. } = *arguments;
    let space = KeySpace { keys, value_bytes, seed: rounds.seed };
    let pool = Pool::build(Operation::Set, space, 1);
    for launch in arguments.setup.launches() {
        let rewrites = if launch.kind == ServerKind::Busload { &[] } else { REWRITES };
        let launch = Launch { arguments: rewrites, ..launch };
        table.group("", &[launch], 1, |launch, _| {
            let server = bench.start(launch)?;
            bench.write(&server, space, space.keys)?;
            let sample = overwrite(arguments, &server, space, &pool)?;
            let (server, _) = bench.restart(server, launch, space.keys)?;
            Ok(sample.with(READY_S, server.ready_after().as_secs_f64()))
        })?;
    }
    let ours = table.find(|launch| launch.kind == ServerKind::Busload);
    let value = |number| ours.and_then(|row| row.sample.get(number));
    let live = mebibytes(value(LIVE_BYTES).unwrap_or_default());
    let most = AtMost(3.0 * live + DISK_BESIDE);
    let target = |what: &str, value| Target::new(what, Unit::Times, value, AtMost(2.5));
    Ok(vec![
        target("bytes handed to write calls by bytes of the log", value(CALLS_BY_LOG)),
        target("bytes written by the disk by bytes of the log", value(DISK_BY_LOG)),
        Target::new("space on disk", Unit::Mebibytes, value(DISK_MOST).map(mebibytes), most),
        Target::new("start afterwards", Unit::Seconds, value(READY_S), AtMost(2.0)),
    ])
}

fn overwrite(
    arguments: &Snapshot,
    server: &Server,
    space: KeySpace,
    pool: &Pool,
) -> Result<Sample> {
    settle(server.directory())?;
    let stop = AtomicBool::new(false);
    let plan = Plan {
        address: server.resp(),
        pid: Some(server.pid()),
        clients: arguments.clients,
        pace: Pace::Rate(arguments.write_rate),
        pools: Pools { all: pool, first: None },
        start: 0,
        // All that is written counts.
        warm_up: Duration::ZERO,
        window: Duration::from_secs_f64(arguments.minutes * 60.0),
        stop: None,
    };
    let written = || [written_bytes(server.pid()), disk_written_bytes(server.directory())];
    let (info_before, before) = (Info::persistence(server.resp())?, written());
    let (sample, disk_most) = thread::scope(|scope| {
        let watching = scope.spawn(|| highest_disk(server.directory(), &stop));
        let sample = measure(&plan);
        stop.store(true, Ordering::Relaxed);
        let most = watching.join().map_err(|_| anyhow!("the watching thread panicked"))?;
        anyhow::Ok((sample?, most))
    })?;
    settle(server.directory())?;
    let (info, after) = (Info::persistence(server.resp())?, written());
    let grown = |name| float(info.number(name).saturating_sub(info_before.number(name)));
    let entry_bytes = float_of(KEY_BYTES + space.value_bytes);
    let requests = sample.or_zero(ANSWERED);
    // Redis appends the requests as they came.
    let log_bytes = match info.get("log_written_bytes") {
        Some(_) => grown("log_written_bytes"),
        None => requests * float_of(pool.slice(0, 1).len()),
    };
    let written = |index: usize| Some(float(after[index]?.saturating_sub(before[index]?)));
    let by = |index, bytes| written(index).and_then(|written| ratio(written, bytes));
    Ok(sample
        .with(LOG_BYTES, log_bytes)
        .with(CALLS_BY_LOG, by(0, log_bytes))
        .with(DISK_BY_LOG, by(1, log_bytes))
        .with(DISK_BY_DATA, by(1, requests * entry_bytes))
        .with(LIVE_BYTES, float(space.keys) * entry_bytes)
        .with(DISK_MOST, float(disk_most))
        .with(DISK_END, float(disk_bytes(server.directory())))
        .with(SNAPSHOTS, grown("snapshots_made") + grown("aof_rewrites")))
}

/// Looks at the space that files take until the load stops.
fn highest_disk(directory: &Path, stop: &AtomicBool) -> u64 {
    let mut highest = 0;
    while !stop.load(Ordering::Relaxed) {
        highest = highest.max(disk_bytes(directory));
        pause(DISK_LOOK);
    }
    highest.max(disk_bytes(directory))
}
