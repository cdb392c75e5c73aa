//! Batches of the requests of a stream: all that wait are answered together.
//!
//! Clients walk trees of chunks and ask for the children that they find: two or three addresses at
//! a time, thousands of times, without waiting for answers. As soon as the stream may send another
//! batch, it takes all requests that have arrived, up to limits, and dispatches them at once: a
//! lone request waits for nothing, and while batches are in encoding the next one grows.

use std::{
    future::ready,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::{
    Stream, StreamExt,
    stream::{BoxStream, Fuse, iter, once},
};
use tonic::{Code, Status as Refusal};

use crate::limits::{BATCH_ADDRESSES_MAX, BATCH_REQUESTS_MAX, REQUESTS_AHEAD_MAX};

/// A request that can share a batch with others.
pub trait Batched {
    /// Returns the number of addresses that the request asks for.
    fn address_count(&self) -> usize;

    /// Returns whether this request can be in the same batch as `first`.
    fn goes_with(&self, first: &Self) -> bool;
}

/// A stream of batches, each of all requests that have arrived.
pub struct Batches<S: Stream> {
    requests: Fuse<S>,
    /// First request of the next batch: it did not fit into the previous one.
    next: Option<S::Item>,
}

impl<S: Stream + Unpin> Batches<S> {
    /// Batches the requests of a stream.
    pub fn new(requests: S) -> Self {
        Self { requests: requests.fuse(), next: None }
    }
}

impl<S, Request> Stream for Batches<S>
where
    S: Stream<Item = Result<Request, Refusal>> + Unpin,
    Request: Batched + Unpin,
{
    /// A batch, or the error of a request that could not be read.
    type Item = Result<Vec<Arc<Request>>, Refusal>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let first = match self.next.take() {
            Some(request) => Some(request),
            None => match self.requests.poll_next_unpin(context) {
                Poll::Ready(request) => request,
                Poll::Pending => return Poll::Pending,
            },
        };
        let mut open = match first {
            None => return Poll::Ready(None),
            Some(Err(refusal)) => return Poll::Ready(Some(Err(refusal))),
            Some(Ok(first)) => OpenBatch::new(first),
        };
        while self.next.is_none()
            && open.requests.len() < BATCH_REQUESTS_MAX
            && let Poll::Ready(Some(request)) = self.requests.poll_next_unpin(context)
        {
            match request {
                Ok(request) if open.fits(&request) => open.add(request),
                other => self.next = Some(other),
            }
        }
        Poll::Ready(Some(Ok(open.requests)))
    }
}

/// A batch that is being filled.
struct OpenBatch<Request> {
    requests: Vec<Arc<Request>>,
    address_count: usize,
}

impl<Request: Batched> OpenBatch<Request> {
    /// Opens a batch with its first request, which fits however large it is.
    fn new(first: Request) -> Self {
        Self { address_count: first.address_count(), requests: vec![Arc::new(first)] }
    }

    fn fits(&self, request: &Request) -> bool {
        self.address_count + request.address_count() <= BATCH_ADDRESSES_MAX
            && request.goes_with(&self.requests[0])
    }

    fn add(&mut self, request: Request) {
        self.address_count += request.address_count();
        self.requests.push(Arc::new(request));
    }
}

/// Answers the requests of a batch, in their order. If the batch fails because of what one request
/// asks for, they are answered one by one, so that those before the failing one succeed.
pub async fn answers<Request, T, Answering>(
    batch: Result<Vec<Arc<Request>>, Refusal>,
    mut answer: impl FnMut(Vec<Arc<Request>>) -> Answering + Send + 'static,
) -> BoxStream<'static, Result<T, Refusal>>
where
    Request: Send + Sync + 'static,
    T: Send + 'static,
    Answering: Future<Output = Result<Vec<T>, Refusal>> + Send + 'static,
{
    let batch = match batch {
        Ok(batch) => batch,
        Err(refusal) => return each_of(Err(refusal)),
    };
    match answer(batch.clone()).await {
        Err(refusal) if 1 < batch.len() && is_of_one_request(&refusal) => {
            let each = iter(batch).map(move |request| answer(vec![request]));
            each.buffered(REQUESTS_AHEAD_MAX).flat_map(each_of).boxed()
        }
        answers => each_of(answers),
    }
}

/// Returns whether other requests of the batch may succeed on their own. After a timeout of the
/// store they would only wait for it once more.
fn is_of_one_request(refusal: &Refusal) -> bool {
    !matches!(
        refusal.code(),
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::ResourceExhausted
    )
}

/// Turns a batch of answers, or its error, into a stream.
fn each_of<T: Send + 'static>(
    answers: Result<Vec<T>, Refusal>,
) -> BoxStream<'static, Result<T, Refusal>> {
    match answers {
        Ok(answers) => iter(answers).map(Ok).boxed(),
        Err(refusal) => once(ready(Err(refusal))).boxed(),
    }
}

#[cfg(test)]
mod tests;
