//! Small things kept by name: checksummed, not evicted, counted.
//!
//! ```text
//! +----------------+--------+-------+---------+
//! | 42 55 53 4B 01 | length | bytes | CRC-32C |  of the name, a zero byte, and the bytes
//! | 5 bytes        | u64    |       | u32     |
//! +----------------+--------+-------+---------+
//! ```

use std::{io, sync::PoisonError};

use bytes::Bytes;

use super::{
    BLOCK_BYTES, Disk,
    files::{Open, read_full, write_full},
    health::Bypass,
};
use crate::limits::{KEPT_BYTES_MAX, KEPT_SHARE};

/// Ends the names of kept things.
pub(super) const KEPT_SUFFIX: &str = ".keep";
/// Ends them while they are written.
pub(super) const NEW_KEPT_SUFFIX: &str = ".keep.new";
const MARKER: [u8; 5] = *b"BUSK\x01";
const HEADER_BYTES: usize = MARKER.len() + 8;
const CHECKSUM_BYTES: usize = 4;

/// What a file of so many bytes takes of the disk.
pub(super) fn cost(file_bytes: u64) -> u64 {
    // One block more for the directory's entry and the inode.
    (file_bytes.div_ceil(BLOCK_BYTES as u64) + 1) * BLOCK_BYTES as u64
}

impl Disk {
    /// See [`crate::Cache::keep`].
    pub(crate) fn keep(&self, name: &str, bytes: &[u8]) {
        if !self.is_writable() || KEPT_BYTES_MAX < bytes.len() {
            return;
        }
        let _keeping = self.keeping.lock().unwrap_or_else(PoisonError::into_inner);
        let file = pack(name, bytes);
        let bytes = cost(file.len() as u64);
        if !self.has_room_to_keep(name, bytes) || !self.reserve(bytes) {
            return;
        }
        let freed = match self.write_kept(name, &file) {
            Ok(()) => self.accounting().kept.insert(name.to_owned(), bytes).unwrap_or(0),
            Err(error) => {
                self.keep_failed(name, &error);
                bytes
            }
        };
        self.accounting().release_bytes(freed);
    }

    fn has_room_to_keep(&self, name: &str, bytes: u64) -> bool {
        let accounting = self.accounting();
        let others: u64 =
            accounting.kept.iter().filter(|(kept, _)| *kept != name).map(|(_, bytes)| bytes).sum();
        others + bytes <= self.bytes_max / KEPT_SHARE
    }

    fn write_kept(&self, name: &str, file: &[u8]) -> io::Result<()> {
        let new = self.directory.join(format!("{name}{NEW_KEPT_SUFFIX}"));
        write_full(self.files.open(&new, Open::Replace)?.as_ref(), file, 0)?;
        self.files.rename(&new, &self.directory.join(format!("{name}{KEPT_SUFFIX}")))
    }

    fn keep_failed(&self, name: &str, error: &io::Error) {
        self.health.fail(Bypass::Writes, &format!("keeping {name}"), error);
        // Half a file more or less: the next start removes it.
        let _ = self.files.remove(&self.directory.join(format!("{name}{NEW_KEPT_SUFFIX}")));
    }

    /// See [`crate::Cache::kept`].
    pub(crate) fn kept(&self, name: &str) -> Option<Bytes> {
        if !self.health.is_readable() || !self.accounting().kept.contains_key(name) {
            return None;
        }
        match self.read_kept(name) {
            Ok(file) => unpack(name, file),
            Err(error) => {
                self.health.read_failed(&format_args!("{name}{KEPT_SUFFIX}: {error}"));
                None
            }
        }
    }

    fn read_kept(&self, name: &str) -> io::Result<Vec<u8>> {
        let file =
            self.files.open(&self.directory.join(format!("{name}{KEPT_SUFFIX}")), Open::Read)?;
        let length =
            file.status()?.length.min((KEPT_BYTES_MAX + HEADER_BYTES + CHECKSUM_BYTES) as u64);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        let count = read_full(file.as_ref(), &mut bytes, 0)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    /// See [`crate::Cache::keep_only`]. Returns bytes freed.
    pub(crate) fn keep_only(&self, is_wanted: &dyn Fn(&str) -> bool) -> u64 {
        let _keeping = self.keeping.lock().unwrap_or_else(PoisonError::into_inner);
        let names: Vec<String> =
            self.accounting().kept.keys().filter(|name| !is_wanted(name)).cloned().collect();
        names.iter().map(|name| self.drop_kept(name)).sum()
    }

    /// Drops what is beyond the share of things kept, which a lowered limit makes smaller: the
    /// largest first, so that most stays. They are not evicted, so nothing else would ever bring
    /// the disk under its limit.
    pub(super) fn shrink_kept(&self) {
        let mut kept: Vec<(u64, String)> =
            self.accounting().kept.iter().map(|(name, bytes)| (*bytes, name.clone())).collect();
        kept.sort_unstable();
        let mut left: u64 = kept.iter().map(|(bytes, _)| bytes).sum();
        while self.bytes_max / KEPT_SHARE < left {
            let Some((bytes, name)) = kept.pop() else { return };
            self.drop_kept(&name);
            left -= bytes;
        }
    }

    fn drop_kept(&self, name: &str) -> u64 {
        match self.files.remove(&self.directory.join(format!("{name}{KEPT_SUFFIX}"))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                self.health.fail(Bypass::Writes, &format!("removing {name}{KEPT_SUFFIX}"), &error);
                0
            }
            _ => {
                let mut accounting = self.accounting();
                let bytes = accounting.kept.remove(name).unwrap_or(0);
                accounting.release_bytes(bytes);
                bytes
            }
        }
    }
}

fn checksum(name: &str, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(name.as_bytes()), &[0]), bytes)
}

fn pack(name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut file = Vec::with_capacity(HEADER_BYTES + bytes.len() + CHECKSUM_BYTES);
    file.extend_from_slice(&MARKER);
    file.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    file.extend_from_slice(bytes);
    file.extend_from_slice(&checksum(name, bytes).to_le_bytes());
    file
}

fn unpack(name: &str, file: Vec<u8>) -> Option<Bytes> {
    let (header, rest) = file.split_at_checked(HEADER_BYTES)?;
    let (marker, length) = header.split_first_chunk::<5>()?;
    let (bytes, stored) = rest.split_last_chunk::<CHECKSUM_BYTES>()?;
    let is_right = *marker == MARKER
        && u64::from_le_bytes(length.try_into().ok()?) == bytes.len() as u64
        && u32::from_le_bytes(*stored) == checksum(name, bytes);
    let end = file.len() - CHECKSUM_BYTES;
    is_right.then(|| Bytes::from(file).slice(HEADER_BYTES..end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_is_unpacked() {
        for bytes in [&b""[..], b"x", &[7; 10_000]] {
            assert_eq!(unpack("n", pack("n", bytes)).unwrap(), bytes);
        }
    }

    #[test]
    fn another_name_or_a_changed_or_torn_file_is_nothing() {
        let file = pack("name", b"some bytes");
        assert_eq!(unpack("nam", file.clone()), None);
        for position in 0..file.len() {
            let mut flipped = file.clone();
            flipped[position] ^= 0x10;
            assert_eq!(unpack("name", flipped), None, "{position}");
            assert_eq!(unpack("name", file[..position].to_vec()), None, "{position}");
        }
        assert_eq!(unpack("name", [&file[..], b"x"].concat()), None);
    }
}
