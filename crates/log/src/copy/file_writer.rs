//! Writes a file from its beginning on, with a checksum, under a temporary name.

use std::io::IoSlice;

use busload_io::{Disk, DiskError};

use crate::{
    last_segment::create_anew,
    limits::{COPY_BUFFER_BYTES, COPY_SYNC_BYTES},
};

/// File that is being written.
#[derive(Debug)]
pub struct FileWriter<'a, D: Disk> {
    disk: &'a D,
    file: D::File,
    name: String,
    buffer: Vec<u8>,
    /// Length of what was given to the disk.
    offset: u64,
    unsynced: u64,
    checksum: u32,
}

/// Length and checksum of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Length of the file.
    pub bytes: u64,
    /// CRC-32C of the file.
    pub checksum: u32,
}

impl<'a, D: Disk> FileWriter<'a, D> {
    /// Creates a file with this name; one that is there is replaced.
    pub fn create(disk: &'a D, name: &str) -> Result<Self, DiskError> {
        let file = create_anew(disk, name)?;
        let buffer = Vec::with_capacity(COPY_BUFFER_BYTES);
        let name = name.to_owned();
        Ok(Self { disk, file, name, buffer, offset: 0, unsynced: 0, checksum: 0 })
    }

    /// Appends bytes, which reach the disk by [`FileWriter::sync`] at the latest.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        self.checksum = crc32c::crc32c_append(self.checksum, bytes);
        if COPY_BUFFER_BYTES < self.buffer.len() + bytes.len() {
            self.flush(bytes)
        } else {
            self.buffer.extend_from_slice(bytes);
            Ok(())
        }
    }

    fn flush(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        let parts = [IoSlice::new(&self.buffer), IoSlice::new(bytes)];
        self.disk.write_at(&self.file, self.offset, &parts)?;
        let written = (self.buffer.len() + bytes.len()) as u64;
        self.buffer.clear();
        self.offset += written;
        self.unsynced += written;
        if COPY_SYNC_BYTES <= self.unsynced {
            self.disk.sync(&self.file)?;
            self.unsynced = 0;
        }
        Ok(())
    }

    /// Makes everything durable that was appended.
    pub fn sync(&mut self) -> Result<(), DiskError> {
        if !self.buffer.is_empty() {
            self.flush(&[])?;
        }
        self.disk.sync(&self.file)
    }

    /// Returns the length and checksum of what was appended.
    pub fn written(&self) -> Written {
        let bytes = self.offset + self.buffer.len() as u64;
        Written { bytes, checksum: self.checksum }
    }

    /// Computes the checksum of the first bytes of the file, which were synced.
    pub fn checksum_of(&self, bytes: u64) -> Result<Option<u32>, DiskError> {
        file_checksum(self.disk, &self.file, bytes)
    }

    /// Syncs the file and gives it this name, which is durable with the next sync of the directory.
    pub fn finish(mut self, name: &str) -> Result<Written, DiskError> {
        self.sync()?;
        self.disk.rename(&self.name, name)?;
        Ok(self.written())
    }
}

/// Computes the checksum of the first bytes of a file; `None` if it is shorter.
pub fn file_checksum<D: Disk>(
    disk: &D,
    file: &D::File,
    bytes: u64,
) -> Result<Option<u32>, DiskError> {
    let mut buffer = vec![0; COPY_BUFFER_BYTES];
    let (mut offset, mut checksum) = (0, 0);
    while offset < bytes {
        let rest = usize::try_from(bytes - offset).unwrap_or(usize::MAX);
        let into = &mut buffer[..rest.min(COPY_BUFFER_BYTES)];
        let count = disk.read_at(file, offset, into)?;
        if count < into.len() {
            return Ok(None);
        }
        checksum = crc32c::crc32c_append(checksum, into);
        offset += count as u64;
    }
    Ok(Some(checksum))
}
