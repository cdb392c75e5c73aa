//! Measures one row: sets up where the chunks are, lets the load run, reads the clocks and the
//! proxy's log.

use std::{collections::HashSet, sync::Arc, time::Duration};

use anyhow::{Result, anyhow, bail};
use busload_bucket::Bucket;
use tonic::client::Grpc;

use super::{
    arguments::{Chunks, Section},
    bare::{PreadSend, pread},
    cases::{Cache, Case, FILLS, FOREGROUND, GETS, GOT_BYTES, REPEATED, Way},
    chain::ChainStore,
    clients::{Caller, Form, Table, channels, get_request, s3},
    load::{self, Picks, Plan},
};
use crate::{
    cleanup::Directory,
    experiment::store_bench::{PREFIX, StoreBench, wait_local},
    harness::{
        Answering, Point, Sample,
        sample::{MEAN_US, PER_S},
    },
    limits::{CHUNK_LIST, POOL_REQUESTS},
    measure::{self, Pace, measure},
    random::Random,
    remote::Distance,
    requests::Pool,
    server::{self, Server},
    stats::{float, float_of, ratio},
    store::Traffic,
};

/// The table of servers with only one.
pub const TABLE: &str = "db";

/// Tables of the warm server: on disk, in memory, and as stored.
const WARM: &str = "warm";
const RAM: &str = "ram";
const STORED: &str = "stored";

/// Everything that the measurements of rows share.
pub struct Runner<'a> {
    pub arguments: &'a Chunks,
    /// Server that rows with everything on local disk share.
    warm: Option<Server>,
    pub chain: ChainStore,
    /// Store of many files, and the cache that a server has left of it.
    pub opened: Option<(ChainStore, Option<Directory>)>,
    /// Resident size of a server while a file fills, MiB by second.
    pub growth: Vec<Point>,
    pub bench: StoreBench<'a>,
}

impl<'a> Runner<'a> {
    pub fn new(arguments: &'a Chunks, bench: StoreBench<'a>, chain: ChainStore) -> Self {
        Self { arguments, warm: None, chain, opened: None, growth: Vec::new(), bench }
    }

    /// Measures a row once.
    pub fn measure(&mut self, case: &Case, round: usize) -> Result<Sample> {
        let seed = self.arguments.rounds.seed_of(round);
        if !matches!(case.section, Section::Chain | Section::Reads | Section::Throughput) {
            self.stop()?;
        }
        match case.section {
            Section::Cold => return self.cold_file(case, seed),
            Section::ThunderingHerd => return self.thundering_herd(case),
            Section::Open => return self.open(case),
            Section::Memory => return self.memory(),
            Section::Chain | Section::Reads | Section::Throughput => {}
        }
        match (case.cache, case.way) {
            (Cache::Cold, _) => self.cold(case),
            (Cache::Filling, _) => self.filling(case, seed),
            (Cache::Unused, Way::Direct) => {
                let s3 = s3(self.bench.remote.address(), Bucket::NAME, PREFIX)?;
                let callers = (0..case.callers).map(|_| Caller::Direct(Arc::clone(&s3))).collect();
                let plan = self.plan(case, seed, Answering::Nobody);
                self.bench.runtime.block_on(load::run(&self.chain, callers, &plan))
            }
            (Cache::Unused, Way::Pread) => {
                let plan = self.plan(case, seed, Answering::Nobody);
                let mut read = pread(&self.chain.store)?;
                load::run_blocking(&self.chain, &plan, |numbers| {
                    numbers.iter().try_for_each(|one| read(*one))
                })
            }
            (Cache::Unused, Way::PreadSend) => {
                let cpus = self.bench.starter.cpus.clone();
                let mut bare = PreadSend::start(&self.chain.store, cpus)?;
                let plan = self.plan(case, seed, Answering::Thread(bare.thread_id));
                // One connection carries what all callers have under way.
                let plan = Plan { batch: case.batch * case.callers, ..plan };
                let ask = |numbers: &[u32]| bare.ask(&self.chain.store, numbers);
                load::run_blocking(&self.chain, &plan, ask)
            }
            _ => self.warm(case, seed),
        }
    }

    /// Ends the warm server.
    pub fn stop(&mut self) -> Result<()> {
        self.warm.take().map_or(Ok(()), |server| server.stop().map(drop))
    }

    /// Makes a table over a store of the object store.
    pub fn table(&self, name: &'static str, prefix: &str, options: &str) -> server::Table {
        self.bench.table(name, &self.bench.remote.url(prefix), options)
    }

    /// Starts a server with an empty cache over the main store and waits until that is open; only
    /// what the object store is asked for from then on is remembered.
    pub fn cold_server(&self, options: &str) -> Result<Server> {
        let tables = [self.table(TABLE, PREFIX, options)];
        let server = self.bench.serve(&tables, self.chain.last())?;
        self.bench.remote.forget();
        Ok(server)
    }

    /// Every measurement has a server of its own whose cache is empty. What is read lies apart, so
    /// that no read finds what another one's extent brought.
    fn cold(&self, case: &Case) -> Result<Sample> {
        let server = self.cold_server("fill=touched")?;
        let apart: Arc<[u32]> = self.chain.apart.clone().into();
        let batch = case.batch.min(apart.len().div_ceil(case.callers));
        let picks = match case.section {
            Section::Chain => self.chain.chain.iter().copied().take(apart.len()).collect(),
            _ => apart,
        };
        let plan = Plan { batch, ..once(picks, &server) };
        let sample = self.ask(case, &server, TABLE, &plan)?;
        let traffic = self.traffic();
        server.stop()?;
        Ok(with_traffic(sample, &traffic))
    }

    /// The first read starts the fill of its file; it is slow enough to last. The store is slow
    /// from the server's start on, as what a server has measured of its store decides who waits for
    /// a fill.
    fn filling(&self, case: &Case, seed: u64) -> Result<Sample> {
        let distance = self.arguments.store.distance;
        let slow = Distance { bandwidth: self.arguments.filling_bandwidth, ..distance };
        self.bench.remote.set(slow);
        let sample = self.filling_slowly(case, seed);
        self.bench.remote.set(distance);
        sample
    }

    fn filling_slowly(&self, case: &Case, seed: u64) -> Result<Sample> {
        let server = self.cold_server("fill=whole")?;
        let plan = self.plan(case, seed, Answering::Process(server.pid()));
        let sample = self.ask(case, &server, TABLE, &Plan { warm_up: Duration::ZERO, ..plan })?;
        let traffic = self.traffic();
        let filled_early = self.chain.store.bytes() <= traffic.fills.bytes;
        server.stop()?;
        Ok(with_traffic(sample, &traffic).flag("filled-early", filled_early))
    }

    /// Sorts the requests to the main store since the log was emptied.
    pub fn traffic(&self) -> Traffic {
        Traffic::of(&self.bench.remote.seen(), &self.chain.store.files)
    }

    fn warm(&mut self, case: &Case, seed: u64) -> Result<Sample> {
        let server = match self.warm.take() {
            Some(server) => server,
            None => self.start_warm()?,
        };
        // The request names the encoding for GetChunks, the table's settings that for RESP.
        let is_resp = matches!(case.way, Way::Resp | Way::RespPipelined);
        let table = match (case.cache, case.form) {
            (Cache::Memory, _) => RAM,
            (_, Form::Stored) if is_resp => STORED,
            _ => WARM,
        };
        let sample = if case.way == Way::RespPipelined {
            self.pipelined(case, &server, table, seed)
        } else {
            let plan = self.plan(case, seed, Answering::Process(server.pid()));
            self.ask(case, &server, table, &plan)
        };
        self.warm = Some(server);
        sample
    }

    /// Starts a server with everything on local disk, and once more in memory.
    fn start_warm(&self) -> Result<Server> {
        let memory_bytes = self.chain.store.contents_bytes() * 2 + (64 << 20);
        let tables = [
            self.table(WARM, PREFIX, "fill=whole"),
            self.table(RAM, PREFIX, &format!("fill=whole&memory={memory_bytes}")),
            self.table(STORED, PREFIX, "fill=whole&contents=stored"),
        ];
        let server = self.bench.serve(&tables, self.chain.last())?;
        for table in &tables {
            self.fill(&server, table.name, &self.chain)?;
        }
        // What is read a second time is surely kept.
        let numbers: Vec<u32> = (0..self.chain.store.count()).collect();
        for _ in 0..2 {
            let numbers = numbers.chunks(self.arguments.batch);
            self.read(&server, RAM, &self.chain, numbers)?;
        }
        Ok(server)
    }

    /// Reads one chunk of every file and waits until all files are on local disk.
    pub fn fill(&self, server: &Server, table: &str, chain: &ChainStore) -> Result<()> {
        let mut files = HashSet::new();
        let is_first = |number: &u32| files.insert(chain.store.chunk(*number).file);
        let firsts: Vec<u32> = (0..chain.store.count()).filter(is_first).collect();
        self.read(server, table, chain, firsts.chunks(self.arguments.batch))?;
        self.wait_local(server, table, chain, 0..chain.store.count())
    }

    /// Waits until chunks of a table are on the server's disk.
    pub fn wait_local(
        &self,
        server: &Server,
        table: &str,
        chain: &ChainStore,
        numbers: impl IntoIterator<Item = u32>,
    ) -> Result<()> {
        let addresses = chain.addresses(numbers);
        self.bench.runtime.block_on(wait_local(server.http(), table, &addresses))
    }

    /// Reads chunks, so many in each call.
    fn read<'n>(
        &self,
        server: &Server,
        table: &str,
        chain: &ChainStore,
        calls: impl Iterator<Item = &'n [u32]>,
    ) -> Result<()> {
        self.bench.runtime.block_on(async {
            let channel = channels(server.http(), 1).await?.remove(0);
            let mut caller = Caller::GetChunks(Table::new(channel, table, Form::Decoded));
            for numbers in calls {
                let read = caller.ask(chain, numbers).await;
                read.map_err(|failure| anyhow!("reading ahead of {table}: {failure:?}"))?;
            }
            Ok(())
        })
    }

    /// Runs the callers of a case against a table of a server.
    pub fn ask(&self, case: &Case, server: &Server, table: &str, plan: &Plan) -> Result<Sample> {
        self.bench.runtime.block_on(async {
            let channels = channels(server.http(), self.arguments.grpc_connections).await?;
            let mut callers = Vec::with_capacity(case.callers);
            for index in 0..case.callers {
                let channel = channels[index % channels.len()].clone();
                callers.push(match case.way {
                    Way::Resp => Caller::resp(server.resp(), table, case.form).await?,
                    Way::GetChunk => Caller::GetChunk(Table::new(channel, table, case.form)),
                    Way::GetChunks => Caller::GetChunks(Table::new(channel, table, case.form)),
                    Way::Check => Caller::Check(Grpc::new(channel)),
                    other => bail!("{other:?} is not asked of a server by callers"),
                });
            }
            load::run(&self.chain, callers, plan).await
        })
    }

    fn pipelined(&self, case: &Case, server: &Server, table: &str, seed: u64) -> Result<Sample> {
        let mut random = Random::new(seed);
        let mut numbers = [0];
        let requests = self.chain.store.chunks.len().clamp(case.batch, POOL_REQUESTS);
        let pool = Pool::of(requests, |out| {
            load::draw(&mut random, &self.chain, &mut numbers);
            get_request(out, table, &self.chain.store.chunk(numbers[0]).address);
        });
        let plan = measure::Plan {
            address: server.resp(),
            pid: Some(server.pid()),
            clients: case.callers,
            pace: Pace::Pipeline(case.batch),
            pool: &pool,
            start: random.next() >> 8,
            warm_up: self.arguments.rounds.warm_up,
            window: self.arguments.rounds.seconds,
            progress: None,
        };
        let mut sample = measure(&plan)?;
        let nils = sample.counted("nil");
        if 0 < nils {
            sample.failed.wrong.count += nils;
            sample.failed.wrong.example = Some("nil for a chunk that is there".to_owned());
        }
        // Little's law: a pipeline's time is what all connections together need for one each.
        let under_way = float_of(case.callers * case.batch);
        let mean_s = ratio(under_way, sample.or_zero(PER_S));
        Ok(sample.with(MEAN_US, mean_s.map(|seconds| seconds * 1e6)))
    }

    fn plan(&self, case: &Case, seed: u64, answering: Answering) -> Plan {
        let picks = match case.section {
            Section::Chain => Picks::Cycle(self.chain.chain.clone().into()),
            _ => Picks::Random(seed),
        };
        let rounds = &self.arguments.rounds;
        let (warm_up, seconds) = (rounds.warm_up, rounds.seconds);
        Plan { picks, batch: case.batch, warm_up, seconds, answering }
    }
}

/// Makes a plan to ask for each of these once.
pub fn once(numbers: Arc<[u32]>, server: &Server) -> Plan {
    let (picks, answering) = (Picks::List(numbers), Answering::Process(server.pid()));
    Plan { picks, batch: 1, warm_up: Duration::ZERO, seconds: CHUNK_LIST, answering }
}

/// Adds what the object store was asked for.
pub fn with_traffic(sample: Sample, traffic: &Traffic) -> Sample {
    let all = traffic.all();
    sample
        .with(GETS, float(all.requests))
        .with(GOT_BYTES, float(all.bytes))
        .with(FOREGROUND, float(traffic.foreground.requests))
        .with(REPEATED, float(traffic.repeated))
        .with(FILLS, float(traffic.fills.requests))
}
