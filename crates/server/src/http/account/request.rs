//! Bodies of requests. Received bytes count on the connection's account until the handler is done
//! with them.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use axum::{BoxError, body::HttpBody, http::request::Parts};
use busload_calls::{CallMemory, MemoryAccount, Reservation};
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::time::{Sleep, sleep};
use tonic::Status;

use super::{Account, Hold, messages::Messages};
use crate::{
    grpc,
    http::{
        limits::MESSAGE_STALL_MAX,
        routes::{self, WhenFull},
    },
};

/// Reservation for the received bytes of a request's body. It lasts as long as the body, unless a
/// handler takes it over.
#[derive(Clone, Debug)]
pub struct Received(Arc<ReceivedBytes>);

#[derive(Debug)]
struct ReceivedBytes {
    account: Arc<Account>,
    untaken: Mutex<Untaken>,
}

#[derive(Debug)]
struct Untaken {
    hold: Hold,
    /// Bytes of these that belong to an incomplete message.
    open_bytes: usize,
}

impl Received {
    fn new(account: &Arc<Account>) -> Self {
        let untaken = Mutex::new(Untaken { hold: account.hold(0), open_bytes: 0 });
        Self(Arc::new(ReceivedBytes { account: Arc::clone(account), untaken }))
    }

    /// Returns what services of gRPC use of it. It is in the extensions of every request.
    pub fn memory(&self) -> CallMemory {
        CallMemory::new(Arc::clone(&self.0))
    }

    /// Counts received bytes. Fails if there is no memory for them, unless the request is answered
    /// in any case.
    fn add(&self, bytes: usize, kind: Kind) -> Result<(), Status> {
        if kind != Kind::Health {
            self.0.account.check()?;
        }
        self.0.untaken().hold.add(bytes);
        Ok(())
    }

    /// Notes how many of all bytes belong to an incomplete message.
    fn set_open(&self, bytes: usize) {
        self.0.untaken().open_bytes = bytes;
    }
}

impl ReceivedBytes {
    /// Takes the reservation for all complete messages received so far.
    fn take(&self) -> Hold {
        let mut untaken = self.untaken();
        let bytes = untaken.hold.bytes - untaken.open_bytes;
        untaken.hold.split(bytes)
    }

    fn untaken(&self) -> MutexGuard<'_, Untaken> {
        self.untaken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryAccount for ReceivedBytes {
    fn check(&self) -> Result<(), Status> {
        self.account.check()
    }

    fn take_received(&self) -> Reservation {
        Reservation::new(self.take())
    }
}

/// Kind of a request, which decides how its body is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A call of gRPC.
    Call,
    /// A call for the health, which is answered even if there is no memory for others. Its
    /// messages are short.
    Health,
    /// Any request that is not gRPC.
    Page,
}

impl Kind {
    fn of(request: &Parts) -> Self {
        match (grpc::is_call(&request.headers), routes::when_full(request.uri.path())) {
            (false, _) => Self::Page,
            (true, WhenFull::Refused) => Self::Call,
            (true, WhenFull::Answered) => Self::Health,
        }
    }
}

/// Body of a request. Its bytes count until the handler is done, because handlers collect them. The
/// body passes on the messages of a call when they are complete, and fails if one stays incomplete
/// for too long.
#[derive(Debug)]
pub struct RequestBody<B = Incoming> {
    body: B,
    received: Received,
    kind: Kind,
    /// Reassembler of messages, if the request is a call.
    messages: Option<Messages>,
    /// Time limit of an incomplete message of which nothing more comes.
    timeout: Option<Pin<Box<Sleep>>>,
    /// Set once the body has failed; nothing follows an error.
    is_over: bool,
}

type Polled = Option<Result<Frame<Bytes>, BoxError>>;

impl<B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin> RequestBody<B> {
    /// Wraps the body of this request, counting on this account.
    pub fn new(body: B, request: &Parts, account: &Arc<Account>) -> Self {
        let kind = Kind::of(request);
        let bytes_max = routes::message_bytes_max(request.uri.path());
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

    /// Returns the reservation for the received bytes.
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
                // The decoder reports a message that the end of the body cut off.
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

    /// Returns the messages that the last frame contained or completed.
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

    /// Fails if an incomplete message has waited for more for too long. Between two messages a call
    /// may be silent for any time.
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
