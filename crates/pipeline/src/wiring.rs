//! Runs the stages: net and tx in one loop, or on a thread each. The stages themselves are the
//! same.
//!
//! ```text
//!  inline:   loop { net.collect -> tx.execute -> tx.end_turn -> net.deliver -> net.finish_turn }
//!  threads:  net: loop { take finished batches, deliver, finish_turn, collect, hand over }
//!            tx:  loop { take all batches, execute, end_turn, hand back }
//! ```
//!
//! **Shutdown.** After [`Signals::stop`] the net stage stops reading. The stages execute and answer
//! what was received whole, for at most [`SHUTDOWN_GRACE`]. Net then ends the sending half of each
//! connection and discards what peers still send until they are quiet for [`SHUTDOWN_QUIET`]. The
//! log syncs everything, and the loops end.

use std::{
    io,
    sync::Arc,
    task::{Wake, Waker},
    thread,
    time::Duration,
};

use busload_io::{
    Clock, Net,
    handover::{Notify, Receiver, Sender, Sleeper, ThreadWaker, channel},
};
use busload_log::Progress;

use crate::{
    batch::RequestBatch,
    limits::{BATCH_COUNT, HOUSEKEEPING_INTERVAL, SHUTDOWN_GRACE, SHUTDOWN_QUIET},
    net::NetStage,
    tx::{Now, Signals, Tx},
};

/// Reason for which the pipeline ended.
#[derive(Debug)]
pub enum Ending {
    /// It was asked to stop. Every record is handed to the log, whose thread ends when it has
    /// synced them.
    Stopped,
    /// The log failed, so the pipeline answered nothing more. A restart recovers.
    LogFailed(String),
    /// The driver of sockets failed.
    NetFailed(io::Error),
}

/// Runs net and tx in the calling thread.
pub fn run_inline<N: Net>(mut net: NetStage<N>, mut tx: Tx, clock: &impl Clock) -> Ending {
    let (progress, signals) = (tx.progress.clone(), tx.signals.clone());
    let mut batch = RequestBatch::default();
    let mut housekeeping = Housekeeping::default();
    let mut shutdown = Shutdown::default();
    let mut end = clock.now();
    loop {
        let wait = match net.prepare_wait() {
            true => earliest(housekeeping.wait(end), shutdown.wait(end), tx.next_deadline(), end),
            false => Some(Duration::ZERO),
        };
        if let Err(error) = net.collect(&mut batch, wait) {
            return Ending::NetFailed(error);
        }
        let now = read(clock);
        let executed = !batch.is_empty();
        if executed {
            batch.received = now.monotonic;
            tx.execute(&mut batch, now);
            housekeeping.note_work();
        }
        // Let the log start on this turn's records while net sorts the replies.
        tx.end_turn();
        let mut released = now.monotonic;
        if executed {
            released = clock.now();
            tx.note_executed(now.monotonic, released);
        }
        net.deliver(&mut batch);
        if let Some(mut answers) = tx.poll_answers(now) {
            net.deliver(&mut answers);
        }
        housekeeping.run_if_due(&mut tx, now);
        net.finish_turn(released);
        end = clock.now();
        tx.note_turn(now.monotonic, end);
        if let Some(failure) = progress.failure() {
            return Ending::LogFailed(failure.to_string());
        }
        if shutdown.is_over(&mut net, &signals, now) {
            tx.close_log();
            leak(tx);
            return Ending::Stopped;
        }
    }
}

/// Runs net on a thread of its own, and tx in the calling thread.
pub fn run_threads<N: Net + Send + 'static>(
    net: NetStage<N>,
    mut tx: Tx,
    clock: impl Clock + Clone + Send + 'static,
    waker: &ThreadWaker,
) -> Ending {
    let (to_tx, mut requests) = channel(BATCH_COUNT);
    let (mut finished, to_net) = channel(BATCH_COUNT);
    let (mut answers, answers_to_net) = channel(ANSWER_BATCHES_MAX);
    let tx_sleeper = Sleeper::new(waker.waker());
    let (progress, signals) = (tx.progress.clone(), tx.signals.clone());

    // Combine both wakers: the net thread may wait in its driver or for a batch.
    let (handle_sender, handle) = std::sync::mpsc::channel();
    let tx_notify = tx_sleeper.notify_handle();
    let net_clock = clock.clone();
    let net_thread = thread::Builder::new().name("net".into()).spawn(move || {
        let parked = ThreadWaker::current();
        let both = Arc::new(JoinedWaker { driver: net.waker(), thread: parked.waker() });
        let sleeper = Sleeper::new(Waker::from(both));
        let _ = handle_sender.send(sleeper.notify_handle());
        let mut stage = NetThread {
            net,
            to_tx,
            from_tx: to_net,
            answers: answers_to_net,
            free: (0..BATCH_COUNT).map(|_| RequestBatch::default()).collect(),
            sleeper,
            parked,
            progress,
            signals,
            tx_notify,
        };
        // Dropping the stage drops its end of the queue, then wakes tx, which finds the queue
        // closed.
        stage.run(&net_clock)
    });
    let net_thread = match net_thread {
        Ok(thread) => thread,
        Err(error) => return Ending::NetFailed(error),
    };
    let Ok(net_notify) = handle.recv() else {
        return join(net_thread);
    };

    let mut taken: Vec<RequestBatch> = Vec::new();
    let mut housekeeping = Housekeeping::default();
    let mut waiting_answers: Option<RequestBatch> = None;
    loop {
        let closed = requests.is_closed();
        requests.drain_into(&mut taken);
        let now = read(&clock);
        let mut handed = !taken.is_empty();
        for batch in &mut taken {
            tx.execute(batch, now);
            housekeeping.note_work();
        }
        // Hand over to the log once and wake net once for all of the batches.
        tx.end_turn();
        if handed {
            tx.note_executed(now.monotonic, clock.now());
        }
        for batch in taken.drain(..) {
            // The queue is never full: it has a slot for every batch. It refuses one only when net
            // is gone.
            let _ = finished.try_send(batch);
        }
        if waiting_answers.is_none() {
            waiting_answers = tx.poll_answers(now);
        }
        handed |= hand_over(&mut answers, &mut waiting_answers);
        if handed {
            net_notify.notify();
        }
        housekeeping.run_if_due(&mut tx, now);
        tx.end_turn();
        tx.note_turn(now.monotonic, clock.now());
        if closed && requests.is_empty() {
            break;
        }
        tx_sleeper.prepare();
        if hand_over(&mut answers, &mut waiting_answers) {
            net_notify.notify();
        } else if requests.is_empty() && !requests.is_closed() {
            // With answers that found no free slot tx sleeps, too: net wakes it when it has taken
            // some.
            let deadline = if waiting_answers.is_some() { None } else { tx.next_deadline() };
            let now = now.monotonic;
            waker.park(earliest(housekeeping.wait(now), None, deadline, now));
        }
        tx_sleeper.awake();
    }
    let ending = join(net_thread);
    if matches!(ending, Ending::Stopped) {
        tx.close_log();
    }
    leak(tx);
    ending
}

/// Leaves freeing the memory to the system: freeing millions of entries one by one would only delay
/// the end of the process.
fn leak(tx: Tx) {
    std::mem::forget(tx);
}

/// Number of batches of late answers on their way to net. They have a queue of their own: the other
/// queue has exactly as many slots as there are batches of requests, and must never refuse one of
/// those.
const ANSWER_BATCHES_MAX: usize = 2;

/// Hands late answers to net, if there are any and the queue has a free slot. Returns whether it
/// did.
fn hand_over(answers: &mut Sender<RequestBatch>, waiting: &mut Option<RequestBatch>) -> bool {
    let Some(batch) = waiting.take() else { return false };
    match answers.try_send(batch) {
        Ok(()) => true,
        Err(refused) => {
            *waiting = Some(refused.into_inner());
            false
        }
    }
}

fn join(thread: thread::JoinHandle<Ending>) -> Ending {
    thread.join().unwrap_or_else(|_| Ending::NetFailed(io::Error::other("the net thread panicked")))
}

struct NetThread<N: Net> {
    net: NetStage<N>,
    to_tx: Sender<RequestBatch>,
    from_tx: Receiver<RequestBatch>,
    /// Late answers. Their batches do not circulate.
    answers: Receiver<RequestBatch>,
    /// Circulating batches that are neither in a queue nor with tx.
    free: Vec<RequestBatch>,
    sleeper: Sleeper,
    parked: ThreadWaker,
    progress: Progress,
    signals: Arc<Signals>,
    /// Declared behind the queue's end: fields are dropped in order.
    tx_notify: Notify,
}

impl<N: Net> NetThread<N> {
    fn run(&mut self, clock: &impl Clock) -> Ending {
        let mut finished = Vec::new();
        let mut shutdown = Shutdown::default();
        loop {
            let closed = self.from_tx.is_closed();
            self.from_tx.drain_into(&mut finished);
            for mut batch in finished.drain(..) {
                self.net.deliver(&mut batch);
                self.free.push(batch);
            }
            self.deliver_answers(&mut finished);
            let now = read(clock);
            self.net.finish_turn(now.monotonic);
            if let Some(failure) = self.progress.failure() {
                return Ending::LogFailed(failure.to_string());
            }
            if shutdown.is_over(&mut self.net, &self.signals, now) || closed {
                return Ending::Stopped;
            }
            let Some(mut batch) = self.free.pop() else {
                self.wait_for_batch();
                continue;
            };
            let wait = self.wait(&shutdown, now.monotonic);
            let collected = self.net.collect(&mut batch, wait);
            self.sleeper.awake();
            if let Err(error) = collected {
                return Ending::NetFailed(error);
            }
            if batch.is_empty() {
                self.net.deliver(&mut batch);
                self.free.push(batch);
            } else {
                batch.received = clock.now();
                // The queue has a slot for every batch. It refuses one only when tx is gone.
                let handed = self.to_tx.try_send(batch);
                assert!(
                    handed.is_ok() || self.to_tx.is_closed(),
                    "a batch of requests found no slot"
                );
                self.tx_notify.notify();
            }
        }
    }

    /// Delivers late answers. `spare` is empty, before and after.
    fn deliver_answers(&mut self, spare: &mut Vec<RequestBatch>) {
        self.answers.drain_into(spare);
        if spare.is_empty() {
            return;
        }
        for mut batch in spare.drain(..) {
            self.net.deliver(&mut batch);
        }
        // tx may wait for the free slot.
        self.tx_notify.notify();
    }

    /// Waits while tx has all batches: net reads nothing before one is back.
    fn wait_for_batch(&mut self) {
        self.sleeper.prepare();
        if self.from_tx.is_empty() && self.answers.is_empty() && !self.from_tx.is_closed() {
            self.parked.park(None);
        }
        self.sleeper.awake();
    }

    /// Returns how long the driver may wait.
    fn wait(&mut self, shutdown: &Shutdown, now: Duration) -> Option<Duration> {
        self.sleeper.prepare();
        let something = !self.from_tx.is_empty() || !self.answers.is_empty();
        if something || self.from_tx.is_closed() || !self.net.prepare_wait() {
            return Some(Duration::ZERO);
        }
        shutdown.wait(now)
    }
}

/// Waker for a thread that waits for two different things.
struct JoinedWaker {
    driver: Waker,
    thread: Waker,
}

impl Wake for JoinedWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.thread.wake_by_ref();
        self.driver.wake_by_ref();
    }
}

/// Schedule of expiry and garbage collection.
#[derive(Debug, Default)]
struct Housekeeping {
    due: Option<Duration>,
    idle: bool,
}

impl Housekeeping {
    fn note_work(&mut self) {
        self.idle = false;
    }

    fn run_if_due(&mut self, tx: &mut Tx, now: Now) {
        if self.due.is_some_and(|due| now.monotonic < due) || (self.idle && self.due.is_none()) {
            return;
        }
        let again = tx.housekeep(now);
        tx.end_turn();
        // After work run it once more to update the metrics; then only when something is to be
        // done.
        let pause = match again {
            Some(pause) => Some(pause.min(HOUSEKEEPING_INTERVAL)),
            None if self.idle => None,
            None => Some(HOUSEKEEPING_INTERVAL),
        };
        self.idle = true;
        self.due = pause.map(|pause| now.monotonic + pause);
    }

    fn wait(&self, now: Duration) -> Option<Duration> {
        match self.due {
            Some(due) => Some(due.saturating_sub(now)),
            None if self.idle => None,
            None => Some(Duration::ZERO),
        }
    }
}

/// Clean shutdown: answer what was received whole, then let the peers take the replies.
#[derive(Debug, Default)]
struct Shutdown {
    deadline: Option<Duration>,
    /// Time until which the peers must be quiet for the loop to end. Set when everything is sent.
    quiet_until: Option<Duration>,
}

impl Shutdown {
    fn is_over<N: Net>(&mut self, net: &mut NetStage<N>, signals: &Signals, now: Now) -> bool {
        if !signals.stopping() {
            return false;
        }
        let now = now.monotonic;
        let deadline = *self.deadline.get_or_insert_with(|| {
            net.stop();
            now + SHUTDOWN_GRACE
        });
        if self.quiet_until.is_none() && net.is_drained() {
            net.start_grace_period();
            self.quiet_until = Some(now + SHUTDOWN_QUIET);
        } else if self.quiet_until.is_some() && net.take_discarded() {
            self.quiet_until = Some(now + SHUTDOWN_QUIET);
        }
        let quiet =
            self.quiet_until.is_some_and(|until| until <= now || net.connection_count() == 0);
        quiet || deadline <= now
    }

    fn wait(&self, now: Duration) -> Option<Duration> {
        let until = self.quiet_until.or(self.deadline);
        until.map(|until| until.saturating_sub(now))
    }
}

fn read(clock: &impl Clock) -> Now {
    Now { monotonic: clock.now(), wall_ms: clock.wall_ms() }
}

/// Returns the shortest of the waits.
fn earliest(
    a: Option<Duration>,
    b: Option<Duration>,
    deadline: Option<Duration>,
    now: Duration,
) -> Option<Duration> {
    let deadline = deadline.map(|deadline| deadline.saturating_sub(now));
    [a, b, deadline].into_iter().flatten().min()
}
