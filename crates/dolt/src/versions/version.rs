//! Versions of the store as requests see them.

use std::{collections::HashSet, sync::Arc, time::Duration};

use busload_chunks::{ChunkAddress, FileSpec, Lookup, Manifest, TableIndex};
use tokio::time::Instant;

use crate::{versions::object_names::Naming, versions::table_file::TableFile};

/// One version of the store: root and files belong together.
#[derive(Debug)]
pub struct Snapshot {
    /// As read; empty where there is none.
    pub manifest: Manifest,
    /// Whether the store has a manifest. Without one it is an empty store, or not the one that was
    /// meant.
    pub has_manifest: bool,
    /// Of the old generation of a local store, whose files are part of it.
    pub old_generation: Option<Manifest>,
    /// In the order of lookup.
    pub files: Vec<Arc<TableFile>>,
    /// Of the objects.
    pub(crate) naming: Naming,
}

impl Snapshot {
    /// Entries of all files together; a chunk in two files counts twice.
    pub fn chunk_count(&self) -> u64 {
        self.files.iter().map(|file| u64::from(file.index.chunk_count())).sum()
    }

    /// Bytes of all files together.
    pub fn file_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.object.meta().size).sum()
    }

    /// What the manifests say of the files, in the order of lookup.
    pub fn specs(&self) -> impl Iterator<Item = FileSpec> {
        self.manifest
            .lookup_order()
            .chain(self.old_generation.iter().flat_map(Manifest::lookup_order))
    }
}

/// Where a chunk is.
#[derive(Clone, Debug)]
pub(crate) struct ChunkCopy {
    pub file: Arc<TableFile>,
    pub position: u32,
}

/// The current version, and files that were dropped lately: somebody may still hold an older root.
#[derive(Debug)]
pub(crate) struct Version {
    pub snapshot: Arc<Snapshot>,
    lookup: Lookup,
    dropped: Option<Arc<Dropped>>,
}

#[derive(Debug)]
struct Dropped {
    files: Vec<Arc<TableFile>>,
    /// When each is let go.
    until: Vec<Instant>,
    lookup: Lookup,
}

impl Version {
    /// The first version, or one after another. What the other had and this has not stays readable
    /// for `grace_period`.
    pub fn new(
        snapshot: Snapshot,
        previous: Option<&Self>,
        now: Instant,
        grace_period: Duration,
    ) -> Self {
        let lookup =
            Lookup::new(&indexes(&snapshot.files), previous.map(|version| &version.lookup));
        let dropped =
            previous.and_then(|version| version.dropped_after(&snapshot, now, grace_period));
        Self { snapshot: Arc::new(snapshot), lookup, dropped }
    }

    /// Where a chunk is, without touching the count of who holds the file.
    pub fn find(&self, address: &ChunkAddress) -> Option<(&Arc<TableFile>, u32)> {
        let found = find(&self.lookup, &self.snapshot.files, address);
        found.or_else(|| {
            let dropped = self.dropped.as_ref()?;
            find(&dropped.lookup, &dropped.files, address)
        })
    }

    pub fn place(&self, address: &ChunkAddress) -> Option<ChunkCopy> {
        self.find(address).map(|(file, position)| ChunkCopy { file: file.clone(), position })
    }

    /// Every file that can be read: those of the version, then those dropped lately.
    pub fn files(&self) -> impl Iterator<Item = &Arc<TableFile>> {
        self.snapshot.files.iter().chain(self.dropped.iter().flat_map(|dropped| &dropped.files))
    }

    /// MemoryCache for indexes and lookups.
    pub fn memory_bytes(&self) -> u64 {
        let files: u64 = self.files().map(|file| file.memory_bytes()).sum();
        files
            + self.lookup.memory_bytes()
            + self.dropped.as_ref().map_or(0, |dropped| dropped.lookup.memory_bytes())
    }

    /// When the next file dropped is let go.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.dropped.as_ref().and_then(|dropped| dropped.until.iter().min().copied())
    }

    /// Whether a file dropped lately is to be let go: its time is over, or its object is no longer
    /// there.
    pub fn has_expired(&self, now: Instant) -> bool {
        self.dropped_files().any(|(file, until)| until <= now || file.is_gone())
    }

    /// The same version without the files whose time is over.
    pub fn without_expired(&self, now: Instant) -> Self {
        let kept =
            self.dropped_files().filter(|(file, until)| now < *until && !file.is_gone()).collect();
        Self {
            snapshot: self.snapshot.clone(),
            lookup: Lookup::new(&indexes(&self.snapshot.files), Some(&self.lookup)),
            dropped: self
                .dropped
                .as_ref()
                .and_then(|dropped| Dropped::new(kept, Some(&dropped.lookup))),
        }
    }

    fn dropped_files(&self) -> impl Iterator<Item = (Arc<TableFile>, Instant)> {
        let dropped = self.dropped.iter();
        dropped.flat_map(|dropped| dropped.files.iter().cloned().zip(dropped.until.iter().copied()))
    }

    fn dropped_after(
        &self,
        next: &Snapshot,
        now: Instant,
        grace_period: Duration,
    ) -> Option<Arc<Dropped>> {
        let next: HashSet<u64> = next.files.iter().map(|file| file.serial).collect();
        let is_wanted = |file: &Arc<TableFile>| !next.contains(&file.serial) && !file.is_gone();
        let before = self.dropped_files().filter(|(_, until)| now < *until);
        let now_dropped = self.snapshot.files.iter().map(|file| (file.clone(), now + grace_period));
        let files: Vec<_> = before.chain(now_dropped).filter(|(file, _)| is_wanted(file)).collect();
        Dropped::new(files, self.dropped.as_ref().map(|dropped| &dropped.lookup))
    }
}

impl Dropped {
    fn new(files: Vec<(Arc<TableFile>, Instant)>, previous: Option<&Lookup>) -> Option<Arc<Self>> {
        if files.is_empty() {
            return None;
        }
        let (files, until): (Vec<_>, Vec<_>) = files.into_iter().unzip();
        let lookup = Lookup::new(&indexes(&files), previous);
        Some(Arc::new(Self { files, until, lookup }))
    }
}

fn indexes(files: &[Arc<TableFile>]) -> Vec<Arc<TableIndex>> {
    files.iter().map(|file| file.index.clone()).collect()
}

fn find<'a>(
    lookup: &Lookup,
    files: &'a [Arc<TableFile>],
    address: &ChunkAddress,
) -> Option<(&'a Arc<TableFile>, u32)> {
    let found = lookup.find(address)?;
    let file = usize::try_from(found.file).expect("the number of a file fits into memory");
    Some((&files[file], found.position))
}
