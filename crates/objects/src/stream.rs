//! Streams: the bytes of a range in order, for a reader that takes all of them.
//!
//! ```text
//!  poll --> first piece --> here, or on disk and in the page cache? ---> returned at once
//!             |                on disk? ------> a thread that may block ->
//!             |                fetched ahead? -> its bytes as they arrive ->
//!             |                else ----------> a foreground fetch ------->
//!             +--> few pieces left? the next ones are asked for together;
//!                  Sequential: fetches ahead of them are started (lookahead.rs)
//! ```
//!
//! * **Nothing happens between polls** but what others could want too: fetches and parts belong to
//!   the runtime. A dropped stream leaves behind the requests that were sent, nothing else.
//! * [`AccessHint::Random`] reads as [`Object::read_many`] does: reads count for the eviction, and
//!   what is missing starts the usual fill.
//! * [`AccessHint::Sequential`] brings what is missing in parts of a fill, ahead of the stream, in
//!   parallel. Streams that run together find each other's parts in the fetch table and each
//!   other's extents on disk: every byte is fetched once, for as long as the disk takes it. Neither
//!   their reads nor their extents count for the eviction.
//! * **Cache bypass**: what the disk does not take, or evicted before the stream got there, comes
//!   in shorter reads whose bytes stay in memory for a while ([`RECEIVED_BYTES_MAX`] for all).
//!   Streams at about the same position share them. A stream starts each extent at most once each
//!   way, so that a disk that keeps nothing costs no more than that.
//! * **Readahead is optional**: a part that fails or waits too long (for the budget, for the
//!   window) costs time, never the stream, which then reads its pieces in the foreground, with all
//!   the attempts that such reads have.
//! * **A slow link** is not shared among more fetches than it can bring in time: each fetch ahead
//!   is sent when those before it are due soon ([`crate::readahead`]), and a stream waits for a
//!   piece for as long as bytes come.
//! * **Fairness**: fetches ahead have the urgency of fills, so that copies do not delay small
//!   reads.
//! * **Memory**: a stream holds [`PIECES_AHEAD_MAX`] pieces, however slow its reader is. Fetches
//!   ahead are within the budget of fills; their tasks give it back when the bytes are on disk or
//!   among the recent fetches of all readers.
//!
//! [`RECEIVED_BYTES_MAX`]: crate::limits::RECEIVED_BYTES_MAX

use std::{
    collections::VecDeque,
    fmt,
    ops::Range,
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{FutureExt, Stream};
use tokio::{sync::oneshot, time::Instant};

use crate::{
    AccessHint, Error, Object,
    limits::{PIECES_AHEAD_MAX, PIECES_AHEAD_MIN, PIECES_FROM_DISK, TIMEOUT_MAX},
    object::ObjectCore,
    read::{Deadline, MissCause, OnMiss, Timer, WaitingReads, deadline_exceeded, stopped},
    readahead::blocks_of,
};

mod lookahead;
mod piece;

use lookahead::Lookahead;
use piece::{Piece, PieceSource};

/// Access pattern and timeout of a stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamOptions {
    /// Access pattern: whether the reads count for the eviction, and whether the stream reads
    /// ahead.
    pub hint: AccessHint,
    /// Longest time without a byte for a piece that is polled for; then the stream fails.
    pub timeout: Duration,
}

/// Stream of the pieces of a range, in order, none empty. It ends after an error.
pub struct ObjectStream {
    core: Arc<ObjectCore>,
    hint: AccessHint,
    timeout: Duration,
    /// Error of the range itself, returned first.
    refused: Option<Error>,
    /// Range that is not cut into pieces yet.
    rest: Range<u64>,
    /// Pieces, the next one first.
    pieces: VecDeque<Piece>,
    lookahead: Lookahead,
    /// Until then the stream neither starts fetches ahead nor waits for any: one did not come in
    /// time.
    alone_until: Option<Instant>,
    wait: Wait,
}

/// Time for which the reader has waited for the first piece.
#[derive(Default)]
struct Wait {
    began: Option<Instant>,
    timer: Option<Deadline>,
}

impl Object {
    /// Streams a range. The stream reads nothing before it is polled, from any thread; dropping it
    /// ends the fetches that nobody else waits for.
    ///
    /// # Errors
    /// Of the stream: as [`Object::read_many`].
    pub fn stream(&self, range: Range<u64>, options: StreamOptions) -> ObjectStream {
        let refused = self.core.check_range(&range).err();
        let rest = if refused.is_some() { 0..0 } else { range };
        ObjectStream {
            core: Arc::clone(&self.core),
            hint: options.hint,
            timeout: options.timeout.min(TIMEOUT_MAX),
            refused,
            rest,
            pieces: VecDeque::new(),
            lookahead: Lookahead::new(options.timeout.min(TIMEOUT_MAX)),
            alone_until: None,
            wait: Wait::default(),
        }
    }
}

impl Stream for ObjectStream {
    type Item = Result<Bytes, Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if let Some(error) = this.refused.take() {
            return Poll::Ready(Some(Err(error)));
        }
        this.look_ahead();
        let Some(outcome) = ready!(this.poll_first(context)) else { return Poll::Ready(None) };
        this.wait = Wait::default();
        match &outcome {
            Ok(_) => drop(this.pieces.pop_front()),
            Err(_) => this.end(),
        }
        Poll::Ready(Some(outcome))
    }
}

impl ObjectStream {
    fn look_ahead(&mut self) {
        if self.rest.is_empty() || PIECES_AHEAD_MIN < self.pieces.len() {
            return;
        }
        if self.is_ahead() {
            self.lookahead.advance(&self.core, &self.rest);
        }
        while self.pieces.len() < PIECES_AHEAD_MAX
            && let Some(range) = piece::cut(&mut self.rest, self.hint)
        {
            self.pieces.push_back(Piece { range, source: PieceSource::Disk });
        }
        self.ask_for_missing();
    }

    /// Returns whether the stream starts fetches ahead and waits for them.
    fn is_ahead(&self) -> bool {
        self.hint == AccessHint::Sequential
            && self.alone_until.is_none_or(|until| until <= Instant::now())
    }

    /// Asks for all pieces that are not on disk and were not asked for yet.
    fn ask_for_missing(&mut self) {
        let is_ahead = self.is_ahead();
        let mut missing = WaitingReads::new();
        for piece in &mut self.pieces {
            if !matches!(piece.source, PieceSource::Disk) || self.core.is_present(&piece.range) {
                continue;
            }
            // Reads in the foreground decide in `read_missing` whether a part is worth waiting for.
            match is_ahead.then(|| join(&self.core, &piece.range)).flatten() {
                Some(answer) => piece.source = PieceSource::Part(answer),
                None => missing.push((piece.range.clone(), piece.await_read())),
            }
        }
        self.core.read_missing(missing, MissCause::NotOnDisk, self.hint);
    }

    /// Reads the next pieces from disk: the first is not in the page cache, so the others may not
    /// be there either.
    fn ask_disk(&mut self) {
        for piece in self.pieces.iter_mut().take(PIECES_FROM_DISK) {
            if matches!(piece.source, PieceSource::Disk) && self.core.is_present(&piece.range) {
                let waiter = piece.await_read();
                self.core.read_disk(piece.range.clone(), waiter, OnMiss::Fetch(self.hint));
            }
        }
        self.ask_for_missing();
    }

    /// Reads in the foreground what parts should have brought.
    fn leave_parts(&mut self) {
        self.wait.timer = None;
        let left: WaitingReads = self.pieces.iter_mut().filter_map(Piece::leave_part).collect();
        self.core.read_missing(left, MissCause::NotOnDisk, self.hint);
    }

    /// Polls for the first piece. None: there are no more pieces.
    fn poll_first(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        loop {
            let Some(first) = self.pieces.front_mut() else { return Poll::Ready(None) };
            match &mut first.source {
                PieceSource::Ready(bytes) => return Poll::Ready(Some(Ok(std::mem::take(bytes)))),
                PieceSource::Disk => match self.core.try_read(&first.range, self.hint) {
                    Some(bytes) => return Poll::Ready(Some(Ok(bytes))),
                    None => self.ask_disk(),
                },
                PieceSource::Part(answer) => match answer.poll_unpin(context) {
                    Poll::Ready(Ok(Ok(bytes))) => return Poll::Ready(Some(Ok(bytes))),
                    Poll::Ready(_) => self.leave_parts(),
                    Poll::Pending => {
                        // Half of the time is left for a read that does not depend on fills.
                        ready!(self.wait.poll(&self.core, &first.range, self.timeout / 2, context));
                        self.alone_until = Some(Instant::now() + self.timeout);
                        self.leave_parts();
                    }
                },
                PieceSource::Read(answer) => {
                    if let Poll::Ready(answer) = answer.poll_unpin(context) {
                        let answer = answer.unwrap_or_else(|_| Err(stopped(&self.core.what())));
                        return Poll::Ready(Some(answer));
                    }
                    let has_passed =
                        ready!(self.wait.poll(&self.core, &first.range, self.timeout, context));
                    let error = if has_passed {
                        deadline_exceeded(&self.core)
                    } else {
                        stopped(&self.core.what())
                    };
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }

    fn end(&mut self) {
        self.rest = 0..0;
        self.pieces.clear();
        self.lookahead = Lookahead::default();
    }
}

#[cfg(test)]
impl ObjectStream {
    /// Bytes that the stream has asked for and not returned.
    pub(crate) fn held_bytes(&self) -> u64 {
        let asked = self.pieces.iter().filter(|piece| !matches!(piece.source, PieceSource::Disk));
        asked.map(|piece| piece.range.end - piece.range.start).sum()
    }
}

/// Joins a part or another fetch that brings a range, if there is one.
fn join(core: &ObjectCore, range: &Range<u64>) -> Option<oneshot::Receiver<Result<Bytes, Error>>> {
    let fetch = {
        let fetches = core.fetches();
        fetches
            .part(range)
            .or_else(|| fetches.foreground(&blocks_of(range, core.meta.size)))
            .cloned()?
    };
    let (waiter, answer) = oneshot::channel();
    fetch.join(range.clone(), waiter).ok()?;
    core.cache.counters.misses.fetch_add(1, Relaxed);
    core.cache.counters.joined.fetch_add(1, Relaxed);
    Some(answer)
}

/// Finds the time at which bytes came last of a fetch that brings all of a range.
fn last_bytes(core: &ObjectCore, range: &Range<u64>) -> Option<Instant> {
    let fetches = core.fetches();
    let found = [fetches.part(range), fetches.foreground(&blocks_of(range, core.meta.size))];
    found.into_iter().flatten().filter_map(|fetch| fetch.last_bytes()).max()
}

impl Wait {
    /// Ready when no byte has come for the timeout (true), or when the runtime ended before
    /// (false). Only silence counts: bytes that come slowly would come no sooner if they were
    /// fetched again.
    fn poll(
        &mut self,
        core: &ObjectCore,
        range: &Range<u64>,
        timeout: Duration,
        context: &mut Context<'_>,
    ) -> Poll<bool> {
        let began = *self.began.get_or_insert_with(Instant::now);
        let until = || last_bytes(core, range).map_or(began, |last| last.max(began)) + timeout;
        loop {
            let start = || Timer::start(core.remote.runtime(), until().into_std());
            let has_passed = ready!(self.timer.get_or_insert_with(start).poll_unpin(context));
            self.timer = None;
            if !has_passed || until() <= Instant::now() {
                return Poll::Ready(has_passed);
            }
        }
    }
}

impl fmt::Debug for ObjectStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let next = self.pieces.front().map_or(self.rest.start, |piece| piece.range.start);
        formatter
            .debug_struct("ObjectStream")
            .field("next", &next)
            .field("purpose", &self.hint)
            .finish()
    }
}
