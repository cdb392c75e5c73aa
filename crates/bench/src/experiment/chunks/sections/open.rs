//! A store of very many table files: how long until its chunks are found.

use anyhow::{Context, Result};

use crate::{
    busload::{Server, Table},
    clock::now_ns,
    experiment::chunks::{
        cases::Section,
        contents::Filler,
        harness::{Harness, TABLE, wait_open},
        measurements::Measurements,
        store::{Design, Store},
    },
    stats::float,
    targets::Unit,
};

/// The prefix of this store.
const PREFIX: &str = "open";

/// Chunks of each of its files.
const CHUNKS: usize = 8;

/// Bytes of such a chunk.
const CHUNK_BYTES: usize = 512;

/// Name of a measurement: seconds with an empty cache.
pub const COLD: &str = "seconds with an empty cache";
/// Name of a measurement: seconds with the cache of the time before.
pub const WARM: &str = "seconds with the cache of the time before";

/// Measures it, `--rounds` times.
pub fn run(harness: &Harness<'_>, measurements: &mut Measurements) -> Result<()> {
    let files = harness.arguments.open_files;
    let design = Design {
        files,
        chunks_per_file: CHUNKS,
        chunk_bytes: vec![CHUNK_BYTES],
        filler: Filler::Half,
        chain: 1,
        seed: harness.arguments.seed ^ 0x6f70_656e,
    };
    let store = Store::make(&harness.remote.directory().join(PREFIX), &design)?;
    let tables = [harness.table(TABLE, PREFIX, "fill=whole")];
    for round in 1..=harness.arguments.rounds {
        let data = harness.cleanup.directory(&harness.starter.directory)?;
        let server = timed(harness, data, &tables, &store, measurements, ("cold", COLD))?;
        let server = timed(harness, server.stop()?, &tables, &store, measurements, ("warm", WARM))?;
        server.stop()?;
        eprintln!("open, round {round} of {}", harness.arguments.rounds);
    }
    std::fs::remove_dir_all(&store.directory).context("the store of many files")?;
    let ms = harness.arguments.distance.first_byte;
    measurements
        .print(Section::Open, &format!("Opening a store of {files} table files, {ms} ms away"));
    Ok(())
}

/// Times the start of a process until the last chunk of the last file is known.
fn timed(
    harness: &Harness<'_>,
    data: crate::cleanup::Directory,
    tables: &[Table],
    store: &Store,
    measurements: &mut Measurements,
    (state, name): (&str, &str),
) -> Result<Server> {
    harness.remote.forget();
    let started_ns = now_ns();
    let server = harness.starter.start_in(&harness.cleanup, data, tables)?;
    wait_open(&server, TABLE, store)?;
    let seconds = float(now_ns() - started_ns) / 1e9;
    let traffic = store.traffic(&harness.remote.seen());
    let mut add = |name: &str, unit, value| measurements.add(Section::Open, name, unit, value);
    add(name, Unit::Seconds, seconds)?;
    add(
        &format!("{state}: of these until PING"),
        Unit::Seconds,
        server.ready_after().as_secs_f64(),
    )?;
    add(&format!("{state}: requests to the store"), Unit::Count, float(traffic.requests()))?;
    add(&format!("{state}: reads of indexes"), Unit::Count, float(traffic.indexes.requests))?;
    Ok(server)
}
