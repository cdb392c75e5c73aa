//! Partitions of the keys by hash, and the tables in which one is built.

use busload_tables::{
    KeyHash, Tables,
    effect::{self, ApplyError, OpenParts, Replayer},
};

use crate::format::Header;

/// Returns the partitions of an older snapshot that hold keys of partition `wanted` of the new one.
pub(crate) fn overlapping(
    older: &Header,
    new: &Header,
    wanted: usize,
) -> std::ops::RangeInclusive<usize> {
    if older.seed != new.seed {
        return 0..=(1 << older.partition_bits) - 1;
    }
    match older.partition_bits.checked_sub(new.partition_bits) {
        Some(finer) => wanted << finer..=((wanted + 1) << finer) - 1,
        None => {
            let coarser = new.partition_bits - older.partition_bits;
            wanted >> coarser..=wanted >> coarser
        }
    }
}

/// Tables in which the keys of one partition are built from all records.
pub(crate) struct PartitionReplay<'t> {
    replayer: Replayer<'t>,
    /// Number of partitions, as a power of two, and that of this one: the first bits of the keys'
    /// hashes.
    bits: u32,
    wanted: u64,
    /// Effects of a record that concern the partition.
    kept: Vec<u8>,
    parts: OpenParts,
}

impl<'t> PartitionReplay<'t> {
    pub fn new(tables: &'t mut Tables, bits: u32, wanted: usize) -> Self {
        let (replayer, wanted) = (Replayer::new(tables), wanted as u64);
        Self { replayer, bits, wanted, kept: Vec::new(), parts: OpenParts::default() }
    }

    /// Applies the effects of a record that concern the partition.
    pub fn push(&mut self, record: &[u8]) -> Result<(), ApplyError> {
        if !effect::is_part(record) {
            return self.push_whole(record);
        }
        match self.parts.join(record)? {
            Some(whole) => self.push_whole(&whole),
            None => Ok(()),
        }
    }

    fn push_whole(&mut self, record: &[u8]) -> Result<(), ApplyError> {
        self.kept.clear();
        let mut effects = effect::decode(record);
        loop {
            let start = effects.offset();
            let Some(effect) = effects.next().transpose()? else { break };
            // Changes of whole tables concern every partition.
            if effect.key().is_none_or(|key| self.is_wanted(self.replayer.hash(key))) {
                let end = effects.offset();
                if end - start == record.len() {
                    return self.replayer.push(record);
                }
                self.kept.extend_from_slice(&record[start..end]);
            }
        }
        if self.kept.is_empty() { Ok(()) } else { self.replayer.push(&self.kept) }
    }

    fn is_wanted(&self, KeyHash(hash): KeyHash) -> bool {
        self.bits == 0 || hash >> (u64::BITS - self.bits) == self.wanted
    }

    /// Applies what is still pending.
    pub fn finish(self) {
        self.replayer.finish();
    }
}
