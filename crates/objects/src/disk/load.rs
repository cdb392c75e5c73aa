//! Startup: takes the lock, reads the journal, checks it against the files.

use std::{
    collections::{BTreeMap, HashMap},
    io::{self, ErrorKind},
    path::Path,
    sync::{Arc, PoisonError},
};

use super::{
    CacheFile, Disk,
    accounting::mark,
    cache_file::{DATA_SUFFIX, ObjectKey, data_id},
    file_system::{FileSystem, OpenFile, OpenMode, RealFileSystem, read_full, write_full},
    health::Bypass,
    journal::{FileRecord, Record, Records},
    journal_file::{JOURNAL_NAME, NEW_JOURNAL_NAME},
    sidecar::{NEW_SIDECAR_SUFFIX, SIDECAR_SUFFIX, cost},
    stores::StoreKey,
};
use crate::{
    Error, ObjectMeta,
    disk::limits::{EXTENT_OVERHEAD_BYTES, FILE_OVERHEAD_BYTES, JOURNAL_BYTES_MAX},
};

/// Name of the lock file.
pub(super) const LOCK_NAME: &str = "lock";

/// Reason why a directory cannot be used.
enum Refusal {
    /// Another process uses it.
    Locked(Error),
    /// A system call failed.
    Failed(&'static str, io::Error),
}

impl Disk {
    /// Locks the directory and loads its index.
    pub(super) fn load(&self) -> Result<(), Error> {
        match self.take_directory() {
            Ok(()) => {}
            Err(Refusal::Locked(error)) => return Err(error),
            Err(Refusal::Failed(doing, error)) => self.health.fail(Bypass::All, doing, &error),
        }
        Ok(())
    }

    /// Does the same after a failed start or a vanished directory. Returns whether the directory is
    /// ours now.
    pub(super) fn load_again(&self) -> bool {
        match self.take_directory() {
            Ok(()) => true,
            Err(Refusal::Locked(error)) => {
                self.health.bypass(Bypass::All, error.to_string());
                false
            }
            Err(Refusal::Failed(doing, error)) => {
                self.health.fail(Bypass::All, doing, &error);
                false
            }
        }
    }

    fn take_directory(&self) -> Result<(), Refusal> {
        let failed = |doing| move |error| Refusal::Failed(doing, error);
        self.file_system.make_directory(&self.directory).map_err(failed("making the directory"))?;
        let lock = self.take_lock()?;
        let names =
            self.file_system.names(&self.directory).map_err(failed("listing the directory"))?;
        let journal = self.read_journal().map_err(failed("reading the journal"))?;
        let is_exact = self.restore(&journal, &names);
        *self.lock.lock().unwrap_or_else(PoisonError::into_inner) = Some(lock);
        self.go_on_with_journal(journal.len() as u64, is_exact);
        self.shrink();
        Ok(())
    }

    fn take_lock(&self) -> Result<Box<dyn OpenFile>, Refusal> {
        let failed = |error| Refusal::Failed("locking the directory", error);
        let lock = self
            .file_system
            .open(&self.directory.join(LOCK_NAME), OpenMode::Make)
            .map_err(failed)?;
        if !lock.lock().map_err(failed)? {
            return Err(Refusal::Locked(locked_by(&self.directory, lock.as_ref())));
        }
        let pid = format!("{}\n", std::process::id());
        // The number is for people: the lock holds without it.
        let _ = lock.set_length(0).and_then(|()| write_full(lock.as_ref(), pid.as_bytes(), 0));
        Ok(lock)
    }

    fn read_journal(&self) -> io::Result<Vec<u8>> {
        let file = match self.file_system.open(&self.directory.join(JOURNAL_NAME), OpenMode::Read) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            file => file?,
        };
        let length = file.status()?.length;
        if JOURNAL_BYTES_MAX < length {
            log::warn!(
                "cache {}: the journal of {length} bytes is not read",
                self.directory.display()
            );
            return Ok(Vec::new());
        }
        let mut bytes = vec![0; usize::try_from(length).expect("limits say so")];
        let count = read_full(file.as_ref(), &mut bytes, 0)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    /// Restores the index. Returns whether the journal says exactly what is there.
    fn restore(&self, journal: &[u8], names: &[String]) -> bool {
        let mut records = Records::new(journal);
        let cache_files = read_cache_files(&mut records);
        let mut is_exact = records.skipped() == 0 && !journal.is_empty();
        let mut ids: Vec<u32> = cache_files.keys().copied().collect();
        ids.extend(names.iter().filter_map(|name| data_id(name)));
        ids.iter().for_each(|id| self.accounting().skip_ids(*id));
        for cache_file in newest(cache_files) {
            is_exact &= self.restore_cache_file(cache_file);
        }
        self.restore_sidecars(names);
        self.remove_unknown(names);
        is_exact
    }

    /// Restores one file. Returns whether it is as the journal says.
    fn restore_cache_file(&self, cache_file: CacheFile) -> bool {
        let path = cache_file.path(&self.directory);
        let Ok(status) = self.file_system.status(&path) else { return false };
        if cache_file.extents.is_empty() {
            return false;
        }
        let expected = cache_file.present_disk_bytes();
        let overhead = FILE_OVERHEAD_BYTES + expected / (1 << 20) * EXTENT_OVERHEAD_BYTES;
        let fits =
            status.allocated <= expected + overhead && status.length == cache_file.key.file_bytes();
        if !fits && self.trim(&cache_file).is_err() {
            return false;
        }
        self.accounting().restore_cache_file(cache_file);
        fits
    }

    /// Punches extents that no record mentions: the last records of the journal were lost.
    fn trim(&self, cache_file: &CacheFile) -> io::Result<()> {
        let file = self.file_system.open(&cache_file.path(&self.directory), OpenMode::Write)?;
        file.set_length(cache_file.key.file_bytes())?;
        let mut start = 0;
        let ends = cache_file.extents.present().map(|extent| (extent, extent + 1));
        for (next, end) in ends.chain([(cache_file.extents.count(), 0)]) {
            if start < next {
                let offset = CacheFile::extent_offset(start);
                let end = CacheFile::extent_offset(next).min(cache_file.key.file_bytes());
                file.punch(offset, end - offset)?;
            }
            start = end;
        }
        Ok(())
    }

    fn restore_sidecars(&self, names: &[String]) {
        for name in names {
            let Some((key, kept)) = name.strip_suffix(SIDECAR_SUFFIX).and_then(StoreKey::parse)
            else {
                continue;
            };
            let Ok(status) = self.file_system.status(&self.directory.join(name)) else { continue };
            let bytes = cost(status.length);
            let mut accounting = self.accounting();
            accounting.bytes += bytes;
            accounting.stores.put_sidecar(key, kept, bytes);
        }
        self.shrink_sidecars();
    }

    /// Removes files that look like the cache's and are not in the index.
    fn remove_unknown(&self, names: &[String]) {
        let known = self.accounting().ids();
        for name in names {
            let is_unknown =
                name.ends_with(DATA_SUFFIX) && data_id(name).is_some_and(|id| !known.contains(&id));
            // Before sidecars belonged to stores, their names had no key.
            let is_old_sidecar = name
                .strip_suffix(SIDECAR_SUFFIX)
                .is_some_and(|kept| StoreKey::parse(kept).is_none());
            if is_unknown
                || is_old_sidecar
                || name == NEW_JOURNAL_NAME
                || name.ends_with(NEW_SIDECAR_SUFFIX)
            {
                let removed = self.file_system.remove(&self.directory.join(name));
                removed.unwrap_or_else(|_| self.health.count_error());
            }
        }
    }

    fn go_on_with_journal(&self, length: u64, is_exact: bool) {
        self.accounting().bytes += length;
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        match self.file_system.open(&self.directory.join(JOURNAL_NAME), OpenMode::Write) {
            Ok(file) if is_exact => journal.go_on(file, length),
            _ => {
                journal.write_anew_over(length);
                drop(journal);
                self.flush();
            }
        }
    }

    /// Returns whether the directory is no longer the one that was locked.
    pub(super) fn is_replaced(&self) -> bool {
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(ours) = lock.as_ref().and_then(|lock| lock.status().ok()) else { return false };
        match self.file_system.status(&self.directory.join(LOCK_NAME)) {
            Ok(there) => there.identity != ours.identity,
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }

    /// Empties the index: somebody has removed or replaced the directory.
    pub(super) fn lose_directory(&self) {
        self.health.fail(Bypass::All, "looking at the directory", &"it was removed or replaced");
        let length = self.journal.lock().unwrap_or_else(PoisonError::into_inner).reset();
        *self.lock.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let mut accounting = self.accounting();
        accounting.forget_all();
        accounting.release_bytes(length);
    }
}

/// Reads the files and extents that the journal lists.
fn read_cache_files(records: &mut Records<'_>) -> BTreeMap<u32, CacheFile> {
    let mut cache_files: BTreeMap<u32, CacheFile> = BTreeMap::new();
    for record in records {
        match record {
            Record::File(file) => {
                if let Some(cache_file) = cache_file(&file) {
                    cache_files.entry(file.id).or_insert(cache_file);
                }
            }
            Record::Extents { id, presence, runs } => {
                if let Some(cache_file) = cache_files.get(&id) {
                    runs.for_each(|run| mark(cache_file, run, presence));
                }
            }
            Record::Gone(id) => drop(cache_files.remove(&id)),
        }
    }
    cache_files
}

fn cache_file(file: &FileRecord<'_>) -> Option<CacheFile> {
    let meta =
        ObjectMeta { name: file.name.to_owned(), size: file.size, etag: file.etag.to_owned() };
    let key = ObjectKey { store: file.store.to_owned(), meta };
    key.is_keepable().then(|| CacheFile::new(file.id, file.generation, Arc::new(key)))
}

/// Keeps one file of each object: where the record of a removal is lost, the later file is the live
/// one.
fn newest(cache_files: BTreeMap<u32, CacheFile>) -> impl Iterator<Item = CacheFile> {
    let mut ids = HashMap::new();
    for (id, cache_file) in &cache_files {
        ids.insert(Arc::clone(&cache_file.key), *id);
    }
    cache_files
        .into_values()
        .filter(move |cache_file| ids.get(&cache_file.key) == Some(&cache_file.id))
}

/// Checks that no other process uses a cache directory, which need not exist. Changes nothing.
///
/// # Errors
/// [`Error::Locked`] if so.
pub(crate) fn check_unused(directory: &Path) -> Result<(), Error> {
    let lock = match RealFileSystem.open(&directory.join(LOCK_NAME), OpenMode::Read) {
        Ok(lock) => lock,
        // There is none, or a cache could not open it either and would go on without a disk.
        Err(_) => return Ok(()),
    };
    match lock.lock() {
        Ok(false) => Err(locked_by(directory, lock.as_ref())),
        Ok(true) | Err(_) => Ok(()),
    }
}

fn locked_by(directory: &Path, lock: &dyn OpenFile) -> Error {
    let mut text = [0; 20];
    let count = read_full(lock, &mut text, 0).unwrap_or(0);
    let pid =
        std::str::from_utf8(&text[..count]).ok().and_then(|text| text.trim().parse::<u32>().ok());
    let who = pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
    let directory = directory.display();
    Error::Locked(format!(
        "cache directory {directory} is in use by {who}; expected a directory of its own for each \
         process"
    ))
}
