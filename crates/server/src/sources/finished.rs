//! Answers on their way from a table's runtime to the pipeline: one list, taken whole.
//!
//! ```text
//!  replies of a batch --> list --(the first one)--> notifier: a task behind the runnable ones
//!                          |                            |
//!                          v                            v
//!        taken by the pipeline's next turn <--- wakes the pipeline once
//! ```

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Waker,
};

use busload_pipeline::source::{SourceEvent, SourceValue, Ticket};
use tokio::{runtime::Handle, sync::Notify, task::AbortHandle};

use crate::shown::shown_error;

/// List of one table. The request queue bounds it: each answer was a request there.
#[derive(Debug)]
pub struct FinishedAnswers {
    table: String,
    list: Mutex<Vec<SourceEvent>>,
    notifier: Notify,
    pipeline: Waker,
}

/// Handle of the task that wakes the pipeline; dropping it ends the task.
#[derive(Debug)]
pub struct NotifyTask(AbortHandle);

impl Drop for NotifyTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl FinishedAnswers {
    /// Creates an empty list of `table`, and starts the task that wakes the pipeline by `pipeline`.
    pub fn start(table: &str, pipeline: Waker, runtime: &Handle) -> (Arc<Self>, NotifyTask) {
        let finished = Arc::new(Self::new(table, pipeline));
        let notified = Arc::clone(&finished);
        let task = runtime.spawn(async move { notified.notify().await });
        (finished, NotifyTask(task.abort_handle()))
    }

    /// Creates an empty list of `table`; `pipeline` wakes the thread that takes it.
    fn new(table: &str, pipeline: Waker) -> Self {
        Self {
            table: table.to_owned(),
            list: Mutex::new(Vec::new()),
            notifier: Notify::new(),
            pipeline,
        }
    }

    /// Makes the event of an answer, to put into the list or to give at once. An error gets the
    /// table's name.
    pub fn event(&self, ticket: Ticket, outcome: Result<SourceValue, String>) -> SourceEvent {
        let outcome =
            outcome.map_err(|error| format!("ERR table {}: {}", self.table, shown_error(&error)));
        SourceEvent::Answer { ticket, outcome, cacheable_for: None }
    }

    /// Adds an answer, and notifies if it is the first.
    pub fn push(&self, ticket: Ticket, outcome: Result<SourceValue, String>) {
        let answer = self.event(ticket, outcome);
        let mut list = self.list();
        list.push(answer);
        let is_first = list.len() == 1;
        drop(list);
        if is_first {
            self.notifier.notify_one();
        }
    }

    /// Moves all answers to the end of `into`.
    pub fn take(&self, into: &mut Vec<SourceEvent>) {
        let mut list = self.list();
        if into.is_empty() {
            std::mem::swap(&mut *list, into);
        } else {
            into.append(&mut list);
        }
    }

    /// Wakes the pipeline for new answers, until dropped. On a single-threaded runtime this task
    /// runs after the one that answers a batch, so that the pipeline finds all of its answers.
    async fn notify(&self) {
        loop {
            self.notifier.notified().await;
            self.pipeline.wake_by_ref();
        }
    }

    fn list(&self) -> MutexGuard<'_, Vec<SourceEvent>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        task::Wake,
    };

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_batch_of_answers_wakes_once_and_is_taken_whole() {
        let wakes = Arc::new(Wakes::default());
        let finished = Arc::new(FinishedAnswers::new("users", Arc::clone(&wakes).into()));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            tokio::spawn({
                let finished = Arc::clone(&finished);
                async move { finished.notify().await }
            });
            for batch in 1..4 {
                for ticket in 0..100 {
                    finished.push(Ticket(ticket), Ok(SourceValue::Done));
                }
                assert_eq!(
                    wakes.0.load(Ordering::Relaxed),
                    batch - 1,
                    "not in the middle of a batch"
                );
                while wakes.0.load(Ordering::Relaxed) < batch {
                    tokio::task::yield_now().await;
                }
                let mut taken = Vec::new();
                finished.take(&mut taken);
                assert_eq!(taken.len(), 100);
                tokio::task::yield_now().await;
                assert_eq!(wakes.0.load(Ordering::Relaxed), batch);
            }
        });
    }
}
