//! One connection: bytes out without blocking, replies in order.

use std::collections::VecDeque;

use anyhow::{Result, bail};

use super::{super::tasks::Operation, Pending, protocol};
use crate::{
    failures::Failure,
    sockets::{Poll, Socket},
};

/// A socket, what it has still to send, and the replies it owes.
#[derive(Debug)]
pub struct Connection {
    socket: Socket,
    unsent: Vec<u8>,
    /// Received and not yet read as replies: from `parsed` on.
    received: Vec<u8>,
    parsed: usize,
    /// Requests in the order of their replies.
    pub pending: VecDeque<Pending>,
}

impl Connection {
    /// Over a socket from which nothing has been read.
    pub fn new(socket: Socket) -> Self {
        Self {
            socket,
            unsent: Vec::new(),
            received: Vec::new(),
            parsed: 0,
            pending: VecDeque::new(),
        }
    }

    /// Returns the buffer for requests before [`Connection::send`].
    pub fn unsent(&mut self) -> &mut Vec<u8> {
        &mut self.unsent
    }

    /// Sends what the socket takes. When something is left, `poll` will say when there is room for
    /// it.
    pub fn send(&mut self, poll: &Poll) -> Result<()> {
        let sent = self.socket.send(poll, &self.unsent)?;
        self.unsent.drain(..sent);
        Ok(())
    }

    /// Receives once; gives how many bytes came.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let received = self.socket.receive(buffer)?;
        self.received.extend_from_slice(received);
        Ok(received.len())
    }

    /// The next whole reply, which is to a request for `row`.
    #[inline]
    pub fn next_reply(
        &mut self,
        operation: Operation,
        row: u64,
    ) -> Result<Option<Result<(), Failure>>> {
        let Some((length, outcome)) =
            protocol::read_reply(&self.received[self.parsed..], operation, row)?
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
