//! Table files that no version names any more, found by their names.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use busload_chunks::{FileId, FileKind};
use busload_objects::Object;
use tokio::sync::OnceCell;

use super::version_of;
use crate::{
    Error,
    layout::{Naming, OLD_GENERATION},
    limits::OLD_FILES_MAX,
    shared::Shared,
    view::Snapshot,
};

/// Names one version of a table file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileKey {
    pub id: FileId,
    pub kind: FileKind,
    pub version: u64,
}

/// One that was asked for, and its object once that was found.
#[derive(Debug, Default)]
pub(crate) struct OldFile {
    object: OnceCell<Arc<Object>>,
    is_gone: AtomicBool,
}

/// Those asked for lately, so that the store is asked about each of them once and not for every range of it.
#[derive(Debug, Default)]
pub(crate) struct OldFiles {
    /// Those used last come last.
    known: Mutex<VecDeque<(FileKey, Arc<OldFile>)>>,
}

/// Why there is no object.
enum Unfound {
    Missing,
    Error(Error),
}

impl OldFile {
    /// The object was replaced or removed: whoever comes next looks for it again.
    pub fn set_gone(&self) {
        self.is_gone.store(true, Relaxed);
    }
}

impl OldFiles {
    /// What is known of a file; whoever asks for the same one at the same time gets the same.
    fn get(&self, key: FileKey) -> Arc<OldFile> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let place = known.iter().position(|(other, _)| *other == key);
        let found = place.and_then(|place| known.remove(place));
        let found = found.map(|(_, file)| file).filter(|file| !file.is_gone.load(Relaxed));
        let file = found.unwrap_or_default();
        if OLD_FILES_MAX <= known.len() {
            known.pop_front();
        }
        known.push_back((key, file.clone()));
        file
    }

    /// Nothing is known of it, so it takes no place.
    fn forget(&self, file: &Arc<OldFile>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(_, other)| !Arc::ptr_eq(other, file));
    }
}

impl Shared {
    /// An object of this name in this version, if the store has one. One question to the store for all who ask at the same time.
    pub async fn old_file(
        &self,
        snapshot: &Snapshot,
        key: FileKey,
    ) -> Result<Option<(Arc<OldFile>, Arc<Object>)>, Error> {
        let file = self.old_files.get(key);
        match file.object.get_or_try_init(|| self.find_old_file(snapshot, key)).await {
            Ok(object) => Ok(Some((file.clone(), object.clone()))),
            Err(unfound) => {
                self.old_files.forget(&file);
                match unfound {
                    Unfound::Missing => Ok(None),
                    Unfound::Error(error) => Err(error),
                }
            }
        }
    }

    async fn find_old_file(&self, snapshot: &Snapshot, key: FileKey) -> Result<Arc<Object>, Unfound> {
        for name in names(snapshot, key) {
            let found = self.remote.head(&name).await.map_err(|error| Unfound::Error(error.into()))?;
            if let Some(meta) = found.filter(|meta| version_of(meta) == key.version) {
                return Ok(self.cache.object(&self.remote, &meta));
            }
        }
        Err(Unfound::Missing)
    }
}

/// Names that the object may have.
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
    fn those_used_last_are_remembered() {
        let files = OldFiles::default();
        let first = files.get(key(0));
        let second = files.get(key(1));
        for number in (2..).take(OLD_FILES_MAX - 2) {
            files.get(key(number));
        }
        assert!(Arc::ptr_eq(&files.get(key(0)), &first));
        files.get(key(u64::MAX));
        assert!(Arc::ptr_eq(&files.get(key(0)), &first), "it was used again");
        assert!(!Arc::ptr_eq(&files.get(key(1)), &second), "it had to go");
    }

    #[test]
    fn what_is_gone_or_forgotten_is_looked_for_again() {
        let files = OldFiles::default();
        let file = files.get(key(0));
        file.set_gone();
        let again = files.get(key(0));
        assert!(!Arc::ptr_eq(&again, &file));
        files.forget(&file);
        assert!(Arc::ptr_eq(&files.get(key(0)), &again), "that was another one");
        files.forget(&again);
        assert!(!Arc::ptr_eq(&files.get(key(0)), &again));
    }
}
