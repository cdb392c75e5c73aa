//! placeholder
use super::SimRng;
use crate::{Disk, DiskError, DiskErrorKind, DiskOperation, FileName};
use std::{io, path::PathBuf};

/// What a crash leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashKind {
    /// Power loss: nothing that was not synced.
    DropUnsynced,
    /// Power loss: every unsynced sector survives or not by chance; of the unsynced directory operations a prefix survives.
    AnySubset,
    /// The process was killed: everything survives, and what was not synced still is not.
    KeepAll,
}

/// How often a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Once.
    Once,
    /// From then on.
    Forever,
}

/// A fault.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Of which operation.
    pub operation: DiskOperation,
    /// Only operations on files whose name begins so.
    pub name_prefix: FileName,
    /// How many operations succeed before it.
    pub after: u64,
    /// How often.
    pub repeat: Repeat,
    /// With which error.
    pub error: DiskErrorKind,
}

/// One operation that took effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// What.
    pub operation: DiskOperation,
    /// Which file.
    pub name: FileName,
    /// Where.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u64,
}

/// A disk.
#[derive(Clone, Debug, Default)]
pub struct SimDisk;

/// A file.
#[derive(Debug)]
pub struct SimFile;

fn no() -> DiskError {
    DiskError {
        kind: DiskErrorKind::Failed,
        operation: DiskOperation::List,
        path: PathBuf::new(),
        source: io::ErrorKind::Unsupported.into(),
    }
}

impl SimDisk {
    /// An empty one without faults.
    pub fn new() -> Self {
        SimDisk
    }
    /// Plans a fault.
    pub fn inject(&self, _fault: Fault) {}
    /// Takes all planned faults back.
    pub fn clear_faults(&self) {}
    /// Bounds the bytes of all files together.
    pub fn set_space(&self, _bytes: Option<u64>) {}
    /// Changing operations so far.
    pub fn operation_count(&self) -> u64 {
        0
    }
    /// The operation with the ordinal `k` (from 0) and all after it fail and have no effect.
    pub fn crash_at(&self, _k: u64) {}
    /// Whether that happened.
    pub fn is_crashed(&self) -> bool {
        false
    }
    /// What is left of it, as a disk of its own.
    pub fn crash(&self, _rng: &mut SimRng, _kind: CrashKind) -> SimDisk {
        SimDisk
    }
    /// Operations so far.
    pub fn journal(&self) -> Vec<JournalEntry> {
        Vec::new()
    }
    /// How many operations of this kind on this file took effect.
    pub fn count(&self, _operation: DiskOperation, _name: &str) -> u64 {
        0
    }
    /// Contents as a reader sees them.
    pub fn contents(&self, _name: &str) -> Option<Vec<u8>> {
        None
    }
    /// Contents that survive [`CrashKind::DropUnsynced`].
    pub fn durable_contents(&self, _name: &str) -> Option<Vec<u8>> {
        None
    }
    /// Puts a file there, durably, replacing what was.
    pub fn put_file(&self, _name: &str, _contents: &[u8]) {}
    /// Flips a stored bit, for readers now and after any crash.
    pub fn flip_bit(&self, _name: &str, _offset: u64, _bit: u8) {}
}

impl Disk for SimDisk {
    type File = SimFile;
    fn lock(&self, _name: &str) -> Result<SimFile, DiskError> {
        Err(no())
    }
    fn list(&self) -> Result<Vec<FileName>, DiskError> {
        Err(no())
    }
    fn create(&self, _name: &str) -> Result<SimFile, DiskError> {
        Err(no())
    }
    fn open(&self, _name: &str) -> Result<SimFile, DiskError> {
        Err(no())
    }
    fn length(&self, _file: &SimFile) -> Result<u64, DiskError> {
        Err(no())
    }
    fn read_at(&self, _file: &SimFile, _offset: u64, _into: &mut [u8]) -> Result<usize, DiskError> {
        Err(no())
    }
    fn write_at(&self, _f: &SimFile, _offset: u64, _parts: &[io::IoSlice<'_>]) -> Result<(), DiskError> {
        Err(no())
    }
    fn truncate(&self, _file: &SimFile, _length: u64) -> Result<(), DiskError> {
        Err(no())
    }
    fn sync(&self, _file: &SimFile) -> Result<(), DiskError> {
        Err(no())
    }
    fn rename(&self, _from: &str, _to: &str) -> Result<(), DiskError> {
        Err(no())
    }
    fn remove(&self, _name: &str) -> Result<(), DiskError> {
        Err(no())
    }
    fn sync_directory(&self) -> Result<(), DiskError> {
        Err(no())
    }
    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("/sim").join(name)
    }
}
