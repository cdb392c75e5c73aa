//! The header of a segment: one block, written before the segment's first frame and durable
//! together with it.

use super::{Fields, LogId, put};
use crate::Lsn;

/// Magic number that begins every segment in use.
pub const SEGMENT_MAGIC: [u8; 8] = *b"BUSLOADL";

/// Format version that this program writes and reads.
pub const FORMAT_VERSION: u32 = 1;

/// Length of the header's block. The first frame begins after it. The header has a block of its own
/// so that no later write touches it.
pub const SEGMENT_HEADER_BYTES: usize = 4096;

/// Number of bytes of the block that have a meaning; the others are zero.
pub const SEGMENT_HEADER_USED_BYTES: usize = 80;

const VERSION: usize = 8;
const CHECKSUM: usize = 12;
const LOG_ID: usize = 16;
const NUMBER: usize = 32;
const FIRST_LSN: usize = 40;
const DURABLE_LSN: usize = 48;
const WALL_MS: usize = 56;
const PREVIOUS: usize = 64;
const FLAGS: usize = 68;

/// Flag of a segment whose file was one before: behind its frames are bytes of that one, no zeros.
pub const SEGMENT_FLAG_REUSED: u32 = 1;

/// Segment header whose checksum was verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub log_id: LogId,
    pub number: u64,
    /// LSN of the first record after this header.
    pub first_lsn: Lsn,
    /// Highest LSN known to be durable when the header was written.
    pub durable: Lsn,
    pub wall_ms: i64,
    /// Checksum of the last frame before this segment (of the last segment header if no frame came
    /// since; 0 in the very first segment).
    pub previous: u32,
    /// True if the file was a segment before, whose bytes are still behind the frames.
    pub is_reused: bool,
}

/// Reason why a block is not a segment header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    /// The block is all zeros: the segment was prepared but never used.
    Unused,
    /// Another version of this program wrote it.
    Version(u32),
    /// The block is corrupt in any other way: length, magic, checksum or a field.
    Invalid,
}

impl SegmentHeader {
    /// Returns the encoded block and its checksum, which the first frame names as its predecessor.
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
        let flags = if self.is_reused { SEGMENT_FLAG_REUSED } else { 0 };
        put(&mut block, FLAGS, &flags.to_le_bytes());
        let checksum = checksum(&block);
        put(&mut block, CHECKSUM, &checksum.to_le_bytes());
        (block, checksum)
    }

    /// Decodes and verifies a block, or as much of it as the file has.
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
            is_reused: fields.u32(FLAGS) & SEGMENT_FLAG_REUSED != 0,
        };
        match fields.u32(VERSION) {
            FORMAT_VERSION => Ok((header, sum)),
            version => Err(HeaderError::Version(version)),
        }
    }
}

/// Returns the checksum over everything but the checksum itself.
fn checksum(block: &[u8]) -> u32 {
    let front = crc32c::crc32c(&block[..CHECKSUM]);
    crc32c::crc32c_append(front, &block[LOG_ID..SEGMENT_HEADER_USED_BYTES])
}

pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}
