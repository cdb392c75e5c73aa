//! Bodies of requests. What was read of one counts until who reads it has done so.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use axum::{BoxError, body::HttpBody, http::request::Parts};
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::time::{Sleep, sleep};
use tonic::Status;

use super::{Account, Hold, messages::Messages};
use crate::{grpc, http::limits::MESSAGE_STALL_MAX};

/// What has been read of a request's body and counts as long as the body is there, unless somebody
/// takes charge of it. In the extensions of every request.
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

    /// What came so far and nobody took: for who reads the body message by message, and is done
    /// with some before the body ends. A message that has not come whole is not among it.
    pub fn take(&self) -> Hold {
        let mut untaken = self.untaken();
        let bytes = untaken.hold.bytes - untaken.open_bytes;
        untaken.hold.split(bytes)
    }

    /// So many bytes more count, if there is memory for them or the request is answered whether
    /// there is or not.
    fn add(&self, bytes: usize, kind: Kind) -> Result<(), Status> {
        let mut untaken = self.untaken();
        if kind != Kind::Health {
            untaken.hold.account.check()?;
        }
        untaken.hold.add(bytes);
        Ok(())
    }

    /// So many of all bytes are for a message that has not come whole.
    fn set_open(&self, bytes: usize) {
        self.untaken().open_bytes = bytes;
    }

    fn untaken(&self) -> MutexGuard<'_, Untaken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a request asks for, as far as its body is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A call of gRPC.
    Call,
    /// One for the health, which is answered even if there is no memory for others. Its messages
    /// are short.
    Health,
    /// Anything else.
    Page,
}

impl Kind {
    fn of(request: &Parts) -> Self {
        match (grpc::is_call(&request.headers), request.uri.path().starts_with(grpc::HEALTH)) {
            (false, _) => Self::Page,
            (true, false) => Self::Call,
            (true, true) => Self::Health,
        }
    }
}

/// A request's body. All of it counts until who reads it has done so: readers collect it. The
/// messages of a call go on when they have come whole; one that does not go on ends the body.
#[derive(Debug)]
pub struct RequestBody<B = Incoming> {
    body: B,
    received: Received,
    kind: Kind,
    /// Of a call.
    messages: Option<Messages>,
    /// Since an incomplete message does not go on.
    timeout: Option<Pin<Box<Sleep>>>,
    /// Nothing follows an error.
    is_over: bool,
}

type Polled = Option<Result<Frame<Bytes>, BoxError>>;

impl<B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin> RequestBody<B> {
    /// Of this request, on this account.
    pub fn new(body: B, request: &Parts, account: &Arc<Account>) -> Self {
        let kind = Kind::of(request);
        let bytes_max = grpc::request_bytes_max(request.uri.path());
        let messages = (kind != Kind::Page).then(|| Messages::new(bytes_max));
        Self {
            body,
            received: Received::new(account),
            kind,
            messages,
            timeout: None,
            is_over: false,
        }
    }

    /// What has been read of it.
    pub fn received(&self) -> Received {
        self.received.clone()
    }

    fn poll_counted(&mut self, context: &mut Context<'_>) -> Poll<Polled> {
        loop {
            if let Some(whole) = self.whole_messages().transpose() {
                return Poll::Ready(Some(whole.map(Frame::data).map_err(Into::into)));
            }
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
                return self.poll_stalled(context).map(|error| Some(Err(error.into())));
            };
            let Some(frame) = frame else {
                // That it ended in the middle of a message is for who decodes it to say.
                let rest = self.messages.as_mut().and_then(Messages::end);
                return Poll::Ready(rest.map(|rest| Ok(Frame::data(rest))));
            };
            match frame.map_err(Into::into)?.into_data() {
                Ok(data) => {
                    self.count(&data)?;
                    match &mut self.messages {
                        Some(messages) => messages.push(data),
                        None => return Poll::Ready(Some(Ok(Frame::data(data)))),
                    }
                }
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
    }

    /// Those of the last frame, or that ended with it.
    fn whole_messages(&mut self) -> Result<Option<Bytes>, Status> {
        let Some(messages) = &mut self.messages else { return Ok(None) };
        let whole = messages.next()?;
        self.received.set_open(messages.open_bytes());
        Ok(whole)
    }

    fn count(&mut self, data: &[u8]) -> Result<(), Status> {
        if data.is_empty() {
            return Ok(());
        }
        self.timeout = None;
        self.received.add(data.len(), self.kind)
    }

    /// Nothing has come: whether a message waits for it for too long. A call may be silent between
    /// two messages.
    fn poll_stalled(&mut self, context: &mut Context<'_>) -> Poll<Status> {
        if self.messages.as_ref().is_none_or(|messages| messages.open_bytes() == 0) {
            return Poll::Pending;
        }
        let timeout = self.timeout.get_or_insert_with(|| Box::pin(sleep(MESSAGE_STALL_MAX)));
        timeout.as_mut().poll(context).map(|()| {
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
        let is_open = self.messages.as_ref().is_some_and(|messages| messages.open_bytes() != 0);
        self.is_over || (!is_open && self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.messages {
            Some(_) => SizeHint::default(),
            None => self.body.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests;
