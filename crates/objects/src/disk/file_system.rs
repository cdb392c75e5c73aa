//! The seam to the file system: every operation that the cache needs, so that tests can make each
//! of them fail.

use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
};

use rustix::fs::FlockOperation;

/// Mode in which a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// Opens the file for reads.
    Read,
    /// Opens for reads and writes.
    Write,
    /// Opens for reads and writes; makes the file where it is missing.
    Make,
    /// Opens for reads and writes, empty, whatever was there.
    Replace,
}

/// Length, space and identity of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStatus {
    /// Bytes from its begin to its end, holes included.
    pub(crate) length: u64,
    /// Bytes of disk that it takes.
    pub(crate) allocated: u64,
    /// Device and inode: which file it is, whatever its name.
    pub(crate) identity: (u64, u64),
}

/// Operations of a file system.
pub(crate) trait FileSystem: fmt::Debug + Send + Sync {
    /// Opens a file in a mode.
    fn open(&self, path: &Path, how: OpenMode) -> io::Result<Box<dyn OpenFile>>;
    /// Removes a file's name.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Gives a file another name, in place of what had that name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes a directory and those above it.
    fn make_directory(&self, path: &Path) -> io::Result<()>;
    /// Names of what is in a directory; those that are not UTF-8 are left out.
    fn names(&self, directory: &Path) -> io::Result<Vec<String>>;
    /// Status of a file by its name.
    fn status(&self, path: &Path) -> io::Result<FileStatus>;
    /// Bytes of the file system that this process may still take.
    fn free_bytes(&self, directory: &Path) -> io::Result<u64>;
}

/// Operations of an open file.
pub(crate) trait OpenFile: fmt::Debug + Send + Sync {
    /// Reads what is in the page cache; less where less is there, `WouldBlock` for nothing.
    fn read_now(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Reads with one call, which may bring less than asked for.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes with one call, which may take less than asked for.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Sets the length of the file.
    fn set_length(&self, length: u64) -> io::Result<()>;
    /// Releases the space of a range, which reads as zeros then.
    fn punch(&self, offset: u64, length: u64) -> io::Result<()>;
    /// Status of this file, whatever its name.
    fn status(&self) -> io::Result<FileStatus>;
    /// Locks the file. False: another process has locked it.
    fn lock(&self) -> io::Result<bool>;
}

/// Reads until the buffer is full or the file ends. Returns the bytes read.
pub(crate) fn read_full(file: &dyn OpenFile, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Writes all of the bytes.
pub(crate) fn write_full(file: &dyn OpenFile, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match file.write_at(&bytes[done..], offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The file system of this machine.
#[derive(Debug)]
pub(crate) struct RealFileSystem;

impl FileSystem for RealFileSystem {
    fn open(&self, path: &Path, how: OpenMode) -> io::Result<Box<dyn OpenFile>> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(how != OpenMode::Read)
            .create(matches!(how, OpenMode::Make | OpenMode::Replace));
        Ok(Box::new(options.truncate(how == OpenMode::Replace).open(path)?))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn names(&self, directory: &Path) -> io::Result<Vec<String>> {
        let names = fs::read_dir(directory)?
            .map(|entry| entry.map(|entry| entry.file_name().into_string()));
        names.filter_map(|name| name.map(Result::ok).transpose()).collect()
    }

    fn status(&self, path: &Path) -> io::Result<FileStatus> {
        fs::metadata(path).map(|metadata| status(&metadata))
    }

    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        let space = rustix::fs::statvfs(directory)?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }
}

impl OpenFile for File {
    #[cfg(target_os = "linux")]
    fn read_now(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        use rustix::io::{ReadWriteFlags, preadv2};
        let mut buffers = [io::IoSliceMut::new(buffer)];
        Ok(preadv2(self, &mut buffers, offset, ReadWriteFlags::NOWAIT)?)
    }

    #[cfg(not(target_os = "linux"))]
    fn read_now(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, offset)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    #[cfg(target_os = "linux")]
    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        Ok(fallocate(self, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, length)?)
    }

    #[cfg(not(target_os = "linux"))]
    fn punch(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn status(&self) -> io::Result<FileStatus> {
        self.metadata().map(|metadata| status(&metadata))
    }

    fn lock(&self) -> io::Result<bool> {
        match rustix::fs::flock(self, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

fn status(metadata: &fs::Metadata) -> FileStatus {
    FileStatus {
        length: metadata.len(),
        allocated: metadata.blocks().saturating_mul(512),
        identity: (metadata.dev(), metadata.ino()),
    }
}
