//! Objects that are files below a directory, read on a limited number of threads.
//!
//! All stores share the runtime's blocking threads, and a read that does not return costs the pool
//! a thread. So a read holds its permit until it has really ended, even when nobody waits for it
//! any more: a hung disk holds up only its own store.

use std::{fs::File, ops::Range, os::unix::fs::FileExt, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, stream, stream::BoxStream};
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    local::LocalFileSystem, path::Path,
};
use tokio::{sync::Semaphore, task::spawn_blocking};

use super::limits::{FILE_PIECE_BYTES, FILE_READS_MAX};

/// Files of one `file://` store.
#[derive(Clone, Debug)]
pub(super) struct FileStore {
    files: Arc<LocalFileSystem>,
    reads: Arc<Semaphore>,
}

impl FileStore {
    pub(super) fn new() -> Self {
        Self {
            files: Arc::new(LocalFileSystem::new()),
            reads: Arc::new(Semaphore::new(FILE_READS_MAX)),
        }
    }

    /// Waits for a permit, then runs the work in a task. The task goes on when nobody waits for it
    /// any more, because its thread does.
    async fn in_turn<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let permit =
            Arc::clone(&self.reads).acquire_owned().await.expect("the semaphore is never closed");
        let task = tokio::spawn(async move {
            let _permit = permit;
            work.await
        });
        task.await?
    }

    /// Reads a file in larger pieces than `object_store` would.
    fn pieces(&self, file: File, range: Range<u64>) -> BoxStream<'static, Result<Bytes>> {
        let (file, store) = (Arc::new(file), self.clone());
        let next = move |rest: Range<u64>| {
            let (file, store) = (Arc::clone(&file), store.clone());
            async move {
                if rest.is_empty() {
                    return Ok(None);
                }
                let end = rest.end.min(rest.start + FILE_PIECE_BYTES);
                let piece = rest.start..end;
                let read = async { spawn_blocking(move || read_at(&file, piece)).await? };
                Ok(Some((store.in_turn(read).await?, end..rest.end)))
            }
        };
        stream::try_unfold(range, next).boxed()
    }
}

fn read_at(file: &File, range: Range<u64>) -> Result<Bytes> {
    let length = usize::try_from(range.end - range.start).expect("a piece fits into memory");
    let mut piece = vec![0; length];
    file.read_exact_at(&mut piece, range.start)
        .map_err(|source| Error::Generic { store: "file", source: source.into() })?;
    Ok(piece.into())
}

impl std::fmt::Display for FileStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.files.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for FileStore {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let (files, location) = (Arc::clone(&self.files), location.clone());
        let mut found =
            self.in_turn(async move { files.get_opts(&location, options).await }).await?;
        if let GetResultPayload::File(file, _) = found.payload {
            found.payload = GetResultPayload::Stream(self.pieces(file, found.range.clone()));
        }
        Ok(found)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let (files, prefix) = (Arc::clone(&self.files), prefix.cloned());
        self.in_turn(async move { files.list_with_delimiter(prefix.as_ref()).await }).await
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.files.list(prefix)
    }

    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.files.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.files.put_multipart_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.files.delete_stream(locations)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.files.copy_opts(from, to, options).await
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::{path::Path as OsPath, time::Duration};

    use object_store::ObjectStoreExt;
    use rustix::fs::{CWD, FileType, Mode};
    use tokio::{runtime::Builder, time::timeout};

    use super::*;

    fn at(path: &OsPath) -> Path {
        Path::from_absolute_path(path).expect("an absolute path")
    }

    /// 32 threads of all stores stood in reads of one directory that hung: stores elsewhere were
    /// not answered.
    #[test]
    fn a_directory_that_hangs_leaves_threads_to_other_stores() {
        let directory = tempfile::tempdir().unwrap();
        let well = directory.path().join("well");
        std::fs::write(&well, b"bytes").unwrap();
        // Opening one waits until another process opens it for writing.
        let hung: Vec<_> =
            (0..2 * FILE_READS_MAX).map(|n| directory.path().join(n.to_string())).collect();
        hung.iter().for_each(|path| {
            rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap()
        });
        let threads = FILE_READS_MAX + 1;
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(threads)
            .enable_time()
            .build();
        let runtime = runtime.unwrap();
        runtime.block_on(async {
            let (hung_store, other) = (FileStore::new(), FileStore::new());
            for path in &hung {
                let (store, path) = (hung_store.clone(), at(path));
                tokio::spawn(async move { store.get(&path).await.map(drop) });
            }
            while hung_store.reads.available_permits() != 0 {
                tokio::task::yield_now().await;
            }
            let given_up = timeout(Duration::from_millis(1), hung_store.get(&at(&well))).await;
            assert!(given_up.is_err(), "its own reads wait");
            let read = other.get(&at(&well)).await.unwrap().bytes().await.unwrap();
            assert_eq!(read, "bytes");
        });
        runtime.shutdown_background();
        // Ends the threads.
        for path in hung {
            let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NONBLOCK;
            drop(rustix::fs::open(path, flags, Mode::empty()).unwrap());
        }
    }

    #[tokio::test]
    async fn a_file_is_read_whole_in_pieces() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("large");
        let bytes: Vec<u8> = (0..3 * FILE_PIECE_BYTES + 17).map(|n| n.to_le_bytes()[1]).collect();
        std::fs::write(&path, &bytes).unwrap();
        let found = FileStore::new().get(&at(&path)).await.unwrap();
        assert!(matches!(found.payload, GetResultPayload::Stream(_)));
        assert_eq!(found.bytes().await.unwrap(), bytes);
    }
}
