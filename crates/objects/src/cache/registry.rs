//! Objects in use, so that the same object gives the same handle.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use crate::{Object, ObjectMeta, disk::ObjectKey};

/// Objects in use. Entries whose object is dropped go when the table has doubled since the last
/// sweep.
#[derive(Debug, Default)]
pub(super) struct Registry(Mutex<RegistryEntries>);

#[derive(Debug, Default)]
struct RegistryEntries {
    objects: HashMap<ObjectKey, Weak<Object>>,
    /// Number of entries at which the next sweep happens.
    sweep_at: usize,
}

impl Registry {
    /// Returns the object that somebody has, or makes one.
    pub(super) fn get_or_insert(
        &self,
        store: &str,
        meta: &ObjectMeta,
        make: impl FnOnce() -> Arc<Object>,
    ) -> Arc<Object> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = ObjectKey { store: store.to_owned(), meta: meta.clone() };
        if let Some(object) = entries.objects.get(&key).and_then(Weak::upgrade) {
            return object;
        }
        entries.sweep();
        let object = make();
        entries.objects.insert(key, Arc::downgrade(&object));
        object
    }

    /// Objects in use for which the predicate is true.
    pub(super) fn in_use(&self, is_meant: impl Fn(&ObjectKey) -> bool) -> Vec<Arc<Object>> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries
            .objects
            .iter()
            .filter(|(key, _)| is_meant(key))
            .filter_map(|(_, object)| object.upgrade())
            .collect()
    }
}

impl RegistryEntries {
    fn sweep(&mut self) {
        if self.objects.len() < self.sweep_at {
            return;
        }
        self.objects.retain(|_, object| 0 < object.strong_count());
        self.sweep_at = 2 * self.objects.len() + 16;
    }
}
