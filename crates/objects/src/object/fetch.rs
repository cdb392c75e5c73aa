//! One read of the store that is under way, or has arrived lately, and those who wait for bytes of
//! it.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use bytes::{Bytes, BytesMut};
use tokio::{sync::oneshot, time::Instant};

use crate::{Error, remote::Sink};

/// Who waits for some bytes.
pub(super) type Waiter = oneshot::Sender<Result<Bytes, Error>>;

/// See the module. Bytes arrive in order.
#[derive(Debug)]
pub(super) struct Fetch {
    pub(super) range: Range<u64>,
    purpose: Purpose,
    /// Its bytes, although they came as the store sent them, were not what they should be: nobody
    /// joins, nothing is written.
    invalidated: AtomicBool,
    state: Mutex<State>,
}

/// As long as it lives a fetch leaves although nobody waits for bytes of it yet.
#[derive(Debug)]
pub(super) struct InterestGuard(());

/// What a fetch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Those who wait for it. Without any it does not leave.
    Waiters,
    /// Streams that will get there. Without any, and without any who waits, it does not leave.
    Streams,
    /// The disk.
    Fill,
}

#[derive(Debug, Default)]
struct State {
    received: Received,
    waiters: Waiters,
    interest: Weak<InterestGuard>,
    sent: Option<Instant>,
    begun: Option<Instant>,
    /// When its answer began or bytes came, last.
    moved: Option<Instant>,
    /// When bytes came last.
    brought: Option<Instant>,
}

#[derive(Debug)]
enum Received {
    Some(BytesMut),
    All(Bytes),
    Failed,
}

/// By the end of what they wait for, because that is when they can go.
#[derive(Debug, Default)]
struct Waiters {
    by_end: BTreeMap<(u64, u64), (u64, Waiter)>,
    count: u64,
}

/// How far a fetch has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    /// Up to here its bytes are there.
    pub(super) position: u64,
    pub(super) start: u64,
    pub(super) sent: Option<Instant>,
    pub(super) begun: Option<Instant>,
    pub(super) moved: Option<Instant>,
}

impl Default for Received {
    fn default() -> Self {
        Self::Some(BytesMut::new())
    }
}

impl Fetch {
    pub(super) fn new(range: Range<u64>, purpose: Purpose) -> Self {
        Self { range, purpose, invalidated: AtomicBool::new(false), state: Mutex::default() }
    }

    /// Whether it leaves as soon as it can.
    pub(super) fn is_urgent(&self) -> bool {
        self.purpose == Purpose::Waiters
    }

    pub(super) fn covers(&self, range: &Range<u64>) -> bool {
        self.range.start <= range.start && range.end <= self.range.end
    }

    pub(super) fn overlaps(&self, range: &Range<u64>) -> bool {
        self.range.start < range.end && range.start < self.range.end
    }

    pub(super) fn invalidate(&self) {
        self.invalidated.store(true, Relaxed);
    }

    pub(super) fn is_invalidated(&self) -> bool {
        self.invalidated.load(Relaxed)
    }

    /// Waits for bytes that the fetch covers. Gives the waiter back if the fetch has failed.
    pub(super) fn join(&self, range: Range<u64>, waiter: Waiter) -> Result<(), Waiter> {
        debug_assert!(self.covers(&range), "{range:?} of {:?}", self.range);
        let mut state = self.lock();
        if let Received::Failed = state.received {
            return Err(waiter);
        }
        match self.cut(&state.received, &range) {
            Some(bytes) => {
                drop(state);
                // Nobody may be waiting any more.
                drop(waiter.send(Ok(bytes)));
            }
            None => state.waiters.add(range, waiter),
        }
        Ok(())
    }

    /// For who will wait for bytes of it soon. None: it has failed.
    pub(super) fn interest(&self) -> Option<Arc<InterestGuard>> {
        let mut state = self.lock();
        if let Received::Failed = state.received {
            return None;
        }
        let interest = state.interest.upgrade().unwrap_or_else(|| Arc::new(InterestGuard(())));
        state.interest = Arc::downgrade(&interest);
        Some(interest)
    }

    /// All of it, if it has arrived.
    pub(super) fn received(&self) -> Option<Bytes> {
        match &self.lock().received {
            Received::All(bytes) => Some(bytes.clone()),
            Received::Some(_) | Received::Failed => None,
        }
    }

    /// Nothing of it is on its way any more.
    pub(super) fn has_ended(&self) -> bool {
        !matches!(self.lock().received, Received::Some(_))
    }

    /// When bytes came last.
    pub(super) fn brought(&self) -> Option<Instant> {
        self.lock().brought
    }

    pub(super) fn course(&self) -> Course {
        let state = self.lock();
        let position = match &state.received {
            Received::Some(bytes) => self.range.start + bytes.len() as u64,
            Received::All(_) => self.range.end,
            Received::Failed => self.range.start,
        };
        let State { sent, begun, moved, .. } = *state;
        Course { position, start: self.range.start, sent, begun, moved }
    }

    /// Everybody who still waits gets the error. Nothing happens when all has arrived.
    pub(super) fn fail(&self, error: &Error) {
        let mut state = self.lock();
        if let Received::All(_) = state.received {
            return;
        }
        state.received = Received::Failed;
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        for (_, (_, waiter)) in waiters.by_end {
            drop(waiter.send(Err(error.clone())));
        }
    }

    /// Those who wait for the same range, as streams of one object do, share one copy.
    fn answers(
        &self,
        received: &Received,
        ready: Vec<(Range<u64>, Waiter)>,
    ) -> Vec<(Bytes, Waiter)> {
        let mut last = (0..0, Bytes::new());
        let answer = |(range, waiter): (Range<u64>, Waiter)| {
            if last.0 != range {
                let bytes = self
                    .cut(received, &range)
                    .expect("a waiter is ready when its bytes have received");
                last = (range, bytes);
            }
            (last.1.clone(), waiter)
        };
        ready.into_iter().map(answer).collect()
    }

    /// Bytes of a range if they are there. A small part of a fetch is copied, so that it does not
    /// keep all of it in memory.
    fn cut(&self, received: &Received, range: &Range<u64>) -> Option<Bytes> {
        let span = within(range.start, self.range.start)..within(range.end, self.range.start);
        match received {
            Received::Some(bytes) => bytes.get(span).map(Bytes::copy_from_slice),
            Received::All(bytes) if bytes.len() / 2 <= span.len() => Some(bytes.slice(span)),
            Received::All(bytes) => Some(Bytes::copy_from_slice(&bytes[span])),
            Received::Failed => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for &Fetch {
    fn is_waited_for(&self) -> bool {
        self.purpose == Purpose::Fill || self.lock().is_waited_for()
    }

    /// Decided under the lock under which waiters join: one that comes later finds a failed fetch
    /// and starts another.
    fn is_wanted(&mut self) -> bool {
        if self.purpose == Purpose::Fill {
            return true;
        }
        let mut state = self.lock();
        let is_wanted = state.is_waited_for();
        if !is_wanted {
            state.received = Received::Failed;
        }
        is_wanted
    }

    fn handle_sent(&mut self) {
        self.lock().sent = Some(Instant::now());
    }

    fn handle_begun(&mut self) {
        let now = Instant::now();
        let mut state = self.lock();
        state.begun = Some(now);
        state.moved = Some(now);
    }

    fn handle_bytes(&mut self, bytes: Bytes) {
        let now = Instant::now();
        let mut state = self.lock();
        state.moved = Some(now);
        state.brought = Some(now);
        let position = state.received.add(bytes, within(self.range.end, self.range.start));
        let Some(position) = position else { return };
        let ready = state.waiters.take_until(self.range.start + position as u64);
        let answers = self.answers(&state.received, ready);
        drop(state);
        for (bytes, waiter) in answers {
            drop(waiter.send(Ok(bytes)));
        }
    }
}

impl State {
    fn is_waited_for(&self) -> bool {
        let is_asked_for = || self.waiters.by_end.values().any(|(_, waiter)| !waiter.is_closed());
        0 < self.interest.strong_count() || is_asked_for()
    }
}

impl Received {
    /// Returns how many bytes are there.
    fn add(&mut self, bytes: Bytes, length: usize) -> Option<usize> {
        let Self::Some(received) = self else { return None };
        if received.is_empty() && bytes.len() == length {
            // All in one piece, as small reads come: not copied.
            *self = Self::All(bytes);
            return Some(length);
        }
        if received.is_empty() {
            received.reserve(length);
        }
        received.extend_from_slice(&bytes);
        let count = received.len();
        if count == length {
            *self = Self::All(std::mem::take(received).freeze());
        }
        Some(count)
    }
}

impl Waiters {
    fn add(&mut self, range: Range<u64>, waiter: Waiter) {
        self.count += 1;
        self.by_end.insert((range.end, self.count), (range.start, waiter));
    }

    fn take_until(&mut self, position: u64) -> Vec<(Range<u64>, Waiter)> {
        let mut ready = Vec::new();
        while let Some(first) = self.by_end.first_entry()
            && first.key().0 <= position
        {
            let ((end, _), (start, waiter)) = first.remove_entry();
            ready.push((start..end, waiter));
        }
        ready
    }
}

/// Offset within a fetch. A fetch fits into memory.
fn within(position: u64, start: u64) -> usize {
    usize::try_from(position - start).expect("a fetch fits into memory")
}
