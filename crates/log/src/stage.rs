//! The log's thread as a state machine. Each step does at most one disk operation (a few when it
//! records the clean shutdown), so tests and simulations can interleave it with everything else.

use std::{
    collections::VecDeque,
    fmt,
    io::IoSlice,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use busload_io::{Clock, Disk, DiskError, DiskErrorKind, RealClock};

use crate::{
    Lsn, Options,
    batch::{Charge, RecordBatch, Sync},
    format::{
        FRAME_HEADER_BYTES, FRAME_KIND_CLEAN_SHUTDOWN, FRAME_KIND_RECORDS, FrameHeader, FrameSeed,
        LastSegment, LogId, SEGMENT_HEADER_BYTES, SegmentHeader, padding,
    },
    last_segment,
    limits::{FRAME_SLICE_COUNT_MAX, LOG_BYTES_WARNING, NO_SPACE_RETRY_MS},
    mailbox::{Answer, Job, Mailbox, Prepared},
    progress::{NO_ANSWER, SharedProgress},
    recovery::LogLock,
};

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The log worked; there may be more to do.
    Worked,
    /// The log synced; there may be more to do.
    Synced,
    /// Nothing was done, and there is nothing to do until the next request.
    Idle,
    /// Nothing was done, and there is nothing to do before this time unless a request arrives.
    IdleUntil(Duration),
    /// The log is closed or has failed ([`crate::Progress::failure`]). It does nothing any more.
    Ended,
}

/// Writes what the writer hands over. All its disk operations are in the current segment, except
/// for recording the clean shutdown; the helper does the rest.
pub struct LogStage<D: Disk> {
    disk: D,
    shared: Arc<SharedProgress>,
    mailbox: Arc<Mailbox<D::File>>,
    /// The lock file, held until the stage is dropped.
    _lock: LogLock<D::File>,
    options: Options,
    log_id: LogId,
    current: Option<Current<D::File>>,
    next: Next<D::File>,
    /// Checksum that the next frame or segment header names as its predecessor.
    chain: u32,
    /// Batches taken and not yet written, oldest first.
    taken: VecDeque<RecordBatch>,
    /// Written batches that go back to the writer.
    spent: Vec<RecordBatch>,
    slices: Vec<IoSlice<'static>>,
    written: Lsn,
    durable: Lsn,
    /// LSN up to which everything in the current segment is synced.
    synced: Lsn,
    /// Last LSNs of the segments that the helper still has to sync.
    retiring: VecDeque<Lsn>,
    consumed: Charge,
    granted_any: Charge,
    sync_due: bool,
    sync_deadline: Option<Duration>,
    large_retry_due: Duration,
    log_bytes_warning: u64,
    /// Time of day of the last frame, or the one that recovery found.
    wall_ms: i64,
    closing: Closing,
}

#[derive(Debug)]
struct Current<F> {
    file: F,
    number: u64,
    /// Offset of the next frame.
    position: u64,
    bytes: u64,
    frame_number: u64,
    unsynced: bool,
}

#[derive(Debug)]
enum Next<F> {
    /// Requested from the helper.
    Missing,
    Ready(Prepared<F>),
    /// The helper is adding zeros; the segment comes back at least this long.
    Extending(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    No,
    /// All batches have arrived.
    Asked,
    /// The clean shutdown's frame is written.
    Marked,
    /// The file `last-segment` records the clean shutdown, too.
    Named,
    Ended,
}

/// Initial state of a stage: what recovery found.
#[derive(Debug)]
pub(crate) struct Start<F> {
    pub lock: LogLock<F>,
    pub log_id: LogId,
    pub last_lsn: Lsn,
    pub chain: u32,
    pub wall_ms: i64,
    /// `None` when the disk had no space: the helper goes on trying.
    pub prepared: Option<Prepared<F>>,
    pub log_bytes: u64,
    pub segments: u64,
}

/// Returns the space for frames in an empty segment of this length. The clean shutdown's frame
/// always fits in addition.
fn frame_space(segment_bytes: u64) -> u64 {
    space_behind(SEGMENT_HEADER_BYTES as u64, segment_bytes)
}

/// Returns the length of a frame with a body of this length.
fn frame_bytes(body_bytes: u64) -> u64 {
    FRAME_HEADER_BYTES as u64 + body_bytes + padding(body_bytes)
}

fn space_behind(position: u64, segment_bytes: u64) -> u64 {
    (segment_bytes & !7).saturating_sub(position + FRAME_HEADER_BYTES as u64)
}

impl<F> Current<F> {
    fn space(&self) -> u64 {
        space_behind(self.position, self.bytes)
    }
}

impl<F> Next<F> {
    fn space(&self) -> u64 {
        match self {
            Next::Missing => 0,
            Next::Ready(segment) => frame_space(segment.bytes),
            Next::Extending(bytes) => frame_space(*bytes),
        }
    }
}

impl<D: Disk> LogStage<D> {
    pub(crate) fn new(
        disk: D,
        shared: Arc<SharedProgress>,
        mailbox: Arc<Mailbox<D::File>>,
        options: Options,
        start: Start<D::File>,
    ) -> Self {
        shared.counters.recovered(start.segments, start.log_bytes);
        let mut stage = Self {
            disk,
            shared,
            mailbox,
            _lock: start.lock,
            options,
            log_id: start.log_id,
            current: None,
            next: start.prepared.map_or(Next::Missing, Next::Ready),
            chain: start.chain,
            taken: VecDeque::new(),
            spent: Vec::new(),
            slices: Vec::new(),
            written: start.last_lsn,
            durable: start.last_lsn,
            synced: start.last_lsn,
            retiring: VecDeque::new(),
            consumed: 0,
            granted_any: 0,
            sync_due: false,
            sync_deadline: None,
            large_retry_due: Duration::ZERO,
            log_bytes_warning: LOG_BYTES_WARNING,
            wall_ms: start.wall_ms,
            closing: Closing::No,
        };
        stage.publish_grants();
        stage
    }

    /// Seals what recovery found: begins the first segment, if there was space for one. Its header
    /// names the last frame before it, so from now on the loss of that frame is corruption.
    pub(crate) fn seal(&mut self) -> Result<(), DiskError> {
        if matches!(self.next, Next::Ready(_)) {
            self.begin_next()?;
            self.sync()?;
        }
        Ok(())
    }

    /// Runs the log's thread; returns when the log was closed or has failed.
    pub fn run(mut self) {
        let clock = RealClock::new();
        loop {
            let now = clock.now();
            match self.step(now) {
                Step::Worked => {}
                Step::Synced => self.shared.counters.sync_took(clock.now().saturating_sub(now)),
                Step::Idle => self.shared.queue.wait(None),
                Step::IdleUntil(due) => self.shared.queue.wait(Some(due.saturating_sub(now))),
                Step::Ended => return,
            }
        }
    }

    /// Takes everything queued and does at most one disk operation. `now` comes from a monotonic
    /// clock.
    pub fn step(&mut self, now: Duration) -> Step {
        if self.closing == Closing::Ended || self.shared.has_failed() {
            self.mailbox.stop();
            return Step::Ended;
        }
        self.take_in(now);
        match self.operate(now) {
            Ok(step) => step,
            Err(error) => {
                self.shared.fail(format!(
                    "{error}. Records after LSN {} (durable) may or may not survive; \
                     a restart recovers those that do",
                    self.durable
                ));
                self.mailbox.stop();
                Step::Ended
            }
        }
    }

    fn take_in(&mut self, now: Duration) {
        let flags = self.shared.queue.take(&mut self.taken, &mut self.spent);
        if flags.close && self.closing == Closing::No {
            self.closing = Closing::Asked;
        }
        if flags.poke {
            self.take_answers(now);
            self.serve_large(now);
            self.answer_space();
            if self.shared.stalled.load(Ordering::Acquire) {
                self.mailbox.notify();
            }
        }
    }

    fn operate(&mut self, now: Duration) -> Result<Step, DiskError> {
        let deadline_passed = self.sync_deadline.is_some_and(|deadline| deadline <= now);
        if self.sync_due || deadline_passed {
            self.sync_due = false;
            self.sync_deadline = None;
            if self.current.as_ref().is_some_and(|current| current.unsynced) {
                return self.sync();
            }
        }
        if !self.taken.is_empty() {
            return self.write_frame(now);
        }
        if self.closing != Closing::No {
            return self.close();
        }
        Ok(self.sync_deadline.map_or(Step::Idle, Step::IdleUntil))
    }

    fn sync(&mut self) -> Result<Step, DiskError> {
        let current = self.current.as_mut().expect("only a current segment is synced");
        self.disk.sync(&current.file)?;
        current.unsynced = false;
        self.synced = self.written;
        self.shared.counters.sync();
        self.publish_durable();
        Ok(Step::Synced)
    }

    /// Publishes what is durable: a synced record counts only when everything before it is synced.
    fn publish_durable(&mut self) {
        if self.retiring.is_empty() {
            self.durable = self.synced.max(self.durable);
        }
        self.shared.publish_durable(self.durable);
    }

    // ---- Frames

    fn write_frame(&mut self, now: Duration) -> Result<Step, DiskError> {
        let Some(plan) = self.plan() else { return self.make_space(now) };
        let current = self.current.as_mut().expect("a plan has a segment");
        let seed =
            FrameSeed { log_id: self.log_id, segment: current.number, frame: current.frame_number };
        let batches = || self.taken.iter().take(plan.batch_count);
        let zeros = [0_u8; 8];
        let pad = &zeros[..usize::try_from(padding(plan.body_bytes)).expect("below 8")];
        let body = || batches().flat_map(RecordBatch::slices).chain(std::iter::once(pad));
        let record_count = batches().map(|batch| batch.record_count).sum();
        let header = FrameHeader {
            body_checksum: seed.body_checksum(body()),
            previous: self.chain,
            body_bytes: plan.body_bytes + pad.len() as u64,
            record_count,
            kind: FRAME_KIND_RECORDS,
            first_lsn: Lsn(self.written.0 + 1),
            wall_ms: batches().map(|batch| batch.wall_ms).max().unwrap_or(self.wall_ms),
            durable: self.durable,
        };
        let (header_bytes, checksum) = header.encode(seed);
        let mut slices = reuse(std::mem::take(&mut self.slices));
        slices.push(IoSlice::new(&header_bytes));
        slices.extend(body().filter(|slice| !slice.is_empty()).map(IoSlice::new));
        let result = self.disk.write_at(&current.file, current.position, &slices);
        self.slices = reuse(slices);
        result?;

        let bytes = FRAME_HEADER_BYTES as u64 + header.body_bytes;
        current.position += bytes;
        current.frame_number += 1;
        current.unsynced = true;
        self.chain = checksum;
        self.wall_ms = header.wall_ms;
        self.written = Lsn(self.written.0 + u64::from(record_count));
        self.shared.counters.frame(u64::from(record_count), bytes);
        self.note_written(plan.batch_count, now);
        Ok(Step::Worked)
    }

    /// Plans the next frame: as many batches as one frame takes; `None` when the first does not fit
    /// into the current segment.
    fn plan(&self) -> Option<Plan> {
        let space = self.current.as_ref()?.space();
        let mut plan = Plan { batch_count: 0, body_bytes: 0 };
        let mut slice_count = 2;
        for batch in &self.taken {
            let body_bytes = plan.body_bytes + batch.body_bytes();
            let frame_bytes = frame_bytes(body_bytes);
            slice_count += batch.slice_count_max();
            let further_fits =
                frame_bytes <= self.options.frame_bytes_max && slice_count <= FRAME_SLICE_COUNT_MAX;
            if space < frame_bytes || (0 < plan.batch_count && !further_fits) {
                break;
            }
            plan = Plan { batch_count: plan.batch_count + 1, body_bytes };
        }
        (0 < plan.batch_count).then_some(plan)
    }

    fn note_written(&mut self, batch_count: usize, now: Duration) {
        let mut sync = Sync::default();
        for mut batch in self.taken.drain(..batch_count) {
            sync.merge(batch.sync);
            self.consumed += batch.charge;
            batch.reset(usize::try_from(self.options.unit_bytes_max() * 2).unwrap_or(usize::MAX));
            self.spent.push(batch);
        }
        self.sync_due |= sync.always;
        if let Some(interval) = sync.interval {
            let deadline = now.saturating_add(interval);
            self.sync_deadline =
                Some(self.sync_deadline.map_or(deadline, |earlier| earlier.min(deadline)));
        }
        self.publish_grants();
        self.shared.publish_written(self.written);
    }

    /// Publishes the grants before the consumed charge: a thread that sees a large record as
    /// consumed sees grants that take it into account.
    fn publish_grants(&mut self) {
        let current_space = self.current.as_ref().map_or(0, Current::space);
        let next_space = self.next.space();
        // A batch that does not fit at a segment's end wastes less than its own length there.
        let unit = self.options.unit_bytes_max();
        let small =
            self.consumed + current_space.saturating_sub(unit) + next_space.saturating_sub(unit);
        // A batch that fits whole into one of the segments can be written wherever the current one
        // ends.
        self.granted_any = self.granted_any.max(self.consumed + current_space.max(next_space));
        self.shared.granted_small.store(small, Ordering::Release);
        self.shared.granted_any.store(self.granted_any, Ordering::Release);
        self.shared.consumed.store(self.consumed, Ordering::Release);
    }

    // ---- Segments

    /// Goes on to the next segment because the first batch does not fit into the current one. The
    /// batch's reservation covers the next segment, so it is ready or about to come back. A batch
    /// longer than its writer reserved waits until the helper has extended the next segment, so
    /// that the log does not use up one segment after another that is too short.
    fn make_space(&mut self, now: Duration) -> Result<Step, DiskError> {
        let Next::Ready(segment) = &self.next else { return Ok(Step::Idle) };
        let needed = self.taken.front().map_or(0, |batch| frame_bytes(batch.body_bytes()));
        if needed <= frame_space(segment.bytes) {
            return self.begin_next();
        }
        if now < self.large_retry_due {
            return Ok(Step::IdleUntil(self.large_retry_due));
        }
        self.extend_next(needed);
        Ok(Step::Worked)
    }

    /// Writes the next segment's header, which becomes durable with the first synced frame.
    fn begin_next(&mut self) -> Result<Step, DiskError> {
        let Next::Ready(segment) = std::mem::replace(&mut self.next, Next::Missing) else {
            return Ok(Step::Idle);
        };
        let header = SegmentHeader {
            log_id: self.log_id,
            number: segment.number,
            first_lsn: Lsn(self.written.0 + 1),
            durable: self.durable,
            wall_ms: self.wall_ms,
            previous: self.chain,
            is_reused: segment.is_reused,
        };
        let (block, checksum) = header.encode();
        self.disk.write_at(&segment.file, 0, &[IoSlice::new(&block)])?;
        self.chain = checksum;
        self.mailbox.start_job(Job::Prepare {
            number: segment.number + 1,
            bytes: self.options.segment_bytes,
        });
        let begun = Current {
            file: segment.file,
            number: segment.number,
            position: SEGMENT_HEADER_BYTES as u64,
            bytes: segment.bytes,
            frame_number: 0,
            unsynced: true,
        };
        if let Some(full) = self.current.replace(begun) {
            // From now on the file counts whole, as it will when it is removed.
            self.shared.counters.unused(full.bytes.saturating_sub(full.position));
            if full.unsynced {
                self.retiring.push_back(self.written);
                self.mailbox.retire(full.file);
            }
        }
        let log_bytes = self.shared.counters.segment(SEGMENT_HEADER_BYTES as u64);
        self.warn_of_size(log_bytes);
        self.publish_grants();
        Ok(Step::Worked)
    }

    fn warn_of_size(&mut self, log_bytes: u64) {
        if self.log_bytes_warning <= log_bytes {
            while self.log_bytes_warning <= log_bytes {
                self.log_bytes_warning = self.log_bytes_warning.saturating_mul(2);
            }
            log::warn!("the log has grown to {} MiB and takes long to recover", log_bytes >> 20);
        }
    }

    fn take_answers(&mut self, now: Duration) {
        while let Some(answer) = self.mailbox.answer() {
            match answer {
                Answer::Retired => {
                    let lsn = self.retiring.pop_front().expect("it was given to the helper");
                    self.durable = lsn.max(self.durable);
                    self.publish_durable();
                }
                Answer::Prepared(segment) => self.take_prepared(segment),
                Answer::NotExtended { segment, message } => {
                    self.large_retry_due = now + Duration::from_millis(NO_SPACE_RETRY_MS);
                    let wanted = self.shared.wanted.swap(0, Ordering::AcqRel);
                    self.shared.set_no_space_large(Some((wanted.max(1), message.into())));
                    self.take_prepared(segment);
                }
            }
        }
    }

    fn take_prepared(&mut self, segment: Prepared<D::File>) {
        self.next = Next::Ready(segment);
        self.publish_grants();
        self.shared.stalled.store(false, Ordering::Release);
        self.shared.publish_moved();
    }

    /// Makes sure that a large record fits whole into a segment, after everything that may come
    /// before it.
    fn serve_large(&mut self, now: Duration) {
        let wanted = self.shared.wanted.load(Ordering::Acquire);
        if wanted == 0 || !matches!(self.next, Next::Ready(_)) {
            return;
        }
        let space = self.current.as_ref().map_or(0, Current::space).max(self.next.space());
        let needed =
            wanted.saturating_add(self.options.queue_bytes_limit + self.options.unit_bytes_max());
        if needed <= space || now < self.large_retry_due {
            self.shared.wanted.store(0, Ordering::Release);
            self.shared.publish_moved();
            return;
        }
        self.shared.set_no_space_large(None);
        self.extend_next(needed);
    }

    /// Answers the writer with the charge up to which the disk has space. The zeros of a segment
    /// being prepared count as neither free nor prepared, so the answer is final only when no
    /// segment is being prepared. Some space stays reserved for the records of other
    /// transactions.
    fn answer_space(&mut self) {
        if !self.shared.space_asked.load(Ordering::Acquire) {
            return;
        }
        let prepared = self.current.as_ref().map_or(0, Current::space) + self.next.space();
        let free = self.disk.available_bytes();
        let others = self.options.queue_bytes_limit + self.options.unit_bytes_max();
        let until =
            self.consumed.saturating_add(free.saturating_add(prepared).saturating_sub(others));
        self.shared.space_until.store(until.min(NO_ANSWER - 1), Ordering::Release);
        if matches!(self.next, Next::Ready(_)) {
            self.shared.space_asked.store(false, Ordering::Release);
        }
        self.shared.publish_moved();
    }

    /// Asks the helper to add zeros to the next segment, if that is ready.
    fn extend_next(&mut self, needed: u64) {
        if let Next::Ready(segment) = std::mem::replace(&mut self.next, Next::Missing) {
            self.next = Next::Extending(segment.bytes);
            // Header, the clean shutdown's frame, and up to 7 bytes of rounding.
            let overhead = (SEGMENT_HEADER_BYTES + FRAME_HEADER_BYTES + 7) as u64;
            let bytes_min = needed.saturating_add(overhead) & !7;
            let bytes = bytes_min.saturating_add(self.options.segment_bytes) & !7;
            self.mailbox.start_job(Job::Extend { segment, bytes, bytes_min });
        }
    }

    // ---- The end

    fn close(&mut self) -> Result<Step, DiskError> {
        let Some(current) = &self.current else { return Ok(self.end()) };
        if current.unsynced {
            return self.sync();
        }
        if !self.retiring.is_empty() {
            return Ok(Step::Idle);
        }
        match self.closing {
            Closing::Asked => return self.mark_clean_end(),
            Closing::Marked => return self.name_clean_end(),
            _ => {}
        }
        if let Err(error) = self.disk.truncate(&current.file, current.position) {
            log::warn!("the unused end of the last segment stays: {error}");
        }
        Ok(self.end())
    }

    fn end(&mut self) -> Step {
        self.closing = Closing::Ended;
        self.mailbox.stop();
        Step::Ended
    }

    /// Writes a frame without records that names everything durable, so that the next start can
    /// tell corruption anywhere before it from a torn tail.
    fn mark_clean_end(&mut self) -> Result<Step, DiskError> {
        let current = self.current.as_mut().expect("the caller looked");
        let seed =
            FrameSeed { log_id: self.log_id, segment: current.number, frame: current.frame_number };
        let header = FrameHeader {
            body_checksum: seed.body_checksum(std::iter::empty()),
            previous: self.chain,
            body_bytes: 0,
            record_count: 0,
            kind: FRAME_KIND_CLEAN_SHUTDOWN,
            first_lsn: Lsn(self.written.0 + 1),
            wall_ms: self.wall_ms,
            durable: self.durable,
        };
        let (bytes, checksum) = header.encode(seed);
        self.disk.write_at(&current.file, current.position, &[IoSlice::new(&bytes)])?;
        current.position += bytes.len() as u64;
        current.frame_number += 1;
        current.unsynced = true;
        self.chain = checksum;
        self.closing = Closing::Marked;
        Ok(Step::Worked)
    }
}

impl<D: Disk> LogStage<D> {
    /// Records the clean shutdown in `last-segment`. From now on a start notices the loss of this
    /// segment or of a record in it.
    fn name_clean_end(&mut self) -> Result<Step, DiskError> {
        let current = self.current.as_ref().expect("the caller looked");
        let last = LastSegment {
            log_id: self.log_id,
            number: current.number,
            durable: self.durable,
            clean_shutdown: true,
        };
        // The lock keeps the helper from naming the next segment at the same time.
        let mut named =
            self.shared.end_is_named.lock().expect("no code that holds the lock panics");
        match last_segment::put(&self.disk, &last).and_then(|()| self.disk.sync_directory()) {
            Err(error) if error.kind == DiskErrorKind::NoSpace => {
                log::warn!("the file last-segment does not record the clean shutdown: {error}");
            }
            named => named?,
        }
        *named = true;
        drop(named);
        self.closing = Closing::Named;
        Ok(Step::Worked)
    }
}

impl<D: Disk> Drop for LogStage<D> {
    fn drop(&mut self) {
        self.mailbox.stop();
    }
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    batch_count: usize,
    body_bytes: u64,
}

/// Reuses the allocation for slices of another lifetime.
fn reuse<'to>(mut slices: Vec<IoSlice<'_>>) -> Vec<IoSlice<'to>> {
    slices.clear();
    slices.into_iter().map(|_| unreachable!("it was cleared")).collect()
}

impl<D: Disk> fmt::Debug for LogStage<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogStage").finish_non_exhaustive()
    }
}
