//! Bytes of an object in order, for who takes all of them.
//!
//! ```text
//!  poll --> first piece --> here, on disk and in memory of the system? ------> given on at once
//!             |                on disk? ----------> a thread that may block ->
//!             |                started ahead? ----> its bytes as they arrive -->
//!             |                else --------------> a fetch of its own ----->
//!             +--> few pieces left? the next ones are asked for together
//!                        Once: what comes after them is started ahead, as parts to disk or, if that does not take them, past it
//! ```
//!
//! * **Nothing happens between polls** but what others could want too: fetches and parts belong to
//!   the runtime. A stream that is dropped leaves behind what had left for the store, nothing else.
//! * [`Use::Again`] reads as [`Object::read_many`] does: it counts as use, and what is missing
//!   starts the usual fill.
//! * [`Use::Once`] brings what is missing in parts of the fill, ahead of where it is, in parallel.
//!   Streams that run together find each other's parts in the table and each other's extents on
//!   disk: every byte is asked for once, as long as the disk takes it. Neither their reads nor
//!   their extents count as use for the eviction.
//! * **Past the disk** comes what it does not take, or had to give up before the stream got there:
//!   in shorter reads, whose bytes are among those that arrived lately. Streams at about the same
//!   place share these. Nothing comes more than once each way for a stream, so that a disk that
//!   keeps nothing costs no more than that.
//! * **What is started ahead is a convenience**: a part that fails or waits too long (for the
//!   budget, for the window) costs time, never the stream: its pieces are read in the foreground
//!   then, with all the attempts that such reads have.
//! * **A thin line** is not shared among more than it can bring: what is started ahead leaves when
//!   what is before it is due soon (see [`super::readahead_limiter`]), and a piece is waited for as
//!   long as bytes come.
//! * **Fairness**: what is started ahead has the urgency of fills, so copies do not stand before
//!   those who wait for a few bytes.
//! * **Memory**: a stream holds [`PIECES_AHEAD_MAX`] pieces, however slow its reader is. What is
//!   under way ahead of it is in the budget of fills, takes its share of that in a task of its own,
//!   and gives it back when it is on disk or, past the disk, among what arrived lately
//!   ([`super::limits::RECEIVED_BYTES_MAX`] for all): nothing of that depends on who reads.

use std::{
    collections::VecDeque,
    fmt,
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{FutureExt, Stream};
use tokio::{sync::oneshot, time::Instant};

use super::{
    Missed, Object, OnMiss, Shared, Wanted,
    limits::{PIECES_AHEAD_MAX, PIECES_AHEAD_MIN, PIECES_FROM_DISK, TIMEOUT_MAX},
    plan::blocks_of,
    reading::{Deadline, Timer, given_up, too_late},
};
use crate::{Error, disk::Count};

mod ahead;
mod piece;

use ahead::Ahead;
use piece::{Piece, State};

/// What the bytes are likely to be wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Parts of them again and again: they count as read, as with [`Object::read`].
    Again,
    /// All of them once, as a copy of the object is made: they are not to drive out what is read
    /// again.
    Once,
}

impl Use {
    pub(super) fn count(self) -> Count {
        match self {
            Self::Again => Count::AsUse,
            Self::Once => Count::Not,
        }
    }
}

/// How to stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamOptions {
    /// See there.
    pub purpose: Use,
    /// A piece of which nothing has come for so long, from when it is polled for, is an error.
    pub timeout: Duration,
}

/// Pieces of a range, in order, none empty. After an error there is nothing.
pub struct ObjectStream {
    shared: Arc<Shared>,
    purpose: Use,
    timeout: Duration,
    /// Told first.
    refused: Option<Error>,
    /// Not cut into pieces yet.
    rest: Range<u64>,
    /// The next one first.
    pieces: VecDeque<Piece>,
    ahead: Ahead,
    /// What was started ahead did not come in time: until then nothing is, nor waited for.
    alone_until: Option<Instant>,
    wait: Wait,
}

/// How long the first piece has been waited for.
#[derive(Default)]
struct Wait {
    began: Option<Instant>,
    timer: Option<Deadline>,
}

impl Object {
    /// Streams a range. Nothing is read before it is polled, from any thread; dropping it gives up
    /// what nobody else waits for.
    ///
    /// # Errors
    /// Of the stream: as [`Object::read_many`].
    pub fn stream(&self, range: Range<u64>, options: StreamOptions) -> ObjectStream {
        let refused = self.shared.check(&range).err();
        let rest = if refused.is_some() { 0..0 } else { range };
        ObjectStream {
            shared: Arc::clone(&self.shared),
            purpose: options.purpose,
            timeout: options.timeout.min(TIMEOUT_MAX),
            refused,
            rest,
            pieces: VecDeque::new(),
            ahead: Ahead::new(options.timeout.min(TIMEOUT_MAX)),
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
            self.ahead.advance(&self.shared, &self.rest);
        }
        while self.pieces.len() < PIECES_AHEAD_MAX
            && let Some(range) = piece::cut(&mut self.rest, self.purpose)
        {
            self.pieces.push_back(Piece { range, state: State::Local });
        }
        self.ask_for_missing();
    }

    /// Whether things are started ahead, and waited for.
    fn is_ahead(&self) -> bool {
        self.purpose == Use::Once && self.alone_until.is_none_or(|until| until <= Instant::now())
    }

    /// Of all pieces that were not asked for yet.
    fn ask_for_missing(&mut self) {
        let is_ahead = self.is_ahead();
        let mut missing = Wanted::new();
        for piece in &mut self.pieces {
            if !matches!(piece.state, State::Local) || self.shared.is_present(&piece.range) {
                continue;
            }
            // Other reads judge for themselves whether a part is worth waiting for.
            match is_ahead.then(|| join(&self.shared, &piece.range)).flatten() {
                Some(answer) => piece.state = State::Part(answer),
                None => missing.push((piece.range.clone(), piece.ask())),
            }
        }
        self.shared.read_missing(missing, Missed::Presence, self.purpose);
    }

    /// The first piece is not in memory of the system, so the next ones may not be there either.
    fn ask_disk(&mut self) {
        for piece in self.pieces.iter_mut().take(PIECES_FROM_DISK) {
            if matches!(piece.state, State::Local) && self.shared.is_present(&piece.range) {
                let waiter = piece.ask();
                self.shared.read_disk(piece.range.clone(), waiter, OnMiss::Ask(self.purpose));
            }
        }
        self.ask_for_missing();
    }

    /// Parts do not bring what they should: from now on these pieces are a matter of the
    /// foreground.
    fn leave_parts(&mut self) {
        self.wait.timer = None;
        let left: Wanted = self.pieces.iter_mut().filter_map(Piece::leave_part).collect();
        self.shared.read_missing(left, Missed::Presence, self.purpose);
    }

    /// None: there are no more pieces.
    fn poll_first(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        loop {
            let Some(first) = self.pieces.front_mut() else { return Poll::Ready(None) };
            match &mut first.state {
                State::Here(bytes) => return Poll::Ready(Some(Ok(std::mem::take(bytes)))),
                State::Local => match self.shared.try_read(&first.range, self.purpose) {
                    Some(bytes) => return Poll::Ready(Some(Ok(bytes))),
                    None => self.ask_disk(),
                },
                State::Part(answer) => match answer.poll_unpin(context) {
                    Poll::Ready(Ok(Ok(bytes))) => return Poll::Ready(Some(Ok(bytes))),
                    Poll::Ready(_) => self.leave_parts(),
                    Poll::Pending => {
                        // Half of the time is left for a read that does not depend on fills.
                        ready!(self.wait.poll(
                            &self.shared,
                            &first.range,
                            self.timeout / 2,
                            context
                        ));
                        self.alone_until = Some(Instant::now() + self.timeout);
                        self.leave_parts();
                    }
                },
                State::Asked(answer) => {
                    if let Poll::Ready(answer) = answer.poll_unpin(context) {
                        let answer = answer.unwrap_or_else(|_| Err(given_up(&self.shared.what())));
                        return Poll::Ready(Some(answer));
                    }
                    let has_passed =
                        ready!(self.wait.poll(&self.shared, &first.range, self.timeout, context));
                    let error = if has_passed {
                        too_late(&self.shared)
                    } else {
                        given_up(&self.shared.what())
                    };
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }

    fn end(&mut self) {
        self.rest = 0..0;
        self.pieces.clear();
        self.ahead = Ahead::default();
    }
}

#[cfg(test)]
impl ObjectStream {
    /// Bytes that were asked for and not given on.
    pub(super) fn held_bytes(&self) -> u64 {
        let asked = self.pieces.iter().filter(|piece| !matches!(piece.state, State::Local));
        asked.map(|piece| piece.range.end - piece.range.start).sum()
    }
}

/// Waits for bytes of a part or a read that was started ahead, if there is one.
fn join(shared: &Shared, range: &Range<u64>) -> Option<oneshot::Receiver<Result<Bytes, Error>>> {
    let fetch = {
        let table = shared.table();
        table
            .part(range)
            .or_else(|| table.foreground(&blocks_of(range, shared.meta.size)))
            .cloned()?
    };
    let (waiter, answer) = oneshot::channel();
    fetch.join(range.clone(), waiter).ok()?;
    shared.count_joined();
    Some(answer)
}

impl Wait {
    /// Ready when nothing has come for too long (true), or when the runtime ended before (false).
    /// Timeout is for silence: what comes slowly would come no sooner if it were asked for again.
    fn poll(
        &mut self,
        shared: &Shared,
        range: &Range<u64>,
        timeout: Duration,
        context: &mut Context<'_>,
    ) -> Poll<bool> {
        let began = *self.began.get_or_insert_with(Instant::now);
        let until = || shared.brought(range).map_or(began, |brought| brought.max(began)) + timeout;
        loop {
            let start = || Timer::start(shared.remote.runtime(), until().into_std());
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
            .field("purpose", &self.purpose)
            .finish()
    }
}
