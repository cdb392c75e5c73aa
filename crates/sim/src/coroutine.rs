//! A thread that runs only while the simulation waits for it, so that its operations of the disk
//! have a place in the simulation's order.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use busload_io::{
    Disk, DiskError, DiskErrorKind, DiskOperation, FileName,
    sim::{SimDisk, SimFile},
};
use busload_snapshot::Stopped;

/// Thread that pauses before each operation of its disk.
pub struct Coroutine {
    turns: Arc<Turns>,
    thread: Option<JoinHandle<()>>,
}

/// The thread's end: waits until the simulation lets it go on.
#[derive(Debug, Default)]
pub struct Turns {
    state: Mutex<TurnState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct TurnState {
    /// Number of further operations that the thread may do in this turn.
    budget: u64,
    is_running: bool,
    stop: bool,
    ended: bool,
}

impl Coroutine {
    /// Starts a thread, which waits for its first turn.
    pub fn start(body: impl FnOnce(&Turns) + Send + 'static, turns: Arc<Turns>) -> Self {
        let own = Arc::clone(&turns);
        let thread = thread::spawn(move || {
            let ended = EndWhenDropped(&own);
            if own.wait_for_turn().is_ok() {
                body(&own);
            }
            drop(ended);
        });
        Self { turns, thread: Some(thread) }
    }

    /// Lets the thread do so many operations, and waits until they are done.
    pub fn resume(&mut self, operations: u64) {
        let mut state = self.turns.lock();
        if state.ended {
            drop(state);
            self.join();
            return;
        }
        (state.budget, state.is_running) = (operations, true);
        self.turns.changed.notify_all();
        let running = |state: &mut TurnState| state.is_running && !state.ended;
        let waited = self.turns.changed.wait_while(state, running);
        let ended = waited.unwrap_or_else(PoisonError::into_inner).ended;
        if ended {
            self.join();
        }
    }

    /// Ends the thread, and panics if it has panicked.
    fn join(&mut self) {
        if let Some(thread) = self.thread.take()
            && let Err(panic) = thread.join()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Drop for Coroutine {
    fn drop(&mut self) {
        let mut state = self.turns.lock();
        state.stop = true;
        drop(state);
        self.turns.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && let Err(panic) = thread.join()
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Turns {
    /// Counts an operation; waits for the next turn when those of this one are done.
    ///
    /// # Errors
    /// If the simulation ends the thread.
    pub fn pass(&self) -> Result<(), Stopped> {
        let mut state = self.lock();
        if state.stop || state.budget == 0 {
            drop(state);
            return self.pause();
        }
        state.budget -= 1;
        Ok(())
    }

    /// Ends this turn and waits for the next.
    ///
    /// # Errors
    /// If the simulation ends the thread.
    pub fn pause(&self) -> Result<(), Stopped> {
        self.lock().is_running = false;
        self.changed.notify_all();
        self.wait_for_turn()
    }

    fn wait_for_turn(&self) -> Result<(), Stopped> {
        let waiting = |state: &mut TurnState| !state.is_running && !state.stop;
        let waited = self.changed.wait_while(self.lock(), waiting);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.budget = state.budget.saturating_sub(1);
        if state.stop { Err(Stopped) } else { Ok(()) }
    }

    fn lock(&self) -> MutexGuard<'_, TurnState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells the simulation that the thread has ended, also by a panic.
struct EndWhenDropped<'a>(&'a Turns);

impl Drop for EndWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.changed.notify_all();
    }
}

/// Disk whose operations wait for the thread's turn.
#[derive(Clone, Debug)]
pub struct TurnDisk {
    disk: SimDisk,
    turns: Arc<Turns>,
}

impl TurnDisk {
    /// Wraps the disk for the thread with these turns.
    pub fn new(disk: SimDisk, turns: Arc<Turns>) -> Self {
        Self { disk, turns }
    }

    fn pass(&self, operation: DiskOperation, name: &str) -> Result<(), DiskError> {
        self.turns.pass().map_err(|stopped| DiskError {
            kind: DiskErrorKind::Failed,
            operation,
            path: self.disk.path(name),
            source: io::Error::other(stopped),
        })
    }
}

impl Disk for TurnDisk {
    type File = SimFile;

    fn lock(&self, name: &str) -> Result<SimFile, DiskError> {
        self.pass(DiskOperation::Lock, name)?;
        self.disk.lock(name)
    }

    fn list(&self) -> Result<Vec<FileName>, DiskError> {
        self.pass(DiskOperation::List, "")?;
        self.disk.list()
    }

    fn create(&self, name: &str) -> Result<SimFile, DiskError> {
        self.pass(DiskOperation::Create, name)?;
        self.disk.create(name)
    }

    fn open(&self, name: &str) -> Result<SimFile, DiskError> {
        self.pass(DiskOperation::Open, name)?;
        self.disk.open(name)
    }

    fn length(&self, file: &SimFile) -> Result<u64, DiskError> {
        self.pass(DiskOperation::Length, "")?;
        self.disk.length(file)
    }

    fn read_at(&self, file: &SimFile, offset: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        self.pass(DiskOperation::Read, "")?;
        self.disk.read_at(file, offset, into)
    }

    fn write_at(
        &self,
        file: &SimFile,
        offset: u64,
        parts: &[io::IoSlice<'_>],
    ) -> Result<(), DiskError> {
        self.pass(DiskOperation::Write, "")?;
        self.disk.write_at(file, offset, parts)
    }

    fn truncate(&self, file: &SimFile, length: u64) -> Result<(), DiskError> {
        self.pass(DiskOperation::Truncate, "")?;
        self.disk.truncate(file, length)
    }

    fn sync(&self, file: &SimFile) -> Result<(), DiskError> {
        self.pass(DiskOperation::Sync, "")?;
        self.disk.sync(file)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.pass(DiskOperation::Rename, from)?;
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        self.pass(DiskOperation::Remove, name)?;
        self.disk.remove(name)
    }

    fn sync_directory(&self) -> Result<(), DiskError> {
        self.pass(DiskOperation::SyncDirectory, "")?;
        self.disk.sync_directory()
    }

    fn available_bytes(&self) -> u64 {
        self.disk.available_bytes()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.disk.path(name)
    }
}
