//! State that the driver keeps for each connection.

use super::{SendChunk, stream::Stream};

/// Connection and its pending work.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: Stream,
    pub(super) sending: Sending,
    /// Ordinal of the poll in which bytes were last reported.
    pub(super) received_in: u64,
    /// The caller does not want bytes now.
    pub(super) paused: bool,
    /// There may be bytes to receive whose edge came while reading was paused.
    pub(super) unread: bool,
    /// The system announced the end of the stream; no further edge will come.
    pub(super) end_seen: bool,
    /// The end of the stream was reported.
    pub(super) ended: bool,
    /// The connection is on the list of those to receive from in the next poll.
    pub(super) read_again: bool,
    /// The connection is on the list of those to send to in the next poll.
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

/// State of the one send that a connection may have in flight.
#[derive(Debug)]
pub(super) enum Sending {
    Nothing,
    /// The socket accepted only a part of it.
    UnderWay {
        chunk: SendChunk,
        sent_bytes: usize,
    },
    /// The socket accepted all of it; the next poll reports that.
    Reported,
    /// The socket is broken; the next poll reports that.
    Failed,
}
