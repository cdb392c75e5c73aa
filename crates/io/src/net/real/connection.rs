//! What the driver knows of a connection.

use super::{SendChunk, stream::Stream};

/// A connection and what is to be done for it.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: Stream,
    pub(super) sending: Sending,
    /// The poll in which bytes were last reported.
    pub(super) received_in: u64,
    /// The caller does not want bytes now.
    pub(super) paused: bool,
    /// There may be something to receive whose edge was seen while paused.
    pub(super) unread: bool,
    /// The system said that the end of the stream is near; no further edge will come.
    pub(super) end_seen: bool,
    /// The end of the stream was reported.
    pub(super) ended: bool,
    /// It is on the list of connections to receive from in the next poll.
    pub(super) read_again: bool,
    /// It is on the list of connections to send to in the next poll.
    pub(super) send_again: bool,
}

impl Connection {
    pub(super) fn new(stream: Stream) -> Self {
        Self {
            stream,
            sending: Sending::Nothing,
            received_in: 0,
            paused: false,
            unread: false,
            end_seen: false,
            ended: false,
            read_again: false,
            send_again: false,
        }
    }
}

/// The one send a connection may have.
#[derive(Debug)]
pub(super) enum Sending {
    Nothing,
    /// The socket did not take all of it.
    UnderWay {
        chunk: SendChunk,
        sent_bytes: usize,
    },
    /// The socket took it; the next poll says so.
    Reported,
    /// The socket is broken; the next poll says so.
    Failed,
}
