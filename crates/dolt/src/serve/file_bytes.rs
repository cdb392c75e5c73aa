//! Bytes of table files, by the names of the files.

use std::{fmt, ops::Range, sync::Arc, time::Instant};

use busload_chunks::{FileId, FileKind};
use busload_objects::{Error as ObjectsError, Object, StreamOptions, Use};
use bytes::Bytes;
use futures_util::{
    StreamExt, TryStreamExt,
    future::ready,
    stream::{self, BoxStream},
};

use super::{local_verifier::CopyGuard, verified_range};
use crate::{
    Error, Store, TableFile,
    shared::Shared,
    versions::{
        dropped_files::{DroppedFile, FileKey},
        version::Version,
    },
};

/// Bytes of one version of a table file, current, dropped from the manifest, or known by its name
/// only.
#[derive(Clone)]
pub struct FileBytes {
    object: Arc<Object>,
    of: Of,
    shared: Arc<Shared>,
}

/// Pieces, and then perhaps an error.
pub(super) type Pieces = BoxStream<'static, Result<Bytes, Error>>;

impl fmt::Debug for FileBytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("FileBytes").field("object", &self.object).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug)]
enum Of {
    /// A file whose index is in memory, and with it what was pinned.
    Open(Arc<TableFile>),
    Old(Arc<DroppedFile>),
}

impl Of {
    fn set_gone(&self) {
        match self {
            Self::Open(file) => file.set_gone(),
            Self::Old(file) => file.set_gone(),
        }
    }
}

impl FileBytes {
    /// How many.
    pub fn size(&self) -> u64 {
        self.object.meta().size
    }

    /// As the object store has it, or made of what it has.
    pub fn etag(&self) -> &str {
        &self.object.meta().etag
    }

    /// Pieces of a range, in order. Dictionaries that were pinned are there whatever becomes of the
    /// store. With [`Use::Again`] each chunk of an open file is compared with its address before
    /// its bytes are given.
    ///
    /// # Errors
    /// Of the stream, which ends with it: [`Error::Unreachable`], also if the object was replaced
    /// or removed meanwhile; [`Error::TooLate`]; [`Error::Corrupt`] for a chunk that is not what
    /// its address says; [`Error::Refused`] for a range that is not within the object.
    pub fn stream(
        &self,
        range: Range<u64>,
        options: StreamOptions,
    ) -> BoxStream<'static, Result<Bytes, Error>> {
        if let Some(bytes) = self.pinned(&range) {
            return stream::once(ready(Ok(bytes))).boxed();
        }
        let is_within = range.start <= range.end && range.end <= self.size();
        match (&self.of, options.purpose) {
            (Of::Open(file), Use::Again) if is_within => {
                verified_range::stream(&self.shared, file, range, options.timeout)
            }
            (Of::Open(file), Use::Once) => {
                let copying = CopyGuard { shared: self.shared.clone(), file: file.clone() };
                let next = async |(mut pieces, copying): (Pieces, CopyGuard)| {
                    Some((pieces.next().await?, (pieces, copying)))
                };
                stream::unfold((self.as_it_is(range, options), copying), next).boxed()
            }
            _ => self.as_it_is(range, options),
        }
    }

    fn as_it_is(&self, range: Range<u64>, options: StreamOptions) -> Pieces {
        let of = self.of.clone();
        let note = move |error| {
            if let ObjectsError::Gone(_) = &error {
                of.set_gone();
            }
            Error::from(error)
        };
        self.object.stream(range, options).map_err(note).boxed()
    }

    fn pinned(&self, range: &Range<u64>) -> Option<Bytes> {
        match &self.of {
            Of::Open(file) => file.pins.get(range),
            Of::Old(file) => file.pinned(range),
        }
    }
}

impl Store {
    /// A table file by its name; none if the store does not hold it in this version, and for a
    /// journal.
    ///
    /// # Errors
    /// As [`Store::get`]; and [`Error::Unreachable`] when a file that no version names cannot be
    /// looked for.
    pub async fn file_bytes(
        &self,
        id: FileId,
        kind: FileKind,
        version: u64,
        deadline: Instant,
    ) -> Result<Option<FileBytes>, Error> {
        let shared = self.shared();
        if shared.is_closed() {
            return Err(Error::Closed);
        }
        if id == FileId::JOURNAL {
            return Ok(None);
        }
        let key = FileKey { id, kind, version };
        let version = self.version_until(deadline).await?;
        if let Some(file) = open_file(&version, key) {
            let (object, of) = (file.object.clone(), Of::Open(file.clone()));
            return Ok(Some(FileBytes { object, of, shared: shared.clone() }));
        }
        let looking = shared.clone();
        let look = async move { looking.old_file(&version.snapshot, key).await };
        let found = shared.run(deadline, look).await?;
        Ok(found.map(|(file, object)| FileBytes {
            object,
            of: Of::Old(file),
            shared: shared.clone(),
        }))
    }
}

/// A file that is open, the current version's or one dropped lately.
fn open_file(version: &Version, key: FileKey) -> Option<&Arc<TableFile>> {
    version
        .files()
        .find(|file| file.id == key.id && file.kind == key.kind && file.version() == key.version)
}
