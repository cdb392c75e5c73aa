//! Sidecars: small files by store and name, checksummed, counted against the limit. Those of open
//! stores are never evicted; those of closed ones are, the store that was closed first in front.
//!
//! ```text
//! +----------------+--------+---------------+-----+-------+---------+
//! | 42 55 53 4B 03 | length | length of URL | URL | bytes | CRC-32C |  over URL, zero byte, name,
//! | 5 bytes        | u64    | u16           |     |       | u32     |  zero byte, bytes
//! +----------------+--------+---------------+-----+-------+---------+
//! ```
//!
//! The name of the file has a hash of the URL, so whoever reads only the head of a file knows
//! whether its URL is right.

use std::{
    io,
    path::PathBuf,
    sync::{MutexGuard, PoisonError, TryLockError},
};

use bytes::Bytes;

use super::{
    BLOCK_BYTES, Disk,
    accounting::Accounting,
    file_system::{OpenMode, read_full, write_full},
    health::Bypass,
    stores::StoreKey,
};
use crate::disk::limits::{
    KEY_BYTES_MAX, SIDECAR_BYTES_MAX, SIDECAR_NAME_BYTES_MAX, SIDECAR_SHARE,
};

/// Suffix of a sidecar's file name.
pub(super) const SIDECAR_SUFFIX: &str = ".keep";
/// Suffix while the sidecar is written.
pub(super) const NEW_SIDECAR_SUFFIX: &str = ".keep.new";
pub(super) const MARKER: [u8; 5] = *b"BUSK\x03";
/// Bytes before the URL: the marker and both lengths.
const HEADER_BYTES: usize = MARKER.len() + 8 + 2;
const CHECKSUM_BYTES: usize = 4;

/// Disk space that a file of this many bytes takes.
pub(super) fn cost(file_bytes: u64) -> u64 {
    // One block more for the directory entry and the inode.
    (file_bytes.div_ceil(BLOCK_BYTES as u64) + 1) * BLOCK_BYTES as u64
}

impl Disk {
    /// Writes a sidecar. See [`crate::Cache::write_sidecar`].
    pub(crate) fn write_sidecar(&self, store: &str, name: &str, bytes: &[u8]) {
        let is_long = SIDECAR_BYTES_MAX < bytes.len() || KEY_BYTES_MAX < store.len();
        if !is_name(name) || !self.is_writable() || is_long {
            return;
        }
        let file = pack(store, name, bytes);
        let bytes = cost(file.len() as u64);
        let key = StoreKey::of(store);
        // Before the guard is taken: the eviction may need it for another sidecar.
        if !self.reserve(bytes, Some(key)) {
            return;
        }
        let guard = self.sidecar_writes.lock().unwrap_or_else(PoisonError::into_inner);
        let freed = if !self.make_room_for_sidecar(&guard, (key, name), bytes) {
            bytes
        } else if let Err(error) = self.write_sidecar_file(key, name, &file) {
            self.sidecar_failed(key, name, &error);
            bytes
        } else {
            self.accounting().stores.put_sidecar(key, name, bytes)
        };
        self.accounting().release_bytes(freed);
    }

    /// Drops sidecars of closed stores until this one is within the share of all. False: it is too
    /// large beside those of open stores.
    fn make_room_for_sidecar(
        &self,
        guard: &MutexGuard<'_, ()>,
        (key, name): (StoreKey, &str),
        bytes: u64,
    ) -> bool {
        let share = self.bytes_max / SIDECAR_SHARE;
        let others_bytes = |accounting: &Accounting| {
            let before = accounting.stores.sidecar(key, name).unwrap_or(0);
            accounting.stores.sidecar_bytes() - before
        };
        let has_room = |accounting: &Accounting| others_bytes(accounting) + bytes <= share;
        let never_fits = |accounting: &Accounting| {
            let closed_bytes = accounting.stores.closed_sidecar_bytes();
            share < others_bytes(accounting).saturating_sub(closed_bytes) + bytes
        };
        // One that does not fit beside those of open stores evicts none of closed ones.
        if never_fits(&self.accounting()) {
            return false;
        }
        while !has_room(&self.accounting()) {
            if !self.drop_closed_sidecar(guard) {
                return false;
            }
        }
        true
    }

    fn write_sidecar_file(&self, key: StoreKey, name: &str, file: &[u8]) -> io::Result<()> {
        let new = self.sidecar_path(key, name, NEW_SIDECAR_SUFFIX);
        write_full(self.file_system.open(&new, OpenMode::Replace)?.as_ref(), file, 0)?;
        self.file_system.rename(&new, &self.sidecar_path(key, name, SIDECAR_SUFFIX))
    }

    fn sidecar_path(&self, key: StoreKey, name: &str, suffix: &str) -> PathBuf {
        self.directory.join(format!("{}{suffix}", key.file_name(name)))
    }

    fn sidecar_failed(&self, key: StoreKey, name: &str, error: &io::Error) {
        self.health.fail(Bypass::Writes, &format!("writing {name}{SIDECAR_SUFFIX}"), error);
        // Half a file may be left; the next start removes it.
        let _ = self.file_system.remove(&self.sidecar_path(key, name, NEW_SIDECAR_SUFFIX));
    }

    /// Reads a sidecar. See [`crate::Cache::read_sidecar`].
    pub(crate) fn read_sidecar(&self, store: &str, name: &str) -> Option<Bytes> {
        let key = StoreKey::of(store);
        if !self.health.is_readable() || self.accounting().stores.sidecar(key, name).is_none() {
            return None;
        }
        let bytes_max = HEADER_BYTES + KEY_BYTES_MAX + SIDECAR_BYTES_MAX + CHECKSUM_BYTES;
        match self.read_sidecar_file(key, name, bytes_max) {
            Ok(file) => unpack(store, name, file),
            // It may have been evicted meanwhile.
            Err(_) if self.accounting().stores.sidecar(key, name).is_none() => None,
            Err(error) => {
                self.health.read_failed(&format_args!("{name}{SIDECAR_SUFFIX}: {error}"));
                None
            }
        }
    }

    /// Reads the URL of the store to which a sidecar belongs. None: the file cannot be read, is of
    /// another format, or has the URL of another store.
    pub(super) fn sidecar_store(&self, key: StoreKey, name: &str) -> Option<String> {
        let head = self.read_sidecar_file(key, name, HEADER_BYTES + KEY_BYTES_MAX).ok()?;
        let (header, rest) = split_header(&head)?;
        let url = std::str::from_utf8(rest.get(..header.url_bytes)?).ok()?;
        (StoreKey::of(url) == key).then(|| url.to_owned())
    }

    /// Reads the first bytes of a sidecar's file.
    fn read_sidecar_file(
        &self,
        key: StoreKey,
        name: &str,
        bytes_max: usize,
    ) -> io::Result<Vec<u8>> {
        let path = self.sidecar_path(key, name, SIDECAR_SUFFIX);
        let file = self.file_system.open(&path, OpenMode::Read)?;
        let length = file.status()?.length.min(bytes_max as u64);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        let count = read_full(file.as_ref(), &mut bytes, 0)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    /// Removes the other sidecars of a store. Returns the bytes freed. See
    /// [`crate::Cache::retain_sidecars`].
    pub(crate) fn retain_sidecars(&self, store: &str, is_wanted: &dyn Fn(&str) -> bool) -> u64 {
        let guard = self.sidecar_writes.lock().unwrap_or_else(PoisonError::into_inner);
        let key = StoreKey::of(store);
        let names = self.accounting().stores.sidecar_names(key);
        let unwanted = names.iter().filter(|name| !is_wanted(name));
        unwanted.map(|name| self.drop_sidecar(&guard, key, name)).sum()
    }

    /// Removes the sidecars of all stores. Returns the bytes freed.
    pub(crate) fn drop_sidecars(&self) -> u64 {
        let guard = self.sidecar_writes.lock().unwrap_or_else(PoisonError::into_inner);
        let sidecars = self.accounting().stores.sidecars();
        sidecars.iter().map(|(_, key, name)| self.drop_sidecar(&guard, *key, name)).sum()
    }

    /// Drops sidecars beyond their share of the disk, the largest first, so that most stay: a
    /// lowered limit makes the share smaller.
    pub(super) fn shrink_sidecars(&self) {
        let guard = self.sidecar_writes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sidecars = self.accounting().stores.sidecars();
        sidecars.sort_unstable();
        let mut left: u64 = sidecars.iter().map(|(bytes, ..)| bytes).sum();
        while self.bytes_max / SIDECAR_SHARE < left {
            let Some((bytes, key, name)) = sidecars.pop() else { return };
            self.drop_sidecar(&guard, key, &name);
            left -= bytes;
        }
    }

    /// Evicts a sidecar of the store that was closed first. False: there is none, or sidecars are
    /// written just now.
    pub(super) fn evict_closed_sidecar(&self) -> bool {
        match self.sidecar_writes.try_lock() {
            Ok(guard) => self.drop_closed_sidecar(&guard),
            Err(TryLockError::Poisoned(poisoned)) => {
                self.drop_closed_sidecar(&poisoned.into_inner())
            }
            Err(TryLockError::WouldBlock) => false,
        }
    }

    fn drop_closed_sidecar(&self, guard: &MutexGuard<'_, ()>) -> bool {
        let oldest = self.accounting().stores.oldest_closed_sidecar();
        oldest.is_some_and(|(key, name)| 0 < self.drop_sidecar(guard, key, &name))
    }

    /// Removes a sidecar; the guard says that nobody writes one.
    fn drop_sidecar(&self, _: &MutexGuard<'_, ()>, key: StoreKey, name: &str) -> u64 {
        match self.file_system.remove(&self.sidecar_path(key, name, SIDECAR_SUFFIX)) {
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
                let bytes = accounting.stores.remove_sidecar(key, name);
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

fn checksum(store: &str, name: &str, bytes: &[u8]) -> u32 {
    let parts = [store.as_bytes(), &[0], name.as_bytes(), &[0], bytes];
    parts.into_iter().fold(0, crc32c::crc32c_append)
}

fn pack(store: &str, name: &str, bytes: &[u8]) -> Vec<u8> {
    let length = HEADER_BYTES + store.len() + bytes.len() + CHECKSUM_BYTES;
    let mut file = Vec::with_capacity(length);
    file.extend_from_slice(&MARKER);
    file.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    let url_bytes = u16::try_from(store.len()).expect("limits say so");
    file.extend_from_slice(&url_bytes.to_le_bytes());
    file.extend_from_slice(store.as_bytes());
    file.extend_from_slice(bytes);
    file.extend_from_slice(&checksum(store, name, bytes).to_le_bytes());
    file
}

fn unpack(store: &str, name: &str, file: Vec<u8>) -> Option<Bytes> {
    let (header, rest) = split_header(&file)?;
    let (rest, stored) = rest.split_last_chunk::<CHECKSUM_BYTES>()?;
    let bytes = rest.strip_prefix(store.as_bytes())?;
    let is_right = header.url_bytes == store.len()
        && header.content_bytes == bytes.len() as u64
        && u32::from_le_bytes(*stored) == checksum(store, name, bytes);
    let (start, end) = (HEADER_BYTES + store.len(), file.len() - CHECKSUM_BYTES);
    is_right.then(|| Bytes::from(file).slice(start..end))
}

/// Lengths at the beginning of a sidecar's file.
struct Header {
    content_bytes: u64,
    url_bytes: usize,
}

/// Splits a file behind its header. None: it is no sidecar of this format.
fn split_header(file: &[u8]) -> Option<(Header, &[u8])> {
    let rest = file.strip_prefix(&MARKER)?;
    let (content, rest) = rest.split_first_chunk::<8>()?;
    let (url, rest) = rest.split_first_chunk::<2>()?;
    let url_bytes = usize::from(u16::from_le_bytes(*url));
    Some((Header { content_bytes: u64::from_le_bytes(*content), url_bytes }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_sidecar_is_unpacked() {
        for bytes in [&b""[..], b"x", &[7; 10_000]] {
            assert_eq!(unpack("s", "n", pack("s", "n", bytes)).unwrap(), bytes);
        }
    }

    #[test]
    fn another_name_or_a_changed_or_torn_file_is_nothing() {
        let file = pack("s", "name", b"some bytes");
        assert_eq!(unpack("s", "nam", file.clone()), None);
        assert_eq!(unpack("t", "name", file.clone()), None);
        for position in 0..file.len() {
            let mut flipped = file.clone();
            flipped[position] ^= 0x10;
            assert_eq!(unpack("s", "name", flipped), None, "{position}");
            assert_eq!(unpack("s", "name", file[..position].to_vec()), None, "{position}");
        }
        assert_eq!(unpack("s", "name", [&file[..], b"x"].concat()), None);
    }

    #[test]
    fn the_head_of_a_sidecar_says_to_which_store_it_belongs() {
        let file = pack("s3://b/org/db", "name", b"some bytes");
        let (header, rest) = split_header(&file).unwrap();
        assert_eq!(&rest[..header.url_bytes], b"s3://b/org/db");
        assert!(split_header(b"BUSK\x02 of an earlier release").is_none());
        assert!((0..HEADER_BYTES).all(|end| split_header(&file[..end]).is_none()));
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
