//! Encoding and decoding of the bytes on disk, which `docs/log-format.md` describes.
//!
//! Nothing read from a file is trusted until its checksum, its position and its neighbours agree. A
//! length is used only once the checksum of the header that holds it has been verified.

mod frame;
mod last_segment;
mod name;
mod segment;
mod varint;

#[cfg(test)]
mod page_tests;
#[cfg(test)]
mod tests;

pub use frame::{
    FRAME_ALIGNMENT_BYTES, FRAME_HEADER_BYTES, FRAME_KIND_CLEAN_SHUTDOWN, FRAME_KIND_RECORDS,
    FRAME_MAGIC,
};
pub(crate) use frame::{FrameHeader, FrameSeed, Records, padding};
pub(crate) use last_segment::LastSegmentError;
pub use last_segment::{
    LAST_SEGMENT_BYTES, LAST_SEGMENT_KIND_CLEAN_SHUTDOWN, LAST_SEGMENT_KIND_OPEN,
    LAST_SEGMENT_MAGIC, LastSegment,
};
pub use name::{
    COPY_LOCK_NAME, INCOMPLETE_NAME, LAST_SEGMENT_NAME, LAST_SEGMENT_TEMPORARY_NAME, LOCK_NAME,
    SEGMENT_SUFFIX, SPARE_SUFFIX, TEMPORARY_SUFFIX, segment_name,
};
pub(crate) use name::{NameKind, spare_name, temporary_name};
pub use segment::{
    FORMAT_VERSION, SEGMENT_FLAG_REUSED, SEGMENT_HEADER_BYTES, SEGMENT_HEADER_USED_BYTES,
    SEGMENT_MAGIC,
};
pub(crate) use segment::{HeaderError, SegmentHeader};
pub(crate) use varint::{VARINT_BYTES_MAX, put_varint, varint_bytes};

use std::fmt;

/// Random id of a log, drawn when the log is created. It distinguishes the log's segments from
/// those of any other log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogId(pub u128);

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Reads little-endian fields at fixed offsets of a header whose length is known.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&self, offset: usize) -> [u8; N] {
        self.0[offset..offset + N].try_into().expect("the range has this length")
    }

    pub fn u32(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.array(offset))
    }

    pub fn u64(&self, offset: usize) -> u64 {
        u64::from_le_bytes(self.array(offset))
    }

    pub fn i64(&self, offset: usize) -> i64 {
        i64::from_le_bytes(self.array(offset))
    }

    pub fn u128(&self, offset: usize) -> u128 {
        u128::from_le_bytes(self.array(offset))
    }
}

/// Writes a little-endian field into a header.
pub(crate) fn put(header: &mut [u8], offset: usize, field: &[u8]) {
    header[offset..offset + field.len()].copy_from_slice(field);
}
