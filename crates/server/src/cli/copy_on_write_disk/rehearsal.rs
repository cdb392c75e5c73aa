//! Finds out whether the directory below would refuse a change, without making the change.

use std::{
    fs, io,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::io::Errno;

/// A directory on which changes are tried. It need not exist.
#[derive(Debug)]
pub(super) struct Rehearsal {
    /// Free space of the file system, less the growth of files so far.
    free_bytes: Mutex<u64>,
}

/// Kind of entry to try to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trial {
    File,
    Directory,
}

impl Rehearsal {
    /// Fails if the directory is missing and could not be created.
    pub fn of(path: &Path) -> io::Result<Self> {
        let parent = path
            .ancestors()
            .map(or_here)
            .find(|ancestor| ancestor.exists())
            .unwrap_or(Path::new("/"));
        if parent != path {
            try_in(parent, Trial::Directory)?;
        }
        Ok(Self { free_bytes: Mutex::new(free_bytes(parent)) })
    }

    #[cfg(test)]
    pub fn with_free_bytes(free_bytes: u64) -> Self {
        Self { free_bytes: Mutex::new(free_bytes) }
    }

    /// Fails if no file with this path could be created. Its directory may be missing.
    pub fn try_create(&self, path: &Path) -> io::Result<()> {
        if path.is_dir() {
            return Err(Errno::ISDIR.into());
        }
        match path.parent().map(or_here) {
            Some(directory) if directory.exists() => try_in(directory, Trial::File),
            _ => Ok(()),
        }
    }

    pub fn available_bytes(&self) -> u64 {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.free_bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the growth of a file from the free space, or gives back what it shrank by.
    pub fn resize(&self, from: u64, to: u64) -> io::Result<()> {
        let mut free_bytes = self.lock();
        match (*free_bytes).saturating_add(from).checked_sub(to) {
            Some(left) => {
                *free_bytes = left;
                Ok(())
            }
            None => Err(Errno::NOSPC.into()),
        }
    }
}

/// Returns `.` for the empty path, which is the parent of a relative one.
fn or_here(path: &Path) -> &Path {
    if path == Path::new("") { Path::new(".") } else { path }
}

/// Tries to create an entry: a file without a name (`O_TMPFILE`), or, on file systems that do not
/// have them, a file or directory with a name, removed at once.
fn try_in(directory: &Path, trial: Trial) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{Mode, OFlags};
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR) {
            Ok(_) => return Ok(()),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let path = directory.join(format!(".busload-check-{}", std::process::id()));
    match trial {
        Trial::File => fs::File::create_new(&path).and_then(|_| fs::remove_file(&path)),
        Trial::Directory => fs::create_dir(&path).and_then(|()| fs::remove_dir(&path)),
    }
}

/// Returns the space of the directory's file system that this user may take; no limit if that is
/// not known.
fn free_bytes(directory: &Path) -> u64 {
    match rustix::fs::statvfs(directory) {
        Ok(space) if 0 < space.f_blocks => space.f_bavail.saturating_mul(space.f_frsize),
        _ => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_can_be_written_is_left_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("some/where");
        for path in [directory.path(), &missing] {
            let rehearsal = Rehearsal::of(path).unwrap();
            rehearsal.try_create(&path.join("a")).unwrap();
        }
        for trial in [Trial::File, Trial::Directory] {
            try_in(directory.path(), trial).unwrap();
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    /// In /proc not even root can create anything.
    #[test]
    fn what_cannot_be_made_is_an_error() {
        for path in ["/proc/busload", "/proc/busload/log", "/proc/version/log"] {
            Rehearsal::of(Path::new(path)).unwrap_err();
        }
        let rehearsal = Rehearsal::of(Path::new("/proc/self/task")).unwrap();
        rehearsal.try_create(Path::new("/proc/self/task/new")).unwrap_err();
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("folder");
        fs::create_dir(&folder).unwrap();
        let error = Rehearsal::of(directory.path()).unwrap().try_create(&folder).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
    }

    #[test]
    fn space_is_taken_and_given_back() {
        let rehearsal = Rehearsal::with_free_bytes(100);
        rehearsal.resize(0, 60).unwrap();
        assert_eq!(rehearsal.resize(60, 101).unwrap_err().kind(), io::ErrorKind::StorageFull);
        rehearsal.resize(0, 40).unwrap();
        rehearsal.resize(0, 1).unwrap_err();
        rehearsal.resize(60, 50).unwrap();
        rehearsal.resize(0, 10).unwrap();
        assert!(0 < free_bytes(tempfile::tempdir().unwrap().path()));
    }
}
