//! Finds expired entries without looking at the others.
//!
//! Each segment has a lower bound of its earliest expiry, and the index has one over all segments.
//! While nothing is due by the latter, a sweep costs nothing. Otherwise the sweep passes over the
//! segments, looks into those that are due, and has a new bound when it reaches the end.

use super::segment::NEVER;
use super::{EntryRef, Index};
use crate::{Sweep, UnixMs};

/// Progress of the sweeps of an index.
pub(super) struct SweepState {
    /// Time before which nothing expires, as of the last whole pass and everything added since.
    next_due: UnixMs,
    /// First hash of the segment where the pass continues; `None` between passes.
    cursor: Option<u64>,
    /// Bound over the segments passed so far and everything added since the pass began.
    passed_due: UnixMs,
    /// The same bound without what the pass found due: the time when the next entry falls due if
    /// the caller removes the due ones.
    rest_due: UnixMs,
}

impl SweepState {
    pub fn new() -> Self {
        SweepState { next_due: NEVER, cursor: None, passed_due: NEVER, rest_due: NEVER }
    }

    /// Takes note of an entry that expires.
    #[inline]
    pub fn note(&mut self, at: UnixMs) {
        self.next_due = self.next_due.min(at);
        self.passed_due = self.passed_due.min(at);
        self.rest_due = self.rest_due.min(at);
    }
}

impl Index {
    /// Emits entries that are due, visiting about `budget` segments and entries.
    pub fn sweep(
        &mut self,
        now: UnixMs,
        budget: usize,
        mut expired: impl FnMut(EntryRef<'_>),
    ) -> Sweep {
        if self.expiring_len == 0 || self.directory.is_empty() {
            self.sweep = SweepState::new();
            return Sweep::Done { next_due: None };
        }
        let mut visited = 0;
        let mut hash = match self.sweep.cursor {
            Some(hash) => hash,
            None if now < self.sweep.next_due => {
                return Sweep::Done { next_due: Some(self.sweep.next_due) };
            }
            None => {
                (self.sweep.passed_due, self.sweep.rest_due) = (NEVER, NEVER);
                0
            }
        };
        loop {
            if budget <= visited {
                self.sweep.cursor = Some(hash);
                return Sweep::More;
            }
            let segment = self.directory.word(hash).segment();
            visited += 1;
            if segment.earliest() <= now {
                segment.sweep(now, |entry| expired(EntryRef::new(entry)));
                visited += segment.count() as usize;
            }
            self.sweep.passed_due = self.sweep.passed_due.min(segment.earliest());
            self.sweep.rest_due = self.sweep.rest_due.min(segment.earliest_rest());
            match self.directory.next_segment(hash) {
                Some(next) => hash = next,
                None => break,
            }
        }
        self.sweep.cursor = None;
        self.sweep.next_due = self.sweep.passed_due;
        Sweep::Done { next_due: Some(self.sweep.rest_due) }
    }
}
