//! State that tx keeps for a connection: everything a command can change.

use std::sync::Arc;

use busload_acl::User;
use busload_io::{Address, ConnId, Peer};
use busload_resp::{ArgRange, Version};

use crate::{
    args::Args,
    batch::DeferReason,
    command::{Command, CommandId},
    gauges::ConnectionGauges,
    limits::{QUEUE_CHUNK_ARGS, QUEUE_CHUNK_BYTES},
    source::Ticket,
};

/// Mode of CLIENT REPLY: whether replies are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyMode {
    /// Replies are sent (the default).
    On,
    /// No replies are sent until the client turns them on again.
    Off,
    /// The next command gets no reply (set by CLIENT REPLY SKIP, which runs first itself).
    SkipNext,
    /// The current command gets no reply.
    Skipping,
}

/// State of one connection.
#[derive(Debug)]
pub struct Session {
    /// Id of the connection at the driver.
    pub conn: ConnId,
    /// Number that CLIENT ID shows; never reused.
    pub id: u64,
    /// Addresses of both ends.
    pub peer: Peer,
    /// Measurements of its buffers, which net keeps up to date.
    pub gauges: Arc<ConnectionGauges>,
    /// Space chosen by SELECT.
    pub space: u16,
    /// RESP version of the replies.
    pub version: Version,
    /// User that the client is: `default` until it says who it is.
    pub user: Arc<User>,
    /// Says whether the client has proved to be the user, or need not.
    pub authenticated: bool,
    /// Says whether rights must be checked: it is not authenticated, or may not do everything.
    pub restricted: bool,
    /// Name set by CLIENT SETNAME.
    pub name: Vec<u8>,
    /// Name set by CLIENT SETINFO LIB-NAME.
    pub library_name: Vec<u8>,
    /// Version set by CLIENT SETINFO LIB-VER.
    pub library_version: Vec<u8>,
    /// Wall clock time when the client connected.
    pub connected_ms: i64,
    /// Wall clock time when its last request was executed.
    pub active_ms: i64,
    /// Last command that the client sent.
    pub last_command: Option<&'static Command>,
    /// Mode set by CLIENT REPLY.
    pub reply_mode: ReplyMode,
    /// Flag set by CLIENT NO-EVICT.
    pub no_evict: bool,
    /// Flag set by CLIENT NO-TOUCH.
    pub no_touch: bool,
    /// Says whether it is shown all commands (MONITOR).
    pub monitors: bool,
    /// Commands queued since MULTI.
    pub multi: Option<Box<Queue>>,
    /// Says whether WATCH is in force (the registry holds the keys).
    pub watching: bool,
    /// Reason for which requests were deferred: tx executes nothing until net submits them again.
    pub blocked: Option<DeferReason>,
    /// Ticket before whose answer tx executes nothing of this connection.
    pub barrier: Option<Ticket>,
    /// Says whether net closes the connection when it has sent the current reply.
    pub closing: bool,
}

impl Session {
    /// Returns the state of a new connection.
    pub fn new(conn: ConnId, id: u64, peer: Peer, user: Arc<User>, now_ms: i64) -> Self {
        let authenticated = user.is_open();
        Self {
            restricted: !authenticated || !user.is_unrestricted(),
            user,
            conn,
            id,
            peer,
            gauges: Arc::default(),
            space: 0,
            version: Version::Resp2,
            authenticated,
            name: Vec::new(),
            library_name: Vec::new(),
            library_version: Vec::new(),
            connected_ms: now_ms,
            active_ms: now_ms,
            last_command: None,
            reply_mode: ReplyMode::On,
            no_evict: false,
            no_touch: false,
            monitors: false,
            multi: None,
            watching: false,
            blocked: None,
            barrier: None,
            closing: false,
        }
    }

    /// Makes the client this user, which it has proved to be.
    pub fn log_in(&mut self, user: Arc<User>) {
        self.restricted = !user.is_unrestricted();
        (self.user, self.authenticated) = (user, true);
    }

    /// Makes the client the user `default`, as a new one is.
    pub fn log_out(&mut self, default: Arc<User>) {
        self.authenticated = default.is_open();
        self.restricted = !self.authenticated || !default.is_unrestricted();
        self.user = default;
    }

    /// Takes the user as it is now; returns false if it is gone or off, so that the client must go.
    pub fn follow(&mut self, user: Option<Arc<User>>) -> bool {
        let Some(user) = user.filter(|user| user.is_on() || !self.authenticated) else {
            return false;
        };
        self.restricted = !self.authenticated || !user.is_unrestricted();
        self.user = user;
        true
    }

    /// Returns the user if there are keys that it may not read.
    pub fn limited_reader(&self) -> Option<Arc<User>> {
        (self.restricted && !self.user.keys().is_all()).then(|| Arc::clone(&self.user))
    }

    /// Returns the client's address as CLIENT LIST shows it.
    pub fn address(&self) -> String {
        shown_address(&self.peer.remote)
    }
}

/// Returns an address as Redis shows it.
pub(crate) fn shown_address(of: &Address) -> String {
    match of {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(path) => format!("{}:0", path.display()),
    }
}

/// Commands queued since MULTI, in chunks: a long queue never has to be copied to grow, and the
/// counted size is the allocated one.
#[derive(Debug, Default)]
pub struct Queue {
    chunks: Vec<QueueChunk>,
    len: usize,
    memory_bytes: usize,
    /// Says whether a command was refused while queueing, so that EXEC will refuse the rest.
    pub refused: bool,
}

/// Consecutive commands in one buffer.
#[derive(Debug, Default)]
struct QueueChunk {
    bytes: Vec<u8>,
    ranges: Vec<ArgRange>,
    commands: Vec<Queued>,
}

#[derive(Debug)]
struct Queued {
    command: CommandId,
    start: usize,
    end: usize,
    first_range: usize,
    range_count: usize,
}

impl Queue {
    /// Copies a command to the end of the queue.
    pub fn push(&mut self, command: CommandId, args: &Args<'_>) {
        let (bytes, ranges) = args.raw();
        let full = |chunk: &QueueChunk| {
            QUEUE_CHUNK_BYTES < chunk.bytes.len() + bytes.len()
                || QUEUE_CHUNK_ARGS < chunk.ranges.len() + ranges.len()
        };
        if self.chunks.last().is_none_or(full) {
            self.chunks.push(QueueChunk::default());
        }
        let chunk = self.chunks.last_mut().expect("a chunk was just put there");
        let before = chunk.memory_bytes();
        let start = chunk.bytes.len();
        chunk.bytes.extend_from_slice(bytes);
        let first_range = chunk.ranges.len();
        chunk.ranges.extend_from_slice(ranges);
        let (end, range_count) = (chunk.bytes.len(), ranges.len());
        chunk.commands.push(Queued { command, start, end, first_range, range_count });
        self.memory_bytes += chunk.memory_bytes() - before;
        self.len += 1;
    }

    /// Returns the number of queued commands.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no commands are queued.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the memory that the queue takes.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes + self.chunks.capacity() * size_of::<QueueChunk>()
    }

    /// Iterates over the commands in order.
    pub fn iter(&self) -> impl Iterator<Item = (CommandId, Args<'_>)> {
        self.chunks.iter().flat_map(|chunk| {
            chunk.commands.iter().map(|queued| {
                let ranges = &chunk.ranges[queued.first_range..][..queued.range_count];
                (queued.command, Args::new(&chunk.bytes[queued.start..queued.end], ranges, None))
            })
        })
    }
}

impl QueueChunk {
    fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
            + self.ranges.capacity() * size_of::<ArgRange>()
            + self.commands.capacity() * size_of::<Queued>()
    }
}
