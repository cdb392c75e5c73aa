//! The header of a segment: one block, written before the first frame behind it and durable with
//! it.

use super::{Fields, LogId, put};
use crate::Lsn;

/// The first bytes of every segment that was begun.
pub const SEGMENT_MAGIC: [u8; 8] = *b"BUSLOADL";

/// What this program writes and reads.
pub const FORMAT_VERSION: u32 = 1;

/// The header's block; the first frame begins behind it. A block of its own, so that no later write
/// touches it.
pub const SEGMENT_HEADER_BYTES: usize = 4096;

/// Bytes of the block that have a meaning; the others are zero.
pub const SEGMENT_HEADER_USED_BYTES: usize = 80;

const VERSION: usize = 8;
const CHECKSUM: usize = 12;
const LOG_ID: usize = 16;
const NUMBER: usize = 32;
const FIRST_LSN: usize = 40;
const DURABLE_LSN: usize = 48;
const WALL_MS: usize = 56;
const PREVIOUS: usize = 64;

/// A checked header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub log_id: LogId,
    pub number: u64,
    /// Of the first record behind this header.
    pub first_lsn: Lsn,
    /// Known to be durable when the header was written.
    pub durable: Lsn,
    pub wall_ms: i64,
    /// Checksum of the last frame before this segment (of the last segment header when there is
    /// none since; 0 in the very first segment).
    pub previous: u32,
}

/// Why a block is no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    /// All zeros: prepared, never begun.
    Unused,
    /// Written by another version of this program.
    Version(u32),
    /// Anything else.
    Invalid,
}

impl SegmentHeader {
    /// The block, and its checksum, which the first frame names as its predecessor.
    pub fn encode(&self) -> (Vec<u8>, u32) {
        let mut block = vec![0; SEGMENT_HEADER_BYTES];
        put(&mut block, 0, &SEGMENT_MAGIC);
        put(&mut block, VERSION, &FORMAT_VERSION.to_le_bytes());
        put(&mut block, LOG_ID, &self.log_id.0.to_le_bytes());
        put(&mut block, NUMBER, &self.number.to_le_bytes());
        put(&mut block, FIRST_LSN, &self.first_lsn.0.to_le_bytes());
        put(&mut block, DURABLE_LSN, &self.durable.0.to_le_bytes());
        put(&mut block, WALL_MS, &self.wall_ms.to_le_bytes());
        put(&mut block, PREVIOUS, &self.previous.to_le_bytes());
        let checksum = checksum(&block);
        put(&mut block, CHECKSUM, &checksum.to_le_bytes());
        (block, checksum)
    }

    /// Checks a block, or as much of it as the file has.
    pub fn decode(block: &[u8]) -> Result<(Self, u32), HeaderError> {
        let Some(used) = block.get(..SEGMENT_HEADER_USED_BYTES) else {
            return Err(if is_zero(block) { HeaderError::Unused } else { HeaderError::Invalid });
        };
        if is_zero(used) {
            return Err(HeaderError::Unused);
        }
        if used[..VERSION] != SEGMENT_MAGIC {
            return Err(HeaderError::Invalid);
        }
        let fields = Fields(used);
        let sum = fields.u32(CHECKSUM);
        if sum != checksum(used) {
            let version = fields.u32(VERSION);
            let other = version != FORMAT_VERSION;
            return Err(if other { HeaderError::Version(version) } else { HeaderError::Invalid });
        }
        let header = Self {
            log_id: LogId(fields.u128(LOG_ID)),
            number: fields.u64(NUMBER),
            first_lsn: Lsn(fields.u64(FIRST_LSN)),
            durable: Lsn(fields.u64(DURABLE_LSN)),
            wall_ms: fields.i64(WALL_MS),
            previous: fields.u32(PREVIOUS),
        };
        match fields.u32(VERSION) {
            FORMAT_VERSION => Ok((header, sum)),
            version => Err(HeaderError::Version(version)),
        }
    }
}

/// Over everything but itself.
fn checksum(block: &[u8]) -> u32 {
    let front = crc32c::crc32c(&block[..CHECKSUM]);
    crc32c::crc32c_append(front, &block[LOG_ID..SEGMENT_HEADER_USED_BYTES])
}

pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}
