//! Measurements of one connection that its net stage writes and CLIENT LIST shows.

use crate::stats::Counter;

/// Buffers of a connection at the end of the last turn in which something happened on it.
#[derive(Debug, Default)]
pub struct ConnectionGauges {
    /// File descriptor of the socket, if the driver has one.
    pub descriptor: Option<i32>,
    /// Bytes received and not yet executed.
    pub query_bytes: Counter,
    /// Free part of the buffer that holds them.
    pub query_free_bytes: Counter,
    /// Memory of the arguments found in a half-read request.
    pub argument_bytes: Counter,
    /// Reply bytes that are not sent yet.
    pub reply_bytes: Counter,
    /// Number of buffers that hold them.
    pub reply_chunks: Counter,
    /// Memory of the connection: buffers, and its MULTI queue, watched keys and job.
    pub memory_bytes: Counter,
    /// Time at which bytes last arrived, in milliseconds on the monotonic clock.
    pub received_ms: Counter,
    /// Events that the connection waits for: 1 for readable, 2 for writable.
    pub events: Counter,
}

impl ConnectionGauges {
    /// Bit of [`ConnectionGauges::events`]: requests are read.
    pub const READABLE: u64 = 1;
    /// Bit of [`ConnectionGauges::events`]: replies are being sent.
    pub const WRITABLE: u64 = 2;

    /// Creates the measurements of a new connection.
    pub fn new(descriptor: Option<i32>) -> Self {
        let gauges = Self { descriptor, ..Self::default() };
        gauges.events.set(Self::READABLE);
        gauges
    }
}
