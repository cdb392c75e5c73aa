//! Bytes of requests and answers in memory, counted until their last user lets them go: so that clients that send or read slowly
//! cannot pile up memory.

mod delivery;
mod messages;
mod request;

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use axum::{
    body::{Body, HttpBody},
    http::Extensions,
};
use bytes::{Buf, Bytes};
use hyper::body::{Frame, SizeHint};
use tonic::Status;

pub use self::{
    delivery::{Deliveries, Delivery},
    request::{Received, RequestBody},
};
use super::{
    figures::Figures,
    limits::{ALL_BYTES_MAX, CONNECTION_BYTES_MAX},
};

/// What one connection holds, and all.
#[derive(Debug, Default)]
pub struct Account {
    own: AtomicUsize,
    all: Arc<Figures>,
}

impl Account {
    /// Of a new connection.
    pub fn new(all: &Arc<Figures>) -> Arc<Self> {
        Arc::new(Self { own: AtomicUsize::new(0), all: Arc::clone(all) })
    }

    /// Why there is no memory for more, if so.
    pub fn check(&self) -> Result<(), Status> {
        let too_much = |whose: &str, bytes: usize, max: usize| {
            self.all.memory_refused.fetch_add(1, Ordering::Relaxed);
            Err(Status::resource_exhausted(format!(
                "{whose} {bytes} bytes of requests and answers in memory, expected less than {max}: read answers faster, or ask for less"
            )))
        };
        let (own, all) = (self.own.load(Ordering::Relaxed), self.all.memory_bytes.load(Ordering::Relaxed));
        if CONNECTION_BYTES_MAX <= own {
            return too_much("this connection has", own, CONNECTION_BYTES_MAX);
        }
        if ALL_BYTES_MAX <= all {
            return too_much("all connections together have", all, ALL_BYTES_MAX);
        }
        Ok(())
    }

    fn hold(self: &Arc<Self>, bytes: usize) -> Hold {
        let mut hold = Hold { account: Arc::clone(self), bytes: 0 };
        hold.add(bytes);
        hold
    }
}

/// Calls come in only while there is memory for their answers.
pub fn check_memory(extensions: &Extensions) -> Result<(), Status> {
    extensions.get::<Arc<Account>>().map_or(Ok(()), |account| account.check())
}

/// Counted until it is dropped.
#[derive(Debug)]
pub struct Hold {
    account: Arc<Account>,
    bytes: usize,
}

impl Hold {
    fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.account.own.fetch_add(bytes, Ordering::Relaxed);
        self.account.all.memory_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many of its bytes, for somebody else to hold.
    fn split(&mut self, bytes: usize) -> Self {
        self.bytes -= bytes;
        Self { account: Arc::clone(&self.account), bytes }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.account.own.fetch_sub(self.bytes, Ordering::Relaxed);
        self.account.all.memory_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A piece of an answer: counted until it is on the socket.
#[derive(Debug)]
pub struct Piece {
    /// What is not.
    rest: Bytes,
    delivery: Delivery,
    _hold: Hold,
}

impl Piece {
    fn new(bytes: Bytes, account: &Arc<Account>, delivery: &Delivery) -> Self {
        delivery.hand_out(bytes.len());
        Self { _hold: account.hold(bytes.len()), rest: bytes, delivery: delivery.clone() }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.rest.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.rest
    }

    fn advance(&mut self, count: usize) {
        self.rest.advance(count);
        self.delivery.take(count);
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.delivery.give_up(self.rest.len());
    }
}

/// An answer's body. `Guard` lives as long.
pub struct AnswerBody<Guard> {
    body: Body,
    account: Arc<Account>,
    delivery: Delivery,
    _guard: Guard,
}

impl<Guard> AnswerBody<Guard> {
    /// On this account.
    pub fn new(body: Body, account: Arc<Account>, delivery: Delivery, guard: Guard) -> Self {
        Self { body, account, delivery, _guard: guard }
    }
}

impl<Guard: Unpin> HttpBody for AnswerBody<Guard> {
    type Data = Piece;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let counted = |bytes| Piece::new(bytes, &self.account, &self.delivery);
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(counted))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<Guard> fmt::Debug for AnswerBody<Guard> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerBody").field("account", &self.account).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    fn held(total: &Figures) -> usize {
        total.memory_bytes.load(Ordering::Relaxed)
    }

    #[test]
    fn a_piece_counts_until_its_last_user_lets_it_go() {
        let total = Arc::<Figures>::default();
        let account = Account::new(&total);
        let delivery = Arc::new(Deliveries::default()).begin();
        let mut body = AnswerBody::new(Body::from(vec![1; 1000]), Arc::clone(&account), delivery, ());
        assert_eq!(held(&total), 0);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let frame = runtime.block_on(poll_fn(|context| Pin::new(&mut body).poll_frame(context)));
        let mut piece = frame.unwrap().unwrap().into_data().unwrap();
        drop(body);
        piece.advance(990);
        assert_eq!((piece.chunk(), held(&total)), (&[1; 10][..], 1000), "a part keeps all of it");
        drop(piece);
        assert_eq!(held(&total), 0);
    }

    #[test]
    fn a_full_connection_is_told_so_and_others_are_not() {
        let total = Arc::<Figures>::default();
        let (slow, other) = (Account::new(&total), Account::new(&total));
        let hold = slow.hold(CONNECTION_BYTES_MAX);
        let status = slow.check().unwrap_err();
        assert_eq!(status.code(), tonic::Code::ResourceExhausted);
        let text = format!("this connection has {CONNECTION_BYTES_MAX} bytes");
        assert!(status.message().starts_with(&text), "{status}");
        other.check().unwrap();
        drop(hold);
        slow.check().unwrap();
    }

    #[test]
    fn all_together_have_a_limit_too() {
        let total = Arc::<Figures>::default();
        let holds: Vec<_> = (0..4).map(|_| Account::new(&total).hold(ALL_BYTES_MAX / 4)).collect();
        let status = Account::new(&total).check().unwrap_err();
        assert!(status.message().starts_with("all connections together have"), "{status}");
        drop(holds);
        Account::new(&total).check().unwrap();
    }
}
