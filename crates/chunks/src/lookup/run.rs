//! Entries of some files, found by a hash table, or, if they are few, by a search of each index.
//!
//! A small run has no table: it would take a quarter of the memory of a small store, and a host has
//! thousands of them. That of a larger run uses open addressing in slots of 8 bytes. A slot holds,
//! from the top: a tag of the address's hash, the file's index in the run, the position in the
//! file's index. Files and positions get as many bits as this run needs, the tag gets the rest. If
//! the tag matches, the address in the file's index decides.

use std::sync::Arc;

use crate::{
    ChunkAddress, TableIndex,
    limits::{
        RUN_FILES_MAX, RUN_LOAD_ENTRIES, RUN_LOAD_SLOTS, SEARCHED_RUN_ENTRIES_MAX,
        SEARCHED_RUN_FILES_MAX,
    },
    lookup::hash::Seed,
};

/// Empty slot: its file would be the one after the last possible.
const EMPTY: u64 = u64::MAX;

// A file's index is below the power of two that its bits allow, so no entry is EMPTY; and some bits
// remain for the tag.
const _: () = assert!(u32::BITS + RUN_FILES_MAX.ilog2() + 1 < u64::BITS);

#[derive(Debug)]
pub(super) struct Run {
    /// Indexes in the order given. They are kept alive, so that a pointer identifies a file.
    indexes: Box<[Arc<TableIndex>]>,
    /// Hash table; without any slot, each index is searched.
    slots: Box<[u64]>,
    layout: Layout,
    entry_count: u64,
}

/// Number of bits of a slot that each field has.
#[derive(Clone, Copy, Debug)]
struct Layout {
    position_bits: u32,
    file_bits: u32,
}

impl Run {
    /// Builds a run over these files, at most [`RUN_FILES_MAX`]; where several hold a chunk, the
    /// earlier one wins.
    pub(super) fn new(indexes: Box<[Arc<TableIndex>]>, seed: Seed) -> Self {
        assert!(indexes.len() <= RUN_FILES_MAX, "more files than a slot has bits for");
        let entry_count = indexes.iter().map(|index| u64::from(index.chunk_count())).sum();
        let layout = Layout::of(&indexes);
        if indexes.len() <= SEARCHED_RUN_FILES_MAX && entry_count <= SEARCHED_RUN_ENTRIES_MAX {
            return Self { indexes, slots: Box::default(), layout, entry_count };
        }
        let slots = vec![EMPTY; slot_count(entry_count)].into();
        let mut run = Self { indexes, slots, layout, entry_count };
        for file in 0..run.indexes.len() {
            for position in 0..run.indexes[file].chunk_count() {
                run.insert(file, position, seed);
            }
        }
        run
    }

    fn insert(&mut self, file: usize, position: u32, seed: Seed) {
        let address = self.indexes[file].address(position);
        let hash = seed.hash(&address);
        if let Err(free) = self.probe(hash, &address) {
            self.slots[free] = self.layout.tag_of_hash(hash) | self.layout.entry(file, position);
        }
    }

    /// Returns the file, among those of the run, and the position of a chunk.
    pub(super) fn find(&self, hash: u64, address: &ChunkAddress) -> Option<(usize, u32)> {
        if self.slots.is_empty() {
            let found =
                |(file, index): (usize, &Arc<TableIndex>)| Some((file, index.find(address)?));
            return self.indexes.iter().enumerate().find_map(found);
        }
        self.probe(hash, address).ok()
    }

    /// Returns the chunk's entry, or the slot that it would have.
    fn probe(&self, hash: u64, address: &ChunkAddress) -> Result<(usize, u32), usize> {
        let tag = self.layout.tag_of_hash(hash);
        let mut slot = home(hash, self.slots.len());
        // There is always an empty slot: the load is below one.
        loop {
            let entry = self.slots[slot];
            if entry == EMPTY {
                return Err(slot);
            }
            if self.layout.tag_of_entry(entry) == tag {
                let (file, position) = self.layout.file_and_position(entry);
                if self.indexes[file].holds(position, address) {
                    return Ok((file, position));
                }
            }
            slot += 1;
            if slot == self.slots.len() {
                slot = 0;
            }
        }
    }

    pub(super) fn indexes(&self) -> &[Arc<TableIndex>] {
        &self.indexes
    }

    /// Returns the number of entries of its files, including copies.
    pub(super) fn entry_count(&self) -> u64 {
        self.entry_count
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        (size_of::<Self>() + size_of_val(&*self.slots) + size_of_val(&*self.indexes)) as u64
    }
}

impl Layout {
    fn of(indexes: &[Arc<TableIndex>]) -> Self {
        let entries = indexes.iter().map(|index| index.chunk_count()).max().unwrap_or_default();
        // One index more than there are, so that no index has all bits set.
        Self {
            position_bits: u32::BITS - entries.leading_zeros(),
            file_bits: usize::BITS - indexes.len().leading_zeros(),
        }
    }

    /// Returns the bits of a hash that a slot keeps: the low ones, because the high ones already
    /// determine the slot.
    fn tag_of_hash(self, hash: u64) -> u64 {
        hash << self.tag_shift()
    }

    fn tag_of_entry(self, entry: u64) -> u64 {
        entry >> self.tag_shift() << self.tag_shift()
    }

    fn tag_shift(self) -> u32 {
        self.position_bits + self.file_bits
    }

    fn entry(self, file: usize, position: u32) -> u64 {
        (file as u64) << self.position_bits | u64::from(position)
    }

    fn file_and_position(self, entry: u64) -> (usize, u32) {
        let field = |shift: u32, bits: u32| entry >> shift & ((1 << bits) - 1);
        let file = usize::try_from(field(self.position_bits, self.file_bits))
            .expect("fewer bits than a usize");
        (file, u32::try_from(field(0, self.position_bits)).expect("at most 32 bits"))
    }
}

/// Returns the number of slots, of which at least one is always empty.
fn slot_count(entry_count: u64) -> usize {
    let entries = usize::try_from(entry_count).expect("entries are in memory");
    (entries * RUN_LOAD_SLOTS).div_ceil(RUN_LOAD_ENTRIES) + 1
}

/// Returns the slot where the search for a hash begins: slots divide the range of all hashes
/// evenly.
fn home(hash: u64, slot_count: usize) -> usize {
    let slot = (u128::from(hash) * slot_count as u128) >> 64;
    usize::try_from(slot).expect("below the count of slots")
}
