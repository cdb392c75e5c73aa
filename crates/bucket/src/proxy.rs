//! The proxy: its port, its connections, what it saw.

mod answer;
mod connection;
mod line;
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
use line::Line;

/// One request that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// GET, HEAD, ...
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Range asked for: first byte and one past the last. Of a range without an end, and of a
    /// suffix, as the answer resolved it.
    pub range: Option<Range<u64>>,
    /// Bytes of body sent.
    pub bytes: u64,
    /// Status sent; 0: none.
    pub status: u16,
}

/// Answers seen, since they were forgotten so many times.
#[derive(Debug, Default)]
struct Noted {
    seen: Vec<Seen>,
    epoch: u64,
}

/// One of them.
#[derive(Clone, Copy, Debug)]
struct Note {
    epoch: u64,
    index: usize,
}

/// What connections and the handle share.
#[derive(Debug)]
struct Shared {
    upstream: SocketAddr,
    decider: Mutex<Decider>,
    line: Line,
    noted: Mutex<Noted>,
}

impl Shared {
    fn decider(&self) -> MutexGuard<'_, Decider> {
        self.decider.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An answer begins.
    fn note(&self, seen: Seen) -> Note {
        let mut noted = self.noted();
        let note = Note { epoch: noted.epoch, index: noted.seen.len() };
        if note.index < SEEN_MAX {
            noted.seen.push(seen);
        }
        note
    }

    /// So many bytes of its body have been sent, or are about to be.
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

/// An order to the task that accepts, and where it says that it is done.
struct Order {
    is_there: bool,
    done: threads::SyncSender<()>,
}

/// An HTTP proxy on loopback in front of one server, on threads of its own; ends when dropped.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    orders: mpsc::UnboundedSender<Order>,
    _threads: Threads,
}

impl FaultProxy {
    /// In front of a server; one seed decides everything that is drawn.
    pub fn start(upstream: SocketAddr, seed: u64, faults: Faults) -> Result<Self, Error> {
        let line = Line::new(faults.line);
        let decider = Mutex::new(Decider::new(seed, faults));
        let shared = Arc::new(Shared { upstream, decider, line, noted: Mutex::default() });
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

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on. Counts of rules begin anew.
    pub fn set(&self, faults: Faults) {
        self.shared.line.set(faults.line);
        self.shared.decider().set(faults);
    }

    /// All requests answered since the start or [`FaultProxy::forget`], in the order in which the
    /// answers began. A request is there before its client has the first byte, and so are the bytes
    /// before it has them. After a million of them, no more are noted until [`FaultProxy::forget`].
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.noted().seen.clone()
    }

    /// Forgets what was seen.
    pub fn forget(&self) {
        let mut noted = self.shared.noted();
        noted.seen.clear();
        noted.epoch += 1;
    }

    /// Closes all connections and refuses new ones until [`FaultProxy::come_back`].
    pub fn go_away(&self) {
        self.order(false);
    }

    /// Ends [`FaultProxy::go_away`].
    pub fn come_back(&self) {
        self.order(true);
    }

    /// Waits until it is so.
    fn order(&self, is_there: bool) {
        let (done, is_done) = threads::sync_channel(1);
        let sent = self.orders.send(Order { is_there, done });
        sent.ok()
            .and_then(|()| is_done.recv().ok())
            .expect("the task that accepts lives as long as the handle");
    }
}

/// A port that stays ours while nobody listens on it: a socket that is bound but does not listen
/// refuses connections.
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
    shared: Arc<Shared>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            order = orders.recv() => {
                let Some(order) = order else { return };
                match order.is_there {
                    true if listener.is_none() => {
                        listener = Some(port.listen().expect("the port is held, and may be listened on again"));
                    }
                    true => {}
                    false => {
                        listener = None;
                        connections.shutdown().await;
                    }
                }
                // Who gave the order waits for this, or is gone.
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
