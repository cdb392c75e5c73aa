//! Measures one row: sets up where the chunks are, lets the load run, reads the clocks and the
//! proxy's log.

use std::{fs, iter, time::Duration};

use anyhow::{Context, Result, bail};
use busload_bucket::Bucket;
use busload_proto::v1::Form;
use rustix::process::Pid;

use super::{
    Chunks,
    cases::{
        BATCH, Cache, Case, FOREGROUND, GETS, GOT_BYTES, GROWN_MIB, INDEX_BYTES, INDEX_READS,
        REPEATED, Section, Way, X_FILE,
    },
    clients::{Caller, Load},
    numbered::{Design, apart, last},
};
use crate::{
    cleanup::Directory,
    clock::now_ns,
    experiment::store_bench::{PREFIX, StoreBench, wait_local},
    harness::{
        Answering, Sample,
        sample::{PER_S, SECONDS},
    },
    limits::CHUNK_LIST,
    random::Random,
    remote::Distance,
    server::{Durability, Launch, Server, ServerKind, Table},
    stats::{float, float_of, ratio},
    store::{Filler, Store, Traffic, index},
};

/// Names of tables: the usual one, and beside it on the warm server those in memory and as stored.
const TABLE: &str = "db";
const RAM: &str = "ram";
const STORED: &str = "stored";

/// Bytes per second of one response while files fill.
const FILLING_BANDWIDTH: u64 = 2 << 20;

/// Table files of the section open.
const OPEN_FILES: usize = 1_000;

/// Bytes of the chunks of a large file, which do not compress: it is made soon.
const LARGE_CHUNK_BYTES: u64 = 64 * 1_024;

/// Everything that the measurements of rows share.
pub struct Runner<'a> {
    arguments: &'a Chunks,
    store: Store,
    /// Numbers of chunks in different extents, to be read from an empty cache.
    apart: Vec<u32>,
    /// Server that rows with everything on local disk share.
    warm: Option<Server>,
    /// Store of many files, and the cache that a server has left of it.
    opened: Option<(Store, Option<Directory>)>,
    bench: StoreBench<'a>,
}

impl<'a> Runner<'a> {
    pub fn new(arguments: &'a Chunks, bench: StoreBench<'a>, store: Store) -> Self {
        let apart = apart(&store, arguments.rounds.seed);
        Self { arguments, store, apart, warm: None, opened: None, bench }
    }

    /// Measures a row once.
    pub fn measure(&mut self, case: &Case, round: usize) -> Result<Sample> {
        let seed = self.arguments.rounds.seed_of(round);
        if !matches!(case.section, Section::Reads | Section::Throughput) {
            self.stop()?;
        }
        match (case.section, case.cache, case.way) {
            (Section::Open, ..) => self.open(case.cache),
            (Section::Memory, ..) => self.memory(),
            (Section::Reads, Cache::Filling, _) => {
                // The store is slow from the server's start on, as what a server has measured of
                // its store decides who waits for a fill.
                let distance = self.arguments.store.distance;
                self.bench.remote.set(Distance { bandwidth: FILLING_BANDWIDTH, ..distance });
                let sample = self.fresh(case, seed);
                self.bench.remote.set(distance);
                sample
            }
            (_, Cache::Cold | Cache::Filling, _) => self.fresh(case, seed),
            (.., Way::Direct) => {
                // The client takes the TLS of the process.
                let _ = rustls::crypto::ring::default_provider().install_default();
                let url =
                    format!("http://{}/{}/{PREFIX}", self.bench.remote.address(), Bucket::NAME);
                let http = reqwest::Client::builder().no_proxy().build()?;
                let caller = || Caller::Direct(http.clone(), url.clone());
                let callers = iter::repeat_with(caller).take(case.callers).collect();
                let load = self.endless(case, seed, Answering::Nobody);
                self.bench.runtime.block_on(load.run(callers))
            }
            (.., Way::Null) => {
                let launch = Launch {
                    kind: ServerKind::Null,
                    durability: Durability::None,
                    net_threads: 0,
                    reply_bytes: index(self.store.chunk(0).contents_bytes),
                    arguments: &[],
                };
                let StoreBench { starter, cleanup, .. } = &self.bench;
                let data = cleanup.directory(&starter.directory)?;
                let server = starter.launch(cleanup, data, &launch, &[])?;
                let load = self.endless(case, seed, Answering::Process(server.pid()));
                self.ask(case, &server, TABLE, load)
            }
            _ => self.warm(case, seed),
        }
    }

    /// Ends the warm server.
    pub fn stop(&mut self) -> Result<()> {
        self.warm.take().map_or(Ok(()), |server| server.stop().map(drop))
    }

    /// Makes a load of random chunks for the seconds of a measurement.
    fn endless(&self, case: &Case, seed: u64, answering: Answering) -> Load<'_> {
        let (mut random, count) = (Random::new(seed), u64::from(self.store.count()));
        let number = move || u32::try_from(random.below(count)).expect("below a u32");
        let (store, numbers) = (&self.store, Box::new(iter::repeat_with(number)));
        let (warm_up, seconds) = (self.arguments.rounds.warm_up, self.arguments.rounds.seconds);
        Load { store, numbers, batch: case.batch, warm_up, seconds, answering }
    }

    /// Makes a table over a store of the object store.
    fn table(&self, name: &'static str, prefix: &str, options: &str) -> Table {
        self.bench.table(name, &self.bench.remote.url(prefix), options)
    }

    fn ask(&self, case: &Case, server: &Server, table: &str, load: Load<'_>) -> Result<Sample> {
        self.bench.runtime.block_on(async {
            let callers = Caller::connect(case, server, table).await?;
            load.run(callers).await
        })
    }

    /// Measures with a server of its own whose cache is empty. What is read cold lies apart, so
    /// that no read finds what another one's extent brought; the first read of a file that may come
    /// as a whole starts its fill.
    fn fresh(&self, case: &Case, seed: u64) -> Result<Sample> {
        let fill = if case.cache == Cache::Cold { "fill=touched" } else { "fill=whole" };
        let server = self.bench.serve(&[self.table(TABLE, PREFIX, fill)], last(&self.store))?;
        // Only what is read of an open store is remembered.
        self.bench.remote.forget();
        let of_file = |number: &u32| self.store.chunk(*number).file == 0;
        let mut file: Vec<_> = (0..self.store.count()).filter(of_file).collect();
        Random::new(seed).shuffle(&mut file);
        let answering = Answering::Process(server.pid());
        let list = match (case.section, case.cache) {
            (Section::Cold, _) => Some(file.clone()),
            (Section::ThunderingHerd, _) => Some(vec![self.apart[0]; case.callers]),
            (_, Cache::Cold) => Some(self.apart.clone()),
            _ => None,
        };
        let load = match list {
            Some(list) => {
                let batch = case.batch.min(list.len().div_ceil(case.callers));
                Load { batch, answering, ..once(&self.store, list) }
            }
            None => Load { warm_up: Duration::ZERO, ..self.endless(case, seed, answering) },
        };
        let sample = self.ask(case, &server, TABLE, load)?;
        let is_whole = case.section == Section::Cold;
        if is_whole {
            let addresses = self.store.addresses(file);
            self.bench.runtime.block_on(wait_local(server.http(), TABLE, &addresses))?;
        }
        let traffic = Traffic::of(&self.bench.remote.seen(), &self.store.files);
        server.stop()?;
        let bytes = traffic.foreground.bytes + traffic.fills.bytes;
        let x_file = ratio(float(bytes), float(self.store.files[0].bytes)).filter(|_| is_whole);
        Ok(with_traffic(sample, &traffic)
            .with(X_FILE, x_file)
            .flag("filled-early", self.store.bytes() <= traffic.fills.bytes))
    }

    /// Measures with the server that has everything on local disk.
    fn warm(&mut self, case: &Case, seed: u64) -> Result<Sample> {
        let server = match self.warm.take() {
            Some(server) => server,
            None => self.start_warm()?,
        };
        // The request names the encoding for gRPC, the table's settings that for RESP.
        let table = match (case.cache, case.form, case.way) {
            (Cache::Memory, ..) => RAM,
            (_, Form::Stored, Way::RespPipelined) => STORED,
            _ => TABLE,
        };
        let load = self.endless(case, seed, Answering::Process(server.pid()));
        let sample = self.ask(case, &server, table, load);
        self.warm = Some(server);
        sample
    }

    /// Starts a server with everything on local disk, and once more in memory.
    fn start_warm(&self) -> Result<Server> {
        let memory_bytes = self.store.contents_bytes() * 2 + (64 << 20);
        let tables = [
            self.table(TABLE, PREFIX, "fill=whole"),
            self.table(RAM, PREFIX, &format!("fill=whole&memory={memory_bytes}")),
            self.table(STORED, PREFIX, "fill=whole&contents=stored"),
        ];
        let server = self.bench.serve(&tables, last(&self.store))?;
        for table in &tables {
            self.fill(&server, table.name, &self.store)?;
        }
        // What is read a second time is surely kept.
        for _ in 0..2 {
            self.read(&server, RAM, once(&self.store, 0..self.store.count()))?;
        }
        Ok(server)
    }

    /// Reads one chunk of every file and waits until all files are on local disk.
    fn fill(&self, server: &Server, table: &str, store: &Store) -> Result<()> {
        let mut firsts: Vec<u32> = (0..store.count()).collect();
        firsts.dedup_by_key(|number| store.chunk(*number).file);
        self.read(server, table, once(store, firsts))?;
        let addresses = store.addresses(0..store.count());
        self.bench.runtime.block_on(wait_local(server.http(), table, &addresses))
    }

    /// Reads chunks ahead, many in each call.
    fn read(&self, server: &Server, table: &str, load: Load<'_>) -> Result<()> {
        let (section, cache, way) = (Section::Reads, Cache::Disk, Way::GetChunks);
        let case = Case { section, cache, way, form: Form::Contents, callers: 1, batch: BATCH };
        let failed = self.ask(&case, server, table, load)?.failed;
        if 0 < failed.count() {
            bail!("reading ahead of {table}: {failed:?}");
        }
        Ok(())
    }

    /// Opens a store of very many table files, with an empty cache or that of the time before: how
    /// long from the start of a process until the last chunk of the last file is known.
    fn open(&mut self, cache: Cache) -> Result<Sample> {
        let (filler, seed) = (Filler::Half, self.arguments.rounds.seed);
        let design = Design { files: OPEN_FILES, chunks: 8, chunk_bytes: 512, filler, seed };
        let (store, left) = match self.opened.take() {
            Some(opened) => opened,
            None => (design.make(&self.bench.directory("open"))?, None),
        };
        let data = match left.filter(|_| cache != Cache::Cold) {
            Some(data) => data,
            None => self.bench.cleanup.directory(&self.bench.starter.directory)?,
        };
        self.bench.remote.forget();
        let tables = [self.table(TABLE, "open", "fill=whole")];
        let started_ns = now_ns();
        let server = self.bench.serve_in(data, &tables, last(&store))?;
        let sample = chunks_since(started_ns, &store);
        let traffic = Traffic::of(&self.bench.remote.seen(), &store.files);
        self.opened = Some((store, Some(server.stop()?)));
        Ok(with_traffic(sample, &traffic))
    }

    /// Measures the memory of an index, and that of the server while a large file comes to disk.
    fn memory(&self) -> Result<Sample> {
        let chunks = usize::try_from(self.arguments.memory_bytes / LARGE_CHUNK_BYTES)?.max(1);
        let (filler, seed) = (Filler::Random, self.arguments.rounds.seed);
        let design = Design { files: 1, chunks, chunk_bytes: LARGE_CHUNK_BYTES, filler, seed };
        let store = design.make(&self.bench.directory("memory"))?;
        let bytes = store.bytes();
        let (most, disk) = (bytes + (1 << 20), bytes + bytes / 8 + (1 << 30));
        let options = format!("fill=whole&fill_whole_max={most}&disk={disk}");
        let server = self.bench.serve(&[self.table(TABLE, "memory", &options)], last(&store))?;
        let before = memory_mib(server.pid(), "VmRSS:")?;
        let started_ns = now_ns();
        self.fill(&server, TABLE, &store)?;
        let sample = chunks_since(started_ns, &store);
        let grown = memory_mib(server.pid(), "VmHWM:")? - before;
        let metrics = server.metrics()?;
        server.stop()?;
        let of_index = metrics.of_table("busload_chunks_index_bytes", TABLE);
        let of_index = of_index.zip(metrics.of_table("busload_chunks_stored", TABLE));
        let index_bytes = of_index.and_then(|(bytes, chunks)| ratio(bytes, chunks));
        Ok(sample.with(INDEX_BYTES, index_bytes).with(GROWN_MIB, grown))
    }
}

/// Makes a load of these chunks, each once.
fn once<'a, I: IntoIterator<Item = u32, IntoIter: 'a>>(store: &'a Store, numbers: I) -> Load<'a> {
    let (numbers, answering) = (Box::new(numbers.into_iter()), Answering::Nobody);
    let (warm_up, seconds) = (Duration::ZERO, CHUNK_LIST);
    Load { store, numbers, batch: BATCH, warm_up, seconds, answering }
}

/// Reads a line of a process's status: its resident size, or the largest it ever had.
fn memory_mib(pid: Pid, name: &str) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_suffix("kB"));
    let kibibytes: f64 = line.context("the server's memory")?.trim().parse()?;
    Ok(kibibytes / 1_024.0)
}

/// Makes a sample of all chunks of a store having come since a moment.
fn chunks_since(started_ns: u64, store: &Store) -> Sample {
    let seconds = float(now_ns() - started_ns) / 1e9;
    let per_s = ratio(float_of(store.chunks.len()), seconds);
    Sample::default().with(SECONDS, seconds).with(PER_S, per_s)
}

/// Adds what the object store was asked for.
fn with_traffic(mut sample: Sample, traffic: &Traffic) -> Sample {
    let all = traffic.of_files();
    sample.remark = traffic.text();
    sample
        .with(GETS, float(all.requests))
        .with(GOT_BYTES, float(all.bytes))
        .with(FOREGROUND, float(traffic.foreground.requests))
        .with(REPEATED, float(traffic.repeated))
        .with(INDEX_READS, float(traffic.indexes.requests))
}
