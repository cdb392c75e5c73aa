//! The records of the journal: which cache files there are, and which of their extents.
//!
//! ```text
//! +-------------+------+--------+---------------------+---------+
//! | FF FE 4A 01 | kind | length | body                | CRC-32C |    little endian throughout
//! | marker      | u8   | u16    | `length` bytes      | u32     |
//! +-------------+------+--------+---------------------+---------+
//!
//! kind 1  file     u32 id, u64 generation, u64 size of the object,
//!                  then store, name, ETag: each u16 length, UTF-8
//! kind 2  present  u32 id, runs of extents
//! kind 3  absent   u32 id, runs of extents
//! kind 4  gone     u32 id
//! a run            two LEB128 numbers: extents left out since the last run's end,
//!                  extents of the run less one
//! ```
//!
//! The CRC covers kind, length and body. Where a record is wrong, the reader looks for the next
//! marker with a right record behind it, so that a torn or flipped record loses its own contents
//! and no more. No text can hold a marker: FF is in no UTF-8. The marker ends with the format's
//! version. Lost records are harmless: the start punches extents that no record mentions, and
//! extents that are not there fail their checksum.

use crate::disk::limits::{OBJECT_BYTES_MAX, RUNS_PER_RECORD_MAX};

mod decode;

pub(crate) use decode::{Record, Records};

/// Marker with which every record begins.
pub(super) const MARKER: [u8; 4] = [0xff, 0xfe, b'J', 1];
/// Bytes of marker, kind and length.
const HEADER_BYTES: usize = MARKER.len() + 3;
const CHECKSUM_BYTES: usize = 4;

pub(super) const FILE: u8 = 1;
pub(super) const PRESENT: u8 = 2;
pub(super) const ABSENT: u8 = 3;
pub(super) const GONE: u8 = 4;

/// Record of a cache file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileRecord<'a> {
    /// Number of the file, which is also its name.
    pub(crate) id: u32,
    /// Random number that is part of its checksums.
    pub(crate) generation: u64,
    /// Bytes of the object.
    pub(crate) size: u64,
    pub(crate) store: &'a str,
    pub(crate) name: &'a str,
    pub(crate) etag: &'a str,
}

/// Kind of change of a run of extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// The extents are there.
    Present,
    /// The extents are not there.
    Absent,
}

/// Writes the record of a file that was made.
pub(crate) fn write_file(out: &mut Vec<u8>, file: &FileRecord<'_>) {
    debug_assert!(file.size <= OBJECT_BYTES_MAX);
    write_record(out, FILE, |out| {
        out.extend_from_slice(&file.id.to_le_bytes());
        out.extend_from_slice(&file.generation.to_le_bytes());
        out.extend_from_slice(&file.size.to_le_bytes());
        [file.store, file.name, file.etag].into_iter().for_each(|text| write_text(out, text));
    });
}

/// Writes the record of a file that was removed.
pub(crate) fn write_gone(out: &mut Vec<u8>, id: u32) {
    write_record(out, GONE, |out| out.extend_from_slice(&id.to_le_bytes()));
}

/// Writes the records of ascending extents of a file that came or went.
pub(crate) fn write_extents(
    out: &mut Vec<u8>,
    id: u32,
    presence: Presence,
    extents: impl IntoIterator<Item = u32>,
) {
    let kind = if presence == Presence::Present { PRESENT } else { ABSENT };
    let mut runs = Runs::new(extents.into_iter()).peekable();
    while runs.peek().is_some() {
        write_record(out, kind, |out| {
            out.extend_from_slice(&id.to_le_bytes());
            // Each record counts from 0, so that none depends on the one before.
            let mut end = 0;
            for run in runs.by_ref().take(RUNS_PER_RECORD_MAX) {
                write_number(out, run.first - end);
                write_number(out, run.last - run.first);
                end = run.last + 1;
            }
        });
    }
}

fn write_record(out: &mut Vec<u8>, kind: u8, write_body: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(&MARKER);
    let start = out.len();
    out.extend_from_slice(&[kind, 0, 0]);
    write_body(out);
    let length = u16::try_from(out.len() - start - 3).expect("limits keep records short");
    out[start + 1..start + 3].copy_from_slice(&length.to_le_bytes());
    let checksum = crc32c::crc32c(&out[start..]);
    out.extend_from_slice(&checksum.to_le_bytes());
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).expect("limits keep keys short");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn write_number(out: &mut Vec<u8>, mut number: u32) {
    while 0x7f < number {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Run of extents that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u32,
    last: u32,
}

/// Iterator over the runs of ascending numbers.
struct Runs<I> {
    extents: I,
    next: Option<u32>,
}

impl<I: Iterator<Item = u32>> Runs<I> {
    fn new(mut extents: I) -> Self {
        Self { next: extents.next(), extents }
    }
}

impl<I: Iterator<Item = u32>> Iterator for Runs<I> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let first = self.next.take()?;
        let mut run = Run { first, last: first };
        for extent in self.extents.by_ref() {
            if extent != run.last + 1 {
                self.next = Some(extent);
                break;
            }
            run.last = extent;
        }
        Some(run)
    }
}

#[cfg(test)]
mod tests;
