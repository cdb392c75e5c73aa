//! Measures one row: sets up where the chunks are, lets the load run, reads the clocks and the
//! proxy's log.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use busload_bucket::Bucket;
use tokio::runtime::{Builder, Runtime};

use super::{
    arguments::Chunks,
    cases::{Cache, Case, Way, Work},
    clients::{
        Caller, Channels, Check, Direct, Form, GetChunk, GetChunks, PreadSend, Resp, S3,
        get_request, pread,
    },
    load::{self, ChainEnd, Picks, Plan},
    store::Store,
};
use crate::{
    busload::{Server, Starter, Table},
    cleanup::Cleanup,
    limits::{CHUNK_LIST, POOL_REQUESTS},
    measure::{self, Pace, measure},
    presence::wait_local,
    random::Random,
    remote::{Distance, Remote},
    requests::Pool,
    sample::{Answering, Sample},
    stats::float_of,
    traffic::Traffic,
};

/// The prefix of the store that most sections read.
pub const PREFIX: &str = "store";

/// The table of servers with only one.
pub const TABLE: &str = "db";

/// Tables of the warm server: on disk, in memory, and as stored.
const WARM: &str = "warm";
const RAM: &str = "ram";
const STORED: &str = "stored";

/// Everything that the measurements of rows share.
pub struct Harness<'a> {
    pub arguments: &'a Chunks,
    pub cleanup: Cleanup,
    pub starter: Starter,
    pub remote: Remote,
    /// The store that most sections read.
    pub store: Store,
    pub runtime: Runtime,
    warm: Option<Server>,
}

impl<'a> Harness<'a> {
    /// Makes a harness over a store in the object store's directory.
    pub fn new(
        arguments: &'a Chunks,
        cleanup: Cleanup,
        starter: Starter,
        remote: Remote,
        store: Store,
    ) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build().context("a runtime")?;
        Ok(Self { arguments, cleanup, starter, remote, store, runtime, warm: None })
    }

    /// Measures a row once.
    pub fn measure(&mut self, case: &Case, round: usize) -> Result<Sample> {
        let seed = u64::try_from(round).unwrap_or(0).wrapping_add(self.arguments.seed << 8);
        match (case.cache, case.way) {
            (Cache::Cold, _) => self.cold(case),
            (Cache::Filling, _) => self.filling(case, seed),
            (Cache::Unused, Way::Direct) => self.direct(case, seed),
            (Cache::Unused, Way::Pread) => {
                let plan = self.plan(case, seed, Answering::Nobody)?;
                let mut read = pread(&self.store)?;
                load::run_blocking(&self.store, &plan, |numbers| {
                    numbers.iter().try_for_each(|one| read(*one))
                })
            }
            (Cache::Unused, Way::PreadSend) => self.pread_send(case, seed),
            _ => self.warm(case, seed),
        }
    }

    /// Ends the warm server.
    pub fn stop(&mut self) -> Result<()> {
        self.warm.take().map_or(Ok(()), |server| server.stop().map(drop))
    }

    /// A table over a store of the object store; further options of the command line come last.
    pub fn table(&self, name: &'static str, prefix: &str, options: &str) -> Table {
        Table::of_chunks(name, &self.remote.url(prefix), &self.arguments.served.options(options))
    }

    /// Starts a server with an empty cache over the main store and waits until that is open; only
    /// what the object store is asked for from then on is remembered.
    pub fn cold_server(&self, options: &str) -> Result<Server> {
        let table = self.table(TABLE, PREFIX, options);
        let server = self.starter.start(&self.cleanup, &[table])?;
        wait_open(&server, TABLE, &self.store)?;
        self.remote.forget();
        Ok(server)
    }

    fn direct(&self, case: &Case, seed: u64) -> Result<Sample> {
        let s3 = S3::new(self.remote.address(), Bucket::NAME, PREFIX, &self.store)?;
        let callers = (0..case.callers).map(|_| Caller::Direct(Direct::new(&s3))).collect();
        let plan = self.plan(case, seed, Answering::Nobody)?;
        self.runtime.block_on(load::run(&self.store, callers, &plan))
    }

    fn pread_send(&self, case: &Case, seed: u64) -> Result<Sample> {
        let mut bare = PreadSend::start(&self.store, self.starter.cpus.clone())?;
        let answering = Answering::Thread(bare.thread_id);
        // One connection carries what all callers have under way.
        let plan = Plan { batch: case.batch * case.callers, ..self.plan(case, seed, answering)? };
        load::run_blocking(&self.store, &plan, |numbers| bare.ask(&self.store, numbers))
    }

    /// Every measurement has a server of its own whose cache is empty. What is read lies apart, so
    /// that no read finds what another one's extent brought.
    fn cold(&self, case: &Case) -> Result<Sample> {
        let server = self.cold_server("fill=touched")?;
        let apart: Arc<[u32]> = self.store.apart.clone().into();
        let batch = case.batch.min(apart.len().div_ceil(case.callers));
        let picks = match case.work {
            Work::Random => Picks::List(Arc::clone(&apart)),
            Work::Chain => {
                let most = self.store.chain.len().min(apart.len()) - 1;
                Picks::Chain { first: self.store.chain[0], most, end: ChainEnd::Stop }
            }
        };
        let plan = Plan {
            picks,
            batch,
            warm_up: Duration::ZERO,
            seconds: CHUNK_LIST,
            answering: Answering::Process(server.pid()),
        };
        let sample = self.grpc_or_resp(case, &server, TABLE, &plan)?;
        let traffic = self.traffic();
        server.stop()?;
        Ok(self.with_traffic(sample, &traffic))
    }

    /// The first read starts the fill of its file; it is slow enough to last. The store is slow
    /// from the server's start on, as what a server has measured of its store decides who waits for
    /// a fill.
    fn filling(&self, case: &Case, seed: u64) -> Result<Sample> {
        let distance = self.arguments.distance;
        self.remote.set(Distance { bandwidth: self.arguments.filling_bandwidth, ..distance });
        let sample = self.filling_slowly(case, seed);
        self.remote.set(distance);
        sample
    }

    fn filling_slowly(&self, case: &Case, seed: u64) -> Result<Sample> {
        let server = self.cold_server("fill=whole")?;
        let plan = self.plan(case, seed, Answering::Process(server.pid()))?;
        let plan = Plan { warm_up: Duration::ZERO, ..plan };
        let sample = self.grpc_or_resp(case, &server, TABLE, &plan)?;
        let traffic = self.traffic();
        let filled_early = self.store.bytes() <= traffic.fills.bytes;
        server.stop()?;
        Ok(Sample { filled_early, ..self.with_traffic(sample, &traffic) })
    }

    /// Sorts the requests to the main store since the log was emptied.
    pub fn traffic(&self) -> Traffic {
        self.store.traffic(&self.remote.seen())
    }

    fn with_traffic(&self, sample: Sample, traffic: &Traffic) -> Sample {
        let store_requests = Some(crate::stats::float(traffic.requests()));
        let store_bytes = Some(crate::stats::float(traffic.bytes()));
        Sample { store_requests, store_bytes, ..sample }
    }

    fn warm(&mut self, case: &Case, seed: u64) -> Result<Sample> {
        let server = match self.warm.take() {
            Some(server) => server,
            None => self.start_warm()?,
        };
        let table = match (case.cache, case.form) {
            (Cache::Memory, _) => RAM,
            (_, Form::Stored) => STORED,
            (_, Form::Decoded) => WARM,
        };
        let sample = match case.way {
            Way::RespPipelined => self.pipelined(case, &server, table, seed),
            _ => {
                let plan = self.plan(case, seed, Answering::Process(server.pid()))?;
                // What GetChunks sends is told by the request; for RESP it is a matter of the
                // table.
                let table =
                    if case.way == Way::Resp || case.cache == Cache::Memory { table } else { WARM };
                self.grpc_or_resp(case, &server, table, &plan)
            }
        };
        self.warm = Some(server);
        sample
    }

    /// Starts a server with everything on local disk, and once more in memory.
    fn start_warm(&self) -> Result<Server> {
        let memory = format!("fill=whole&memory={}", self.store.contents_bytes() * 2 + (64 << 20));
        let tables = [
            self.table(WARM, PREFIX, "fill=whole"),
            self.table(RAM, PREFIX, &memory),
            self.table(STORED, PREFIX, "fill=whole&contents=stored"),
        ];
        let server = self.starter.start(&self.cleanup, &tables)?;
        for table in [WARM, RAM, STORED] {
            self.fill(&server, table, &self.store)?;
        }
        // What is read a second time is surely kept.
        for _ in 0..2 {
            self.read_all(&server, RAM, &self.store)?;
        }
        Ok(server)
    }

    /// Waits until all files of a table are on local disk.
    pub fn fill(&self, server: &Server, table: &str, store: &Store) -> Result<()> {
        wait_open(server, table, store)?;
        let numbers: Vec<u32> = (0..store.count()).collect();
        self.runtime.block_on(async {
            let channels = Channels::connect(server.http(), 1).await?;
            self.touch(&channels, table, store).await?;
            wait_local(server.http(), table, &store.addresses(&numbers)).await
        })
    }

    /// Waits until one file of the main store, which has been touched, is on local disk.
    pub fn wait_file(&self, server: &Server, table: &str, file: u32) -> Result<()> {
        let numbers: Vec<u32> = self.store.of_file(file).collect();
        self.runtime.block_on(wait_local(server.http(), table, &self.store.addresses(&numbers)))
    }

    /// Reads one chunk of every file, so that all files fill.
    async fn touch(&self, channels: &Channels, table: &str, store: &Store) -> Result<()> {
        let mut call = GetChunk::new(channels, 0, table, Form::Decoded);
        let mut touched = vec![false; store.files.len()];
        for (number, entry) in (0..).zip(&store.entries) {
            let file = super::store::index(entry.file);
            if !std::mem::replace(&mut touched[file], true) {
                let touched = call.ask(store, number).await;
                touched
                    .map_err(|failure| anyhow::anyhow!("the first chunk of a file: {failure:?}"))?;
            }
        }
        Ok(())
    }

    pub fn read_all(&self, server: &Server, table: &str, store: &Store) -> Result<()> {
        let numbers: Vec<u32> = (0..store.count()).collect();
        self.runtime.block_on(async {
            let channels = Channels::connect(server.http(), 1).await?;
            let mut call = GetChunks::new(&channels, 0, table, Form::Decoded);
            for numbers in numbers.chunks(self.arguments.batch) {
                let read = call.ask(store, numbers).await;
                read.map_err(|failure| anyhow::anyhow!("reading all chunks: {failure:?}"))?;
            }
            Ok(())
        })
    }

    fn grpc_or_resp(
        &self,
        case: &Case,
        server: &Server,
        table: &str,
        plan: &Plan,
    ) -> Result<Sample> {
        self.runtime.block_on(async {
            let callers = self.callers(case, server, table).await?;
            load::run(&self.store, callers, plan).await
        })
    }

    async fn callers(&self, case: &Case, server: &Server, table: &str) -> Result<Vec<Caller>> {
        if case.way == Way::Resp {
            let mut callers = Vec::with_capacity(case.callers);
            for _ in 0..case.callers {
                callers.push(Caller::Resp(Resp::connect(server.resp(), table, case.form).await?));
            }
            return Ok(callers);
        }
        let channels = Channels::connect(server.http(), self.arguments.grpc_connections).await?;
        let caller = |index| match case.way {
            Way::GetChunk => {
                Ok(Caller::GetChunk(GetChunk::new(&channels, index, table, case.form)))
            }
            Way::GetChunks => {
                Ok(Caller::GetChunks(GetChunks::new(&channels, index, table, case.form)))
            }
            Way::Check => Ok(Caller::Check(Check::new(&channels, index))),
            other => bail!("{} is not asked of a server", other.name()),
        };
        (0..case.callers).map(caller).collect()
    }

    fn pipelined(&self, case: &Case, server: &Server, table: &str, seed: u64) -> Result<Sample> {
        let (warm_up, window) = self.arguments.times()?;
        let mut random = Random::new(seed);
        let count = u64::from(self.store.count());
        let requests = self.store.entries.len().clamp(case.batch, POOL_REQUESTS);
        let pool = Pool::of(requests, |out| {
            let number = u32::try_from(random.below(count)).expect("below a u32");
            get_request(out, table, &self.store.entry(number).address);
        });
        let plan = measure::Plan {
            address: server.resp(),
            pid: Some(server.pid()),
            clients: case.callers,
            pace: Pace::Pipeline(case.batch),
            pool: &pool,
            start: random.next() >> 8,
            warm_up,
            window,
            progress: None,
        };
        let sample = measure(&plan)?;
        let under_way = float_of(case.callers * case.batch);
        Ok(Sample::of_pipelines(&sample, window.as_secs_f64(), under_way))
    }

    fn plan(&self, case: &Case, seed: u64, answering: Answering) -> Result<Plan> {
        let (warm_up, seconds) = self.arguments.times()?;
        let picks = match case.work {
            Work::Random => Picks::Random(seed),
            Work::Chain => {
                Picks::Chain { first: self.store.chain[0], most: usize::MAX, end: ChainEnd::Repeat }
            }
        };
        Ok(Plan { picks, batch: case.batch, warm_up, seconds, answering })
    }
}

/// Waits until a table's store is open: until its last chunk is known to exist.
pub fn wait_open(server: &Server, table: &str, store: &Store) -> Result<()> {
    let last = store.entries.last().context("a store with chunks")?;
    server.wait_for(&format!("EXISTS {table}:{}", last.address), ":1")
}
