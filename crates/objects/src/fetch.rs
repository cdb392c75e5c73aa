//! Single-flight reads of the object store: one fetch, however many wait for bytes of it.
//!
//! ```text
//!  read, stream --join--> Fetch <--bytes, in order-- Remote::read_range
//!                           |
//!                           +--> each waiter, as soon as its bytes are there
//! ```
//!
//! * [`FetchTable`]: the fetches of one object, by range. Finding one and adding one happen under
//!   one lock.
//! * [`ForegroundFetch`]: the task of a fetch whose bytes go to no disk. A part of a fill
//!   ([`crate::fill`]) is the task of a fetch whose bytes go there.
//! * [`RecentFetches`]: the last completed ones, whose bytes later readers still find.
//! * [`ReadaheadLimiter`]: sends what is ahead of a stream, and fills, one after the other over a
//!   slow link.

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

mod limiter;
mod recent;
mod table;
mod task;

pub(crate) use limiter::{ReadaheadLimiter, ReadaheadTurn};
pub(crate) use recent::RecentFetches;
pub(crate) use table::FetchTable;
pub(crate) use task::ForegroundFetch;

/// Sender of the bytes, or the error, to one reader that waits for them.
pub(crate) type Waiter = oneshot::Sender<Result<Bytes, Error>>;

/// One read of the store, under way or completed, and its waiters. Bytes arrive in order.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) range: Range<u64>,
    purpose: FetchPurpose,
    /// Set when a caller found that its bytes are wrong: nobody joins, nothing is written.
    invalidated: AtomicBool,
    state: Mutex<FetchState>,
}

/// Keeps a fetch wanted, for as long as it lives, although nobody waits for bytes of it yet.
#[derive(Debug)]
pub(crate) struct InterestGuard(());

/// Reason for a fetch, which decides whether it goes on when nobody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FetchPurpose {
    /// Waiters need it. Without any it is not sent.
    Waiters,
    /// Streams will get there. Without an [`InterestGuard`] and without a waiter it is not sent.
    Streams,
    /// A fill writes it to disk.
    Fill,
}

#[derive(Debug, Default)]
struct FetchState {
    received: FetchBytes,
    waiters: Waiters,
    interest: Weak<InterestGuard>,
    sent: Option<Instant>,
    begun: Option<Instant>,
    /// Time at which its answer began or bytes came, the later one.
    moved: Option<Instant>,
    /// Time at which bytes came last.
    last_bytes: Option<Instant>,
}

#[derive(Debug)]
enum FetchBytes {
    Some(BytesMut),
    All(Bytes),
    Failed,
}

/// Waiters by the end of their range: when bytes up to there have come, they get their answer.
#[derive(Debug, Default)]
struct Waiters {
    by_end: BTreeMap<(u64, u64), (u64, Waiter)>,
    count: u64,
}

/// Progress of a fetch, for the policy in [`crate::readahead`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct FetchProgress {
    /// End of the bytes that have come.
    pub(crate) position: u64,
    pub(crate) start: u64,
    /// Time at which its last request was sent; none before the first.
    pub(crate) sent: Option<Instant>,
    /// Time at which its last answer began.
    pub(crate) begun: Option<Instant>,
    /// Time at which its answer began or bytes came, the later one.
    pub(crate) moved: Option<Instant>,
}

impl Default for FetchBytes {
    fn default() -> Self {
        Self::Some(BytesMut::new())
    }
}

impl Fetch {
    pub(crate) fn new(range: Range<u64>, purpose: FetchPurpose) -> Self {
        Self { range, purpose, invalidated: AtomicBool::new(false), state: Mutex::default() }
    }

    /// Returns whether the fetch is sent as soon as the window allows.
    pub(crate) fn is_urgent(&self) -> bool {
        self.purpose == FetchPurpose::Waiters
    }

    pub(crate) fn covers(&self, range: &Range<u64>) -> bool {
        self.range.start <= range.start && range.end <= self.range.end
    }

    pub(crate) fn overlaps(&self, range: &Range<u64>) -> bool {
        self.range.start < range.end && range.start < self.range.end
    }

    pub(crate) fn invalidate(&self) {
        self.invalidated.store(true, Relaxed);
    }

    pub(crate) fn is_invalidated(&self) -> bool {
        self.invalidated.load(Relaxed)
    }

    /// Waits for bytes that the fetch covers. Gives the waiter back if the fetch has failed.
    pub(crate) fn join(&self, range: Range<u64>, waiter: Waiter) -> Result<(), Waiter> {
        debug_assert!(self.covers(&range), "{range:?} of {:?}", self.range);
        let mut state = self.lock();
        if let FetchBytes::Failed = state.received {
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

    /// Returns a guard for a stream that will wait for bytes of it later, or none if it has failed.
    pub(crate) fn interest(&self) -> Option<Arc<InterestGuard>> {
        let mut state = self.lock();
        if let FetchBytes::Failed = state.received {
            return None;
        }
        let interest = state.interest.upgrade().unwrap_or_else(|| Arc::new(InterestGuard(())));
        state.interest = Arc::downgrade(&interest);
        Some(interest)
    }

    /// All of its bytes, if they have come.
    pub(crate) fn received(&self) -> Option<Bytes> {
        match &self.lock().received {
            FetchBytes::All(bytes) => Some(bytes.clone()),
            FetchBytes::Some(_) | FetchBytes::Failed => None,
        }
    }

    /// Returns whether the fetch is complete or has failed.
    pub(crate) fn has_ended(&self) -> bool {
        !matches!(self.lock().received, FetchBytes::Some(_))
    }

    /// Time at which bytes came last.
    pub(crate) fn last_bytes(&self) -> Option<Instant> {
        self.lock().last_bytes
    }

    pub(crate) fn progress(&self) -> FetchProgress {
        let state = self.lock();
        let position = match &state.received {
            FetchBytes::Some(bytes) => self.range.start + bytes.len() as u64,
            FetchBytes::All(_) => self.range.end,
            FetchBytes::Failed => self.range.start,
        };
        let FetchState { sent, begun, moved, .. } = *state;
        FetchProgress { position, start: self.range.start, sent, begun, moved }
    }

    /// Answers all who still wait with the error. Does nothing once all bytes have come.
    pub(crate) fn fail(&self, error: &Error) {
        let mut state = self.lock();
        if let FetchBytes::All(_) = state.received {
            return;
        }
        state.received = FetchBytes::Failed;
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        for (_, (_, waiter)) in waiters.by_end {
            drop(waiter.send(Err(error.clone())));
        }
    }

    /// Cuts the answers. Waiters for the same range, as streams of one object have, share one copy.
    fn answers(
        &self,
        received: &FetchBytes,
        ready: Vec<(Range<u64>, Waiter)>,
    ) -> Vec<(Bytes, Waiter)> {
        let mut last = (0..0, Bytes::new());
        let answer = |(range, waiter): (Range<u64>, Waiter)| {
            if last.0 != range {
                let bytes =
                    self.cut(received, &range).expect("a waiter is ready when its bytes are there");
                last = (range, bytes);
            }
            (last.1.clone(), waiter)
        };
        ready.into_iter().map(answer).collect()
    }

    /// Bytes of a range if they are there. A small part of a fetch is copied, so that it does not
    /// keep all of it in memory.
    fn cut(&self, received: &FetchBytes, range: &Range<u64>) -> Option<Bytes> {
        let span = within(range.start, self.range.start)..within(range.end, self.range.start);
        match received {
            FetchBytes::Some(bytes) => bytes.get(span).map(Bytes::copy_from_slice),
            FetchBytes::All(bytes) if bytes.len() / 2 <= span.len() => Some(bytes.slice(span)),
            FetchBytes::All(bytes) => Some(Bytes::copy_from_slice(&bytes[span])),
            FetchBytes::Failed => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, FetchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for &Fetch {
    fn is_waited_for(&self) -> bool {
        self.purpose == FetchPurpose::Fill || self.lock().is_waited_for()
    }

    fn has_reader(&self) -> bool {
        self.lock().is_read()
    }

    /// Decided under the lock under which waiters join: one that comes later finds a failed fetch
    /// and starts another.
    fn is_wanted(&mut self) -> bool {
        if self.purpose == FetchPurpose::Fill {
            return true;
        }
        let mut state = self.lock();
        let is_wanted = state.is_waited_for();
        if !is_wanted {
            state.received = FetchBytes::Failed;
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
        state.last_bytes = Some(now);
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

impl FetchState {
    fn is_waited_for(&self) -> bool {
        0 < self.interest.strong_count() || self.is_read()
    }

    /// Returns whether a reader waits for bytes that have not come.
    fn is_read(&self) -> bool {
        self.waiters.by_end.values().any(|(_, waiter)| !waiter.is_closed())
    }
}

impl FetchBytes {
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

/// Offset of a position within a fetch, which fits into memory.
fn within(position: u64, start: u64) -> usize {
    usize::try_from(position - start).expect("a fetch fits into memory")
}
