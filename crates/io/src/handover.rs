//! Hand-over of whole batches between two threads. The receiving thread is woken at most once per
//! sleep.
//!
//! ```text
//!   stage A                                       stage B
//!   sender.try_send(batch)  --> [queue] -->       receiver.drain_into(..)
//!   notify.notify()         --> (asleep?) -->     sleeper.prepare(); look once more; sleep
//! ```
//!
//! A queue only moves items; it wakes nobody. A thread that receives from several queues owns one
//! [`Sleeper`] and gives a [`Notify`] to each sender. No wake-up is lost in this order:
//!
//! * sender: publish (send, store, drop an end), **then** call [`Notify::notify`], once per turn;
//! * receiver: [`Sleeper::prepare`], **then** check every queue once more; if all are empty, sleep
//!   in whatever the waker ends ([`crate::Net::poll`], [`ThreadWaker::park`]); call
//!   [`Sleeper::awake`] afterwards in either case.
//!
//! There is a sequentially consistent fence between `prepare` and the check, and another one
//! between publishing and reading the sleeper's state, so at least one of the two threads sees the
//! other (Dekker). Loom checks this.
//!
//! Overload: a full queue returns the item. Shutdown: each end can see that the other was dropped.

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

/// Creates a bounded queue with one sender and one receiver.
///
/// # Panics
/// If `capacity` is 0.
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
    /// Length of `items`, written under its lock; both ends can read it without taking the lock.
    count: AtomicUsize,
    /// True once one of the ends was dropped.
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

/// Reason why the queue refused an item. The item comes back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Refused<T> {
    /// The queue is full; the receiver must take something first.
    Full(T),
    /// The receiver was dropped.
    Closed(T),
}

impl<T> Refused<T> {
    /// Returns the refused item.
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

/// Sending end of a queue.
pub struct Sender<T> {
    queue: Arc<Queue<T>>,
}

impl<T> Sender<T> {
    /// Appends an item. Wakes nobody: see the module's documentation.
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

    /// Returns whether a `try_send` would be refused because the queue is full. Only the receiver
    /// can change a `true`.
    pub fn is_full(&self) -> bool {
        self.queue.capacity <= self.queue.count.load(Ordering::Acquire)
    }

    /// Returns the number of queued items.
    pub fn len(&self) -> usize {
        self.queue.count.load(Ordering::Acquire)
    }

    /// Returns whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the receiver was dropped.
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

/// Receiving end of a queue.
pub struct Receiver<T> {
    queue: Arc<Queue<T>>,
}

impl<T> Receiver<T> {
    /// Moves all queued items to the end of `into`, oldest first, and returns their number. Costs
    /// one atomic load when the queue is empty.
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

    /// Takes the oldest item off the queue.
    pub fn try_recv(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let mut items = self.queue.lock();
        let item = items.pop_front();
        self.queue.count.store(items.len(), Ordering::Release);
        item
    }

    /// Returns the number of queued items.
    pub fn len(&self) -> usize {
        self.queue.count.load(Ordering::Acquire)
    }

    /// Returns whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the sender was dropped. Items that it sent before may still be queued. If
    /// this was `true` before the queue was found empty, nothing more will come.
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

/// Sleep state of a thread, owned by that thread.
pub struct Sleeper {
    sleep: Arc<Sleep>,
}

impl Sleeper {
    /// Creates a sleeper that is awake. `waker` ends its sleep: [`crate::Net::waker`] or
    /// [`ThreadWaker::waker`].
    pub fn new(waker: Waker) -> Self {
        Self { sleep: Arc::new(Sleep { asleep: AtomicBool::new(false), waker }) }
    }

    /// Returns a handle for a thread that sends to a queue of this thread.
    pub fn notify_handle(&self) -> Notify {
        Notify { sleep: Arc::clone(&self.sleep) }
    }

    /// Announces sleep: from now on a [`Notify::notify`] wakes. Check every queue once more after
    /// this call.
    pub fn prepare(&self) {
        self.sleep.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Ends the announced sleep, whether or not the thread slept. From now on notifications are
    /// cheap again.
    pub fn awake(&self) {
        self.sleep.asleep.store(false, Ordering::Relaxed);
    }
}

impl fmt::Debug for Sleeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleeper").finish_non_exhaustive()
    }
}

/// Handle that ends the sleep of another thread. Dropping it notifies too, so a thread does not
/// sleep on after its last sender is gone (drop the queue's end first).
pub struct Notify {
    sleep: Arc<Sleep>,
}

impl Notify {
    /// Wakes the other thread if it sleeps, at most once per sleep. Call it after publishing. Costs
    /// one fence and one load when the other thread is awake.
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
    /// Creates a waker for the calling thread, which alone may park with it.
    pub fn current() -> Self {
        let token = Token { woken: AtomicBool::new(false), thread: thread::current() };
        Self { token: std::sync::Arc::new(token) }
    }

    /// Returns the handle that ends a park, from any thread. A wake while the thread is awake ends
    /// the next park at once.
    pub fn waker(&self) -> Waker {
        Waker::from(std::sync::Arc::clone(&self.token))
    }

    /// Sleeps until woken, at most for `timeout` (`None`: for ever). May return early without a
    /// reason.
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

/// Loom does not model time, so every sleep lasts until the wake.
#[cfg(loom)]
fn sleep(_timeout: Option<Duration>) {
    thread::park();
}

impl fmt::Debug for ThreadWaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadWaker").finish_non_exhaustive()
    }
}
