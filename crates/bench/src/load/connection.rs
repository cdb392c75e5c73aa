//! One connection: bytes out without blocking, replies counted.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
};

use anyhow::{Context, Result, bail};
use busload_resp::reply::ReplyCounter;
use rustix::{event::epoll, fd::OwnedFd};

/// A socket and the replies it owes.
#[derive(Debug)]
pub struct Connection {
    socket: TcpStream,
    counter: ReplyCounter,
    /// Whether epoll reports when there is room to send.
    waits_for_room: bool,
}

impl Connection {
    /// Connects; from then on nothing blocks.
    pub fn open(address: SocketAddr) -> Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, counter: ReplyCounter::default(), waits_for_room: false })
    }

    /// Asks epoll for this connection's events, under the number `index`.
    pub fn register(&self, epoll: &OwnedFd, index: usize) -> rustix::io::Result<()> {
        epoll::add(epoll, &self.socket, data(index), epoll::EventFlags::IN)
    }

    /// Sends what the socket takes of `bytes` and says how many that were. When some are left, epoll will say
    /// when there is room for them.
    pub fn send(&mut self, epoll: &OwnedFd, index: usize, bytes: &[u8]) -> Result<usize> {
        let mut sent = 0;
        while sent < bytes.len() {
            match (&self.socket).write(&bytes[sent..]) {
                Ok(0) => bail!("the server closed a connection"),
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        let waits_for_room = sent < bytes.len();
        if waits_for_room != self.waits_for_room {
            self.waits_for_room = waits_for_room;
            let room = if waits_for_room { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
            epoll::modify(epoll, &self.socket, data(index), epoll::EventFlags::IN | room)?;
        }
        Ok(sent)
    }

    /// Receives once and counts the replies that are whole now.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<u32> {
        match (&self.socket).read(buffer) {
            Ok(0) => bail!("the server closed a connection"),
            Ok(count) => self.count(&buffer[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// The replies so far.
    pub fn counter(&self) -> &ReplyCounter {
        &self.counter
    }

    fn count(&mut self, bytes: &[u8]) -> Result<u32> {
        let replies = self.counter.feed(bytes).context("the server sent what is no RESP")?;
        Ok(u32::try_from(replies).expect("fewer replies than bytes received at once"))
    }
}

fn data(index: usize) -> epoll::EventData {
    epoll::EventData::new_u64(u64::try_from(index).expect("an index fits in 64 bits"))
}

/// The number of the connection an event is for.
pub fn index_of(event: epoll::Event) -> usize {
    usize::try_from(event.data.u64()).expect("registered from an index")
}
