//! The load side: one thread, one epoll, many connections.
//!
//! ```text
//!   Pool or Template --pipelines--> connections ==> server
//!                                       |
//!        Driver <--finished(latency)-- replies counted
//! ```
//!
//! [`Group::run_closed`] keeps one pipeline in flight on every connection and asks a [`Driver`] for the next when
//! the last reply of the one before has come: one send and (usually) one receive per pipeline.
//! [`Group::run_open`] sends requests when they are due, whatever is still unanswered, and measures from when
//! they were due.
//!
//! The load must cost less than the server, or it is the load that gets measured. So nothing is allocated per
//! request, replies are counted and not parsed, and the clock is read once per pipeline.

mod closed;
mod connection;
mod open;

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result, bail};
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;

use self::connection::Connection;
pub use self::{
    closed::Driver,
    open::{OpenLoop, OpenResult},
};
use crate::{
    limits::{CLIENTS_MAX, EVENTS_PER_TURN, RECEIVE_BYTES},
    replies::Oddities,
};

/// Connections that are measured together.
pub struct Group {
    epoll: OwnedFd,
    connections: Vec<Connection>,
    events: Vec<epoll::Event>,
    received: Vec<u8>,
}

impl Group {
    /// Opens `count` connections.
    ///
    /// # Errors
    ///
    /// Nobody listens at `address`, or the system has no room for so many connections.
    pub fn connect(address: SocketAddr, count: usize) -> Result<Self> {
        if count == 0 || CLIENTS_MAX < count {
            bail!("a measurement needs 1 to {CLIENTS_MAX} connections, not {count}");
        }
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll_create1")?;
        let mut connections = Vec::with_capacity(count);
        for index in 0..count {
            let connection = Connection::open(address)
                .with_context(|| format!("connection {} to {address}", index + 1))?;
            connection.register(&epoll, index).context("epoll_ctl")?;
            connections.push(connection);
        }
        Ok(Self {
            epoll,
            connections,
            events: Vec::with_capacity(EVENTS_PER_TURN),
            received: vec![0; RECEIVE_BYTES],
        })
    }

    /// Errors and nulls on all connections so far.
    pub fn oddities(&self) -> Oddities {
        let mut oddities = Oddities::default();
        self.connections.iter().for_each(|connection| oddities.add_connection(connection.counter()));
        oddities
    }

    /// Waits for events; an interrupted wait is one without events.
    fn wait(&mut self, timeout: Duration) -> Result<()> {
        let timeout = Timespec::try_from(timeout).context("a wait of a sane length")?;
        self.events.clear();
        let events = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.epoll, events, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error).context("epoll_pwait2 (needs Linux 5.11)"),
        }
    }
}
