//! The pool over sessions that a script opens, fails and ends, on tokio's paused clock.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicUsize, Ordering},
};

use tokio::sync::Notify;

use super::*;
use crate::{
    Environment, Options,
    limits::{BACKOFF_MAX, BACKOFF_MIN, CONNECTION_IDLE_MAX, GROWTH_PAUSE},
};

/// Result of the next attempts; after the script all succeed.
enum Step {
    Fail(&'static str),
    Hang,
    Panic,
}

#[derive(Default)]
struct Script {
    steps: Mutex<VecDeque<Step>>,
    /// Times at which attempts began.
    attempts: Mutex<Vec<Instant>>,
    /// Semaphore that attempts take a permit of while it is set.
    gate: Mutex<Option<Arc<tokio::sync::Semaphore>>>,
    sessions: Mutex<Vec<Arc<Fate>>>,
    alive: Arc<AtomicUsize>,
}

/// The server's end of a session.
#[derive(Default)]
struct Fate {
    over: watch::Sender<bool>,
    /// Notifier for ends that are not noticed at once.
    notice: Notify,
}

impl Fate {
    fn end(&self) {
        self.over.send_replace(true);
        self.notice.notify_one();
    }

    /// Ends the session before the task that waits for it is notified.
    fn end_unnoticed(&self) {
        self.over.send_replace(true);
    }
}

struct Fake {
    id: usize,
    fate: Arc<Fate>,
    alive: Arc<AtomicUsize>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Session for Fake {
    type Context = Script;

    async fn open(_: &Arc<Settings>, script: &Arc<Script>) -> Result<Self, Error> {
        script.attempts.lock().unwrap().push(Instant::now());
        let gate = script.gate.lock().unwrap().clone();
        if let Some(gate) = gate {
            gate.acquire().await.unwrap().forget();
        }
        let step = script.steps.lock().unwrap().pop_front();
        match step {
            Some(Step::Fail(text)) => return Err(Error::CannotConnect(text.into())),
            Some(Step::Hang) => std::future::pending::<()>().await,
            Some(Step::Panic) => panic!("as the script says"),
            None => {}
        }
        let fate = Arc::new(Fate::default());
        let mut sessions = script.sessions.lock().unwrap();
        sessions.push(fate.clone());
        script.alive.fetch_add(1, Ordering::SeqCst);
        Ok(Self { id: sessions.len() - 1, fate, alive: script.alive.clone() })
    }

    async fn ended(&self) -> Arc<str> {
        self.fate.notice.notified().await;
        format!("session {} lost", self.id).into()
    }

    fn is_over(&self) -> bool {
        *self.fate.over.borrow()
    }
}

impl Script {
    fn of(steps: impl IntoIterator<Item = Step>) -> Arc<Self> {
        Arc::new(Self { steps: Mutex::new(steps.into_iter().collect()), ..Self::default() })
    }

    fn push(&self, steps: impl IntoIterator<Item = Step>) {
        self.steps.lock().unwrap().extend(steps);
    }

    fn fate(&self, id: usize) -> Arc<Fate> {
        self.sessions.lock().unwrap()[id].clone()
    }

    fn attempts(&self) -> usize {
        self.attempts.lock().unwrap().len()
    }

    /// Makes attempts wait for permits from now on.
    fn close_gate(&self) -> Arc<tokio::sync::Semaphore> {
        let gate = Arc::new(tokio::sync::Semaphore::new(0));
        *self.gate.lock().unwrap() = Some(gate.clone());
        gate
    }
}

fn pool(connections: usize, script: &Arc<Script>) -> Pool<Fake> {
    let options = Options {
        url: Some(format!("postgres://u@db/d?relation=t&key=k&connections={connections}")),
        ..Options::default()
    };
    let settings = options.resolve("objects", &Environment::empty()).unwrap();
    Pool::start(Arc::new(settings), script.clone())
}

/// Runs every task until it waits for time or for another task.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// On the paused clock a minute passes as soon as every task is idle.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(60), future).await.expect("not for ever")
}

async fn until_all_open(pool: &Pool<Fake>) {
    soon(until_up(pool)).await;
}

async fn until_up(pool: &Pool<Fake>) {
    while pool.state().up < pool.state().wanted {
        let mut changed = pool.shared.changed.subscribe();
        if pool.state().up < pool.state().wanted {
            changed.changed().await.unwrap();
        }
    }
}

fn cannot(text: &'static str) -> Error {
    Error::CannotConnect(text.into())
}

#[tokio::test(start_paused = true)]
async fn leases_go_to_the_session_with_the_fewest() {
    let script = Script::of([]);
    let pool = pool(3, &script);
    until_all_open(&pool).await;
    let mut leases = Vec::new();
    for round in 0..2 {
        let mut ids = Vec::new();
        for _ in 0..3 {
            let lease = pool.acquire().await.unwrap();
            ids.push(lease.id);
            leases.push(lease);
        }
        ids.sort_unstable();
        assert_eq!(ids, [0, 1, 2], "round {round}");
    }
    let given_back = leases.remove(4);
    let id = given_back.id;
    drop(given_back);
    assert_eq!(pool.acquire().await.unwrap().id, id);
}

/// A write may wait for a row's lock, and a read behind it on its session with it.
#[tokio::test(start_paused = true)]
async fn reads_avoid_sessions_with_writes() {
    let pool = pool(3, &Script::of([]));
    until_all_open(&pool).await;
    let writes = [(); 2].map(|()| pool.acquire_for(Purpose::Write));
    let [one, other] = futures_util::future::join_all(writes).await.try_into().unwrap();
    let (one, other) = (one.unwrap(), other.unwrap());
    let mut reads = Vec::new();
    for _ in 0..3 {
        let read = pool.acquire().await.unwrap();
        assert!(read.id != one.id && read.id != other.id, "{}", read.id);
        reads.push(read);
    }
    drop(one);
    assert_ne!(pool.acquire().await.unwrap().id, other.id);
    let id = pool.acquire_for(Purpose::Write).await.unwrap().id;
    assert_ne!(id, other.id, "the session whose write has ended is idle");
}

#[tokio::test(start_paused = true)]
async fn acquire_waits_for_the_first_attempts_and_for_nothing_behind_them() {
    let script = Script::of([Step::Fail("one"), Step::Fail("two")]);
    let gate = script.close_gate();
    let pool = Arc::new(pool(2, &script));
    let waiting = tokio::spawn({
        let pool = pool.clone();
        async move { pool.acquire().await.map(|lease| lease.id) }
    });
    settle().await;
    assert!(!waiting.is_finished());
    gate.add_permits(1);
    settle().await;
    assert!(!waiting.is_finished(), "the other slot's first attempt may still succeed");
    gate.add_permits(1);
    assert_eq!(soon(waiting).await.unwrap(), Err(cannot("two")));
    let began = Instant::now();
    assert_eq!(pool.acquire().await.map(|lease| lease.id), Err(cannot("two")));
    assert_eq!(pool.first_attempt().await, Err(cannot("two")));
    assert_eq!(began.elapsed(), Duration::ZERO);
    // Later attempts succeed by themselves.
    gate.add_permits(2);
    until_all_open(&pool).await;
    assert_eq!(pool.first_attempt().await, Ok(()));
    let state = pool.state();
    assert_eq!((state.up, state.opened, state.failed, state.lost), (2, 2, 2, 0));
    assert_eq!(state.last_error, None);
}

#[tokio::test(start_paused = true)]
async fn attempts_back_off_up_to_the_limit() {
    let script = Script::of((0..12).map(|_| Step::Fail("down")));
    let pool = pool(1, &script);
    until_all_open(&pool).await;
    let attempts = script.attempts.lock().unwrap().clone();
    assert_eq!(attempts.len(), 13);
    let mut nominal = BACKOFF_MIN;
    for pair in attempts.windows(2) {
        let pause = pair[1] - pair[0];
        // The clock's step is a millisecond.
        assert!(
            nominal / 2 <= pause && pause <= nominal + Duration::from_millis(1),
            "{pause:?} of {nominal:?}"
        );
        nominal = (2 * nominal).min(BACKOFF_MAX);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_session_is_opened_anew_at_once_and_waited_for() {
    let script = Script::of([]);
    let pool = pool(1, &script);
    pool.first_attempt().await.unwrap();
    tokio::time::advance(Duration::from_secs(60)).await;
    let lease = pool.acquire().await.unwrap();
    script.fate(0).end();
    let began = Instant::now();
    assert_eq!(pool.acquire_other(&lease).await.unwrap().id, 1);
    assert_eq!(pool.acquire().await.unwrap().id, 1);
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(pool.state().lost, 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_has_ended_is_never_leased() {
    let script = Script::of([]);
    let pool = Arc::new(pool(2, &script));
    until_all_open(&pool).await;
    script.fate(0).end_unnoticed();
    for _ in 0..4 {
        let lease = pool.acquire().await.unwrap();
        assert_eq!(lease.id, 1);
        std::mem::forget(lease);
    }
    assert_eq!(pool.state().up, 1);
    script.fate(1).end_unnoticed();
    let waiting = tokio::spawn({
        let pool = pool.clone();
        async move { pool.acquire().await.map(|lease| lease.id) }
    });
    settle().await;
    assert!(!waiting.is_finished());
    tokio::time::advance(Duration::from_secs(60)).await;
    script.fate(0).end();
    assert_eq!(soon(waiting).await.unwrap(), Ok(2));
}

#[tokio::test(start_paused = true)]
async fn the_other_session_is_another_one() {
    let script = Script::of([]);
    let pool = pool(2, &script);
    until_all_open(&pool).await;
    let lease = pool.acquire().await.unwrap();
    let other = pool.acquire_other(&lease).await.unwrap();
    assert_ne!(lease.id, other.id);
    // This holds however busy it is.
    let _busy: Vec<_> = [pool.acquire_other(&lease).await, pool.acquire_other(&lease).await].into();
    assert_eq!(pool.acquire_other(&lease).await.unwrap().id, other.id);
}

#[tokio::test(start_paused = true)]
async fn without_another_session_there_is_an_error_in_a_moment() {
    let script = Script::of([]);
    let pool = pool(1, &script);
    let lease = pool.acquire().await.unwrap();
    let began = Instant::now();
    let refused = pool.acquire_other(&lease).await.map(|lease| lease.id);
    assert!(matches!(refused, Err(Error::ConnectionLost(_))), "{refused:?}");
    assert!(began.elapsed() <= Duration::from_secs(1));
}

/// The user of a session can hear of its end before the pool does.
#[tokio::test(start_paused = true)]
async fn the_only_session_is_replaced_when_its_loss_becomes_known() {
    let script = Script::of([]);
    let pool = Arc::new(pool(1, &script));
    let lease = pool.acquire().await.unwrap();
    let waiting = tokio::spawn({
        let pool = pool.clone();
        async move { pool.acquire_other(&lease).await.map(|lease| lease.id) }
    });
    settle().await;
    assert!(!waiting.is_finished());
    script.fate(0).end();
    assert_eq!(soon(waiting).await.unwrap(), Ok(1));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_was_given_up_is_opened_anew_and_closed_behind_its_last_lease() {
    let script = Script::of([]);
    let pool = pool(1, &script);
    let lease = pool.acquire().await.unwrap();
    tokio::time::advance(Duration::from_secs(60)).await;
    pool.reopen(&lease);
    pool.reopen(&lease);
    assert_eq!(pool.acquire().await.unwrap().id, 1);
    settle().await;
    assert_eq!(script.alive.load(Ordering::SeqCst), 2, "the lease holds the old one");
    drop(lease);
    assert_eq!(script.alive.load(Ordering::SeqCst), 1);
    assert_eq!((script.attempts(), pool.state().lost, pool.state().failed), (2, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn sessions_that_do_not_hold_are_not_opened_in_a_hot_loop() {
    let script = Script::of([]);
    let pool = pool(1, &script);
    for id in 0..6 {
        until_all_open(&pool).await;
        script.fate(id).end();
        settle().await;
    }
    until_all_open(&pool).await;
    let attempts = script.attempts.lock().unwrap().clone();
    let longest = attempts.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!(8 * BACKOFF_MIN <= longest, "{longest:?}");
}

#[tokio::test(start_paused = true)]
async fn all_sessions_come_back_after_a_restart() {
    let script = Script::of([]);
    let pool = pool(4, &script);
    until_all_open(&pool).await;
    tokio::time::advance(Duration::from_secs(60)).await;
    script.push((0..11).map(|_| Step::Fail("starting up")));
    (0..4).for_each(|id| script.fate(id).end());
    settle().await;
    assert_eq!(pool.acquire().await.map(|lease| lease.id), Err(cannot("starting up")));
    until_all_open(&pool).await;
    let mut ids = Vec::new();
    let mut leases = Vec::new();
    for _ in 0..4 {
        leases.push(pool.acquire().await.unwrap());
        ids.push(leases.last().unwrap().id);
    }
    ids.sort_unstable();
    assert_eq!(ids, [4, 5, 6, 7]);
    let state = pool.state();
    assert_eq!((state.lost, state.failed, state.opened), (4, 11, 8));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_hangs_is_ended() {
    let script = Script::of([Step::Hang]);
    let pool = pool(1, &script);
    let began = Instant::now();
    let error = pool.first_attempt().await.unwrap_err().to_string();
    assert_eq!(
        error,
        "cannot connect to postgres at postgres://u@db:5432/d: no session within 20s"
    );
    assert!(began.elapsed() < Duration::from_secs(21));
    until_all_open(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_at_opening_leaves_nobody_waiting() {
    let script = Script::of([Step::Panic]);
    let pool = pool(1, &script);
    assert_eq!(soon(pool.acquire()).await.map(|lease| lease.id), Err(Error::Panicked));
}

#[tokio::test(start_paused = true)]
async fn close_ends_every_task_and_every_session() {
    let script = Script::of([]);
    let pool = Arc::new(pool(3, &script));
    until_all_open(&pool).await;
    let lease = pool.acquire().await.unwrap();
    script.close_gate();
    tokio::time::advance(Duration::from_secs(60)).await;
    script.fate(if lease.id == 0 { 1 } else { 0 }).end();
    settle().await;
    pool.close().await;
    assert_eq!(pool.acquire().await.map(|lease| lease.id), Err(Error::Closed));
    assert_eq!(pool.acquire_other(&lease).await.map(|lease| lease.id), Err(Error::Closed));
    assert_eq!(pool.first_attempt().await, Err(Error::Closed));
    assert_eq!(script.alive.load(Ordering::SeqCst), 1, "a lease stays usable");
    drop(lease);
    assert_eq!(script.alive.load(Ordering::SeqCst), 0);
    assert_eq!(Arc::strong_count(&pool.shared), 1, "no task is left");
    let attempts = script.attempts();
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(script.attempts(), attempts);
    pool.close().await;
}

#[tokio::test(start_paused = true)]
async fn close_ends_those_who_wait() {
    let script = Script::of([]);
    script.close_gate();
    let pool = Arc::new(pool(1, &script));
    let waiting = tokio::spawn({
        let pool = pool.clone();
        async move { pool.acquire().await.map(|lease| lease.id) }
    });
    settle().await;
    pool.close().await;
    assert_eq!(soon(waiting).await.unwrap(), Err(Error::Closed));
}

#[tokio::test(start_paused = true)]
async fn dropping_the_pool_ends_its_tasks() {
    let script = Script::of([]);
    let pool = pool(3, &script);
    until_all_open(&pool).await;
    let shared = Arc::downgrade(&pool.shared);
    drop(pool);
    settle().await;
    assert_eq!(script.alive.load(Ordering::SeqCst), 0);
    assert!(shared.upgrade().is_none());
}

/// Leases so many sessions that leases share them, and returns the leases.
async fn leased(pool: &Pool<Fake>, count: usize) -> Vec<Lease<Fake>> {
    let mut leases = Vec::new();
    for _ in 0..count {
        leases.push(pool.acquire().await.unwrap());
        settle().await;
    }
    leases
}

#[tokio::test(start_paused = true)]
async fn further_sessions_are_opened_when_leases_share_them() {
    let script = Script::of([]);
    let pool = pool(6, &script);
    until_all_open(&pool).await;
    assert_eq!(pool.state().wanted, CONNECTIONS_KEPT);
    let mut leases = leased(&pool, CONNECTIONS_KEPT).await;
    assert_eq!(script.attempts(), CONNECTIONS_KEPT, "each lease has a session of its own");
    leases.extend(leased(&pool, 1).await);
    assert_eq!((pool.state().up, pool.state().wanted), (5, 5));
    leases.extend(leased(&pool, 10).await);
    assert_eq!((pool.state().up, pool.state().wanted), (6, 6), "no more than there may be");
    drop(leases);
    assert_eq!(pool.acquire().await.unwrap().id, 0, "the first ones are used first");
}

#[tokio::test(start_paused = true)]
async fn a_further_session_is_closed_when_nobody_uses_it() {
    let script = Script::of([]);
    let pool = pool(6, &script);
    until_all_open(&pool).await;
    let leases = leased(&pool, 6).await;
    let [.., used, unused] = &leases[..] else { panic!("six leases") };
    assert_eq!((used.id, unused.id), (0, 4), "the fifth lease has opened the fifth session");
    tokio::time::sleep(4 * CONNECTION_IDLE_MAX).await;
    assert_eq!(pool.state().up, 5, "a leased one stays, the sixth was never used");
    drop(leases);
    tokio::time::sleep(4 * CONNECTION_IDLE_MAX).await;
    assert_eq!((pool.state().up, pool.state().wanted), (4, 4));
    assert_eq!(script.alive.load(Ordering::SeqCst), 4);
    let _leases = leased(&pool, 5).await;
    assert_eq!(pool.state().up, 5, "opened again when it is needed");
}

#[tokio::test(start_paused = true)]
async fn a_further_session_that_is_refused_or_lost_harms_nobody() {
    let script = Script::of([]);
    let pool = pool(6, &script);
    until_all_open(&pool).await;
    script.push([Step::Fail("too many connections")]);
    let mut leases = leased(&pool, 8).await;
    let state = pool.state();
    assert_eq!((state.up, state.wanted, state.failed, state.last_error), (4, 4, 1, None));
    assert_eq!(script.attempts(), 5, "no other attempt for a while");
    tokio::time::sleep(GROWTH_PAUSE).await;
    leases.extend(leased(&pool, 1).await);
    assert_eq!(pool.state().up, 5);
    script.fate(4).end();
    settle().await;
    let state = pool.state();
    assert_eq!((state.up, state.wanted, state.lost, state.last_error), (4, 4, 1, None));
}

#[tokio::test(start_paused = true)]
async fn a_panic_at_opening_a_further_session_leaves_its_slot_free() {
    let script = Script::of([]);
    let pool = pool(6, &script);
    until_all_open(&pool).await;
    script.push([Step::Panic]);
    let _leases = leased(&pool, 6).await;
    tokio::time::sleep(GROWTH_PAUSE).await;
    let _more = leased(&pool, 2).await;
    assert_eq!(pool.state().up, 6);
}
