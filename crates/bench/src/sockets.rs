//! Sockets that never block, and the epoll that says which of them have something.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rustix::{
    event::{Timespec, epoll},
    fd::OwnedFd,
};

use crate::limits::{CLIENTS_MAX, EVENTS_PER_TURN};

/// The epoll of some sockets, and what it said last.
pub struct Poll {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl Poll {
    /// Opens `count` sockets and waits for all of them.
    pub fn connect(address: SocketAddr, count: usize) -> Result<(Self, Vec<Socket>)> {
        if count == 0 || CLIENTS_MAX < count {
            bail!("a measurement needs 1 to {CLIENTS_MAX} connections, not {count}");
        }
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll_create1")?;
        let mut sockets = Vec::with_capacity(count);
        for index in 0..count {
            let stream = connect(address)
                .with_context(|| format!("connection {} to {address}", index + 1))?;
            epoll::add(&epoll, &stream, data(index), epoll::EventFlags::IN).context("epoll_ctl")?;
            sockets.push(Socket { stream, index, waits_for_room: false });
        }
        Ok((Self { epoll, events: Vec::with_capacity(EVENTS_PER_TURN) }, sockets))
    }

    /// Waits for events; an interrupted wait is one without events.
    pub fn wait(&mut self, timeout: Duration) -> Result<()> {
        let timeout = Timespec::try_from(timeout).context("a wait of a sane length")?;
        self.events.clear();
        let events = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.epoll, events, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error).context("epoll_pwait2 (needs Linux 5.11)"),
        }
    }

    /// Returns how many sockets the last wait found something for.
    pub fn ready_count(&self) -> usize {
        self.events.len()
    }

    /// The index of one of them.
    pub fn ready(&self, position: usize) -> usize {
        usize::try_from(self.events[position].data.u64()).expect("registered from an index")
    }
}

/// One of the sockets.
#[derive(Debug)]
pub struct Socket {
    stream: TcpStream,
    index: usize,
    /// Set if epoll reports when there is room to send.
    waits_for_room: bool,
}

impl Socket {
    /// Sends what the socket takes of `bytes` and says how many that were. When some are left,
    /// `poll` will say when there is room for them.
    pub fn send(&mut self, poll: &Poll, bytes: &[u8]) -> Result<usize> {
        let mut sent = 0;
        while sent < bytes.len() {
            match (&self.stream).write(&bytes[sent..]) {
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
            let room =
                if waits_for_room { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
            epoll::modify(
                &poll.epoll,
                &self.stream,
                data(self.index),
                epoll::EventFlags::IN | room,
            )?;
        }
        Ok(sent)
    }

    /// Receives once; the bytes that came, none when there was nothing.
    pub fn receive<'a>(&mut self, buffer: &'a mut [u8]) -> Result<&'a [u8]> {
        match (&self.stream).read(buffer) {
            Ok(0) => bail!("the server closed a connection"),
            Ok(count) => Ok(&buffer[..count]),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(&[])
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

fn data(index: usize) -> epoll::EventData {
    epoll::EventData::new_u64(u64::try_from(index).expect("an index fits in 64 bits"))
}
