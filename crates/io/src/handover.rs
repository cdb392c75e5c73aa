//! Hand-over of whole batches between two threads, and waking the one that sleeps: at most once per
//! sleep.
//!
//! ```text
//!   stage A                                       stage B
//!   sender.try_send(batch)  --> [queue] -->       receiver.drain_into(..)
//!   notify.notify()         --> (asleep?) -->     sleeper.prepare(); look once more; sleep
//! ```
//!
//! A queue only moves things; it wakes nobody. A thread that takes from several queues owns one
//! [`Sleeper`] and gives a [`Notify`] to everyone who fills one of them. The order that loses no
//! wakeup:
//!
//! * filling: publish (send, store, drop an end), **then** [`Notify::notify`], once per turn;
//! * sleeping: [`Sleeper::prepare`], **then** look at every queue once more; if all are empty,
//!   sleep by whatever the waker ends ([`crate::Net::poll`], [`ThreadWaker::park`]); afterwards
//!   [`Sleeper::awake`] in either case.
//!
//! Between `prepare` and the look there is a sequentially consistent fence, and another one between
//! publishing and the look at the sleeper's state, so at least one of the two sees the other
//! (Dekker). Checked with loom.
//!
//! Overload: a full queue gives the item back. Shutdown: dropping either end is visible to the
//! other.

use std::{
    collections::VecDeque,
    fmt,
    task::{Wake, Waker},
    time::Duration,
};

#[cfg(loom)]
use loom::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering, fence},
    },
    thread,
};
#[cfg(not(loom))]
use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering, fence},
    },
    thread,
};

#[cfg(test)]
mod loom_tests;
#[cfg(test)]
mod tests;

/// A bounded queue with one sender and one receiver.
///
/// # Panics
/// When `capacity` is 0.
pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(0 < capacity, "a queue without room moves nothing");
    let queue = Arc::new(Queue {
        items: Mutex::new(VecDeque::with_capacity(capacity)),
        count: AtomicUsize::new(0),
        closed: AtomicBool::new(false),
        capacity,
    });
    (Sender { queue: Arc::clone(&queue) }, Receiver { queue })
}

struct Queue<T> {
    items: Mutex<VecDeque<T>>,
    /// Length of `items`, written under its lock; lets both ends look without taking it.
    count: AtomicUsize,
    /// One of the ends is gone.
    closed: AtomicBool,
    capacity: usize,
}

impl<T> Queue<T> {
    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.items.lock().expect("no code that holds the lock panics")
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
}

/// Why an item was not taken. The item comes back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Refused<T> {
    /// There is no room; the receiver has to take something first.
    Full(T),
    /// The receiver is gone.
    Closed(T),
}

impl<T> Refused<T> {
    /// The item.
    pub fn into_inner(self) -> T {
        match self {
            Refused::Full(item) | Refused::Closed(item) => item,
        }
    }
}

impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Full(_) => "Full(..)",
            Refused::Closed(_) => "Closed(..)",
        })
    }
}

/// The end that fills a queue.
pub struct Sender<T> {
    queue: Arc<Queue<T>>,
}

impl<T> Sender<T> {
    /// Puts an item at the end. Wakes nobody: see the module.
    pub fn try_send(&mut self, item: T) -> Result<(), Refused<T>> {
        if self.is_closed() {
            return Err(Refused::Closed(item));
        }
        let mut items = self.queue.lock();
        if self.queue.capacity <= items.len() {
            return Err(Refused::Full(item));
        }
        items.push_back(item);
        self.queue.count.store(items.len(), Ordering::Release);
        Ok(())
    }

    /// Whether a `try_send` would be refused for lack of room. Only the receiver can change a
    /// `true`.
    pub fn is_full(&self) -> bool {
        self.queue.capacity <= self.queue.count.load(Ordering::Acquire)
    }

    /// How many items wait.
    pub fn len(&self) -> usize {
        self.queue.count.load(Ordering::Acquire)
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the receiver is gone.
    pub fn is_closed(&self) -> bool {
        self.queue.closed.load(Ordering::Acquire)
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

/// The end that empties a queue.
pub struct Receiver<T> {
    queue: Arc<Queue<T>>,
}

impl<T> Receiver<T> {
    /// Moves everything that waits to the end of `into`, oldest first; returns how many. Costs one
    /// atomic load when nothing waits.
    pub fn drain_into(&mut self, into: &mut Vec<T>) -> usize {
        if self.is_empty() {
            return 0;
        }
        let mut items = self.queue.lock();
        let count = items.len();
        into.extend(items.drain(..));
        self.queue.count.store(0, Ordering::Release);
        count
    }

    /// Takes the oldest item.
    pub fn try_recv(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let mut items = self.queue.lock();
        let item = items.pop_front();
        self.queue.count.store(items.len(), Ordering::Release);
        item
    }

    /// How many items wait.
    pub fn len(&self) -> usize {
        self.queue.count.load(Ordering::Acquire)
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the sender is gone. Items it sent before may still wait; when this was `true` before
    /// the queue was found empty, nothing will come any more.
    pub fn is_closed(&self) -> bool {
        self.queue.closed.load(Ordering::Acquire)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}

struct Sleep {
    asleep: AtomicBool,
    waker: Waker,
}

/// Owned by the thread that sleeps.
pub struct Sleeper {
    sleep: Arc<Sleep>,
}

impl Sleeper {
    /// A sleeper that is awake. `waker` ends its sleep: [`crate::Net::waker`] or
    /// [`ThreadWaker::waker`].
    pub fn new(waker: Waker) -> Self {
        Self { sleep: Arc::new(Sleep { asleep: AtomicBool::new(false), waker }) }
    }

    /// A handle for someone who fills a queue of this thread.
    pub fn notify_handle(&self) -> Notify {
        Notify { sleep: Arc::clone(&self.sleep) }
    }

    /// Announces sleep: from now on a [`Notify::notify`] wakes. Look at every queue once more after
    /// this call.
    pub fn prepare(&self) {
        self.sleep.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Back at work, or there was something to do after all: notifications cost nothing again.
    pub fn awake(&self) {
        self.sleep.asleep.store(false, Ordering::Relaxed);
    }
}

impl fmt::Debug for Sleeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleeper").finish_non_exhaustive()
    }
}

/// Ends the sleep of another thread. Dropping one notifies too, so a thread never sleeps on after
/// the last one who could have given it work is gone (drop the queue's end first).
pub struct Notify {
    sleep: Arc<Sleep>,
}

impl Notify {
    /// Call after publishing. One fence and one load when the other thread is awake; wakes at most
    /// once per sleep.
    pub fn notify(&self) {
        fence(Ordering::SeqCst);
        if self.sleep.asleep.load(Ordering::Relaxed)
            && self.sleep.asleep.swap(false, Ordering::AcqRel)
        {
            self.sleep.waker.wake_by_ref();
        }
    }
}

impl Clone for Notify {
    fn clone(&self) -> Self {
        Self { sleep: Arc::clone(&self.sleep) }
    }
}

impl Drop for Notify {
    fn drop(&mut self) {
        self.notify();
    }
}

impl fmt::Debug for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notify").finish_non_exhaustive()
    }
}

/// Parks and wakes a thread that has no socket loop.
pub struct ThreadWaker {
    token: std::sync::Arc<Token>,
}

struct Token {
    woken: AtomicBool,
    thread: thread::Thread,
}

impl Wake for Token {
    fn wake(self: std::sync::Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &std::sync::Arc<Self>) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            self.thread.unpark();
        }
    }
}

impl ThreadWaker {
    /// For the calling thread, which alone may park with it.
    pub fn current() -> Self {
        let token = Token { woken: AtomicBool::new(false), thread: thread::current() };
        Self { token: std::sync::Arc::new(token) }
    }

    /// The handle that ends a park, from any thread; a wake while the thread is awake ends the next
    /// park at once.
    pub fn waker(&self) -> Waker {
        Waker::from(std::sync::Arc::clone(&self.token))
    }

    /// Sleeps until woken, at most `timeout` (`None`: for ever). May return early for no reason.
    pub fn park(&self, timeout: Option<Duration>) {
        if !self.token.woken.swap(false, Ordering::AcqRel) {
            sleep(timeout);
            self.token.woken.swap(false, Ordering::AcqRel);
        }
    }
}

#[cfg(not(loom))]
fn sleep(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => thread::park_timeout(timeout),
        None => thread::park(),
    }
}

/// Loom has no time: every sleep lasts until the wake.
#[cfg(loom)]
fn sleep(_timeout: Option<Duration>) {
    thread::park();
}

impl fmt::Debug for ThreadWaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadWaker").finish_non_exhaustive()
    }
}
