//! The maintenance task of a disk: writes the journal, evicts extents for the free space of others,
//! tries a degraded disk again.
//!
//! The task waits on the cache's runtime, and its blocking work runs on a thread of the disk's
//! share ([`super::threads`]). An idle disk costs no thread, and a hung one holds only its own
//! share.

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
use crate::disk::limits::{CHECK_INTERVAL, FLUSH_DELAY, RETRY_PAUSE};

/// Wakes the maintenance task.
#[derive(Debug, Default)]
pub(super) struct Notifier {
    is_notified: AtomicBool,
    is_stopped: AtomicBool,
    woken: Notify,
}

impl Notifier {
    /// Wakes the task: there is something to write.
    pub(super) fn notify(&self) {
        if !self.is_notified.swap(true, AcqRel) {
            self.woken.notify_one();
        }
    }

    /// Ends the maintenance task.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Release);
        self.woken.notify_one();
    }

    /// Waits for a notification, or for time to pass. False: stopped.
    async fn wait(&self, pause: Duration) -> bool {
        self.wait_while(pause, || !self.is_notified.load(Acquire)).await
    }

    /// Waits for more changes to write together. False: stopped.
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

    /// Returns whether there was a notification since the last call.
    fn take(&self) -> bool {
        self.is_notified.swap(false, AcqRel)
    }
}

/// Starts the task of a disk. It ends when the disk is closed or dropped.
pub(super) fn start(disk: &Arc<Disk>, runtime: &Handle) {
    drop(runtime.spawn(run(Arc::clone(&disk.notifier), Arc::downgrade(disk), runtime.clone())));
}

async fn run(notifier: Arc<Notifier>, disk: Weak<Disk>, runtime: Handle) {
    let mut checked_at = Instant::now();
    while notifier.wait(CHECK_INTERVAL).await && notifier.collect(FLUSH_DELAY).await {
        let Some(disk) = disk.upgrade() else { return };
        let is_writable = disk.health.is_writable();
        let pause = if is_writable { CHECK_INTERVAL } else { RETRY_PAUSE };
        // While the disk is degraded the task writes nothing, but waits for the next try.
        let (must_flush, must_check) =
            (notifier.take() && is_writable, pause <= checked_at.elapsed());
        if must_check {
            checked_at = Instant::now();
        }
        if must_flush || must_check {
            let own = Arc::clone(&disk);
            let work = move || {
                if must_flush {
                    own.flush();
                }
                if must_check {
                    own.check();
                }
            };
            // None: the runtime ends, and this task with it.
            disk.run(&runtime, DiskAccess::Write, work).await;
        }
    }
}

impl Disk {
    /// Checks directory and free space, or tries a degraded disk again.
    pub(super) fn check(&self) {
        if self.is_closed.load(Acquire) {
            return;
        }
        if !self.health.is_writable() {
            return self.try_again();
        }
        if self.is_replaced() {
            return self.lose_directory();
        }
        // Retries what failed on a healthy disk, such as a punch for want of descriptors.
        self.reclaim_space();
        self.check_space();
    }

    /// Checks whether a degraded disk works again.
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
