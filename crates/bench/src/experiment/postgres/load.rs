//! Loads of many clients, closed and open.
//!
//! ```text
//!   closed loop:  each client asks, waits, notes, asks again         (as many as --readers)
//!   open loop:    timing thread --due times--> one task for each request: ask, wait, note
//! ```
//!
//! Clients are tasks of one runtime, whatever they ask, so that ways differ in what answers only:
//! the calling thread alone (no wakeups between threads, the default) or `--workers` threads. Every
//! thread notes what it sees in counters of its own.

use std::{
    future::Future,
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use tokio::{
    runtime::{Builder, Runtime},
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinSet,
    time::timeout,
};

use super::{
    cases::{Case, Operation, Pace},
    rows::Sequence,
};
use crate::{
    clock::{Window, now_ns, pause},
    counters::{Counters, Shards},
    failures::Failure,
    limits::{OPEN_LOOP_DRAIN, OPEN_LOOP_TASKS, SILENCE},
    schedule::Schedule,
    stats::record,
};

/// A request for a row.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Number of the client, or in an open loop of the request.
    pub client: usize,
    pub row: u64,
    /// Version of the row that is to be written; without one it is read.
    pub version: Option<u64>,
}

/// Target that answers the requests of clients.
pub trait Target: Send + Sync + 'static {
    /// Makes a request and checks its answer. Returns how many rows it was about.
    fn ask(&self, request: Request) -> impl Future<Output = Result<u64, Failure>> + Send;
}

/// Plan of a load.
#[derive(Clone, Debug)]
pub struct Plan {
    pub case: Case,
    /// Rows of the table.
    pub rows: u64,
    pub seed: u64,
    pub window: Window,
    /// Version of the first upsert.
    pub first_version: u64,
}

impl Plan {
    /// Makes one sequence of rows after the other for the clients.
    fn sequences(&self) -> impl Iterator<Item = Sequence> + use<> {
        Sequence::of_clients(self.case.keys, self.rows, self.seed)
    }
}

/// The runtime of a load, and the counters of its threads.
pub struct Tasks {
    runtime: Runtime,
    shards: Arc<Shards>,
}

impl Tasks {
    /// Makes a runtime of the calling thread alone (`workers` 0) or of that many threads.
    pub fn new(workers: usize) -> Result<Self> {
        let shards = Arc::new(Shards::new(workers)?);
        let mut builder = match workers {
            0 => Builder::new_current_thread(),
            _ => Builder::new_multi_thread(),
        };
        if 0 < workers {
            let entered = Arc::clone(&shards);
            builder.worker_threads(workers).on_thread_start(move || entered.enter());
        }
        let runtime = builder.enable_all().build().context("a runtime")?;
        Ok(Self { runtime, shards })
    }

    /// Runs something on the runtime, as opening connections.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Runs clients of `target` until the window ends.
    pub fn run<T: Target>(&self, target: T, plan: Plan) -> Result<Counters> {
        let load = Arc::new(Load {
            target,
            versions: AtomicU64::new(plan.first_version),
            unanswered: AtomicUsize::new(0),
            shards: Arc::clone(&self.shards),
            plan,
        });
        match load.plan.case.pace {
            Pace::Closed => self.block_on(run_closed(&load))?,
            Pace::Rate(rate) => thread::scope(|scope| {
                let (sender, dues) = unbounded_channel();
                let timing = thread::Builder::new().name("timing".to_owned());
                let announced = timing.spawn_scoped(scope, || load.announce(rate, sender));
                announced.context("a thread for timing")?;
                self.block_on(follow(&load, dues))
            })?,
        }
        let mut total = self.shards.total()?;
        total.versions = load.versions.load(Ordering::Relaxed) - load.plan.first_version;
        Ok(total)
    }
}

/// A load under way.
struct Load<T> {
    target: T,
    plan: Plan,
    shards: Arc<Shards>,
    versions: AtomicU64,
    /// Requests of an open loop without an answer.
    unanswered: AtomicUsize,
}

impl<T: Target> Load<T> {
    async fn ask(&self, client: usize, row: u64) -> Result<u64, Failure> {
        let next = || self.versions.fetch_add(1, Ordering::Relaxed);
        let version = (self.plan.case.operation == Operation::Upsert).then(next);
        self.target.ask(Request { client, row, version }).await
    }

    /// Notes the answer to a request that was sent, or due, at `since_ns`.
    fn note(&self, row: u64, outcome: Result<u64, Failure>, since_ns: u64, now_ns: u64) {
        let (window, case) = (self.plan.window, self.plan.case);
        let mut counters = self.shards.own();
        match (outcome, case.pace) {
            (Err(failure), _) => return counters.failed.add(failure),
            (Ok(rows), Pace::Closed) => counters.answer(window, rows, since_ns, now_ns),
            (Ok(_), Pace::Rate(_)) => counters.answer_due(window, since_ns, now_ns),
        }
        if case.operation == Operation::Upsert {
            counters.acknowledge(row);
        }
    }

    /// Says when requests are due, in time. Gives up when too many are unanswered: the system is
    /// past its limit. Sleeping is exact to some 10 us with the slack of this thread's timers
    /// turned off; it never polls, as that would take a processor from Postgres.
    fn announce(&self, rate: u64, dues: UnboundedSender<u64>) {
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let until_ns = self.plan.window.until_ns;
        let mut schedule = Schedule::new(now_ns(), rate);
        while schedule.next_due_ns() < until_ns {
            while let Some((_, due_ns)) = schedule.poll(now_ns().min(until_ns - 1)) {
                if OPEN_LOOP_TASKS <= self.unanswered.fetch_add(1, Ordering::Relaxed) {
                    self.shards.own().overloaded = true;
                    return;
                }
                let _ = dues.send(due_ns);
            }
            pause(Duration::from_nanos(schedule.next_due_ns().saturating_sub(now_ns())));
        }
    }
}

/// Runs the clients of a closed loop.
async fn run_closed<T: Target>(load: &Arc<Load<T>>) -> Result<()> {
    let mut clients = JoinSet::new();
    let sequences = load.plan.sequences().take(load.plan.case.clients);
    for (client, rows) in sequences.enumerate() {
        clients.spawn(repeat(Arc::clone(load), client, rows));
    }
    let left = Duration::from_nanos(load.plan.window.until_ns.saturating_sub(now_ns()));
    let all = async {
        while let Some(ended) = clients.join_next().await {
            ended.context("a client")?;
        }
        Ok(())
    };
    match timeout(left + SILENCE, all).await {
        Ok(ended) => ended,
        Err(_) => {
            bail!("requests are still unanswered {SILENCE:?} after the end of the measurement")
        }
    }
}

async fn repeat<T: Target>(load: Arc<Load<T>>, client: usize, mut rows: Sequence) {
    let mut asked_ns = now_ns();
    while asked_ns < load.plan.window.until_ns {
        let row = rows.next();
        let outcome = load.ask(client, row).await;
        let answered_ns = now_ns();
        load.note(row, outcome, asked_ns, answered_ns);
        asked_ns = answered_ns;
    }
}

/// Starts a task for every request of an open loop when it is due.
async fn follow<T: Target>(load: &Arc<Load<T>>, mut dues: UnboundedReceiver<u64>) -> Result<()> {
    let mut tasks = JoinSet::new();
    let mut rows = load.plan.sequences().next().context("a sequence of rows")?;
    let mut number = 0;
    while let Some(due_ns) = dues.recv().await {
        while tasks.try_join_next().is_some() {}
        tasks.spawn(ask_once(Arc::clone(load), number, rows.next(), due_ns));
        number += 1;
    }
    let all = async { while tasks.join_next().await.is_some() {} };
    if timeout(OPEN_LOOP_DRAIN, all).await.is_err() {
        tasks.shutdown().await;
    }
    Ok(())
}

async fn ask_once<T: Target>(load: Arc<Load<T>>, number: usize, row: u64, due_ns: u64) {
    let (window, sent_ns) = (load.plan.window, now_ns());
    if window.contains(due_ns) {
        record(&mut load.shards.own().late_ns, sent_ns.saturating_sub(due_ns));
    }
    let mut pending = Pending { shards: &load.shards, due_ns, window, is_answered: false };
    let outcome = load.ask(number, row).await;
    pending.is_answered = true;
    load.unanswered.fetch_sub(1, Ordering::Relaxed);
    load.note(row, outcome, due_ns, now_ns());
}

/// A request under way; when its task is ended from outside, it counts as never answered.
struct Pending<'a> {
    shards: &'a Shards,
    due_ns: u64,
    window: Window,
    is_answered: bool,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.shards.own().give_up(self.window, self.due_ns, now_ns());
        }
    }
}

#[cfg(test)]
mod tests;
