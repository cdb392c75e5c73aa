//! A store of very many table files: how long until its chunks are found.

use anyhow::{Context, Result};

use crate::{
    busload::{Server, Table},
    clock::now_ns,
    experiment::chunks::{
        cells::Section,
        contents::Filler,
        figures::Figures,
        lab::{Lab, TABLE, wait_open},
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

/// Name of a figure: seconds with an empty cache.
pub const COLD: &str = "seconds with an empty cache";
/// Name of a figure: seconds with the cache of the time before.
pub const WARM: &str = "seconds with the cache of the time before";

/// Measures it, `--rounds` times.
///
/// # Errors
///
/// The server cannot be started, or does not open the store.
pub fn run(lab: &Lab<'_>, figures: &mut Figures) -> Result<()> {
    let files = lab.arguments.open_files;
    let design = Design {
        files,
        chunks_per_file: CHUNKS,
        chunk_bytes: vec![CHUNK_BYTES],
        filler: Filler::Half,
        chain: 1,
        seed: lab.arguments.seed ^ 0x6f70_656e,
    };
    let store = Store::make(&lab.remote.directory().join(PREFIX), &design)?;
    let tables = [lab.table(TABLE, PREFIX, "fill=whole")];
    for round in 1..=lab.arguments.rounds {
        let data = lab.cleanup.directory(&lab.starter.directory)?;
        let server = timed(lab, data, &tables, &store, figures, ("cold", COLD))?;
        let server = timed(lab, server.stop()?, &tables, &store, figures, ("warm", WARM))?;
        server.stop()?;
        eprintln!("open, round {round} of {}", lab.arguments.rounds);
    }
    std::fs::remove_dir_all(&store.directory).context("the store of many files")?;
    let ms = lab.arguments.distance.first_byte;
    figures.print(Section::Open, &format!("Opening a store of {files} table files, {ms} ms away"));
    Ok(())
}

/// From the start of the process until the last chunk of the last file is known.
fn timed(
    lab: &Lab<'_>,
    data: crate::cleanup::Directory,
    tables: &[Table],
    store: &Store,
    figures: &mut Figures,
    (state, name): (&str, &str),
) -> Result<Server> {
    lab.remote.forget();
    let started_ns = now_ns();
    let server = lab.starter.start_in(&lab.cleanup, data, tables)?;
    wait_open(&server, TABLE, store)?;
    let seconds = float(now_ns() - started_ns) / 1e9;
    let traffic = store.traffic(&lab.remote.seen());
    let mut add = |name: &str, unit, value| figures.add(Section::Open, name, unit, value);
    add(name, Unit::Seconds, seconds)?;
    add(&format!("{state}: of these until PING"), Unit::Seconds, server.ready_after().as_secs_f64())?;
    add(&format!("{state}: requests to the store"), Unit::Count, float(traffic.requests()))?;
    add(&format!("{state}: reads of indexes"), Unit::Count, float(traffic.indexes.requests))?;
    Ok(server)
}
