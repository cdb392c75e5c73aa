//! The load side: one thread, one epoll, many connections.
//!
//! ```text
//!   Pool or Template --pipelines--> connections ==> server
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
mod connection;
mod open;

use std::net::SocketAddr;

use anyhow::Result;

use self::connection::Connection;
pub use self::{
    closed::Driver,
    open::{OpenLoop, OpenResult},
};
use crate::{limits::RECEIVE_BYTES, replies::Oddities, sockets::Poll};

/// Connections that are measured together.
pub struct Group {
    poll: Poll,
    connections: Vec<Connection>,
    received: Vec<u8>,
}

impl Group {
    pub fn connect(address: SocketAddr, count: usize) -> Result<Self> {
        let (poll, sockets) = Poll::connect(address, count)?;
        let connections = sockets.into_iter().map(Connection::new).collect();
        Ok(Self { poll, connections, received: vec![0; RECEIVE_BYTES] })
    }

    /// Errors and nulls on all connections so far.
    pub fn oddities(&self) -> Oddities {
        let mut oddities = Oddities::default();
        self.connections
            .iter()
            .for_each(|connection| oddities.add_connection(connection.counter()));
        oddities
    }
}
