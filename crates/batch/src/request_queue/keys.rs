//! Keys with pending entries or entries in flight.

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

/// Marker of key ids.
pub(super) enum KeyMark {}

pub(super) type KeyId = Id<KeyMark>;

/// Hash table of keys. Each request hashes its key once, on arrival.
pub(super) struct Keys<K> {
    secrets: RapidSecrets,
    table: HashTable<KeyId>,
    slots: Arena<KeySlot<K>, KeyMark>,
}

/// State of one key.
///
/// What is in flight arrived before everything that is pending: some reads, or one write, or
/// nothing.
pub(super) struct KeySlot<K> {
    pub key: K,
    pub hash: u64,
    /// Pending entries, in order of arrival. Of neighbouring reads only the last accepts further
    /// waiters.
    pub waiting: List<EntryMark>,
    pub in_flight: InFlight,
}

/// Entries of a key that are in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InFlight {
    Nothing,
    Reads {
        count: usize,
        /// The entry that was sent last, while it is in flight.
        latest: Option<EntryId>,
    },
    Write,
}

impl<K: Eq + Hash> Keys<K> {
    pub fn new(seed: u64) -> Self {
        Self { secrets: RapidSecrets::seed(seed), table: HashTable::new(), slots: Arena::new() }
    }

    /// Returns the slot of `key`, a new one if the key is idle.
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

    /// Removes an idle key.
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
    /// Returns whether the key has nothing pending and nothing in flight.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.in_flight == InFlight::Nothing
    }

    /// Returns whether the first pending entry may be sent: a read beside reads, a write alone.
    pub fn may_dispatch(&self, operation: Operation) -> bool {
        match operation {
            Operation::Read => self.in_flight != InFlight::Write,
            Operation::Write => self.in_flight == InFlight::Nothing,
        }
    }
}

impl InFlight {
    /// Returns the state after `entry` was sent.
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

    /// Returns the state after `entry` was answered.
    pub fn without(self, entry: EntryId) -> Self {
        match self {
            Self::Reads { count, latest } if 1 < count => {
                Self::Reads { count: count - 1, latest: latest.filter(|&latest| latest != entry) }
            }
            Self::Nothing | Self::Reads { .. } | Self::Write => Self::Nothing,
        }
    }

    /// Returns the read in flight that a new read may join.
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
