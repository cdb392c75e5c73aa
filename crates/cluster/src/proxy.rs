//! A TCP proxy with the faults of networks: it holds bytes back, delays them, and cuts connections
//! in the middle of a reply.
//!
//! ```text
//!             +-- reader --pieces--> writer --+
//!  client ----+                               +---- server      (one such pair per direction)
//!             +-- writer <--pieces-- reader --+
//!                         |
//!                      Controls: stalled, delay, cuts
//! ```
//!
//! Every control acts on pieces that have not been forwarded yet, and a cut is exact to the byte.
//! Nothing here is random. The proxy holds at most
//! [`limits::PIECE_COUNT_MAX`](crate::limits::PIECE_COUNT_MAX) pieces per connection and direction,
//! then it stops reading. Dropping it cuts all connections.

mod controls;
mod pump;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use controls::{Cut, SharedControls};

/// Direction of the bytes.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Direction {
    /// Towards the server: requests.
    ToServer,
    /// Towards the client: replies.
    ToClient,
}

/// A proxy in front of one server.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<SharedControls>,
    acceptor: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Forwards connections to a port of the loopback address.
    ///
    /// # Errors
    ///
    /// Fails if no port is free.
    pub fn start(server_port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(SharedControls::default());
        let for_acceptor = Arc::clone(&shared);
        let accept = move || accept(&listener, server_port, &for_acceptor);
        let acceptor = thread::Builder::new().name("proxy".to_owned()).spawn(accept)?;
        Ok(Self { address, shared, acceptor: Some(acceptor) })
    }

    /// Returns its port on the loopback address.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns a URL like [`Cluster::url`](crate::Cluster::url), through the proxy.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://busload@127.0.0.1:{}/busload", self.port())
    }

    /// Stops forwarding in this direction; connections stay.
    pub fn stall(&self, direction: Direction) {
        self.shared.change(|controls| controls.way(direction).stalled = true);
    }

    /// Forwards again, first the bytes that were held.
    pub fn resume(&self) {
        self.shared.change(|controls| {
            for direction in [Direction::ToServer, Direction::ToClient] {
                controls.way(direction).stalled = false;
            }
        });
    }

    /// Holds each piece for this long after its arrival.
    pub fn delay(&self, direction: Direction, delay: Duration) {
        self.shared.change(|controls| controls.way(direction).delay = delay);
    }

    /// Cuts all current connections and returns how many there were.
    pub fn cut(&self) -> usize {
        self.shared.change(|controls| controls.cut_all())
    }

    /// Cuts, once, the connection that brings the first byte after `bytes` further ones in this
    /// direction, counted over all connections: the bytes before it are forwarded, it is not.
    /// Several such cuts happen one after the other.
    pub fn cut_after(&self, direction: Direction, bytes: u64) {
        self.shared
            .change(|controls| controls.cuts.push_back(Cut { direction, bytes_left: bytes }));
    }

    /// Returns how many cuts of [`Proxy::cut_after`] are still to come.
    #[must_use]
    pub fn pending_cuts(&self) -> usize {
        self.shared.change(|controls| controls.cuts.len())
    }

    /// Closes new connections at once.
    pub fn refuse(&self) {
        self.shared.change(|controls| controls.refuses = true);
    }

    /// Accepts new connections again.
    pub fn accept(&self) {
        self.shared.change(|controls| controls.refuses = false);
    }

    /// Returns the number of connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.change(|controls| controls.connections.len())
    }

    /// Returns the number of bytes forwarded so far.
    #[must_use]
    pub fn forwarded(&self, direction: Direction) -> u64 {
        self.shared.change(|controls| controls.way(direction).forwarded)
    }

    /// Waits until bytes are held back in this direction: with replies stalled, until the server
    /// has answered something.
    #[must_use]
    pub fn wait_held(&self, direction: Direction, timeout: Duration) -> bool {
        self.shared.wait_until(timeout, |controls| controls.way(direction).held > 0)
    }

    /// Waits until there are this many connections.
    #[must_use]
    pub fn wait_connections(&self, count: usize, timeout: Duration) -> bool {
        self.shared.wait_until(timeout, |controls| controls.connections.len() == count)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.change(controls::Controls::close);
        // Wakes the acceptor.
        drop(TcpStream::connect(self.address));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn accept(listener: &TcpListener, server_port: u16, shared: &Arc<SharedControls>) {
    for client in listener.incoming() {
        if shared.change(|controls| controls.closed) {
            return;
        }
        if shared.change(|controls| controls.refuses) {
            continue;
        }
        // A stopped server refuses, too: dropping the client's connection closes it.
        let Ok(client) = client else { continue };
        if let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server_port)) {
            let _ = pump::start(&client, &server, shared);
        }
    }
}
