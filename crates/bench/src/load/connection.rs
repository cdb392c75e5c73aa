//! One connection: bytes out without blocking, replies counted.

use anyhow::{Context, Result};
use busload_resp::reply::ReplyCounter;

use crate::sockets::{Poll, Socket};

/// A socket and the replies it owes.
#[derive(Debug)]
pub struct Connection {
    socket: Socket,
    counter: ReplyCounter,
}

impl Connection {
    /// Over a socket from which nothing has been read.
    pub fn new(socket: Socket) -> Self {
        Self { socket, counter: ReplyCounter::default() }
    }

    pub fn send(&mut self, poll: &Poll, bytes: &[u8]) -> Result<usize> {
        self.socket.send(poll, bytes)
    }

    /// Receives once and counts the replies that are whole now.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<u32> {
        let received = self.socket.receive(buffer)?;
        let replies = self.counter.feed(received).context("the server sent what is no RESP")?;
        Ok(u32::try_from(replies).expect("fewer replies than bytes received at once"))
    }

    /// The replies so far.
    pub fn counter(&self) -> &ReplyCounter {
        &self.counter
    }
}
