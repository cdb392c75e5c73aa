//! A copy-on-write disk: it reads the files of a directory and keeps all changes in memory. A start
//! on it does everything that a real one does and leaves nothing behind; that is how `busload
//! check` knows what would happen.
//!
//! ```text
//!  read  --> page changed? --yes--> memory
//!                 +---------no----> file (opened for reading only)
//!  write --> memory
//! ```
//!
//! **Rehearsal.** A disk made by [`CopyOnWriteDisk::rehearse`] also fails where the directory below
//! would: on files that cannot be opened for writing, in a directory in which nothing can be
//! created, on a full file system. It finds out without leaving anything there.
//!
//! **Limits.** Changed pages stay in memory; zeros written beyond the end of a file take none.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions, TryLockError},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use busload_io::{Disk, DiskError, DiskErrorKind, DiskOperation, FileName};

mod rehearsal;

use rehearsal::Rehearsal;

use super::read_meter::ReadMeter;

/// Fails if no file could be created in the directory, which need not exist. Leaves nothing there.
pub fn try_directory(path: &Path) -> io::Result<()> {
    Rehearsal::of(path)?.try_create(&path.join("file"))
}

const PAGE_BYTES: u64 = 4096;

type Page = Box<[u8; PAGE_BYTES as usize]>;

/// Handle of a copy-on-write directory. Clones share the directory.
#[derive(Clone, Debug)]
pub struct CopyOnWriteDisk {
    path: PathBuf,
    files: Arc<Mutex<BTreeMap<FileName, CopyOnWriteFile>>>,
    rehearsal: Option<Arc<Rehearsal>>,
    /// Meter that shows how many bytes were read.
    meter: ReadMeter,
}

/// Handle of a copy-on-write file. Clones share the file.
#[derive(Clone, Debug)]
pub struct CopyOnWriteFile {
    path: PathBuf,
    contents: Arc<Mutex<Contents>>,
}

#[derive(Debug, Default)]
struct Contents {
    below: Option<File>,
    /// Length of the part of the file below that a truncation has not hidden.
    below_bytes: u64,
    bytes: u64,
    pages: BTreeMap<u64, Page>,
}

impl CopyOnWriteDisk {
    /// Opens a directory for reading. One that does not exist is empty.
    pub fn open(path: &Path) -> Result<Self, DiskError> {
        Self::open_for(path, None)
    }

    /// Opens a directory on which every change fails that would fail on the one below.
    pub fn rehearse(path: &Path) -> Result<Self, DiskError> {
        let rehearsal =
            Rehearsal::of(path).map_err(|error| failed(DiskOperation::Create, path, error))?;
        Self::open_for(path, Some(Arc::new(rehearsal)))
    }

    fn open_for(path: &Path, rehearsal: Option<Arc<Rehearsal>>) -> Result<Self, DiskError> {
        let meter = ReadMeter::default();
        let disk = Self { path: path.to_owned(), files: Arc::default(), rehearsal, meter };
        let entries = match std::fs::read_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(disk),
            entries => entries.map_err(|error| failed(DiskOperation::List, path, error))?,
        };
        for entry in entries {
            let entry = entry.map_err(|error| failed(DiskOperation::List, path, error))?;
            let is_file = entry.file_type().is_ok_and(|kind| !kind.is_dir());
            if let Some(name) = entry.file_name().into_string().ok().filter(|_| is_file) {
                let file = CopyOnWriteFile::below(entry.path())?;
                disk.files().insert(name, file);
            }
        }
        Ok(disk)
    }

    /// Returns the meter of what is read from this disk.
    pub fn meter(&self) -> &ReadMeter {
        &self.meter
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<FileName, CopyOnWriteFile>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails if the file exists below and could not be opened for writing there.
    fn try_write(&self, operation: DiskOperation, file: &CopyOnWriteFile) -> Result<(), DiskError> {
        if self.rehearsal.is_none() || file.contents().below.is_none() {
            return Ok(());
        }
        let opened = OpenOptions::new().read(true).write(true).open(&file.path);
        opened.map(drop).map_err(|error| failed(operation, &file.path, error))
    }

    /// Fails if the file could not be created below.
    fn try_create(&self, operation: DiskOperation, name: &str) -> Result<(), DiskError> {
        match &self.rehearsal {
            None => Ok(()),
            Some(rehearsal) => {
                let path = self.path(name);
                rehearsal.try_create(&path).map_err(|error| failed(operation, &path, error))
            }
        }
    }

    /// Accounts for a change of a file's length; fails if the file system has no space for it.
    fn resize(
        &self,
        operation: DiskOperation,
        path: &Path,
        from: u64,
        to: u64,
    ) -> Result<(), DiskError> {
        let resized =
            self.rehearsal.as_ref().map_or(Ok(()), |rehearsal| rehearsal.resize(from, to));
        resized.map_err(|error| failed(operation, path, error))
    }

    fn not_found(&self, operation: DiskOperation, name: &str) -> DiskError {
        failed(operation, &self.path(name), io::ErrorKind::NotFound.into())
    }
}

impl CopyOnWriteFile {
    fn below(path: PathBuf) -> Result<Self, DiskError> {
        let opened = File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (bytes, file) = opened.map_err(|error| failed(DiskOperation::Open, &path, error))?;
        let contents =
            Contents { below: Some(file), below_bytes: bytes, bytes, pages: BTreeMap::new() };
        Ok(Self { path, contents: Arc::new(Mutex::new(contents)) })
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Contents {
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let count = into
            .len()
            .min(usize::try_from(self.bytes.saturating_sub(offset)).unwrap_or(usize::MAX));
        let into = &mut into[..count];
        self.read_below(offset, into)?;
        let end = offset + count as u64;
        for (&start, page) in self.pages.range(page_start(offset)..end) {
            let (from, to) = (start.max(offset), (start + PAGE_BYTES).min(end));
            into[index(from - offset)..index(to - offset)]
                .copy_from_slice(&page[index(from - start)..index(to - start)]);
        }
        Ok(count)
    }

    /// Reads from the file below; bytes beyond its visible part are zeros.
    fn read_below(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let seen = self.below_bytes.saturating_sub(offset).min(into.len() as u64);
        let (seen, behind) = into.split_at_mut(index(seen));
        behind.fill(0);
        match &self.below {
            Some(file) => file.read_exact_at(seen, offset),
            None => Ok(()),
        }
    }

    fn write(&mut self, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
        self.bytes = self.bytes.max(offset + bytes.len() as u64);
        while !bytes.is_empty() {
            let start = page_start(offset);
            let count = bytes.len().min(index(start + PAGE_BYTES - offset));
            let (part, rest) = bytes.split_at(count);
            let nothing_there = self.below_bytes <= start && !self.pages.contains_key(&start);
            if !nothing_there || part.iter().any(|&byte| byte != 0) {
                let from = index(offset - start);
                self.page(start)?[from..from + count].copy_from_slice(part);
            }
            (offset, bytes) = (offset + count as u64, rest);
        }
        Ok(())
    }

    /// Returns the page that begins here, copied from the file below on its first change.
    fn page(&mut self, start: u64) -> io::Result<&mut Page> {
        if !self.pages.contains_key(&start) {
            let mut page = Box::new([0; PAGE_BYTES as usize]);
            self.read_below(start, &mut page[..])?;
            self.pages.insert(start, page);
        }
        Ok(self.pages.get_mut(&start).expect("it was just put there"))
    }

    fn truncate(&mut self, length: u64) {
        self.below_bytes = self.below_bytes.min(length);
        self.pages.retain(|&start, _| start < length);
        let start = page_start(length);
        if let Some(page) = self.pages.get_mut(&start) {
            page[index(length - start)..].fill(0);
        }
        self.bytes = length;
    }
}

fn page_start(offset: u64) -> u64 {
    offset - offset % PAGE_BYTES
}

fn index(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a part of a buffer is no longer than memory")
}

fn failed(operation: DiskOperation, path: &Path, source: io::Error) -> DiskError {
    let kind = match source.kind() {
        io::ErrorKind::NotFound => DiskErrorKind::NotFound,
        io::ErrorKind::AlreadyExists => DiskErrorKind::Exists,
        io::ErrorKind::StorageFull => DiskErrorKind::NoSpace,
        _ => DiskErrorKind::Failed,
    };
    DiskError { kind, operation, path: path.to_owned(), source }
}

impl Disk for CopyOnWriteDisk {
    type File = CopyOnWriteFile;

    /// Takes a shared lock: two readers do not exclude each other, a server and a reader do.
    fn lock(&self, name: &str) -> Result<CopyOnWriteFile, DiskError> {
        let known = self.files().get(name).cloned();
        let Some(file) = known else { return self.create_for(DiskOperation::Lock, name) };
        let locked = file.contents().below.as_ref().map_or(Ok(()), File::try_lock_shared);
        match locked {
            Ok(()) => self.try_write(DiskOperation::Lock, &file).map(|()| file),
            Err(TryLockError::WouldBlock) => {
                Err(failed(DiskOperation::Lock, &file.path, io::ErrorKind::AlreadyExists.into()))
            }
            Err(TryLockError::Error(error)) => Err(failed(DiskOperation::Lock, &file.path, error)),
        }
    }

    fn list(&self) -> Result<Vec<FileName>, DiskError> {
        Ok(self.files().keys().cloned().collect())
    }

    fn create(&self, name: &str) -> Result<CopyOnWriteFile, DiskError> {
        self.create_for(DiskOperation::Create, name)
    }

    fn open(&self, name: &str) -> Result<CopyOnWriteFile, DiskError> {
        let known = self.files().get(name).cloned();
        let file = known.ok_or_else(|| self.not_found(DiskOperation::Open, name))?;
        self.try_write(DiskOperation::Open, &file)?;
        Ok(file)
    }

    fn length(&self, file: &CopyOnWriteFile) -> Result<u64, DiskError> {
        Ok(file.contents().bytes)
    }

    fn read_at(
        &self,
        file: &CopyOnWriteFile,
        offset: u64,
        into: &mut [u8],
    ) -> Result<usize, DiskError> {
        let count = file
            .contents()
            .read(offset, into)
            .map_err(|error| failed(DiskOperation::Read, &file.path, error))?;
        self.meter.add(count as u64);
        Ok(count)
    }

    fn write_at(
        &self,
        file: &CopyOnWriteFile,
        mut offset: u64,
        parts: &[io::IoSlice<'_>],
    ) -> Result<(), DiskError> {
        let mut contents = file.contents();
        let end = offset + parts.iter().map(|part| part.len() as u64).sum::<u64>();
        self.resize(DiskOperation::Write, &file.path, contents.bytes, end.max(contents.bytes))?;
        for part in parts {
            contents
                .write(offset, part)
                .map_err(|error| failed(DiskOperation::Write, &file.path, error))?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    fn truncate(&self, file: &CopyOnWriteFile, length: u64) -> Result<(), DiskError> {
        let mut contents = file.contents();
        self.resize(DiskOperation::Truncate, &file.path, contents.bytes, length)?;
        contents.truncate(length);
        Ok(())
    }

    fn sync(&self, _: &CopyOnWriteFile) -> Result<(), DiskError> {
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        let mut files = self.files();
        let file = files.remove(from).ok_or_else(|| self.not_found(DiskOperation::Rename, from))?;
        let replaced = files.insert(to.to_owned(), CopyOnWriteFile { path: self.path(to), ..file });
        drop(files);
        replaced.map_or(Ok(()), |file| self.release_space(DiskOperation::Rename, &file))
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        let removed = self.files().remove(name);
        let file = removed.ok_or_else(|| self.not_found(DiskOperation::Remove, name))?;
        self.release_space(DiskOperation::Remove, &file)
    }

    fn sync_directory(&self) -> Result<(), DiskError> {
        Ok(())
    }

    fn available_bytes(&self) -> u64 {
        self.rehearsal.as_ref().map_or(u64::MAX, |rehearsal| rehearsal.available_bytes())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl CopyOnWriteDisk {
    fn create_for(
        &self,
        operation: DiskOperation,
        name: &str,
    ) -> Result<CopyOnWriteFile, DiskError> {
        let file = CopyOnWriteFile { path: self.path(name), contents: Arc::default() };
        if self.files().contains_key(name) {
            return Err(failed(operation, &file.path, io::ErrorKind::AlreadyExists.into()));
        }
        self.try_create(operation, name)?;
        self.files().insert(name.to_owned(), file.clone());
        Ok(file)
    }

    /// Gives back the space of a file that was removed or replaced.
    fn release_space(
        &self,
        operation: DiskOperation,
        file: &CopyOnWriteFile,
    ) -> Result<(), DiskError> {
        self.resize(operation, &file.path, file.contents().bytes, 0)
    }
}

#[cfg(test)]
mod tests;
