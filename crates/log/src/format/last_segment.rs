//! The file that names the last segment. It is replaced as a whole, so no crash leaves a part of
//! one.

use super::{FORMAT_VERSION, Fields, LogId, put};
use crate::Lsn;

/// The first bytes of the file.
pub const LAST_SEGMENT_MAGIC: [u8; 8] = *b"BUSLOADE";

/// Its length.
pub const LAST_SEGMENT_BYTES: usize = 64;

/// The log goes on.
pub const LAST_SEGMENT_KIND_OPEN: u32 = 0;

/// The log was closed in order.
pub const LAST_SEGMENT_KIND_CLEAN_SHUTDOWN: u32 = 1;

const VERSION: usize = 8;
const CHECKSUM: usize = 12;
const LOG_ID: usize = 16;
const NUMBER: usize = 32;
const DURABLE_LSN: usize = 40;
const KIND: usize = 48;

/// What must still be there at the next start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastSegment {
    /// Which log it belongs to.
    pub log_id: LogId,
    /// All segments up to this one have durable names; 0 when there is none.
    pub number: u64,
    /// All records up to this one are durable.
    pub durable: Lsn,
    /// The log was closed in order, and `durable` is its last record.
    pub clean_shutdown: bool,
}

/// Why a file does not name the last segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastSegmentError {
    /// Written by another version of this program.
    Version(u32),
    /// Anything else.
    Invalid,
}

impl LastSegment {
    pub(crate) fn encode(&self) -> [u8; LAST_SEGMENT_BYTES] {
        let kind = if self.clean_shutdown {
            LAST_SEGMENT_KIND_CLEAN_SHUTDOWN
        } else {
            LAST_SEGMENT_KIND_OPEN
        };
        let mut bytes = [0; LAST_SEGMENT_BYTES];
        put(&mut bytes, 0, &LAST_SEGMENT_MAGIC);
        put(&mut bytes, VERSION, &FORMAT_VERSION.to_le_bytes());
        put(&mut bytes, LOG_ID, &self.log_id.0.to_le_bytes());
        put(&mut bytes, NUMBER, &self.number.to_le_bytes());
        put(&mut bytes, DURABLE_LSN, &self.durable.0.to_le_bytes());
        put(&mut bytes, KIND, &kind.to_le_bytes());
        let checksum = checksum(&bytes);
        put(&mut bytes, CHECKSUM, &checksum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, LastSegmentError> {
        if bytes.len() < LOG_ID || bytes[..VERSION] != LAST_SEGMENT_MAGIC {
            return Err(LastSegmentError::Invalid);
        }
        let fields = Fields(bytes);
        let version = fields.u32(VERSION);
        // Other versions may be longer or shorter; those of this length have their checksum here,
        // too.
        if bytes.len() != LAST_SEGMENT_BYTES {
            let other = version != FORMAT_VERSION;
            return Err(if other {
                LastSegmentError::Version(version)
            } else {
                LastSegmentError::Invalid
            });
        }
        if fields.u32(CHECKSUM) != checksum(bytes) {
            return Err(LastSegmentError::Invalid);
        }
        if version != FORMAT_VERSION {
            return Err(LastSegmentError::Version(version));
        }
        let clean_shutdown = match fields.u32(KIND) {
            LAST_SEGMENT_KIND_OPEN => false,
            LAST_SEGMENT_KIND_CLEAN_SHUTDOWN => true,
            _ => return Err(LastSegmentError::Invalid),
        };
        Ok(Self {
            log_id: LogId(fields.u128(LOG_ID)),
            number: fields.u64(NUMBER),
            durable: Lsn(fields.u64(DURABLE_LSN)),
            clean_shutdown,
        })
    }
}

/// Over everything but itself.
fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..CHECKSUM]), &bytes[LOG_ID..])
}
