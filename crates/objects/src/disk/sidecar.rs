//! Sidecars: small files by name, checksummed, counted against the limit, never evicted.
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
    file_system::{OpenMode, read_full, write_full},
    health::Bypass,
};
use crate::disk::limits::{SIDECAR_BYTES_MAX, SIDECAR_NAME_BYTES_MAX, SIDECAR_SHARE};

/// Suffix of a sidecar's file name.
pub(super) const SIDECAR_SUFFIX: &str = ".keep";
/// Suffix while the sidecar is written.
pub(super) const NEW_SIDECAR_SUFFIX: &str = ".keep.new";
pub(super) const MARKER: [u8; 5] = *b"BUSK\x01";
const HEADER_BYTES: usize = MARKER.len() + 8;
const CHECKSUM_BYTES: usize = 4;

/// Disk space that a file of this many bytes takes.
pub(super) fn cost(file_bytes: u64) -> u64 {
    // One block more for the directory entry and the inode.
    (file_bytes.div_ceil(BLOCK_BYTES as u64) + 1) * BLOCK_BYTES as u64
}

impl Disk {
    /// Writes a sidecar. See [`crate::Cache::write_sidecar`].
    pub(crate) fn write_sidecar(&self, name: &str, bytes: &[u8]) {
        if !is_name(name) || !self.is_writable() || SIDECAR_BYTES_MAX < bytes.len() {
            return;
        }
        let _guard = self.sidecar_writes.lock().unwrap_or_else(PoisonError::into_inner);
        let file = pack(name, bytes);
        let bytes = cost(file.len() as u64);
        if !self.has_space_for_sidecar(name, bytes) || !self.reserve(bytes) {
            return;
        }
        let freed = match self.write_sidecar_file(name, &file) {
            Ok(()) => self.accounting().sidecars.insert(name.to_owned(), bytes).unwrap_or(0),
            Err(error) => {
                self.sidecar_failed(name, &error);
                bytes
            }
        };
        self.accounting().release_bytes(freed);
    }

    fn has_space_for_sidecar(&self, name: &str, bytes: u64) -> bool {
        let accounting = self.accounting();
        let others: u64 = accounting
            .sidecars
            .iter()
            .filter(|(other, _)| *other != name)
            .map(|(_, bytes)| bytes)
            .sum();
        others + bytes <= self.bytes_max / SIDECAR_SHARE
    }

    fn write_sidecar_file(&self, name: &str, file: &[u8]) -> io::Result<()> {
        let new = self.directory.join(format!("{name}{NEW_SIDECAR_SUFFIX}"));
        write_full(self.file_system.open(&new, OpenMode::Replace)?.as_ref(), file, 0)?;
        self.file_system.rename(&new, &self.directory.join(format!("{name}{SIDECAR_SUFFIX}")))
    }

    fn sidecar_failed(&self, name: &str, error: &io::Error) {
        self.health.fail(Bypass::Writes, &format!("writing {name}{SIDECAR_SUFFIX}"), error);
        // Half a file may be left; the next start removes it.
        let _ =
            self.file_system.remove(&self.directory.join(format!("{name}{NEW_SIDECAR_SUFFIX}")));
    }

    /// Reads a sidecar. See [`crate::Cache::read_sidecar`].
    pub(crate) fn read_sidecar(&self, name: &str) -> Option<Bytes> {
        if !self.health.is_readable() || !self.accounting().sidecars.contains_key(name) {
            return None;
        }
        match self.read_sidecar_file(name) {
            Ok(file) => unpack(name, file),
            Err(error) => {
                self.health.read_failed(&format_args!("{name}{SIDECAR_SUFFIX}: {error}"));
                None
            }
        }
    }

    fn read_sidecar_file(&self, name: &str) -> io::Result<Vec<u8>> {
        let file = self
            .file_system
            .open(&self.directory.join(format!("{name}{SIDECAR_SUFFIX}")), OpenMode::Read)?;
        let length =
            file.status()?.length.min((SIDECAR_BYTES_MAX + HEADER_BYTES + CHECKSUM_BYTES) as u64);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        let count = read_full(file.as_ref(), &mut bytes, 0)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    /// Removes all other sidecars. Returns the bytes freed. See [`crate::Cache::retain_sidecars`].
    pub(crate) fn retain_sidecars(&self, is_wanted: &dyn Fn(&str) -> bool) -> u64 {
        let _guard = self.sidecar_writes.lock().unwrap_or_else(PoisonError::into_inner);
        let names: Vec<String> =
            self.accounting().sidecars.keys().filter(|name| !is_wanted(name)).cloned().collect();
        names.iter().map(|name| self.drop_sidecar(name)).sum()
    }

    /// Drops sidecars beyond their share of the disk, the largest first, so that most stay. A
    /// lowered limit makes the share smaller, and nothing evicts sidecars.
    pub(super) fn shrink_sidecars(&self) {
        let mut sidecars: Vec<(u64, String)> =
            self.accounting().sidecars.iter().map(|(name, bytes)| (*bytes, name.clone())).collect();
        sidecars.sort_unstable();
        let mut left: u64 = sidecars.iter().map(|(bytes, _)| bytes).sum();
        while self.bytes_max / SIDECAR_SHARE < left {
            let Some((bytes, name)) = sidecars.pop() else { return };
            self.drop_sidecar(&name);
            left -= bytes;
        }
    }

    fn drop_sidecar(&self, name: &str) -> u64 {
        match self.file_system.remove(&self.directory.join(format!("{name}{SIDECAR_SUFFIX}"))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                self.health.fail(
                    Bypass::Writes,
                    &format!("removing {name}{SIDECAR_SUFFIX}"),
                    &error,
                );
                0
            }
            _ => {
                let mut accounting = self.accounting();
                let bytes = accounting.sidecars.remove(name).unwrap_or(0);
                accounting.release_bytes(bytes);
                bytes
            }
        }
    }
}

/// Returns whether a name has only letters, digits, `-` and `.`, so that it is never a path.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= SIDECAR_NAME_BYTES_MAX
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
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
    fn a_packed_sidecar_is_unpacked() {
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

    #[test]
    fn names_are_never_paths() {
        for name in ["a", "index-0.v1", "..", "ABC123"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "a/b", "../x", "a b", "\u{e4}", "a\0"] {
            assert!(!is_name(name), "{name:?}");
        }
        assert!(
            is_name(&"n".repeat(SIDECAR_NAME_BYTES_MAX))
                && !is_name(&"n".repeat(SIDECAR_NAME_BYTES_MAX + 1))
        );
    }
}
