//! Nothing is left behind: child processes and temporary directories end with the bench, however it
//! ends.
//!
//! Every child and directory is known to a [`Cleanup`]. Values dropped in order end their own; a
//! panic (which aborts, and so drops nothing) and SIGINT, SIGTERM and SIGHUP end everything there
//! is. Only SIGKILL cannot be helped.

use std::{
    fs, io,
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

/// Knows what has to be ended.
#[derive(Clone, Debug, Default)]
pub struct Cleanup {
    owned: Arc<Mutex<Owned>>,
}

#[derive(Debug, Default)]
struct Owned {
    children: Vec<(u32, Child)>,
    directories: Vec<PathBuf>,
}

impl Owned {
    /// A child is reaped only here and in `Process`, under the lock: its id cannot have become
    /// another's.
    fn end_all(&mut self) {
        for (_, mut child) in self.children.drain(..).rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
        for directory in self.directories.drain(..) {
            let _ = fs::remove_dir_all(directory);
        }
    }
}

impl Cleanup {
    /// Also ends everything on a panic or a signal.
    pub fn install() -> Result<Self> {
        let cleanup = Self::default();
        cleanup.end_on_panic();
        let on_signal = cleanup.clone();
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("signal handlers")?;
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                if let Some(signal) = signals.forever().next() {
                    on_signal.lock().end_all();
                    std::process::exit(128 + signal);
                }
            })
            .context("a thread for signals")?;
        Ok(cleanup)
    }

    /// A lock held by the panicking thread itself must not turn the panic into a hang.
    fn end_on_panic(&self) {
        let owned = Arc::clone(&self.owned);
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            print(panic);
            match owned.try_lock() {
                Ok(mut owned) => owned.end_all(),
                Err(TryLockError::Poisoned(owned)) => owned.into_inner().end_all(),
                Err(TryLockError::WouldBlock) => {}
            }
        }));
    }

    pub fn spawn(&self, command: &mut Command) -> Result<Process> {
        let name = command.get_program().to_string_lossy().into_owned();
        let mut owned = self.lock();
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let id = child.id();
        owned.children.push((id, child));
        Ok(Process { cleanup: self.clone(), id, name })
    }

    /// Makes a new directory in `parent`.
    pub fn directory(&self, parent: &Path) -> Result<Directory> {
        let mut owned = self.lock();
        for number in 0_u32.. {
            let path = parent.join(format!("busload-bench-{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => {
                    owned.directories.push(path.clone());
                    return Ok(Directory { cleanup: self.clone(), path });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot make {}", path.display()));
                }
            }
        }
        bail!("no free name in {}", parent.display())
    }

    fn lock(&self) -> MutexGuard<'_, Owned> {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A child process; killed when dropped.
#[derive(Debug)]
pub struct Process {
    cleanup: Cleanup,
    id: u32,
    name: String,
}

impl Process {
    /// Its process id, valid as long as this value lives and the process was not seen to end.
    pub fn pid(&self) -> Pid {
        i32::try_from(self.id).ok().and_then(Pid::from_raw).expect("the id of a child")
    }

    /// Gives something of the child away, as one of its pipes.
    pub fn with_child<T>(&self, take: impl FnOnce(&mut Child) -> Option<T>) -> Option<T> {
        let mut owned = self.cleanup.lock();
        owned.children.iter_mut().find(|(id, _)| *id == self.id).and_then(|(_, child)| take(child))
    }

    /// Returns how it ended, if it did.
    pub fn poll_exit(&self) -> Option<ExitStatus> {
        self.with_child(|child| child.try_wait().ok().flatten())
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
                bail!("{} did not stop within {timeout:?} and was killed", self.name);
            }
            pause(POLL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let mut owned = self.cleanup.lock();
        if let Some(position) = owned.children.iter().position(|(id, _)| *id == self.id) {
            let (_, mut child) = owned.children.swap_remove(position);
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A directory; removed with all it holds when dropped.
#[derive(Debug)]
pub struct Directory {
    cleanup: Cleanup,
    path: PathBuf,
}

impl Directory {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
        self.cleanup.lock().directories.retain(|path| *path != self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_process_is_gone_and_a_stopped_one_tells_how_it_ended() {
        let cleanup = Cleanup::default();
        let process = cleanup.spawn(Command::new("sleep").arg("1000")).unwrap();
        let pid = process.pid();
        assert!(process.poll_exit().is_none());
        drop(process);
        assert!(rustix::process::test_kill_process(pid).is_err());
        let process = cleanup.spawn(Command::new("sleep").arg("1000")).unwrap();
        assert!(!process.stop(Signal::TERM, Duration::from_secs(60)).unwrap().success());
    }

    #[test]
    fn ending_everything_ends_children_and_directories() {
        let cleanup = Cleanup::default();
        let process = cleanup.spawn(Command::new("sleep").arg("1000")).unwrap();
        let directory = cleanup.directory(&std::env::temp_dir()).unwrap();
        fs::write(directory.path().join("file"), "x").unwrap();
        cleanup.lock().end_all();
        assert!(!directory.path().exists());
        assert!(rustix::process::test_kill_process(process.pid()).is_err());
    }
}
