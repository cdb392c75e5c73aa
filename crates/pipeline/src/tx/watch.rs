//! Keys watched by WATCH, and the connections that watch them.

use std::collections::{HashMap, HashSet};

use busload_io::ConnId;
use busload_tables::TableId;

use super::Key;

/// Keys being watched, and connections whose EXEC must fail.
#[derive(Debug, Default)]
pub struct Watches {
    by_key: HashMap<(TableId, Box<[u8]>), Vec<Watcher>>,
    by_conn: HashMap<ConnId, Watched>,
}

#[derive(Clone, Copy, Debug)]
struct Watcher {
    conn: ConnId,
    /// Says whether the key was there but expired when it was watched: its removal changes nothing.
    was_expired: bool,
    /// Says whether the key existed: then a flush changes it.
    existed: bool,
}

#[derive(Debug, Default)]
struct Watched {
    keys: HashSet<(TableId, Box<[u8]>)>,
    bytes: usize,
    changed: bool,
}

/// Memory of a watched key beyond its bytes, in each of the two maps it is in.
const WATCH_OVERHEAD_BYTES: usize = 64;

/// State of a key when it was watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchedState {
    /// The key was there and had not expired.
    Live,
    /// The key was there but had expired.
    Expired,
    /// The key was not there.
    Absent,
}

/// State of a key after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyIs {
    /// The key exists now.
    There,
    /// The key does not exist now.
    Gone,
}

impl Watches {
    /// Returns whether nobody watches anything.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Makes the connection watch the key from now on.
    pub fn watch(&mut self, conn: ConnId, key: &Key<'_>, state: WatchedState) {
        let name = (key.table, Box::from(key.bytes));
        let of_conn = self.by_conn.entry(conn).or_default();
        if !of_conn.keys.insert(name.clone()) {
            return;
        }
        of_conn.bytes += 2 * (key.bytes.len() + WATCH_OVERHEAD_BYTES);
        self.by_key.entry(name).or_default().push(Watcher {
            conn,
            was_expired: state == WatchedState::Expired,
            existed: state == WatchedState::Live,
        });
    }

    /// Returns the keys that the connection watches, each with whether it had expired already then.
    pub fn watched(&self, conn: ConnId) -> impl Iterator<Item = (TableId, &[u8], bool)> {
        self.by_conn.get(&conn).into_iter().flat_map(move |watched| {
            watched.keys.iter().map(move |name| {
                let was_expired = self.by_key.get(name).is_some_and(|watchers| {
                    watchers.iter().any(|watcher| watcher.conn == conn && watcher.was_expired)
                });
                (name.0, &*name.1, was_expired)
            })
        })
    }

    /// Returns how many keys the connection watches.
    pub fn key_count(&self, conn: ConnId) -> usize {
        self.by_conn.get(&conn).map_or(0, |watched| watched.keys.len())
    }

    /// Returns the approximate memory of the keys that the connection watches.
    pub fn memory_bytes(&self, conn: ConnId) -> usize {
        self.by_conn.get(&conn).map_or(0, |watched| watched.bytes)
    }

    /// Returns whether a watched key of the connection changed.
    pub fn changed(&self, conn: ConnId) -> bool {
        self.by_conn.get(&conn).is_some_and(|watched| watched.changed)
    }

    /// Forgets the keys that the connection watches.
    pub fn unwatch(&mut self, conn: ConnId) {
        let Some(watched) = self.by_conn.remove(&conn) else { return };
        for name in watched.keys {
            if let Some(watchers) = self.by_key.get_mut(&name) {
                watchers.retain(|watcher| watcher.conn != conn);
                if watchers.is_empty() {
                    self.by_key.remove(&name);
                }
            }
        }
    }

    /// Records that the key changed, and whether it is there now.
    pub fn key_changed(&mut self, key: &Key<'_>, now: KeyIs) {
        let Some(watchers) = self.by_key.get_mut(&(key.table, Box::from(key.bytes))) else {
            return;
        };
        for watcher in watchers {
            // To the watcher an expired key was absent, so its removal changes nothing.
            if std::mem::take(&mut watcher.was_expired) && now == KeyIs::Gone {
                continue;
            }
            if let Some(watched) = self.by_conn.get_mut(&watcher.conn) {
                watched.changed = true;
            }
        }
    }

    /// Records that these keys belong to another table from now on.
    pub fn keys_moved(&mut self, are_moved: impl Fn(TableId, &[u8]) -> bool) {
        let moved = |name: &(TableId, Box<[u8]>)| are_moved(name.0, &name.1);
        self.by_key.retain(|name, _| !moved(name));
        for watched in self.by_conn.values_mut() {
            let before = watched.keys.len();
            watched.keys.retain(|name| !moved(name));
            watched.changed |= watched.keys.len() != before;
        }
    }

    /// Records that the table lost all its keys.
    pub fn table_flushed(&mut self, table: TableId) {
        for ((of, _), watchers) in &self.by_key {
            for watcher in watchers.iter().filter(|watcher| *of == table && watcher.existed) {
                if let Some(watched) = self.by_conn.get_mut(&watcher.conn) {
                    watched.changed = true;
                }
            }
        }
    }
}
