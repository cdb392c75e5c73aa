//! Loads whose clients are tasks in this process: closed loop and open loop.
//!
//! ```text
//!   closed:  client task: ask, wait, note, ask, ...            (as many tasks as clients)
//!   open:    timing thread --due times--> task --one task each--> ask, wait, note
//! ```
//!
//! The runtime is either the calling thread alone (no wakeups between threads, the default) or a
//! pool of `workers` threads. Each of its threads notes what it sees in counters of its own.

use std::{
    future::Future,
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, bail};
use tokio::{
    runtime::{Builder, Runtime},
    sync::mpsc,
    task::JoinSet,
};

use super::rows::{Sequence, Sequences};
use crate::{
    clock::{Window, now_ns, pause},
    counters::{Counters, Shards},
    failures::Failure,
    limits::{OPEN_LOOP_DRAIN, OPEN_LOOP_TASKS, SILENCE},
    schedule::Schedule,
    stats::record,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Ask for a row.
    Read,
    /// Write a row whether it exists or not.
    Upsert,
}

/// Target of single-key requests.
pub trait Requests: Send + Sync + 'static {
    /// Asks for a row and checks the answer.
    fn read(&self, row: u64) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Writes a version of a row.
    fn upsert(&self, row: u64, version: u64) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// A load of tasks.
#[derive(Clone, Debug)]
pub struct Plan {
    pub operation: Operation,
    pub sequences: Sequences,
    pub window: Window,
    /// The version of the first upsert.
    pub first_version: u64,
}

/// A runtime and the counters of its threads.
pub struct Tasks {
    runtime: Runtime,
    shards: Arc<Shards>,
}

impl Tasks {
    /// The calling thread alone (`workers` 0), or that many threads.
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

    /// Runs `clients` clients, each with one request under way, until the window ends.
    pub fn run_closed<R: Requests>(
        &self,
        requests: &Arc<R>,
        plan: &Plan,
        clients: usize,
    ) -> Result<Counters> {
        let versions = Arc::new(AtomicU64::new(plan.first_version));
        self.runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for index in 0..clients {
                let client = Client {
                    requests: Arc::clone(requests),
                    operation: plan.operation,
                    versions: Arc::clone(&versions),
                    shards: Arc::clone(&self.shards),
                };
                tasks.spawn(client.repeat(plan.sequences.client(index), plan.window));
            }
            finish(tasks, plan.window).await
        })?;
        self.total(plan, &versions)
    }

    /// Asks `rate` times a second, whatever is still unanswered, until the window ends.
    pub fn run_open<R: Requests>(
        &self,
        requests: &Arc<R>,
        plan: &Plan,
        rate: u64,
    ) -> Result<Counters> {
        let (due, dues) = mpsc::unbounded_channel();
        let versions = Arc::new(AtomicU64::new(plan.first_version));
        let stop = Arc::new(AtomicBool::new(false));
        let until_ns = plan.window.until_ns;
        let stopped = Arc::clone(&stop);
        let timing = std::thread::Builder::new()
            .name("timing".to_owned())
            .spawn(move || announce(&due, Schedule::new(now_ns(), rate), until_ns, &stopped))
            .context("a thread for timing")?;
        let client = Client {
            requests: Arc::clone(requests),
            operation: plan.operation,
            versions: Arc::clone(&versions),
            shards: Arc::clone(&self.shards),
        };
        let result =
            self.runtime.block_on(client.follow(dues, plan.sequences.client(0), plan.window));
        stop.store(true, Ordering::Relaxed);
        timing.join().map_err(|_| anyhow::anyhow!("the timing thread panicked"))?;
        result?;
        self.total(plan, &versions)
    }

    fn total(&self, plan: &Plan, versions: &AtomicU64) -> Result<Counters> {
        let mut total = self.shards.total()?;
        total.versions = versions.load(Ordering::Relaxed) - plan.first_version;
        Ok(total)
    }
}

/// Client that runs as a task.
struct Client<R> {
    requests: Arc<R>,
    operation: Operation,
    versions: Arc<AtomicU64>,
    shards: Arc<Shards>,
}

impl<R> Clone for Client<R> {
    fn clone(&self) -> Self {
        Self {
            requests: Arc::clone(&self.requests),
            operation: self.operation,
            versions: Arc::clone(&self.versions),
            shards: Arc::clone(&self.shards),
        }
    }
}

impl<R: Requests> Client<R> {
    async fn repeat(self, mut rows: Sequence, window: Window) {
        let mut asked_ns = now_ns();
        while asked_ns < window.until_ns {
            let row = rows.next();
            let outcome = self.ask(row).await;
            let answered_ns = now_ns();
            self.note(row, outcome, |counters| counters.answer(window, 1, asked_ns, answered_ns));
            asked_ns = answered_ns;
        }
    }

    /// Starts a task for every request when it is due. Gives up when too many are unanswered: the
    /// system is past its limit.
    async fn follow(
        self,
        mut dues: mpsc::UnboundedReceiver<u64>,
        mut rows: Sequence,
        window: Window,
    ) -> Result<()> {
        let mut tasks = JoinSet::new();
        let unanswered = Arc::new(AtomicUsize::new(0));
        while let Some(due_ns) = dues.recv().await {
            if OPEN_LOOP_TASKS <= unanswered.load(Ordering::Relaxed) {
                self.shards.own().overloaded = true;
                break;
            }
            while tasks.try_join_next().is_some() {}
            unanswered.fetch_add(1, Ordering::Relaxed);
            tasks.spawn(self.clone().ask_once(
                rows.next(),
                due_ns,
                window,
                Arc::clone(&unanswered),
            ));
        }
        let drained = tokio::time::timeout(OPEN_LOOP_DRAIN, async {
            while tasks.join_next().await.is_some() {}
        });
        if drained.await.is_err() {
            tasks.shutdown().await;
        }
        Ok(())
    }

    async fn ask_once(self, row: u64, due_ns: u64, window: Window, unanswered: Arc<AtomicUsize>) {
        let sent_ns = now_ns();
        let mut pending = Pending { shards: &self.shards, due_ns, window, is_answered: false };
        let outcome = self.ask(row).await;
        pending.is_answered = true;
        drop(pending);
        unanswered.fetch_sub(1, Ordering::Relaxed);
        if window.contains(due_ns) {
            record(&mut self.shards.own().late_ns, sent_ns.saturating_sub(due_ns));
        }
        self.note(row, outcome, |counters| counters.answer_due(window, due_ns, now_ns()));
    }

    fn note(&self, row: u64, outcome: Result<(), Failure>, answer: impl FnOnce(&mut Counters)) {
        let mut counters = self.shards.own();
        match outcome {
            Ok(()) => answer(&mut counters),
            Err(failure) => return counters.failed.add(failure),
        }
        if self.operation == Operation::Upsert {
            counters.acknowledge(row);
        }
    }

    async fn ask(&self, row: u64) -> Result<(), Failure> {
        match self.operation {
            Operation::Read => self.requests.read(row).await,
            Operation::Upsert => {
                let version = self.versions.fetch_add(1, Ordering::Relaxed);
                self.requests.upsert(row, version).await
            }
        }
    }
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

/// Waits for all clients.
async fn finish(mut tasks: JoinSet<()>, window: Window) -> Result<()> {
    let left = Duration::from_nanos(window.until_ns.saturating_sub(now_ns()));
    let all = async {
        while let Some(ended) = tasks.join_next().await {
            ended.context("a client")?;
        }
        Ok(())
    };
    match tokio::time::timeout(left + SILENCE, all).await {
        Ok(result) => result,
        Err(_) => {
            bail!("requests are still unanswered {SILENCE:?} after the end of the measurement")
        }
    }
}

/// Says when requests are due, in time. Sleeping is exact to some 10 us with the slack of this
/// thread's timers turned off; it never polls, as that would take a processor from Postgres.
fn announce(
    due: &mpsc::UnboundedSender<u64>,
    mut schedule: Schedule,
    until_ns: u64,
    stop: &AtomicBool,
) {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    while !stop.load(Ordering::Relaxed) {
        while let Some((_, due_ns)) = schedule.poll(now_ns().min(until_ns - 1)) {
            if due.send(due_ns).is_err() {
                return;
            }
        }
        if until_ns <= schedule.next_due_ns() {
            return;
        }
        pause(Duration::from_nanos(schedule.next_due_ns().saturating_sub(now_ns())));
    }
}

#[cfg(test)]
mod tests;
