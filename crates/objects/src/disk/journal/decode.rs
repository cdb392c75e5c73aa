//! Decodes a journal, however corrupt.

use super::{
    ABSENT, CHECKSUM_BYTES, FILE, FileRecord, GONE, HEADER_BYTES, MARKER, PRESENT, Presence, Run,
};

/// One whole record of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// A file was made.
    File(FileRecord<'a>),
    /// Extents came or went.
    Extents {
        /// Number of the file.
        id: u32,
        /// Kind of change of these extents.
        presence: Presence,
        /// Runs of extents that the record lists.
        runs: RunsRead<'a>,
    },
    /// A file was removed.
    Gone(u32),
}

/// Runs of extents of a record. They passed the checksum; the caller still compares them with the
/// file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunsRead<'a> {
    body: &'a [u8],
    end: u32,
}

/// Iterator over the whole records of a journal.
#[derive(Clone, Debug)]
pub(crate) struct Records<'a> {
    rest: &'a [u8],
    skipped: usize,
}

impl<'a> Records<'a> {
    /// Decodes the bytes of a journal.
    pub(crate) fn new(journal: &'a [u8]) -> Self {
        Self { rest: journal, skipped: 0 }
    }

    /// Bytes skipped so far because they were no record.
    pub(crate) fn skipped(&self) -> usize {
        self.skipped
    }

    fn skip(&mut self) {
        let next = self.rest[1..].windows(MARKER.len()).position(|bytes| bytes == MARKER);
        let count = next.map_or(self.rest.len(), |position| position + 1);
        self.skipped += count;
        self.rest = &self.rest[count..];
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        while !self.rest.is_empty() {
            let Some((record, rest)) = record(self.rest) else {
                self.skip();
                continue;
            };
            self.rest = rest;
            return Some(record);
        }
        None
    }
}

/// Splits the record off the begin of some bytes.
fn record(bytes: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let (header, _) = bytes.split_at_checked(HEADER_BYTES)?;
    let (marker, &[kind, low, high]) = header.split_last_chunk::<3>()?;
    if marker != MARKER {
        return None;
    }
    let end = HEADER_BYTES + usize::from(u16::from_le_bytes([low, high]));
    let (record, rest) = bytes.split_at_checked(end + CHECKSUM_BYTES)?;
    let (record, checksum) = record.split_last_chunk::<CHECKSUM_BYTES>()?;
    if crc32c::crc32c(&record[MARKER.len()..]) != u32::from_le_bytes(*checksum) {
        return None;
    }
    Some((contents(kind, &record[HEADER_BYTES..])?, rest))
}

fn contents(kind: u8, body: &[u8]) -> Option<Record<'_>> {
    let mut body = Body(body);
    let id = body.u32()?;
    match kind {
        FILE => Some(Record::File(file(id, body)?)),
        PRESENT => Some(extents(id, Presence::Present, body)),
        ABSENT => Some(extents(id, Presence::Absent, body)),
        GONE => Some(Record::Gone(id)),
        _ => None,
    }
}

fn extents(id: u32, presence: Presence, body: Body<'_>) -> Record<'_> {
    Record::Extents { id, presence, runs: RunsRead { body: body.0, end: 0 } }
}

fn file(id: u32, mut body: Body<'_>) -> Option<FileRecord<'_>> {
    Some(FileRecord {
        id,
        generation: body.u64()?,
        size: body.u64()?,
        store: body.text()?,
        name: body.text()?,
        etag: body.text()?,
    })
}

impl Iterator for RunsRead<'_> {
    type Item = std::ops::RangeInclusive<u32>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut body = Body(self.body);
        let first = self.end.checked_add(body.number()?)?;
        let run = Run { first, last: first.checked_add(body.number()?)? };
        self.end = run.last.checked_add(1)?;
        self.body = body.0;
        Some(run.first..=run.last)
    }
}

/// Rest of the body of a record.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*array)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = usize::from(u16::from_le_bytes(self.array()?));
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }

    fn number(&mut self) -> Option<u32> {
        let mut number = 0;
        for shift in (0..32).step_by(7) {
            let [byte] = self.array()?;
            let bits = u32::from(byte & 0x7f);
            number |= bits.checked_shl(shift).filter(|shifted| shifted >> shift == bits)?;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}
