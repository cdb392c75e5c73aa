//! Keys of which something waits or is under way.

use std::hash::{BuildHasher, Hash};
use std::ops::{Index, IndexMut};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use rapidhash::quality::SeedableState;
use rapidhash::v3::RapidSecrets;

use super::arena::{Arena, Id};
use super::entry::{EntryId, EntryMark};
use super::list::List;
use crate::request::Operation;

/// Marks ids of keys.
pub(super) enum KeyMark {}

pub(super) type KeyId = Id<KeyMark>;

/// All keys, found by hash. A key is hashed once, when a request for it comes.
pub(super) struct Keys<K> {
    secrets: RapidSecrets,
    table: HashTable<KeyId>,
    slots: Arena<KeySlot<K>, KeyMark>,
}

/// What is going on with one key.
///
/// What is under way came before everything that waits: it is some reads, or one write, or nothing.
pub(super) struct KeySlot<K> {
    pub key: K,
    pub hash: u64,
    /// Entries that wait, in order of arrival. Of neighbouring reads only the last takes further
    /// readers.
    pub waiting: List<EntryMark>,
    pub in_flight: InFlight,
}

/// What of a key is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InFlight {
    Nothing,
    Reads {
        count: usize,
        /// The one that left last, while it is under way.
        latest: Option<EntryId>,
    },
    Write,
}

impl<K: Eq + Hash> Keys<K> {
    pub fn new(seed: u64) -> Self {
        Self { secrets: RapidSecrets::seed(seed), table: HashTable::new(), slots: Arena::new() }
    }

    /// The slot of `key`, new if nothing is going on with it.
    #[inline]
    pub fn find_or_insert(&mut self, key: K) -> KeyId {
        let Self { secrets, table, slots } = self;
        let hash = SeedableState::custom(secrets.seed, &secrets.secrets).hash_one(&key);
        match table.entry(hash, |&id| slots[id].key == key, |&id| slots[id].hash) {
            Entry::Occupied(found) => *found.get(),
            Entry::Vacant(vacant) => {
                let id = slots.insert(KeySlot {
                    key,
                    hash,
                    waiting: List::new(),
                    in_flight: InFlight::Nothing,
                });
                vacant.insert(id);
                id
            }
        }
    }

    /// Forgets a key with which nothing is going on.
    #[inline]
    pub fn remove(&mut self, id: KeyId) {
        let slot = self.slots.remove(id);
        debug_assert!(slot.is_idle());
        if let Ok(found) = self.table.find_entry(slot.hash, |&other| other == id) {
            found.remove();
        }
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }
}

impl<K> KeySlot<K> {
    /// Whether nothing is going on with the key.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.in_flight == InFlight::Nothing
    }

    /// Whether the first that waits may leave: reads beside reads, a write alone.
    pub fn lets_leave(&self, operation: Operation) -> bool {
        match operation {
            Operation::Read => self.in_flight != InFlight::Write,
            Operation::Write => self.in_flight == InFlight::Nothing,
        }
    }
}

impl InFlight {
    /// After `entry` has left.
    pub fn and(self, operation: Operation, entry: EntryId) -> Self {
        let count = match self {
            Self::Reads { count, .. } => count + 1,
            Self::Nothing | Self::Write => 1,
        };
        match operation {
            Operation::Read => Self::Reads { count, latest: Some(entry) },
            Operation::Write => Self::Write,
        }
    }

    /// After `entry` was answered.
    pub fn without(self, entry: EntryId) -> Self {
        match self {
            Self::Reads { count, latest } if 1 < count => {
                Self::Reads { count: count - 1, latest: latest.filter(|&latest| latest != entry) }
            }
            Self::Nothing | Self::Reads { .. } | Self::Write => Self::Nothing,
        }
    }

    /// The read under way that a further reader may join.
    pub fn read(self) -> Option<EntryId> {
        match self {
            Self::Reads { latest, .. } => latest,
            Self::Nothing | Self::Write => None,
        }
    }
}

impl<K> Index<KeyId> for Keys<K> {
    type Output = KeySlot<K>;

    #[inline]
    fn index(&self, id: KeyId) -> &KeySlot<K> {
        &self.slots[id]
    }
}

impl<K> IndexMut<KeyId> for Keys<K> {
    #[inline]
    fn index_mut(&mut self, id: KeyId) -> &mut KeySlot<K> {
        &mut self.slots[id]
    }
}
