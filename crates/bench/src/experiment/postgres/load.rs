//! Loads of many clients, closed and open.
//!
//! ```text
//!   closed loop:  each client asks, waits, notes, asks again         (as many as --readers)
//!   open loop:    timing thread --due times--> one task for each request: ask, wait, note
//! ```
//!
//! Clients are tasks of one runtime, whatever they ask, so that ways differ in what answers only:
//! the calling thread alone (no wakeups between threads, the default) or `--workers` threads.

use std::{
    future::Future,
    num::NonZeroU64,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::{
    runtime::{Builder, Runtime},
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinSet,
    time::timeout,
};

use crate::{
    clock::{Window, now_ns, pause},
    counters::Counters,
    failures::Failure,
    limits::{OPEN_LOOP_DRAIN, OPEN_LOOP_TASKS, SILENCE},
    random::Random,
    schedule::Schedule,
    stats::record,
};

#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Number of the client, or in an open loop of the request.
    pub client: usize,
    pub row: u64,
    /// Stamp that the row is to be written with; without one it is read.
    pub stamp: Option<u64>,
}

/// Target that answers the requests of clients.
pub trait Target: Send + Sync + 'static {
    /// Makes a request and checks its answer. Returns how many rows it was about.
    fn ask(&self, request: Request) -> impl Future<Output = Result<u64, Failure>> + Send;
}

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Clients of a closed loop.
    pub clients: usize,
    /// Requests per second of an open loop, whatever is still unanswered.
    pub rate: Option<u64>,
    /// Rows of the table.
    pub rows: u64,
    pub stamp: Option<u64>,
    /// Length of the runs of neighbouring rows that are asked for; with 1 every row is random.
    pub locality: u64,
    pub seed: u64,
}

/// Makes a runtime of the calling thread alone (`workers` 0) or of that many threads.
pub fn runtime(workers: usize) -> Result<Runtime> {
    let mut builder = match workers {
        0 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    builder.worker_threads(workers.max(1)).enable_all().build().context("a runtime")
}

/// Runs clients of `target` until the window ends.
pub fn run<T: Target>(
    runtime: &Runtime,
    target: T,
    plan: Plan,
    window: Window,
) -> Result<Counters> {
    let (asked, counters) = (AtomicU64::new(0), Mutex::new(Counters::new()?));
    let load = Arc::new(Load { target, plan, window, asked, counters });
    match plan.rate {
        None => runtime.block_on(run_closed(&load))?,
        Some(rate) => thread::scope(|scope| {
            let (sender, dues) = unbounded_channel();
            scope.spawn(|| announce(rate, window, sender));
            runtime.block_on(run_open(&load, dues));
        }),
    }
    Ok(std::mem::replace(&mut *load.counters(), Counters::new()?))
}

struct Load<T> {
    target: T,
    plan: Plan,
    window: Window,
    /// Rows asked for so far, by all clients.
    asked: AtomicU64,
    counters: Mutex<Counters>,
}

impl<T: Target> Load<T> {
    fn counters(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Chooses the row of the next request, whoever makes it.
    fn next_row(&self) -> u64 {
        let Plan { rows, locality, seed, .. } = self.plan;
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let first = Random::new(seed.rotate_left(40) ^ (number / locality)).below(rows);
        (first + number % locality) % rows
    }

    /// Notes the answer to a request that was sent, or due, at `since_ns`.
    fn note(&self, row: u64, outcome: Result<u64, Failure>, since_ns: u64, now_ns: u64) {
        let (Plan { rate, stamp, .. }, window) = (self.plan, self.window);
        let mut counters = self.counters();
        match (outcome, rate) {
            (Err(failure), _) => return counters.failed.add(failure),
            (Ok(rows), None) => counters.answer(window, rows, since_ns, now_ns),
            (Ok(_), Some(_)) => counters.answer_due(window, since_ns, now_ns),
        }
        if stamp.is_some() {
            counters.acknowledge(row);
        }
    }

    async fn repeat(self: Arc<Self>, client: usize) {
        let (stamp, mut asked_ns) = (self.plan.stamp, now_ns());
        while asked_ns < self.window.until_ns {
            let row = self.next_row();
            let outcome = self.target.ask(Request { client, row, stamp }).await;
            let answered_ns = now_ns();
            self.note(row, outcome, asked_ns, answered_ns);
            asked_ns = answered_ns;
        }
    }

    async fn ask_once(self: Arc<Self>, request: Request, due_ns: u64) {
        let mut pending = Pending { load: &*self, due_ns, is_answered: false };
        if self.window.contains(due_ns) {
            record(&mut self.counters().late_ns, now_ns().saturating_sub(due_ns));
        }
        let outcome = self.target.ask(request).await;
        pending.is_answered = true;
        self.note(request.row, outcome, due_ns, now_ns());
    }
}

async fn run_closed<T: Target>(load: &Arc<Load<T>>) -> Result<()> {
    let clients = 0..load.plan.clients;
    let tasks: JoinSet<_> = clients.map(|client| Arc::clone(load).repeat(client)).collect();
    let left = Duration::from_nanos(load.window.until_ns.saturating_sub(now_ns()));
    let ended = timeout(left + SILENCE, tasks.join_all()).await;
    ended.map(drop).with_context(|| {
        format!("requests are still unanswered {SILENCE:?} after the end of the measurement")
    })
}

/// Starts a task for every request when it is due. Gives up when too many are unanswered: the
/// system is past its limit.
async fn run_open<T: Target>(load: &Arc<Load<T>>, mut dues: UnboundedReceiver<u64>) {
    let (mut tasks, mut client) = (JoinSet::new(), 0);
    while let Some(due_ns) = dues.recv().await {
        while tasks.try_join_next().is_some() {}
        if OPEN_LOOP_TASKS <= tasks.len() + dues.len() {
            let mut counters = load.counters();
            counters.overloaded = true;
            // Nobody asks what is due already.
            counters.give_up(load.window, due_ns, now_ns());
            while let Ok(due_ns) = dues.try_recv() {
                counters.give_up(load.window, due_ns, now_ns());
            }
            break;
        }
        let request = Request { client, row: load.next_row(), stamp: load.plan.stamp };
        tasks.spawn(Arc::clone(load).ask_once(request, due_ns));
        client += 1;
    }
    drop(dues);
    let all = async { while tasks.join_next().await.is_some() {} };
    if timeout(OPEN_LOOP_DRAIN, all).await.is_err() {
        tasks.shutdown().await;
    }
}

/// Says when requests are due, in time. Sleeping is exact to some 10 us with the slack of this
/// thread's timers turned off; it never polls, as that would take a processor from Postgres.
fn announce(rate: u64, window: Window, dues: UnboundedSender<u64>) {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let mut schedule = Schedule::new(now_ns(), rate);
    while schedule.next_due_ns() < window.until_ns {
        while let Some((_, due_ns)) = schedule.poll(now_ns().min(window.until_ns - 1)) {
            if dues.send(due_ns).is_err() {
                return;
            }
        }
        pause(Duration::from_nanos(schedule.next_due_ns().saturating_sub(now_ns())));
    }
}

/// A request under way; when its task is ended from outside, it counts as never answered.
struct Pending<'a, T: Target> {
    load: &'a Load<T>,
    due_ns: u64,
    is_answered: bool,
}

impl<T: Target> Drop for Pending<'_, T> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.load.counters().give_up(self.load.window, self.due_ns, now_ns());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TRIES;

    #[derive(Clone, Copy, Default)]
    enum Answers {
        #[default]
        AtOnce,
        Never,
        Wrongly,
        /// The 60th request keeps all later ones waiting for 200 ms.
        Stalled,
    }

    #[derive(Default)]
    struct Fake {
        answers: Answers,
        asked: AtomicU64,
        turn: tokio::sync::Mutex<()>,
    }

    impl Target for Arc<Fake> {
        async fn ask(&self, request: Request) -> Result<u64, Failure> {
            assert!(request.row < 1_000);
            let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
            tokio::task::yield_now().await;
            match self.answers {
                Answers::AtOnce => Ok(1),
                Answers::Never => std::future::pending().await,
                Answers::Wrongly => Err(Failure::Wrong("no".to_owned())),
                Answers::Stalled => {
                    let _turn = self.turn.lock().await;
                    if number == 60 {
                        tokio::time::sleep(Duration::from_millis(200)).await;
                    }
                    Ok(1)
                }
            }
        }
    }

    /// Runs a load for some milliseconds after a warm-up of ten, until `is_fine` says that it could
    /// be measured: other work may stand in its way. `is_fine` gets what it counted, and how many
    /// requests the target saw.
    fn check(
        answers: Answers,
        rate: Option<u64>,
        workers: usize,
        ms: u64,
        is_fine: impl Fn(Counters, u64) -> bool,
    ) {
        let was_fine = (0..TRIES).any(|_| {
            let (asked, turn) = Default::default();
            let fake = Arc::new(Fake { answers, asked, turn });
            let from_ns = now_ns() + 10_000_000;
            let window = Window { from_ns, until_ns: from_ns + ms * 1_000_000 };
            let plan = Plan { clients: 7, rate, rows: 1_000, stamp: Some(1), locality: 1, seed: 1 };
            let target = Arc::clone(&fake);
            let counters = run(&runtime(workers).unwrap(), target, plan, window).unwrap();
            is_fine(counters, fake.asked.load(Ordering::SeqCst))
        });
        assert!(was_fine);
    }

    #[test]
    fn every_answer_of_a_closed_loop_is_counted_once_on_any_number_of_threads() {
        for workers in [0, 1, 3] {
            check(Answers::AtOnce, None, workers, 30, |counters, asked| {
                assert_eq!((counters.answered_ever, counters.failed.count()), (asked, 0));
                assert_eq!(counters.latency_ns.len(), counters.answered);
                0 < counters.answered && !counters.acknowledged.is_empty()
            });
        }
        check(Answers::Wrongly, None, 0, 10, |counters, asked| {
            assert_eq!((counters.answered_ever, counters.failed.wrong.count), (0, asked));
            counters.acknowledged.is_empty()
        });
    }

    #[test]
    fn rows_are_random_or_in_runs_and_always_of_the_table() {
        let rows_of = |rows, locality, seed| {
            let plan = Plan { clients: 1, rate: None, rows, stamp: None, locality, seed };
            let window = Window { from_ns: 0, until_ns: 0 };
            let (asked, counters) = (AtomicU64::new(0), Mutex::new(Counters::new().unwrap()));
            let load = Load { target: Arc::<Fake>::default(), plan, window, asked, counters };
            (0..60).map(|_| load.next_row()).collect::<Vec<_>>()
        };
        let (random, runs) = (rows_of(1_000_000, 1, 3), rows_of(1_000_000, 10, 3));
        assert!(random != rows_of(1_000_000, 1, 4) && random == rows_of(1_000_000, 1, 3));
        assert!(runs.chunks(10).all(|run| run.windows(2).all(|pair| pair[0] + 1 == pair[1])));
        let firsts: Vec<_> = runs.iter().step_by(10).copied().collect();
        assert_eq!(firsts, random[..6]);
        // A run at the end of the table goes on at its start.
        assert!(rows_of(7, 10, 1).iter().all(|row| *row < 7));
    }

    #[test]
    fn an_open_loop_asks_at_its_rate() {
        check(Answers::AtOnce, Some(1_000), 0, 190, |counters, asked| {
            assert_eq!((counters.answered_ever, counters.unanswered), (asked, 0));
            assert_eq!(counters.latency_ns.len(), counters.late_ns.len());
            assert!(asked <= 200 && !counters.overloaded, "{asked}");
            100 <= asked
        });
    }

    #[test]
    fn what_is_never_answered_counts_with_the_time_it_waited() {
        check(Answers::Never, Some(500), 0, 40, |counters, _| {
            assert_eq!(counters.answered_ever, 0);
            assert!(counters.unanswered <= 20, "{counters:?}");
            assert_eq!(counters.latency_ns.len(), counters.unanswered);
            // The histogram is exact to a thousandth.
            let least = u128::from(counters.latency_ns.min());
            0 < counters.unanswered && OPEN_LOOP_DRAIN.mul_f64(0.99).as_nanos() <= least
        });
    }

    #[test]
    fn a_stall_is_charged_for_every_request_it_kept_waiting() {
        check(Answers::Stalled, Some(1_000), 0, 390, |counters, _| {
            // 200 of 390 requests waited, half of them at least 100 ms: a closed loop would have
            // noticed one. A machine that is busy stalls by itself: then more of them waited.
            80_000_000 < counters.latency_ns.value_at_quantile(0.8)
                && counters.latency_ns.value_at_quantile(0.2) < 80_000_000
        });
    }
}
