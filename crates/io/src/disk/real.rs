//! Files of the operating system. All reads and writes are positional; nothing here keeps a file
//! offset.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{Disk, DiskError, DiskErrorKind, DiskOperation, FileName, write_parts::write_parts};

/// Directory of the file system.
#[derive(Clone, Debug)]
pub struct RealDisk {
    directory: Arc<Directory>,
}

#[derive(Debug)]
struct Directory {
    path: PathBuf,
    /// Kept open to sync the directory.
    file: File,
    /// False if files are opened for reading only.
    writable: bool,
}

/// Open file of a [`RealDisk`].
#[derive(Debug)]
pub struct RealFile {
    file: File,
    path: PathBuf,
}

impl RealDisk {
    /// Opens a directory and creates it, with its parents, if it is missing.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, DiskError> {
        let path = path.into();
        if !path.is_dir() {
            create_directory(&path)
                .map_err(|error| failure(DiskOperation::Create, &path, error))?;
        }
        Self::open_existing(path, true)
    }

    /// Opens a directory that exists. Its files are opened for reading only, so none of them can be
    /// created, written or cut; they can be synced.
    pub fn open_for_reading(path: impl Into<PathBuf>) -> Result<Self, DiskError> {
        Self::open_existing(path.into(), false)
    }

    fn open_existing(path: PathBuf, writable: bool) -> Result<Self, DiskError> {
        let file = File::open(&path).map_err(|error| failure(DiskOperation::Open, &path, error))?;
        Ok(Self { directory: Arc::new(Directory { path, file, writable }) })
    }

    /// Returns the path of the directory.
    pub fn directory(&self) -> &Path {
        &self.directory.path
    }

    fn open_with(
        &self,
        operation: DiskOperation,
        name: &str,
        options: &mut OpenOptions,
    ) -> Result<RealFile, DiskError> {
        let path = self.path(name);
        match options.read(true).write(self.directory.writable).open(&path) {
            Ok(file) => Ok(RealFile { file, path }),
            Err(error) => Err(failure(operation, &path, error)),
        }
    }
}

/// Creates a directory and syncs its parent, without which a power loss could take the new
/// directory and the synced files in it.
fn create_directory(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|ancestor| !exists(ancestor)).collect();
    std::fs::create_dir_all(path)?;
    for created in missing {
        let parent = match created.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

/// Returns whether a path exists. The parent of a relative path may be the empty path, which stands
/// for the working directory.
fn exists(path: &Path) -> bool {
    path == Path::new("") || path.exists()
}

fn failure(operation: DiskOperation, path: &Path, source: io::Error) -> DiskError {
    let kind = match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DiskErrorKind::NoSpace,
        io::ErrorKind::NotFound => DiskErrorKind::NotFound,
        io::ErrorKind::AlreadyExists => DiskErrorKind::Exists,
        _ => DiskErrorKind::Failed,
    };
    DiskError { kind, operation, path: path.to_owned(), source }
}

impl Disk for RealDisk {
    type File = RealFile;

    fn lock(&self, name: &str) -> Result<RealFile, DiskError> {
        let file = self.open_with(
            DiskOperation::Lock,
            name,
            OpenOptions::new().create(self.directory.writable).truncate(false),
        )?;
        match file.file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::Error(error)) => Err(failure(DiskOperation::Lock, &file.path, error)),
            Err(TryLockError::WouldBlock) => Err(DiskError {
                kind: DiskErrorKind::Exists,
                operation: DiskOperation::Lock,
                path: file.path,
                source: io::Error::new(io::ErrorKind::WouldBlock, "another process holds the lock"),
            }),
        }
    }

    fn list(&self) -> Result<Vec<FileName>, DiskError> {
        list(&self.directory.path)
            .map_err(|error| failure(DiskOperation::List, &self.directory.path, error))
    }

    fn create(&self, name: &str) -> Result<RealFile, DiskError> {
        self.open_with(DiskOperation::Create, name, OpenOptions::new().create_new(true))
    }

    fn open(&self, name: &str) -> Result<RealFile, DiskError> {
        self.open_with(DiskOperation::Open, name, &mut OpenOptions::new())
    }

    fn length(&self, file: &RealFile) -> Result<u64, DiskError> {
        match file.file.metadata() {
            Ok(metadata) => Ok(metadata.len()),
            Err(error) => Err(failure(DiskOperation::Length, &file.path, error)),
        }
    }

    fn read_at(&self, file: &RealFile, offset: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        read_full(&file.file, offset, into)
            .map_err(|error| failure(DiskOperation::Read, &file.path, error))
    }

    fn write_at(
        &self,
        file: &RealFile,
        offset: u64,
        parts: &[io::IoSlice<'_>],
    ) -> Result<(), DiskError> {
        write_parts(offset, parts, |offset, parts| {
            Ok(rustix::io::pwritev(&file.file, parts, offset)?)
        })
        .map_err(|error| failure(DiskOperation::Write, &file.path, error))
    }

    fn truncate(&self, file: &RealFile, length: u64) -> Result<(), DiskError> {
        file.file
            .set_len(length)
            .map_err(|error| failure(DiskOperation::Truncate, &file.path, error))
    }

    /// Calls fdatasync, or on macOS F_FULLFSYNC, the only call that reaches the medium there.
    fn sync(&self, file: &RealFile) -> Result<(), DiskError> {
        file.file.sync_data().map_err(|error| failure(DiskOperation::Sync, &file.path, error))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        let path = self.path(from);
        std::fs::rename(&path, self.path(to))
            .map_err(|error| failure(DiskOperation::Rename, &path, error))
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        let path = self.path(name);
        std::fs::remove_file(&path).map_err(|error| failure(DiskOperation::Remove, &path, error))
    }

    fn sync_directory(&self) -> Result<(), DiskError> {
        let directory = &*self.directory;
        directory
            .file
            .sync_all()
            .map_err(|error| failure(DiskOperation::SyncDirectory, &directory.path, error))
    }

    /// Returns the free bytes of the file system; quotas of a user or a directory are not
    /// considered.
    fn available_bytes(&self) -> u64 {
        match rustix::fs::fstatvfs(&self.directory.file) {
            Ok(space) if 0 < space.f_blocks => space.f_bavail.saturating_mul(space.f_frsize),
            _ => u64::MAX,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        debug_assert!(!name.contains('/'), "files lie flat in the directory");
        self.directory.path.join(name)
    }
}

/// Lists the files, without folders and without names that are not UTF-8 (never ours).
fn list(path: &Path) -> io::Result<Vec<FileName>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir()
            && let Ok(name) = entry.file_name().into_string()
        {
            names.push(name);
        }
    }
    Ok(names)
}

fn read_full(file: &File, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        match file.read_at(&mut into[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
