//! In-memory disk that knows what a power loss would leave of its files.
//!
//! # Fault model
//!
//! **Durability.** A file has visible contents (what reads see) and durable contents (what a sync
//! has reached). A write changes the visible contents and is remembered as unsynced; [`Disk::sync`]
//! makes everything remembered of that file durable, including its length. The directory behaves
//! likewise: creations, renames and removals are visible at once and durable after
//! [`Disk::sync_directory`]. Syncing a file does not make its name durable.
//!
//! **Crashes** create a new disk with what is left ([`CrashKind`]), without locks and planned
//! faults; the old disk stays unchanged.
//! * [`CrashKind::DropUnsynced`]: durable contents under durable names, nothing else.
//! * [`CrashKind::AnySubset`]: every 512-byte sector holds, by chance, either its durable contents
//!   or those that one of its unsynced writes left; writes to a sector survive in order (a later
//!   one contains the earlier). A sector is old or new, never mixed and never anything else. The
//!   length is one that the file had since the sync, or a sector's end in between; bytes below the
//!   length that were not written read as zeros. A cut (truncation to less) survives or not, the
//!   cuts of a file in their order; what was written behind a cut that did not survive does not
//!   survive either. Of the directory's operations a prefix survives. Names and contents of
//!   different files survive independently.
//! * [`CrashKind::KeepAll`]: the process was killed but the system lives on. Everything visible is
//!   there, and what was unsynced still is, so a later power loss can take it.
//!
//! **Failing operations** are planned with [`SimDisk::inject`].
//! * A failed write leaves the first half of its whole sectors written; one that fails with an
//!   injected `NoSpace` leaves nothing.
//! * A failed sync (any error) leaves the pages clean, as on Linux: reads still see them, nothing
//!   says that they are not durable, and a later sync succeeds without making them durable. Until
//!   that later sync they may survive [`CrashKind::AnySubset`]; after it they are lost.
//!   [`SimDisk::evict_pages`] makes reads see the loss, too. (Cuts belong to the file system's
//!   journal, not to pages: they stay unsynced.)
//! * A failed `sync_directory` changes nothing; all other failed operations have no effect.
//!
//! **Space.** [`SimDisk::set_space`] limits the sum of the lengths of all files. A write or
//! extension beyond it fails with `NoSpace`; such a write first fills the space that was left.
//! Files without a name count while they are open.
//!
//! **Corruption.** [`SimDisk::flip_bit`] changes stored contents. Misdirected writes, and reads
//! that differ from call to call, are not modelled.
//!
//! **Crash points.** Changing operations have ordinals from 0 in the order in which they take
//! effect. After [`SimDisk::crash_at`]`(k)` the first `k` of them take effect and everything after
//! them, reads included, fails: the state is frozen for [`SimDisk::crash`]. A write cut off in the
//! middle is the `AnySubset` crash after it.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
};

use super::SimRng;
use crate::{Disk, DiskError, DiskErrorKind, DiskOperation, FileName};

mod contents;
mod directory;
mod fault;
#[cfg(test)]
mod tests;

use contents::Contents;
use directory::{Directory, EntryChange, FileId};
use fault::Planned;
pub use fault::{Fault, Repeat};

/// Kind of a crash, which decides what is left; see the fault model in the source of this module.
///
/// * Power loss, everything unsynced gone: [`CrashKind::DropUnsynced`].
/// * Power loss, any subset of unsynced sectors left: [`CrashKind::AnySubset`].
/// * Process killed: [`CrashKind::KeepAll`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashKind {
    /// Power loss that leaves nothing that was not synced.
    DropUnsynced,
    /// Power loss after which every unsynced sector survives or not by chance; of the unsynced
    /// directory operations a prefix survives.
    AnySubset,
    /// Killed process: everything survives, and what was not synced still is not.
    KeepAll,
}

/// Changing operation that took effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// Kind of the operation.
    pub operation: DiskOperation,
    /// Name of the file; for a rename its old name; empty for the directory.
    pub name: FileName,
    /// Offset of a write; new length for a truncation.
    pub offset: u64,
    /// Number of bytes written.
    pub bytes: u64,
}

/// Directory in memory. Clones name the same directory. Deterministic: the same calls and seeds
/// give the same state.
#[derive(Clone, Debug)]
pub struct SimDisk {
    state: Arc<Mutex<SimDiskState>>,
}

/// Open file of a [`SimDisk`].
#[derive(Debug)]
pub struct SimFile {
    state: Arc<Mutex<SimDiskState>>,
    id: FileId,
    name: FileName,
    locked: bool,
}

#[derive(Debug, Default)]
struct SimDiskState {
    files: BTreeMap<FileId, Contents>,
    /// Number of open handles of each file.
    open: BTreeMap<FileId, u32>,
    directory: Directory,
    locked: BTreeSet<FileName>,
    next_id: FileId,
    space_bytes: Option<u64>,
    planned: Vec<Planned>,
    journal: Vec<JournalEntry>,
    crash_at: Option<u64>,
    crashed: bool,
}

impl Default for SimDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl SimDisk {
    /// Creates an empty disk without faults.
    pub fn new() -> Self {
        Self { state: Arc::default() }
    }

    /// Plans a fault. Several may be planned; each counts operations from now on.
    pub fn inject(&self, fault: Fault) {
        self.state().planned.push(Planned::new(fault));
    }

    /// Removes all planned faults.
    pub fn clear_faults(&self) {
        self.state().planned.clear();
    }

    /// Limits the sum of the lengths of all files; `None` for no limit. The limit may be raised or
    /// lowered at any time.
    pub fn set_space(&self, bytes: Option<u64>) {
        self.state().space_bytes = bytes;
    }

    /// Returns the number of changing operations so far, which is the ordinal of the next.
    pub fn operation_count(&self) -> u64 {
        self.state().journal.len() as u64
    }

    /// Makes the changing operation with this ordinal and everything after it fail.
    pub fn crash_at(&self, ordinal: u64) {
        self.state().crash_at = Some(ordinal);
    }

    /// Returns whether the operation given to [`SimDisk::crash_at`] was reached.
    pub fn is_crashed(&self) -> bool {
        self.state().crashed
    }

    /// Returns what a crash now would leave, as a new disk without faults.
    pub fn crash(&self, rng: &mut SimRng, kind: CrashKind) -> SimDisk {
        let state = self.state();
        let directory = state.directory.after_crash(rng, kind);
        let mut files = BTreeMap::new();
        for (&id, contents) in &state.files {
            // Drawn for every file, named or not, so that one file's fate does not shift another's.
            let left = contents.after_crash(&mut rng.fork(), kind);
            if directory.names(id) {
                files.insert(id, left);
            }
        }
        let left = SimDiskState {
            files,
            directory,
            next_id: state.next_id,
            space_bytes: state.space_bytes,
            ..SimDiskState::default()
        };
        SimDisk { state: Arc::new(Mutex::new(left)) }
    }

    /// Returns the changing operations that took effect, in order.
    pub fn journal(&self) -> Vec<JournalEntry> {
        self.state().journal.clone()
    }

    /// Returns how many changing operations of this kind on this file took effect.
    pub fn count(&self, operation: DiskOperation, name: &str) -> u64 {
        let state = self.state();
        let matching =
            state.journal.iter().filter(|entry| entry.operation == operation && entry.name == name);
        matching.count() as u64
    }

    /// Returns the contents of a file as a reader sees them.
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        let id = state.directory.find(name)?;
        Some(state.files[&id].visible().to_vec())
    }

    /// Returns the contents that would survive [`CrashKind::DropUnsynced`] under this name.
    pub fn durable_contents(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        let id = state.directory.find_durable(name)?;
        Some(state.files[&id].durable().to_vec())
    }

    /// Returns all files as readers see them, to compare whole disks.
    pub fn snapshot(&self) -> BTreeMap<FileName, Vec<u8>> {
        let state = self.state();
        let entries = state.directory.entries();
        entries.map(|(name, id)| (name.clone(), state.files[&id].visible().to_vec())).collect()
    }

    /// Puts a file with durable contents and a durable name there, replacing any other. This is not
    /// an operation: it is not counted and cannot fail.
    pub fn put_file(&self, name: &str, contents: &[u8]) {
        let mut state = self.state();
        let id = state.new_file(Contents::durable_from(contents));
        state.directory.put(name, id);
        state.collect();
    }

    /// Flips a bit (0 to 7) of a stored byte, for readers now and after any crash.
    ///
    /// # Panics
    /// If there is no such file or byte.
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u8) {
        let mut state = self.state();
        let id = state.directory.find(name).expect("the file exists");
        state.contents_mut(id).flip_bit(offset, bit);
    }

    /// Evicts the system's clean pages: what a failed sync did not make durable is now gone for
    /// readers, too.
    pub fn evict_pages(&self) {
        for contents in self.state().files.values_mut() {
            contents.evict();
        }
    }

    fn state(&self) -> MutexGuard<'_, SimDiskState> {
        lock(&self.state)
    }

    /// Returns the disk's state after checking that the file belongs to this disk.
    fn state_of(&self, file: &SimFile) -> MutexGuard<'_, SimDiskState> {
        assert!(Arc::ptr_eq(&self.state, &file.state), "a file of another disk");
        self.state()
    }

    fn handle(&self, state: &mut SimDiskState, id: FileId, name: &str, locked: bool) -> SimFile {
        *state.open.entry(id).or_default() += 1;
        SimFile { state: Arc::clone(&self.state), id, name: name.to_owned(), locked }
    }
}

/// Locks the state even if it is poisoned: a test that failed while it held the lock must not hide
/// its message behind another panic.
fn lock(state: &Mutex<SimDiskState>) -> MutexGuard<'_, SimDiskState> {
    state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        if self.locked {
            state.locked.remove(&self.name);
        }
        if let Some(count) = state.open.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                state.open.remove(&self.id);
                state.collect();
            }
        }
    }
}

impl SimDiskState {
    fn new_file(&mut self, contents: Contents) -> FileId {
        let id = self.next_id;
        self.next_id = id.next();
        self.files.insert(id, contents);
        id
    }

    fn contents_mut(&mut self, id: FileId) -> &mut Contents {
        self.files.get_mut(&id).expect("named and open files have contents")
    }

    /// Frees files that no name, durable name or handle refers to.
    fn collect(&mut self) {
        let Self { files, directory, open, .. } = self;
        files.retain(|id, _| directory.names(*id) || open.contains_key(id));
    }

    /// Returns whether the operation may run: the machine has not crashed and no fault is due.
    fn start(&mut self, operation: DiskOperation, name: &str) -> Result<(), DiskError> {
        let ordinal = self.journal.len() as u64;
        if changes(operation) && self.crash_at.is_some_and(|at| at <= ordinal) {
            self.crashed = true;
        }
        if self.crashed {
            return Err(failure(
                DiskErrorKind::Failed,
                operation,
                name,
                "the simulated machine has lost power",
            ));
        }
        let mut due = None;
        for planned in &mut self.planned {
            due = planned.strike(operation, name).or(due);
        }
        match due {
            Some(kind) => Err(failure(kind, operation, name, "simulated fault")),
            None => Ok(()),
        }
    }

    fn journal(&mut self, operation: DiskOperation, name: &str, offset: u64, bytes: u64) {
        self.journal.push(JournalEntry { operation, name: name.to_owned(), offset, bytes });
    }

    fn find(&self, operation: DiskOperation, name: &str) -> Result<FileId, DiskError> {
        let missing = || failure(DiskErrorKind::NotFound, operation, name, "no such file");
        self.directory.find(name).ok_or_else(missing)
    }

    /// Returns how many more bytes may be stored.
    fn space_left(&self) -> u64 {
        let Some(space_bytes) = self.space_bytes else { return u64::MAX };
        let counted = self.files.iter().filter(|(id, _)| {
            self.open.contains_key(id) || self.directory.entries().any(|(_, named)| named == **id)
        });
        space_bytes
            .saturating_sub(counted.map(|(_, contents)| contents.visible().len() as u64).sum())
    }

    /// Returns the largest length that `id` may have.
    fn length_max(&self, id: FileId) -> u64 {
        self.space_left().saturating_add(self.files[&id].visible().len() as u64)
    }
}

/// Returns whether an operation has an ordinal. Creating a lock file has none: the contents of a
/// lock file do not matter.
fn changes(operation: DiskOperation) -> bool {
    match operation {
        DiskOperation::Create
        | DiskOperation::Write
        | DiskOperation::Truncate
        | DiskOperation::Sync
        | DiskOperation::Rename
        | DiskOperation::Remove
        | DiskOperation::SyncDirectory => true,
        DiskOperation::Lock
        | DiskOperation::List
        | DiskOperation::Open
        | DiskOperation::Length
        | DiskOperation::Read => false,
    }
}

fn failure(
    kind: DiskErrorKind,
    operation: DiskOperation,
    name: &str,
    message: &'static str,
) -> DiskError {
    let source_kind = match kind {
        DiskErrorKind::NoSpace => io::ErrorKind::StorageFull,
        DiskErrorKind::NotFound => io::ErrorKind::NotFound,
        DiskErrorKind::Exists => io::ErrorKind::AlreadyExists,
        DiskErrorKind::Failed => io::ErrorKind::Other,
    };
    DiskError { kind, operation, path: path_of(name), source: io::Error::new(source_kind, message) }
}

fn path_of(name: &str) -> PathBuf {
    PathBuf::from("/simulated").join(name)
}

impl Disk for SimDisk {
    type File = SimFile;

    fn lock(&self, name: &str) -> Result<SimFile, DiskError> {
        let mut state = self.state();
        state.start(DiskOperation::Lock, name)?;
        let id = match state.directory.find(name) {
            Some(id) => id,
            None => {
                let id = state.new_file(Contents::default());
                state.directory.change(EntryChange::Link(name.to_owned(), id));
                id
            }
        };
        if !state.locked.insert(name.to_owned()) {
            let message = "another process holds the lock";
            return Err(failure(DiskErrorKind::Exists, DiskOperation::Lock, name, message));
        }
        Ok(self.handle(&mut state, id, name, true))
    }

    fn list(&self) -> Result<Vec<FileName>, DiskError> {
        let mut state = self.state();
        state.start(DiskOperation::List, "")?;
        Ok(state.directory.entries().map(|(name, _)| name.clone()).collect())
    }

    fn create(&self, name: &str) -> Result<SimFile, DiskError> {
        let mut state = self.state();
        state.start(DiskOperation::Create, name)?;
        if state.directory.find(name).is_some() {
            return Err(failure(
                DiskErrorKind::Exists,
                DiskOperation::Create,
                name,
                "there is such a file",
            ));
        }
        let id = state.new_file(Contents::default());
        state.directory.change(EntryChange::Link(name.to_owned(), id));
        state.journal(DiskOperation::Create, name, 0, 0);
        Ok(self.handle(&mut state, id, name, false))
    }

    fn open(&self, name: &str) -> Result<SimFile, DiskError> {
        let mut state = self.state();
        state.start(DiskOperation::Open, name)?;
        let id = state.find(DiskOperation::Open, name)?;
        Ok(self.handle(&mut state, id, name, false))
    }

    fn length(&self, file: &SimFile) -> Result<u64, DiskError> {
        let mut state = self.state_of(file);
        state.start(DiskOperation::Length, &file.name)?;
        Ok(state.files[&file.id].visible().len() as u64)
    }

    fn read_at(&self, file: &SimFile, offset: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        let mut state = self.state_of(file);
        state.start(DiskOperation::Read, &file.name)?;
        let visible = state.files[&file.id].visible();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(visible.len());
        let count = into.len().min(visible.len() - start);
        into[..count].copy_from_slice(&visible[start..start + count]);
        Ok(count)
    }

    fn write_at(
        &self,
        file: &SimFile,
        offset: u64,
        parts: &[io::IoSlice<'_>],
    ) -> Result<(), DiskError> {
        let mut state = self.state_of(file);
        let mut bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        if let Err(error) = state.start(DiskOperation::Write, &file.name) {
            if error.kind != DiskErrorKind::NoSpace && !state.crashed {
                bytes.truncate(contents::half_of_sectors(bytes.len()));
                state.contents_mut(file.id).write(offset, bytes);
            }
            return Err(error);
        }
        let fitting_bytes = state.length_max(file.id).saturating_sub(offset);
        if fitting_bytes < bytes.len() as u64 {
            bytes.truncate(usize::try_from(fitting_bytes).expect("below a length"));
            state.contents_mut(file.id).write(offset, bytes);
            return Err(failure(
                DiskErrorKind::NoSpace,
                DiskOperation::Write,
                &file.name,
                "no space left",
            ));
        }
        state.journal(DiskOperation::Write, &file.name, offset, bytes.len() as u64);
        state.contents_mut(file.id).write(offset, bytes);
        Ok(())
    }

    fn truncate(&self, file: &SimFile, length: u64) -> Result<(), DiskError> {
        let mut state = self.state_of(file);
        state.start(DiskOperation::Truncate, &file.name)?;
        if state.length_max(file.id) < length {
            return Err(failure(
                DiskErrorKind::NoSpace,
                DiskOperation::Truncate,
                &file.name,
                "no space left",
            ));
        }
        state.contents_mut(file.id).set_length(length);
        state.journal(DiskOperation::Truncate, &file.name, length, 0);
        Ok(())
    }

    fn sync(&self, file: &SimFile) -> Result<(), DiskError> {
        let mut state = self.state_of(file);
        if let Err(error) = state.start(DiskOperation::Sync, &file.name) {
            if !state.crashed {
                state.contents_mut(file.id).fail_sync();
            }
            return Err(error);
        }
        state.contents_mut(file.id).sync();
        state.journal(DiskOperation::Sync, &file.name, 0, 0);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        let mut state = self.state();
        state.start(DiskOperation::Rename, from)?;
        state.find(DiskOperation::Rename, from)?;
        state.directory.change(EntryChange::Rename(from.to_owned(), to.to_owned()));
        state.journal(DiskOperation::Rename, from, 0, 0);
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        let mut state = self.state();
        state.start(DiskOperation::Remove, name)?;
        state.find(DiskOperation::Remove, name)?;
        state.directory.change(EntryChange::Unlink(name.to_owned()));
        state.journal(DiskOperation::Remove, name, 0, 0);
        Ok(())
    }

    fn sync_directory(&self) -> Result<(), DiskError> {
        let mut state = self.state();
        state.start(DiskOperation::SyncDirectory, "")?;
        state.directory.sync();
        state.journal(DiskOperation::SyncDirectory, "", 0, 0);
        state.collect();
        Ok(())
    }

    fn available_bytes(&self) -> u64 {
        self.state().space_left()
    }

    fn path(&self, name: &str) -> PathBuf {
        path_of(name)
    }
}
