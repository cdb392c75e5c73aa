//! The helper thread: fills the next segment with zeros while the log writes the current one, and
//! syncs full segments that the log left with unsynced frames.
//!
//! Instead of zeros a segment may have the bytes of one that snapshots cover ([`crate::spares`]):
//! they belong to another segment number, so none of its frames verifies.
//!
//! A segment gets its final name only once its zeros are durable. The order is: temporary name,
//! zeros, sync, rename, directory sync. Then the helper names it in the file `last-segment`, and
//! only then hands it to the log.
//!
//! Only the helper can find the disk full. It then undoes the attempt and repeats it with half the
//! length, down to a minimum. If even that does not fit, it reports that the log has no space and
//! tries the full length again every second. Any other failure stops the log.

use std::{
    fmt,
    io::IoSlice,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use busload_io::{Clock, Disk, DiskError, DiskErrorKind, RealClock};

use crate::{
    Options,
    format::{LastSegment, LogId, SEGMENT_HEADER_BYTES, segment_name, temporary_name},
    last_segment::{self, create_anew, remove_if_there},
    limits::{NO_SPACE_RETRY_MS, ZERO_CHUNK_BYTES, ZERO_SYNC_BYTES},
    mailbox::{Answer, Job, Mailbox, Prepared},
    progress::SharedProgress,
    queue::Flags,
    spares::Spare,
    stage::Step,
};

/// Prepares segments ahead of the log, on a thread of its own.
pub struct ZeroHelper<D: Disk> {
    disk: D,
    shared: Arc<SharedProgress>,
    mailbox: Arc<Mailbox<D::File>>,
    zeros: Vec<u8>,
    log_id: LogId,
    zero_bytes_per_second: u64,
    shrunk_bytes_min: u64,
    /// Length that the log asked for the segment being prepared.
    wanted_bytes: u64,
    work: Work<D::File>,
    /// Time before which the next zeros are not written, unless the writer waits for them.
    zeros_due: Duration,
}

#[derive(Debug)]
enum Work<F> {
    Nothing,
    Create(Target),
    Fill(Fill<F>),
    Rename(Prepared<F>),
    SyncDirectory(Prepared<F>),
    Name(Prepared<F>),
    /// `last-segment` names the segment; the directory sync is due at this time.
    SyncName(Prepared<F>, Duration),
    /// The disk was full; the next attempt is due at this time.
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
    /// Set when more zeros are added to a segment that already has its name.
    extension: Option<Extension>,
}

#[derive(Clone, Copy, Debug)]
struct Extension {
    bytes_before: u64,
    bytes_min: u64,
}

impl<D: Disk> ZeroHelper<D> {
    pub(crate) fn new(
        disk: D,
        shared: Arc<SharedProgress>,
        mailbox: Arc<Mailbox<D::File>>,
        options: &Options,
        log_id: LogId,
    ) -> Self {
        Self {
            disk,
            shared,
            mailbox,
            zeros: Vec::new(),
            log_id,
            zero_bytes_per_second: options.zero_bytes_per_second,
            shrunk_bytes_min: options.shrunk_segment_bytes_min(),
            wanted_bytes: 0,
            work: Work::Nothing,
            zeros_due: Duration::ZERO,
        }
    }

    /// Prepares a segment before any thread runs. `None` when the disk has no space: the helper
    /// then tries again, as if the log had asked for the segment.
    pub(crate) fn prepare_now(
        &mut self,
        number: u64,
        bytes: u64,
    ) -> Result<Option<Prepared<D::File>>, DiskError> {
        self.start(Target { number, bytes });
        self.shared.stalled.store(true, Ordering::Release);
        let prepared = loop {
            self.try_step(Duration::ZERO)?;
            match (&self.work, self.mailbox.answer()) {
                (_, Some(Answer::Prepared(segment))) => break Some(segment),
                (Work::Retry(..), _) => break None,
                (Work::SyncName(_, due), _) if Duration::ZERO < *due => break None,
                _ => {}
            }
        };
        self.shared.stalled.store(false, Ordering::Release);
        Ok(prepared)
    }

    /// Runs the helper's thread; returns when the log has ended.
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

    /// Does at most one operation that changes the disk (more only to undo an attempt that found
    /// the disk full, and to replace the file `last-segment`). `now` comes from a monotonic clock.
    pub fn step(&mut self, now: Duration) -> Step {
        if self.mailbox.is_stopped() || self.shared.has_failed() {
            return Step::Ended;
        }
        match self.try_step(now) {
            Ok(step) => step,
            Err(error) => {
                self.shared.fail(format!(
                    "{error}. What was acknowledged is logged; a restart recovers it"
                ));
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
            Work::Name(segment) => self.name(segment, now),
            Work::SyncName(segment, due) if now < due => {
                self.work = Work::SyncName(segment, due);
                Ok(Step::IdleUntil(due))
            }
            Work::SyncName(segment, _) => self.sync_name(segment, now),
            Work::Retry(target, due) if now < due => {
                self.work = Work::Retry(target, due);
                Ok(Step::IdleUntil(due))
            }
            Work::Retry(target, _) => self.create(target, now),
        }
    }

    fn take_job(&mut self) -> Step {
        match self.mailbox.next_job() {
            None => return Step::Idle,
            Some(Job::Prepare { number, bytes }) => self.start(Target { number, bytes }),
            Some(Job::Extend { segment, bytes, bytes_min }) => {
                let extension = Extension { bytes_before: segment.bytes, bytes_min };
                self.work = Work::Fill(Fill {
                    segment,
                    bytes_target: bytes,
                    unsynced_bytes: 0,
                    extension: Some(extension),
                });
            }
        }
        Step::Worked
    }

    fn start(&mut self, target: Target) {
        self.wanted_bytes = target.bytes;
        self.work = Work::Create(target);
    }

    fn create(&mut self, target: Target, now: Duration) -> Result<Step, DiskError> {
        if let Some(spare) = self.shared.spares.take(target.bytes) {
            match self.reuse(&spare, target) {
                Ok(fill) => {
                    self.work = Work::Fill(fill);
                    return Ok(Step::Worked);
                }
                Err(error) => {
                    log::warn!("a segment of the log is not used again: {error}");
                    remove_if_there(&self.disk, &spare.name)?;
                }
            }
        }
        match create_anew(&self.disk, &temporary_name(target.number)) {
            Ok(file) => {
                self.work = Work::Fill(Fill {
                    segment: Prepared { file, number: target.number, bytes: 0, is_reused: false },
                    bytes_target: target.bytes,
                    unsynced_bytes: 0,
                    extension: None,
                });
                Ok(Step::Worked)
            }
            Err(error) => self.no_space(target, error, now),
        }
    }

    /// Makes a segment of a file that was one, without its header. The file has a temporary name
    /// from before until its sync.
    fn reuse(&self, spare: &Spare, target: Target) -> Result<Fill<D::File>, DiskError> {
        let name = temporary_name(target.number);
        remove_if_there(&self.disk, &name)?;
        self.disk.rename(&spare.name, &name)?;
        let file = self.disk.open(&name)?;
        self.disk.write_at(&file, 0, &[IoSlice::new(&[0; SEGMENT_HEADER_BYTES])])?;
        Ok(Fill {
            segment: Prepared { file, number: target.number, bytes: target.bytes, is_reused: true },
            bytes_target: target.bytes,
            unsynced_bytes: SEGMENT_HEADER_BYTES as u64,
            extension: None,
        })
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
                // The log will write frames into this file: after a failed sync it must not.
                Err(error) if fill.extension.is_some() => Err(error),
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
                let pause = Duration::from_nanos(
                    count.saturating_mul(1_000_000_000) / self.zero_bytes_per_second,
                );
                self.zeros_due = self.zeros_due.max(now) + pause;
                self.work = Work::Fill(fill);
                Ok(Step::Worked)
            }
            Err(error) => match fill.extension {
                None => self.no_space(fill.target(), error, now),
                Some(extension) => self.extend_less(fill, extension, error),
            },
        }
    }

    /// Shortens an extension that did not fit on the disk to the bytes that are needed; if these do
    /// not fit either, restores the segment's former length.
    fn extend_less(
        &mut self,
        mut fill: Fill<D::File>,
        extension: Extension,
        error: DiskError,
    ) -> Result<Step, DiskError> {
        if error.kind != DiskErrorKind::NoSpace {
            return Err(error);
        }
        if self.shared.spares.remove_all(&self.disk)? {
            self.work = Work::Fill(fill);
            return Ok(Step::Worked);
        }
        let less = extension.bytes_min < fill.bytes_target;
        let bytes =
            if less { fill.segment.bytes.min(extension.bytes_min) } else { extension.bytes_before };
        self.disk.truncate(&fill.segment.file, bytes)?;
        fill.segment.bytes = bytes;
        if less {
            fill.bytes_target = extension.bytes_min;
            fill.unsynced_bytes = bytes - extension.bytes_before;
            self.work = Work::Fill(fill);
        } else {
            let message = error.to_string();
            self.answer(Answer::NotExtended { segment: fill.segment, message });
        }
        Ok(Step::Worked)
    }

    fn filled(&mut self, fill: Fill<D::File>) -> Step {
        if fill.extension.is_some() {
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
            Err(error) => self.no_space(segment.target(), error, now),
        }
    }

    fn sync_directory(
        &mut self,
        segment: Prepared<D::File>,
        now: Duration,
    ) -> Result<Step, DiskError> {
        match self.disk.sync_directory() {
            Ok(()) => {
                self.work = Work::Name(segment);
                Ok(Step::Synced)
            }
            Err(error) => self.no_space(segment.target(), error, now),
        }
    }

    /// Names the segment in `last-segment`, unless the log has recorded its clean shutdown there
    /// meanwhile.
    fn name(&mut self, segment: Prepared<D::File>, now: Duration) -> Result<Step, DiskError> {
        let last = LastSegment {
            log_id: self.log_id,
            number: segment.number,
            durable: self.shared.durable(),
            clean_shutdown: false,
        };
        let ended = self.shared.end_is_named.lock().expect("no code that holds the lock panics");
        if *ended {
            return Ok(Step::Worked);
        }
        let put = last_segment::put(&self.disk, &last);
        drop(ended);
        match put {
            Ok(()) => {
                self.work = Work::SyncName(segment, now);
                Ok(Step::Worked)
            }
            Err(error) => self.no_space(segment.target(), error, now),
        }
    }

    /// Makes the new `last-segment` durable. If the disk is full it tries again later: the entry
    /// cannot be undone, and while it stands the segment must not be removed.
    fn sync_name(&mut self, segment: Prepared<D::File>, now: Duration) -> Result<Step, DiskError> {
        match self.disk.sync_directory() {
            Ok(()) => {
                if segment.bytes < self.wanted_bytes {
                    let (bytes, wanted) = (segment.bytes >> 10, self.wanted_bytes >> 10);
                    log::warn!(
                        "the disk is nearly full: the log's next segment has {bytes} KiB, \
                         not {wanted} KiB"
                    );
                }
                self.shared.set_no_space(None);
                self.answer(Answer::Prepared(segment));
                Ok(Step::Synced)
            }
            Err(error) if error.kind == DiskErrorKind::NoSpace => {
                self.refuse_writes(&error);
                self.work = Work::SyncName(segment, retry_due(now));
                Ok(Step::Worked)
            }
            Err(error) => Err(error),
        }
    }

    /// Undoes the attempt and starts a shorter one. If that would be too short, leaves the
    /// remaining space to others and tries again later.
    fn no_space(
        &mut self,
        target: Target,
        error: DiskError,
        now: Duration,
    ) -> Result<Step, DiskError> {
        if error.kind != DiskErrorKind::NoSpace {
            return Err(error);
        }
        remove_if_there(&self.disk, &temporary_name(target.number))?;
        remove_if_there(&self.disk, &segment_name(target.number))?;
        if self.shared.spares.remove_all(&self.disk)? {
            self.work = Work::Create(target);
            return Ok(Step::Worked);
        }
        let shorter = (target.bytes / 2).max(self.shrunk_bytes_min) & !7;
        self.work = if shorter < target.bytes {
            Work::Create(Target { bytes: shorter, ..target })
        } else {
            self.refuse_writes(&error);
            Work::Retry(Target { bytes: self.wanted_bytes, ..target }, retry_due(now))
        };
        Ok(Step::Worked)
    }

    fn refuse_writes(&self, error: &DiskError) {
        if self.shared.no_space().is_none() {
            log::warn!("no space for the next segment of the log, writes will be refused: {error}");
        }
        self.shared.set_no_space(Some(error.to_string().into()));
    }

    fn answer(&mut self, answer: Answer<D::File>) {
        self.mailbox.put_answer(answer);
        self.shared.queue.request(Flags { poke: true, ..Flags::default() });
    }
}

fn retry_due(now: Duration) -> Duration {
    now + Duration::from_millis(NO_SPACE_RETRY_MS)
}

impl<F> Prepared<F> {
    fn target(&self) -> Target {
        Target { number: self.number, bytes: self.bytes }
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
