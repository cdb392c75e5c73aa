//! Runs the lives of a server on one disk, as one seed decides.

use std::time::Duration;

use busload_io::{
    DiskErrorKind, DiskOperation, Rng,
    sim::{CrashKind, Fault, SimClock, SimDisk, SimRng},
};
use busload_log::Lsn;
use busload_resp::reply::Reply;
use busload_snapshot::limits::CATCH_UP_PERCENT;

use crate::{
    clients::Client,
    history::{Contents, Ending, Entry, History, Value},
    model::{pairs, place},
    server::{Server, Shape, Trace},
    workload::{Workload, words},
};

/// Numbers of what a run has seen, and a hash of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Hash of all replies, operations of the disk, and contents found.
    pub hash: u64,
    /// Number of starts that succeeded.
    pub starts: u64,
    /// Number of those that began with a snapshot.
    pub from_snapshot: u64,
    /// Number of crashes during a start.
    pub crashed_starts: u64,
    /// Number of power losses.
    pub power_losses: u64,
    /// Number of requests executed.
    pub requests: u64,
    /// Number of those refused because the disk was full.
    pub refused: u64,
    /// Number of writes executed in slices, with records in parts.
    pub sliced: u64,
    /// Number of transactions that changed something.
    pub transactions: u64,
    /// Number of transactions that a crash took; nobody had seen them.
    pub transactions_lost: u64,
    /// Number of snapshots made.
    pub snapshots: u64,
    /// Number of those in which a bit was flipped.
    pub spoiled_snapshots: u64,
    /// Number of lives that a failing disk ended.
    pub disk_failures: u64,
}

impl Outcome {
    /// Adds the numbers of another run.
    pub fn add(&mut self, other: &Outcome) {
        self.hash = mix(self.hash, other.hash);
        self.starts += other.starts;
        self.from_snapshot += other.from_snapshot;
        self.crashed_starts += other.crashed_starts;
        self.power_losses += other.power_losses;
        self.requests += other.requests;
        self.refused += other.refused;
        self.sliced += other.sliced;
        self.transactions += other.transactions;
        self.transactions_lost += other.transactions_lost;
        self.snapshots += other.snapshots;
        self.spoiled_snapshots += other.spoiled_snapshots;
        self.disk_failures += other.disk_failures;
    }
}

/// A run that showed an error of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Seed that shows it again.
    pub seed: u64,
    /// Number of the life in which it showed.
    pub life: usize,
    /// Error of the server, as text.
    pub text: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "seed {}, life {}: {}", self.seed, self.life, self.text)
    }
}

impl std::error::Error for Failure {}

/// Most clients that are connected at once.
const CLIENTS_MAX: u64 = 6;

/// Most lives of one run: it starts once, and again after each crash.
const LIVES_MAX: u64 = 6;

/// Most steps of one life.
const STEPS_MAX: u64 = 1_500;

/// Number of rounds in which everything that was sent must be answered once nothing fails.
const QUIET_ROUNDS: usize = 5_000;

/// Runs a server through some lives, until it holds everything that it must or does not.
///
/// # Errors
/// If it does not.
pub fn run(seed: u64, trace: Trace) -> Result<Outcome, Failure> {
    let mut rng = SimRng::new(seed);
    let lives = 2 + rng.below(LIVES_MAX - 1);
    let mut run = Run {
        workload: Workload::draw(&mut rng),
        disk: SimDisk::new(),
        clock: SimClock::new(1_700_000_000_000),
        history: History::default(),
        spoiled: Vec::new(),
        ending: Ending::Kill,
        outcome: Outcome::default(),
        trace,
        may_have_failed: false,
        rng,
    };
    for life in 0..lives as usize {
        let is_last = life + 1 == lives as usize;
        run.live(is_last).map_err(|text| Failure { seed, life, text })?;
    }
    Ok(run.outcome)
}

/// Everything that outlives the server.
struct Run {
    rng: SimRng,
    disk: SimDisk,
    clock: SimClock,
    workload: Workload,
    /// Transactions since the contents were known.
    history: History,
    /// Snapshots in which a bit was flipped.
    spoiled: Vec<Lsn>,
    /// Worst end of a life since then.
    ending: Ending,
    outcome: Outcome,
    trace: Trace,
    /// True if a failure of the disk was planned for this life.
    may_have_failed: bool,
}

/// Chances of the events of a life.
struct Chances([u64; 9]);

impl Chances {
    fn draw(rng: &mut SimRng) -> Self {
        let least = [1, 1, 0, 1, 1, 0, 0, 1, 0];
        let most = [8, 8, 4, 8, 4, 8, 2, 3, 2];
        let mut drawn = [0; 9];
        for (index, chance) in drawn.iter_mut().enumerate() {
            *chance = least[index] + rng.below(most[index]);
        }
        Self(drawn)
    }

    fn pick(&self, rng: &mut SimRng) -> usize {
        let mut left = rng.below(self.0.iter().sum());
        for (index, chance) in self.0.iter().enumerate() {
            match left.checked_sub(*chance) {
                Some(rest) => left = rest,
                None => return index,
            }
        }
        unreachable!("a number below the sum of all chances")
    }
}

impl Run {
    /// Runs a server from its start to its end.
    fn live(&mut self, is_last: bool) -> Result<(), String> {
        self.may_have_failed = false;
        let shape = self.draw_shape();
        if !is_last {
            self.plan_faults();
        }
        let Some(mut server) = self.start(shape)? else { return Ok(()) };
        if !self.verify(&mut server)? {
            self.end(server);
            return Ok(());
        }
        let mut clients: Vec<Client> = Vec::new();
        for _ in 0..=self.rng.below(CLIENTS_MAX) {
            clients.push(Client::connect(&server.clients));
        }
        let chances = Chances::draw(&mut self.rng);
        let steps = 50 + self.rng.below(STEPS_MAX);
        for _ in 0..steps {
            if server.failure().is_some() || self.disk.is_crashed() {
                break;
            }
            self.step(&chances, &mut server, &mut clients)?;
        }
        if is_last || self.rng.chance(1, 3) {
            return self.shut_down(server, clients);
        }
        self.end(server);
        Ok(())
    }

    fn draw_shape(&mut self) -> Shape {
        let rng = &mut self.rng;
        Shape {
            segment_bytes: [16 << 10, 32 << 10, 64 << 10][rng.index(3)],
            snapshot_log_bytes: [2 << 10, 16 << 10, 100 << 10][rng.index(3)],
            memory_bytes: [0, 100 << 20, 1 << 30][rng.index(3)],
            catch_up_percent: [0, CATCH_UP_PERCENT][rng.index(2)],
            piece_bytes_max: match self.workload.has_huge {
                true => 64 << 10,
                false => [64, 4_096][rng.index(2)],
            },
            trace: self.trace,
        }
    }

    /// Plans what the disk does in this life.
    fn plan_faults(&mut self) {
        let rng = &mut self.rng;
        let after = self.disk.operation_count();
        match rng.below(10) {
            0..2 => self.disk.crash_at(after + rng.below(40)),
            2..5 => self.disk.crash_at(after + rng.below(1_500)),
            5..8 => {
                let operations = [
                    DiskOperation::Write,
                    DiskOperation::Write,
                    DiskOperation::Sync,
                    DiskOperation::Sync,
                    DiskOperation::Create,
                    DiskOperation::Rename,
                    DiskOperation::Remove,
                    DiskOperation::SyncDirectory,
                    DiskOperation::Read,
                ];
                let operation = operations[rng.index(operations.len())];
                self.inject(operation, 150);
            }
            _ => {}
        }
    }

    /// Lets one of the next operations of a kind fail.
    fn inject(&mut self, operation: DiskOperation, within: u64) {
        let after = self.rng.below(within);
        self.disk.inject(Fault::once(operation, after, DiskErrorKind::Failed));
        self.may_have_failed = true;
    }

    /// Starts a server; `None` if the machine crashed or failed meanwhile.
    fn start(&mut self, shape: Shape) -> Result<Option<Server>, String> {
        let had_snapshot = busload_snapshot::newest_first(&self.disk).is_ok_and(|l| !l.is_empty());
        match Server::start(&self.disk, &self.clock, shape, &mut self.rng) {
            Ok(server) => {
                self.outcome.starts += 1;
                self.outcome.from_snapshot += u64::from(had_snapshot);
                Ok(Some(server))
            }
            Err(_) if self.disk.is_crashed() => {
                self.outcome.crashed_starts += 1;
                self.crash();
                Ok(None)
            }
            Err(error) => {
                // A failure of the disk, planned or left from before, ends the process. Without one
                // the next start must succeed.
                self.disk.clear_faults();
                self.disk = self.disk.crash(&mut self.rng, CrashKind::KeepAll);
                match Server::start(&self.disk, &self.clock, shape, &mut self.rng) {
                    Ok(server) => {
                        self.outcome.disk_failures += 1;
                        self.outcome.starts += 1;
                        Ok(Some(server))
                    }
                    Err(_) => Err(format!("the start is refused: {error}")),
                }
            }
        }
    }

    /// Reads everything and compares it with the history. Returns false if the machine crashed
    /// meanwhile.
    fn verify(&mut self, server: &mut Server) -> Result<bool, String> {
        let Some(found) = self.read_all(server)? else { return Ok(false) };
        let now_ms = server.now_ms();
        let survived = self.history.check(&found, now_ms, self.ending)?;
        self.outcome.transactions_lost += (self.history.len() - survived) as u64;
        self.outcome.hash = mix(self.outcome.hash, survived as u64);
        (self.history, self.ending) = (History::default(), Ending::Kill);
        server.verified(found);
        Ok(true)
    }

    fn read_all(&mut self, server: &mut Server) -> Result<Option<Contents>, String> {
        let clients = server.clients.clone();
        let mut client = Client::connect(&clients);
        let mut found = Contents::new();
        let mut selected = 0;
        for (space, key) in self.workload.keys() {
            if space != selected {
                client.send(&clients, words(&["SELECT", "1"]));
                let Some(_) = self.answers(server, &mut client)? else { return Ok(None) };
                selected = space;
            }
            for name in ["GET", "HGETALL", "PEXPIRETIME"] {
                client.send(&clients, vec![name.into(), key.clone()]);
            }
            let Some(replies) = self.answers(server, &mut client)? else { return Ok(None) };
            let value = match &replies[..] {
                [Reply::Null(_), ..] => continue,
                [Reply::Bulk(value), ..] => Value::String(value.clone()),
                [_, Reply::Array(elements), _] => {
                    Value::Hash(pairs(elements).ok_or("pairs are expected")?)
                }
                other => return Err(format!("{}: {other:?}", key.escape_ascii())),
            };
            let [.., Reply::Integer(expiry_ms)] = replies[..] else {
                return Err(format!("{}: {replies:?}", key.escape_ascii()));
            };
            let expiry_ms = Some(expiry_ms).filter(|expiry_ms| 0 <= *expiry_ms);
            found.insert(place(space, &key), Entry { value, expiry_ms });
        }
        client.close(&clients);
        Ok(Some(found))
    }

    /// Waits for the replies to everything the client has sent; `None` if the machine crashed.
    fn answers(
        &mut self,
        server: &mut Server,
        client: &mut Client,
    ) -> Result<Option<Vec<Reply>>, String> {
        let mut replies = Vec::new();
        for _ in 0..QUIET_ROUNDS {
            if self.disk.is_crashed() || server.failure().is_some() {
                return Ok(None);
            }
            server.turn()?;
            server.log_step();
            server.helper_step();
            replies.extend(client.replies(&server.clients)?);
            if client.is_answered() {
                return Ok(Some(replies));
            }
        }
        Err("reads after a start were never answered".into())
    }

    /// Makes one random event happen.
    fn step(
        &mut self,
        chances: &Chances,
        server: &mut Server,
        clients: &mut [Client],
    ) -> Result<(), String> {
        let rng = &mut self.rng;
        let who = rng.index(clients.len());
        match chances.pick(rng) {
            0 => clients[who].send_some(&server.clients, rng, &mut self.workload),
            1 => server.turn()?,
            2 => server.overlapped_turn()?,
            3 => _ = server.log_step(),
            4 => _ = server.helper_step(),
            5 => server.snapshot_step(1 + rng.below(40)),
            6 => server.housekeep(),
            7 => self.pass_time(),
            _ => self.disturb(server, clients, who),
        }
        self.receive(server, clients)
    }

    fn receive(&mut self, server: &mut Server, clients: &mut [Client]) -> Result<(), String> {
        for client in clients {
            self.outcome.hash = mix(self.outcome.hash, client.receive(server)?);
        }
        Ok(())
    }

    fn pass_time(&mut self) {
        let ms = match self.rng.below(30) {
            0 => 31_000,
            1..4 => self.rng.below(1_000),
            _ => self.rng.below(4),
        };
        self.clock.advance(Duration::from_millis(ms));
    }

    fn disturb(&mut self, server: &mut Server, clients: &mut [Client], who: usize) {
        let rng = &mut self.rng;
        match rng.below(10) {
            0 => {
                let used: usize = self.disk.snapshot().values().map(Vec::len).sum();
                let room = [0, 3_000, 40_000, 200_000][rng.index(4)];
                self.disk.set_space(Some(used as u64 + room));
            }
            1..4 => self.disk.set_space(None),
            4..7 if clients[who].misbehave(&server.clients, rng) => {
                clients[who] = Client::connect(&server.clients);
            }
            _ => {}
        }
    }

    /// Waits until everything is answered, then shuts down.
    fn shut_down(&mut self, mut server: Server, mut clients: Vec<Client>) -> Result<(), String> {
        self.disk.set_space(None);
        self.disk.clear_faults();
        for client in &mut clients {
            client.read_again(&server.clients);
        }
        let mut rounds = 0;
        while !clients.iter().all(Client::is_answered) {
            if self.disk.is_crashed() || server.failure().is_some() {
                self.end(server);
                return Ok(());
            }
            if QUIET_ROUNDS <= rounds {
                let waiting = clients.iter().filter_map(|client| client.waiting(&server));
                let waiting: Vec<_> = waiting.collect();
                return Err(format!(
                    "never answered: {}; {}",
                    waiting.join(", "),
                    server.progress_text()
                ));
            }
            rounds += 1;
            self.clock.advance(Duration::from_millis(20));
            server.turn()?;
            server.log_step();
            server.helper_step();
            server.snapshot_step(1_000);
            self.receive(&mut server, &mut clients)?;
        }
        self.note(&mut server);
        if self.rng.chance(1, 3) {
            let operation = [DiskOperation::Write, DiskOperation::Sync, DiskOperation::Rename]
                [self.rng.index(3)];
            self.inject(operation, 3);
        }
        if server.shut_down() {
            self.history.observe_all();
        }
        self.crash();
        Ok(())
    }

    /// Ends the process, or the machine.
    fn end(&mut self, mut server: Server) {
        if server.failure().is_some() && !self.disk.is_crashed() {
            self.outcome.disk_failures += 1;
        }
        self.note(&mut server);
        drop(server);
        self.crash();
    }

    /// Takes over what the server's life adds to the history.
    fn note(&mut self, server: &mut Server) {
        self.outcome.requests += server.executed.values().map(|of| of.len() as u64).sum::<u64>();
        let executed = server.executed.values().flatten();
        self.outcome.refused += executed.filter(|executed| executed.is_refused()).count() as u64;
        self.outcome.sliced += server.sliced;
        self.outcome.snapshots += server.snapshots_made();
        // A server that was not verified has executed nothing but reads.
        if let Some(model) = server.model.take() {
            self.outcome.transactions += model.history.len() as u64;
            self.history = model.history;
        }
    }

    /// Continues with the disk that a crash leaves.
    fn crash(&mut self) {
        let kinds = [CrashKind::KeepAll, CrashKind::DropUnsynced, CrashKind::AnySubset];
        let kind = kinds[self.rng.index(kinds.len())];
        if self.trace == Trace::On {
            println!("{kind:?} after {} operations of the disk", self.disk.operation_count());
        }
        // What a failed sync left in memory may go before it is read again, or long after.
        if self.rng.chance(1, 3) {
            self.disk.evict_pages();
            if self.may_have_failed {
                self.ending = Ending::PowerLoss;
            }
        }
        if kind != CrashKind::KeepAll {
            self.ending = Ending::PowerLoss;
            self.outcome.power_losses += 1;
        }
        self.outcome.hash = mix(self.outcome.hash, self.disk.operation_count());
        self.disk = self.disk.crash(&mut self.rng, kind);
        self.spoil_snapshot();
        // The space may have been freed meanwhile; a start needs some.
        self.disk.set_space(None);
    }
}

impl Run {
    /// Flips a bit of the newest snapshot now and then, if the one before is as it should be.
    fn spoil_snapshot(&mut self) {
        let lsns = busload_snapshot::newest_first(&self.disk).unwrap_or_default();
        let [newest, before, ..] = lsns[..] else { return };
        if self.spoiled.contains(&newest) || self.spoiled.contains(&before) {
            return;
        }
        if self.rng.chance(1, 5) {
            let name = busload_snapshot::format::snapshot_name(newest);
            let length = self.disk.contents(&name).map_or(0, |contents| contents.len());
            let offset = self.rng.index(length.max(1)) as u64;
            self.disk.flip_bit(&name, offset, self.rng.below(8) as u8);
            self.spoiled.push(newest);
            self.outcome.spoiled_snapshots += 1;
        }
    }
}

/// Mixes a number into a hash.
fn mix(hash: u64, number: u64) -> u64 {
    SimRng::new(hash ^ number.rotate_left(32)).next_u64()
}
