//! State of the log that every thread can see: watermarks, failure, reservations, counters. Also
//! wakes the one thread that waits for them.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering, fence},
    },
    task::Waker,
};

use crate::{Lsn, batch::Charge, queue::Queue, spares::Spares, stats::Counters};

pub use crate::stats::Stats;

/// Watermark position for which nobody waits.
const NOBODY: u64 = u64::MAX;

/// Value of [`SharedProgress::space_until`] while the log has not answered.
pub(crate) const NO_ANSWER: Charge = Charge::MAX;

/// State that the writer, the log, the helper and watchers share.
#[derive(Debug)]
pub(crate) struct SharedProgress {
    pub queue: Queue,
    pub counters: Counters,
    pub spares: Spares,
    written: AtomicU64,
    durable: AtomicU64,
    /// Charge of everything written.
    pub consumed: AtomicU64,
    /// Charge up to which batches of small records fit into prepared segments.
    pub granted_small: AtomicU64,
    /// Charge up to which batches of any shape fit into prepared segments.
    pub granted_any: AtomicU64,
    /// Charge of a large record that did not fit into a prepared segment; 0 when none waits.
    pub wanted: AtomicU64,
    /// Set while the writer asks for the free space of the disk and has no final answer.
    pub space_asked: AtomicBool,
    /// Answer to `space_asked`: the charge up to which there is space, prepared or free.
    /// [`NO_ANSWER`] while there is none.
    pub space_until: AtomicU64,
    /// Set when the writer was refused for lack of prepared space: zeros are urgent.
    pub stalled: AtomicBool,
    /// Lock held while the file `last-segment` is replaced. True once the file records the clean
    /// shutdown; from then on the file stays.
    pub end_is_named: Mutex<bool>,
    failed: AtomicBool,
    no_space: AtomicBool,
    /// Smallest charge of a record for which the disk has no space, although it has some for
    /// smaller ones.
    pub no_space_from: AtomicU64,
    texts: Mutex<Texts>,
    waiting: Waiting,
}

#[derive(Debug, Default)]
struct Texts {
    failure: Option<Arc<str>>,
    no_space: Option<Arc<str>>,
    no_space_large: Option<Arc<str>>,
}

#[derive(Debug)]
struct Waiting {
    waker: Mutex<Option<Waker>>,
    moved: AtomicBool,
    written: AtomicU64,
    durable: AtomicU64,
}

impl SharedProgress {
    pub fn new(recovered: Lsn) -> Self {
        let waiting = Waiting {
            waker: Mutex::new(None),
            moved: AtomicBool::new(false),
            written: AtomicU64::new(NOBODY),
            durable: AtomicU64::new(NOBODY),
        };
        Self {
            queue: Queue::default(),
            counters: Counters::default(),
            spares: Spares::default(),
            written: AtomicU64::new(recovered.0),
            durable: AtomicU64::new(recovered.0),
            consumed: AtomicU64::new(0),
            granted_small: AtomicU64::new(0),
            granted_any: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            space_asked: AtomicBool::new(false),
            space_until: AtomicU64::new(NO_ANSWER),
            stalled: AtomicBool::new(false),
            end_is_named: Mutex::new(false),
            failed: AtomicBool::new(false),
            no_space: AtomicBool::new(false),
            no_space_from: AtomicU64::new(NOBODY),
            texts: Mutex::new(Texts::default()),
            waiting,
        }
    }

    pub fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    fn texts(&self) -> std::sync::MutexGuard<'_, Texts> {
        self.texts.lock().expect("no code that holds the lock panics")
    }

    pub fn publish_written(&self, lsn: Lsn) {
        self.written.store(lsn.0, Ordering::Release);
        fence(Ordering::SeqCst);
        let moved = self.waiting.moved.load(Ordering::Relaxed);
        if moved || self.waiting.written.load(Ordering::Relaxed) <= lsn.0 {
            self.wake();
        }
    }

    pub fn publish_durable(&self, lsn: Lsn) {
        self.durable.store(lsn.0, Ordering::Release);
        fence(Ordering::SeqCst);
        let moved = self.waiting.moved.load(Ordering::Relaxed);
        if moved || self.waiting.durable.load(Ordering::Relaxed) <= lsn.0 {
            self.wake();
        }
    }

    /// Publishes that reservations, space or the failure changed.
    pub fn publish_moved(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.moved.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Clears every wake-up request before it wakes: the woken thread looks at everything and asks
    /// again.
    fn wake(&self) {
        self.waiting.moved.store(false, Ordering::Relaxed);
        self.waiting.written.store(NOBODY, Ordering::Relaxed);
        self.waiting.durable.store(NOBODY, Ordering::Relaxed);
        let waker = self.waiting.waker.lock().expect("no code that holds the lock panics");
        if let Some(waker) = &*waker {
            waker.wake_by_ref();
        }
    }

    /// Stops the log. The first failure stays, and nothing is published after it.
    pub fn fail(&self, message: String) {
        log::error!("the log stops: {message}");
        self.texts().failure.get_or_insert_with(|| message.into());
        self.failed.store(true, Ordering::SeqCst);
        self.queue.request(crate::queue::Flags { poke: true, ..Default::default() });
        self.wake();
    }

    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    pub fn failure(&self) -> Option<Arc<str>> {
        if self.has_failed() { self.texts().failure.clone() } else { None }
    }

    pub fn set_no_space(&self, message: Option<Arc<str>>) {
        let is = message.is_some();
        self.texts().no_space = message;
        if self.no_space.swap(is, Ordering::SeqCst) != is {
            self.publish_moved();
        }
    }

    pub fn no_space(&self) -> Option<Arc<str>> {
        if self.no_space.load(Ordering::SeqCst) { self.texts().no_space.clone() } else { None }
    }

    pub fn set_no_space_large(&self, from: Option<(u64, Arc<str>)>) {
        let (from, message) = from.map_or((NOBODY, None), |(from, message)| (from, Some(message)));
        self.texts().no_space_large = message;
        self.no_space_from.store(from, Ordering::SeqCst);
        self.publish_moved();
    }

    pub fn no_space_large(&self, charge: u64) -> Option<Arc<str>> {
        if charge < self.no_space_from.load(Ordering::SeqCst) {
            return None;
        }
        self.texts().no_space_large.clone()
    }
}

/// Handle by which any thread reads the state of the log.
#[derive(Clone, Debug)]
pub struct Progress {
    pub(crate) shared: Arc<SharedProgress>,
}

impl Progress {
    /// Returns the last record that a write call took; it is safe from a crash of this process.
    #[inline]
    pub fn written(&self) -> Lsn {
        Lsn(self.shared.written.load(Ordering::Acquire))
    }

    /// Returns the last record that was synced; it is safe from a power loss.
    #[inline]
    pub fn durable(&self) -> Lsn {
        self.shared.durable()
    }

    /// Returns what stopped the log, if something did. Records beyond the watermarks may or may not
    /// survive; a restart tells.
    pub fn failure(&self) -> Option<Arc<str>> {
        self.shared.failure()
    }

    /// Returns why the disk has no space for writes at the moment. The condition clears by itself.
    pub fn no_space(&self) -> Option<Arc<str>> {
        self.shared.no_space()
    }

    /// Returns the counters since the start.
    pub fn stats(&self) -> Stats {
        self.shared.counters.snapshot()
    }

    /// Sets the waker that the `wake_when` calls wake. There is only one.
    pub fn set_waker(&self, waker: Waker) {
        *self.shared.waiting.waker.lock().expect("no code that holds the lock panics") =
            Some(waker);
    }

    /// Asks to be woken once when anything moves: a watermark, a reservation, space, a failure.
    /// Check the condition once more after this call; a change before it wakes nobody.
    pub fn wake_when_moved(&self) {
        self.shared.waiting.moved.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Returns whether something moved since the last [`Progress::wake_when_moved`], or no wake-up
    /// was requested.
    pub fn moved_since_asked(&self) -> bool {
        !self.shared.waiting.moved.load(Ordering::Acquire)
    }

    /// Asks to be woken once when the record is written (or another requested event happens, or the
    /// log fails). Returns true if it is written already, and then requests nothing. A second call
    /// replaces the first.
    pub fn wake_when_written(&self, lsn: Lsn) -> bool {
        if lsn <= self.written() {
            return true;
        }
        self.shared.waiting.written.store(lsn.0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        lsn <= self.written()
    }

    /// Does the same as [`Progress::wake_when_written`] for durability.
    pub fn wake_when_durable(&self, lsn: Lsn) -> bool {
        if lsn <= self.durable() {
            return true;
        }
        self.shared.waiting.durable.store(lsn.0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        lsn <= self.durable()
    }
}
