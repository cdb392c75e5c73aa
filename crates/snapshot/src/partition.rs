//! Partitions of the keys by hash, and the tables in which one is built.

use std::ops::RangeInclusive;

use busload_log::Lsn;
use busload_tables::{
    HashPrefix, KeyHash, Tables,
    effect::{self, ApplyError, EffectError, OpenParts, Replayer},
};

use crate::{format::Header, limits::PARTITION_BITS_MAX, prepare::push_groups};

/// Partitions of an older snapshot that hold the keys of one of a new snapshot.
pub(crate) struct Overlap {
    /// Numbers of these partitions.
    pub partitions: RangeInclusive<usize>,
    /// They hold no other keys.
    is_exact: bool,
}

impl Overlap {
    /// Finds the partitions with keys whose hashes, with this seed, have the prefix.
    pub fn new(older: &Header, seed: u64, wanted: HashPrefix) -> Self {
        let HashPrefix { bits, value } = wanted;
        let value = value as usize;
        if older.seed != seed {
            let partitions = 0..=(1 << older.partition_bits) - 1;
            return Self { partitions, is_exact: false };
        }
        match older.partition_bits.checked_sub(bits) {
            Some(finer) => {
                let partitions = value << finer..=((value + 1) << finer) - 1;
                Self { partitions, is_exact: true }
            }
            None => {
                let coarser = bits - older.partition_bits;
                Self { partitions: value >> coarser..=value >> coarser, is_exact: false }
            }
        }
    }
}

/// Partition of every record of the log, as the first reading found it: the readings that follow,
/// one for each partition, look only into the records that concern theirs.
pub(crate) struct RecordPartitions {
    /// Number of partitions, as a power of two.
    bits: u32,
    /// A byte for each record, the first ones only if there are very many.
    noted: Vec<u8>,
    /// Record before the first one noted.
    base: Lsn,
    /// Number of records of which the partition is noted.
    records_max: usize,
}

impl RecordPartitions {
    /// Stands for a record that concerns several partitions, or of which that is not known.
    const SEVERAL: u8 = u8::MAX;

    /// Prepares for records behind `base`.
    pub fn new(bits: u32, base: Lsn, records_max: usize) -> Self {
        Self { bits, noted: Vec::new(), base, records_max }
    }

    /// Notes the next record. `tables` hash its key.
    pub fn note(&mut self, record: &[u8], tables: &Tables) -> Result<(), EffectError> {
        if self.bits == 0 || self.records_max <= self.noted.len() {
            return Ok(());
        }
        let mut effects = effect::decode(record);
        let only = match (effects.next().transpose()?, effects.next()) {
            (Some(effect), None) => effect.key(),
            _ => None,
        };
        let partition = |key| HashPrefix::of(tables.hash(key), self.bits).value as u8;
        self.noted.push(only.map_or(Self::SEVERAL, partition));
        Ok(())
    }

    /// Returns in which way a record concerns a partition.
    pub fn concern(&self, record: Lsn, partition: u64) -> Concern {
        let at = usize::try_from(record.0 - self.base.0 - 1).unwrap_or(usize::MAX);
        match self.noted.get(at) {
            None | Some(&Self::SEVERAL) => Concern::Unknown,
            Some(&noted) if u64::from(noted) == partition => Concern::Whole,
            Some(_) => Concern::None,
        }
    }
}

/// Way in which a record concerns a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Concern {
    /// Its only effect is on a key of another partition.
    None,
    /// Its only effect is on a key of the partition.
    Whole,
    /// Its effects must be looked at one by one.
    Unknown,
}

const _: () = assert!(1 << PARTITION_BITS_MAX <= RecordPartitions::SEVERAL as usize);

/// Tables in which the keys of one partition are built from all records.
pub(crate) struct PartitionReplay<'t> {
    replayer: Replayer<'t>,
    /// Prefix of the hashes of the partition's keys.
    wanted: HashPrefix,
    /// Effects of a record that concern the partition.
    kept: Vec<u8>,
    parts: OpenParts,
}

impl<'t> PartitionReplay<'t> {
    pub fn new(tables: &'t mut Tables, wanted: HashPrefix) -> Self {
        let replayer = Replayer::new(tables);
        Self { replayer, wanted, kept: Vec::new(), parts: OpenParts::default() }
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

    /// Applies a record all of whose effects concern the partition.
    pub fn push_wanted(&mut self, record: &[u8]) -> Result<(), ApplyError> {
        self.replayer.push(record)
    }

    /// Applies effects all of which concern the partition.
    pub fn push_chunk(&mut self, effects: &[u8]) -> Result<(), ApplyError> {
        push_groups(&mut self.replayer, effects)
    }

    /// Applies what a block of an older snapshot holds of the partition.
    pub fn push_block(&mut self, block: &[u8], overlap: &Overlap) -> Result<(), ApplyError> {
        if overlap.is_exact { push_groups(&mut self.replayer, block) } else { self.push(block) }
    }

    fn is_wanted(&self, hash: KeyHash) -> bool {
        HashPrefix::of(hash, self.wanted.bits) == self.wanted
    }

    /// Applies what is still pending.
    pub fn finish(self) {
        self.replayer.finish();
    }
}
