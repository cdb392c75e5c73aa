//! The future with which a caller waits for a read.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_util::{FutureExt, future::Shared};
use tokio::{
    runtime::Handle,
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, sleep_until},
};

use crate::Error;
use crate::object::ObjectCore;

/// A read under way. Dropping it gives up waiting, not the read.
pub struct Reading(ReadingState);

enum ReadingState {
    Ready(Option<Result<Bytes, Error>>),
    Waiting {
        answer: oneshot::Receiver<Result<Bytes, Error>>,
        deadline: Deadline,
        object: Arc<ObjectCore>,
    },
}

/// Deadline shared by all readings of one call. Its timer runs on the runtime of the reads, so that
/// a reading can be polled from any thread.
pub(crate) type Deadline = Shared<Timer>;

/// Timer on a runtime. Resolves to true when the time has passed, to false if the runtime ended
/// before.
pub(crate) struct Timer(JoinHandle<()>);

impl Timer {
    pub(crate) fn start(runtime: &Handle, deadline: std::time::Instant) -> Deadline {
        let deadline = Instant::from_std(deadline);
        // A sleep can be made on the runtime only, where callers need not be: the task makes it.
        Self(runtime.spawn(async move { sleep_until(deadline).await })).shared()
    }
}

impl Future for Timer {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
        Poll::Ready(ready!(self.0.poll_unpin(context)).is_ok())
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Reading {
    pub(crate) fn ready(answer: Result<Bytes, Error>) -> Self {
        Self(ReadingState::Ready(Some(answer)))
    }

    pub(crate) fn waiting(
        answer: oneshot::Receiver<Result<Bytes, Error>>,
        deadline: Deadline,
        object: Arc<ObjectCore>,
    ) -> Self {
        Self(ReadingState::Waiting { answer, deadline, object })
    }
}

impl Future for Reading {
    type Output = Result<Bytes, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            ReadingState::Ready(answer) => {
                Poll::Ready(answer.take().expect("a reading is not polled again after its answer"))
            }
            ReadingState::Waiting { answer, deadline, object } => {
                // Bytes that are there count more than a deadline that has passed.
                if let Poll::Ready(answer) = answer.poll_unpin(context) {
                    return Poll::Ready(answer.unwrap_or_else(|_| Err(stopped(&object.what()))));
                }
                let has_passed = ready!(deadline.poll_unpin(context));
                Poll::Ready(Err(if has_passed {
                    deadline_exceeded(object)
                } else {
                    stopped(&object.what())
                }))
            }
        }
    }
}

impl fmt::Debug for Reading {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.0 {
            ReadingState::Ready(_) => "ready",
            ReadingState::Waiting { .. } => "waiting",
        };
        formatter.debug_tuple("Reading").field(&state).finish()
    }
}

pub(crate) fn deadline_exceeded(object: &ObjectCore) -> Error {
    let what = object.what();
    let last = object.remote.last_error().map(|error| format!(" (the last error: {error})"));
    Error::DeadlineExceeded(format!(
        "{what}: no answer from the store in time{}",
        last.unwrap_or_default()
    ))
}

/// Error of a task that ended without an answer: the runtime stops, or there is a bug.
pub(crate) fn stopped(what: &str) -> Error {
    Error::Unreachable(format!("{what}: given up, because what worked on it has stopped"))
}
