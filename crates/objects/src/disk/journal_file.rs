//! The journal's file: the cache appends to it, and rewrites it when it has become much longer than
//! its contents need.

use std::{io, sync::PoisonError};

use super::{
    CacheFile, Disk,
    accounting::{Accounting, Change},
    file_system::{OpenFile, OpenMode, write_full},
    health::Bypass,
    journal::{self, FileRecord, Presence},
    s3_fifo::ExtentId,
};
use crate::disk::limits::{JOURNAL_SLACK_BYTES_MAX, JOURNAL_SLACK_BYTES_MIN, PENDING_CHANGES_MAX};

/// Name of the journal.
pub(super) const JOURNAL_NAME: &str = "journal";
/// Name of its successor, while that is written.
pub(super) const NEW_JOURNAL_NAME: &str = "journal.new";

/// The open journal and its length.
#[derive(Debug)]
pub(super) struct JournalFile {
    /// Open file; none when the next flush has to rewrite the journal.
    file: Option<Box<dyn OpenFile>>,
    length: u64,
    /// Length beyond which the next flush rewrites the journal.
    length_max: u64,
    slack: u64,
}

impl JournalFile {
    /// Makes the journal of a disk with this many bytes.
    pub(super) fn new(bytes_max: u64) -> Self {
        let slack = (bytes_max / 256).clamp(JOURNAL_SLACK_BYTES_MIN, JOURNAL_SLACK_BYTES_MAX);
        Self { file: None, length: 0, length_max: 0, slack }
    }

    /// Appends to a journal that was read, whose bytes are reserved.
    pub(super) fn go_on(&mut self, file: Box<dyn OpenFile>, length: u64) {
        self.file = Some(file);
        self.length = length;
        self.length_max = length + self.slack;
    }

    /// Lets the next flush rewrite the journal; the old one is there until then.
    pub(super) fn write_anew(&mut self) {
        self.file = None;
    }

    /// Does the same over an old journal of this many bytes, which are reserved.
    pub(super) fn write_anew_over(&mut self, length: u64) {
        self.file = None;
        self.length = length;
    }

    /// Forgets the journal. Returns the bytes that were reserved for it.
    pub(super) fn reset(&mut self) -> u64 {
        self.file = None;
        std::mem::take(&mut self.length)
    }

    #[cfg(test)]
    pub(super) fn length(&self) -> u64 {
        self.length
    }
}

impl Disk {
    /// Wakes the maintenance task if there are changes to journal.
    pub(super) fn changed(&self) {
        let accounting = self.accounting();
        self.tick.store(accounting.queues.tick(), std::sync::atomic::Ordering::Relaxed);
        let count = accounting.changes.len();
        drop(accounting);
        if 0 < count {
            self.notifier.notify();
        }
        // Another thread that holds the journal's lock writes the changes; it may be this one, on
        // its way to make space for the journal.
        if let (true, Ok(mut journal)) = (PENDING_CHANGES_MAX <= count, self.journal.try_lock()) {
            self.flush_to(&mut journal);
        }
    }

    /// Writes the changes so far. Returns whether the journal is complete. A failed write loses
    /// nothing in this process: the cache rewrites the whole journal when the disk works again.
    pub(super) fn flush(&self) -> bool {
        self.flush_to(&mut self.journal.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn flush_to(&self, journal: &mut JournalFile) -> bool {
        if !self.is_ours() {
            return false;
        }
        let flushed = if journal.file.is_none() || journal.length_max < journal.length {
            self.rewrite(journal)
        } else {
            self.append(journal)
        };
        if let Err(error) = &flushed {
            journal.file = None;
            self.health.fail(Bypass::Writes, "writing the journal", error);
        }
        flushed.is_ok()
    }

    fn append(&self, journal: &mut JournalFile) -> io::Result<()> {
        let changes = std::mem::take(&mut self.accounting().changes);
        let mut bytes = Vec::new();
        write_changes(&mut bytes, &changes);
        let (Some(file), false) = (&journal.file, bytes.is_empty()) else { return Ok(()) };
        let count = bytes.len() as u64;
        if !self.reserve(count, None) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let offset = journal.length;
        journal.length += count;
        write_full(file.as_ref(), &bytes, offset)
    }

    fn rewrite(&self, journal: &mut JournalFile) -> io::Result<()> {
        let mut accounting = self.accounting();
        // The rewritten journal contains them.
        accounting.changes.clear();
        let mut bytes = Vec::new();
        write_all(&mut bytes, &accounting);
        drop(accounting);
        let count = bytes.len() as u64;
        if !self.reserve(count, None) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let file =
            self.replace_journal(&bytes).inspect_err(|_| self.accounting().release_bytes(count))?;
        self.accounting().release_bytes(journal.length);
        journal.file = Some(file);
        journal.length = count;
        journal.length_max = 2 * count + journal.slack;
        Ok(())
    }

    fn replace_journal(&self, bytes: &[u8]) -> io::Result<Box<dyn OpenFile>> {
        let path = self.directory.join(NEW_JOURNAL_NAME);
        let file = self.file_system.open(&path, OpenMode::Replace)?;
        write_full(file.as_ref(), bytes, 0)?;
        self.file_system.rename(&path, &self.directory.join(JOURNAL_NAME))?;
        Ok(file)
    }

    /// Returns whether this process holds the directory's lock.
    pub(super) fn is_ours(&self) -> bool {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

fn write_all(out: &mut Vec<u8>, accounting: &Accounting) {
    for cache_file in accounting.cache_files.values() {
        write_cache_file(out, cache_file);
        journal::write_extents(out, cache_file.id, Presence::Present, cache_file.extents.present());
    }
}

fn write_cache_file(out: &mut Vec<u8>, cache_file: &CacheFile) {
    let meta = &cache_file.key.meta;
    journal::write_file(
        out,
        &FileRecord {
            id: cache_file.id,
            generation: cache_file.generation,
            size: meta.size,
            store: &cache_file.key.store,
            name: &meta.name,
            etag: &meta.etag,
        },
    );
}

fn write_changes(out: &mut Vec<u8>, changes: &[Change]) {
    for group in changes.chunk_by(goes_on) {
        match &group[0] {
            Change::File(cache_file) => write_cache_file(out, cache_file),
            Change::Gone(id) => journal::write_gone(out, *id),
            Change::Extent(extent_id, presence) => {
                journal::write_extents(
                    out,
                    extent_id.file,
                    *presence,
                    group.iter().filter_map(extent),
                );
            }
        }
    }
}

/// Returns whether two changes fit one record: ascending extents of one file.
fn goes_on(first: &Change, second: &Change) -> bool {
    match (first, second) {
        (Change::Extent(a, first), Change::Extent(b, second)) => {
            first == second && a.file == b.file && a.extent < b.extent
        }
        _ => false,
    }
}

fn extent(change: &Change) -> Option<u32> {
    match change {
        Change::Extent(ExtentId { extent, .. }, _) => Some(*extent),
        _ => None,
    }
}
