//! Contents of one file, visible and durable. The fault model of the parent module states the
//! rules.

use std::collections::BTreeMap;

use super::CrashKind;
use crate::sim::SimRng;

/// Unit that a disk writes whole or not at all.
pub(super) const SECTOR_BYTES: usize = 512;

/// Returns how much of a write of `bytes` bytes is written when it fails.
pub(super) fn half_of_sectors(bytes: usize) -> usize {
    bytes / 2 / SECTOR_BYTES * SECTOR_BYTES
}

#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    visible: Vec<u8>,
    durable: Vec<u8>,
    /// Changes since the last successful sync, in order.
    unsynced: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Change {
    Write {
        offset: usize,
        bytes: Vec<u8>,
        /// Set by a failed sync: the system now believes that the change is durable.
        lost: bool,
    },
    Length(usize),
}

fn apply_write(bytes: &mut Vec<u8>, offset: usize, written: &[u8]) {
    let end = offset + written.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset..end].copy_from_slice(written);
}

impl Contents {
    pub(super) fn durable_from(contents: &[u8]) -> Self {
        Self { visible: contents.to_vec(), durable: contents.to_vec(), unsynced: Vec::new() }
    }

    pub(super) fn visible(&self) -> &[u8] {
        &self.visible
    }

    pub(super) fn durable(&self) -> &[u8] {
        &self.durable
    }

    pub(super) fn write(&mut self, offset: u64, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            let offset = usize::try_from(offset).expect("simulated files fit into memory");
            apply_write(&mut self.visible, offset, &bytes);
            self.unsynced.push(Change::Write { offset, bytes, lost: false });
        }
    }

    pub(super) fn set_length(&mut self, length: u64) {
        let length = usize::try_from(length).expect("simulated files fit into memory");
        self.visible.resize(length, 0);
        self.unsynced.push(Change::Length(length));
    }

    pub(super) fn sync(&mut self) {
        let durable = std::mem::take(&mut self.durable);
        self.durable = self.with_known(durable);
        self.unsynced.clear();
    }

    pub(super) fn fail_sync(&mut self) {
        for change in &mut self.unsynced {
            if let Change::Write { lost, .. } = change {
                *lost = true;
            }
        }
    }

    pub(super) fn evict(&mut self) {
        self.visible = self.with_known(self.durable.clone());
    }

    /// Applies the changes still known to be unsynced, but not the lost ones, to the durable bytes.
    /// The length is the visible one: it belongs to the journal, not to a page.
    fn with_known(&self, mut durable: Vec<u8>) -> Vec<u8> {
        for change in &self.unsynced {
            match change {
                Change::Write { lost: true, .. } => {}
                Change::Write { offset, bytes, lost: false } => {
                    apply_write(&mut durable, *offset, bytes)
                }
                Change::Length(length) => durable.resize(*length, 0),
            }
        }
        durable.resize(self.visible.len(), 0);
        durable
    }

    pub(super) fn flip_bit(&mut self, at: u64, bit: u8) {
        let at = usize::try_from(at).expect("simulated files fit into memory");
        let mask = 1 << bit;
        self.visible[at] ^= mask;
        if let Some(byte) = self.durable.get_mut(at) {
            *byte ^= mask;
        }
        for change in &mut self.unsynced {
            if let Change::Write { offset, bytes, .. } = change
                && let Some(byte) = at.checked_sub(*offset).and_then(|at| bytes.get_mut(at))
            {
                *byte ^= mask;
            }
        }
    }

    pub(super) fn after_crash(&self, rng: &mut SimRng, kind: CrashKind) -> Self {
        match kind {
            CrashKind::DropUnsynced => Self::durable_from(&self.durable),
            CrashKind::AnySubset => Self::durable_from(&self.any_subset(rng)),
            CrashKind::KeepAll => self.clone(),
        }
    }

    fn any_subset(&self, rng: &mut SimRng) -> Vec<u8> {
        let changes = self.surviving_cuts(rng);
        // Each file has a survival rate of its own, so that all, almost all, few and none are all
        // common outcomes.
        let eighths = rng.below(9);
        let survivors = surviving_sector_writes(&changes, rng, eighths);
        let length = surviving_length(self.durable.len(), &changes, rng, eighths);
        let mut left = self.durable.clone();
        let mut passed: BTreeMap<usize, u32> = BTreeMap::new();
        for change in &changes {
            match change {
                Survivor::Write { offset, bytes } => {
                    for (sector, at, part) in sectors_of(*offset, bytes) {
                        let ordinal = passed.entry(sector).or_default();
                        if *ordinal < survivors[&sector] {
                            apply_write(&mut left, at, part);
                        }
                        *ordinal += 1;
                    }
                }
                Survivor::Cut(length) => left.truncate(*length),
                Survivor::Extension(_) => {}
            }
        }
        left.resize(length, 0);
        left
    }

    /// Decides which cuts survive and clips the writes behind those that do not.
    fn surviving_cuts(&self, rng: &mut SimRng) -> Vec<Survivor<'_>> {
        let mut length = self.durable.len();
        // Length of the first cut that did not survive; nothing can be written from there on.
        let mut clip = usize::MAX;
        let mut survivors = Vec::new();
        for change in &self.unsynced {
            match change {
                Change::Write { offset, bytes, .. } => {
                    let bytes = &bytes[..bytes.len().min(clip.saturating_sub(*offset))];
                    if !bytes.is_empty() {
                        length = length.max(offset + bytes.len());
                        survivors.push(Survivor::Write { offset: *offset, bytes });
                    }
                }
                Change::Length(cut) if clip == usize::MAX && *cut < length => {
                    if rng.chance(1, 2) {
                        length = *cut;
                        survivors.push(Survivor::Cut(*cut));
                    } else {
                        clip = *cut;
                    }
                }
                Change::Length(cut) if clip == usize::MAX => {
                    length = *cut;
                    survivors.push(Survivor::Extension(*cut));
                }
                Change::Length(cut) => clip = clip.min(*cut),
            }
        }
        survivors
    }
}

/// Change that may have reached the disk.
enum Survivor<'a> {
    Write {
        offset: usize,
        bytes: &'a [u8],
    },
    /// A truncation to this smaller length, which certainly survives.
    Cut(usize),
    /// An extension to this length, as likely to survive as a write.
    Extension(usize),
}

/// Yields the sectors that a write touches: the sector, the offset of the part in it, the part.
fn sectors_of(offset: usize, bytes: &[u8]) -> impl Iterator<Item = (usize, usize, &[u8])> {
    let end = offset + bytes.len();
    (offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES)).map(move |sector| {
        let from = offset.max(sector * SECTOR_BYTES);
        let to = end.min((sector + 1) * SECTOR_BYTES);
        (sector, from, &bytes[from - offset..to - offset])
    })
}

/// Returns for each touched sector how many of its writes survive: a prefix, because the page that
/// they go through only gets newer.
fn surviving_sector_writes(
    changes: &[Survivor<'_>],
    rng: &mut SimRng,
    eighths: u64,
) -> BTreeMap<usize, u32> {
    let mut counts: BTreeMap<usize, u32> = BTreeMap::new();
    for change in changes {
        if let Survivor::Write { offset, bytes } = change {
            for (sector, ..) in sectors_of(*offset, bytes) {
                *counts.entry(sector).or_default() += 1;
            }
        }
    }
    for count in counts.values_mut() {
        if !rng.chance(eighths, 8) {
            *count = u32::try_from(rng.below(u64::from(*count))).expect("below a u32");
        }
    }
    counts
}

/// Returns one of the lengths that the file had since its last surviving cut, or a sector's end
/// between two of them.
fn surviving_length(
    durable: usize,
    changes: &[Survivor<'_>],
    rng: &mut SimRng,
    eighths: u64,
) -> usize {
    let mut lengths = vec![durable];
    for change in changes {
        let last = lengths[lengths.len() - 1];
        match change {
            Survivor::Cut(cut) => lengths = vec![*cut],
            Survivor::Extension(length) => lengths.push(last.max(*length)),
            Survivor::Write { offset, bytes } => lengths.push(last.max(offset + bytes.len())),
        }
    }
    let last = lengths.len() - 1;
    if rng.chance(eighths, 8) {
        return lengths[last];
    }
    let chosen = rng.index(lengths.len());
    let (low, high) = (lengths[chosen], lengths[last.min(chosen + 1)]);
    let first_sector = low.div_ceil(SECTOR_BYTES);
    let ends_between = (high / SECTOR_BYTES + 1).saturating_sub(first_sector);
    if 0 < ends_between && rng.chance(1, 2) {
        return (first_sector + rng.index(ends_between)) * SECTOR_BYTES;
    }
    low
}
