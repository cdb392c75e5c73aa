//! One connection: bytes out without blocking, replies in order.

use std::{
    collections::VecDeque,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
};

use anyhow::{Result, bail};
use rustix::{event::epoll, fd::OwnedFd};

use super::{super::tasks::Operation, Pending, protocol};
use crate::failures::Failure;

/// A socket, what it has still to send, and the replies it owes.
#[derive(Debug)]
pub struct Connection {
    socket: TcpStream,
    unsent: Vec<u8>,
    /// Received and not yet read as replies: from `parsed` on.
    received: Vec<u8>,
    parsed: usize,
    /// Whether epoll reports when there is room to send.
    waits_for_room: bool,
    /// Requests in the order of their replies.
    pub pending: VecDeque<Pending>,
}

impl Connection {
    /// Connects; from then on nothing blocks.
    pub fn open(address: SocketAddr) -> Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            unsent: Vec::new(),
            received: Vec::new(),
            parsed: 0,
            waits_for_room: false,
            pending: VecDeque::new(),
        })
    }

    /// Asks epoll for this connection's events, under the number `index`.
    pub fn register(&self, epoll: &OwnedFd, index: usize) -> rustix::io::Result<()> {
        epoll::add(epoll, &self.socket, data(index), epoll::EventFlags::IN)
    }

    /// Where requests are written to before [`Connection::send`].
    pub fn unsent(&mut self) -> &mut Vec<u8> {
        &mut self.unsent
    }

    /// Sends what the socket takes. When something is left, epoll will say when there is room for it.
    pub fn send(&mut self, epoll: &OwnedFd, index: usize) -> Result<()> {
        if self.unsent.is_empty() {
            return Ok(());
        }
        let mut sent = 0;
        while sent < self.unsent.len() {
            match (&self.socket).write(&self.unsent[sent..]) {
                Ok(0) => bail!("the server closed a connection"),
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.unsent.drain(..sent);
        let waits_for_room = !self.unsent.is_empty();
        if waits_for_room != self.waits_for_room {
            self.waits_for_room = waits_for_room;
            let room = if waits_for_room { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
            epoll::modify(epoll, &self.socket, data(index), epoll::EventFlags::IN | room)?;
        }
        Ok(())
    }

    /// Receives once; gives how many bytes came.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<usize> {
        match (&self.socket).read(buffer) {
            Ok(0) => bail!("the server closed a connection"),
            Ok(count) => {
                self.received.extend_from_slice(&buffer[..count]);
                Ok(count)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// The next whole reply, which is to a request for `row`.
    #[inline]
    pub fn next_reply(&mut self, operation: Operation, row: u64) -> Result<Option<Result<(), Failure>>> {
        let Some((length, outcome)) = protocol::read_reply(&self.received[self.parsed..], operation, row)?
        else {
            return Ok(None);
        };
        self.parsed += length;
        Ok(Some(outcome))
    }

    /// Forgets the replies that were read.
    pub fn end_of_replies(&mut self) -> Result<()> {
        if self.pending.is_empty() && self.parsed < self.received.len() {
            bail!("the server sent more replies than requests");
        }
        self.received.drain(..self.parsed);
        self.parsed = 0;
        Ok(())
    }
}

fn data(index: usize) -> epoll::EventData {
    epoll::EventData::new_u64(u64::try_from(index).expect("an index fits in 64 bits"))
}

/// The number of the connection an event is for.
pub fn index_of(event: epoll::Event) -> usize {
    usize::try_from(event.data.u64()).expect("registered from an index")
}
