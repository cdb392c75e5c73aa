//! One lookup over the indexes of many table files.
//!
//! A lookup is a few *runs*. A run finds the entries of some files: by a hash table, or, if they
//! are few, by a search of each index. It is built once, never changed, and shared by all lookups
//! that have those files:
//!
//! ```text
//!   files given    f0 f1 f2 f3 ... f96 f97 | f98 ... f990 | f991 ...
//!   runs           [ 12,000 entries       ] [ 90,000     ] [ 4 million  ]
//! ```
//!
//! A new version of a store has a few more files than the last one, or a few less. [`mod@plan`]
//! keeps the runs whose files are all still there and builds the rest anew, with small neighbours
//! joined. So there are few runs at any time, and an entry is hashed a few times in its life
//! instead of once per version.
//!
//! The hash covers the whole address and is seeded, so nobody can construct addresses that collide.
//! A search goes through entries of equal prefixes one by one, of which a file has only so many.

mod hash;
mod plan;
mod run;

use std::sync::Arc;

use crate::{ChunkAddress, TableIndex};
use hash::Seed;
use plan::{Part, plan};
use run::Run;

/// File and position at which a chunk was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Index of the file among those given.
    pub file: u32,
    /// Position in the file's [`TableIndex`].
    pub position: u32,
}

/// Immutable lookup over many files.
#[derive(Debug)]
pub struct Lookup {
    seed: Seed,
    /// Runs, in the order of their first files.
    members: Box<[Member]>,
    chunk_count: u64,
}

/// Run with the indexes of its files among the given ones.
#[derive(Debug)]
struct Member {
    run: Arc<Run>,
    /// Indexes of the run's files, ascending.
    files: Box<[u32]>,
}

impl Lookup {
    /// Builds a lookup over these files; where several hold a chunk, the earlier one wins. Runs
    /// that `previous` has for the same files are reused. If a file is given twice, the first
    /// counts.
    ///
    /// # Panics
    /// If there are 2^32 files.
    pub fn new(files: &[Arc<TableIndex>], previous: Option<&Self>) -> Self {
        let seed = previous.map_or_else(Seed::random, |previous| previous.seed);
        let known = previous.map_or(&[][..], |previous| &previous.members);
        let parts = plan(files, known.iter().map(|member| &member.run));
        let members: Box<[Member]> =
            parts.into_iter().map(|part| Member::new(part, files, seed)).collect();
        let chunk_count = members.iter().map(|member| member.run.entry_count()).sum();
        Self { seed, members, chunk_count }
    }

    /// Finds the file and the position of a chunk.
    pub fn find(&self, address: &ChunkAddress) -> Option<Found> {
        let hash = self.seed.hash(address);
        let mut best: Option<Found> = None;
        for member in &self.members {
            if best.is_some_and(|best| best.file < member.files[0]) {
                break;
            }
            if let Some((file, position)) = member.run.find(hash, address) {
                let found = Found { file: member.files[file], position };
                best = best.filter(|best| best.file < found.file).or(Some(found));
            }
        }
        best
    }

    /// Returns the number of entries of all files together.
    pub fn chunk_count(&self) -> u64 {
        self.chunk_count
    }

    /// Returns the memory that it takes besides the indexes, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let of = |member: &Member| member.run.memory_bytes() + size_of_val(&*member.files) as u64;
        size_of::<Self>() as u64
            + self.members.iter().map(|member| size_of::<Member>() as u64 + of(member)).sum::<u64>()
    }
}

impl Member {
    fn new(part: Part<'_>, files: &[Arc<TableIndex>], seed: Seed) -> Self {
        let run = match part.run {
            Some(run) => run.clone(),
            None => {
                let indexes =
                    part.files.iter().map(|&file| files[crate::be::to_usize(file)].clone());
                Arc::new(Run::new(indexes.collect(), seed))
            }
        };
        Self { run, files: part.files.into() }
    }
}

#[cfg(test)]
mod tests;
