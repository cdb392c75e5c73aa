//! Chunks of a file that are being compared with their addresses, or were lately: what streams of the file go by.
//!
//! ```text
//!  prefetch --> Check: registered --> read, compared --> ended: right, damaged or not known --> kept for a while, or removed
//!                           ^                              |
//!  stream of a range --> Checks: those that overlap it ----+--> waits for all of them --> bytes of the object, with those
//!                                                               that were found to be right in the place of others
//! ```
//!
//! The bytes that were compared need not be those that the object has a moment later: disk may be filled by another read of the store, and what
//! landed may be dropped for a neighbour's sake. So the right ones are kept, up to [`CHECKED_BYTES_MAX`] for a store.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use busload_chunks::Span;
use bytes::Bytes;
use tokio::{sync::watch, time::Instant};

use crate::{
    Error,
    limits::{CHECKED_BYTES_MAX, CHECKED_ENTRY_BYTES},
    table_file::range,
};

/// Where a chunk begins, and a number that is that of one check: the later one has the greater number.
type Key = (u64, u64);

/// Of one file.
#[derive(Debug, Default)]
pub(crate) struct Checking {
    /// Of entries, so that a file of which none is there costs no lock.
    count: AtomicUsize,
    entries: Mutex<BTreeMap<Key, Arc<Entry>>>,
}

struct Entry {
    key: Key,
    span: Span,
    outcome: watch::Sender<Option<Outcome>>,
}

/// How a check ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With the bytes of the chunk's span.
    Right(Bytes),
    /// And what is wrong; remembered until then if the store itself has it so.
    Damaged { text: String, until: Option<Instant> },
    /// The store could not be asked, or the check was given up.
    Unknown,
}

impl Checking {
    /// Checks that overlap a range.
    pub fn of(&self, wanted: &Range<u64>) -> Checks {
        if self.count.load(Ordering::Acquire) == 0 {
            return Checks::default();
        }
        let entries = self.lock();
        // Spans of a file's chunks do not overlap each other: the later one begins, the later it ends.
        let before = entries.range(..(wanted.end, 0)).rev().map(|(_, entry)| entry);
        let mut found: Vec<_> =
            before.take_while(|entry| wanted.start < range(entry.span).end).cloned().collect();
        found.retain(|entry| entry.counts(Instant::now()));
        found.reverse();
        Checks(found)
    }

    fn insert(&self, entry: &Arc<Entry>) {
        let mut entries = self.lock();
        entries.insert(entry.key, entry.clone());
        self.count.store(entries.len(), Ordering::Release);
    }

    fn remove(&self, key: &Key) {
        let mut entries = self.lock();
        entries.remove(key);
        self.count.store(entries.len(), Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One check. It ends when it is told how, or when it is dropped.
#[derive(Debug)]
pub(crate) struct Check {
    file: Arc<Checking>,
    entry: Arc<Entry>,
    kept: Arc<Kept>,
}

impl Check {
    /// Who streams the chunk from now on waits for this.
    pub fn start(file: &Arc<Checking>, span: Span, kept: &Arc<Kept>) -> Self {
        let key = (span.offset, kept.next.fetch_add(1, Ordering::Relaxed));
        let entry = Arc::new(Entry { key, span, outcome: watch::Sender::new(None) });
        file.insert(&entry);
        Self { file: file.clone(), entry, kept: kept.clone() }
    }

    /// Nothing happens if it has ended before.
    pub fn end(&self, outcome: Outcome) {
        if self.entry.has_ended() {
            return;
        }
        // A copy, so that nothing larger is kept with it.
        let outcome = match outcome {
            Outcome::Right(bytes) => Outcome::Right(Bytes::copy_from_slice(&bytes)),
            other => other,
        };
        let is_kept = match &outcome {
            Outcome::Right(_) => true,
            Outcome::Damaged { until, .. } => until.is_some(),
            Outcome::Unknown => false,
        };
        self.entry.outcome.send_replace(Some(outcome));
        match is_kept {
            true => self.kept.push(&self.file, self.entry.clone()),
            false => self.file.remove(&self.entry.key),
        }
    }
}

impl Drop for Check {
    fn drop(&mut self) {
        self.end(Outcome::Unknown);
    }
}

impl Entry {
    fn has_ended(&self) -> bool {
        self.outcome.borrow().is_some()
    }

    /// What was damaged a while ago may have been put right.
    fn counts(&self, now: Instant) -> bool {
        !matches!(&*self.outcome.borrow(), Some(Outcome::Damaged { until: Some(until), .. }) if *until <= now)
    }

    async fn ended(&self) -> Outcome {
        let mut outcome = self.outcome.subscribe();
        let ended = outcome.wait_for(Option::is_some).await;
        // The sender is a part of this, so waiting cannot fail.
        ended.ok().and_then(|outcome| outcome.clone()).unwrap_or(Outcome::Unknown)
    }

    /// Memory, about.
    fn bytes(&self) -> u64 {
        u64::from(self.span.length) + CHECKED_ENTRY_BYTES
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { span, outcome, .. } = self;
        let outcome = match &*outcome.borrow() {
            None => "under way",
            Some(Outcome::Right(_)) => "right",
            Some(Outcome::Damaged { .. }) => "damaged",
            Some(Outcome::Unknown) => "not known",
        };
        write!(formatter, "{} bytes at {}: {outcome}", span.length, span.offset)
    }
}

/// What a range has to wait for, and to be compared with.
#[derive(Debug, Default)]
pub(crate) struct Checks(Vec<Arc<Entry>>);

impl Checks {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits until all have ended: bytes that are right.
    ///
    /// # Errors
    /// [`Error::Damaged`] when the last check of a chunk found no right bytes.
    pub async fn ended(&self) -> Result<Vec<Right>, Error> {
        let mut last: BTreeMap<u64, (Span, Outcome)> = BTreeMap::new();
        for entry in &self.0 {
            let outcome = entry.ended().await;
            // One that was given up says nothing about those before.
            if outcome != Outcome::Unknown {
                last.insert(entry.span.offset, (entry.span, outcome));
            }
        }
        let right = |(span, outcome)| match outcome {
            Outcome::Right(bytes) => Ok(Right { span, bytes }),
            Outcome::Damaged { text, .. } => Err(Error::Damaged(text)),
            Outcome::Unknown => unreachable!("these were left out"),
        };
        last.into_values().map(right).collect()
    }
}

/// Bytes of a chunk that were compared with its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Right {
    pub span: Span,
    bytes: Bytes,
}

impl Right {
    /// What it has of a piece of the file: where in the piece, and the bytes.
    pub fn part_of(&self, piece: &Range<u64>) -> Option<(usize, &[u8])> {
        let own = range(self.span);
        let (start, end) = (own.start.max(piece.start), own.end.min(piece.end));
        let in_memory = |offset| usize::try_from(offset).expect("both are in memory");
        (start < end).then(|| {
            let bytes = &self.bytes[in_memory(start - own.start)..in_memory(end - own.start)];
            (in_memory(start - piece.start), bytes)
        })
    }
}

/// Checks of all files of a store that have ended and are remembered, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    next: AtomicU64,
    ended: Mutex<Ended>,
}

#[derive(Debug, Default)]
struct Ended {
    entries: VecDeque<(Weak<Checking>, Arc<Entry>)>,
    bytes: u64,
}

impl Kept {
    fn push(&self, file: &Arc<Checking>, entry: Arc<Entry>) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.bytes += entry.bytes();
        ended.entries.push_back((Arc::downgrade(file), entry));
        while CHECKED_BYTES_MAX < ended.bytes
            && let Some((file, entry)) = ended.entries.pop_front()
        {
            ended.bytes -= entry.bytes();
            if let Some(file) = file.upgrade() {
                file.remove(&entry.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;

    struct Bench {
        file: Arc<Checking>,
        kept: Arc<Kept>,
    }

    impl Bench {
        fn new() -> Self {
            Self { file: Arc::default(), kept: Arc::default() }
        }

        /// Of a chunk of ten bytes.
        fn start(&self, offset: u64) -> Check {
            Check::start(&self.file, Span { offset, length: 10 }, &self.kept)
        }

        fn now(&self, wanted: Range<u64>) -> Option<Result<Vec<Right>, Error>> {
            self.file.of(&wanted).ended().now_or_never()
        }

        fn offsets(&self, wanted: Range<u64>) -> Vec<u64> {
            self.file.of(&wanted).0.iter().map(|entry| entry.span.offset).collect()
        }

        fn count(&self) -> usize {
            assert_eq!(self.file.lock().len(), self.file.count.load(Ordering::Relaxed));
            self.file.count.load(Ordering::Relaxed)
        }
    }

    fn right(byte: u8) -> Outcome {
        Outcome::Right(Bytes::from(vec![byte; 10]))
    }

    fn damaged(until: Option<Instant>) -> Outcome {
        Outcome::Damaged { text: "wrong".to_owned(), until }
    }

    #[test]
    fn a_range_has_the_checks_that_overlap_it() {
        let bench = Bench::new();
        let _checks: Vec<_> = [30, 10, 20, 50].map(|offset| bench.start(offset)).into();
        assert_eq!(bench.offsets(0..100), [10, 20, 30, 50]);
        assert_eq!(bench.offsets(19..21), [10, 20]);
        assert_eq!(bench.offsets(20..30), [20]);
        assert_eq!(bench.offsets(39..50), [30]);
        assert_eq!(bench.offsets(40..50), [0; 0]);
        assert_eq!(bench.offsets(60..70), [0; 0]);
    }

    #[test]
    fn nothing_is_waited_for_but_checks_under_way() {
        let bench = Bench::new();
        assert_eq!(bench.now(0..100), Some(Ok(Vec::new())));
        let (first, second) = (bench.start(0), bench.start(10));
        assert_eq!(bench.now(0..20), None);
        first.end(right(1));
        assert_eq!(bench.now(0..20), None);
        let bytes = bench.now(0..10).unwrap().unwrap();
        assert_eq!(bytes[0].part_of(&(4..20)), Some((0, &[1; 6][..])));
        assert_eq!(bytes[0].part_of(&(10..20)), None);
        second.end(right(2));
        assert_eq!(bench.now(0..20).unwrap().unwrap().len(), 2);
    }

    #[test]
    fn a_check_that_is_given_up_leaves_nothing_and_nobody_waiting() {
        let bench = Bench::new();
        let check = bench.start(0);
        let checks = bench.file.of(&(0..10));
        let mut waiting = Box::pin(checks.ended());
        assert_eq!(waiting.as_mut().now_or_never(), None);
        drop(check);
        assert_eq!(waiting.now_or_never(), Some(Ok(Vec::new())));
        assert_eq!(bench.count(), 0);
    }

    #[test]
    fn a_check_that_panics_leaves_nothing() {
        let bench = Bench::new();
        let check = bench.start(0);
        let panicked = std::thread::spawn(move || {
            let _check = check;
            panic!("as meant");
        });
        assert!(panicked.join().is_err());
        assert_eq!((bench.count(), bench.now(0..10)), (0, Some(Ok(Vec::new()))));
    }

    #[test]
    fn the_last_check_of_a_chunk_that_found_something_counts() {
        let bench = Bench::new();
        let later = Some(Instant::now() + Duration::from_secs(60));
        bench.start(0).end(damaged(later));
        let wrong = Some(Err(Error::Damaged("wrong".to_owned())));
        assert_eq!(bench.now(0..10), wrong);
        drop(bench.start(0));
        assert_eq!(bench.now(0..10), wrong);
        bench.start(0).end(right(1));
        assert_eq!(bench.now(0..10).unwrap().unwrap().len(), 1);
        assert_eq!(bench.now(10..20), Some(Ok(Vec::new())));
    }

    #[test]
    fn damage_is_told_those_who_wait_and_others_as_long_as_it_is_remembered() {
        let bench = Bench::new();
        for until in [None, Some(Instant::now())] {
            let check = bench.start(0);
            let checks = bench.file.of(&(0..10));
            check.end(damaged(until));
            assert_eq!(checks.ended().now_or_never(), Some(Err(Error::Damaged("wrong".to_owned()))));
            assert_eq!(bench.now(0..10), Some(Ok(Vec::new())));
        }
    }

    #[test]
    fn the_oldest_make_room_for_new_ones_and_a_file_that_is_closed_does_not_matter() {
        let bench = Bench::new();
        let count = CHECKED_BYTES_MAX / (10 + CHECKED_ENTRY_BYTES);
        (0..count).for_each(|index| bench.start(10 * index).end(right(1)));
        assert_eq!((bench.count() as u64, bench.offsets(0..15)), (count, vec![0, 10]));
        bench.start(10 * count).end(right(1));
        assert_eq!((bench.count() as u64, bench.offsets(0..15)), (count, vec![10]));
        let other = Bench { file: Arc::default(), kept: bench.kept.clone() };
        drop(bench);
        (0..count + 5).for_each(|index| other.start(10 * index).end(right(1)));
        assert_eq!(other.count() as u64, count);
    }
}
