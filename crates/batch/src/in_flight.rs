//! One batch in flight: a task of its own calls the service and answers the batch's waiters,
//! whatever happens to it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use crate::reply;
use crate::service::{BatchError, Reply, Service};
use crate::shared::{EndedWaiter, Shared, operation};
use crate::{Batch, BatchId, Content, Operation};

/// Owes the waiters of one batch their answers. If it is dropped before it has given them, as when
/// a runtime shuts down, they get [`BatchError::Stopped`].
pub(crate) struct InFlightBatch<S: Service, R: Reply<S>> {
    shared: Arc<Shared<S, R>>,
    batch: BatchId,
    operation: Operation,
    over: Over,
}

#[derive(Debug, PartialEq, Eq)]
enum Over {
    Yes,
    No,
}

impl<S: Service, R: Reply<S>> InFlightBatch<S, R> {
    pub(crate) fn new(shared: &Arc<Shared<S, R>>, batch: &Batch<S::Key, S::Write>) -> Self {
        let operation = operation(&batch.content);
        Self { shared: Arc::clone(shared), batch: batch.id, operation, over: Over::No }
    }

    pub(crate) async fn run(self, content: Content<S::Key, S::Write>) {
        let asked = content.len();
        let service = Arc::clone(&self.shared.service);
        match content {
            Content::Read(keys) => {
                let outcome = caught(async move { service.load(keys).await }).await;
                self.end(counted(asked, outcome), reply::give_loaded);
            }
            Content::Write { entries, .. } => {
                let outcome = caught(async move { service.store(entries).await }).await;
                self.end(counted(asked, outcome), reply::give_stored);
            }
        }
    }

    fn end<T>(
        mut self,
        outcome: Result<T, BatchError<S::Error>>,
        give: impl FnOnce(&mut Vec<EndedWaiter<S, R>>, T),
    ) {
        self.over = Over::Yes;
        let mut waiters = self.shared.end_batch(self.batch);
        let given = waiters.len();
        match outcome {
            Ok(results) => give(&mut waiters, results),
            Err(error) => self.fail(&mut waiters, &error),
        }
        self.shared.settle(waiters, given);
    }

    fn fail(&self, waiters: &mut Vec<EndedWaiter<S, R>>, error: &BatchError<S::Error>) {
        for (_, answered) in waiters.drain(..) {
            reply::give_error(self.operation, answered.waiter, error.clone());
        }
    }
}

impl<S: Service, R: Reply<S>> Drop for InFlightBatch<S, R> {
    fn drop(&mut self) {
        if self.over == Over::Yes {
            return;
        }
        let mut waiters = self.shared.end_batch(self.batch);
        let given = waiters.len();
        self.fail(&mut waiters, &BatchError::Stopped);
        self.shared.settle(waiters, given);
    }
}

/// Marker for a panic of the service, which the panic hook has reported.
struct Panic;

/// Drives a future of the service and returns its panic, if it panics, as a value.
async fn caught<T>(future: impl Future<Output = T>) -> Result<T, Panic> {
    let mut future = pin!(future);
    std::future::poll_fn(|context| {
        // After a panic the future is dropped and not polled again.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(_) => Poll::Ready(Err(Panic)),
        }
    })
    .await
}

/// Checks that a batch brought as many answers as it has entries.
fn counted<T, E>(
    asked: usize,
    outcome: Result<Result<Vec<T>, E>, Panic>,
) -> Result<Vec<T>, BatchError<E>> {
    let answers = outcome.map_err(|Panic| BatchError::Panicked)?.map_err(BatchError::Failed)?;
    match answers.len() {
        given if given == asked => Ok(answers),
        given => Err(BatchError::Miscounted { asked, given }),
    }
}
