//! One life of a server: its stages on simulated seams, and the model beside them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, OnceLock},
    time::Duration,
};

use busload_io::{
    Address, Clock, ConnId, Peer,
    sim::{SimClients, SimClock, SimDisk, SimNet, SimNetOptions, SimRng},
};
use busload_log::{LogStage, Options, Progress, Step, ZeroHelper};
use busload_pipeline::{
    batch::{Control, RequestBatch},
    net::NetStage,
    settings::{Eviction, Settings, SyncMode, TableSettings},
    stats::Stats,
    tx::{self, Now, Opened, StartError, Tx},
};
use busload_resp::reply::Reply;
use busload_snapshot::{Maintenance, Recovered, Settings as SnapshotSettings};

use crate::{
    coroutine::{Coroutine, TurnDisk, Turns},
    history::{Contents, Needs},
    model::{Model, Request, Session, is_refusal, show_reply},
};

/// First port of simulated clients, see `busload_io::sim`.
const FIRST_PORT: u16 = 10_000;

/// Properties of one life.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Length of a segment of the log.
    pub segment_bytes: u64,
    /// Length of the log at which a snapshot is made without being asked for.
    pub snapshot_log_bytes: u64,
    /// Memory from which the number of partitions follows.
    pub memory_bytes: u64,
    /// Length of the log, in percent of the contents, above which a snapshot sorts it into a file.
    pub catch_up_percent: u64,
    /// Most bytes that the network moves at once.
    pub piece_bytes_max: usize,
    /// Says whether each request is printed.
    pub trace: Trace,
}

/// Output of a run, to look at one seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// Nothing is printed meanwhile.
    Off,
    /// Prints all requests, replies and ends of lives.
    On,
}

/// Request that tx has executed.
#[derive(Debug)]
pub struct Executed {
    /// The request, as tx got it.
    pub request: Request,
    /// Transactions that must survive once the client has the reply.
    pub needs: Needs,
    /// Reply; `None` if it comes later.
    pub reply: Option<Reply>,
}

/// Request that is executed in slices, or waits for something.
#[derive(Debug)]
struct Pending {
    space: u8,
    request: Request,
    port: u16,
    ordinal: usize,
}

impl Executed {
    /// Returns whether the disk was too full for it.
    pub fn is_refused(&self) -> bool {
        self.reply.as_ref().is_some_and(is_refusal)
    }
}

/// Server, and the model of what it holds.
pub struct Server {
    net: NetStage<SimNet>,
    tx: Tx,
    stage: LogStage<SimDisk>,
    helper: ZeroHelper<SimDisk>,
    snapshots: Coroutine,
    /// Why the thread of the snapshots could not begin, which ends a start.
    snapshots_refused: Arc<OnceLock<String>>,
    control: Arc<busload_snapshot::Control>,
    progress: Progress,
    clock: SimClock,
    batch: RequestBatch,
    /// Clients' end of the network.
    pub clients: SimClients,
    /// The model beside the server; `None` until it is known what survived.
    pub model: Option<Model>,
    now_ms: i64,
    trace: Trace,
    sessions: HashMap<ConnId, (Session, u16)>,
    /// Requests that tx has begun to execute and will answer later.
    pending: BTreeMap<(ConnId, u64), Pending>,
    /// Number of writes that were executed in slices.
    pub sliced: u64,
    /// Executed requests of each client, by its port, in their order.
    pub executed: BTreeMap<u16, Vec<Executed>>,
}

impl Server {
    /// Starts a server on what the disk has.
    ///
    /// # Errors
    /// If it refuses to start.
    pub fn start(
        disk: &SimDisk,
        clock: &SimClock,
        shape: Shape,
        rng: &mut SimRng,
    ) -> Result<Server, StartError> {
        let options = Options {
            segment_bytes: shape.segment_bytes,
            first_segment_bytes: shape.segment_bytes,
            ..Options::default()
        };
        let settings = settings();
        let stats = Arc::new(Stats::default());
        let opened = tx::open(
            disk.clone(),
            options,
            settings.clone(),
            Arc::clone(&stats),
            Arc::default(),
            Box::new(rng.fork()),
            read(clock),
            &mut |_| {},
        )?;
        let Opened { tx, progress, stage, helper, report, snapshot, snapshots } = opened;
        let control = Arc::clone(&snapshots);
        let turns = Arc::<Turns>::default();
        let maintenance = {
            let disk = TurnDisk::new(disk.clone(), Arc::clone(&turns));
            let (clock, progress) = (clock.clone(), progress.clone());
            let settings = SnapshotSettings {
                automatic: true,
                log_bytes_min: shape.snapshot_log_bytes,
                cpu_percent: 100,
                catch_up_percent: shape.catch_up_percent,
            };
            let memory_bytes = Box::new(move || shape.memory_bytes);
            let recovered = Recovered {
                newest: snapshot.map(|snapshot| snapshot.lsn),
                log_bytes: report.bytes,
                seed: busload_io::Rng::next_u64(rng),
            };
            move || {
                Maintenance::new(
                    disk,
                    clock,
                    progress,
                    snapshots,
                    settings,
                    memory_bytes,
                    recovered,
                )
            }
        };
        let snapshots_refused = Arc::<OnceLock<String>>::default();
        let not_prepared = Arc::clone(&snapshots_refused);
        let body = move |turns: &Turns| {
            let mut maintenance = match maintenance() {
                Ok(maintenance) => maintenance,
                Err(error) => {
                    let _ = not_prepared.set(error.to_string());
                    return;
                }
            };
            while turns.pass().is_ok() {
                maintenance.turn(&mut |_| turns.pause());
            }
        };
        let net_options =
            SimNetOptions { piece_bytes_max: shape.piece_bytes_max, ..SimNetOptions::default() };
        let (net, clients) = SimNet::new(busload_io::Rng::next_u64(rng), net_options);
        let net = NetStage::new(net, progress.clone(), stats, &settings);
        Ok(Server {
            net,
            tx,
            stage,
            helper,
            snapshots: Coroutine::start(body, turns),
            snapshots_refused,
            control,
            progress,
            clock: clock.clone(),
            batch: RequestBatch::default(),
            clients,
            model: None,
            now_ms: report.wall_ms.unwrap_or(i64::MIN).max(clock.wall_ms()),
            trace: shape.trace,
            sessions: HashMap::new(),
            pending: BTreeMap::new(),
            sliced: 0,
            executed: BTreeMap::new(),
        })
    }

    /// Continues the model with what was found.
    pub fn verified(&mut self, contents: Contents) {
        self.model = Some(Model::starting_from(contents));
    }

    /// Returns the time by which tx judges expiry.
    pub fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// Returns why the server cannot go on, if it cannot.
    pub fn failure(&self) -> Option<String> {
        let failure = self.progress.failure().map(|failure| failure.to_string());
        failure.or_else(|| self.snapshots_refused.get().cloned())
    }

    /// Says how far the log and the snapshots are.
    pub fn progress_text(&self) -> String {
        let (written, durable) = (self.progress.written(), self.progress.durable());
        let snapshots = self.control.status();
        format!("the log is written to {written:?}, durable to {durable:?}; {snapshots:?}")
    }

    /// Runs one turn of net and tx, as in one loop.
    ///
    /// # Errors
    /// If a reply is not the one of the model.
    pub fn turn(&mut self) -> Result<(), String> {
        let mut batch = std::mem::take(&mut self.batch);
        self.net.prepare_wait();
        self.collect(&mut batch);
        let executed = match batch.is_empty() {
            true => Ok(()),
            false => self.execute(&mut batch),
        };
        self.tx.end_turn();
        self.net.deliver(&mut batch);
        self.batch = batch;
        executed.and(self.finish_turn())
    }

    /// Runs a turn with two batches under way at once, as when net and tx have a thread each.
    ///
    /// # Errors
    /// If a reply is not the one of the model.
    pub fn overlapped_turn(&mut self) -> Result<(), String> {
        let mut batches = [RequestBatch::default(), RequestBatch::default()];
        for batch in &mut batches {
            self.net.prepare_wait();
            self.collect(batch);
            self.net.finish_turn(self.clock.now());
        }
        let mut executed = Ok(());
        for batch in batches.iter_mut().filter(|batch| !batch.is_empty()) {
            executed = executed.and(self.execute(batch));
        }
        self.tx.end_turn();
        for batch in &mut batches {
            self.net.deliver(batch);
        }
        executed.and(self.finish_turn())
    }

    fn collect(&mut self, batch: &mut RequestBatch) {
        self.net.collect(batch, Some(Duration::ZERO)).expect("the simulated driver works");
    }

    fn finish_turn(&mut self) -> Result<(), String> {
        let now = read(&self.clock);
        self.now_ms = self.now_ms.max(now.wall_ms);
        let mut checked = Ok(());
        if let Some(mut answers) = self.tx.poll_answers(now) {
            checked = replies_of(&answers).and_then(|replies| self.check_late(replies));
            self.net.deliver(&mut answers);
        }
        self.net.finish_turn(self.clock.now());
        checked
    }

    fn execute(&mut self, batch: &mut RequestBatch) -> Result<(), String> {
        for control in &batch.control {
            if let Control::Opened { conn, peer, .. } = control {
                // tx may learn later that the slot's previous connection was closed.
                self.sessions.retain(|other, _| other.index != conn.index);
                self.sessions.insert(*conn, (Session::default(), port_of(peer)));
            }
        }
        let now = read(&self.clock);
        self.now_ms = self.now_ms.max(now.wall_ms);
        let closed: Vec<ConnId> = batch.control.iter().filter_map(closed).collect();
        batch.received = now.monotonic;
        self.tx.execute(batch, now);
        self.tx.note_executed(now.monotonic, self.clock.now());
        let checked = self.check(batch);
        for conn in closed {
            self.sessions.remove(&conn);
        }
        checked
    }

    /// Executes in the model what tx has executed, and compares the replies.
    fn check(&mut self, batch: &RequestBatch) -> Result<(), String> {
        let mut replies = replies_of(batch)?;
        let Some(model) = &mut self.model else { return Ok(()) };
        for (index, run) in batch.runs.iter().enumerate() {
            let Some((session, port)) = self.sessions.get_mut(&run.conn) else { continue };
            let deferred = batch.deferred.iter().find(|deferred| deferred.run as usize == index);
            let end = deferred.map_or(run.first_request + run.request_count, |at| at.request);
            for (ordinal, seq) in (run.first_request..end).zip(run.first_seq..) {
                let request = request_of(batch, ordinal as usize);
                let reply = replies.remove(&(run.conn, seq));
                if self.trace == Trace::On {
                    let reply = reply.as_ref().map(show_reply);
                    println!("{} client {port} {}: {reply:?}", self.now_ms, show(&request));
                }
                let executed = self.executed.entry(*port).or_default();
                let Some(reply) = reply else {
                    let (space, ordinal) = (session.space(), executed.len());
                    let pending = Pending { space, request: request.clone(), port: *port, ordinal };
                    self.pending.insert((run.conn, seq), pending);
                    let needs = Needs::default();
                    executed.push(Executed { request, needs, reply: None });
                    continue;
                };
                let needs = model
                    .execute(session, &request, self.now_ms, &reply)
                    .map_err(|error| format!("client {port}, {}: {error}", show(&request)))?;
                if executed.len() as u64 != seq {
                    return Err(format!(
                        "client {port}: request {seq} was executed as number {}",
                        executed.len()
                    ));
                }
                executed.push(Executed { request, needs, reply: Some(reply) });
            }
        }
        self.check_late(replies)
    }

    /// Executes in the model what tx has executed in slices: it takes effect when it ends.
    fn check_late(&mut self, replies: BTreeMap<(ConnId, u64), Reply>) -> Result<(), String> {
        let Some(model) = &mut self.model else { return Ok(()) };
        for (of, reply) in replies {
            let Some(pending) = self.pending.remove(&of) else {
                return Err(format!("a reply to no request: {}", show_reply(&reply)));
            };
            let Pending { space, request, port, ordinal } = pending;
            self.sliced += u64::from(request[0] == b"MSET");
            let mut session = Session::in_space(space);
            let needs = model
                .execute(&mut session, &request, self.now_ms, &reply)
                .map_err(|error| format!("client {port}, {}: {error}", show(&request)))?;
            if let Some(executed) =
                self.executed.get_mut(&port).and_then(|executed| executed.get_mut(ordinal))
            {
                (executed.needs, executed.reply) = (needs, Some(reply));
            }
        }
        Ok(())
    }

    /// Returns the number of snapshots made in this life.
    pub fn snapshots_made(&self) -> u64 {
        self.control.status().made
    }

    /// Runs one step of the log's stage.
    pub fn log_step(&mut self) -> Step {
        self.stage.step(self.clock.now())
    }

    /// Runs one step of the log's helper.
    pub fn helper_step(&mut self) -> Step {
        self.helper.step(self.clock.now())
    }

    /// Lets the thread of the snapshots do so many operations of the disk.
    pub fn snapshot_step(&mut self, operations: u64) {
        self.snapshots.resume(operations);
    }

    /// Removes expired keys and garbage.
    pub fn housekeep(&mut self) {
        let now = read(&self.clock);
        self.now_ms = self.now_ms.max(now.wall_ms);
        self.tx.housekeep(now);
        self.tx.end_turn();
    }

    /// Shuts down: what is executed is written, synced and marked as complete. Returns whether the
    /// log got so far.
    pub fn shut_down(mut self) -> bool {
        self.tx.close_log();
        for _ in 0..SHUTDOWN_STEPS_MAX {
            self.clock.advance(Duration::from_millis(1));
            self.helper.step(self.clock.now());
            if self.stage.step(self.clock.now()) == Step::Ended {
                return self.progress.failure().is_none();
            }
        }
        false
    }
}

/// Number of steps in which a log ends.
const SHUTDOWN_STEPS_MAX: usize = 100_000;

fn settings() -> Settings {
    let table = |name: &str, sync| TableSettings {
        name: name.into(),
        sync,
        memory_max: None,
        evict: Eviction::None,
    };
    let interval = SyncMode::Interval(Duration::from_millis(50));
    let tables = vec![
        table("default", SyncMode::Always),
        table("iv", interval),
        table("os", SyncMode::Os),
        table("off", SyncMode::Off),
    ];
    Settings { tables, ..Settings::default() }
}

/// Returns the replies in a batch by connection and sequence number.
fn replies_of(batch: &RequestBatch) -> Result<BTreeMap<(ConnId, u64), Reply>, String> {
    let mut replies = BTreeMap::new();
    for run in &batch.replies {
        let mut bytes = Vec::new();
        let (first, mut from) = (run.first_shared as usize, run.start);
        for shared in &batch.shared[first..first + run.shared_count as usize] {
            bytes.extend_from_slice(&batch.out[from..shared.at]);
            bytes.extend_from_slice(&shared.bytes);
            from = shared.at;
        }
        bytes.extend_from_slice(&batch.out[from..run.end]);
        let mut rest = &bytes[..];
        for seq in (run.first_seq..).take(run.seq_count as usize) {
            let Ok(Some((reply, length))) = Reply::parse(rest) else {
                return Err(format!("no whole reply: {}", rest.escape_ascii()));
            };
            rest = &rest[length..];
            replies.insert((run.conn, seq), reply);
        }
        if !rest.is_empty() {
            return Err(format!("more than {} replies: {}", run.seq_count, rest.escape_ascii()));
        }
    }
    Ok(replies)
}

fn request_of(batch: &RequestBatch, ordinal: usize) -> Request {
    let request = &batch.requests[ordinal];
    let bytes = batch.request_bytes(request);
    let first = request.first_arg as usize;
    let arguments = &batch.args[first..first + request.arg_count as usize];
    arguments.iter().map(|range| range.of(bytes).to_vec()).collect()
}

fn closed(control: &Control) -> Option<ConnId> {
    match control {
        Control::Closed { conn } => Some(*conn),
        Control::Opened { .. } => None,
    }
}

/// Returns the port by which the model tells clients apart.
fn port_of(peer: &Peer) -> u16 {
    match &peer.remote {
        Address::Tcp(address) => address.port() - FIRST_PORT,
        Address::Unix(path) => panic!("no simulated client is at {}", path.display()),
    }
}

/// Formats a request for people.
pub fn show(request: &Request) -> String {
    let short = |argument: &Vec<u8>| match argument.len() {
        0..=40 => argument.escape_ascii().to_string(),
        length => format!("({length} bytes)"),
    };
    request.iter().map(short).collect::<Vec<_>>().join(" ")
}

fn read(clock: &SimClock) -> Now {
    Now { monotonic: clock.now(), wall_ms: clock.wall_ms() }
}
