//! One batch in flight: a task of its own calls the service and answers the batch's waiters, also
//! if the service panics or the task is dropped.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::oneshot;

use crate::core::{BatcherCore, EndedWaiter, operation};
use crate::reply;
use crate::service::{AnswerEntries, BatchError, EarlyAnswers, LoadedOne, Reply, Service};
use crate::{BatchEnd, BatchId, Content, EntryBatch, Operation};

/// Task of one batch, which answers the batch's waiters. If it is dropped before it has, as when a
/// runtime shuts down, they get [`BatchError::Stopped`].
pub(crate) struct BatchTask<S: Service, R: Reply<S>> {
    core: Arc<BatcherCore<S, R>>,
    batch: BatchId,
    operation: Operation,
    over: Over,
}

#[derive(Debug, PartialEq, Eq)]
enum Over {
    Yes,
    No,
}

impl<S: Service, R: Reply<S>> BatchTask<S, R> {
    pub(crate) fn new(core: &Arc<BatcherCore<S, R>>, batch: &ServiceBatch<S>) -> Self {
        let operation = operation(&batch.content);
        Self { core: Arc::clone(core), batch: batch.id, operation, over: Over::No }
    }

    /// Calls the service and answers the waiters. A batch of reads ends early when `abandoned` is
    /// sent.
    pub(crate) async fn run(self, content: Content<S::Key, S::Write>, abandoned: AbandonSignal) {
        let asked = content.len();
        let service = Arc::clone(&self.core.service);
        match content {
            Content::Read(keys) => {
                // In a future of its own, so that a panic before the first await is caught, too.
                let load = async { service.load_each(keys, EarlyAnswers(&self)).await };
                let load = unless(abandoned, load);
                match caught(load).await {
                    // Dropping `self` ends the batch.
                    Ok(None) => {}
                    Ok(Some(Ok(results))) if results.is_empty() => self.end_answered(asked),
                    Ok(Some(outcome)) => self.end(counted(asked, Ok(outcome)), reply::give_loaded),
                    Err(panic) => self.end(counted(asked, Err(panic)), reply::give_loaded),
                }
            }
            Content::Write(entries) => {
                let outcome = caught(async move { service.store(entries).await }).await;
                self.end(counted(asked, outcome), reply::give_stored);
            }
        }
    }

    /// Ends a batch whose entries were all answered early; those that were not get an error.
    fn end_answered(mut self, asked: usize) {
        self.over = Over::Yes;
        let mut waiters = self.core.end_batch(self.batch, self.served());
        let given = waiters.len();
        let missing = waiters.chunk_by(|(a, _), (b, _)| a == b).count();
        self.fail(&mut waiters, &BatchError::Miscounted { asked, given: asked - missing });
        self.core.settle(waiters, given);
    }

    fn end<T>(
        mut self,
        outcome: Result<T, BatchError<S::Error>>,
        give: impl FnOnce(&mut Vec<EndedWaiter<S, R>>, T),
    ) {
        self.over = Over::Yes;
        let end = match &outcome {
            Ok(_) => self.served(),
            Err(BatchError::Failed(error)) if self.core.service.is_overloaded(error) => {
                BatchEnd::Overloaded
            }
            Err(_) => BatchEnd::Failed,
        };
        let mut waiters = self.core.end_batch(self.batch, end);
        let given = waiters.len();
        match outcome {
            Ok(results) => give(&mut waiters, results),
            Err(error) => self.fail(&mut waiters, &error),
        }
        self.core.settle(waiters, given);
    }

    fn served(&self) -> BatchEnd {
        if self.core.service.is_growing() { BatchEnd::Unsettled } else { BatchEnd::Served }
    }

    fn fail(&self, waiters: &mut Vec<EndedWaiter<S, R>>, error: &BatchError<S::Error>) {
        for (_, answered) in waiters.drain(..) {
            reply::give_error(self.operation, answered.waiter, error.clone());
        }
    }
}

impl<S: Service, R: Reply<S>> Drop for BatchTask<S, R> {
    fn drop(&mut self) {
        if self.over == Over::Yes {
            return;
        }
        let mut waiters = self.core.end_batch(self.batch, BatchEnd::Failed);
        let given = waiters.len();
        self.fail(&mut waiters, &BatchError::Stopped);
        self.core.settle(waiters, given);
    }
}

impl<S: Service, R: Reply<S>> AnswerEntries<S> for BatchTask<S, R> {
    fn answer(&self, answers: &mut Vec<(usize, LoadedOne<S>)>) {
        let (mut waiters, results) = self.core.answer_entries(self.batch, answers);
        let given = waiters.len();
        reply::give_loaded(&mut waiters, results);
        self.core.settle(waiters, given);
    }
}

/// Batch of a service.
pub(crate) type ServiceBatch<S> = EntryBatch<<S as Service>::Key, <S as Service>::Write>;

/// Message that no caller waits for a batch any more.
pub(crate) struct Abandoned;

/// Receiver of [`Abandoned`], if the batch is to end early then.
pub(crate) type AbandonSignal = Option<oneshot::Receiver<Abandoned>>;

/// Drives a future unless `abandoned` is sent before it has ended.
async fn unless<T>(abandoned: AbandonSignal, future: impl Future<Output = T>) -> Option<T> {
    let Some(mut abandoned) = abandoned else { return Some(future.await) };
    let mut future = pin!(future);
    std::future::poll_fn(|context| {
        if let Poll::Ready(outcome) = future.as_mut().poll(context) {
            return Poll::Ready(Some(outcome));
        }
        // The sender is dropped only with the core, or when the batch has ended.
        match Pin::new(&mut abandoned).poll(context) {
            Poll::Ready(Ok(Abandoned)) => Poll::Ready(None),
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        }
    })
    .await
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
