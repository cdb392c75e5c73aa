//! Table files that no version names any more. The store looks for their objects by name, and
//! remembers the dictionaries of those files that were open when clients were told of them.

use std::{
    collections::{HashSet, VecDeque},
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use busload_chunks::{FileId, FileKind};
use busload_objects::Object;
use bytes::Bytes;
use tokio::sync::OnceCell;

use crate::{
    Error,
    limits::{DROPPED_FILES_MAX, PINNED_BYTES_MAX},
    object_source::ObjectSource,
    versions::{
        object_names::{Naming, OLD_GENERATION},
        table_file::{object_version::version_of, pinned_dictionaries::PinnedDictionaries},
        version::{Snapshot, Version},
    },
};

/// Names one version of a table file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileKey {
    pub id: FileId,
    pub kind: FileKind,
    pub version: u64,
}

/// A dropped file that a client asked for, and its object once that was found.
#[derive(Debug, Default)]
pub(crate) struct DroppedFile {
    object: OnceCell<Arc<Object>>,
    is_gone: AtomicBool,
    closed: Option<Arc<ClosedFile>>,
}

/// Object and pinned dictionaries of a file that was open and is closed.
#[derive(Debug)]
struct ClosedFile {
    object: Arc<Object>,
    pinned: Arc<PinnedDictionaries>,
}

/// Dropped files of the latest requests, so that the object store is asked about each of them once
/// and not for every range.
#[derive(Debug, Default)]
pub(crate) struct DroppedFiles {
    /// Files in the order of their last use, the latest last.
    known: Mutex<Known>,
}

type Known = VecDeque<(FileKey, Arc<DroppedFile>)>;

/// Reason why no object was found.
enum NotFound {
    Missing,
    Error(Error),
}

impl DroppedFile {
    /// Notes that the object was replaced or removed: the next request looks for it again.
    pub fn set_gone(&self) {
        self.is_gone.store(true, Relaxed);
    }

    /// Returns bytes of a pinned dictionary.
    pub fn pinned(&self, range: &Range<u64>) -> Option<Bytes> {
        self.closed.as_ref()?.pinned.get(range)
    }

    /// Returns the same file, whose object has to be looked for again.
    fn unresolved(&self) -> Self {
        Self { closed: self.closed.clone(), ..Self::default() }
    }

    fn pinned_bytes(&self) -> u64 {
        self.closed.as_ref().map_or(0, |closed| closed.pinned.memory_bytes())
    }
}

impl DroppedFiles {
    /// Returns what is known of a file; concurrent requests for one file share it.
    fn get(&self, key: FileKey) -> Arc<DroppedFile> {
        let mut known = self.lock();
        let file = match take(&mut known, key) {
            Some(file) if file.is_gone.load(Relaxed) => Arc::new(file.unresolved()),
            Some(file) => file,
            None => Arc::default(),
        };
        put(&mut known, key, file.clone());
        file
    }

    /// Removes a file of which nothing is known.
    fn forget(&self, file: &Arc<DroppedFile>) {
        self.lock().retain(|(_, other)| !Arc::ptr_eq(other, file));
    }

    /// Remembers the files that are open in one version and not in the next, if their dictionaries
    /// were advertised: a client may be about to ask for one.
    pub fn remember_closed(&self, before: &Version, after: &Version) {
        let open: HashSet<u64> = after.files().map(|file| file.serial).collect();
        for file in before.files().filter(|file| !open.contains(&file.serial)) {
            if file.pinned.memory_bytes() == 0 {
                continue;
            }
            let closed =
                Arc::new(ClosedFile { object: file.object.clone(), pinned: file.pinned.clone() });
            let object = (!file.is_gone()).then(|| file.object.clone());
            let old = DroppedFile {
                object: OnceCell::new_with(object),
                closed: Some(closed),
                ..DroppedFile::default()
            };
            let key = FileKey { id: file.id, kind: file.kind, version: file.version() };
            let mut known = self.lock();
            take(&mut known, key);
            put(&mut known, key, Arc::new(old));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn take(known: &mut Known, key: FileKey) -> Option<Arc<DroppedFile>> {
    let index = known.iter().position(|(other, _)| *other == key)?;
    known.remove(index).map(|(_, file)| file)
}

/// Adds a file as the one used last, and removes the least recently used ones beyond the limits.
fn put(known: &mut Known, key: FileKey, file: Arc<DroppedFile>) {
    known.push_back((key, file));
    let pinned = |known: &Known| known.iter().map(|(_, file)| file.pinned_bytes()).sum::<u64>();
    while DROPPED_FILES_MAX < known.len() || PINNED_BYTES_MAX < pinned(known) {
        known.pop_front();
    }
}

impl DroppedFiles {
    /// Finds the object of this name and version, if the store has it. Concurrent callers share
    /// the request to the object store.
    pub async fn find(
        &self,
        source: &ObjectSource,
        snapshot: &Snapshot,
        key: FileKey,
    ) -> Result<Option<(Arc<DroppedFile>, Arc<Object>)>, Error> {
        let file = self.get(key);
        match file.object.get_or_try_init(|| find_object(source, snapshot, key)).await {
            Ok(object) => Ok(Some((file.clone(), object.clone()))),
            Err(not_found) => {
                // Its dictionaries are in memory; reads of other ranges fail.
                if let Some(closed) = &file.closed {
                    return Ok(Some((file.clone(), closed.object.clone())));
                }
                self.forget(&file);
                match not_found {
                    NotFound::Missing => Ok(None),
                    NotFound::Error(error) => Err(error),
                }
            }
        }
    }
}

async fn find_object(
    source: &ObjectSource,
    snapshot: &Snapshot,
    key: FileKey,
) -> Result<Arc<Object>, NotFound> {
    for name in names(snapshot, key) {
        let found =
            source.remote.head(&name).await.map_err(|error| NotFound::Error(error.into()))?;
        if let Some(meta) = found.filter(|meta| version_of(meta) == key.version) {
            return Ok(source.object(&meta));
        }
    }
    Err(NotFound::Missing)
}

/// Lists the names that the object may have.
fn names(snapshot: &Snapshot, key: FileKey) -> impl Iterator<Item = String> {
    let naming = snapshot.naming;
    let has_old = naming == Naming::Plain && snapshot.old_generation.is_some();
    let folders = [Some(""), has_old.then_some(OLD_GENERATION)];
    folders.into_iter().flatten().map(move |folder| naming.table_file(folder, &key.id, key.kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> FileKey {
        FileKey { id: FileId([7; 20]), kind: FileKind::Archive, version: number }
    }

    #[test]
    fn the_files_used_last_are_remembered() {
        let files = DroppedFiles::default();
        let first = files.get(key(0));
        let second = files.get(key(1));
        for number in (2..).take(DROPPED_FILES_MAX - 2) {
            files.get(key(number));
        }
        assert!(Arc::ptr_eq(&files.get(key(0)), &first));
        files.get(key(u64::MAX));
        assert!(Arc::ptr_eq(&files.get(key(0)), &first), "it was used again");
        assert!(
            !Arc::ptr_eq(&files.get(key(1)), &second),
            "the least recently used file is forgotten"
        );
    }

    #[test]
    fn a_file_that_is_gone_or_forgotten_is_looked_for_again() {
        let files = DroppedFiles::default();
        let file = files.get(key(0));
        file.set_gone();
        let again = files.get(key(0));
        assert!(!Arc::ptr_eq(&again, &file));
        files.forget(&file);
        assert!(Arc::ptr_eq(&files.get(key(0)), &again), "the other file was forgotten");
        files.forget(&again);
        assert!(!Arc::ptr_eq(&files.get(key(0)), &again));
    }
}
