//! The proxy: its port, its connections, and the requests it has recorded.

mod answer;
mod connection;
mod link;
mod request;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc as threads},
};

use tokio::{
    net::{TcpListener, TcpSocket},
    sync::mpsc,
    task::JoinSet,
};

use crate::{
    Error, Faults,
    fault::Decider,
    limits::{BACKLOG, SEEN_MAX},
    server::Threads,
};
use link::Link;

/// A request that the proxy has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// HTTP method: GET, HEAD, ...
    pub method: String,
    /// Path and query of the request.
    pub path: String,
    /// Requested range: first byte and one past the last. For a range without an end and for a
    /// suffix, as the answer resolved it.
    pub range: Option<Range<u64>>,
    /// Bytes of body sent.
    pub bytes: u64,
    /// Status sent; 0 if none was sent.
    pub status: u16,
}

/// Recorded answers, and how many times they were forgotten.
#[derive(Debug, Default)]
struct Noted {
    seen: Vec<Seen>,
    epoch: u64,
}

/// Position of one recorded answer.
#[derive(Clone, Copy, Debug)]
struct Note {
    epoch: u64,
    index: usize,
}

/// State that connections and the handle share.
#[derive(Debug)]
struct ProxyState {
    upstream: SocketAddr,
    decider: Mutex<Decider>,
    link: Link,
    noted: Mutex<Noted>,
}

impl ProxyState {
    fn decider(&self) -> MutexGuard<'_, Decider> {
        self.decider.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the beginning of an answer.
    fn note(&self, seen: Seen) -> Note {
        let mut noted = self.noted();
        let note = Note { epoch: noted.epoch, index: noted.seen.len() };
        if note.index < SEEN_MAX {
            noted.seen.push(seen);
        }
        note
    }

    /// Records that bytes of the body have been sent, or are about to be.
    fn note_bytes(&self, note: Note, bytes: u64) {
        let mut noted = self.noted();
        if note.epoch == noted.epoch
            && let Some(seen) = noted.seen.get_mut(note.index)
        {
            seen.bytes = bytes;
        }
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Order to the task that accepts, with a channel for its completion.
struct Order {
    is_there: bool,
    done: threads::SyncSender<()>,
}

/// An HTTP proxy on loopback in front of one server, on threads of its own; ends when dropped.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<ProxyState>,
    orders: mpsc::UnboundedSender<Order>,
    _threads: Threads,
}

impl FaultProxy {
    /// Starts a proxy in front of a server; one seed decides all random choices.
    pub fn start(upstream: SocketAddr, seed: u64, faults: Faults) -> Result<Self, Error> {
        let link = Link::new(faults.line);
        let decider = Mutex::new(Decider::new(seed, faults));
        let shared = Arc::new(ProxyState { upstream, decider, link, noted: Mutex::default() });
        let threads = Threads::start("proxy")?;
        let (port, listener) = threads.inside(|| {
            let port = Port::take()?;
            let listener = port.listen()?;
            Ok((port, listener))
        })?;
        let address = port.address;
        let (orders, received) = mpsc::unbounded_channel();
        threads.spawn(accept(port, Some(listener), received, Arc::clone(&shared)));
        Ok(Self { address, shared, orders, _threads: threads })
    }

    /// Returns the address of the proxy.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the faults from now on. Counts of rules start anew.
    pub fn set(&self, faults: Faults) {
        self.shared.link.set(faults.line);
        self.shared.decider().set(faults);
    }

    /// Returns all requests answered since the start or [`FaultProxy::forget`], in the order in
    /// which the answers began. A request is recorded before its client has the first byte, and so
    /// are bytes before the client has them. Recording stops after a million requests until
    /// [`FaultProxy::forget`].
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.noted().seen.clone()
    }

    /// Forgets the recorded requests.
    pub fn forget(&self) {
        let mut noted = self.shared.noted();
        noted.seen.clear();
        noted.epoch += 1;
    }

    /// Closes all connections and refuses new ones until [`FaultProxy::come_back`].
    pub fn go_away(&self) {
        self.order(false);
    }

    /// Accepts connections again, after [`FaultProxy::go_away`].
    pub fn come_back(&self) {
        self.order(true);
    }

    /// Sends an order and waits until it is done.
    fn order(&self, is_there: bool) {
        let (done, is_done) = threads::sync_channel(1);
        let sent = self.orders.send(Order { is_there, done });
        sent.ok()
            .and_then(|()| is_done.recv().ok())
            .expect("the task that accepts lives as long as the handle");
    }
}

/// A port that stays reserved while nobody listens on it: a socket that is bound but does not
/// listen refuses connections.
struct Port {
    address: SocketAddr,
    _held: TcpSocket,
}

impl Port {
    fn take() -> io::Result<Self> {
        let held = Self::bind((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok(Self { address: held.local_addr()?, _held: held })
    }

    fn listen(&self) -> io::Result<TcpListener> {
        Self::bind(self.address)?.listen(BACKLOG)
    }

    fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseport(true)?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    }
}

async fn accept(
    port: Port,
    mut listener: Option<TcpListener>,
    mut orders: mpsc::UnboundedReceiver<Order>,
    shared: Arc<ProxyState>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            order = orders.recv() => {
                let Some(order) = order else { return };
                match order.is_there {
                    true if listener.is_none() => {
                        listener =
                            Some(port.listen().expect("the port is held, and can be reused"));
                    }
                    true => {}
                    false => {
                        listener = None;
                        connections.shutdown().await;
                    }
                }
                // The caller that gave the order waits for this, or is gone.
                let _ = order.done.send(());
            }
            Some(accepted) = next(listener.as_ref()) => {
                if let Ok((socket, _)) = accepted {
                    connections.spawn(connection::serve(socket, Arc::clone(&shared)));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn next(
    listener: Option<&TcpListener>,
) -> Option<io::Result<(tokio::net::TcpStream, SocketAddr)>> {
    Some(listener?.accept().await)
}
