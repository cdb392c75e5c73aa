//! placeholder
use super::{Address, Buffer, ConnId, Event, Net, NetOptions, SendChunk};
use std::{io, task::Waker, time::Duration};

/// What a driver did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetCounters {
    /// Waits for readiness.
    pub polls: u64,
    /// Receive calls.
    pub receives: u64,
    /// Send calls.
    pub sends: u64,
    /// Connections accepted.
    pub accepts: u64,
    /// Connections refused for the limit.
    pub refusals: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
}

/// Sockets.
#[derive(Debug)]
pub struct RealNet;

impl RealNet {
    /// Listens.
    pub fn bind(_addresses: &[Address], _options: NetOptions) -> io::Result<RealNet> {
        Ok(RealNet)
    }
    /// The addresses it listens on.
    pub fn addresses(&self) -> &[Address] {
        &[]
    }
    /// Counters.
    pub fn counters(&self) -> NetCounters {
        NetCounters::default()
    }
}

impl Net for RealNet {
    fn poll(&mut self, _events: &mut Vec<Event>, _timeout: Option<Duration>) -> io::Result<()> {
        Ok(())
    }
    fn take_buffers(&mut self, _buffers: &mut Vec<Buffer>) {}
    fn recycle(&mut self, _buffer: Buffer) {}
    fn send(&mut self, _conn: ConnId, _chunk: SendChunk) {}
    fn pause(&mut self, _conn: ConnId) {}
    fn resume(&mut self, _conn: ConnId) {}
    fn close(&mut self, _conn: ConnId) {}
    fn stop_listening(&mut self) {}
    fn waker(&self) -> Waker {
        Waker::noop().clone()
    }
}
