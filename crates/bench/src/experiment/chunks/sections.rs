//! Rows with a store, a server or a question of their own: cold reads of a whole file, a thundering
//! herd, opening a store of many files, memory.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context, Result, anyhow};
use rustix::process::Pid;

use super::{
    cases::{
        AFTER_MIB, BEFORE_MIB, Cache, Case, GROWN_MIB, INDEX_BYTES, INDEX_READS, PING_S, X_FILE,
    },
    chain::{ChainStore, Design},
    runner::{Runner, TABLE, once, with_traffic},
};
use crate::{
    bytes::bytes_text,
    clock::{now_ns, pause},
    harness::{
        Point, Sample,
        sample::{PER_S, SECONDS},
    },
    limits::CHUNK_POLL,
    machine::resident_bytes,
    random::Random,
    stats::{float, float_of, mebibytes, ratio},
    store::{Filler, Traffic},
};

/// Bytes of the chunks of a large file, which do not compress: it is made soon.
const LARGE_CHUNK_BYTES: usize = 64 * 1_024;

impl Runner<'_> {
    /// Lets callers read every chunk of a file once, from an empty cache.
    pub fn cold_file(&self, case: &Case, seed: u64) -> Result<Sample> {
        let mut numbers: Vec<u32> = self.chain.of_file(0).collect();
        Random::new(seed).shuffle(&mut numbers);
        // Reads of indexes, which are not counted, are bytes of all files.
        let server = self.cold_server("fill=whole")?;
        let sample = self.ask(case, &server, TABLE, &once(Arc::from(numbers), &server))?;
        self.wait_local(&server, TABLE, &self.chain, self.chain.of_file(0))?;
        let traffic = self.traffic();
        server.stop()?;
        let bytes = traffic.foreground.bytes + traffic.fills.bytes;
        let x_file = ratio(float(bytes), float(self.chain.store.files[0].bytes));
        let mut sample = with_traffic(sample, &traffic).with(X_FILE, x_file);
        sample.remark = traffic.text();
        Ok(sample)
    }

    /// Lets many callers ask for one cold chunk at once.
    pub fn thundering_herd(&self, case: &Case) -> Result<Sample> {
        let number = self.chain.apart[self.chain.apart.len() / 2];
        let server = self.cold_server("fill=touched")?;
        let numbers = vec![number; case.callers].into();
        let sample = self.ask(case, &server, TABLE, &once(numbers, &server))?;
        let traffic = self.traffic();
        server.stop()?;
        let mut sample = with_traffic(sample, &traffic);
        sample.remark = traffic.text();
        Ok(sample)
    }

    /// Opens a store of very many table files, with an empty cache or that of the time before: how
    /// long from the start of a process until the last chunk of the last file is known.
    pub fn open(&mut self, case: &Case) -> Result<Sample> {
        let design = Design {
            files: self.arguments.open_files,
            chunks_per_file: 8,
            chunk_bytes: vec![512],
            filler: Filler::Half,
            chain: 1,
            seed: self.arguments.rounds.seed ^ 0x6f70_656e,
        };
        let (chain, cache) = match self.opened.take() {
            Some(opened) => opened,
            None => (ChainStore::make(&self.bench.directory("open"), &design)?, None),
        };
        let data = match cache.filter(|_| case.cache != Cache::Cold) {
            Some(data) => data,
            None => self.bench.cleanup.directory(&self.bench.starter.directory)?,
        };
        self.bench.remote.forget();
        let tables = [self.table(TABLE, "open", "fill=whole")];
        let started_ns = now_ns();
        let server = self.bench.serve_in(data, &tables, chain.last())?;
        let seconds = float(now_ns() - started_ns) / 1e9;
        let traffic = Traffic::of(&self.bench.remote.seen(), &chain.store.files);
        let ping_s = server.ready_after().as_secs_f64();
        let index_reads = traffic.indexes.requests;
        let mut sample = with_traffic(Sample::default(), &traffic)
            .with(SECONDS, seconds)
            .with(PER_S, ratio(float_of(chain.store.chunks.len()), seconds))
            .with(INDEX_READS, float(index_reads))
            .with(PING_S, ping_s);
        sample.remark = format!("PING after {ping_s:.3} s, {index_reads} reads of indexes");
        self.opened = Some((chain, Some(server.stop()?)));
        Ok(sample)
    }

    /// Measures the memory of an index, and that of the server while a large file comes to disk.
    pub fn memory(&mut self) -> Result<Sample> {
        let server = self.cold_server("fill=touched")?;
        let metrics = server.metrics()?;
        server.stop()?;
        let bytes = metrics.of_table("busload_chunks_index_bytes", TABLE);
        let chunks = metrics.of_table("busload_chunks_stored", TABLE);
        let index_bytes = bytes.zip(chunks).and_then(|(bytes, chunks)| ratio(bytes, chunks));
        let index_bytes =
            index_bytes.context("the server shows no memory of the index in its metrics")?;
        let memory_bytes = self.arguments.memory_bytes;
        let bytes = usize::try_from(memory_bytes).context("bytes of a file")?;
        let design = Design {
            files: 1,
            chunks_per_file: (bytes / LARGE_CHUNK_BYTES).max(2),
            chunk_bytes: vec![LARGE_CHUNK_BYTES],
            filler: Filler::Random,
            chain: 1,
            seed: self.arguments.rounds.seed ^ 0x6d65_6d6f,
        };
        eprintln!("memory: making a file of {}", bytes_text(memory_bytes));
        let directory = self.bench.directory("memory");
        let chain = ChainStore::make(&directory, &design)?;
        let bytes = chain.store.bytes();
        let (most, disk) = (bytes + (1 << 20), bytes + bytes / 8 + (1 << 30));
        let options = format!("fill=whole&fill_whole_max={most}&disk={disk}");
        let tables = [self.table(TABLE, "memory", &options)];
        let server = self.bench.serve(&tables, chain.last())?;
        let before = resident_mib(server.pid()).context("the server's memory")?;
        let started_ns = now_ns();
        let (filled, growth) = watching(server.pid(), || self.fill(&server, TABLE, &chain))?;
        filled?;
        let seconds = float(now_ns() - started_ns) / 1e9;
        let after = resident_mib(server.pid()).context("the server's memory")?;
        server.stop()?;
        fs::remove_dir_all(&directory).context("the store of one large file")?;
        let grown = growth.iter().map(|point| point.y).fold(before, f64::max) - before;
        self.growth = growth;
        let mut sample = Sample::default()
            .with(SECONDS, seconds)
            .with(PER_S, ratio(float_of(chain.store.chunks.len()), seconds))
            .with(INDEX_BYTES, index_bytes)
            .with(BEFORE_MIB, before)
            .with(GROWN_MIB, grown)
            .with(AFTER_MIB, after);
        sample.remark = format!(
            "{} of 64 KiB chunks; resident {before:.0} MiB, {grown:.0} more meanwhile, {after:.0} \
             after; index {index_bytes:.1} B a chunk",
            bytes_text(bytes)
        );
        Ok(sample)
    }
}

fn resident_mib(pid: Pid) -> Option<f64> {
    resident_bytes(pid).map(float).map(mebibytes)
}

/// Looks at a process's resident size again and again while `action` runs: MiB by second.
fn watching<T>(pid: Pid, action: impl FnOnce() -> T) -> Result<(T, Vec<Point>)> {
    let stop = AtomicBool::new(false);
    let started_ns = now_ns();
    let watch = || {
        let mut points = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let seconds = float(now_ns() - started_ns) / 1e9;
            points.extend(resident_mib(pid).map(|mebibytes| Point::new(seconds, mebibytes)));
            pause(CHUNK_POLL);
        }
        points
    };
    std::thread::scope(|scope| {
        let watcher = scope.spawn(watch);
        let done = action();
        stop.store(true, Ordering::Relaxed);
        let points = watcher.join();
        Ok((done, points.map_err(|_| anyhow!("the thread that looks at memory panicked"))?))
    })
}
