//! One lookup over the indexes of many table files.
//!
//! A lookup is a few *runs*. A run is a hash table over the entries of some files, made once and
//! never changed, and shared by all lookups that have those files:
//!
//! ```text
//!   files given    f0 f1 f2 f3 ... f96 f97 | f98 ... f990 | f991 ...
//!   runs           [ 12,000 entries       ] [ 90,000     ] [ 4 million  ]
//! ```
//!
//! A new version of a store has a few more files than the last one, or some fewer. [`mod@plan`]
//! keeps the runs all of whose files are still there, and builds the rest anew, small neighbours
//! together, so that there are few runs at any time and an entry is hashed a few times in its life
//! instead of at each new version.
//!
//! The hash takes the whole address and is seeded, so nobody can make addresses that meet in it.

mod hash;
mod plan;
mod run;

use std::sync::Arc;

use crate::{ChunkAddress, TableIndex};
use hash::Seed;
use plan::{Part, plan};
use run::Run;

/// Where a chunk was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Index of the file among those given.
    pub file: u32,
    /// Position in its [`TableIndex`].
    pub position: u32,
}

/// One lookup over many files; immutable.
#[derive(Debug)]
pub struct Lookup {
    seed: Seed,
    /// In the order of their first files.
    members: Box<[Member]>,
    chunk_count: u64,
}

/// A run, and which of the given files its files are.
#[derive(Debug)]
struct Member {
    run: Arc<Run>,
    /// Ascending.
    files: Box<[u32]>,
}

impl Lookup {
    /// Over these files; where several hold a chunk, the earlier one wins. What `previous` has in
    /// common with them is not built again. Of a file that is given twice the first counts.
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

    /// Where a chunk is.
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

    /// Entries of all files together.
    pub fn chunk_count(&self) -> u64 {
        self.chunk_count
    }

    /// Bytes of memory beside those of the indexes.
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
