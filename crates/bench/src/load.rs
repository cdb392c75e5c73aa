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

mod open;

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use busload_resp::reply::ReplyCounter;
use rustix::{
    event::{Timespec, epoll},
    fd::OwnedFd,
};

pub use self::open::OpenLoop;
use crate::{
    clock::{duration_ns, now_ns},
    failures::{Failed, Failures},
    limits::{CLIENTS_MAX, EVENTS_PER_TURN, RECEIVE_BYTES, SILENCE},
};

/// Source of a closed loop's pipelines, which learns when each is answered.
pub trait Driver {
    /// Prepares the next pipeline of a connection and says how many requests it has; 0 when the
    /// connection has nothing more to send.
    fn advance(&mut self, connection: usize, now_ns: u64) -> u32;

    /// The bytes of the pipeline that `advance` prepared last.
    fn bytes(&self, connection: usize) -> &[u8];

    /// Takes note that all replies of a pipeline have come.
    fn finished(&mut self, connection: usize, requests: u32, sent_ns: u64, now_ns: u64);
}

/// Connections that are measured together.
pub struct Group {
    epoll: OwnedFd,
    /// Events of the last wait.
    events: Vec<epoll::Event>,
    connections: Vec<Connection>,
    received: Vec<u8>,
}

/// A socket that never blocks, and the replies that came.
struct Connection {
    stream: TcpStream,
    index: usize,
    /// Set if epoll reports when there is room to send.
    waits_for_room: bool,
    counter: ReplyCounter,
}

/// The pipeline a connection has under way.
#[derive(Clone, Copy, Default)]
struct Pipeline {
    requests: u32,
    unanswered: u32,
    sent_bytes: usize,
    sent_ns: u64,
}

impl Group {
    pub fn connect(address: SocketAddr, count: usize) -> Result<Self> {
        if count == 0 || CLIENTS_MAX < count {
            bail!("a measurement needs 1 to {CLIENTS_MAX} connections, not {count}");
        }
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll_create1")?;
        let connect = |index| {
            let connection = Connection::open(address, index)
                .with_context(|| format!("connection {} to {address}", index + 1))?;
            let events = epoll::EventFlags::IN;
            epoll::add(&epoll, &connection.stream, data(index), events).context("epoll_ctl")?;
            anyhow::Ok(connection)
        };
        let connections = (0..count).map(connect).collect::<Result<_>>()?;
        let events = Vec::with_capacity(EVENTS_PER_TURN);
        Ok(Self { epoll, events, connections, received: vec![0; RECEIVE_BYTES] })
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

    /// Runs until no connection has anything more to send and everything is answered.
    pub fn run_closed(&mut self, driver: &mut impl Driver) -> Result<()> {
        let mut pipelines = vec![Pipeline::default(); self.connections.len()];
        let mut active = 0;
        for (index, pipeline) in pipelines.iter_mut().enumerate() {
            active += usize::from(self.send_next(driver, pipeline, index, now_ns())?);
        }
        let mut heard_ns = now_ns();
        while 0 < active {
            self.wait(SILENCE / 10)?;
            if self.events.is_empty() && heard_ns + duration_ns(SILENCE) < now_ns() {
                bail!("the server has sent nothing for {SILENCE:?}");
            }
            for position in 0..self.events.len() {
                let index = self.ready(position);
                let pipeline = &mut pipelines[index];
                if pipeline.sent_bytes < driver.bytes(index).len() && 0 < pipeline.unanswered {
                    self.send_rest(driver, pipeline, index)?;
                }
                let replies = self.connections[index].receive(&mut self.received)?;
                if replies == 0 {
                    continue;
                }
                if pipeline.unanswered < replies {
                    bail!("more replies than requests");
                }
                pipeline.unanswered -= replies;
                if 0 < pipeline.unanswered {
                    continue;
                }
                heard_ns = now_ns();
                driver.finished(index, pipeline.requests, pipeline.sent_ns, heard_ns);
                active -= usize::from(!self.send_next(driver, pipeline, index, heard_ns)?);
            }
        }
        Ok(())
    }

    /// Sends the next pipeline; false when there is none.
    fn send_next(
        &mut self,
        driver: &mut impl Driver,
        pipeline: &mut Pipeline,
        index: usize,
        now_ns: u64,
    ) -> Result<bool> {
        let requests = driver.advance(index, now_ns);
        *pipeline = Pipeline { requests, unanswered: requests, sent_bytes: 0, sent_ns: now_ns };
        if 0 < requests {
            self.send_rest(driver, pipeline, index)?;
        }
        Ok(0 < requests)
    }

    fn send_rest(
        &mut self,
        driver: &impl Driver,
        pipeline: &mut Pipeline,
        index: usize,
    ) -> Result<()> {
        let bytes = &driver.bytes(index)[pipeline.sent_bytes..];
        pipeline.sent_bytes += self.connections[index].send(&self.epoll, bytes)?;
        Ok(())
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

    /// Returns the connection that an event of the last wait is about.
    fn ready(&self, position: usize) -> usize {
        usize::try_from(self.events[position].data.u64()).expect("registered from an index")
    }
}

impl Connection {
    fn open(address: SocketAddr, index: usize) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, index, waits_for_room: false, counter: ReplyCounter::default() })
    }

    /// Sends what the socket takes of `bytes` and says how many that were. When some are left,
    /// epoll will say when there is room for them.
    fn send(&mut self, epoll: &OwnedFd, bytes: &[u8]) -> Result<usize> {
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
            let mut events = epoll::EventFlags::IN;
            events.set(epoll::EventFlags::OUT, waits_for_room);
            epoll::modify(epoll, &self.stream, data(self.index), events)?;
        }
        Ok(sent)
    }

    /// Receives once and counts the replies that are whole now.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<u32> {
        let received = match (&self.stream).read(buffer) {
            Ok(0) => bail!("the server closed a connection"),
            Ok(count) => &buffer[..count],
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => return Ok(0),
                _ => return Err(error.into()),
            },
        };
        let replies = self.counter.feed(received).context("the server sent what is no RESP")?;
        Ok(u32::try_from(replies).expect("fewer replies than bytes received at once"))
    }
}

/// Returns whether another thread has ended the load, if one can.
pub fn is_set(stop: Option<&AtomicBool>) -> bool {
    stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
}

fn data(index: usize) -> epoll::EventData {
    epoll::EventData::new_u64(u64::try_from(index).expect("an index fits in 64 bits"))
}
