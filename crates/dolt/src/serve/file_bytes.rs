//! Bytes of table files, by the names of the files.

use std::{fmt, ops::Range, sync::Arc, time::Instant};

use busload_chunks::FileId;
use busload_objects::{AccessHint, Error as ObjectsError, Object, StreamOptions};
use bytes::Bytes;
use futures_util::{
    StreamExt, TryStreamExt,
    future::ready,
    stream::{self, BoxStream},
};

use super::{
    local_verifier::{LocalVerifier, WholeFileDownload},
    verified_range,
};
use crate::{
    Error, TableFile,
    read::file_chunk_reader::FileChunkReader,
    versions::{
        Versions,
        dropped_files::{DroppedFile, FileKey},
        version::Version,
    },
};

/// Finds table files by their names, open or dropped, and serves their bytes.
pub(crate) struct FileServer {
    versions: Arc<Versions>,
    file_chunks: Arc<FileChunkReader>,
    pub local_verifier: Arc<LocalVerifier>,
}

/// Bytes of one version of a table file: open, or dropped from the manifest.
#[derive(Clone)]
pub struct FileBytes {
    object: Arc<Object>,
    file: File,
    server: Arc<FileServer>,
}

/// Pieces of a range, and then perhaps an error.
pub(super) type Pieces = BoxStream<'static, Result<Bytes, Error>>;

impl fmt::Debug for FileBytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("FileBytes").field("object", &self.object).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug)]
enum File {
    /// File whose index and pinned dictionaries are in memory.
    Open(Arc<TableFile>),
    Dropped(Arc<DroppedFile>),
}

impl File {
    fn set_gone(&self) {
        match self {
            Self::Open(file) => file.set_gone(),
            Self::Dropped(file) => file.set_gone(),
        }
    }
}

impl FileBytes {
    /// Returns the size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.object.meta().size
    }

    /// Returns the object's ETag, or a substitute where the store has none.
    pub fn etag(&self) -> &str {
        &self.object.meta().etag
    }

    /// Streams a range in order. Pinned dictionaries come from memory, also when the store
    /// fails. With [`AccessHint::Random`] each chunk of an open file is verified before its bytes
    /// leave.
    ///
    /// # Errors
    /// The stream ends with an error: [`Error::Unreachable`], also if the object was replaced or
    /// removed meanwhile; [`Error::DeadlineExceeded`]; [`Error::Corrupt`] for a chunk that its
    /// address does not match; [`Error::Refused`] for a range that is not within the object.
    pub fn stream(
        &self,
        range: Range<u64>,
        options: StreamOptions,
    ) -> BoxStream<'static, Result<Bytes, Error>> {
        if let Some(bytes) = self.pinned(&range) {
            return stream::once(ready(Ok(bytes))).boxed();
        }
        let is_within = range.start <= range.end && range.end <= self.size();
        match (&self.file, options.hint) {
            (File::Open(file), AccessHint::Random) if is_within => {
                verified_range::stream(&self.server.file_chunks, file, range, options.timeout)
            }
            (File::Open(file), AccessHint::Sequential) => {
                let download = WholeFileDownload::new(&self.server.local_verifier, file);
                let next = async |(mut pieces, download): (Pieces, WholeFileDownload)| {
                    Some((pieces.next().await?, (pieces, download)))
                };
                stream::unfold((self.unverified(range, options), download), next).boxed()
            }
            _ => self.unverified(range, options),
        }
    }

    fn unverified(&self, range: Range<u64>, options: StreamOptions) -> Pieces {
        let file = self.file.clone();
        let convert = move |error| {
            if let ObjectsError::Gone(_) = &error {
                file.set_gone();
            }
            Error::from(error)
        };
        self.object.stream(range, options).map_err(convert).boxed()
    }

    fn pinned(&self, range: &Range<u64>) -> Option<Bytes> {
        match &self.file {
            File::Open(file) => file.pinned.get(range),
            File::Dropped(file) => file.pinned(range),
        }
    }
}

impl FileServer {
    pub fn new(
        versions: Arc<Versions>,
        file_chunks: Arc<FileChunkReader>,
        local_verifier: Arc<LocalVerifier>,
    ) -> Self {
        Self { versions, file_chunks, local_verifier }
    }

    /// Finds a table file by its name and version; none if the store does not hold it, and for a
    /// journal.
    pub async fn find(
        self: &Arc<Self>,
        key: FileKey,
        deadline: Instant,
    ) -> Result<Option<FileBytes>, Error> {
        if key.id == FileId::JOURNAL {
            return Ok(None);
        }
        let version = self.versions.opened_by(deadline, false).await?;
        if let Some(file) = open_file(&version, key) {
            let (object, file) = (file.object.clone(), File::Open(file.clone()));
            return Ok(Some(FileBytes { object, file, server: self.clone() }));
        }
        let (versions, source) = (self.versions.clone(), self.file_chunks.source.clone());
        let find =
            async move { versions.dropped_files.find(&source, &version.snapshot, key).await };
        let found = self.file_chunks.lifecycle.run(deadline, find).await?;
        Ok(found.map(|(file, object)| FileBytes {
            object,
            file: File::Dropped(file),
            server: self.clone(),
        }))
    }
}

/// Finds an open file, of the current version or in its grace period.
fn open_file(version: &Version, key: FileKey) -> Option<&Arc<TableFile>> {
    version
        .files()
        .find(|file| file.id == key.id && file.kind == key.kind && file.version() == key.version)
}
