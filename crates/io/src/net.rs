//! The seam for sockets. One [`Net`] belongs to one thread; it accepts, receives, sends and closes.

use std::{fmt, io, net::SocketAddr, path::PathBuf, task::Waker, time::Duration};

use bytes::Bytes;

mod real;
pub(crate) mod receive;
pub(crate) mod slots;

pub use real::{Idle, NetCounters, RealNet};

/// Id of a connection: a slot and the generation of the slot's use. A late event or command for a
/// closed connection therefore never reaches the one that now has its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId {
    /// Slot of the connection; small, dense, reused, suitable as an index into a `Vec`.
    pub index: u32,
    /// Number of times the slot was used before.
    pub generation: u32,
}

/// Address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP address; with port 0 the system chooses the port.
    Tcp(SocketAddr),
    /// A Unix socket at this path.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Addresses of both ends of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Address of the client; for a Unix socket the path it connected to.
    pub remote: Address,
    /// Local address that the client connected to.
    pub local: Address,
}

/// Buffer of received bytes. It holds those of several connections of one poll, one after the
/// other.
pub type Buffer = Vec<u8>;

/// Range of bytes in one of the buffers of the current poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Ordinal of the buffer among those that [`Net::take_buffers`] yields for this poll.
    pub buffer: u32,
    /// Offset of the first byte.
    pub start: u32,
    /// Offset after the last byte.
    pub end: u32,
}

/// Reason why a connection ended. It decides who frees the connection, see [`Event::Closed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The peer closed its sending half (end of stream).
    Peer,
    /// An error of the socket.
    Error(io::ErrorKind),
}

/// Event that a poll reports.
#[derive(Debug)]
pub enum Event {
    /// A client connected. Reading starts at once.
    Accepted {
        /// Id of the new connection.
        conn: ConnId,
        /// Addresses of both ends.
        peer: Peer,
    },
    /// Bytes arrived. At most one such event per connection and poll.
    Received {
        /// Connection that the bytes came from.
        conn: ConnId,
        /// Range of the bytes in this poll's buffers.
        span: Span,
    },
    /// The send in flight on this connection is done; its memory comes back.
    Sent {
        /// Connection of the send.
        conn: ConnId,
        /// The whole chunk, as it was submitted.
        chunk: SendChunk,
    },
    /// The connection ended. After [`CloseReason::Peer`], everything the peer sent was reported and
    /// nothing more will come, but the connection still belongs to the caller: it may go on sending
    /// (the peer may have closed only its sending half) and must [`Net::close`] it. After
    /// [`CloseReason::Error`] (also after `Peer`, when a later send fails), the connection is gone
    /// and no further event will name this id; a send in flight never comes back as `Sent`. Not
    /// reported for a connection that the caller closed itself.
    Closed {
        /// Id of the ended connection.
        conn: ConnId,
        /// Reason for the end.
        reason: CloseReason,
    },
    /// The waker was woken at least once since the last poll.
    Woken,
    /// The timeout of this poll passed and nothing else happened.
    Timer,
}

/// Bytes to send, owned by the driver until they are sent.
#[derive(Debug)]
pub enum SendChunk {
    /// A buffer of replies, which comes back for reuse.
    Owned(Vec<u8>),
    /// A large value shared with a table.
    Shared(Bytes),
}

impl SendChunk {
    /// Returns the bytes of the chunk.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            SendChunk::Owned(bytes) => bytes,
            SendChunk::Shared(bytes) => bytes,
        }
    }
}

/// Limits of a socket driver.
#[derive(Clone, Copy, Debug)]
pub struct NetOptions {
    /// Number of simultaneous connections. A connection above the limit is accepted, gets
    /// [`NetOptions::full_message`], and is closed.
    pub connection_count_limit: u32,
    /// Message sent to a connection above the limit before it is closed.
    pub full_message: &'static [u8],
    /// Length of a receive buffer.
    pub buffer_bytes: usize,
    /// Smallest free part of a buffer that is offered to a receive.
    pub receive_bytes_min: usize,
}

impl Default for NetOptions {
    fn default() -> Self {
        Self {
            connection_count_limit: 10_000,
            full_message: b"-ERR max number of clients reached\r\n",
            buffer_bytes: 256 * 1024,
            receive_bytes_min: 16 * 1024,
        }
    }
}

/// Driver of sockets. Commands take effect at once or by the next poll. Commands for unknown or
/// closed connections are ignored (their end may not have been reported yet).
pub trait Net {
    /// Appends new events to `events` and waits for the first event at most for `timeout` (`None`:
    /// for ever, zero: not at all). Returns early when woken, and may return early without any
    /// event. Fails only if the driver itself is broken.
    fn poll(&mut self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<()>;

    /// Moves the buffers that the last poll filled to the end of `buffers`, in the order of
    /// [`Span::buffer`].
    fn take_buffers(&mut self, buffers: &mut Vec<Buffer>);

    /// Gives a buffer back for reuse. Buffers of other origin are simply dropped.
    fn recycle(&mut self, buffer: Buffer);

    /// Sends a chunk (not empty). At most one send per connection is in flight; a second one before
    /// its `Sent` is a programming error.
    fn send(&mut self, conn: ConnId, chunk: SendChunk);

    /// Stops reading from the connection. Bytes already in transit may still be reported. While
    /// reading is paused the end of the stream is not noticed; errors may be.
    fn pause(&mut self, conn: ConnId);

    /// Resumes reading from the connection.
    fn resume(&mut self, conn: ConnId);

    /// Closes the connection now. Bytes already sent still reach the peer; a send in flight is
    /// dropped.
    fn close(&mut self, conn: ConnId);

    /// Ends the sending direction: the peer sees the end of the stream after the bytes already
    /// sent. The driver goes on receiving the peer's bytes, so that nothing in transit to the peer
    /// is lost; the connection must still be closed. Nothing may be sent afterwards.
    fn finish(&mut self, conn: ConnId);

    /// Accepts connections from now on only while there are fewer than this. Those that are open
    /// stay.
    fn limit_connections(&mut self, count: u32);

    /// Stops accepting: closes the listening sockets and removes the files of Unix sockets.
    fn stop_listening(&mut self);

    /// Returns the file descriptor of a connection, if the driver has such.
    fn descriptor(&self, conn: ConnId) -> Option<i32>;

    /// Returns a handle that makes a poll return, from any thread. Waking is idempotent until the
    /// next poll.
    fn waker(&self) -> Waker;
}
