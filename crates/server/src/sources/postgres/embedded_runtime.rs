//! A runtime embedded in the pipeline's thread: it runs while the pipeline waits for sockets, and
//! briefly in every turn.
//!
//! ```text
//!  pipeline: receive, execute, submit, flush --> idle: wait --> runtime: batches, statements,
//!     ^                                                            |     answers, its own sockets
//!     +-- poll's descriptor readable, notified, or time over <-----+
//! ```
//!
//! A request to a source then never changes threads: on a machine of one or two cores, saving two
//! wake-ups is worth more than a second thread. The price is that the work of a batch, some
//! microseconds per requested key, delays the other tables for as long.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
    sync::Arc,
    task::{Wake, Waker},
    time::Duration,
};

use busload_io::Idle;
use tokio::{
    io::{Interest, unix::AsyncFd},
    runtime::Runtime,
    sync::Notify,
    task::yield_now,
    time::timeout,
};

/// The runtime, as the poll of the pipeline's thread runs it.
#[derive(Debug)]
pub struct EmbeddedRuntime {
    /// The poll's descriptor, which the runtime watches. Dropped before the runtime.
    poll: Option<AsyncFd<OwnedFd>>,
    notifier: Arc<Notifier>,
    runtime: Arc<Runtime>,
}

/// Notified when there are answers to take.
#[derive(Debug, Default)]
pub struct Notifier {
    notify: Notify,
}

impl Notifier {
    /// Returns a waker that notifies it.
    pub fn waker(self: &Arc<Self>) -> Waker {
        Arc::clone(self).into()
    }
}

impl Wake for Notifier {
    fn wake(self: Arc<Self>) {
        self.notify.notify_one();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.notify.notify_one();
    }
}

impl EmbeddedRuntime {
    /// Creates a runtime whose wait ends early when `notifier` is notified.
    pub fn new(runtime: Arc<Runtime>, notifier: Arc<Notifier>) -> Self {
        Self { poll: None, notifier, runtime }
    }

    /// Makes the runtime watch the poll from now on.
    fn watch(&mut self, poll: BorrowedFd<'_>) {
        if self.poll.is_some() {
            return;
        }
        let _entered = self.runtime.enter();
        match poll.try_clone_to_owned().and_then(watched) {
            Ok(watched) => self.poll = Some(watched),
            Err(error) => log::error!("the runtime cannot watch the sockets: {error}"),
        }
    }
}

#[allow(deprecated, reason = "deprecated for descriptors that are not owned: this one is")]
fn watched(poll: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(poll, Interest::READABLE)
}

impl Idle for EmbeddedRuntime {
    fn idle(&mut self, poll: BorrowedFd<'_>, wait_max: Option<Duration>) {
        if wait_max == Some(Duration::ZERO) {
            return self.runtime.block_on(yield_now());
        }
        self.watch(poll);
        let Some(watched) = &self.poll else {
            // Without the descriptor nothing wakes this thread: it polls again soon.
            return self.runtime.block_on(async {
                _ = timeout(BLIND_WAIT, self.notifier.notify.notified()).await
            });
        };
        let something = async {
            tokio::select! {
                biased;
                () = self.notifier.notify.notified() => {}
                // The caller polls next and takes every event, so the next one makes a new edge.
                ready = watched.readable() => if let Ok(mut ready) = ready { ready.clear_ready() },
            }
        };
        match wait_max {
            None => self.runtime.block_on(something),
            Some(wait_max) => {
                self.runtime.block_on(async { _ = timeout(wait_max, something).await })
            }
        }
    }
}

/// Interval between polls of sockets that cannot be watched.
const BLIND_WAIT: Duration = Duration::from_millis(1);
