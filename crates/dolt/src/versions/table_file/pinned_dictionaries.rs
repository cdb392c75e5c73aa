//! Dictionaries of one file whose places were told to somebody, as the file has them.

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

/// Bytes of some spans. What was put in stays.
#[derive(Debug, Default)]
pub(crate) struct PinnedDictionaries {
    pinned: Mutex<Pinned>,
}

#[derive(Debug, Default)]
struct Pinned {
    spans: BTreeMap<Span, Bytes>,
    bytes: u64,
}

/// There is no room for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl PinnedDictionaries {
    pub fn has(&self, span: Span) -> bool {
        self.lock().spans.contains_key(&span)
    }

    /// Bytes of a range that is a span or a part of one.
    pub fn get(&self, wanted: &Range<u64>) -> Option<Bytes> {
        let pinned = self.lock();
        // The longest one that begins where the range does, or before.
        let last = Span { offset: wanted.start, length: u32::MAX };
        let (span, bytes) = pinned.spans.range(..=last).next_back()?;
        let (start, end) = (wanted.start - span.offset, wanted.end.checked_sub(span.offset)?);
        (start < end && wanted.end <= range(*span).end)
            .then(|| bytes.slice(within(start)..within(end)))
    }

    /// Keeps a copy, so that nothing larger is kept with it.
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

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> u64 {
        self.lock().bytes
    }

    fn lock(&self) -> MutexGuard<'_, Pinned> {
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
        let pins = PinnedDictionaries::default();
        pins.insert(span(100, 4), b"abcd").unwrap();
        pins.insert(span(104, 2), b"ef").unwrap();
        let get = |range| pins.get(&range).map(|bytes| bytes.to_vec());
        assert_eq!(get(100..104), Some(b"abcd".to_vec()));
        assert_eq!(get(101..103), Some(b"bc".to_vec()));
        assert_eq!(get(104..106), Some(b"ef".to_vec()));
        for other in [99..101, 100..105, 103..105, 106..107, 0..1, 100..100, 90..95] {
            assert_eq!(get(other.clone()), None, "{other:?}");
        }
        assert!(pins.has(span(100, 4)) && !pins.has(span(100, 3)));
    }

    #[test]
    fn spans_that_begin_at_the_same_place_do_not_hide_each_other() {
        let pins = PinnedDictionaries::default();
        pins.insert(span(7, 2), b"ab").unwrap();
        pins.insert(span(7, 4), b"abcd").unwrap();
        pins.insert(span(7, 3), b"abc").unwrap();
        for length in 2..=4 {
            assert_eq!(pins.get(&(7..7 + length)).unwrap().len() as u64, length);
        }
    }

    #[test]
    fn memory_is_bounded_by_count_and_by_bytes() {
        let pins = PinnedDictionaries::default();
        for offset in (0..).take(PINNED_DICTIONARIES_MAX) {
            pins.insert(span(offset, 1), b"x").unwrap();
        }
        assert_eq!(pins.insert(span(u64::from(u32::MAX), 1), b"x"), Err(Full));
        pins.insert(span(5, 1), b"x").expect("it is there already");
        assert_eq!(pins.memory_bytes(), PINNED_DICTIONARIES_MAX as u64);
        let (pins, large) = (PinnedDictionaries::default(), vec![0; 16 << 20]);
        let fit =
            (0..6).filter(|&offset| pins.insert(span(offset, 16 << 20), &large).is_ok()).count();
        assert_eq!(fit as u64, PINNED_BYTES_MAX >> 24);
    }
}
