//! Nothing is left behind: child processes and temporary directories end with the bench, however it
//! ends.
//!
//! Every child and directory is known to a [`Cleanup`]. Values dropped in order end their own; a
//! panic (which aborts, and so drops nothing) and SIGINT, SIGTERM and SIGHUP end everything there
//! is. Only SIGKILL cannot be helped.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
    sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
/// A directory; removed with all it holds when dropped.
pub use tempfile::TempDir as Directory;

use crate::{
    clock::{duration_ns, now_ns, pause},
    limits::POLL,
};

/// Makes the directory for an experiment's results, and a temporary directory: below
/// `parent`, or where the system has temporary files.
pub fn directories(cleanup: &Cleanup, out: &Path, parent: Option<&Path>) -> Result<Directory> {
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    cleanup.directory(parent.unwrap_or(&std::env::temp_dir()))
}

/// Knows what has to be ended, in the order in which it was made.
#[derive(Clone, Debug, Default)]
pub struct Cleanup {
    owned: Arc<Mutex<Vec<Owned>>>,
}

#[derive(Debug)]
enum Owned {
    Child(Arc<Mutex<Child>>),
    Directory(PathBuf),
}

fn end_all(owned: &[Owned]) {
    for owned in owned.iter().rev() {
        match owned {
            Owned::Child(child) => end(child),
            // One that is gone already was dropped.
            Owned::Directory(path) => drop(fs::remove_dir_all(path)),
        }
    }
}

/// Kills a child that was not seen to end. Its id cannot have become another's: it is reaped under
/// its lock only.
fn end(child: &Mutex<Child>) {
    let mut child = lock(child);
    let _ = child.kill();
    let _ = child.wait();
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cleanup {
    /// Also ends everything on a panic or a signal.
    pub fn install() -> Result<Self> {
        let cleanup = Self::default();
        let (on_panic, on_signal) = (Arc::clone(&cleanup.owned), Arc::clone(&cleanup.owned));
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            print(panic);
            // A lock held by the panicking thread itself must not turn the panic into a hang.
            match on_panic.try_lock() {
                Ok(owned) => end_all(&owned),
                Err(TryLockError::Poisoned(owned)) => end_all(&owned.into_inner()),
                Err(TryLockError::WouldBlock) => {}
            }
        }));
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("signal handlers")?;
        std::thread::spawn(move || {
            if let Some(signal) = signals.forever().next() {
                // Held to the end: nothing is started any more.
                let owned = lock(&on_signal);
                end_all(&owned);
                std::process::exit(128 + signal);
            }
        });
        Ok(cleanup)
    }

    pub fn spawn(&self, command: &mut Command) -> Result<Process> {
        let mut owned = lock(&self.owned);
        let started = command.spawn();
        let child = started.with_context(|| format!("cannot start {:?}", command.get_program()))?;
        let child = Arc::new(Mutex::new(child));
        owned.push(Owned::Child(Arc::clone(&child)));
        Ok(Process { child })
    }

    /// Makes a new directory in `parent`.
    pub fn directory(&self, parent: &Path) -> Result<Directory> {
        let mut owned = lock(&self.owned);
        let made = tempfile::Builder::new().prefix("busload-bench-").tempdir_in(parent);
        let directory =
            made.with_context(|| format!("no new directory in {}", parent.display()))?;
        owned.push(Owned::Directory(directory.path().to_owned()));
        Ok(directory)
    }
}

/// A child process; killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Arc<Mutex<Child>>,
}

impl Process {
    /// Its process id, valid as long as this value lives and the process was not seen to end.
    pub fn pid(&self) -> Pid {
        i32::try_from(self.child().id()).ok().and_then(Pid::from_raw).expect("the id of a child")
    }

    /// Returns the child, whose pipes can be taken.
    pub fn child(&self) -> MutexGuard<'_, Child> {
        lock(&self.child)
    }

    /// Returns how it ended, if it did.
    pub fn poll_exit(&self) -> Option<ExitStatus> {
        self.child().try_wait().ok().flatten()
    }

    /// Sends a signal and waits for the end; kills it after `timeout`.
    pub fn stop(self, signal: Signal, timeout: Duration) -> Result<ExitStatus> {
        if self.poll_exit().is_none() {
            kill_process(self.pid(), signal).context("kill")?;
        }
        let until_ns = now_ns() + duration_ns(timeout);
        loop {
            if let Some(status) = self.poll_exit() {
                return Ok(status);
            }
            if until_ns < now_ns() {
                bail!("a program did not stop within {timeout:?} and was killed");
            }
            pause(POLL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        end(&self.child);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_process_is_gone_and_a_stopped_one_tells_how_it_ended() {
        let cleanup = Cleanup::default();
        let sleep = || cleanup.spawn(Command::new("sleep").arg("1000")).unwrap();
        let (process, stopped) = (sleep(), sleep());
        let pid = process.pid();
        assert!(process.poll_exit().is_none());
        drop(process);
        assert!(rustix::process::test_kill_process(pid).is_err());
        assert!(!stopped.stop(Signal::TERM, Duration::from_secs(60)).unwrap().success());
    }

    #[test]
    fn ending_everything_ends_children_and_directories() {
        let cleanup = Cleanup::default();
        let process = cleanup.spawn(Command::new("sleep").arg("1000")).unwrap();
        let directory = cleanup.directory(&std::env::temp_dir()).unwrap();
        fs::write(directory.path().join("file"), "x").unwrap();
        end_all(&lock(&cleanup.owned));
        assert!(!directory.path().exists());
        assert!(rustix::process::test_kill_process(process.pid()).is_err());
    }
}
