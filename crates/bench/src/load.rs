//! The load side: one thread, one epoll, many connections.
//!
//! ```text
//!   Pool or Fill    --pipelines--> connections ==> server
//!                                       |
//!        Driver <--finished(latency)-- replies counted
//! ```
//!
//! [`Group::run_closed`] keeps one pipeline in flight on every connection and asks a [`Driver`] for
//! the next when the last reply of the one before has come: one send and (usually) one receive per
//! pipeline. [`Group::run_open`] sends requests when they are due, whatever is still unanswered,
//! and measures from when they were due.
//!
//! The load must cost less than the server, or it is the load that gets measured. So nothing is
//! allocated per request, replies are counted and not parsed, and the clock is read once per
//! pipeline.

mod closed;
mod open;

use std::net::SocketAddr;

use anyhow::{Context, Result};
use busload_resp::reply::ReplyCounter;

pub use self::{closed::Driver, open::OpenLoop};
use crate::{
    failures::{Failed, Failures},
    limits::RECEIVE_BYTES,
    sockets::{Poll, Socket},
};

/// Connections that are measured together.
pub struct Group {
    poll: Poll,
    connections: Vec<Connection>,
    received: Vec<u8>,
}

/// A socket and the replies it owes.
#[derive(Debug)]
struct Connection {
    socket: Socket,
    counter: ReplyCounter,
}

impl Connection {
    fn send(&mut self, poll: &Poll, bytes: &[u8]) -> Result<usize> {
        self.socket.send(poll, bytes)
    }

    /// Receives once and counts the replies that are whole now.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<u32> {
        let received = self.socket.receive(buffer)?;
        let replies = self.counter.feed(received).context("the server sent what is no RESP")?;
        Ok(u32::try_from(replies).expect("fewer replies than bytes received at once"))
    }
}

impl Group {
    pub fn connect(address: SocketAddr, count: usize) -> Result<Self> {
        let (poll, sockets) = Poll::connect(address, count)?;
        let connection = |socket| Connection { socket, counter: ReplyCounter::default() };
        let connections = sockets.into_iter().map(connection).collect();
        Ok(Self { poll, connections, received: vec![0; RECEIVE_BYTES] })
    }

    /// Returns the error replies on all connections so far.
    pub fn failed(&self) -> Failed {
        let mut failed = Failed::default();
        for Connection { counter, .. } in &self.connections {
            let example = counter.first_error().map(|text| String::from_utf8_lossy(text).into());
            let counts = counter.counts();
            let refused = Failures { count: counts.errors + counts.errors_nested, example };
            failed.merge(&Failed { refused, wrong: Failures::default() });
        }
        failed
    }

    /// Counts the nulls on all connections so far: keys that were not there.
    pub fn nils(&self) -> u64 {
        self.connections.iter().map(|connection| connection.counter.counts().nulls).sum()
    }
}
