//! One open table file.

pub(crate) mod object_version;
pub(crate) mod pinned_dictionaries;
pub(crate) mod verified_chunks;

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use busload_chunks::{ChunkAddress, ChunkLocation, FileId, FileKind, Span, TableIndex};
use busload_objects::Object;

use self::{
    object_version::version_of, pinned_dictionaries::PinnedDictionaries,
    verified_chunks::VerifiedChunks,
};

/// One open table file of a version.
#[derive(Debug)]
pub struct TableFile {
    /// Id by which the manifest names the file.
    pub id: FileId,
    /// Format of the file.
    pub kind: FileKind,
    /// Object that holds the file's bytes.
    pub object: Arc<Object>,
    /// Index of the file's chunks.
    pub index: Arc<TableIndex>,
    /// Number that differs for every file that this process opens.
    pub(crate) serial: u64,
    pub(crate) verified: VerifiedChunks,
    /// True while the local verifier has yet to verify the file after a download.
    pub(crate) is_verification_scheduled: AtomicBool,
    /// Dictionaries that were advertised to clients.
    pub(crate) pinned: Arc<PinnedDictionaries>,
    version: u64,
    is_gone: AtomicBool,
    was_corruption_logged: AtomicBool,
    dictionaries: OnceLock<Box<[Span]>>,
    order: OnceLock<Box<[u32]>>,
}

static SERIAL_NEXT: AtomicU64 = AtomicU64::new(0);

impl TableFile {
    pub(crate) fn new(id: FileId, kind: FileKind, object: Arc<Object>, index: TableIndex) -> Self {
        let verified = VerifiedChunks::new(index.chunk_count());
        let version = version_of(object.meta());
        Self {
            id,
            kind,
            object,
            index: Arc::new(index),
            serial: SERIAL_NEXT.fetch_add(1, Relaxed),
            verified,
            is_verification_scheduled: AtomicBool::new(false),
            pinned: Arc::default(),
            version,
            is_gone: AtomicBool::new(false),
            was_corruption_logged: AtomicBool::new(false),
            dictionaries: OnceLock::new(),
            order: OnceLock::new(),
        }
    }

    /// Returns the name of the file's object.
    pub fn name(&self) -> &str {
        &self.object.meta().name
    }

    /// Returns a number that differs when the object holds other bytes under the same name. It is
    /// the same in every process, and does not depend on how the store writes the ETag.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Notes that the object was replaced or removed: the next refresh opens the file again.
    pub(crate) fn set_gone(&self) {
        self.is_gone.store(true, Relaxed);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Relaxed)
    }

    /// Returns true once: corruption in the file is logged the first time only.
    pub(crate) fn should_log_corruption(&self) -> bool {
        !self.was_corruption_logged.swap(true, Relaxed)
    }

    /// Sums the memory of the index and of what belongs to it.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.index.memory_bytes()
            + self.verified.memory_bytes()
            + self.order_bytes()
            + self.pinned.memory_bytes()
    }

    /// Returns whether a span is that of a dictionary in the file. Scans the whole index the first
    /// time.
    pub(crate) fn has_dictionary(&self, span: Span) -> bool {
        self.dictionaries.get_or_init(|| self.find_dictionaries()).binary_search(&span).is_ok()
    }

    /// Finds a chunk that was compressed with a dictionary.
    pub(crate) fn chunk_with_dictionary(&self, span: Span) -> Option<(ChunkAddress, u32)> {
        let position =
            self.positions().find(|&position| self.location(position).dictionary == Some(span))?;
        Some((self.index.address(position), position))
    }

    /// Returns whether [`TableFile::order`] is known already.
    pub(crate) fn has_order(&self) -> bool {
        self.order.get().is_some()
    }

    /// Returns index positions in the order of their chunks' offsets. Sorts them the first time.
    pub(crate) fn order(&self) -> &[u32] {
        self.order.get_or_init(|| {
            let mut order: Box<[u32]> = self.positions().collect();
            order.sort_unstable_by_key(|&position| self.location(position).span.offset);
            order
        })
    }

    pub(crate) fn location(&self, position: u32) -> ChunkLocation {
        self.index.location(position)
    }

    pub(crate) fn positions(&self) -> std::ops::Range<u32> {
        0..self.index.chunk_count()
    }

    fn order_bytes(&self) -> u64 {
        self.order.get().map_or(0, |order| size_of_val(&**order) as u64)
    }

    fn find_dictionaries(&self) -> Box<[Span]> {
        let mut spans: Vec<Span> = Vec::new();
        for span in self.positions().filter_map(|position| self.location(position).dictionary) {
            // Nearly all chunks of a file share one, so most are the one seen last.
            if spans.last() != Some(&span) {
                spans.push(span);
            }
        }
        spans.sort_unstable();
        spans.dedup();
        spans.into_boxed_slice()
    }
}

/// Byte range of an object that a span covers.
pub(crate) fn range(span: Span) -> std::ops::Range<u64> {
    span.offset..span.offset + u64::from(span.length)
}
