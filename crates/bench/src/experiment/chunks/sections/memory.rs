//! Memory that a store costs: its index, and the server while a large file comes to disk.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use anyhow::{Context, Result, bail};
use rustix::process::Pid;

use crate::{
    clock::{now_ns, pause},
    experiment::chunks::{
        cases::Section,
        contents::Filler,
        harness::{Harness, TABLE, wait_open},
        measurements::Measurements,
        plot::Growth,
        store::{Design, Store},
    },
    limits::CHUNK_POLL,
    machine::resident_bytes,
    stats::{float, mebibytes},
    targets::Unit,
};

/// The prefix of this store.
const PREFIX: &str = "memory";

/// Bytes of its chunks, which do not compress: a large file is made soon.
const CHUNK_BYTES: u64 = 64 * 1_024;

/// Name of a measurement.
pub const INDEX_BYTES: &str = "index and lookup by chunk";
/// Name of a measurement: what the server grew by.
pub const GROWN: &str = "resident size while it fills beyond that before";

/// What a fill may take by default: its parts in flight (64 MiB), what has landed and is joinable
/// (16 MiB), and buffers.
pub const GROWN_WANTED_MIB: f64 = 192.0;

/// Measures the index once and the fill once: it is long.
pub fn run(harness: &Harness<'_>, measurements: &mut Measurements) -> Result<Growth> {
    index(harness, measurements)?;
    let growth = fill(harness, measurements)?;
    measurements.print(Section::Memory, "Memory");
    Ok(growth)
}

fn index(harness: &Harness<'_>, measurements: &mut Measurements) -> Result<()> {
    let server = harness.cold_server("fill=touched")?;
    let metrics = server.metrics()?;
    server.stop()?;
    let bytes = metrics.of_table("busload_chunks_index_bytes", TABLE);
    let chunks = metrics.of_table("busload_chunks_stored", TABLE);
    let (Some(bytes), Some(chunks)) = (bytes, chunks.filter(|chunks| 0.0 < *chunks)) else {
        bail!("the server shows no memory of the index in its metrics");
    };
    measurements.add(Section::Memory, INDEX_BYTES, Unit::Bytes, bytes / chunks)
}

fn fill(harness: &Harness<'_>, measurements: &mut Measurements) -> Result<Growth> {
    let chunks = usize::try_from(harness.arguments.memory_bytes / CHUNK_BYTES)
        .context("a count of chunks")?;
    let design = Design {
        files: 1,
        chunks_per_file: chunks.max(2),
        chunk_bytes: vec![usize::try_from(CHUNK_BYTES).context("a chunk's size")?],
        filler: Filler::Random,
        chain: 1,
        seed: harness.arguments.seed ^ 0x6d65_6d6f,
    };
    eprintln!(
        "memory: making a file of {}",
        crate::bytes::bytes_text(harness.arguments.memory_bytes)
    );
    let store = Store::make(&harness.remote.directory().join(PREFIX), &design)?;
    let bytes = store.bytes();
    let options = format!(
        "fill=whole&fill_whole_max={}&disk={}",
        bytes + (1 << 20),
        bytes + bytes / 8 + (1 << 30)
    );
    let server =
        harness.starter.start(&harness.cleanup, &[harness.table(TABLE, PREFIX, &options)])?;
    wait_open(&server, TABLE, &store)?;
    let before = resident_bytes(server.pid()).context("the server's memory")?;
    let sampler = Sampler::start(server.pid())?;
    let started_ns = now_ns();
    harness.fill(&server, TABLE, &store)?;
    let seconds = float(now_ns() - started_ns) / 1e9;
    let growth = sampler.finish()?;
    let after = resident_bytes(server.pid()).context("the server's memory")?;
    server.stop()?;
    std::fs::remove_dir_all(&store.directory).context("the store of one large file")?;
    let most = growth.iter().map(|(_, bytes)| *bytes).max().unwrap_or(before).max(before);
    let mebibytes = |bytes: u64| mebibytes(float(bytes));
    let mut add = |name: &str, unit, value| measurements.add(Section::Memory, name, unit, value);
    add("bytes of the file that fills", Unit::Mebibytes, mebibytes(bytes))?;
    add("resident size before", Unit::Mebibytes, mebibytes(before))?;
    add("resident size while it fills", Unit::Mebibytes, mebibytes(most))?;
    add(GROWN, Unit::Mebibytes, mebibytes(most - before))?;
    add("resident size after", Unit::Mebibytes, mebibytes(after))?;
    add("seconds until it was on disk", Unit::Seconds, seconds)?;
    add("MiB per second", Unit::Count, mebibytes(bytes) / seconds.max(1e-9))?;
    Ok(growth)
}

/// Looks at a process's resident size again and again, on a thread of its own.
struct Sampler {
    stop: Arc<AtomicBool>,
    points: Arc<Mutex<Vec<(f64, u64)>>>,
    thread: std::thread::JoinHandle<()>,
}

impl Sampler {
    fn start(pid: Pid) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let points = Arc::new(Mutex::new(Vec::new()));
        let (stopped, seen) = (Arc::clone(&stop), Arc::clone(&points));
        let started_ns = now_ns();
        let thread = std::thread::Builder::new().name("resident".to_owned()).spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if let Some(bytes) = resident_bytes(pid) {
                    let seconds = float(now_ns() - started_ns) / 1e9;
                    seen.lock().unwrap_or_else(PoisonError::into_inner).push((seconds, bytes));
                }
                pause(CHUNK_POLL);
            }
        });
        Ok(Self { stop, points, thread: thread.context("a thread")? })
    }

    fn finish(self) -> Result<Growth> {
        self.stop.store(true, Ordering::Relaxed);
        if self.thread.join().is_err() {
            bail!("the thread that looks at memory panicked");
        }
        let points =
            std::mem::take(&mut *self.points.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(points)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sampler_sees_this_process() {
        let sampler = Sampler::start(rustix::process::getpid()).unwrap();
        while sampler.points.lock().unwrap().len() < 3 {
            std::thread::yield_now();
        }
        let growth = sampler.finish().unwrap();
        assert!(growth.iter().all(|(_, bytes)| 100_000 < *bytes));
        assert!(growth.windows(2).all(|two| two[0].0 <= two[1].0));
    }
}
