//! What the log has reached, for everyone to see: watermarks, failure, room, counters; and waking
//! the one who waits for them.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering, fence},
    },
    task::Waker,
};

use crate::{Lsn, batch::Charge, queue::Queue, stats::Counters};

pub use crate::stats::Stats;

/// No one waits for this position.
const NOBODY: u64 = u64::MAX;

/// In [`Shared::space_until`]: the log has not answered yet.
pub(crate) const NO_ANSWER: Charge = Charge::MAX;

/// What writer, log, helper and watchers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub queue: Queue,
    pub counters: Counters,
    written: AtomicU64,
    durable: AtomicU64,
    /// Charge of everything written.
    pub consumed: AtomicU64,
    /// Charge up to which batches of small records find prepared room.
    pub granted_small: AtomicU64,
    /// Charge up to which batches of any shape find prepared room.
    pub granted_any: AtomicU64,
    /// Charge of a large record that found no room; 0 when none waits.
    pub wanted: AtomicU64,
    /// The writer asks how much room there is on the disk, and has no final answer.
    pub space_asked: AtomicBool,
    /// The answer: the charge up to which there is room, prepared or free. [`NO_ANSWER`] while
    /// there is none.
    pub space_until: AtomicU64,
    /// The writer was refused for want of prepared room: zeros are urgent.
    pub stalled: AtomicBool,
    /// Held while the file is replaced that names the last segment. True once the clean end stands
    /// there: from then on it stays.
    pub end_is_named: Mutex<bool>,
    failed: AtomicBool,
    no_space: AtomicBool,
    /// There is room, but not for a record charged this much or more.
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

impl Shared {
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

    /// Room, space or failure changed.
    pub fn publish_moved(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.moved.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Clears every wish before it wakes: whoever wakes looks at everything and wishes anew.
    fn wake(&self) {
        self.waiting.moved.store(false, Ordering::Relaxed);
        self.waiting.written.store(NOBODY, Ordering::Relaxed);
        self.waiting.durable.store(NOBODY, Ordering::Relaxed);
        let waker = self.waiting.waker.lock().expect("no code that holds the lock panics");
        if let Some(waker) = &*waker {
            waker.wake_by_ref();
        }
    }

    /// The first failure stays; nothing is published after it.
    pub fn fail(&self, message: String) {
        log::error!("the log stops: {message}");
        self.texts().failure.get_or_insert_with(|| message.into());
        self.failed.store(true, Ordering::SeqCst);
        self.queue.ask(crate::queue::Flags { poke: true, ..Default::default() });
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

/// A view of the log for any thread.
#[derive(Clone, Debug)]
pub struct Progress {
    pub(crate) shared: Arc<Shared>,
}

impl Progress {
    /// The last record that a write call took; safe from a crash of this process.
    #[inline]
    pub fn written(&self) -> Lsn {
        Lsn(self.shared.written.load(Ordering::Acquire))
    }

    /// The last record that was synced; safe from a power loss.
    #[inline]
    pub fn durable(&self) -> Lsn {
        self.shared.durable()
    }

    /// What ended the log, if something did. Records beyond the watermarks may or may not survive;
    /// a restart tells.
    pub fn failure(&self) -> Option<Arc<str>> {
        self.shared.failure()
    }

    /// Why there is no room for writes at the moment. Passes by itself.
    pub fn no_space(&self) -> Option<Arc<str>> {
        self.shared.no_space()
    }

    /// Counters since the start.
    pub fn stats(&self) -> Stats {
        self.shared.counters.snapshot()
    }

    /// Who is woken by the `wake_when` calls. There is one.
    pub fn set_waker(&self, waker: Waker) {
        *self.shared.waiting.waker.lock().expect("no code that holds the lock panics") =
            Some(waker);
    }

    /// Wakes once when anything moves: a watermark, room, space, failure. Look at what you wait for
    /// once more after this call; what moved before it wakes nobody.
    pub fn wake_when_moved(&self) {
        self.shared.waiting.moved.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether something moved since the last [`Progress::wake_when_moved`], or nothing was asked.
    pub fn moved_since_asked(&self) -> bool {
        !self.shared.waiting.moved.load(Ordering::Acquire)
    }

    /// Wakes once when the record is written (or something else asked for happens, or the log
    /// fails). Returns true when it is written already; then nothing was asked. A second call
    /// replaces the first.
    pub fn wake_when_written(&self, lsn: Lsn) -> bool {
        if lsn <= self.written() {
            return true;
        }
        self.shared.waiting.written.store(lsn.0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        lsn <= self.written()
    }

    /// Like [`Progress::wake_when_written`] for durability.
    pub fn wake_when_durable(&self, lsn: Lsn) -> bool {
        if lsn <= self.durable() {
            return true;
        }
        self.shared.waiting.durable.store(lsn.0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        lsn <= self.durable()
    }
}
