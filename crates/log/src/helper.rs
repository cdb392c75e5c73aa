//! The helper: writes the zeros of the next segment while the log writes the current one, and syncs full segments that the log
//! left with unsynced frames.
//!
//! A segment appears under its name only when its zeros are durable: temporary name, zeros, sync, rename, directory sync. Only
//! here can the disk turn out to be full; that is reported, the attempt undone and repeated every second. Anything else that
//! fails stops the log.

use std::{
    fmt,
    io::IoSlice,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use busload_io::{Clock, Disk, DiskError, DiskErrorKind, RealClock};

use crate::{
    format::{segment_name, temporary_name},
    limits::{NO_SPACE_RETRY_MS, ZERO_CHUNK_BYTES, ZERO_SYNC_BYTES},
    mailbox::{Answer, Job, Mailbox, Prepared},
    progress::Shared,
    queue::Flags,
    stage::Step,
};

/// Prepares segments ahead of the log, on a thread of its own.
pub struct ZeroHelper<D: Disk> {
    disk: D,
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox<D::File>>,
    zeros: Vec<u8>,
    zero_bytes_per_second: u64,
    work: Work<D::File>,
    /// The next zeros are not written before this time, unless the writer waits for them.
    zeros_due: Duration,
}

#[derive(Debug)]
enum Work<F> {
    Nothing,
    Create(Target),
    Fill(Fill<F>),
    Rename(Prepared<F>),
    SyncDirectory(Prepared<F>),
    /// There was no room.
    Retry(Target, Duration),
}

#[derive(Clone, Copy, Debug)]
struct Target {
    number: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Fill<F> {
    segment: Prepared<F>,
    bytes_target: u64,
    unsynced_bytes: u64,
    /// Its length before, when it has its name already.
    extended_from: Option<u64>,
}

impl<D: Disk> ZeroHelper<D> {
    pub(crate) fn new(
        disk: D,
        shared: Arc<Shared>,
        mailbox: Arc<Mailbox<D::File>>,
        zero_bytes_per_second: u64,
    ) -> Self {
        Self {
            disk,
            shared,
            mailbox,
            zeros: Vec::new(),
            zero_bytes_per_second,
            work: Work::Nothing,
            zeros_due: Duration::ZERO,
        }
    }

    /// Prepares a segment before anyone waits for it; `None` when there is no room (it will be tried again, as if it had been
    /// asked for).
    pub(crate) fn prepare_now(
        &mut self,
        number: u64,
        bytes: u64,
    ) -> Result<Option<Prepared<D::File>>, DiskError> {
        self.work = Work::Create(Target { number, bytes });
        self.shared.stalled.store(true, Ordering::Release);
        let prepared = loop {
            self.try_step(Duration::ZERO)?;
            match (&self.work, self.mailbox.answer()) {
                (_, Some(Answer::Prepared(segment))) => break Some(segment),
                (Work::Retry(..), _) => break None,
                _ => {}
            }
        };
        self.shared.stalled.store(false, Ordering::Release);
        Ok(prepared)
    }

    /// The helper's thread: returns when the log has ended.
    pub fn run(mut self) {
        let clock = RealClock::new();
        loop {
            let now = clock.now();
            match self.step(now) {
                Step::Worked | Step::Synced => {}
                Step::Idle => self.mailbox.wait(None),
                Step::IdleUntil(due) => self.mailbox.wait(Some(due.saturating_sub(now))),
                Step::Ended => return,
            }
        }
    }

    /// Does at most one operation that changes something (more only to undo an attempt that found no room). `now` comes from a
    /// clock that never steps back.
    pub fn step(&mut self, now: Duration) -> Step {
        if self.mailbox.is_stopped() || self.shared.has_failed() {
            return Step::Ended;
        }
        match self.try_step(now) {
            Ok(step) => step,
            Err(error) => {
                self.shared.fail(format!("{error}. What was acknowledged is logged; a restart recovers it"));
                Step::Ended
            }
        }
    }

    fn try_step(&mut self, now: Duration) -> Result<Step, DiskError> {
        if let Some(file) = self.mailbox.next_retiring() {
            self.disk.sync(&file)?;
            self.answer(Answer::Retired);
            return Ok(Step::Synced);
        }
        match std::mem::replace(&mut self.work, Work::Nothing) {
            Work::Nothing => Ok(self.take_job()),
            Work::Create(target) => self.create(target, now),
            Work::Fill(fill) => self.fill(fill, now),
            Work::Rename(segment) => self.rename(segment, now),
            Work::SyncDirectory(segment) => self.sync_directory(segment, now),
            Work::Retry(target, due) if now < due => {
                self.work = Work::Retry(target, due);
                Ok(Step::IdleUntil(due))
            }
            Work::Retry(target, _) => self.create(target, now),
        }
    }

    fn take_job(&mut self) -> Step {
        self.work = match self.mailbox.next_job() {
            None => return Step::Idle,
            Some(Job::Prepare { number, bytes }) => Work::Create(Target { number, bytes }),
            Some(Job::Extend { segment, bytes }) => Work::Fill(Fill {
                extended_from: Some(segment.bytes),
                segment,
                bytes_target: bytes,
                unsynced_bytes: 0,
            }),
        };
        Step::Worked
    }

    fn create(&mut self, target: Target, now: Duration) -> Result<Step, DiskError> {
        let name = temporary_name(target.number);
        let created = match self.disk.create(&name) {
            Err(error) if error.kind == DiskErrorKind::Exists => {
                self.disk.remove(&name)?;
                self.disk.create(&name)
            }
            created => created,
        };
        match created {
            Ok(file) => {
                self.work = Work::Fill(Fill {
                    segment: Prepared { file, number: target.number, bytes: 0 },
                    bytes_target: target.bytes,
                    unsynced_bytes: 0,
                    extended_from: None,
                });
                Ok(Step::Worked)
            }
            Err(error) => self.no_space(target, error, now),
        }
    }

    fn fill(&mut self, mut fill: Fill<D::File>, now: Duration) -> Result<Step, DiskError> {
        let full = fill.segment.bytes == fill.bytes_target;
        if full && fill.unsynced_bytes == 0 {
            return Ok(self.filled(fill));
        }
        if full || ZERO_SYNC_BYTES <= fill.unsynced_bytes {
            return match self.disk.sync(&fill.segment.file) {
                Ok(()) => {
                    fill.unsynced_bytes = 0;
                    self.work = Work::Fill(fill);
                    Ok(Step::Synced)
                }
                // The file has frames to come: after a failed sync it cannot be trusted with them.
                Err(error) if fill.extended_from.is_some() => Err(error),
                Err(error) => self.no_space(fill.target(), error, now),
            };
        }
        if now < self.zeros_due && !self.shared.stalled.load(Ordering::Acquire) {
            self.work = Work::Fill(fill);
            return Ok(Step::IdleUntil(self.zeros_due));
        }
        self.write_zeros(fill, now)
    }

    fn write_zeros(&mut self, mut fill: Fill<D::File>, now: Duration) -> Result<Step, DiskError> {
        let count = ZERO_CHUNK_BYTES.min(fill.bytes_target - fill.segment.bytes);
        let count_usize = usize::try_from(count).expect("a chunk fits into memory");
        if self.zeros.len() < count_usize {
            self.zeros.resize(count_usize, 0);
        }
        let part = [IoSlice::new(&self.zeros[..count_usize])];
        match self.disk.write_at(&fill.segment.file, fill.segment.bytes, &part) {
            Ok(()) => {
                fill.segment.bytes += count;
                fill.unsynced_bytes += count;
                let pause =
                    Duration::from_nanos(count.saturating_mul(1_000_000_000) / self.zero_bytes_per_second);
                self.zeros_due = self.zeros_due.max(now) + pause;
                self.work = Work::Fill(fill);
                Ok(Step::Worked)
            }
            Err(error) => match fill.extended_from {
                None => self.no_space(fill.target(), error, now),
                Some(before) => self.not_extended(fill.segment, before, error),
            },
        }
    }

    /// Undoes an extension that found no room; the segment goes back as it was.
    fn not_extended(
        &mut self,
        mut segment: Prepared<D::File>,
        before: u64,
        error: DiskError,
    ) -> Result<Step, DiskError> {
        if error.kind != DiskErrorKind::NoSpace {
            return Err(error);
        }
        self.disk.truncate(&segment.file, before)?;
        segment.bytes = before;
        self.answer(Answer::NotExtended { segment, message: error.to_string() });
        Ok(Step::Worked)
    }

    fn filled(&mut self, fill: Fill<D::File>) -> Step {
        if fill.extended_from.is_some() {
            self.answer(Answer::Prepared(fill.segment));
        } else {
            self.work = Work::Rename(fill.segment);
        }
        Step::Worked
    }

    fn rename(&mut self, segment: Prepared<D::File>, now: Duration) -> Result<Step, DiskError> {
        match self.disk.rename(&temporary_name(segment.number), &segment_name(segment.number)) {
            Ok(()) => {
                self.work = Work::SyncDirectory(segment);
                Ok(Step::Worked)
            }
            Err(error) => self.no_space(Target { number: segment.number, bytes: segment.bytes }, error, now),
        }
    }

    fn sync_directory(&mut self, segment: Prepared<D::File>, now: Duration) -> Result<Step, DiskError> {
        match self.disk.sync_directory() {
            Ok(()) => {
                self.shared.set_no_space(None);
                self.answer(Answer::Prepared(segment));
                Ok(Step::Synced)
            }
            Err(error) => self.no_space(Target { number: segment.number, bytes: segment.bytes }, error, now),
        }
    }

    /// Takes the attempt back, so that what little room there is stays with others, and tries again later.
    fn no_space(&mut self, target: Target, error: DiskError, now: Duration) -> Result<Step, DiskError> {
        if error.kind != DiskErrorKind::NoSpace {
            return Err(error);
        }
        for name in [temporary_name(target.number), segment_name(target.number)] {
            match self.disk.remove(&name) {
                Err(error) if error.kind != DiskErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if self.shared.no_space().is_none() {
            log::warn!("no room for the next segment of the log, writes will be refused: {error}");
        }
        self.shared.set_no_space(Some(error.to_string().into()));
        self.work = Work::Retry(target, now + Duration::from_millis(NO_SPACE_RETRY_MS));
        Ok(Step::Worked)
    }

    fn answer(&mut self, answer: Answer<D::File>) {
        self.mailbox.put_answer(answer);
        self.shared.queue.ask(Flags { poke: true, ..Flags::default() });
    }
}

impl<F> Fill<F> {
    fn target(&self) -> Target {
        Target { number: self.segment.number, bytes: self.bytes_target }
    }
}

impl<D: Disk> fmt::Debug for ZeroHelper<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZeroHelper").finish_non_exhaustive()
    }
}
