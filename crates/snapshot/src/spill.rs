//! The file into which the first reading of a long log sorts the effects by partition, so that the
//! log is read once, however many partitions there are.
//!
//! The file consists of chunks: a block's header, see `docs/snapshot-format.md`, and effects of one
//! partition. Where they are is in memory only, so the file never outlives the process: it is not
//! synced, and removed when the snapshot is made or given up, or at the next start.

use std::io::IoSlice;

use busload_io::{Disk, DiskError};
use busload_log::ReplayError;
use busload_tables::{
    HashPrefix, Tables,
    effect::{self, ApplyError, Effect, OpenParts, PartPosition},
};

use crate::{
    MakeError,
    format::{BLOCK_HEADER_BYTES, BlockHeader, COMPRESSION_NONE, SPILL_NAME, block_checksum},
    limits::{SPILL_BUFFERS_BYTES, SPILL_CHUNK_BYTES, SYNC_BYTES},
    make::InvalidSpill,
    writer::{check_space, remove_if_there},
};

/// Kind of a block that is a chunk of this file.
const KIND_SPILLED: u8 = 2;

/// File with the effects of the log, by partition.
pub(crate) struct Spill<'a, D: Disk> {
    disk: &'a D,
    file: D::File,
    checksum_seed: u32,
    /// Number of partitions, as a power of two.
    bits: u32,
    /// Length at which the effects of a partition become a chunk.
    chunk_bytes: usize,
    partitions: Vec<SpilledPartition>,
    /// Changes of the set of tables, as effects one after the other.
    catalogue: Vec<u8>,
    /// Parts of a transaction whose last part is still to come.
    open: OpenParts,
    /// Lengths of everything before the first of these parts.
    mark: Option<Mark>,
    /// Offset of the next chunk.
    offset: u64,
    /// Number of the next chunk.
    number: u64,
    /// Bytes written since the last look at the disk's space.
    unchecked: u64,
}

/// Effects of one partition.
#[derive(Debug, Default)]
struct SpilledPartition {
    /// Effects that are not in a chunk yet.
    buffer: Vec<u8>,
    chunks: Vec<Chunk>,
    /// Length of all its effects.
    bytes: u64,
}

/// Place of a chunk in the file.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    offset: u64,
    number: u64,
    /// Length of the effects.
    bytes: u32,
}

/// Lengths at one record of the log.
#[derive(Debug)]
struct Mark {
    partitions: Vec<u64>,
    catalogue: usize,
}

impl<'a, D: Disk> Spill<'a, D> {
    /// Begins the file; one that an earlier attempt left is replaced. The seed is random.
    pub fn begin(disk: &'a D, bits: u32, seed: u64) -> Result<Self, DiskError> {
        remove_if_there(disk, SPILL_NAME)?;
        let file = disk.create(SPILL_NAME)?;
        let count = 1 << bits;
        Ok(Self {
            disk,
            file,
            checksum_seed: crc32c::crc32c(&seed.to_le_bytes()),
            bits,
            chunk_bytes: SPILL_CHUNK_BYTES.min(SPILL_BUFFERS_BYTES / count),
            partitions: (0..count).map(|_| SpilledPartition::default()).collect(),
            catalogue: Vec::new(),
            open: OpenParts::default(),
            mark: None,
            offset: 0,
            number: 0,
            unchecked: 0,
        })
    }

    /// Adds the next record of the log. `tables` hash its keys. A transaction in parts is added
    /// where its last part is.
    pub fn push(&mut self, record: &[u8], tables: &Tables) -> Result<(), ReplayError> {
        if !effect::is_part(record) {
            return self.push_whole(record, tables);
        }
        if let Some(Effect::Part { position: PartPosition::First, .. }) =
            effect::decode(record).next().transpose()?
        {
            self.mark = Some(Mark {
                partitions: self.partitions.iter().map(|partition| partition.bytes).collect(),
                catalogue: self.catalogue.len(),
            });
        }
        if let Some(whole) = self.open.join(record)? {
            self.push_whole(&whole, tables)?;
            self.mark = None;
        }
        Ok(())
    }

    fn push_whole(&mut self, record: &[u8], tables: &Tables) -> Result<(), ReplayError> {
        if effect::is_catalogue(record) {
            self.catalogue.extend_from_slice(record);
        }
        let mut effects = effect::decode(record);
        loop {
            let start = effects.offset();
            let Some(effect) = effects.next().transpose()? else { return Ok(()) };
            let bytes = &record[start..effects.offset()];
            match (effect.key(), effect) {
                (Some(key), _) => {
                    let prefix = HashPrefix::of(tables.hash(key), self.bits);
                    self.append(prefix.value as usize, bytes)?;
                }
                (None, Effect::Part { .. }) => return Err(ApplyError::MisplacedPart.into()),
                // Changes of whole tables concern every partition.
                (None, _) => {
                    for partition in 0..self.partitions.len() {
                        self.append(partition, bytes)?;
                    }
                }
            }
        }
    }

    /// Adds an effect to a partition.
    fn append(&mut self, partition: usize, effect: &[u8]) -> Result<(), DiskError> {
        let chunk_bytes = self.chunk_bytes;
        let spilled = &mut self.partitions[partition];
        spilled.bytes += effect.len() as u64;
        if chunk_bytes < spilled.buffer.len() + effect.len() {
            self.write_buffer(partition)?;
        }
        if chunk_bytes < effect.len() {
            return self.write_chunk(partition, effect);
        }
        let buffer = &mut self.partitions[partition].buffer;
        if buffer.capacity() == 0 {
            buffer.reserve_exact(chunk_bytes);
        }
        buffer.extend_from_slice(effect);
        Ok(())
    }

    fn write_buffer(&mut self, partition: usize) -> Result<(), DiskError> {
        let mut buffer = std::mem::take(&mut self.partitions[partition].buffer);
        let written = match buffer.is_empty() {
            true => Ok(()),
            false => self.write_chunk(partition, &buffer),
        };
        buffer.clear();
        self.partitions[partition].buffer = buffer;
        written
    }

    fn write_chunk(&mut self, partition: usize, effects: &[u8]) -> Result<(), DiskError> {
        let bytes = u32::try_from(effects.len()).expect("a chunk holds less than 4 GiB");
        let header = self.header(self.number, bytes).encode(self.checksum_seed, &[effects]);
        let slices = [IoSlice::new(&header), IoSlice::new(effects)];
        self.disk.write_at(&self.file, self.offset, &slices)?;
        let chunk = Chunk { offset: self.offset, number: self.number, bytes };
        self.partitions[partition].chunks.push(chunk);
        let length = (BLOCK_HEADER_BYTES + effects.len()) as u64;
        self.offset += length;
        self.number += 1;
        self.unchecked += length;
        if SYNC_BYTES <= self.unchecked {
            self.unchecked = 0;
            check_space(self.disk, SPILL_NAME)?;
        }
        Ok(())
    }

    fn header(&self, number: u64, bytes: u32) -> BlockHeader {
        BlockHeader {
            checksum: 0,
            stored_bytes: bytes,
            raw_bytes: bytes,
            number,
            kind: KIND_SPILLED,
            compression: COMPRESSION_NONE,
        }
    }

    /// Writes what is still in memory, and leaves out everything from the first part of a
    /// transaction on that has not ended.
    pub fn end(&mut self) -> Result<(), DiskError> {
        for partition in 0..self.partitions.len() {
            self.write_buffer(partition)?;
            self.partitions[partition].buffer = Vec::new();
        }
        if let Some(mark) = self.mark.take() {
            self.catalogue.truncate(mark.catalogue);
            for (partition, bytes) in self.partitions.iter_mut().zip(mark.partitions) {
                partition.bytes = bytes;
            }
        }
        self.open = OpenParts::default();
        Ok(())
    }

    /// Returns the changes of the set of tables.
    pub fn catalogue(&self) -> &[u8] {
        &self.catalogue
    }

    /// Iterates over the effects of a partition, in the order of the log: a chunk after the other.
    pub fn chunks(&self, partition: usize) -> impl Iterator<Item = Result<Vec<u8>, MakeError>> {
        let SpilledPartition { chunks, bytes, .. } = &self.partitions[partition];
        let mut left = *bytes;
        chunks.iter().map_while(move |chunk| {
            let wanted = left.min(u64::from(chunk.bytes));
            left -= wanted;
            let wanted = usize::try_from(wanted).expect("a chunk is in memory at once");
            (0 < wanted).then(|| {
                let mut effects = self.read(*chunk)?;
                effects.truncate(wanted);
                Ok(effects)
            })
        })
    }

    fn read(&self, chunk: Chunk) -> Result<Vec<u8>, MakeError> {
        let mut header = [0; BLOCK_HEADER_BYTES];
        let mut effects = vec![0; chunk.bytes as usize];
        let header_count = self.disk.read_at(&self.file, chunk.offset, &mut header)?;
        let effects_offset = chunk.offset + BLOCK_HEADER_BYTES as u64;
        let count = self.disk.read_at(&self.file, effects_offset, &mut effects)?;
        let is_whole = (header_count, count) == (header.len(), effects.len());
        let checksum = block_checksum(self.checksum_seed, &header, &[&effects]);
        let expected = BlockHeader { checksum, ..self.header(chunk.number, chunk.bytes) };
        if is_whole && BlockHeader::decode(&header) == Ok(expected) {
            return Ok(effects);
        }
        Err(InvalidSpill { path: self.disk.path(SPILL_NAME), offset: chunk.offset }.into())
    }
}

#[cfg(test)]
mod tests;
