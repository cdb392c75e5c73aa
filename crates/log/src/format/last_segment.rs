//! The file `last-segment`, which names the last segment. It is always replaced as a whole, so a
//! crash never leaves a part of it.

use super::{FORMAT_VERSION, Fields, LogId, put};
use crate::Lsn;

/// Magic number that begins the file.
pub const LAST_SEGMENT_MAGIC: [u8; 8] = *b"BUSLOADE";

/// Length of the file.
pub const LAST_SEGMENT_BYTES: usize = 64;

/// Kind of the file while the log is in use.
pub const LAST_SEGMENT_KIND_OPEN: u32 = 0;

/// Kind of the file after a clean shutdown.
pub const LAST_SEGMENT_KIND_CLEAN_SHUTDOWN: u32 = 1;

const VERSION: usize = 8;
const CHECKSUM: usize = 12;
const LOG_ID: usize = 16;
const NUMBER: usize = 32;
const DURABLE_LSN: usize = 40;
const KIND: usize = 48;

/// State of the log that the next start must still find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastSegment {
    /// Id of the log that the file belongs to.
    pub log_id: LogId,
    /// Number of the last segment with a durable name; 0 when there is none. All segments before it
    /// have durable names, too.
    pub number: u64,
    /// Highest LSN up to which all records are durable.
    pub durable: Lsn,
    /// True if the log was closed by a clean shutdown; `durable` is then its last record.
    pub clean_shutdown: bool,
}

/// Reason why the file `last-segment` cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastSegmentError {
    /// Another version of this program wrote it.
    Version(u32),
    /// The file is corrupt in any other way: length, magic, checksum or a field.
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
        // Other versions may be longer or shorter; those of this length have their checksum at the
        // same offset.
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

/// Returns the checksum over everything but the checksum itself.
fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..CHECKSUM]), &bytes[LOG_ID..])
}
