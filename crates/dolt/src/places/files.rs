//! Bytes of table files, by the names of the files.

use std::{ops::Range, sync::Arc, time::Instant};

use busload_chunks::{FileId, FileKind};
use busload_objects::{Error as ObjectsError, Object, StreamOptions, Use};
use bytes::Bytes;
use futures_util::{
    StreamExt, TryStreamExt,
    future::ready,
    stream::{self, BoxStream},
};
use tokio::{runtime::Handle, time};

use super::{
    checking::{Checks, Right},
    old::{FileKey, OldFile},
};
use crate::{Error, Store, TableFile, table_file::range as range_of, view::View};

/// Bytes of one version of a table file, current, dropped from the manifest, or known by its name only.
#[derive(Clone, Debug)]
pub struct FileBytes {
    object: Arc<Object>,
    of: Of,
    /// Of the store.
    runtime: Handle,
}

/// Pieces, and then perhaps an error.
type Pieces = BoxStream<'static, Result<Bytes, Error>>;

#[derive(Clone, Debug)]
enum Of {
    /// A file whose index is in memory, and with it what was pinned.
    Open(Arc<TableFile>),
    Old(Arc<OldFile>),
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

    /// Pieces of a range, in order. Dictionaries that were pinned are there whatever becomes of the store. With [`Use::Again`] the first one waits
    /// for checks of [`Store::prefetch`] in this range that began before, within the time that a piece may take.
    ///
    /// # Errors
    /// Of the stream, which ends with it: [`Error::Unreachable`], also if the object was replaced or removed meanwhile; [`Error::TooLate`];
    /// [`Error::Damaged`] if one of the checks found it; [`Error::Refused`] for a range that is not within the object.
    pub fn stream(&self, range: Range<u64>, options: StreamOptions) -> Pieces {
        if let Some(bytes) = self.pinned(&range) {
            return stream::once(ready(Ok(bytes))).boxed();
        }
        match (&self.of, options.purpose) {
            (Of::Open(file), Use::Again) => {
                let checks = file.checking.of(&range);
                match checks.is_empty() {
                    true => self.unchecked(range, options),
                    false => self.checked(file.clone(), checks, range, options),
                }
            }
            _ => self.unchecked(range, options),
        }
    }

    fn unchecked(&self, range: Range<u64>, options: StreamOptions) -> Pieces {
        let of = self.of.clone();
        let note = move |error| {
            if let ObjectsError::Gone(_) = &error {
                of.set_gone();
            }
            Error::from(error)
        };
        self.object.stream(range, options).map_err(note).boxed()
    }

    /// Once the checks have ended.
    fn checked(
        &self,
        file: Arc<TableFile>,
        checks: Checks,
        range: Range<u64>,
        options: StreamOptions,
    ) -> Pieces {
        let this = self.clone();
        let begin = async move {
            let right = this.ended(checks, &range, options).await?;
            let mut offset = range.start;
            let mend = move |piece: Bytes| {
                let place = offset..offset + piece.len() as u64;
                offset = place.end;
                mended(&file, &right, piece, place)
            };
            Ok::<_, Error>(this.unchecked(range, options).map_ok(mend))
        };
        stream::once(begin).try_flatten().boxed()
    }

    async fn ended(
        &self,
        checks: Checks,
        range: &Range<u64>,
        options: StreamOptions,
    ) -> Result<Vec<Right>, Error> {
        // Whoever polls this may have no clock.
        let timer = {
            let _entered = self.runtime.enter();
            time::sleep(options.patience)
        };
        tokio::select! {
            biased;
            right = checks.ended() => right,
            () = timer => Err(Error::TooLate(format!(
                "{}: the chunks in bytes {} to {} could not be compared with their addresses in {:?}",
                self.object.meta().name, range.start, range.end, options.patience
            ))),
        }
    }

    fn pinned(&self, range: &Range<u64>) -> Option<Bytes> {
        match &self.of {
            Of::Open(file) => file.pins.get(range),
            Of::Old(file) => file.pinned(range),
        }
    }
}

/// A piece as it should be: the object may have got other bytes than those that were compared. These are not kept.
fn mended(file: &TableFile, right: &[Right], piece: Bytes, place: Range<u64>) -> Bytes {
    let is_wrong =
        |right: &&Right| right.part_of(&place).is_some_and(|(at, own)| piece[at..at + own.len()] != *own);
    let wrong: Vec<_> = right.iter().filter(is_wrong).collect();
    if wrong.is_empty() {
        return piece;
    }
    let mut bytes = piece.to_vec();
    for right in wrong {
        file.object.distrust(range_of(right.span));
        if let Some((at, own)) = right.part_of(&place) {
            bytes[at..at + own.len()].copy_from_slice(own);
        }
    }
    bytes.into()
}

impl Store {
    /// A table file by its name; none if the store does not hold it in this version, and for a journal.
    ///
    /// # Errors
    /// As [`Store::get`]; and [`Error::Unreachable`] when a file that no version names cannot be looked for.
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
        let view = self.view_until(deadline).await?;
        if let Some(file) = open_file(&view, key) {
            let (object, runtime) = (file.object.clone(), shared.runtime.clone());
            return Ok(Some(FileBytes { object, of: Of::Open(file.clone()), runtime }));
        }
        let looking = shared.clone();
        let look = async move { looking.old_file(&view.snapshot, key).await };
        let found = shared.run(deadline, look).await?;
        let runtime = shared.runtime.clone();
        Ok(found.map(|(file, object)| FileBytes { object, of: Of::Old(file), runtime }))
    }
}

/// A file that is open, the current version's or one dropped lately.
fn open_file(view: &View, key: FileKey) -> Option<&Arc<TableFile>> {
    view.files().find(|file| file.id == key.id && file.kind == key.kind && file.version() == key.version)
}
