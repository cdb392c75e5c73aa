//! The share of one disk in the threads that may block.
//!
//! All disks share the runtime's pool of such threads, and a read that does not return costs the
//! pool a thread. So each disk has a limited number of them. A thread counts until its work has
//! really ended, even when nobody waits for it any more: a hung disk holds up only itself. Reads
//! and writes have limits of their own, so that reads do not wait behind the megabytes of fills,
//! and fills take no more processors than their threads.

use std::sync::Arc;

use tokio::{runtime::Handle, sync::Semaphore};

use crate::disk::limits::{DISK_READS_MAX, DISK_WRITES_MAX};

/// Kind of access, which decides the limit that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskAccess {
    /// A read for which somebody waits.
    Read,
    /// A write, a removal or a verification.
    Write,
}

/// Limits of the threads that one disk may block at once.
#[derive(Debug)]
pub(crate) struct DiskThreads {
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
}

impl DiskThreads {
    pub(super) fn new() -> Self {
        let [reads, writes] =
            [DISK_READS_MAX, DISK_WRITES_MAX].map(|count| Arc::new(Semaphore::new(count)));
        Self { reads, writes }
    }

    /// Waits for a free thread of the limit, then runs the work on the runtime's pool. A caller
    /// that gives up before takes no thread. Returns none if the runtime has ended.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        runtime: &Handle,
        access: DiskAccess,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let threads = match access {
            DiskAccess::Read => &self.reads,
            DiskAccess::Write => &self.writes,
        };
        let permit =
            Arc::clone(threads).acquire_owned().await.expect("the semaphore is never closed");
        let done = runtime.spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        match done.await {
            Ok(done) => Some(done),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::runtime::{Builder, Runtime};

    use super::*;

    fn pool(threads: usize) -> Runtime {
        Builder::new_multi_thread().worker_threads(1).max_blocking_threads(threads).build().unwrap()
    }

    /// One table whose disk hung took all sixteen threads of all tables.
    #[test]
    fn a_disk_that_hangs_leaves_threads_to_the_others() {
        let runtime = pool(DISK_READS_MAX + DISK_WRITES_MAX + 1);
        let [hung, well] = [(); 2].map(|()| Arc::new(DiskThreads::new()));
        let (ends, held) = mpsc::channel::<()>();
        let held = Arc::new(std::sync::Mutex::new(held));
        let mut stuck = Vec::new();
        for index in 0..50 {
            let (hung, held, handle) =
                (Arc::clone(&hung), Arc::clone(&held), runtime.handle().clone());
            let access = if index % 2 == 0 { DiskAccess::Read } else { DiskAccess::Write };
            let work = move || assert!(held.lock().unwrap().recv().is_err());
            stuck.push(runtime.spawn(async move { hung.run(&handle, access, work).await }));
        }
        let blocked = || DISK_READS_MAX - hung.reads.available_permits();
        while blocked() < DISK_READS_MAX || 0 < hung.writes.available_permits() {
            std::thread::yield_now();
        }
        // Nobody waits for some of the work any more, which does not bring its threads back.
        stuck.drain(..30).for_each(|task| task.abort());
        for access in [DiskAccess::Read, DiskAccess::Write] {
            assert_eq!(runtime.block_on(well.run(runtime.handle(), access, || 7)), Some(7));
        }
        assert_eq!((blocked(), hung.writes.available_permits()), (DISK_READS_MAX, 0));
        // All of it ends with the channel.
        drop(ends);
        for task in stuck {
            assert_eq!(runtime.block_on(task).unwrap(), Some(()));
        }
        assert_eq!(runtime.block_on(hung.run(runtime.handle(), DiskAccess::Read, || 8)), Some(8));
    }
}
