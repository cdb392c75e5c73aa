//! Dictionaries of one table file that were advertised to clients, as the file stores them.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Mutex, MutexGuard, PoisonError},
};

use busload_chunks::Span;
use bytes::Bytes;

use crate::{
    limits::{DICTIONARY_STORED_BYTES_MAX, PINNED_BYTES_MAX, PINNED_DICTIONARIES_MAX},
    versions::table_file::range,
};

const _: () =
    assert!(DICTIONARY_STORED_BYTES_MAX as u64 <= PINNED_BYTES_MAX, "one can always be pinned");

/// Stored dictionaries of one file, by their spans. None is ever removed.
#[derive(Debug, Default)]
pub(crate) struct PinnedDictionaries {
    pinned: Mutex<PinnedSpans>,
}

#[derive(Debug, Default)]
struct PinnedSpans {
    spans: BTreeMap<Span, Bytes>,
    bytes: u64,
}

/// Error of an insert beyond the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl PinnedDictionaries {
    pub fn has(&self, span: Span) -> bool {
        self.lock().spans.contains_key(&span)
    }

    /// Returns the bytes of a range that is a pinned span or a part of one.
    pub fn get(&self, wanted: &Range<u64>) -> Option<Bytes> {
        let pinned = self.lock();
        // The longest span that begins at the start of the range, or the last one before it.
        let last = Span { offset: wanted.start, length: u32::MAX };
        let (span, bytes) = pinned.spans.range(..=last).next_back()?;
        let (start, end) = (wanted.start - span.offset, wanted.end.checked_sub(span.offset)?);
        (start < end && wanted.end <= range(*span).end)
            .then(|| bytes.slice(within(start)..within(end)))
    }

    /// Copies the bytes in, so that no larger buffer stays alive with them.
    pub fn insert(&self, span: Span, bytes: &[u8]) -> Result<(), Full> {
        assert_eq!(bytes.len() as u64, u64::from(span.length), "the bytes are those of the span");
        let mut pinned = self.lock();
        if pinned.spans.contains_key(&span) {
            return Ok(());
        }
        let bytes_after = pinned.bytes + u64::from(span.length);
        if PINNED_DICTIONARIES_MAX <= pinned.spans.len() || PINNED_BYTES_MAX < bytes_after {
            return Err(Full);
        }
        pinned.bytes = bytes_after;
        pinned.spans.insert(span, Bytes::copy_from_slice(bytes));
        Ok(())
    }

    /// Returns the bytes of memory in use.
    pub fn memory_bytes(&self) -> u64 {
        self.lock().bytes
    }

    fn lock(&self) -> MutexGuard<'_, PinnedSpans> {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn within(offset: u64) -> usize {
    usize::try_from(offset).expect("a pinned dictionary is in memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(offset: u64, length: u32) -> Span {
        Span { offset, length }
    }

    #[test]
    fn a_span_and_every_part_of_it_are_there_and_nothing_else() {
        let pinned = PinnedDictionaries::default();
        pinned.insert(span(100, 4), b"abcd").unwrap();
        pinned.insert(span(104, 2), b"ef").unwrap();
        let get = |range| pinned.get(&range).map(|bytes| bytes.to_vec());
        assert_eq!(get(100..104), Some(b"abcd".to_vec()));
        assert_eq!(get(101..103), Some(b"bc".to_vec()));
        assert_eq!(get(104..106), Some(b"ef".to_vec()));
        for other in [99..101, 100..105, 103..105, 106..107, 0..1, 100..100, 90..95] {
            assert_eq!(get(other.clone()), None, "{other:?}");
        }
        assert!(pinned.has(span(100, 4)) && !pinned.has(span(100, 3)));
    }

    #[test]
    fn spans_that_begin_at_the_same_offset_do_not_hide_each_other() {
        let pinned = PinnedDictionaries::default();
        pinned.insert(span(7, 2), b"ab").unwrap();
        pinned.insert(span(7, 4), b"abcd").unwrap();
        pinned.insert(span(7, 3), b"abc").unwrap();
        for length in 2..=4 {
            assert_eq!(pinned.get(&(7..7 + length)).unwrap().len() as u64, length);
        }
    }

    #[test]
    fn memory_is_bounded_by_count_and_by_bytes() {
        let pinned = PinnedDictionaries::default();
        for offset in (0..).take(PINNED_DICTIONARIES_MAX) {
            pinned.insert(span(offset, 1), b"x").unwrap();
        }
        assert_eq!(pinned.insert(span(u64::from(u32::MAX), 1), b"x"), Err(Full));
        pinned.insert(span(5, 1), b"x").expect("the span is pinned already");
        assert_eq!(pinned.memory_bytes(), PINNED_DICTIONARIES_MAX as u64);
        let (pinned, large) = (PinnedDictionaries::default(), vec![0; 16 << 20]);
        let fit =
            (0..6).filter(|&offset| pinned.insert(span(offset, 16 << 20), &large).is_ok()).count();
        assert_eq!(fit as u64, PINNED_BYTES_MAX >> 24);
    }
}
