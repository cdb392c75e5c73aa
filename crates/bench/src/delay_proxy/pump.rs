//! The thread of the proxy: sockets, their pipes, and when bytes are due.

use std::{
    collections::VecDeque,
    io::{ErrorKind, PipeReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    num::NonZeroU64,
    time::Duration,
};

use anyhow::{Context, Result};
use bytes::{Buf, BytesMut};
use rustix::{
    event::{
        Timespec,
        epoll::{self, EventFlags},
    },
    fd::{AsFd, OwnedFd},
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, connect, socket_with},
};

use crate::{
    clock::{duration_ns, now_ns},
    limits::{DELAY_BUFFER_BYTES, DELAY_SPIN, EVENTS_PER_TURN, RECEIVE_BYTES},
};

/// Data of the events that are not about a connection.
const LISTENER: u64 = u64::MAX;
const STOPPED: u64 = u64::MAX - 1;

/// Edges of a connected socket: what ended a stream comes with what is to be read.
const EDGES: EventFlags =
    EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).union(EventFlags::ET);
/// Events after which a short read is not the last one.
const ENDS: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR);

/// Pipe of a connection that reads from this side: 0 is the client's, 1 the server's.
type PipeId = (usize, usize);

/// Bytes that were read, and when they are to be written.
struct Due {
    at_ns: u64,
    pipe: PipeId,
    /// 0: the end of the stream.
    bytes: usize,
}

#[derive(Default)]
struct Pipe {
    bytes: BytesMut,
    /// Bytes of them that may be written.
    due_bytes: usize,
    /// The source was not read to its end for lack of room.
    is_full: bool,
    /// The source has ended and is read no more.
    has_ended: bool,
    /// Its end may be passed on after the bytes.
    end_is_due: bool,
    /// All was passed on that ever will be.
    is_done: bool,
}

struct Connection {
    sockets: [TcpStream; 2],
    pipes: [Pipe; 2],
}

pub struct Pump {
    epoll: OwnedFd,
    listener: TcpListener,
    _stopped: PipeReader,
    server: SocketAddr,
    delay_ns: u64,
    /// All connections there ever were: an entry of `dues` never finds another one.
    connections: Vec<Option<Box<Connection>>>,
    dues: VecDeque<Due>,
    /// Pipes of which something became due in this turn.
    ready: Vec<PipeId>,
    received: Vec<u8>,
}

impl Pump {
    pub fn new(
        listener: TcpListener,
        stopped: PipeReader,
        server: SocketAddr,
        delay: Duration,
    ) -> Result<Self> {
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll_create1")?;
        let add = |socket: &dyn AsFd, data| {
            let data = epoll::EventData::new_u64(data);
            epoll::add(&epoll, socket.as_fd(), data, EventFlags::IN).context("epoll_ctl")
        };
        add(&listener, LISTENER)?;
        add(&stopped, STOPPED)?;
        Ok(Self {
            epoll,
            listener,
            _stopped: stopped,
            server,
            delay_ns: duration_ns(delay),
            connections: Vec::new(),
            dues: VecDeque::new(),
            ready: Vec::new(),
            received: vec![0; RECEIVE_BYTES],
        })
    }

    /// Forwards until the other end of `stopped` is closed.
    pub fn run(&mut self) -> Result<()> {
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut events = Vec::with_capacity(EVENTS_PER_TURN);
        loop {
            self.wait(&mut events)?;
            for event in events.drain(..) {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    STOPPED => return Ok(()),
                    data => self.handle(data, event.flags),
                }
            }
            self.forward_due();
        }
    }

    /// Waits for events until something is due.
    fn wait(&self, events: &mut Vec<epoll::Event>) -> Result<()> {
        let left = self.dues.front().map(|due| {
            let left = Duration::from_nanos(due.at_ns.saturating_sub(now_ns()));
            left.saturating_sub(DELAY_SPIN)
        });
        let timeout = left.map(Timespec::try_from).transpose().context("a sane delay")?;
        let room = rustix::buffer::spare_capacity(events);
        match epoll::wait(&self.epoll, room, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error).context("epoll_pwait2 (needs Linux 5.11)"),
        }
    }

    /// Takes new clients and begins to connect each to the server.
    fn accept(&mut self) -> Result<()> {
        loop {
            let client = match self.listener.accept() {
                Ok((client, _)) => client,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // It went away again.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error).context("accept"),
            };
            let family = match self.server {
                SocketAddr::V4(_) => AddressFamily::INET,
                SocketAddr::V6(_) => AddressFamily::INET6,
            };
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let server = socket_with(family, SocketType::STREAM, flags, None).context("socket")?;
            // Any other outcome is told by the socket itself, as that of a later failure is.
            let _ = connect(&server, &self.server);
            let sockets = [client, TcpStream::from(server)];
            let index = self.connections.len();
            for (side, socket) in sockets.iter().enumerate() {
                socket.set_nonblocking(true)?;
                socket.set_nodelay(true)?;
                let data = u64::try_from(index * 2 + side).expect("an index fits in 64 bits");
                let data = epoll::EventData::new_u64(data);
                epoll::add(&self.epoll, socket, data, EDGES).context("epoll_ctl")?;
            }
            let connection = Connection { sockets, pipes: Default::default() };
            self.connections.push(Some(Box::new(connection)));
        }
    }

    /// Reads and writes what a socket is ready for.
    fn handle(&mut self, data: u64, flags: EventFlags) {
        let data = usize::try_from(data).expect("registered from an index");
        let (index, side) = (data / 2, data % 2);
        if flags.intersects(EventFlags::IN | ENDS) {
            self.read((index, side), flags.intersects(ENDS));
        }
        if flags.contains(EventFlags::OUT) {
            self.write((index, 1 - side));
        }
    }

    /// Reads what the source of a pipe has, up to the pipe's limit. If it `may_end`, a short read
    /// is not the last one.
    fn read(&mut self, (index, side): PipeId, may_end: bool) {
        let Some(connection) = self.connections[index].as_deref_mut() else { return };
        let Connection { sockets, pipes } = connection;
        let pipe = &mut pipes[side];
        while !pipe.has_ended {
            let room = (DELAY_BUFFER_BYTES - pipe.bytes.len()).min(self.received.len());
            pipe.is_full = room == 0;
            if pipe.is_full {
                return;
            }
            let bytes = match (&sockets[side]).read(&mut self.received[..room]) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => 0,
            };
            pipe.bytes.extend_from_slice(&self.received[..bytes]);
            pipe.has_ended = bytes == 0;
            let at_ns = now_ns() + self.delay_ns;
            self.dues.push_back(Due { at_ns, pipe: (index, side), bytes });
            if bytes < room && !may_end {
                return;
            }
        }
    }

    /// Writes what is due now, for each pipe at once.
    fn forward_due(&mut self) {
        let now_ns = now_ns();
        while let Some(due) = self.dues.pop_front_if(|due| due.at_ns <= now_ns) {
            let (index, side) = due.pipe;
            let Some(connection) = self.connections[index].as_deref_mut() else { continue };
            let pipe = &mut connection.pipes[side];
            if pipe.is_done {
                continue;
            }
            if pipe.due_bytes == 0 {
                self.ready.push(due.pipe);
            }
            pipe.due_bytes += due.bytes;
            pipe.end_is_due = due.bytes == 0;
        }
        let mut ready = std::mem::take(&mut self.ready);
        ready.drain(..).for_each(|pipe| self.write(pipe));
        self.ready = ready;
    }

    /// Writes what is due to the target of a pipe, and passes on the end of its source.
    fn write(&mut self, (index, side): PipeId) {
        let Some(connection) = self.connections[index].as_deref_mut() else { return };
        let Connection { sockets, pipes } = connection;
        let (pipe, mut target) = (&mut pipes[side], &sockets[1 - side]);
        let mut has_failed = false;
        while 0 < pipe.due_bytes {
            match target.write(&pipe.bytes[..pipe.due_bytes]) {
                Ok(bytes) => {
                    pipe.bytes.advance(bytes);
                    pipe.due_bytes -= bytes;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    *pipe = Pipe { has_ended: true, end_is_due: true, ..Pipe::default() };
                    has_failed = true;
                }
            }
        }
        if pipe.end_is_due && pipe.bytes.is_empty() && !pipe.is_done {
            // A target that is gone needs to be told nothing.
            let _ = target.shutdown(Shutdown::Write);
            pipe.is_done = true;
        }
        let has_room = pipe.is_full && pipe.bytes.len() <= DELAY_BUFFER_BYTES / 2;
        if pipes.iter().all(|pipe| pipe.is_done) {
            self.connections[index] = None;
            return;
        }
        if has_room {
            self.read((index, side), true);
        }
        if has_failed {
            // What the target said before it was gone; it says no more.
            self.read((index, 1 - side), true);
        }
    }
}
