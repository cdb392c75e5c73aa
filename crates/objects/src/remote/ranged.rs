//! Reads of a range of one version of an object, to the last byte or an error.
//!
//! Before the first byte of an attempt is given on, the answer is checked: its range is the one
//! asked for, the object has the size and the ETag it had when it was listed. A body that stalls,
//! ends early or breaks is resumed at the next byte. A body that is longer than its header said is
//! refused from the piece on that is too long.

use std::{ops::Range, sync::atomic::Ordering::Relaxed};

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream::BoxStream};
use object_store::{GetOptions, GetRange, GetResult, path::Path};
use tokio::time::{Instant, timeout};

use super::{
    ObjectMeta, Remote, Urgency,
    attempts::Attempts,
    fault::{Fault, FaultKind},
    http::observed,
    limits::{FOREGROUND_ATTEMPTS_FACTOR, INTEREST_CHECK_INTERVAL},
    version,
    window::Slot,
};
use crate::Error;

/// Who takes the bytes.
pub(crate) trait Sink: Send {
    /// Whether somebody wants the bytes now.
    fn is_waited_for(&self) -> bool;
    /// Asked whenever no request is under way, and before one is given up. After it was said that
    /// nobody wants the bytes, it has to be true for ever.
    fn is_wanted(&mut self) -> bool;
    /// A request leaves.
    fn handle_sent(&mut self);
    /// Its answer has begun, and is what was asked for.
    fn handle_begun(&mut self);
    /// The next bytes, in order.
    fn handle_bytes(&mut self, bytes: Bytes);
}

struct RangeRead<'a> {
    meta: &'a ObjectMeta,
    path: Path,
    /// What has not come yet.
    rest: Range<u64>,
    sink: &'a mut dyn Sink,
}

/// Bytes in one piece.
#[derive(Default)]
pub(super) struct Whole(pub(super) BytesMut);

impl Sink for Whole {
    /// Who does not wait any more drops the future.
    fn is_waited_for(&self) -> bool {
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
    /// A range of one version of an object, from the store whatever is on disk; nothing is kept and
    /// no fill starts. For what is read once and kept elsewhere.
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
        let mut whole = Whole::default();
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
                return Err(self.reported(fault, &format!("read {}", meta.name), attempts.made()));
            }
            self.metrics.retries.fetch_add(1, Relaxed);
            attempts.pause(fault.kind).await;
        }
    }

    /// Waits for its turn; none if nobody wants the bytes any more. A store that hangs must not
    /// find, when it is well again, the reads of all who left meanwhile before those of who is
    /// there.
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

    /// Brings all of the rest, or as much as somebody wants.
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
        let call = timeout(self.stall_timeout, self.store.get_opts(&read.path, options));
        let (answer, seen) = observed(call).await;
        self.metrics.requests.fetch_add(seen.requests.max(1), Relaxed);
        let answer = answer.map_err(|_| self.stalled("no answer"))?;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return Err(self.fault(&error, seen).await),
        };
        check(&answer, read)?;
        self.metrics.first_byte_after(began.elapsed());
        read.sink.handle_begun();
        self.body(answer, read).await
    }

    async fn body(&self, answer: GetResult, read: &mut RangeRead<'_>) -> Result<(), Fault> {
        let (began, first) = (Instant::now(), read.rest.start);
        let mut body = answer.into_stream();
        let mut outcome = Ok(());
        let mut interest = InterestCheck::default();
        while read.rest.start < read.rest.end && !interest.is_over(read.sink) {
            match self.piece(&mut body).await {
                Ok(Some(bytes)) => outcome = read.take(bytes),
                Ok(None) => outcome = Err(read.ended_early()),
                Err(fault) => outcome = Err(fault),
            }
            if outcome.is_err() {
                break;
            }
        }
        let got = read.rest.start - first;
        self.metrics.bytes.fetch_add(got, Relaxed);
        if outcome.is_ok() && read.rest.is_empty() {
            self.metrics.body_took(got, began.elapsed());
            self.expect_end(&mut body).await;
        }
        outcome
    }

    /// A connection can be used again when its body has been read to the end. That there is more
    /// cannot harm any more, but is counted.
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
        match timeout(self.stall_timeout, body.next()).await {
            Ok(None) => Ok(None),
            Ok(Some(Ok(bytes))) => Ok(Some(bytes)),
            Ok(Some(Err(error))) => {
                let fault = Fault::of(&error, Default::default());
                Err(Fault::new(FaultKind::Transient, format!("the body broke: {}", fault.text)))
            }
            Err(_) => Err(self.stalled("the body stalled: nothing came")),
        }
    }

    pub(super) fn stalled(&self, what: &str) -> Fault {
        Fault::new(FaultKind::Transient, format!("{what} for {:?}", self.stall_timeout))
    }

    /// Takes note of how an attempt ended.
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

/// Looks now and then whether somebody waits for a read under way. One that all waiters have left
/// would take a slow link from others; who comes back within two looks still finds it.
#[derive(Default)]
struct InterestCheck {
    checked_at: Option<Instant>,
    was_lost: bool,
}

impl InterestCheck {
    /// That nobody wanted it twice in a row, and nobody does now.
    fn is_over(&mut self, sink: &mut dyn Sink) -> bool {
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

/// Everything that the header says must be as it was asked for.
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
