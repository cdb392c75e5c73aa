//! Streams of answers, one per request, in the order of the requests.
//!
//! ```text
//!  requests --> Batches: all that wait --> answer: one version of the store, each address once
//!                                                         |
//!  answers <-- in the order of their requests <-----------+
//! ```

mod batches;

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use busload_calls::{Deadline, DeadlineTimer};
use futures_util::{Stream, StreamExt, stream::BoxStream};
use tonic::Status as Refusal;

pub use self::batches::Batched;
use self::batches::Batches;
use crate::limits::BATCHES_AHEAD_MAX;

/// A stream of answers in the order of their requests. It ends with the first error, or when the
/// client's deadline has passed.
pub struct AnswerStream<T> {
    answers: BoxStream<'static, Result<T, Refusal>>,
    deadline: DeadlineTimer,
    is_over: bool,
}

impl<T: Send + 'static> AnswerStream<T> {
    /// Answers requests that wait as one batch, and up to [`BATCHES_AHEAD_MAX`] batches at a time.
    /// Further requests are read as the client takes answers.
    pub fn new<Request, Answering>(
        requests: impl Stream<Item = Result<Request, Refusal>> + Send + Unpin + 'static,
        answer: impl FnMut(Vec<Arc<Request>>) -> Answering + Clone + Send + 'static,
        deadline: Deadline,
    ) -> Self
    where
        Request: Batched + Send + Sync + Unpin + 'static,
        Answering: Future<Output = Result<Vec<T>, Refusal>> + Send + 'static,
    {
        let answers = move |batch| batches::answers(batch, answer.clone());
        let answers =
            Batches::new(requests).map(answers).buffered(BATCHES_AHEAD_MAX).flatten().boxed();
        Self { answers, deadline: deadline.timer(), is_over: false }
    }
}

impl<T: Send + 'static> Stream for AnswerStream<T> {
    type Item = Result<T, Refusal>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let polled = match self.deadline.poll_passed(context) {
            Poll::Ready(passed) => Poll::Ready(Some(Err(passed))),
            Poll::Pending => self.answers.poll_next_unpin(context),
        };
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.is_over = true;
            // Cancels the work for later requests.
            self.answers = futures_util::stream::empty().boxed();
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::{future::ready, time::Duration};

    use futures_util::stream;
    use tonic::{Code, metadata::MetadataMap};

    use super::*;

    fn paused() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap()
    }

    /// A request that shares a batch with no other.
    #[derive(Debug)]
    struct Alone;

    impl Batched for Alone {
        fn address_count(&self) -> usize {
            1
        }

        fn goes_with(&self, _first: &Self) -> bool {
            false
        }
    }

    #[test]
    fn the_clients_deadline_ends_a_stream_that_waits() {
        paused().block_on(async {
            let mut headers = MetadataMap::new();
            headers.insert("grpc-timeout", "5S".parse().unwrap());
            let deadline = Deadline::of(&headers, Duration::from_secs(10)).unwrap();
            let begun = tokio::time::Instant::now();
            let requests = stream::pending::<Result<Alone, Refusal>>();
            let mut answers = AnswerStream::new(requests, |batch| ready(Ok(batch)), deadline);
            let ended = answers.next().await.unwrap().unwrap_err();
            assert_eq!(ended.code(), Code::DeadlineExceeded);
            assert!(Duration::from_secs(5) <= begun.elapsed());
            assert!(answers.next().await.is_none());
        });
    }
}
