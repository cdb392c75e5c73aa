//! Reads and verifies the file of a snapshot.

use std::path::PathBuf;

use busload_io::{Disk, DiskError};
use busload_log::{Base, Lsn};

use crate::format::{
    BLOCK_HEADER_BYTES, BlockHeader, COMPRESSION_NONE, COMPRESSION_ZSTD, DecodeError, Footer,
    HEADER_BYTES, Header, KIND_CATALOGUE, KIND_ENTRIES, PARTITION_ENTRY_BYTES, PartitionEntry,
    TAIL_BYTES, block_checksum, snapshot_name,
};

/// Snapshot whose header and index verify. Its blocks are verified as they are read.
#[derive(Debug)]
pub struct Snapshot<F> {
    pub(crate) file: F,
    path: PathBuf,
    header: Header,
    pub(crate) footer: Footer,
    file_bytes: u64,
    checksum_seed: u32,
}

/// Callback that takes the header and the stored contents of a block.
type StoredSink<'a> = dyn FnMut(&BlockHeader, &[u8]) -> Result<(), DiskError> + 'a;

/// Place where a snapshot does not verify.
#[derive(Debug, thiserror::Error)]
#[error("the snapshot {} is corrupt: {what} at offset {offset}", path.display())]
pub struct InvalidSnapshot {
    /// Path of the file.
    pub path: PathBuf,
    /// Offset of what does not verify.
    pub offset: u64,
    /// Description of what is wrong.
    pub what: &'static str,
}

/// Reason why a snapshot could not be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum SnapshotError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Invalid(#[from] InvalidSnapshot),
    #[error(
        "{} has format version {version}, this program reads version {known}: use the program \
         that wrote it, or a newer one",
        path.display(),
        known = crate::format::FORMAT_VERSION
    )]
    Version { path: PathBuf, version: u32 },
}

impl<F> Snapshot<F> {
    /// Opens the snapshot that covers the records up to `lsn`, and verifies header and index.
    pub fn open<D: Disk<File = F>>(disk: &D, lsn: Lsn) -> Result<Self, SnapshotError> {
        let name = snapshot_name(lsn);
        let path = disk.path(&name);
        let file = disk.open(&name)?;
        let file_bytes = disk.length(&file)?;
        let invalid = |offset, what| InvalidSnapshot { path: path.clone(), offset, what };
        let mut bytes = vec![0; HEADER_BYTES];
        let count = disk.read_at(&file, 0, &mut bytes)?;
        let header = Header::decode(&bytes[..count]).map_err(|error| match error {
            DecodeError::Version(version) => SnapshotError::Version { path: path.clone(), version },
            DecodeError::Invalid => invalid(0, "the header does not verify").into(),
        })?;
        if header.lsn != lsn {
            return Err(invalid(0, "the header names another LSN than the file name").into());
        }
        let index_bytes = PARTITION_ENTRY_BYTES << header.partition_bits;
        let footer_bytes = index_bytes + TAIL_BYTES;
        let Some(offset) = file_bytes.checked_sub(footer_bytes as u64) else {
            return Err(invalid(file_bytes, "the file is cut short").into());
        };
        let mut bytes = vec![0; footer_bytes];
        let count = disk.read_at(&file, offset, &mut bytes)?;
        let seed = header.checksum_seed();
        let is_whole = count == footer_bytes
            && Footer::offset_in(&bytes[index_bytes..]).is_ok_and(|named| named == offset);
        let footer = match Footer::decode(seed, header.partition_bits, &bytes) {
            Ok(footer) if is_whole => footer,
            _ => return Err(invalid(offset, "the index does not verify").into()),
        };
        Ok(Self { file, path, header, footer, file_bytes, checksum_seed: seed })
    }

    /// Returns the header of the file.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the position that the snapshot covers, for the recovery of the log.
    pub fn base(&self) -> Base {
        let Header { log_id, lsn, segment, wall_ms, .. } = self.header;
        Base { log_id, lsn, segment, wall_ms }
    }

    /// Returns the blocks of each partition.
    pub fn partitions(&self) -> &[PartitionEntry] {
        &self.footer.partitions
    }

    /// Returns the number of entries of tables.
    pub fn entries(&self) -> u64 {
        self.footer.partitions.iter().map(|partition| partition.entries).sum()
    }

    /// Returns the length of the entries before compression.
    pub fn raw_bytes(&self) -> u64 {
        self.footer.partitions.iter().map(|partition| partition.raw_bytes).sum()
    }

    /// Returns the length of the file.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Verifies every block of the file.
    pub fn verify<D: Disk<File = F>>(&self, disk: &D) -> Result<(), SnapshotError> {
        self.catalogue(disk)?;
        for partition in 0..self.partitions().len() {
            self.blocks(disk, partition).try_for_each(|block| block.map(drop))?;
        }
        Ok(())
    }

    /// Reads the catalogue: a record that creates the tables.
    pub fn catalogue<D: Disk<File = F>>(&self, disk: &D) -> Result<Vec<u8>, SnapshotError> {
        let Footer { catalogue_offset, catalogue_number, .. } = self.footer;
        let mut blocks = self.blocks_at(disk, catalogue_offset, catalogue_number, 1);
        blocks.kind = KIND_CATALOGUE;
        blocks.next().unwrap_or_else(|| Ok(Vec::new()))
    }

    /// Iterates over the contents of a partition's blocks: effects that put its entries.
    pub fn blocks<'a, D: Disk<File = F>>(&'a self, disk: &'a D, partition: usize) -> Blocks<'a, D> {
        let entry = self.footer.partitions[partition];
        let before = &self.footer.partitions[..partition];
        let number = before.iter().map(|partition| partition.blocks).sum();
        self.blocks_at(disk, entry.offset, number, entry.blocks)
    }

    /// Gives every block as it is stored to `sink`, after its checksum was verified, in the order
    /// of the file. Returns the offset behind the last one.
    pub(crate) fn stored_blocks<D: Disk<File = F>>(
        &self,
        disk: &D,
        sink: &mut StoredSink<'_>,
    ) -> Result<u64, SnapshotError> {
        let entries = self.footer.partitions.iter().map(|partition| partition.blocks).sum();
        let mut blocks = self.blocks_at(disk, HEADER_BYTES as u64, 0, entries);
        let Footer { catalogue_offset, catalogue_number, .. } = self.footer;
        for _ in 0..entries {
            let header = blocks.read_stored()?;
            sink(&header, &blocks.stored)?;
        }
        if (blocks.offset, blocks.number) != (catalogue_offset, catalogue_number) {
            return Err(blocks.invalid("the catalogue is elsewhere"));
        }
        blocks.kind = KIND_CATALOGUE;
        let header = blocks.read_stored()?;
        sink(&header, &blocks.stored)?;
        Ok(blocks.offset)
    }

    fn blocks_at<'a, D: Disk<File = F>>(
        &'a self,
        disk: &'a D,
        offset: u64,
        number: u64,
        left: u64,
    ) -> Blocks<'a, D> {
        Blocks {
            disk,
            snapshot: self,
            offset,
            number,
            left,
            kind: KIND_ENTRIES,
            stored: Vec::new(),
        }
    }
}

/// Iterator over blocks. After an error it ends.
pub struct Blocks<'a, D: Disk> {
    disk: &'a D,
    snapshot: &'a Snapshot<D::File>,
    offset: u64,
    number: u64,
    left: u64,
    kind: u8,
    stored: Vec<u8>,
}

impl<D: Disk> Iterator for Blocks<'_, D> {
    type Item = Result<Vec<u8>, SnapshotError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let block = self.read();
        if block.is_err() {
            self.left = 0;
        }
        Some(block)
    }
}

impl<D: Disk> Blocks<'_, D> {
    fn read(&mut self) -> Result<Vec<u8>, SnapshotError> {
        let offset = self.offset;
        let header = self.read_stored()?;
        let contents = match header.compression {
            COMPRESSION_NONE => Some(std::mem::take(&mut self.stored)),
            COMPRESSION_ZSTD => {
                zstd::bulk::decompress(&self.stored, header.raw_bytes as usize).ok()
            }
            _ => None,
        };
        let contents = contents.filter(|contents| contents.len() == header.raw_bytes as usize);
        contents.ok_or_else(|| self.invalid_at(offset, "the block cannot be decompressed"))
    }

    /// Reads the next block into `stored`, verifies its checksum, and moves on.
    fn read_stored(&mut self) -> Result<BlockHeader, SnapshotError> {
        let mut bytes = [0; BLOCK_HEADER_BYTES];
        let count = self.disk.read_at(&self.snapshot.file, self.offset, &mut bytes)?;
        let Ok(header) = BlockHeader::decode(&bytes[..count]) else {
            return Err(self.invalid("no block begins here"));
        };
        let contents_offset = self.offset + BLOCK_HEADER_BYTES as u64;
        let end = contents_offset + u64::from(header.stored_bytes);
        if self.snapshot.file_bytes < end {
            return Err(self.invalid("the block is longer than the file"));
        }
        self.stored.resize(header.stored_bytes as usize, 0);
        let count = self.disk.read_at(&self.snapshot.file, contents_offset, &mut self.stored)?;
        let checksum = block_checksum(self.snapshot.checksum_seed, &bytes, &[&self.stored]);
        if count != self.stored.len() || checksum != header.checksum {
            return Err(self.invalid("the block's checksum does not agree"));
        }
        if header.number != self.number || header.kind != self.kind {
            return Err(self.invalid("the block belongs to another place"));
        }
        self.offset = end;
        self.number += 1;
        Ok(header)
    }

    fn invalid(&self, what: &'static str) -> SnapshotError {
        self.invalid_at(self.offset, what)
    }

    fn invalid_at(&self, offset: u64, what: &'static str) -> SnapshotError {
        InvalidSnapshot { path: self.snapshot.path.clone(), offset, what }.into()
    }
}
