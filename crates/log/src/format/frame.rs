//! A frame is what one write call puts into a segment: a header, records, and zeros up to the next
//! multiple of eight bytes.

use super::{Fields, LogId, put, varint::varint};
use crate::Lsn;

/// Magic number that begins every frame.
pub const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"FrmL");

/// Length of a frame's header.
pub const FRAME_HEADER_BYTES: usize = 88;

/// Alignment of frames: each begins at a multiple of this many bytes.
pub const FRAME_ALIGNMENT_BYTES: u64 = 8;

/// Kind of a frame that holds records.
pub const FRAME_KIND_RECORDS: u32 = 0;

/// Kind of the frame without records that ends a log after a clean shutdown.
pub const FRAME_KIND_CLEAN_SHUTDOWN: u32 = 1;

const HEADER_CHECKSUM: usize = 4;
const BODY_CHECKSUM: usize = 8;
const PREVIOUS: usize = 12;
const BODY_BYTES: usize = 16;
const RECORD_COUNT: usize = 24;
const KIND: usize = 28;
const LOG_ID: usize = 32;
const SEGMENT: usize = 48;
const FRAME_NUMBER: usize = 56;
const FIRST_LSN: usize = 64;
const WALL_MS: usize = 72;
const DURABLE_LSN: usize = 80;

/// Frame header whose checksum was verified. The body has a checksum of its own, which the caller
/// verifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub body_checksum: u32,
    /// Header checksum of the frame before; in the first frame, the checksum of the segment's
    /// header.
    pub previous: u32,
    /// Length of the records and the padding.
    pub body_bytes: u64,
    pub record_count: u32,
    pub kind: u32,
    /// LSN of the first record, or of the next one to be written if the frame has none.
    pub first_lsn: Lsn,
    pub wall_ms: i64,
    /// Highest LSN known to be durable when the frame was written.
    pub durable: Lsn,
}

impl FrameHeader {
    /// Returns the encoded header and the checksum that the next frame names as its predecessor.
    pub fn encode(&self, seed: FrameSeed) -> ([u8; FRAME_HEADER_BYTES], u32) {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        put(&mut bytes, 0, &FRAME_MAGIC.to_le_bytes());
        put(&mut bytes, BODY_CHECKSUM, &self.body_checksum.to_le_bytes());
        put(&mut bytes, PREVIOUS, &self.previous.to_le_bytes());
        put(&mut bytes, BODY_BYTES, &self.body_bytes.to_le_bytes());
        put(&mut bytes, RECORD_COUNT, &self.record_count.to_le_bytes());
        put(&mut bytes, KIND, &self.kind.to_le_bytes());
        put(&mut bytes, LOG_ID, &seed.log_id.0.to_le_bytes());
        put(&mut bytes, SEGMENT, &seed.segment.to_le_bytes());
        put(&mut bytes, FRAME_NUMBER, &seed.frame.to_le_bytes());
        put(&mut bytes, FIRST_LSN, &self.first_lsn.0.to_le_bytes());
        put(&mut bytes, WALL_MS, &self.wall_ms.to_le_bytes());
        put(&mut bytes, DURABLE_LSN, &self.durable.0.to_le_bytes());
        let checksum = seed.checksum(&bytes[BODY_CHECKSUM..]);
        put(&mut bytes, HEADER_CHECKSUM, &checksum.to_le_bytes());
        (bytes, checksum)
    }

    /// Decodes and verifies a header that claims to be in `segment` of `log_id` (`None`: of any
    /// log). Also returns its position and its checksum.
    pub fn decode(
        bytes: &[u8],
        log_id: Option<LogId>,
        segment: u64,
    ) -> Option<(Self, FrameSeed, u32)> {
        let bytes = bytes.get(..FRAME_HEADER_BYTES)?;
        let fields = Fields(bytes);
        let in_place = fields.u32(0) == FRAME_MAGIC
            && log_id.is_none_or(|log_id| fields.u128(LOG_ID) == log_id.0)
            && fields.u64(SEGMENT) == segment
            && fields.u64(BODY_BYTES).is_multiple_of(FRAME_ALIGNMENT_BYTES);
        if !in_place {
            return None;
        }
        let seed = FrameSeed {
            log_id: LogId(fields.u128(LOG_ID)),
            segment,
            frame: fields.u64(FRAME_NUMBER),
        };
        let checksum = fields.u32(HEADER_CHECKSUM);
        if seed.checksum(&bytes[BODY_CHECKSUM..]) != checksum {
            return None;
        }
        let header = Self {
            body_checksum: fields.u32(BODY_CHECKSUM),
            previous: fields.u32(PREVIOUS),
            body_bytes: fields.u64(BODY_BYTES),
            record_count: fields.u32(RECORD_COUNT),
            kind: fields.u32(KIND),
            first_lsn: Lsn(fields.u64(FIRST_LSN)),
            wall_ms: fields.i64(WALL_MS),
            durable: Lsn(fields.u64(DURABLE_LSN)),
        };
        Some((header, seed, checksum))
    }

    /// Returns the LSN of the first record after this frame.
    pub fn next_lsn(&self) -> Lsn {
        Lsn(self.first_lsn.0.saturating_add(u64::from(self.record_count)))
    }
}

/// Position of a frame. Every checksum begins with it, so bytes that belong elsewhere never verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameSeed {
    pub log_id: LogId,
    pub segment: u64,
    pub frame: u64,
}

impl FrameSeed {
    fn start(&self) -> u32 {
        let mut place = [0; 32];
        put(&mut place, 0, &self.log_id.0.to_le_bytes());
        put(&mut place, 16, &self.segment.to_le_bytes());
        put(&mut place, 24, &self.frame.to_le_bytes());
        crc32c::crc32c(&place)
    }

    fn checksum(&self, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(self.start(), bytes)
    }

    /// Returns the checksum of a body given in several parts.
    pub fn body_checksum<'a>(&self, parts: impl Iterator<Item = &'a [u8]>) -> u32 {
        parts.fold(self.start(), crc32c::crc32c_append)
    }
}

/// Returns the number of zeros that pad a body of this length.
pub(crate) fn padding(body_bytes: u64) -> u64 {
    body_bytes.wrapping_neg() % FRAME_ALIGNMENT_BYTES
}

/// Iterator over the records of a verified body.
pub(crate) struct Records<'a> {
    body: &'a [u8],
}

impl<'a> Records<'a> {
    pub fn new(body: &'a [u8]) -> Self {
        Self { body }
    }

    /// Returns the bytes behind the records that were taken.
    pub fn rest(&self) -> &'a [u8] {
        self.body
    }
}

/// Error for a body that verifies but does not hold what its header says: a faulty program wrote
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Misshapen;

impl<'a> Iterator for Records<'a> {
    type Item = Result<&'a [u8], Misshapen>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.body.is_empty() {
                return None;
            }
            let (bytes, rest) = match split(self.body) {
                Some(split) => split,
                None => {
                    self.body = &[];
                    return Some(Err(Misshapen));
                }
            };
            self.body = rest;
            // A record without bytes is padding.
            if !bytes.is_empty() {
                return Some(Ok(bytes));
            }
        }
    }
}

#[inline]
fn split(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, prefix_bytes) = varint(body)?;
    body[prefix_bytes..].split_at_checked(usize::try_from(length).ok()?)
}
