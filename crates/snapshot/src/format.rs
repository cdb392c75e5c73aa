//! Encoding and decoding of the bytes of a snapshot, which `docs/snapshot-format.md` describes.
//!
//! Nothing read from a file is trusted until its checksum agrees.

use busload_log::{Lsn, format::LogId};

/// First bytes of a snapshot.
pub const HEADER_MAGIC: [u8; 8] = *b"BUSLOADS";
/// First bytes of the tail.
pub const TAIL_MAGIC: [u8; 8] = *b"BUSLOADT";
/// First bytes of a block.
pub const BLOCK_MAGIC: u32 = u32::from_le_bytes(*b"BlkS");
/// Version of the format.
pub const FORMAT_VERSION: u32 = 1;
/// Length of the header.
pub const HEADER_BYTES: usize = 128;
/// Length of a block's header.
pub const BLOCK_HEADER_BYTES: usize = 32;
/// Length of the index's entry for a partition.
pub const PARTITION_ENTRY_BYTES: usize = 32;
/// Length of the tail.
pub const TAIL_BYTES: usize = 64;

/// Block that holds the catalogue.
pub const KIND_CATALOGUE: u8 = 0;
/// Block that holds entries of tables.
pub const KIND_ENTRIES: u8 = 1;

/// Contents that are stored as they are.
pub const COMPRESSION_NONE: u8 = 0;
/// Contents that are stored as a zstd frame.
pub const COMPRESSION_ZSTD: u8 = 1;

/// Suffix of a snapshot's name. The LSN that it covers precedes it, in 20 decimal digits.
pub const SNAPSHOT_SUFFIX: &str = ".snapshot";
/// Name of a snapshot that is being written.
pub const TEMPORARY_NAME: &str = "snapshot.new";
/// Name of the file in which a snapshot sorts a long log by partition.
pub const SPILL_NAME: &str = "snapshot.spill";

const DIGIT_COUNT: usize = 20;

/// Returns the name of the snapshot that covers the records up to this one.
pub fn snapshot_name(lsn: Lsn) -> String {
    format!("{:020}{SNAPSHOT_SUFFIX}", lsn.0)
}

/// Returns the LSN in a snapshot's name; `None` for any other file.
pub fn lsn_of_name(name: &str) -> Option<Lsn> {
    let digits = name.strip_suffix(SNAPSHOT_SUFFIX)?;
    let well_formed =
        digits.len() == DIGIT_COUNT && digits.bytes().all(|digit| digit.is_ascii_digit());
    if well_formed { digits.parse().ok().map(Lsn) } else { None }
}

/// Reason why bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The checksum or a field does not agree.
    Invalid,
    /// The file has a format version that this program does not know.
    Version(u32),
}

/// Header of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Id of the log from which the snapshot was made.
    pub log_id: LogId,
    /// Last record that it covers.
    pub lsn: Lsn,
    /// Number of the segment that holds this record, or one behind it.
    pub segment: u64,
    /// Latest time of day of the records in this segment or before, in milliseconds since 1970.
    pub wall_ms: i64,
    /// Seed of the hash that assigns keys to partitions.
    pub seed: u64,
    /// Number of partitions, as a power of two.
    pub partition_bits: u32,
}

impl Header {
    /// Encodes the header with its checksum.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        put(&mut bytes, 0, &HEADER_MAGIC);
        put(&mut bytes, 8, &FORMAT_VERSION.to_le_bytes());
        put(&mut bytes, 16, &self.log_id.0.to_le_bytes());
        put(&mut bytes, 32, &self.lsn.0.to_le_bytes());
        put(&mut bytes, 40, &self.segment.to_le_bytes());
        put(&mut bytes, 48, &self.wall_ms.to_le_bytes());
        put(&mut bytes, 56, &self.seed.to_le_bytes());
        put(&mut bytes, 64, &self.partition_bits.to_le_bytes());
        let checksum = header_checksum(&bytes);
        put(&mut bytes, 12, &checksum.to_le_bytes());
        bytes
    }

    /// Decodes a header and verifies its checksum.
    pub fn decode(bytes: &[u8]) -> Result<Header, DecodeError> {
        if bytes.len() != HEADER_BYTES || bytes[..8] != HEADER_MAGIC {
            return Err(DecodeError::Invalid);
        }
        if u32_at(bytes, 12) != header_checksum(bytes) {
            return Err(DecodeError::Invalid);
        }
        // The checksum is where it is in every version: a flipped bit is no other version.
        if u32_at(bytes, 8) != FORMAT_VERSION {
            return Err(DecodeError::Version(u32_at(bytes, 8)));
        }
        let header = Header {
            log_id: LogId(u128::from_le_bytes(array(bytes, 16))),
            lsn: Lsn(u64_at(bytes, 32)),
            segment: u64_at(bytes, 40),
            wall_ms: i64::from_le_bytes(array(bytes, 48)),
            seed: u64_at(bytes, 56),
            partition_bits: u32_at(bytes, 64),
        };
        let fits = header.partition_bits <= crate::limits::PARTITION_BITS_MAX
            && header.lsn.0 < u64::MAX
            && header.segment < u64::MAX;
        if fits { Ok(header) } else { Err(DecodeError::Invalid) }
    }

    /// Returns the first bytes of every other checksum of the file, so that blocks of other
    /// snapshots never verify.
    pub fn checksum_seed(&self) -> u32 {
        let seed = crc32c::crc32c(&self.log_id.0.to_le_bytes());
        crc32c::crc32c_append(seed, &self.lsn.0.to_le_bytes())
    }
}

fn header_checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..])
}

/// Header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// Checksum of the rest of the header and of the stored contents.
    pub checksum: u32,
    /// Length of the contents as stored.
    pub stored_bytes: u32,
    /// Length of the contents.
    pub raw_bytes: u32,
    /// Number of the block in the file, from 0.
    pub number: u64,
    /// Kind of the contents.
    pub kind: u8,
    /// Compression of the contents.
    pub compression: u8,
}

impl BlockHeader {
    /// Encodes the header of a block with these stored contents.
    pub fn encode(&self, seed: u32, stored: &[&[u8]]) -> [u8; BLOCK_HEADER_BYTES] {
        let mut bytes = [0; BLOCK_HEADER_BYTES];
        put(&mut bytes, 0, &BLOCK_MAGIC.to_le_bytes());
        put(&mut bytes, 8, &self.stored_bytes.to_le_bytes());
        put(&mut bytes, 12, &self.raw_bytes.to_le_bytes());
        put(&mut bytes, 16, &self.number.to_le_bytes());
        bytes[24] = self.kind;
        bytes[25] = self.compression;
        let checksum = block_checksum(seed, &bytes, stored);
        put(&mut bytes, 4, &checksum.to_le_bytes());
        bytes
    }

    /// Decodes a header whose checksum has yet to be compared with that of the contents.
    pub fn decode(bytes: &[u8]) -> Result<BlockHeader, DecodeError> {
        if bytes.len() != BLOCK_HEADER_BYTES || u32_at(bytes, 0) != BLOCK_MAGIC {
            return Err(DecodeError::Invalid);
        }
        Ok(BlockHeader {
            checksum: u32_at(bytes, 4),
            stored_bytes: u32_at(bytes, 8),
            raw_bytes: u32_at(bytes, 12),
            number: u64_at(bytes, 16),
            kind: bytes[24],
            compression: bytes[25],
        })
    }
}

/// Returns the checksum of a block with this header and these stored contents.
pub fn block_checksum(seed: u32, header: &[u8], stored: &[&[u8]]) -> u32 {
    let start = crc32c::crc32c_append(seed, &header[8..BLOCK_HEADER_BYTES]);
    stored.iter().fold(start, |checksum, part| crc32c::crc32c_append(checksum, part))
}

/// Blocks of one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionEntry {
    /// Offset of the first block in the file.
    pub offset: u64,
    /// Number of its blocks in the file.
    pub blocks: u64,
    /// Number of entries of tables.
    pub entries: u64,
    /// Length of the contents of all blocks.
    pub raw_bytes: u64,
}

/// End of the file: the index of the partitions, followed by the tail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footer {
    /// Blocks of the partitions, in the order of their numbers.
    pub partitions: Vec<PartitionEntry>,
    /// Offset of the block that holds the catalogue.
    pub catalogue_offset: u64,
    /// Number of the block that holds the catalogue.
    pub catalogue_number: u64,
}

impl Footer {
    /// Encodes index and tail. `offset` is where they begin.
    pub fn encode(&self, seed: u32, offset: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.partitions.len() * PARTITION_ENTRY_BYTES);
        for entry in &self.partitions {
            for field in [entry.offset, entry.blocks, entry.entries, entry.raw_bytes] {
                bytes.extend_from_slice(&field.to_le_bytes());
            }
        }
        let mut tail = [0; TAIL_BYTES];
        put(&mut tail, 0, &TAIL_MAGIC);
        put(&mut tail, 16, &offset.to_le_bytes());
        put(&mut tail, 24, &self.catalogue_offset.to_le_bytes());
        put(&mut tail, 32, &self.catalogue_number.to_le_bytes());
        let checksum = footer_checksum(seed, &bytes, &tail);
        put(&mut tail, 12, &checksum.to_le_bytes());
        bytes.extend_from_slice(&tail);
        bytes
    }

    /// Returns the offset at which index and tail begin, going by the tail; not yet verified.
    pub fn offset_in(tail: &[u8]) -> Result<u64, DecodeError> {
        if tail.len() != TAIL_BYTES || tail[..8] != TAIL_MAGIC {
            return Err(DecodeError::Invalid);
        }
        Ok(u64_at(tail, 16))
    }

    /// Decodes index and tail and verifies their checksum.
    pub fn decode(seed: u32, partition_bits: u32, bytes: &[u8]) -> Result<Footer, DecodeError> {
        let count = 1_usize << partition_bits;
        if bytes.len() != count * PARTITION_ENTRY_BYTES + TAIL_BYTES {
            return Err(DecodeError::Invalid);
        }
        let (index, tail) = bytes.split_at(count * PARTITION_ENTRY_BYTES);
        if u32_at(tail, 12) != footer_checksum(seed, index, tail) {
            return Err(DecodeError::Invalid);
        }
        let partitions = index.chunks_exact(PARTITION_ENTRY_BYTES).map(|entry| PartitionEntry {
            offset: u64_at(entry, 0),
            blocks: u64_at(entry, 8),
            entries: u64_at(entry, 16),
            raw_bytes: u64_at(entry, 24),
        });
        Ok(Footer {
            partitions: partitions.collect(),
            catalogue_offset: u64_at(tail, 24),
            catalogue_number: u64_at(tail, 32),
        })
    }
}

fn footer_checksum(seed: u32, index: &[u8], tail: &[u8]) -> u32 {
    let checksum = crc32c::crc32c_append(seed, index);
    crc32c::crc32c_append(crc32c::crc32c_append(checksum, &tail[..12]), &tail[16..])
}

fn put(bytes: &mut [u8], offset: usize, field: &[u8]) {
    bytes[offset..offset + field.len()].copy_from_slice(field);
}

fn array<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    bytes[offset..offset + N].try_into().expect("the range has this length")
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(array(bytes, offset))
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(array(bytes, offset))
}

#[cfg(test)]
mod page_tests;
