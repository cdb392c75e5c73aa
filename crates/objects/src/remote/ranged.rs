//! Ranged reads of one version of an object, to the last byte or an error.
//!
//! Before the sink gets the first byte of an attempt, the read checks the answer: its range is the
//! one asked for, the object has the size and the ETag that it had when it was listed. The read
//! resumes a body that stalls, ends early or breaks at the next byte, and refuses a body from the
//! piece on that makes it longer than its header said.

use std::{ops::Range, sync::atomic::Ordering::Relaxed};

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream::BoxStream};
use object_store::{GetOptions, GetRange, GetResult, path::Path};
use tokio::time::{Instant, timeout};

use super::{
    ObjectMeta, Remote, Urgency,
    attempts::Attempts,
    body_rate::BodyRate,
    fault::{Fault, FaultKind},
    give_way::{GiveWay, Pause},
    limits::{
        BODY_RESERVED_BYTES_MAX, FOREGROUND_ATTEMPTS_FACTOR, INTEREST_CHECK_INTERVAL,
        STALLS_BEHIND_OTHERS_MAX,
    },
    version,
    window::Slot,
};
use crate::Error;

/// Receiver of the bytes of a read.
pub(crate) trait Sink: Send {
    /// Returns whether somebody wants the bytes now.
    fn is_waited_for(&self) -> bool;
    /// Returns whether a reader waits for bytes of it that have not come.
    fn has_reader(&self) -> bool;
    /// Returns whether the read goes on. Called whenever no request is in flight, and before one is
    /// aborted. Once false, it has to stay false.
    fn is_wanted(&mut self) -> bool;
    /// Handles that a request is sent.
    fn handle_sent(&mut self);
    /// Handles that its answer has begun and passed the checks.
    fn handle_begun(&mut self);
    /// Handles the next bytes, in order.
    fn handle_bytes(&mut self, bytes: Bytes);
}

struct RangeRead<'a> {
    meta: &'a ObjectMeta,
    path: Path,
    /// Range that has not come yet.
    rest: Range<u64>,
    sink: &'a mut dyn Sink,
}

/// Sink that joins all bytes.
#[derive(Default)]
pub(super) struct Whole(pub(super) BytesMut);

impl Sink for Whole {
    /// A caller that gives up drops the future.
    fn is_waited_for(&self) -> bool {
        true
    }

    fn has_reader(&self) -> bool {
        true
    }

    fn is_wanted(&mut self) -> bool {
        true
    }

    fn handle_sent(&mut self) {}

    fn handle_begun(&mut self) {}

    fn handle_bytes(&mut self, bytes: Bytes) {
        self.0.extend_from_slice(&bytes);
    }
}

impl Remote {
    /// Reads a range of one version of an object from the store, whatever is on disk. Caches
    /// nothing and starts no fill: for bytes that the caller reads once and keeps elsewhere.
    ///
    /// # Errors
    /// [`Error::Settings`] for a range that is not within the object; else what the store answered.
    pub async fn read(&self, meta: &ObjectMeta, range: Range<u64>) -> Result<Bytes, Error> {
        if range.is_empty() || meta.size < range.end {
            let (name, size) = (&meta.name, meta.size);
            return Err(Error::Settings(format!(
                "{name}: expected a range within 0..{size}, got {range:?}"
            )));
        }
        // Callers keep the buffer, so it is no longer than the range; but manifests can lie.
        let bytes = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let mut whole = Whole(BytesMut::with_capacity(bytes.min(BODY_RESERVED_BYTES_MAX)));
        self.read_range(meta, range, Urgency::Foreground, &mut whole).await?;
        Ok(whole.0.freeze())
    }

    /// Reads all of a range, which is not empty and within the object.
    pub(crate) async fn read_range(
        &self,
        meta: &ObjectMeta,
        range: Range<u64>,
        urgency: Urgency,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        debug_assert!(
            range.start < range.end && range.end <= meta.size,
            "{range:?} of {}",
            meta.size
        );
        let path = self.path(&meta.name)?;
        let mut read = RangeRead { meta, path, rest: range, sink };
        let mut attempts = Attempts::new(match urgency {
            // As long as somebody waits, and until long after the usual deadline: an error is only
            // for when the truth cannot be had.
            Urgency::Foreground => self.attempts_max.saturating_mul(FOREGROUND_ATTEMPTS_FACTOR),
            Urgency::Fill => self.attempts_max,
        });
        loop {
            let Some(slot) = self.slot(urgency, read.sink).await else {
                return Err(unwanted(meta));
            };
            let before = read.rest.start;
            let outcome = self.attempt(&mut read, urgency).await;
            let Err(fault) = self.record_outcome(outcome, &slot) else {
                return if read.rest.is_empty() { Ok(()) } else { Err(unwanted(meta)) };
            };
            drop(slot);
            if before < read.rest.start {
                attempts.progressed();
            }
            if !fault.is_worth_another_try() || attempts.are_exhausted() {
                return Err(self.final_error(
                    fault,
                    &format!("read {}", meta.name),
                    attempts.made(),
                ));
            }
            self.metrics.retries.fetch_add(1, Relaxed);
            attempts.pause(fault.kind).await;
        }
    }

    /// Waits for a slot; none if nobody wants the bytes any more. When a hung store recovers, reads
    /// whose callers have left must not come before those of callers that are there.
    async fn slot(&self, urgency: Urgency, sink: &mut dyn Sink) -> Option<Slot> {
        let mut turn = std::pin::pin!(self.window.acquire(urgency));
        loop {
            if !sink.is_wanted() {
                return None;
            }
            match timeout(INTEREST_CHECK_INTERVAL, &mut turn).await {
                Ok(slot) => return sink.is_wanted().then_some(slot),
                Err(_) => continue,
            }
        }
    }

    /// Makes one attempt at the rest, or at as much as somebody wants.
    async fn attempt(&self, read: &mut RangeRead<'_>, urgency: Urgency) -> Result<(), Fault> {
        let reads = match urgency {
            Urgency::Foreground => &self.metrics.foreground_reads,
            Urgency::Fill => &self.metrics.fill_reads,
        };
        reads.fetch_add(1, Relaxed);
        read.sink.handle_sent();
        let began = Instant::now();
        let range = GetRange::Bounded(read.rest.clone());
        let options = version::pinned(&read.meta.etag, GetOptions::new().with_range(Some(range)));
        let (answer, seen) = self.send(&read.path, options, urgency).await;
        self.count_requests(seen);
        let answer = answer.ok_or_else(|| self.stalled("no answer"))?;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return Err(self.fault(&error, seen).await),
        };
        check(&answer, read)?;
        self.metrics.first_byte_after(began.elapsed());
        read.sink.handle_begun();
        self.body(answer, read, urgency).await
    }

    async fn body(
        &self,
        answer: GetResult,
        read: &mut RangeRead<'_>,
        urgency: Urgency,
    ) -> Result<(), Fault> {
        let mut body = answer.into_stream();
        let mut rate = BodyRate::begin((&self.metrics, &self.traffic), urgency);
        let mut turn = GiveWay::new(urgency);
        let mut interest = InterestCheck::default();
        while read.rest.start < read.rest.end && !interest.is_over(read.sink) {
            match turn.pause(self, read.sink, &mut interest).await {
                Pause::None => {}
                Pause::Ended => rate.handle_paused(),
                Pause::Abandoned => break,
            }
            match self.piece(&mut body).await? {
                Some(bytes) => {
                    rate.add(bytes.len() as u64);
                    read.take(bytes)?;
                }
                None => return Err(read.ended_early()),
            }
        }
        if read.rest.is_empty() {
            rate.end();
            self.expect_end(&mut body).await;
        }
        Ok(())
    }

    /// Waits for an answer or a piece of one. None: nothing has come for the stall timeout, or for
    /// some of them while other bytes came over a slow link.
    pub(super) async fn unless_silent<T>(&self, next: impl Future<Output = T>) -> Option<T> {
        let mut next = std::pin::pin!(next);
        for _ in 0..STALLS_BEHIND_OTHERS_MAX {
            let before = self.metrics.bytes.load(Relaxed);
            if let Ok(next) = timeout(self.stall_timeout, &mut next).await {
                return Some(next);
            }
            if !self.pace().is_slow() || self.metrics.bytes.load(Relaxed) == before {
                return None;
            }
        }
        None
    }

    /// Reads the body to its end, so that the connection can be used again. Further bytes do no
    /// harm, but count as a wrong response.
    async fn expect_end(&self, body: &mut BoxStream<'static, object_store::Result<Bytes>>) {
        while let Ok(Some(bytes)) = self.piece(body).await {
            if !bytes.is_empty() {
                self.metrics.wrong_responses.fetch_add(1, Relaxed);
                return;
            }
        }
    }

    async fn piece(
        &self,
        body: &mut BoxStream<'static, object_store::Result<Bytes>>,
    ) -> Result<Option<Bytes>, Fault> {
        match self.unless_silent(body.next()).await {
            Some(None) => Ok(None),
            Some(Some(Ok(bytes))) => Ok(Some(bytes)),
            Some(Some(Err(error))) => {
                let fault = Fault::of(&error, Default::default());
                Err(Fault::new(FaultKind::Transient, format!("the body broke: {}", fault.text)))
            }
            None => Err(self.stalled("the body stalled: nothing came")),
        }
    }

    pub(super) fn stalled(&self, what: &str) -> Fault {
        Fault::new(FaultKind::Transient, format!("{what} for {:?}", self.stall_timeout))
    }

    /// Updates window and counters with the outcome of an attempt.
    pub(super) fn record_outcome<T>(
        &self,
        outcome: Result<T, Fault>,
        slot: &Slot,
    ) -> Result<T, Fault> {
        match &outcome {
            Ok(_) => slot.succeeded(),
            Err(fault) => {
                if fault.is_wrong_response() {
                    self.metrics.wrong_responses.fetch_add(1, Relaxed);
                }
                if fault.kind == FaultKind::SlowDown {
                    self.metrics.slow_downs.fetch_add(1, Relaxed);
                    slot.slowed_down();
                }
            }
        }
        outcome
    }
}

/// Periodic check whether somebody waits for a read under way. One that all waiters have left would
/// take a slow link from others; a reader that comes back within two checks still finds it.
#[derive(Default)]
pub(super) struct InterestCheck {
    checked_at: Option<Instant>,
    was_lost: bool,
}

impl InterestCheck {
    /// Returns whether nobody wanted the bytes at two checks in a row, and nobody does now.
    pub(super) fn is_over(&mut self, sink: &mut dyn Sink) -> bool {
        let now = Instant::now();
        let checked_at = *self.checked_at.get_or_insert(now);
        if now.duration_since(checked_at) < INTEREST_CHECK_INTERVAL {
            return false;
        }
        self.checked_at = Some(now);
        let is_lost = !sink.is_waited_for();
        std::mem::replace(&mut self.was_lost, is_lost) && is_lost && !sink.is_wanted()
    }
}

fn unwanted(meta: &ObjectMeta) -> Error {
    Error::DeadlineExceeded(format!("read {}: nobody waits for it any more", meta.name))
}

impl RangeRead<'_> {
    fn take(&mut self, bytes: Bytes) -> Result<(), Fault> {
        let length = bytes.len() as u64;
        if self.rest.end - self.rest.start < length {
            return Err(Fault::new(FaultKind::Wrong, "the body is longer than its header says"));
        }
        self.rest.start += length;
        self.sink.handle_bytes(bytes);
        Ok(())
    }

    fn ended_early(&self) -> Fault {
        let missing = self.rest.end - self.rest.start;
        Fault::new(FaultKind::Wrong, format!("the body ended {missing} bytes early"))
    }
}

/// Checks that the header of an answer matches the request.
fn check(answer: &GetResult, read: &RangeRead<'_>) -> Result<(), Fault> {
    let (meta, found) = (read.meta, &answer.meta);
    if !version::is_same(&meta.etag, found) {
        let other = found.e_tag.as_deref().unwrap_or("no ETag");
        let text = format!("expected ETag {}, got {other}", meta.etag);
        return Err(Fault::new(FaultKind::WrongVersion, text));
    }
    if found.size != meta.size {
        let text = format!("expected an object of {} bytes, got one of {}", meta.size, found.size);
        return Err(Fault::new(FaultKind::WrongVersion, text));
    }
    if answer.range != read.rest {
        let text = format!("asked for bytes {:?}, got bytes {:?}", read.rest, answer.range);
        return Err(Fault::new(FaultKind::Wrong, text));
    }
    Ok(())
}
