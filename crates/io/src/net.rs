//! Sockets. One [`Net`] belongs to one thread; it accepts, receives, sends and closes.

use std::{fmt, io, net::SocketAddr, path::PathBuf, task::Waker, time::Duration};

use bytes::Bytes;

mod real;
pub(crate) mod receive;
pub(crate) mod slots;

pub use real::{Idle, NetCounters, RealNet};

/// A connection: a slot and the generation of its use, so that a late event or command for a
/// connection that is gone never reaches the one that has its slot now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId {
    /// The slot; small, dense, reused. Fit to index a `Vec`.
    pub index: u32,
    /// How often the slot was used before.
    pub generation: u32,
}

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP address; port 0 lets the system choose.
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

/// Who is at the other end, and which of our addresses it reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address; for a Unix socket the path it connected to.
    pub remote: Address,
    /// Ours.
    pub local: Address,
}

/// A buffer of received bytes: several connections' bytes of one poll lie in it one behind the
/// other.
pub type Buffer = Vec<u8>;

/// A range of bytes in one of the buffers of the current poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Ordinal of the buffer among those [`Net::take_buffers`] yields for this poll.
    pub buffer: u32,
    /// First byte.
    pub start: u32,
    /// Behind the last byte.
    pub end: u32,
}

/// What ended a connection; it decides who frees it, see [`Event::Closed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The peer closed its sending half (end of stream).
    Peer,
    /// An error of the socket.
    Error(io::ErrorKind),
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A client connected. Reading starts at once.
    Accepted {
        /// Its new id.
        conn: ConnId,
        /// Who it is.
        peer: Peer,
    },
    /// Bytes came. At most one such event per connection and poll.
    Received {
        /// From whom.
        conn: ConnId,
        /// Where they lie.
        span: Span,
    },
    /// The one send under way on this connection is done; its memory comes back.
    Sent {
        /// Whose.
        conn: ConnId,
        /// The chunk, whole as it was submitted.
        chunk: SendChunk,
    },
    /// After [`CloseReason::Peer`]: everything the peer sent was reported and nothing more will
    /// come, but the connection is still the caller's: it may go on sending (the peer may have
    /// closed only its sending half) and must [`Net::close`] it. After [`CloseReason::Error`] (also
    /// after `Peer`, when a later send fails): the connection is gone and no further event will
    /// name this id; a send under way never comes back as `Sent`. Not reported for a connection
    /// that the caller closed itself.
    Closed {
        /// Which.
        conn: ConnId,
        /// Why.
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
    /// A buffer of replies; comes back for reuse.
    Owned(Vec<u8>),
    /// A large value shared with a table.
    Shared(Bytes),
}

impl SendChunk {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            SendChunk::Owned(bytes) => bytes,
            SendChunk::Shared(bytes) => bytes,
        }
    }
}

/// Limits of a driver.
#[derive(Clone, Copy, Debug)]
pub struct NetOptions {
    /// Connections at once; one more is accepted, told so by [`NetOptions::full_message`], and
    /// closed.
    pub connection_count_limit: u32,
    /// What a connection above the limit is sent before it is closed.
    pub full_message: &'static [u8],
    /// Size of a receive buffer.
    pub buffer_bytes: usize,
    /// A buffer with less room than this is not offered to a further receive.
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

/// A driver of sockets. Commands take effect at once or by the next poll; unknown or gone
/// connections are ignored (their end may not have been reported yet).
pub trait Net {
    /// Appends what happened to `events`; waits for the first event at most `timeout` (`None`: for
    /// ever, zero: not at all). Ends early when woken, and may end early without any event. Fails
    /// only when the driver itself is broken.
    fn poll(&mut self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<()>;

    /// Moves the buffers the last poll filled to the end of `buffers`, in the order of
    /// [`Span::buffer`].
    fn take_buffers(&mut self, buffers: &mut Vec<Buffer>);

    /// Gives a buffer back for reuse. Buffers of other origin are simply dropped.
    fn recycle(&mut self, buffer: Buffer);

    /// Sends a chunk (not empty). At most one send per connection is under way; a second before its
    /// `Sent` is a programming error.
    fn send(&mut self, conn: ConnId, chunk: SendChunk);

    /// Stops reading from the connection. Bytes already on their way may still be reported. While
    /// reading is paused the end of the stream is not noticed, errors may be.
    fn pause(&mut self, conn: ConnId);

    /// Reads again.
    fn resume(&mut self, conn: ConnId);

    /// Closes the connection now. What was sent already still reaches the peer; a send under way is
    /// dropped.
    fn close(&mut self, conn: ConnId);

    /// Ends the sending direction: the peer sees the end of the stream behind what was sent. Its
    /// bytes are still received, so that nothing on its way to it is lost; the connection must
    /// still be closed. Nothing may be sent afterwards.
    fn finish(&mut self, conn: ConnId);

    /// Stops accepting (the listening sockets are closed; Unix socket files removed).
    fn stop_listening(&mut self);

    /// A handle that makes a poll return, from any thread. Waking is idempotent until the next
    /// poll.
    fn waker(&self) -> Waker;
}
