//! Decides which runs of a lookup are kept, and for which files a new run is built.

use std::{hash::RandomState, sync::Arc};

use hashbrown::HashMap;

use crate::{
    TableIndex, be,
    limits::{RUN_ENTRIES_MIN, RUN_FILES_MAX, RUN_GROWTH},
    lookup::run::Run,
};

/// Some of the given files, and the run over them if it exists already.
#[derive(Debug)]
pub(super) struct Part<'a> {
    pub(super) run: Option<&'a Arc<Run>>,
    /// Indexes of the files, ascending; at least one.
    pub(super) files: Vec<u32>,
    entry_count: u64,
}

/// Returns parts that hold each file once, in the order of their first files.
///
/// A run is kept if all its files are still there in the same order. It does not hold copies of
/// chunks that earlier files of its own have, so it is useless once one of its files is gone.
pub(super) fn plan<'a>(
    files: &[Arc<TableIndex>],
    known: impl Iterator<Item = &'a Arc<Run>>,
) -> Vec<Part<'a>> {
    let mut ordinals = HashMap::with_capacity_and_hasher(files.len(), RandomState::new());
    for (ordinal, file) in files.iter().enumerate() {
        let ordinal = u32::try_from(ordinal).expect("fewer than 2^32 files");
        ordinals.entry(Arc::as_ptr(file)).or_insert(ordinal);
    }
    let mut parts = Vec::new();
    for run in known {
        let kept: Option<Vec<u32>> =
            run.indexes().iter().map(|index| ordinals.get(&Arc::as_ptr(index)).copied()).collect();
        if let Some(kept) = kept.filter(|kept| kept.is_sorted()) {
            for index in run.indexes() {
                ordinals.remove(&Arc::as_ptr(index));
            }
            parts.push(Part { run: Some(run), files: kept, entry_count: run.entry_count() });
        }
    }
    let mut new: Vec<u32> = ordinals.into_values().collect();
    new.sort_unstable();
    parts.extend(new.chunks(RUN_FILES_MAX).map(|new| Part {
        run: None,
        files: new.to_vec(),
        entry_count:
            new.iter().map(|&file| u64::from(files[be::to_usize(file)].chunk_count())).sum(),
    }));
    merge(&mut parts);
    parts.sort_unstable_by_key(|part| part.files[0]);
    parts
}

/// Joins parts of similar sizes until there are none: then each is several times larger than the
/// one before, so there are few.
fn merge(parts: &mut Vec<Part<'_>>) {
    loop {
        parts.sort_by_key(|part| part.entry_count);
        let Some(smaller) = parts.windows(2).position(|pair| pair[0].joins(&pair[1])) else {
            return;
        };
        let other = parts.remove(smaller + 1);
        parts[smaller].join(other);
    }
}

impl Part<'_> {
    /// Returns whether one run is better than two.
    fn joins(&self, larger: &Self) -> bool {
        let small = self.entry_count + larger.entry_count <= RUN_ENTRIES_MIN;
        let similar = larger.entry_count <= self.entry_count * RUN_GROWTH;
        (small || similar) && self.files.len() + larger.files.len() <= RUN_FILES_MAX
    }

    fn join(&mut self, other: Self) {
        self.run = None;
        self.entry_count += other.entry_count;
        self.files.extend(other.files);
        self.files.sort_unstable();
    }
}
