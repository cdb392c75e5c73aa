//! One version of a store: its manifest, its open table files, and where these have each chunk.

use std::{collections::HashSet, sync::Arc, time::Duration};

use busload_chunks::{ChunkAddress, ChunkLocation, FileSpec, Lookup, Manifest, TableIndex};
use tokio::time::Instant;

use crate::{
    stats::{Origin, ReadFrom},
    versions::{object_names::Naming, table_file::TableFile},
};

/// One version of the store: a manifest and the open table files that it names.
#[derive(Debug)]
pub struct Snapshot {
    /// Manifest as read; empty if the store has none.
    pub manifest: Manifest,
    /// True if the store has a manifest. A store without one is empty, or the URL is wrong.
    pub has_manifest: bool,
    /// Manifest of the old generation of a local store, whose files belong to the version.
    pub old_generation: Option<Manifest>,
    /// Table files in the order in which a chunk is looked up.
    pub files: Vec<Arc<TableFile>>,
    /// Scheme by which the store names its objects.
    pub(crate) naming: Naming,
}

impl Snapshot {
    /// Counts the index entries of all files; a chunk in two files counts twice.
    pub fn chunk_count(&self) -> u64 {
        self.files.iter().map(|file| u64::from(file.index.chunk_count())).sum()
    }

    /// Sums the bytes of all files.
    pub fn file_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.object.meta().size).sum()
    }

    /// Lists what the manifests say of the files, in the order of lookup.
    pub fn specs(&self) -> impl Iterator<Item = FileSpec> {
        self.manifest
            .lookup_order()
            .chain(self.old_generation.iter().flat_map(Manifest::lookup_order))
    }
}

/// A chunk in one table file: the file, and the chunk's entry in its index. Several files may hold
/// the same chunk.
#[derive(Clone, Debug)]
pub(crate) struct FileChunk {
    pub file: Arc<TableFile>,
    pub position: u32,
}

impl FileChunk {
    /// Returns where the file has the chunk.
    pub fn location(&self) -> ChunkLocation {
        self.file.location(self.position)
    }

    /// Returns where a read of the chunk got its bytes.
    pub fn read_from(&self, origin: Origin) -> ReadFrom {
        ReadFrom { origin, stored_bytes: self.location().span.length }
    }
}

/// A snapshot with its lookup, and the files dropped from the manifest that are still within their
/// grace period: a reader may hold an older root.
#[derive(Debug)]
pub(crate) struct Version {
    pub snapshot: Arc<Snapshot>,
    lookup: Lookup,
    in_grace: Option<Arc<FilesInGrace>>,
}

#[derive(Debug)]
struct FilesInGrace {
    files: Vec<Arc<TableFile>>,
    /// End of each file's grace period.
    until: Vec<Instant>,
    lookup: Lookup,
}

impl Version {
    /// Builds the first version, or the one after `previous`, whose other files stay readable for
    /// `grace_period`.
    pub fn new(
        snapshot: Snapshot,
        previous: Option<&Self>,
        now: Instant,
        grace_period: Duration,
    ) -> Self {
        let lookup =
            Lookup::new(&indexes(&snapshot.files), previous.map(|version| &version.lookup));
        let in_grace =
            previous.and_then(|version| version.in_grace_after(&snapshot, now, grace_period));
        Self { snapshot: Arc::new(snapshot), lookup, in_grace }
    }

    /// Finds a chunk without touching the file's reference count.
    pub fn find(&self, address: &ChunkAddress) -> Option<(&Arc<TableFile>, u32)> {
        let found = find(&self.lookup, &self.snapshot.files, address);
        found.or_else(|| {
            let in_grace = self.in_grace.as_ref()?;
            find(&in_grace.lookup, &in_grace.files, address)
        })
    }

    /// Finds a file that holds a chunk.
    pub fn locate(&self, address: &ChunkAddress) -> Option<FileChunk> {
        self.find(address).map(|(file, position)| FileChunk { file: file.clone(), position })
    }

    /// Iterates over every readable file: the snapshot's, then those in their grace period.
    pub fn files(&self) -> impl Iterator<Item = &Arc<TableFile>> {
        self.snapshot.files.iter().chain(self.in_grace.iter().flat_map(|in_grace| &in_grace.files))
    }

    /// Sums the memory of indexes and lookups.
    pub fn memory_bytes(&self) -> u64 {
        let files: u64 = self.files().map(|file| file.memory_bytes()).sum();
        files
            + self.lookup.memory_bytes()
            + self.in_grace.as_ref().map_or(0, |in_grace| in_grace.lookup.memory_bytes())
    }

    /// Returns when the next grace period ends.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.in_grace.as_ref().and_then(|in_grace| in_grace.until.iter().min().copied())
    }

    /// Returns whether a file has to be closed: its grace period is over, or its object is gone.
    pub fn has_expired(&self, now: Instant) -> bool {
        self.files_in_grace().any(|(file, until)| until <= now || file.is_gone())
    }

    /// Returns this version without the files that have to be closed.
    pub fn without_expired(&self, now: Instant) -> Self {
        let remaining =
            self.files_in_grace().filter(|(file, until)| now < *until && !file.is_gone()).collect();
        Self {
            snapshot: self.snapshot.clone(),
            lookup: Lookup::new(&indexes(&self.snapshot.files), Some(&self.lookup)),
            in_grace: self
                .in_grace
                .as_ref()
                .and_then(|in_grace| FilesInGrace::new(remaining, Some(&in_grace.lookup))),
        }
    }

    fn files_in_grace(&self) -> impl Iterator<Item = (Arc<TableFile>, Instant)> {
        let in_grace = self.in_grace.iter();
        in_grace
            .flat_map(|in_grace| in_grace.files.iter().cloned().zip(in_grace.until.iter().copied()))
    }

    fn in_grace_after(
        &self,
        next: &Snapshot,
        now: Instant,
        grace_period: Duration,
    ) -> Option<Arc<FilesInGrace>> {
        let next: HashSet<u64> = next.files.iter().map(|file| file.serial).collect();
        let is_wanted = |file: &Arc<TableFile>| !next.contains(&file.serial) && !file.is_gone();
        let before = self.files_in_grace().filter(|(_, until)| now < *until);
        let newly_dropped =
            self.snapshot.files.iter().map(|file| (file.clone(), now + grace_period));
        let files: Vec<_> =
            before.chain(newly_dropped).filter(|(file, _)| is_wanted(file)).collect();
        FilesInGrace::new(files, self.in_grace.as_ref().map(|in_grace| &in_grace.lookup))
    }
}

impl FilesInGrace {
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
