//! What tx remembers of a connection: everything a command can change.

use busload_io::{ConnId, Peer};
use busload_resp::{ArgRange, Version};

use crate::{
    args::Args,
    batch::DeferReason,
    command::{Command, CommandId},
    limits::{QUEUE_CHUNK_ARGS, QUEUE_CHUNK_BYTES},
    source::Ticket,
};

/// Whether replies are sent (CLIENT REPLY).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyMode {
    /// Yes.
    On,
    /// Not until it is turned on again.
    Off,
    /// Not for the next command (set by SKIP, still to be armed).
    SkipNext,
    /// Not for this command.
    Skipping,
}

/// A connection's state.
#[derive(Debug)]
pub struct Session {
    /// The connection.
    pub conn: ConnId,
    /// CLIENT ID; never reused.
    pub id: u64,
    /// Who.
    pub peer: Peer,
    /// SELECTed space.
    pub space: u16,
    /// Protocol version.
    pub version: Version,
    /// Whether the password was given, or none is needed.
    pub authenticated: bool,
    /// CLIENT SETNAME.
    pub name: Vec<u8>,
    /// CLIENT SETINFO LIB-NAME.
    pub library_name: Vec<u8>,
    /// CLIENT SETINFO LIB-VER.
    pub library_version: Vec<u8>,
    /// When it connected, wall clock.
    pub connected_ms: i64,
    /// When its last request was executed.
    pub active_ms: i64,
    /// Its last command.
    pub last_command: Option<&'static Command>,
    /// CLIENT REPLY.
    pub reply_mode: ReplyMode,
    /// CLIENT NO-EVICT.
    pub no_evict: bool,
    /// CLIENT NO-TOUCH.
    pub no_touch: bool,
    /// Commands queued since MULTI.
    pub multi: Option<Box<Queue>>,
    /// Whether WATCH is in force (the keys are in the registry).
    pub watching: bool,
    /// Requests were given back for this reason: nothing is executed until they are offered again.
    pub blocked: Option<DeferReason>,
    /// Nothing is executed before this ticket is answered.
    pub barrier: Option<Ticket>,
    /// Close when the current reply is sent.
    pub closing: bool,
}

impl Session {
    /// A fresh connection's state.
    pub fn new(conn: ConnId, id: u64, peer: Peer, authenticated: bool, now_ms: i64) -> Self {
        Self {
            conn,
            id,
            peer,
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
            multi: None,
            watching: false,
            blocked: None,
            barrier: None,
            closing: false,
        }
    }
}

/// Commands queued since MULTI, in chunks: a long queue is never copied to let it grow, and what is
/// counted is what is allocated.
#[derive(Debug, Default)]
pub struct Queue {
    chunks: Vec<QueueChunk>,
    len: usize,
    memory_bytes: usize,
    /// A command was refused while queueing: EXEC will refuse the rest.
    pub refused: bool,
}

/// Some commands one behind the other.
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

    /// How many commands.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Memory it takes.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes + self.chunks.capacity() * size_of::<QueueChunk>()
    }

    /// The commands in order.
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
