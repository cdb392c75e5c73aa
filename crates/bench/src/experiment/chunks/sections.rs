//! Sections with numbers of their own: cold reads of a whole file, a thundering herd, opening a
//! store of many files, memory.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::Pid;

use super::{
    arguments::Section,
    cases::{Cache, Case, GETS, Way, case},
    chain::{ChainStore, Design},
    load::Picks,
    runner::{Runner, TABLE, last, list},
};
use crate::{
    busload::Server,
    bytes::bytes_text,
    cleanup::Directory,
    clock::{now_ns, pause},
    harness::{
        Axis, Chart, Number, Point, Sample, Table, TableLayout, draw, label,
        sample::{P50_US, P99_US, PER_S, SECONDS},
        shown,
    },
    limits::CHUNK_POLL,
    machine::resident_bytes,
    random::Random,
    stats::{float, mebibytes, ratio},
};

/// Callers that read a cold file.
const COLD_CALLERS: usize = 16;

/// Bytes of the chunks of a large file, which do not compress: it is made soon.
const LARGE_CHUNK_BYTES: usize = 64 * 1_024;

/// What a fill may take by default: its parts in flight (64 MiB), what has landed and is joinable
/// (16 MiB), and buffers.
pub const GROWN_WANTED_MIB: f64 = 192.0;

/// Whole extents that were read from the store.
const FILLS: Number = Number::count("fills", "fills");
/// Foreground ranges asked for again.
pub const REPEATED: Number = Number::count("repeated", "repeated");
/// Bytes of foreground reads, and of fills.
const FOREGROUND_MIB: Number = Number::new("foreground_mib", "MiB");
const FILLS_MIB: Number = Number::new("fills_mib", "fills MiB");
/// Bytes from the store by those of the file.
pub const X_FILE: Number = Number::new("x_file", "x file");
/// Seconds of an opening until the server answered `PING`.
const PING_S: Number = Number::new("ping_s", "PING s");
const REQUESTS: Number = Number::count("requests", "requests");
const INDEX_READS: Number = Number::count("index_reads", "of indexes");
/// Bytes of the index and lookup for each chunk.
pub const INDEX_BYTES: Number = Number::new("index_bytes", "index B/chunk");
const FILE_MIB: Number = Number::new("file_mib", "file MiB");
/// Resident size before a fill, most while it goes on, and after.
const BEFORE_MIB: Number = Number::new("before_mib", "before MiB");
const MOST_MIB: Number = Number::new("most_mib", "most MiB");
const AFTER_MIB: Number = Number::new("after_mib", "after MiB");
/// Most resident size beyond that before.
pub const GROWN: Number = Number::new("grown_mib", "grown MiB");
const MIB_PER_S: Number = Number::new("mib_per_s", "MiB/s");

const COLD: TableLayout<Case> = TableLayout {
    columns: &[
        label("callers", "callers", 7, |case| case.callers.to_string()),
        shown(SECONDS),
        shown(PER_S),
        shown(P50_US),
        shown(GETS),
        shown(REPEATED),
        shown(FOREGROUND_MIB),
        shown(FILLS),
        shown(FILLS_MIB),
        shown(X_FILE),
    ],
    main: SECONDS,
    ratios: |_, _| Vec::new(),
};

const HERD: TableLayout<Case> = TableLayout {
    columns: &[
        label("callers", "callers", 7, |case| case.callers.to_string()),
        shown(GETS),
        shown(FILLS),
        shown(P50_US),
        shown(P99_US),
    ],
    main: P50_US,
    ratios: |_, _| Vec::new(),
};

/// Cache of a server that opens a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenCase {
    Empty,
    OfTheTimeBefore,
}

const OPEN: TableLayout<OpenCase> = TableLayout {
    columns: &[
        label("cache", "cache", 5, |case| match case {
            OpenCase::Empty => "cold".to_owned(),
            OpenCase::OfTheTimeBefore => "warm".to_owned(),
        }),
        shown(SECONDS),
        shown(PING_S),
        shown(REQUESTS),
        shown(INDEX_READS),
    ],
    main: SECONDS,
    ratios: |_, _| Vec::new(),
};

const MEMORY: TableLayout<()> = TableLayout {
    columns: &[
        shown(INDEX_BYTES),
        shown(FILE_MIB),
        shown(BEFORE_MIB),
        shown(MOST_MIB),
        shown(GROWN),
        shown(AFTER_MIB),
        shown(SECONDS),
        shown(MIB_PER_S),
    ],
    main: GROWN,
    ratios: |_, _| Vec::new(),
};

/// Measures the sections; each gives its medians.
pub struct Sections<'a> {
    pub runner: &'a Runner<'a>,
    pub about: &'a str,
}

impl Sections<'_> {
    /// Measures cases, `rounds` times, with a table and a file of their own; the medians.
    fn group<C: Copy>(
        &self,
        layout: &'static TableLayout<C>,
        (file, title): (&str, &str),
        cases: &[C],
        rounds: usize,
        measure: impl FnMut(&C, usize) -> Result<Sample>,
    ) -> Result<Vec<Sample>> {
        let path = self.runner.arguments.store.out.join(file);
        let mut table = Table::open(layout, Some(&path), self.about)?;
        let rows = table.group(title, cases, rounds, measure)?;
        Ok(rows.iter().map(|row| row.sample.clone()).collect())
    }

    /// Lets callers read every chunk of a file once, from an empty cache.
    pub fn cold(&self) -> Result<Sample> {
        let title = "Random reads of a whole file from an empty cache, 16 callers";
        let cases = [case(Section::Cold, Cache::Cold, Way::GetChunk, COLD_CALLERS, 1)];
        let rounds = self.runner.arguments.rounds;
        let measure = |case: &Case, round| {
            let chain = &self.runner.chain;
            let mut numbers: Vec<u32> = chain.of_file(0).collect();
            Random::new(rounds.seed_of(round)).shuffle(&mut numbers);
            // Reads of indexes, which are not counted, are bytes of all files.
            let server = self.runner.cold_server("fill=whole")?;
            let sample = self.read(case, &server, numbers)?;
            self.runner.wait_local(&server, TABLE, chain, chain.of_file(0))?;
            let traffic = self.runner.traffic();
            server.stop()?;
            println!("cold, round {round}: {}", traffic.text());
            let bytes = traffic.foreground.bytes + traffic.fills.bytes;
            Ok(sample
                .with(GETS, float(traffic.foreground.requests))
                .with(REPEATED, float(traffic.repeated))
                .with(FOREGROUND_MIB, mebibytes(float(traffic.foreground.bytes)))
                .with(FILLS, float(traffic.fills.requests))
                .with(FILLS_MIB, mebibytes(float(traffic.fills.bytes)))
                .with(X_FILE, ratio(float(bytes), float(chain.store.files[0].bytes))))
        };
        self.group(&COLD, ("cold.csv", title), &cases, rounds.rounds, measure).map(first)
    }

    /// Lets many callers ask for one cold chunk at once.
    pub fn thundering_herd(&self) -> Result<Sample> {
        let callers = self.runner.arguments.thundering_herd;
        let cases = [case(Section::ThunderingHerd, Cache::Cold, Way::GetChunk, callers, 1)];
        let apart = &self.runner.chain.apart;
        let number = apart[apart.len() / 2];
        let measure = |case: &Case, round| {
            let server = self.runner.cold_server("fill=touched")?;
            let sample = self.read(case, &server, vec![number; callers])?;
            let traffic = self.runner.traffic();
            server.stop()?;
            println!("thundering-herd, round {round}: {}", traffic.text());
            let sample = sample.with(GETS, float(traffic.foreground.requests));
            Ok(sample.with(FILLS, float(traffic.fills.requests)))
        };
        let title = format!("{callers} callers, one cold chunk");
        let file = ("thundering-herd.csv", title.as_str());
        self.group(&HERD, file, &cases, self.runner.arguments.rounds.rounds, measure).map(first)
    }

    /// Reads chunks of which none may fail.
    fn read(&self, case: &Case, server: &Server, numbers: Vec<u32>) -> Result<Sample> {
        let plan = list(Picks::List(Arc::from(numbers)), server);
        let sample = self.runner.ask(case, server, TABLE, &plan)?;
        match sample.failed.example() {
            None => Ok(sample),
            Some(example) => bail!("a cold chunk could not be had: {example}"),
        }
    }

    /// Opens a store of very many table files, with an empty cache and with that of the time
    /// before: how long from the start of a process until the last chunk of the last file is known.
    pub fn open(&self) -> Result<(Sample, Sample)> {
        let arguments = self.runner.arguments;
        let design = Design {
            files: arguments.open_files,
            chunks_per_file: 8,
            chunk_bytes: vec![512],
            is_random: false,
            chain: 1,
            seed: arguments.rounds.seed ^ 0x6f70_656e,
        };
        let (bench, directory) = (&self.runner.bench, self.runner.bench.directory("open"));
        let chain = ChainStore::make(&directory, &design)?;
        let tables = [self.runner.table(TABLE, "open", "fill=whole")];
        let mut cache: Option<Directory> = None;
        let measure = |case: &OpenCase, _| {
            let data = match (case, cache.take()) {
                (OpenCase::OfTheTimeBefore, Some(data)) => data,
                _ => bench.cleanup.directory(&bench.starter.directory)?,
            };
            bench.remote.forget();
            let started_ns = now_ns();
            let server = bench.serve_in(data, &tables, last(&chain)?)?;
            let seconds = float(now_ns() - started_ns) / 1e9;
            let traffic = crate::store::Traffic::of(&bench.remote.seen(), &chain.store.files);
            let ready_after = server.ready_after();
            cache = Some(server.stop()?);
            Ok(Sample::default()
                .with(SECONDS, seconds)
                .with(PING_S, ready_after.as_secs_f64())
                .with(REQUESTS, float(traffic.all().requests))
                .with(INDEX_READS, float(traffic.indexes.requests)))
        };
        let (files, ms) = (arguments.open_files, arguments.store.distance.first_byte);
        let title = format!("Opening a store of {files} table files, {ms} ms away");
        let cases = [OpenCase::Empty, OpenCase::OfTheTimeBefore];
        let file = ("open.csv", title.as_str());
        let samples = self.group(&OPEN, file, &cases, arguments.rounds.rounds, measure)?;
        fs::remove_dir_all(&directory).context("the store of many files")?;
        let [cold, warm] = <[Sample; 2]>::try_from(samples).map_err(|_| anyhow!("two cases"))?;
        Ok((cold, warm))
    }

    /// Measures the memory of an index, and that of the server while a large file comes to disk;
    /// once, as it is long.
    pub fn memory(&self) -> Result<Sample> {
        let mut growth = Vec::new();
        let measure = |(): &(), _| {
            let (sample, points) = self.filled()?;
            growth = points;
            Ok(sample.with(INDEX_BYTES, self.index_bytes()?))
        };
        let title = "Memory: the index, and the resident size while it fills";
        let sample = self.group(&MEMORY, ("memory.csv", title), &[()], 1, measure).map(first)?;
        let title = "Resident size of the server while a file fills";
        let points = growth.into_iter().map(|point| ("resident".to_owned(), point));
        let chart = Chart::new(title, Axis::linear("seconds"), Axis::linear("MiB")).joined(points);
        draw(&self.runner.arguments.store.out, "chunks-memory.svg", &[chart])?;
        Ok(sample)
    }

    fn index_bytes(&self) -> Result<f64> {
        let server = self.runner.cold_server("fill=touched")?;
        let metrics = server.metrics()?;
        server.stop()?;
        let bytes = metrics.of_table("busload_chunks_index_bytes", TABLE);
        let chunks = metrics.of_table("busload_chunks_stored", TABLE);
        let by_chunk = bytes.zip(chunks).and_then(|(bytes, chunks)| ratio(bytes, chunks));
        by_chunk.context("the server shows no memory of the index in its metrics")
    }

    /// Fills a large file; the sample, and resident MiB by second.
    fn filled(&self) -> Result<(Sample, Vec<Point>)> {
        let arguments = self.runner.arguments;
        let bytes = usize::try_from(arguments.memory_bytes).context("bytes of a file")?;
        let design = Design {
            files: 1,
            chunks_per_file: (bytes / LARGE_CHUNK_BYTES).max(2),
            chunk_bytes: vec![LARGE_CHUNK_BYTES],
            is_random: true,
            chain: 1,
            seed: arguments.rounds.seed ^ 0x6d65_6d6f,
        };
        eprintln!("memory: making a file of {}", bytes_text(arguments.memory_bytes));
        let (bench, directory) = (&self.runner.bench, self.runner.bench.directory("memory"));
        let chain = ChainStore::make(&directory, &design)?;
        let bytes = chain.store.bytes();
        let (most, disk) = (bytes + (1 << 20), bytes + bytes / 8 + (1 << 30));
        let options = format!("fill=whole&fill_whole_max={most}&disk={disk}");
        let tables = [self.runner.table(TABLE, "memory", &options)];
        let server = bench.serve(&tables, last(&chain)?)?;
        let resident =
            || resident_bytes(server.pid()).map(float).map(mebibytes).context("its memory");
        let before = resident()?;
        let started_ns = now_ns();
        let (filled, growth) = watching(server.pid(), || self.runner.fill(&server, TABLE, &chain))?;
        filled?;
        let seconds = float(now_ns() - started_ns) / 1e9;
        let after = resident()?;
        server.stop()?;
        fs::remove_dir_all(&directory).context("the store of one large file")?;
        let most = growth.iter().map(|point| point.y).fold(before, f64::max);
        let sample = Sample::default()
            .with(FILE_MIB, mebibytes(float(bytes)))
            .with(BEFORE_MIB, before)
            .with(MOST_MIB, most)
            .with(GROWN, most - before)
            .with(AFTER_MIB, after)
            .with(SECONDS, seconds)
            .with(MIB_PER_S, ratio(mebibytes(float(bytes)), seconds));
        Ok((sample, growth))
    }
}

fn first(samples: Vec<Sample>) -> Sample {
    samples.into_iter().next().unwrap_or_default()
}

/// Looks at a process's resident size again and again while `action` runs: MiB by second.
fn watching<T>(pid: Pid, action: impl FnOnce() -> T) -> Result<(T, Vec<Point>)> {
    let stop = AtomicBool::new(false);
    let started_ns = now_ns();
    let watch = || {
        let mut points = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            if let Some(bytes) = resident_bytes(pid) {
                let seconds = float(now_ns() - started_ns) / 1e9;
                points.push(Point::new(seconds, mebibytes(float(bytes))));
            }
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
