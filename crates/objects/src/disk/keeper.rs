//! The thread that looks after a disk: writes the journal, gives space back, tries a sick disk again.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    thread,
    time::Duration,
};

use tokio::time::Instant;

use super::Disk;
use crate::limits::{FLUSH_DELAY, LOOK_PAUSE, RETRY_PAUSE};

/// Wakes the keeper.
#[derive(Debug, Default)]
pub(super) struct Bell {
    state: Mutex<State>,
    woken: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    is_rung: bool,
    is_stopped: bool,
}

impl Bell {
    /// There is something to write.
    pub(super) fn ring(&self) {
        let mut state = self.lock();
        if !state.is_rung {
            state.is_rung = true;
            self.woken.notify_all();
        }
    }

    /// The keeper goes home.
    pub(super) fn stop(&self) {
        self.lock().is_stopped = true;
        self.woken.notify_all();
    }

    /// Waits for the bell, or for time to pass. False: stopped.
    fn wait(&self, pause: Duration) -> bool {
        self.wait_while(pause, |state| !state.is_rung && !state.is_stopped)
    }

    /// Waits for more to come together. False: stopped.
    fn collect(&self, pause: Duration) -> bool {
        self.wait_while(pause, |state| !state.is_stopped)
    }

    fn wait_while(&self, pause: Duration, condition: impl Fn(&State) -> bool) -> bool {
        let waited = self.woken.wait_timeout_while(self.lock(), pause, |state| condition(state));
        !waited.unwrap_or_else(PoisonError::into_inner).0.is_stopped
    }

    /// Whether it was rung since the last time.
    fn take(&self) -> bool {
        std::mem::take(&mut self.lock().is_rung)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts a thread for a disk. It ends when the disk is closed, or nobody has it any more.
pub(super) fn start(disk: &Arc<Disk>) {
    let (bell, weak) = (Arc::clone(&disk.bell), Arc::downgrade(disk));
    let started = thread::Builder::new().name("busload-disk".into()).spawn(move || keep(&bell, &weak));
    if let Err(error) = started {
        disk.health.fail(super::health::Bypass::Writes, "starting a thread", &error);
    }
}

fn keep(bell: &Bell, disk: &Weak<Disk>) {
    let mut looked = Instant::now();
    while bell.wait(LOOK_PAUSE) && bell.collect(FLUSH_DELAY) {
        let Some(disk) = disk.upgrade() else { return };
        // While the disk is sick nothing is written, but the time of the next try comes.
        if bell.take() && disk.health.is_writable() {
            disk.flush();
        }
        let pause = if disk.health.is_writable() { LOOK_PAUSE } else { RETRY_PAUSE };
        if pause <= looked.elapsed() {
            disk.look();
            looked = Instant::now();
        }
    }
}

impl Disk {
    /// What is to be done now and then.
    pub(super) fn look(&self) {
        if self.is_closed.load(std::sync::atomic::Ordering::Acquire) {
            return;
        }
        if !self.health.is_writable() {
            return self.try_again();
        }
        if self.is_replaced() {
            return self.lose_directory();
        }
        // A file that could not be opened while the disk was well gives its space back as soon as it can.
        self.bury();
        self.look_at_space();
    }

    /// A disk that was sick is asked whether it works again.
    fn try_again(&self) {
        if self.is_ours() && self.is_replaced() {
            self.lose_directory();
        }
        let works = if self.is_ours() { self.rewrite_journal() && self.bury() } else { self.load_again() };
        if works {
            self.health.recover();
        }
    }

    fn rewrite_journal(&self) -> bool {
        // Its bytes stay reserved: the old journal is there until the new one takes its name.
        self.journal.lock().unwrap_or_else(PoisonError::into_inner).write_anew();
        self.flush()
    }
}
