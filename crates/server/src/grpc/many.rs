//! `GetChunks`: a stream that makes each message when the client has room for it.
//!
//! ```text
//!  addresses --> looked up where they can be had at once --+--> message --> client
//!       |                                                  |
//!       +--> the others together, a trip each --> landed --+
//! ```
//!
//! **Departure.** Everything that is ready travels in one message, up to
//! [`MESSAGE_BYTES`](super::limits::MESSAGE_BYTES), and leaves at once; nothing waits for more.
//! **Backpressure.** Nothing runs while the client takes nothing, but the trips under way, for
//! [`WAITING_COUNT_MAX`] chunks at most. **Cancellation.** What nobody asks for any more ends with
//! the stream. **Deadlines.** The client's ends the stream. Without one, what is under way has
//! failed when nothing of it lands within the table's timeout while the client waits; a client that
//! reads slowly has all the time it wants.

use std::{
    collections::{BTreeSet, VecDeque},
    pin::Pin,
    task::{Context, Poll},
};

use busload_dolt::{Attempt, Chunk, ChunkAddress, Error, Form, Request, Store};
use busload_proto::v1::GetChunksResponse;
use bytes::Bytes;
use futures_util::{
    Stream, StreamExt,
    stream::{BoxStream, SelectAll, unfold},
};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, Sleep, sleep, sleep_until},
};
use tonic::Status;

use super::{
    answer::{Message, Outcome},
    deadline::Deadline,
    limits::{LOOKUPS_PER_TURN, TRIP_COUNT_MAX, WAITING_COUNT_MAX},
};

/// Outcomes by index, in any order.
pub type Landed = Vec<(u32, Outcome)>;

/// What a call reads from.
pub trait Reader: Send + Unpin + 'static {
    /// What can be had without waiting.
    fn try_get(&self, address: &ChunkAddress, form: Form) -> Attempt<Option<Chunk>>;
    /// Everything else: each address gets one outcome.
    fn get_many(
        &self,
        addresses: Vec<ChunkAddress>,
        request: Request,
    ) -> BoxStream<'static, Landed>;
}

impl Reader for Store {
    fn try_get(&self, address: &ChunkAddress, form: Form) -> Attempt<Option<Chunk>> {
        Store::try_get(self, address, form)
    }

    fn get_many(
        &self,
        addresses: Vec<ChunkAddress>,
        request: Request,
    ) -> BoxStream<'static, Landed> {
        let reads = Some(Store::get_many(self, addresses, request));
        let landed = unfold(reads, async |reads| {
            let mut reads = reads?;
            let mut landed = Vec::new();
            let more = reads.next(&mut landed).await;
            Some((landed, more.then_some(reads)))
        });
        landed.boxed()
    }
}

/// What is asked for, checked.
#[derive(Debug)]
pub struct Call {
    /// Of 20 bytes each.
    pub addresses: Bytes,
    /// Wanted of them.
    pub form: Form,
    /// Only what is on local disk.
    pub local_only: bool,
    /// When it is too late.
    pub deadline: Deadline,
    /// One of the places for such calls.
    pub _place: Option<OwnedSemaphorePermit>,
}

/// The answer.
pub struct Answers<R> {
    reader: R,
    call: Call,
    /// Index of the address to be looked up next.
    next: u32,
    /// Indexes that have to be waited for and are not on a trip yet.
    waiting: Vec<u32>,
    trips: SelectAll<BoxStream<'static, Landed>>,
    /// Indexes of addresses on trips.
    under_way: BTreeSet<u32>,
    /// When those have failed, unless something lands.
    timeout: Pin<Box<Sleep>>,
    landed: VecDeque<(u32, Outcome)>,
    /// The end of the client's timeout.
    end: Option<Pin<Box<Sleep>>>,
    over: bool,
}

/// How a look at the addresses ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// All have been looked up.
    Done,
    /// The message is full.
    Full,
    /// Others have waited long enough.
    Used,
}

impl<R: Reader> Answers<R> {
    /// To this call.
    pub fn new(reader: R, call: Call) -> Self {
        let end = call.deadline.of_client().map(|at| Box::pin(sleep_until(at.into())));
        let timeout = Box::pin(sleep(call.deadline.timeout()));
        Self {
            reader,
            call,
            next: 0,
            waiting: Vec::new(),
            trips: SelectAll::new(),
            under_way: BTreeSet::new(),
            timeout,
            landed: VecDeque::new(),
            end,
            over: false,
        }
    }

    fn address(&self, index: u32) -> Option<ChunkAddress> {
        let (addresses, _) = self.call.addresses.as_chunks();
        addresses.get(index as usize).copied().map(ChunkAddress)
    }

    /// What came from trips: as much of it as there is room for. The waker is told of more.
    fn take_landed(&mut self, context: &mut Context<'_>, message: &mut Message) {
        loop {
            while let Some((_, outcome)) = self.landed.front()
                && message.has_room_for(outcome)
                && let Some((index, outcome)) = self.landed.pop_front()
            {
                message.add(index, outcome, &self.call.deadline);
            }
            if !self.landed.is_empty() {
                return;
            }
            let Poll::Ready(Some(landed)) = self.trips.poll_next_unpin(context) else { return };
            for (index, _) in &landed {
                self.under_way.remove(index);
            }
            self.landed.extend(landed);
            self.begin_timeout();
        }
    }

    /// Looks further addresses up.
    fn look_up(&mut self, message: &mut Message) -> Turn {
        for _ in 0..LOOKUPS_PER_TURN {
            if message.is_full() || !self.landed.is_empty() {
                return Turn::Full;
            }
            let Some(address) = self.address(self.next) else { return Turn::Done };
            match self.reader.try_get(&address, self.call.form) {
                Attempt::Wait => self.waiting.push(self.next),
                Attempt::Ready(outcome) if message.has_room_for(&outcome) => {
                    message.add(self.next, outcome, &self.call.deadline);
                }
                Attempt::Ready(outcome) => self.landed.push_back((self.next, outcome)),
            }
            self.next += 1;
        }
        Turn::Used
    }

    /// Sends those that have to be waited for on their way, together.
    fn leave(&mut self) -> bool {
        let room = WAITING_COUNT_MAX.saturating_sub(self.under_way.len()).min(self.waiting.len());
        if room == 0 || TRIP_COUNT_MAX <= self.trips.len() {
            return false;
        }
        let indexes: Vec<u32> = self.waiting.drain(..room).collect();
        if self.under_way.is_empty() {
            self.begin_timeout();
        }
        self.under_way.extend(&indexes);
        let addresses = indexes.iter().filter_map(|index| self.address(*index)).collect();
        let (form, local_only) = (self.call.form, self.call.local_only);
        let request = Request { form, local_only, deadline: self.call.deadline.of_paced_trip() };
        let landed = self.reader.get_many(addresses, request).map(move |mut landed| {
            landed.iter_mut().for_each(|(index, _)| *index = indexes[*index as usize]);
            landed
        });
        self.trips.push(landed.boxed());
        true
    }

    fn begin_timeout(&mut self) {
        let until = Instant::now() + self.call.deadline.timeout();
        self.timeout.as_mut().reset(until);
    }

    /// Whether nothing has landed for too long. Asked when the client waits, and only without a
    /// deadline of its own.
    fn has_stalled(&mut self, context: &mut Context<'_>) -> bool {
        self.end.is_none()
            && !self.under_way.is_empty()
            && self.timeout.as_mut().poll(context).is_ready()
    }

    /// What is under way has failed.
    fn give_up(&mut self) {
        self.trips = SelectAll::new();
        let late = Error::DeadlineExceeded(self.call.deadline.passed().message().to_owned());
        let indexes = std::mem::take(&mut self.under_way);
        self.landed.extend(indexes.into_iter().map(|index| (index, Err(late.clone()))));
    }

    fn is_done(&self) -> bool {
        self.trips.is_empty() && self.waiting.is_empty() && self.landed.is_empty()
    }

    /// One message, or that there is none yet.
    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<Option<GetChunksResponse>> {
        let mut message = Message::default();
        self.take_landed(context, &mut message);
        let turn = self.look_up(&mut message);
        if turn == Turn::Used && message.is_empty() {
            // Those found so far that have to be waited for share a trip with those found next.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        // A new trip has to be looked at once, or nobody would be woken by it.
        while self.leave() {
            self.take_landed(context, &mut message);
        }
        if !message.is_empty() {
            return Poll::Ready(Some(message.into_inner()));
        }
        if turn == Turn::Done && self.is_done() { Poll::Ready(None) } else { Poll::Pending }
    }

    fn is_too_late(&mut self, context: &mut Context<'_>) -> bool {
        self.end.as_mut().is_some_and(|end| end.as_mut().poll(context).is_ready())
    }
}

impl<R: Reader> Stream for Answers<R> {
    type Item = Result<GetChunksResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.over {
            return Poll::Ready(None);
        }
        if self.is_too_late(context) {
            self.over = true;
            return Poll::Ready(Some(Err(self.call.deadline.passed())));
        }
        let mut polled = self.poll_message(context);
        if polled.is_pending() && self.has_stalled(context) {
            self.give_up();
            polled = self.poll_message(context);
        }
        polled.map(|message| message.map(Ok))
    }
}

#[cfg(test)]
#[path = "many/tests.rs"]
mod tests;
