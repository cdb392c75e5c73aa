//! Bodies of requests. What was read of one counts until who reads it has done so; of the messages of a call, what was announced.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use axum::{BoxError, body::HttpBody, http::HeaderMap};
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::time::{Sleep, sleep};
use tonic::Status;

use super::{Account, Hold, messages::Messages};
use crate::{grpc, http::limits::MESSAGE_STALL_MAX};

/// What has been read of a request's body and counts as long as the body is there, unless somebody takes charge of it. In the extensions of
/// every request.
#[derive(Clone, Debug)]
pub struct Received(Arc<Mutex<Untaken>>);

#[derive(Debug)]
struct Untaken {
    hold: Hold,
    /// Of these, for a message that has not come whole.
    open_bytes: usize,
}

impl Received {
    fn new(account: &Arc<Account>) -> Self {
        Self(Arc::new(Mutex::new(Untaken { hold: account.hold(0), open_bytes: 0 })))
    }

    /// What came so far and nobody took: for who reads the body message by message, and is done with some before the body ends. A message that
    /// has not come whole is not among it.
    pub fn take(&self) -> Hold {
        let mut untaken = self.untaken();
        let bytes = untaken.hold.bytes - untaken.open_bytes;
        untaken.hold.split(bytes)
    }

    /// So many bytes more count, and so many of all are for a message that has not come whole.
    fn add(&self, bytes: usize, open_bytes: usize) -> Result<(), Status> {
        let mut untaken = self.untaken();
        if bytes != 0 {
            untaken.hold.account.check()?;
            untaken.hold.add(bytes);
        }
        untaken.open_bytes = open_bytes;
        Ok(())
    }

    fn untaken(&self) -> MutexGuard<'_, Untaken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request's body. All of it counts until who reads it has done so: readers collect it. A message of a call ends the body if it does not go
/// on.
#[derive(Debug)]
pub struct RequestBody<B = Incoming> {
    body: B,
    received: Received,
    /// Of a call.
    messages: Option<Messages>,
    /// Since an incomplete message does not go on.
    patience: Option<Pin<Box<Sleep>>>,
    /// Nothing follows an error.
    is_over: bool,
}

type Polled = Option<Result<Frame<Bytes>, BoxError>>;

impl<B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin> RequestBody<B> {
    /// Of a request with these headers, on this account.
    pub fn new(body: B, headers: &HeaderMap, account: &Arc<Account>) -> Self {
        let messages = grpc::is_call(headers).then(Messages::default);
        Self { body, received: Received::new(account), messages, patience: None, is_over: false }
    }

    /// What has been read of it.
    pub fn received(&self) -> Received {
        self.received.clone()
    }

    fn poll_counted(&mut self, context: &mut Context<'_>) -> Poll<Polled> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
            return self.poll_stalled(context).map(|error| Some(Err(error.into())));
        };
        let counted = frame.map(|frame| {
            let frame = frame.map_err(Into::into)?;
            if let Some(data) = frame.data_ref() {
                self.count(data)?;
            }
            Ok(frame)
        });
        Poll::Ready(counted)
    }

    fn count(&mut self, data: &[u8]) -> Result<(), Status> {
        if !data.is_empty() {
            self.patience = None;
        }
        match &mut self.messages {
            Some(messages) => self.received.add(messages.read(data), messages.open_bytes()),
            None => self.received.add(data.len(), 0),
        }
    }

    /// Nothing has come: whether a message waits for it for too long. A call may be silent between two messages.
    fn poll_stalled(&mut self, context: &mut Context<'_>) -> Poll<Status> {
        if self.messages.as_ref().is_none_or(|messages| messages.open_bytes() == 0) {
            return Poll::Pending;
        }
        let patience = self.patience.get_or_insert_with(|| Box::pin(sleep(MESSAGE_STALL_MAX)));
        patience.as_mut().poll(context).map(|()| {
            Status::deadline_exceeded(format!(
                "a message of this request began, and nothing more of it came for {} s",
                MESSAGE_STALL_MAX.as_secs()
            ))
        })
    }
}

impl<B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin> HttpBody for RequestBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Polled> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let polled = self.poll_counted(context);
        self.is_over = matches!(polled, Poll::Ready(Some(Err(_))));
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
