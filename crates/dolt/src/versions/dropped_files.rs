//! Table files that no version names any more: found by their names, or remembered for what was
//! promised of them.

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
    limits::{OLD_FILES_MAX, PINNED_BYTES_MAX},
    shared::Shared,
    versions::object_names::{Naming, OLD_GENERATION},
    versions::table_file::{object_version::version_of, pinned_dictionaries::PinnedDictionaries},
    versions::version::{Snapshot, Version},
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
pub(crate) struct DroppedFile {
    object: OnceCell<Arc<Object>>,
    is_gone: AtomicBool,
    closed: Option<Arc<Closed>>,
}

/// What is left of a file that was open and whose dictionaries were told of.
#[derive(Debug)]
struct Closed {
    object: Arc<Object>,
    pins: Arc<PinnedDictionaries>,
}

/// Those asked for lately, so that the store is asked about each of them once and not for every
/// range of it.
#[derive(Debug, Default)]
pub(crate) struct DroppedFiles {
    /// Those used last come last.
    known: Mutex<Known>,
}

type Known = VecDeque<(FileKey, Arc<DroppedFile>)>;

/// Why there is no object.
enum Unfound {
    Missing,
    Error(Error),
}

impl DroppedFile {
    /// The object was replaced or removed: whoever comes next looks for it again.
    pub fn set_gone(&self) {
        self.is_gone.store(true, Relaxed);
    }

    /// A dictionary that was promised.
    pub fn pinned(&self, range: &Range<u64>) -> Option<Bytes> {
        self.closed.as_ref()?.pins.get(range)
    }

    /// The same one, not looked for yet.
    fn anew(&self) -> Self {
        Self { closed: self.closed.clone(), ..Self::default() }
    }

    fn pinned_bytes(&self) -> u64 {
        self.closed.as_ref().map_or(0, |closed| closed.pins.memory_bytes())
    }
}

impl DroppedFiles {
    /// What is known of a file; whoever asks for the same one at the same time gets the same.
    fn get(&self, key: FileKey) -> Arc<DroppedFile> {
        let mut known = self.lock();
        let file = match take(&mut known, key) {
            Some(file) if file.is_gone.load(Relaxed) => Arc::new(file.anew()),
            Some(file) => file,
            None => Arc::default(),
        };
        put(&mut known, key, file.clone());
        file
    }

    /// Nothing is known of it, so it takes no place.
    fn forget(&self, file: &Arc<DroppedFile>) {
        self.lock().retain(|(_, other)| !Arc::ptr_eq(other, file));
    }

    /// Remembers those files that are open in one version and not in the next, if dictionaries of
    /// them were told of: somebody may be about to ask for one.
    pub fn remember_closed(&self, before: &Version, after: &Version) {
        let open: HashSet<u64> = after.files().map(|file| file.serial).collect();
        for file in before.files().filter(|file| !open.contains(&file.serial)) {
            if file.pins.memory_bytes() == 0 {
                continue;
            }
            let closed = Arc::new(Closed { object: file.object.clone(), pins: file.pins.clone() });
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
    let place = known.iter().position(|(other, _)| *other == key)?;
    known.remove(place).map(|(_, file)| file)
}

/// As the one used last; the first ones have to go if there is no room.
fn put(known: &mut Known, key: FileKey, file: Arc<DroppedFile>) {
    known.push_back((key, file));
    let pinned = |known: &Known| known.iter().map(|(_, file)| file.pinned_bytes()).sum::<u64>();
    while OLD_FILES_MAX < known.len() || PINNED_BYTES_MAX < pinned(known) {
        known.pop_front();
    }
}

impl Shared {
    /// An object of this name in this version, if the store has one. One question to the store for
    /// all who ask at the same time.
    pub async fn old_file(
        &self,
        snapshot: &Snapshot,
        key: FileKey,
    ) -> Result<Option<(Arc<DroppedFile>, Arc<Object>)>, Error> {
        let file = self.old_files.get(key);
        match file.object.get_or_try_init(|| self.find_old_file(snapshot, key)).await {
            Ok(object) => Ok(Some((file.clone(), object.clone()))),
            Err(unfound) => {
                // Its dictionaries can be had; what else is asked of it fails.
                if let Some(closed) = &file.closed {
                    return Ok(Some((file.clone(), closed.object.clone())));
                }
                self.old_files.forget(&file);
                match unfound {
                    Unfound::Missing => Ok(None),
                    Unfound::Error(error) => Err(error),
                }
            }
        }
    }

    async fn find_old_file(
        &self,
        snapshot: &Snapshot,
        key: FileKey,
    ) -> Result<Arc<Object>, Unfound> {
        for name in names(snapshot, key) {
            let found =
                self.remote.head(&name).await.map_err(|error| Unfound::Error(error.into()))?;
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
        let files = DroppedFiles::default();
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
        let files = DroppedFiles::default();
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
