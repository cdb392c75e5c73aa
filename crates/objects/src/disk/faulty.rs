//! A file system for tests that fails on demand.

use std::{
    io,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicU64,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
};

use super::file_system::{FileStatus, FileSystem, OpenFile, OpenMode, RealFileSystem};

/// Fault of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Writes fail: the disk is full.
    Full,
    /// A write takes half of its bytes, and all later ones fail.
    FullInside,
    Degraded,
    /// Reads of files fail.
    ReadsFail,
    /// Nothing can be changed: the file system is read-only.
    ReadOnly,
    /// No file is where it was: the directory has vanished.
    Vanished,
    /// Reads and writes end early; nothing fails.
    Short,
    /// Punching holes is not supported.
    NoHoles,
    PunchFails,
    /// Names cannot be removed.
    RemoveFails,
    /// Opening fails for want of descriptors.
    NoDescriptors,
}

/// All faults, for property tests.
pub(crate) const FAULTS: [Fault; 11] = [
    Fault::Full,
    Fault::FullInside,
    Fault::Degraded,
    Fault::ReadsFail,
    Fault::ReadOnly,
    Fault::Vanished,
    Fault::Short,
    Fault::NoHoles,
    Fault::PunchFails,
    Fault::RemoveFails,
    Fault::NoDescriptors,
];

/// The file system of this machine, until a fault begins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faulty(Arc<Plan>);

#[derive(Debug, Default)]
struct Plan {
    fault: Mutex<Option<Fault>>,
    /// Calls until the fault begins.
    delay: AtomicU64,
    /// Free bytes to report; 0 for the real ones.
    free: AtomicU64,
}

/// Operation that a fault may hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Open,
    Make,
    Remove,
    Rename,
    Names,
    Status,
    Read,
    Write,
    Punch,
}

impl Faulty {
    /// Lets a fault begin after this many calls.
    pub(crate) fn fail_after(&self, calls: u64, fault: Fault) {
        self.0.delay.store(calls, Release);
        *self.0.fault.lock().unwrap() = Some(fault);
    }

    /// Ends the current fault.
    pub(crate) fn heal(&self) {
        *self.0.fault.lock().unwrap() = None;
    }

    /// Sets the free bytes that the file system reports.
    pub(crate) fn set_free(&self, bytes: u64) {
        self.0.free.store(bytes, Release);
    }
}

impl Plan {
    fn fault(&self) -> Option<Fault> {
        let fault = *self.fault.lock().unwrap();
        let begun = self.delay.fetch_update(AcqRel, Acquire, |delay| delay.checked_sub(1)).is_err();
        fault.filter(|_| begun)
    }

    /// Fails a call if the fault hits it.
    fn check(&self, call: Call) -> io::Result<Option<Fault>> {
        use rustix::io::Errno;
        let Some(fault) = self.fault() else { return Ok(None) };
        let changes =
            matches!(call, Call::Make | Call::Remove | Call::Rename | Call::Write | Call::Punch);
        let named =
            matches!(call, Call::Open | Call::Make | Call::Remove | Call::Rename | Call::Names);
        let error = match fault {
            Fault::Full if matches!(call, Call::Write | Call::Make) => Errno::NOSPC,
            Fault::Degraded => Errno::IO,
            Fault::ReadsFail if call == Call::Read => Errno::IO,
            Fault::ReadOnly if changes => Errno::ROFS,
            Fault::Vanished if named || call == Call::Status => Errno::NOENT,
            Fault::NoHoles if call == Call::Punch => Errno::OPNOTSUPP,
            Fault::PunchFails if call == Call::Punch => Errno::IO,
            Fault::RemoveFails if call == Call::Remove => Errno::PERM,
            Fault::NoDescriptors if matches!(call, Call::Open | Call::Make) => Errno::MFILE,
            _ => return Ok(Some(fault)),
        };
        Err(error.into())
    }
}

impl FileSystem for Faulty {
    fn open(&self, path: &Path, how: OpenMode) -> io::Result<Box<dyn OpenFile>> {
        let call =
            if matches!(how, OpenMode::Read | OpenMode::Write) { Call::Open } else { Call::Make };
        if self.0.check(call)? == Some(Fault::ReadOnly) && how != OpenMode::Read {
            return Err(rustix::io::Errno::ROFS.into());
        }
        Ok(Box::new(FaultyFile {
            file: RealFileSystem.open(path, how)?,
            plan: Arc::clone(&self.0),
        }))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.check(Call::Remove)?;
        RealFileSystem.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.check(Call::Rename)?;
        RealFileSystem.rename(from, to)
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        self.0.check(Call::Status)?;
        RealFileSystem.make_directory(path)
    }

    fn names(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.0.check(Call::Names)?;
        RealFileSystem.names(directory)
    }

    fn status(&self, path: &Path) -> io::Result<FileStatus> {
        self.0.check(Call::Status)?;
        RealFileSystem.status(path)
    }

    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        self.0.check(Call::Status)?;
        match self.0.free.load(Acquire) {
            0 => RealFileSystem.free_bytes(directory),
            free => Ok(free),
        }
    }
}

#[derive(Debug)]
struct FaultyFile {
    file: Box<dyn OpenFile>,
    plan: Arc<Plan>,
}

/// Returns about half of the bytes, but at least one.
fn half(length: usize) -> usize {
    length.div_ceil(2)
}

impl OpenFile for FaultyFile {
    fn read_now(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let end = match self.plan.check(Call::Read)? {
            Some(Fault::Short) => half(buffer.len()),
            _ => buffer.len(),
        };
        self.file.read_now(&mut buffer[..end], offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let end = match self.plan.check(Call::Read)? {
            Some(Fault::Short) => half(buffer.len()),
            _ => buffer.len(),
        };
        self.file.read_at(&mut buffer[..end], offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        match self.plan.check(Call::Write)? {
            Some(Fault::Short) => self.file.write_at(&bytes[..half(bytes.len())], offset),
            // Lengths that are no multiple of a block continue a write that ended early.
            Some(Fault::FullInside) if bytes.len().is_multiple_of(4096) => {
                self.file.write_at(&bytes[..half(bytes.len()) - 1], offset)
            }
            Some(Fault::FullInside) => Err(rustix::io::Errno::NOSPC.into()),
            _ => self.file.write_at(bytes, offset),
        }
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.plan.check(Call::Write)?;
        self.file.set_length(length)
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        self.plan.check(Call::Punch)?;
        self.file.punch(offset, length)
    }

    fn status(&self) -> io::Result<FileStatus> {
        self.plan.check(Call::Status)?;
        self.file.status()
    }

    fn lock(&self) -> io::Result<bool> {
        self.plan.check(Call::Status)?;
        self.file.lock()
    }
}
