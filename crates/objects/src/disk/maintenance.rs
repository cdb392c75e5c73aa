//! The task that looks after a disk: writes the journal, gives space back, tries a degraded disk
//! again.
//!
//! A task of each disk waits on the cache's runtime, and what blocks for the device runs on a
//! thread of that runtime's pool ([`super::threads`]). A disk at rest costs no thread, and one that
//! hangs holds its own share of them and no other's.

use std::sync::{
    Arc, Weak,
    atomic::{
        AtomicBool,
        Ordering::{AcqRel, Acquire, Release},
    },
};

use tokio::{
    runtime::Handle,
    sync::Notify,
    time::{Duration, Instant, timeout_at},
};

use super::{Disk, DiskAccess};
use crate::disk::limits::{FLUSH_DELAY, LOOK_PAUSE, RETRY_PAUSE};

/// Wakes the maintenance.
#[derive(Debug, Default)]
pub(super) struct Notifier {
    is_rung: AtomicBool,
    is_stopped: AtomicBool,
    woken: Notify,
}

impl Notifier {
    /// There is something to write.
    pub(super) fn notify(&self) {
        if !self.is_rung.swap(true, AcqRel) {
            self.woken.notify_one();
        }
    }

    /// The maintenance goes home.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Release);
        self.woken.notify_one();
    }

    /// Waits for the notifier, or for time to pass. False: stopped.
    async fn wait(&self, pause: Duration) -> bool {
        self.wait_while(pause, || !self.is_rung.load(Acquire)).await
    }

    /// Waits for more to come together. False: stopped.
    async fn collect(&self, pause: Duration) -> bool {
        self.wait_while(pause, || true).await
    }

    async fn wait_while(&self, pause: Duration, goes_on: impl Fn() -> bool) -> bool {
        let until = Instant::now() + pause;
        while !self.is_stopped.load(Acquire) && goes_on() {
            if timeout_at(until, self.woken.notified()).await.is_err() {
                break;
            }
        }
        !self.is_stopped.load(Acquire)
    }

    /// Whether it was rung since the last time.
    fn take(&self) -> bool {
        self.is_rung.swap(false, AcqRel)
    }
}

/// Starts the task of a disk. It ends when the disk is closed, or nobody has it any more.
pub(super) fn start(disk: &Arc<Disk>, runtime: &Handle) {
    drop(runtime.spawn(keep(Arc::clone(&disk.notifier), Arc::downgrade(disk), runtime.clone())));
}

async fn keep(notifier: Arc<Notifier>, disk: Weak<Disk>, runtime: Handle) {
    let mut looked = Instant::now();
    while notifier.wait(LOOK_PAUSE).await && notifier.collect(FLUSH_DELAY).await {
        let Some(disk) = disk.upgrade() else { return };
        let is_writable = disk.health.is_writable();
        let pause = if is_writable { LOOK_PAUSE } else { RETRY_PAUSE };
        // While the disk is degraded nothing is written, but the time of the next try comes.
        let (must_flush, must_look) = (notifier.take() && is_writable, pause <= looked.elapsed());
        if must_look {
            looked = Instant::now();
        }
        if must_flush || must_look {
            let tended = Arc::clone(&disk);
            let tend = move || {
                if must_flush {
                    tended.flush();
                }
                if must_look {
                    tended.look();
                }
            };
            // None: the runtime ends, and this task with it.
            disk.run(&runtime, DiskAccess::Write, tend).await;
        }
    }
}

impl Disk {
    /// What is to be done now and then.
    pub(super) fn look(&self) {
        if self.is_closed.load(Acquire) {
            return;
        }
        if !self.health.is_writable() {
            return self.try_again();
        }
        if self.is_replaced() {
            return self.lose_directory();
        }
        // A file that could not be opened while the disk was well gives its space back as soon as
        // it can.
        self.reclaim_space();
        self.look_at_space();
    }

    /// A disk that was degraded is asked whether it works again.
    fn try_again(&self) {
        if self.is_ours() && self.is_replaced() {
            self.lose_directory();
        }
        let works = if self.is_ours() {
            self.rewrite_journal() && self.reclaim_space()
        } else {
            self.load_again()
        };
        if works {
            self.health.recover();
        }
    }

    fn rewrite_journal(&self) -> bool {
        // Its bytes stay reserved: the old journal is there until the new one takes its name.
        self.journal.lock().unwrap_or_else(std::sync::PoisonError::into_inner).write_anew();
        self.flush()
    }
}
