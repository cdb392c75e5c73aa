//! One read of the store that is under way, or has landed lately, and those who wait for bytes of it.

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
pub(super) type Asker = oneshot::Sender<Result<Bytes, Error>>;

/// See the module. Bytes land in order.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) range: Range<u64>,
    purpose: Purpose,
    /// Its bytes, although they came as the store sent them, were not what they should be: nobody joins, nothing is written.
    distrusted: AtomicBool,
    state: Mutex<State>,
}

/// As long as it lives a flight leaves although nobody waits for bytes of it yet.
#[derive(Debug)]
pub(super) struct Wish(());

/// What a flight is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Those who wait for it. Without any it does not leave.
    Askers,
    /// Streams that will get there. Without any, and without any who waits, it does not leave.
    Streams,
    /// The disk.
    Fill,
}

#[derive(Debug, Default)]
struct State {
    landed: Landed,
    waiters: Waiters,
    wish: Weak<Wish>,
    sent: Option<Instant>,
    begun: Option<Instant>,
    /// When its answer began or bytes came, last.
    moved: Option<Instant>,
    /// When bytes came last.
    brought: Option<Instant>,
}

#[derive(Debug)]
enum Landed {
    Some(BytesMut),
    All(Bytes),
    Failed,
}

/// By the end of what they wait for, because that is when they can go.
#[derive(Debug, Default)]
struct Waiters {
    by_end: BTreeMap<(u64, u64), (u64, Asker)>,
    count: u64,
}

/// How far a flight has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    /// Up to here its bytes are there.
    pub(super) position: u64,
    pub(super) start: u64,
    pub(super) sent: Option<Instant>,
    pub(super) begun: Option<Instant>,
    pub(super) moved: Option<Instant>,
}

impl Default for Landed {
    fn default() -> Self {
        Self::Some(BytesMut::new())
    }
}

impl Flight {
    pub(super) fn new(range: Range<u64>, purpose: Purpose) -> Self {
        Self { range, purpose, distrusted: AtomicBool::new(false), state: Mutex::default() }
    }

    /// Whether it leaves as soon as it can.
    pub(super) fn is_urgent(&self) -> bool {
        self.purpose == Purpose::Askers
    }

    pub(super) fn covers(&self, range: &Range<u64>) -> bool {
        self.range.start <= range.start && range.end <= self.range.end
    }

    pub(super) fn overlaps(&self, range: &Range<u64>) -> bool {
        self.range.start < range.end && range.start < self.range.end
    }

    pub(super) fn distrust(&self) {
        self.distrusted.store(true, Relaxed);
    }

    pub(super) fn is_distrusted(&self) -> bool {
        self.distrusted.load(Relaxed)
    }

    /// Waits for bytes that the flight covers. Gives the asker back if the flight has failed.
    pub(super) fn join(&self, range: Range<u64>, asker: Asker) -> Result<(), Asker> {
        debug_assert!(self.covers(&range), "{range:?} of {:?}", self.range);
        let mut state = self.lock();
        if let Landed::Failed = state.landed {
            return Err(asker);
        }
        match self.cut(&state.landed, &range) {
            Some(bytes) => {
                drop(state);
                // Nobody may be waiting any more.
                drop(asker.send(Ok(bytes)));
            }
            None => state.waiters.add(range, asker),
        }
        Ok(())
    }

    /// For who will wait for bytes of it soon. None: it has failed.
    pub(super) fn wish(&self) -> Option<Arc<Wish>> {
        let mut state = self.lock();
        if let Landed::Failed = state.landed {
            return None;
        }
        let wish = state.wish.upgrade().unwrap_or_else(|| Arc::new(Wish(())));
        state.wish = Arc::downgrade(&wish);
        Some(wish)
    }

    /// All of it, if it has landed.
    pub(super) fn landed(&self) -> Option<Bytes> {
        match &self.lock().landed {
            Landed::All(bytes) => Some(bytes.clone()),
            Landed::Some(_) | Landed::Failed => None,
        }
    }

    /// Nothing of it is on its way any more.
    pub(super) fn has_ended(&self) -> bool {
        !matches!(self.lock().landed, Landed::Some(_))
    }

    /// When bytes came last.
    pub(super) fn brought(&self) -> Option<Instant> {
        self.lock().brought
    }

    pub(super) fn course(&self) -> Course {
        let state = self.lock();
        let position = match &state.landed {
            Landed::Some(bytes) => self.range.start + bytes.len() as u64,
            Landed::All(_) => self.range.end,
            Landed::Failed => self.range.start,
        };
        let State { sent, begun, moved, .. } = *state;
        Course { position, start: self.range.start, sent, begun, moved }
    }

    /// Everybody who still waits gets the error. Nothing happens when all has landed.
    pub(super) fn fail(&self, error: &Error) {
        let mut state = self.lock();
        if let Landed::All(_) = state.landed {
            return;
        }
        state.landed = Landed::Failed;
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        for (_, (_, asker)) in waiters.by_end {
            drop(asker.send(Err(error.clone())));
        }
    }

    /// Those who wait for the same range, as streams of one object do, share one copy.
    fn answers(&self, landed: &Landed, ready: Vec<(Range<u64>, Asker)>) -> Vec<(Bytes, Asker)> {
        let mut last = (0..0, Bytes::new());
        let answer = |(range, asker): (Range<u64>, Asker)| {
            if last.0 != range {
                let bytes = self.cut(landed, &range).expect("a waiter is ready when its bytes have landed");
                last = (range, bytes);
            }
            (last.1.clone(), asker)
        };
        ready.into_iter().map(answer).collect()
    }

    /// Bytes of a range if they are there. A small part of a flight is copied, so that it does not keep all of it in memory.
    fn cut(&self, landed: &Landed, range: &Range<u64>) -> Option<Bytes> {
        let span = within(range.start, self.range.start)..within(range.end, self.range.start);
        match landed {
            Landed::Some(bytes) => bytes.get(span).map(Bytes::copy_from_slice),
            Landed::All(bytes) if bytes.len() / 2 <= span.len() => Some(bytes.slice(span)),
            Landed::All(bytes) => Some(Bytes::copy_from_slice(&bytes[span])),
            Landed::Failed => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for &Flight {
    fn is_waited_for(&self) -> bool {
        self.purpose == Purpose::Fill || self.lock().is_waited_for()
    }

    /// Decided under the lock under which askers join: one that comes later finds a failed flight and starts another.
    fn is_wanted(&mut self) -> bool {
        if self.purpose == Purpose::Fill {
            return true;
        }
        let mut state = self.lock();
        let is_wanted = state.is_waited_for();
        if !is_wanted {
            state.landed = Landed::Failed;
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
        let position = state.landed.add(bytes, within(self.range.end, self.range.start));
        let Some(position) = position else { return };
        let ready = state.waiters.take_until(self.range.start + position as u64);
        let answers = self.answers(&state.landed, ready);
        drop(state);
        for (bytes, asker) in answers {
            drop(asker.send(Ok(bytes)));
        }
    }
}

impl State {
    fn is_waited_for(&self) -> bool {
        let is_asked_for = || self.waiters.by_end.values().any(|(_, asker)| !asker.is_closed());
        0 < self.wish.strong_count() || is_asked_for()
    }
}

impl Landed {
    /// Returns how many bytes are there.
    fn add(&mut self, bytes: Bytes, length: usize) -> Option<usize> {
        let Self::Some(landed) = self else { return None };
        if landed.is_empty() && bytes.len() == length {
            // All in one piece, as small reads come: not copied.
            *self = Self::All(bytes);
            return Some(length);
        }
        if landed.is_empty() {
            landed.reserve(length);
        }
        landed.extend_from_slice(&bytes);
        let count = landed.len();
        if count == length {
            *self = Self::All(std::mem::take(landed).freeze());
        }
        Some(count)
    }
}

impl Waiters {
    fn add(&mut self, range: Range<u64>, asker: Asker) {
        self.count += 1;
        self.by_end.insert((range.end, self.count), (range.start, asker));
    }

    fn take_until(&mut self, position: u64) -> Vec<(Range<u64>, Asker)> {
        let mut ready = Vec::new();
        while let Some(first) = self.by_end.first_entry()
            && first.key().0 <= position
        {
            let ((end, _), (start, asker)) = first.remove_entry();
            ready.push((start..end, asker));
        }
        ready
    }
}

/// Offset within a flight. A flight fits into memory.
fn within(position: u64, start: u64) -> usize {
    usize::try_from(position - start).expect("a flight fits into memory")
}
