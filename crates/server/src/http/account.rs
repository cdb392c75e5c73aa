//! Accounting of memory: bytes of requests and answers count against a budget per connection and
//! one for all, until their last user drops them, so that clients that send or read slowly cannot
//! pile up memory.

mod delivery;
mod messages;
mod request;

use std::{
    collections::HashMap,
    fmt,
    net::IpAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use axum::body::{Body, HttpBody};
use busload_pipeline::password_limiter::ClientAddress;
use bytes::{Buf, Bytes};
use hyper::body::{Frame, SizeHint};
use tokio::sync::Notify;
use tonic::Status;

pub use self::{
    delivery::{Deliveries, Delivery},
    request::RequestBody,
};
use super::{
    front_metrics::FrontMetrics,
    limits::{ALL_BYTES_MAX, CONNECTION_BYTES_MAX, CONNECTION_BYTES_MIN},
};

/// Accounts of all connections, and the budget that they share.
#[derive(Debug, Default)]
pub struct Accounts {
    metrics: Arc<FrontMetrics>,
    /// Number of the next account.
    opened: AtomicU64,
    open: Mutex<HashMap<u64, Weak<Account>>>,
}

/// Account of the memory that one connection holds.
#[derive(Debug)]
pub struct Account {
    number: u64,
    /// Address of the client.
    peer: IpAddr,
    own: AtomicUsize,
    all: Arc<Accounts>,
    /// Set when the connection was chosen to be closed because all together hold too much.
    is_evicted: AtomicBool,
    evicted: Notify,
}

impl Accounts {
    /// Makes a set of no accounts yet, counted by these metrics.
    pub fn new(metrics: Arc<FrontMetrics>) -> Arc<Self> {
        Arc::new(Self { metrics, ..Self::default() })
    }

    /// Opens an account for a new connection.
    pub fn open(self: &Arc<Self>, peer: IpAddr) -> Arc<Account> {
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        let account = Arc::new(Account {
            number,
            peer,
            own: AtomicUsize::new(0),
            all: Arc::clone(self),
            is_evicted: AtomicBool::new(false),
            evicted: Notify::new(),
        });
        self.lock().insert(number, Arc::downgrade(&account));
        account
    }

    /// Returns the counters of all connections.
    pub fn metrics(&self) -> &Arc<FrontMetrics> {
        &self.metrics
    }

    /// Evicts a connection if all together hold too much: of the client address that holds most,
    /// the connection that holds most. Connections evicted already, which may still hold memory,
    /// do not count.
    fn evict(&self) {
        // Upgraded into a list, because dropping the last reference to an account takes the lock.
        let open: Vec<_> = self.lock().values().filter_map(Weak::upgrade).collect();
        let accounts: Vec<_> = open.iter().filter(|account| !account.is_evicted()).collect();
        let mut of_peers: HashMap<ClientAddress, usize> = HashMap::new();
        accounts
            .iter()
            .for_each(|account| *of_peers.entry(account.peer.into()).or_default() += account.own());
        if of_peers.values().sum::<usize>() < ALL_BYTES_MAX {
            return;
        }
        let most =
            accounts.iter().max_by_key(|account| (of_peers[&account.peer.into()], account.own()));
        if let Some(account) = most {
            log::warn!(
                "HTTP: a connection of {} is closed: all together had {ALL_BYTES_MAX} bytes of \
                 requests and answers in memory, and this one {}",
                account.peer,
                account.own()
            );
            self.metrics.evicted.fetch_add(1, Ordering::Relaxed);
            account.is_evicted.store(true, Ordering::Relaxed);
            account.evicted.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Weak<Account>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
    /// Fails with the reason if there is no memory for more.
    pub fn check(&self) -> Result<(), Status> {
        let (own, all) = (self.own(), self.all.metrics.memory_bytes.load(Ordering::Relaxed));
        let why = if CONNECTION_BYTES_MAX <= own {
            format!(
                "this connection has {own} bytes of requests and answers in memory, expected less \
                 than {CONNECTION_BYTES_MAX}"
            )
        } else if CONNECTION_BYTES_MIN < own && ALL_BYTES_MAX <= all + own {
            format!(
                "all connections together have {all} bytes of requests and answers in memory, and \
                 this one {own} of them, more than is left of {ALL_BYTES_MAX}"
            )
        } else {
            return Ok(());
        };
        self.all.metrics.memory_refused.fetch_add(1, Ordering::Relaxed);
        Err(Status::resource_exhausted(format!("{why}: read answers faster, or ask for less")))
    }

    /// Waits until the connection is evicted.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }

    fn is_evicted(&self) -> bool {
        self.is_evicted.load(Ordering::Relaxed)
    }

    fn own(&self) -> usize {
        self.own.load(Ordering::Relaxed)
    }

    fn hold(self: &Arc<Self>, bytes: usize) -> Hold {
        let mut hold = Hold { account: Arc::clone(self), bytes: 0 };
        hold.add(bytes);
        hold
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.all.lock().remove(&self.number);
    }
}

/// Reservation of bytes on an account, released on drop.
#[derive(Debug)]
pub struct Hold {
    account: Arc<Account>,
    bytes: usize,
}

impl Hold {
    fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.account.own.fetch_add(bytes, Ordering::Relaxed);
        let all = &self.account.all;
        if ALL_BYTES_MAX <= bytes + all.metrics.memory_bytes.fetch_add(bytes, Ordering::Relaxed) {
            all.evict();
        }
    }

    /// Moves this many bytes into a reservation of their own.
    fn split(&mut self, bytes: usize) -> Self {
        self.bytes -= bytes;
        Self { account: Arc::clone(&self.account), bytes }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.account.own.fetch_sub(self.bytes, Ordering::Relaxed);
        self.account.all.metrics.memory_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A piece of an answer, counted until it is written to the socket.
#[derive(Debug)]
pub struct Piece {
    /// Bytes that are not yet written.
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

/// Body of an answer, with a `Guard` that is dropped with it.
pub struct AnswerBody<Guard> {
    body: Body,
    account: Arc<Account>,
    delivery: Delivery,
    _guard: Guard,
}

impl<Guard> AnswerBody<Guard> {
    /// Wraps a body whose bytes count on this account.
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

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 2, 3));

    fn held(all: &Accounts) -> usize {
        all.metrics.memory_bytes.load(Ordering::Relaxed)
    }

    #[test]
    fn a_piece_counts_until_its_last_user_lets_it_go() {
        let all = Arc::<Accounts>::default();
        let account = all.open(PEER);
        let delivery = Arc::new(Deliveries::default()).begin();
        let mut body =
            AnswerBody::new(Body::from(vec![1; 1000]), Arc::clone(&account), delivery, ());
        assert_eq!(held(&all), 0);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let frame = runtime.block_on(poll_fn(|context| Pin::new(&mut body).poll_frame(context)));
        let mut piece = frame.unwrap().unwrap().into_data().unwrap();
        drop(body);
        piece.advance(990);
        assert_eq!((piece.chunk(), held(&all)), (&[1; 10][..], 1000), "a part keeps all of it");
        drop(piece);
        assert_eq!(held(&all), 0);
    }

    #[test]
    fn a_full_connection_is_told_so_and_others_are_not() {
        let all = Arc::<Accounts>::default();
        let (slow, other) = (all.open(PEER), all.open(PEER));
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
    fn however_many_take_what_they_can_there_is_some_for_others() {
        for count in [1, 2, 3, 4, 5, 50] {
            let all = Arc::<Accounts>::default();
            let greedy: Vec<_> = (0..count).map(|_| all.open(PEER)).collect();
            let mut holds = Vec::new();
            let mut evicted = 0;
            let take = |account: &&Arc<Account>| !account.is_evicted() && account.check().is_ok();
            while let Some(account) = greedy.iter().find(take) {
                holds.push(account.hold(16 << 10));
                // An evicted connection releases its memory at once.
                if evicted != all.metrics.evicted.load(Ordering::Relaxed) {
                    evicted = all.metrics.evicted.load(Ordering::Relaxed);
                    holds.retain(|hold| !hold.account.is_evicted());
                }
            }
            assert!(held(&all) < ALL_BYTES_MAX, "{count} have all of it");
            all.open(OTHER).check().unwrap();
            // A few connections alone never reach the limit of all.
            assert_eq!(evicted == 0, count < 10, "{evicted} of {count}");
            let refused = greedy.iter().find_map(|account| account.check().err()).unwrap();
            assert!(
                refused.message().contains("bytes of requests and answers in memory"),
                "{refused}"
            );
            drop(holds);
            assert_eq!(held(&all), 0);
        }
    }

    /// Requests that were admitted may need more memory than there is.
    #[test]
    fn when_all_together_have_too_much_the_one_with_the_most_of_the_address_with_the_most_goes() {
        let all = Arc::<Accounts>::default();
        let (large, others) = (all.open(OTHER), [all.open(PEER), all.open(PEER), all.open(PEER)]);
        let mut holds = vec![large.hold(ALL_BYTES_MAX / 4), others[1].hold(ALL_BYTES_MAX / 5 + 1)];
        holds.extend(others.iter().map(|account| account.hold(ALL_BYTES_MAX / 5)));
        let evicted = |account: &Arc<Account>| account.is_evicted();
        assert!(evicted(&others[1]) && !evicted(&large));
        assert_eq!(others.iter().filter(|account| evicted(account)).count(), 1);
        // Its memory is not released yet, and no other connection is evicted for that.
        holds.push(others[0].hold(1));
        assert_eq!(all.metrics.evicted.load(Ordering::Relaxed), 1);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(others[1].evicted());
        drop(holds);
        drop((large, others));
        assert!(all.lock().is_empty());
    }
}
