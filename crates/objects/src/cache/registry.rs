//! Objects in use, so that the same object gives the same handle.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use crate::{Object, ObjectMeta};

/// Store, name, version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    store: String,
    name: String,
    etag: String,
    size: u64,
}

/// Objects in use. Those that nobody has any more are swept out when the table has doubled since
/// the last sweep.
#[derive(Debug, Default)]
pub(super) struct Registry(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    objects: HashMap<Key, Weak<Object>>,
    /// Sweep when so many are there.
    sweep_at: usize,
}

impl Registry {
    /// The object that somebody has, or a new one.
    pub(super) fn get_or_insert(
        &self,
        store: &str,
        meta: &ObjectMeta,
        make: impl FnOnce() -> Arc<Object>,
    ) -> Arc<Object> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = Key::new(store, meta);
        if let Some(object) = entries.objects.get(&key).and_then(Weak::upgrade) {
            return object;
        }
        entries.sweep();
        let object = make();
        entries.objects.insert(key, Arc::downgrade(&object));
        object
    }

    /// Those in use of which the predicate is true.
    pub(super) fn in_use(&self, is_meant: impl Fn(&ObjectMeta) -> bool) -> Vec<Arc<Object>> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries
            .objects
            .values()
            .filter_map(Weak::upgrade)
            .filter(|object| is_meant(object.meta()))
            .collect()
    }
}

impl Entries {
    fn sweep(&mut self) {
        if self.objects.len() < self.sweep_at {
            return;
        }
        self.objects.retain(|_, object| 0 < object.strong_count());
        self.sweep_at = 2 * self.objects.len() + 16;
    }
}

impl Key {
    fn new(store: &str, meta: &ObjectMeta) -> Self {
        Self {
            store: store.into(),
            name: meta.name.clone(),
            etag: meta.etag.clone(),
            size: meta.size,
        }
    }
}
