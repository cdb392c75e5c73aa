//! Index of an archive: the ends of spans, then prefixes, references to spans and suffixes, all in
//! the order of prefixes.

use crate::{
    FormatError, be,
    error::malformed,
    index::{
        ChunkLocation, Span, check_prefixes, footer::ArchiveFooter, length_in_memory,
        palette::Palette,
    },
};

/// Dictionary id of a chunk that is not a zstd frame.
const NO_DICTIONARY: u32 = 0;

/// Earliest version whose chunks may be records without a dictionary.
const RECORDS_VERSION_MIN: u8 = 2;

/// The index, rearranged: each dictionary's span id is stored once for all chunks that use it, and
/// the end of a span in 32 bits.
#[derive(Debug)]
pub(super) struct Archive {
    prefixes: Box<[u64]>,
    suffixes: Box<[[u8; 12]]>,
    /// Id of each chunk's span.
    data: Box<[u32]>,
    /// Id of each chunk's dictionary, or [`NO_DICTIONARY`].
    dictionaries: Palette,
    spans: Spans,
}

impl Archive {
    pub(super) fn parse(tail: &[u8], file_bytes: u64) -> Result<Self, FormatError> {
        let footer = ArchiveFooter::parse(tail, file_bytes)?;
        if tail.len() as u64 != footer.tail_bytes() {
            return Err(malformed!(
                "expected the last {} bytes of an archive, got {}",
                footer.tail_bytes(),
                tail.len()
            ));
        }
        let index = &tail[..length_in_memory(footer.index_bytes, "an index")?];
        let chunk_count = be::to_usize(footer.chunk_count);
        let (ends, index) = index.split_at(8 * be::to_usize(footer.span_count));
        let (prefixes, index) = index.split_at(8 * chunk_count);
        let (references, suffixes) = index.split_at(8 * chunk_count);
        check_prefixes(be::u64s(prefixes))?;
        let spans = Spans::parse(ends, footer.data_bytes)?;
        check_references(references, &footer, &spans)?;
        Ok(Self {
            prefixes: be::u64s(prefixes).collect(),
            suffixes: suffixes.as_chunks().0.into(),
            data: references
                .as_chunks::<8>()
                .0
                .iter()
                .map(|reference| be::u32_at(reference, 4))
                .collect(),
            dictionaries: Palette::new(
                references.as_chunks::<8>().0.iter().map(|reference| be::u32_at(reference, 0)),
            ),
            spans,
        })
    }

    pub(super) fn chunk_count(&self) -> u32 {
        u32::try_from(self.prefixes.len()).expect("the footer counts them in 32 bits")
    }

    pub(super) fn prefix(&self, position: u32) -> u64 {
        self.prefixes[be::to_usize(position)]
    }

    pub(super) fn suffix(&self, position: u32) -> &[u8; 12] {
        &self.suffixes[be::to_usize(position)]
    }

    pub(super) fn location(&self, position: u32) -> ChunkLocation {
        let position = be::to_usize(position);
        let span = |id| self.spans.get(id).expect("checked when the index was parsed");
        let dictionary = self.dictionaries.get(position);
        ChunkLocation {
            span: span(self.data[position]),
            dictionary: (dictionary != NO_DICTIONARY).then(|| span(dictionary)),
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let chunks =
            size_of_val(&*self.prefixes) + size_of_val(&*self.suffixes) + size_of_val(&*self.data);
        (chunks + self.dictionaries.memory_bytes() + self.spans.memory_bytes()) as u64
    }
}

/// Checks that the spans of chunks and dictionaries exist, and that versions without records have
/// none.
fn check_references(
    references: &[u8],
    footer: &ArchiveFooter,
    spans: &Spans,
) -> Result<(), FormatError> {
    for (position, reference) in references.as_chunks::<8>().0.iter().enumerate() {
        let [dictionary, data] = [be::u32_at(reference, 0), be::u32_at(reference, 4)];
        if spans.get(data).is_none() {
            return Err(malformed!(
                "chunk {position} is in span {data}, expected one of 1 to {} of less than 4 GiB",
                footer.span_count
            ));
        }
        if dictionary == NO_DICTIONARY && footer.version < RECORDS_VERSION_MIN {
            return Err(malformed!(
                "chunk {position} has no dictionary; in an archive of version {} all have",
                footer.version
            ));
        }
        if dictionary != NO_DICTIONARY && spans.get(dictionary).is_none() {
            return Err(malformed!(
                "the dictionary of chunk {position} is span {dictionary}, \
                 expected one of 1 to {} of less than 4 GiB",
                footer.span_count
            ));
        }
    }
    Ok(())
}

/// Ends of the spans, each of which is the beginning of the next.
#[derive(Debug)]
struct Spans {
    /// Low 32 bits of each end.
    ends: Box<[u32]>,
    /// First span and its high bits for each change of the high bits; ascending. That of the first
    /// span, (0, 0), is left out.
    high: Box<[(u32, u32)]>,
}

impl Spans {
    fn parse(ends: &[u8], data_bytes: u64) -> Result<Self, FormatError> {
        let mut last = 0;
        let mut high = Vec::new();
        for (index, end) in (0..=u32::MAX).zip(be::u64s(ends)) {
            if end < last {
                return Err(malformed!(
                    "span {} ends before the one before it",
                    u64::from(index) + 1
                ));
            }
            if end >> 32 != last >> 32 {
                high.push((index, high_bits(end)));
            }
            last = end;
        }
        if last != data_bytes {
            return Err(malformed!(
                "spans end at {last}, expected {data_bytes}, where the index begins"
            ));
        }
        Ok(Self { ends: be::u64s(ends).map(low_bits).collect(), high: high.into() })
    }

    /// Returns the span with this id, counted from 1; `None` if it does not exist or is too long to
    /// be used.
    fn get(&self, id: u32) -> Option<Span> {
        let index = id.checked_sub(1)?;
        let end = self.end(index)?;
        let offset = index.checked_sub(1).map_or(Some(0), |before| self.end(before))?;
        Some(Span { offset, length: u32::try_from(end - offset).ok()? })
    }

    fn end(&self, index: u32) -> Option<u64> {
        let low = *self.ends.get(be::to_usize(index))?;
        // Most files have less than 4 GiB and no entry here.
        let above = self.high.partition_point(|&(first, _)| first <= index);
        let high = above.checked_sub(1).map_or(0, |place| self.high[place].1);
        Some(u64::from(high) << 32 | u64::from(low))
    }

    fn memory_bytes(&self) -> usize {
        size_of_val(&*self.ends) + size_of_val(&*self.high)
    }
}

fn low_bits(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).expect("32 bits")
}

fn high_bits(number: u64) -> u32 {
    u32::try_from(number >> 32).expect("32 bits")
}
