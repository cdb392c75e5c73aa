//! `GetChunks`: a stream that makes each message when the client has window for it.
//!
//! ```text
//!  addresses --> in memory or in the page cache -----------------+--> message --> client
//!       |                                                        |
//!       +--> others: together, as a batch --> received ----------+
//! ```
//!
//! **Dispatch.** Every message takes all outcomes that are ready, up to
//! [`MESSAGE_BYTES`](super::limits::MESSAGE_BYTES), and is sent at once; it never waits for more.
//! **Backpressure.** While the client takes nothing, only batches in flight go on, of at most
//! [`WAITING_COUNT_MAX`] chunks. **Cancellation.** Dropping the stream cancels its batches.
//! **Deadlines.** A client's deadline ends the stream. Without one, the reads in flight fail when
//! none is received within the table's timeout while the client waits; a client that reads slowly
//! may take as long as it likes.

use std::{
    collections::{BTreeSet, VecDeque},
    pin::Pin,
    task::{Context, Poll},
};

use busload_calls::{CallTimer, Deadline, DeadlineTimer};
use busload_dolt::{Attempt, Chunk, ChunkAddress, Error, Form, Request, Requester, Store};
use busload_proto::v1::GetChunksResponse;
use bytes::Bytes;
use futures_util::{
    Stream, StreamExt,
    stream::{BoxStream, SelectAll, unfold},
};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, Sleep, sleep},
};
use tonic::Status;

use super::{
    answer::{Message, Outcome},
    limits::{BATCHES_IN_FLIGHT_MAX, LOOKUPS_PER_TURN, WAITING_COUNT_MAX},
};
use crate::traces::CallSpan;

/// Outcomes by index, in any order.
pub type Outcomes = Vec<(u32, Outcome)>;

/// Source of chunks that a call reads from.
pub trait Reader: Send + Unpin + 'static {
    /// Reads a chunk that can be read without waiting.
    fn try_get(
        &self,
        requester: Requester,
        address: &ChunkAddress,
        form: Form,
    ) -> Attempt<Option<Chunk>>;
    /// Reads chunks that have to be waited for. Each address gets one outcome.
    fn get_many(
        &self,
        addresses: Vec<ChunkAddress>,
        request: Request,
    ) -> BoxStream<'static, Outcomes>;
}

impl Reader for Store {
    fn try_get(
        &self,
        requester: Requester,
        address: &ChunkAddress,
        form: Form,
    ) -> Attempt<Option<Chunk>> {
        self.try_get_for(requester, address, form)
    }

    fn get_many(
        &self,
        addresses: Vec<ChunkAddress>,
        request: Request,
    ) -> BoxStream<'static, Outcomes> {
        let reads = Some(Store::get_many(self, addresses, request));
        let received = unfold(reads, async |reads| {
            let mut reads = reads?;
            let mut received = Vec::new();
            let more = reads.next(&mut received).await;
            Some((received, more.then_some(reads)))
        });
        received.boxed()
    }
}

/// A request whose addresses are valid.
#[derive(Debug)]
pub struct Call {
    /// Addresses of 20 bytes each, one after the other.
    pub addresses: Bytes,
    /// Form in which the client wants the chunks.
    pub form: Form,
    /// Set to read from local disk only.
    pub local_only: bool,
    /// Sender of the call.
    pub requester: Requester,
    /// Deadline of the call.
    pub deadline: Deadline,
    /// Timer that ends when the first message is there.
    pub timer: Option<CallTimer>,
    /// Permit for the call, released with the stream.
    pub _permit: Option<OwnedSemaphorePermit>,
    /// Span of the call, which ends with the stream.
    pub _span: Option<CallSpan>,
}

/// The stream of messages that answers a call.
pub struct Answers<R> {
    reader: R,
    call: Call,
    /// Index of the first address that is not looked up yet.
    next: u32,
    /// Indexes of addresses that have to be waited for and are in no batch yet.
    waiting: Vec<u32>,
    batches: SelectAll<BoxStream<'static, Outcomes>>,
    /// Indexes of addresses in batches in flight.
    in_flight: BTreeSet<u32>,
    /// Time at which those fail, unless an outcome is received before.
    timeout: Pin<Box<Sleep>>,
    received: VecDeque<(u32, Outcome)>,
    deadline: DeadlineTimer,
    over: bool,
}

/// Why a round of lookups ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// All addresses have been looked up.
    Done,
    /// The message is full.
    Full,
    /// The round did [`LOOKUPS_PER_TURN`] lookups; other tasks are due.
    Used,
}

impl<R: Reader> Answers<R> {
    /// Creates the stream that answers a call.
    pub fn new(reader: R, call: Call) -> Self {
        let deadline = call.deadline.timer();
        let timeout = Box::pin(sleep(call.deadline.timeout()));
        Self {
            reader,
            call,
            next: 0,
            waiting: Vec::new(),
            batches: SelectAll::new(),
            in_flight: BTreeSet::new(),
            timeout,
            received: VecDeque::new(),
            deadline,
            over: false,
        }
    }

    fn address(&self, index: u32) -> Option<ChunkAddress> {
        let (addresses, _) = self.call.addresses.as_chunks();
        addresses.get(index as usize).copied().map(ChunkAddress)
    }

    /// Moves received outcomes into the message, as many as fit. Registers the waker for further
    /// ones.
    fn take_received(&mut self, context: &mut Context<'_>, message: &mut Message) {
        loop {
            while let Some((_, outcome)) = self.received.front()
                && message.has_space_for(outcome)
                && let Some((index, outcome)) = self.received.pop_front()
            {
                message.add(index, outcome, &self.call.deadline);
            }
            if !self.received.is_empty() {
                return;
            }
            let Poll::Ready(Some(received)) = self.batches.poll_next_unpin(context) else { return };
            for (index, _) in &received {
                self.in_flight.remove(index);
            }
            self.received.extend(received);
            self.begin_timeout();
        }
    }

    /// Looks up further addresses.
    fn look_up(&mut self, message: &mut Message) -> Turn {
        for _ in 0..LOOKUPS_PER_TURN {
            if message.is_full() || !self.received.is_empty() {
                return Turn::Full;
            }
            let Some(address) = self.address(self.next) else { return Turn::Done };
            match self.reader.try_get(self.call.requester, &address, self.call.form) {
                Attempt::Wait => self.waiting.push(self.next),
                Attempt::Ready(outcome) if message.has_space_for(&outcome) => {
                    message.add(self.next, outcome, &self.call.deadline);
                }
                Attempt::Ready(outcome) => self.received.push_back((self.next, outcome)),
            }
            self.next += 1;
        }
        Turn::Used
    }

    /// Sends the addresses that have to be waited for as one batch. Returns whether it sent one.
    fn dispatch(&mut self) -> bool {
        let count = WAITING_COUNT_MAX.saturating_sub(self.in_flight.len()).min(self.waiting.len());
        if count == 0 || BATCHES_IN_FLIGHT_MAX <= self.batches.len() {
            return false;
        }
        let indexes: Vec<u32> = self.waiting.drain(..count).collect();
        if self.in_flight.is_empty() {
            self.begin_timeout();
        }
        self.in_flight.extend(&indexes);
        let addresses = indexes.iter().filter_map(|index| self.address(*index)).collect();
        let Call { form, local_only, requester, .. } = self.call;
        let deadline = self.call.deadline.of_paced_batch();
        let request = Request { form, local_only, requester, deadline };
        let received = self.reader.get_many(addresses, request).map(move |mut received| {
            received.iter_mut().for_each(|(index, _)| *index = indexes[*index as usize]);
            received
        });
        self.batches.push(received.boxed());
        true
    }

    /// Ends the time of the call, with the first of its messages.
    fn end_timer(&mut self) {
        if let Some(timer) = self.call.timer.take() {
            timer.end();
        }
    }

    fn begin_timeout(&mut self) {
        let until = Instant::now() + self.call.deadline.timeout();
        self.timeout.as_mut().reset(until);
    }

    /// Returns whether no outcome was received for too long. Called while the client waits; false
    /// if the client set a deadline.
    fn has_stalled(&mut self, context: &mut Context<'_>) -> bool {
        self.call.deadline.of_client().is_none()
            && !self.in_flight.is_empty()
            && self.timeout.as_mut().poll(context).is_ready()
    }

    /// Fails all reads in flight.
    fn fail_in_flight(&mut self) {
        self.batches = SelectAll::new();
        let late = Error::DeadlineExceeded(self.call.deadline.passed().message().to_owned());
        let indexes = std::mem::take(&mut self.in_flight);
        self.received.extend(indexes.into_iter().map(|index| (index, Err(late.clone()))));
    }

    fn is_done(&self) -> bool {
        self.batches.is_empty() && self.waiting.is_empty() && self.received.is_empty()
    }

    /// Makes one message, if there is anything to send yet.
    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<Option<GetChunksResponse>> {
        let mut message = Message::default();
        self.take_received(context, &mut message);
        let turn = self.look_up(&mut message);
        if turn == Turn::Used && message.is_empty() {
            // Addresses found so far that have to be waited for share a batch with those found
            // next.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        // A new batch has to be polled once, or it would never wake this task.
        while self.dispatch() {
            self.take_received(context, &mut message);
        }
        if !message.is_empty() {
            return Poll::Ready(Some(message.into_inner()));
        }
        if turn == Turn::Done && self.is_done() { Poll::Ready(None) } else { Poll::Pending }
    }
}

impl<R: Reader> Stream for Answers<R> {
    type Item = Result<GetChunksResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.over {
            return Poll::Ready(None);
        }
        if let Poll::Ready(passed) = self.deadline.poll_passed(context) {
            self.over = true;
            self.end_timer();
            return Poll::Ready(Some(Err(passed)));
        }
        let mut polled = self.poll_message(context);
        if polled.is_pending() && self.has_stalled(context) {
            self.fail_in_flight();
            polled = self.poll_message(context);
        }
        if polled.is_ready() {
            self.end_timer();
        }
        polled.map(|message| message.map(Ok))
    }
}

#[cfg(test)]
#[path = "many/tests.rs"]
mod tests;
