//! Writes the file of a snapshot.

use std::io::IoSlice;

use busload_io::{Disk, DiskError, DiskErrorKind, DiskOperation};
use busload_log::Lsn;
use busload_tables::{
    HashRef, TableEntry, TableId, Value, effect,
    limits::{COMPACT_HASH_FIELDS_MAX, COMPACT_HASH_STRING_BYTES_MAX},
};

use crate::{
    Catalogue, MakeError, Pace,
    format::{
        BLOCK_HEADER_BYTES, BlockHeader, COMPRESSION_NONE, COMPRESSION_ZSTD, Footer, Header,
        KIND_CATALOGUE, KIND_ENTRIES, PartitionEntry, SPILL_NAME, TEMPORARY_NAME, snapshot_name,
    },
    limits::{
        BLOCK_BYTES, COMPRESSED_BYTES_MAX, DISK_RESERVE_BYTES, HASH_EFFECT_BYTES, OWN_BLOCK_BYTES,
        SYNC_BYTES,
    },
};

/// Field longer than any of a hash that is not general.
const LONG_FIELD: [u8; COMPACT_HASH_STRING_BYTES_MAX + 1] =
    [b'x'; COMPACT_HASH_STRING_BYTES_MAX + 1];

/// Returns whether the hash as it is makes any copy of it general, too.
fn shows_general(fields: HashRef<'_>) -> bool {
    let is_long = |bytes: &[u8]| COMPACT_HASH_STRING_BYTES_MAX < bytes.len();
    COMPACT_HASH_FIELDS_MAX < fields.len()
        || fields.iter().any(|(field, value)| is_long(field) || is_long(value))
}

/// Level of zstd: the fastest that is not negative.
const ZSTD_LEVEL: i32 = 1;

/// Summary of a finished snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Name of the file.
    pub name: String,
    /// Last record that the snapshot covers.
    pub lsn: Lsn,
    /// Number of entries of tables.
    pub entries: u64,
    /// Length of the file.
    pub file_bytes: u64,
}

/// Writer of a snapshot that is not finished. Its file has a temporary name.
pub(crate) struct SnapshotWriter<'a, D: Disk> {
    disk: &'a D,
    file: D::File,
    header: Header,
    checksum_seed: u32,
    /// Offset of the next block.
    offset: u64,
    unsynced: u64,
    /// Number of the next block.
    number: u64,
    /// Effects of the block that is being filled.
    block: Vec<u8>,
    compressor: zstd::bulk::Compressor<'static>,
    compressed: Vec<u8>,
    partitions: Vec<PartitionEntry>,
    current: PartitionEntry,
}

impl<'a, D: Disk> SnapshotWriter<'a, D> {
    /// Begins the file; one that an earlier attempt left is replaced.
    pub fn begin(disk: &'a D, header: Header) -> Result<Self, DiskError> {
        remove_if_there(disk, TEMPORARY_NAME)?;
        let file = disk.create(TEMPORARY_NAME)?;
        let bytes = header.encode();
        disk.write_at(&file, 0, &[IoSlice::new(&bytes)])?;
        let offset = bytes.len() as u64;
        Ok(Self {
            disk,
            file,
            header,
            checksum_seed: header.checksum_seed(),
            offset,
            unsynced: offset,
            number: 0,
            block: Vec::with_capacity(BLOCK_BYTES + HASH_EFFECT_BYTES),
            compressor: zstd::bulk::Compressor::new(ZSTD_LEVEL).expect("the level exists"),
            compressed: Vec::new(),
            partitions: Vec::with_capacity(1 << header.partition_bits),
            current: PartitionEntry { offset, ..PartitionEntry::default() },
        })
    }

    /// Adds an entry to the current partition.
    pub fn entry(
        &mut self,
        table: TableId,
        entry: &TableEntry<'_>,
        pace: &mut dyn Pace,
    ) -> Result<(), MakeError> {
        let TableEntry { key, expiry, is_general, .. } = *entry;
        self.current.entries += 1;
        match entry.value {
            Value::String(value) => {
                self.string(table, key, value.as_slice(), expiry, is_general)?
            }
            Value::Hash(fields) => {
                let mut pairs = fields.iter().peekable();
                while pairs.peek().is_some() {
                    self.fields(table, key, &mut pairs);
                    self.write_if_full(pace)?;
                }
                if is_general && !shows_general(fields) {
                    // A long field makes the hash general, and it stays so without the field.
                    effect::hash_put_header(&mut self.block, table, key, 1);
                    effect::hash_put_pair(&mut self.block, &LONG_FIELD, b"");
                    effect::hash_delete_header(&mut self.block, table, key, 1);
                    effect::hash_delete_field(&mut self.block, &LONG_FIELD);
                }
                if let Some(at) = expiry {
                    effect::expire(&mut self.block, table, key, at);
                }
            }
        }
        self.write_if_full(pace)
    }

    fn string(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &[u8],
        expiry: Option<i64>,
        is_general: bool,
    ) -> Result<(), DiskError> {
        let is_long = OWN_BLOCK_BYTES <= value.len();
        if is_long {
            self.write_block(KIND_ENTRIES)?;
        }
        // What was patched stays so: a put would clear the mark.
        if is_general {
            effect::patch_header(&mut self.block, table, key, 0, value.len());
        } else {
            effect::put_header(&mut self.block, table, key, expiry, value.len());
        }
        if is_long {
            let head = std::mem::take(&mut self.block);
            self.write_parts(KIND_ENTRIES, COMPRESSION_NONE, &[&head, value], None)?;
            self.block = head;
            self.block.clear();
        } else {
            self.block.extend_from_slice(value);
        }
        if let Some(at) = expiry.filter(|_| is_general) {
            effect::expire(&mut self.block, table, key, at);
        }
        Ok(())
    }

    /// Adds fields of a hash, as many as one effect takes.
    fn fields<'f>(
        &mut self,
        table: TableId,
        key: &[u8],
        pairs: &mut std::iter::Peekable<impl Iterator<Item = (&'f [u8], &'f [u8])>>,
    ) {
        let (mut encoded, mut count) = (Vec::new(), 0);
        while let Some((field, value)) = pairs.next_if(|_| encoded.len() < HASH_EFFECT_BYTES) {
            effect::hash_put_pair(&mut encoded, field, value);
            count += 1;
        }
        effect::hash_put_header(&mut self.block, table, key, count);
        self.block.extend_from_slice(&encoded);
    }

    /// Ends the current partition and begins the next one.
    pub fn end_partition(&mut self) -> Result<(), DiskError> {
        self.write_block(KIND_ENTRIES)?;
        let next = PartitionEntry { offset: self.offset, ..PartitionEntry::default() };
        self.partitions.push(std::mem::replace(&mut self.current, next));
        Ok(())
    }

    /// Writes the rest of the file and gives it its name. When this returns it is durable.
    pub fn finish(mut self, catalogue: &Catalogue) -> Result<Summary, DiskError> {
        let (catalogue_offset, catalogue_number) = (self.offset, self.number);
        self.block = catalogue.encode();
        self.write_block_even_if_empty(KIND_CATALOGUE)?;
        let partitions = std::mem::take(&mut self.partitions);
        let entries = partitions.iter().map(|partition| partition.entries).sum();
        let footer = Footer { partitions, catalogue_offset, catalogue_number };
        let bytes = footer.encode(self.checksum_seed, self.offset);
        self.disk.write_at(&self.file, self.offset, &[IoSlice::new(&bytes)])?;
        self.disk.sync(&self.file)?;
        let name = snapshot_name(self.header.lsn);
        self.disk.rename(TEMPORARY_NAME, &name)?;
        self.disk.sync_directory()?;
        let file_bytes = self.offset + bytes.len() as u64;
        Ok(Summary { name, lsn: self.header.lsn, entries, file_bytes })
    }

    fn write_if_full(&mut self, pace: &mut dyn Pace) -> Result<(), MakeError> {
        if BLOCK_BYTES <= self.block.len() {
            self.write_block(KIND_ENTRIES)?;
            pace.pace()?;
        }
        Ok(())
    }

    fn write_block(&mut self, kind: u8) -> Result<(), DiskError> {
        if self.block.is_empty() { Ok(()) } else { self.write_block_even_if_empty(kind) }
    }

    fn write_block_even_if_empty(&mut self, kind: u8) -> Result<(), DiskError> {
        let block = std::mem::take(&mut self.block);
        if COMPRESSED_BYTES_MAX <= block.len() {
            // A buffer of this length is not kept.
            return self.write_parts(kind, COMPRESSION_NONE, &[&block], None);
        }
        let mut compressed = std::mem::take(&mut self.compressed);
        compressed.clear();
        compressed.reserve(zstd::zstd_safe::compress_bound(block.len()));
        let written = match self.compressor.compress_to_buffer(&block, &mut compressed) {
            Ok(length) if length < block.len() => {
                let raw_bytes = block.len();
                self.write_parts(kind, COMPRESSION_ZSTD, &[&compressed], Some(raw_bytes))
            }
            _ => self.write_parts(kind, COMPRESSION_NONE, &[&block], None),
        };
        (self.block, self.compressed) = (block, compressed);
        self.block.clear();
        written
    }

    fn write_parts(
        &mut self,
        kind: u8,
        compression: u8,
        stored: &[&[u8]],
        raw_bytes: Option<usize>,
    ) -> Result<(), DiskError> {
        let stored_bytes: usize = stored.iter().map(|part| part.len()).sum();
        let raw_bytes = raw_bytes.unwrap_or(stored_bytes);
        let length = |bytes| u32::try_from(bytes).expect("a block holds less than 4 GiB");
        let header = BlockHeader {
            checksum: 0,
            stored_bytes: length(stored_bytes),
            raw_bytes: length(raw_bytes),
            number: self.number,
            kind,
            compression,
        };
        let header = header.encode(self.checksum_seed, stored);
        let mut slices = vec![IoSlice::new(&header)];
        slices.extend(stored.iter().map(|part| IoSlice::new(part)));
        self.disk.write_at(&self.file, self.offset, &slices)?;
        let bytes = (BLOCK_HEADER_BYTES + stored_bytes) as u64;
        self.offset += bytes;
        self.unsynced += bytes;
        self.number += 1;
        self.current.blocks += 1;
        self.current.raw_bytes += raw_bytes as u64;
        if SYNC_BYTES <= self.unsynced {
            self.disk.sync(&self.file)?;
            self.unsynced = 0;
            check_space(self.disk, TEMPORARY_NAME)?;
        }
        Ok(())
    }
}

/// Fails while the disk still has space for the log, which must not run out of it because of a
/// snapshot.
pub(crate) fn check_space<D: Disk>(disk: &D, name: &str) -> Result<(), DiskError> {
    if DISK_RESERVE_BYTES <= disk.available_bytes() {
        return Ok(());
    }
    Err(DiskError {
        kind: DiskErrorKind::NoSpace,
        operation: DiskOperation::Write,
        path: disk.path(name),
        source: std::io::Error::new(
            std::io::ErrorKind::StorageFull,
            format!("the last {} MiB of the disk are the log's", DISK_RESERVE_BYTES >> 20),
        ),
    })
}

/// Removes the files of a snapshot that was not finished, if there are any.
pub(crate) fn discard<D: Disk>(disk: &D) -> Result<(), DiskError> {
    let removed = remove_if_there(disk, SPILL_NAME);
    remove_if_there(disk, TEMPORARY_NAME).and(removed)
}

/// Removes a file that need not be there.
pub(crate) fn remove_if_there<D: Disk>(disk: &D, name: &str) -> Result<(), DiskError> {
    match disk.remove(name) {
        Err(error) if error.kind != DiskErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
