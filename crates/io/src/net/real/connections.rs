//! The connections there are, by slot.

use super::{ConnId, SendChunk, stream::Stream};

/// What a driver knows of a connection.
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

#[derive(Debug)]
struct Slot {
    generation: u32,
    connection: Option<Connection>,
}

/// Slots, the free ones reused last in first out. As many as there were connections at once.
#[derive(Debug, Default)]
pub(super) struct Connections {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Connections {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The id the next insert gives.
    pub(super) fn next_id(&self) -> ConnId {
        match self.free.last() {
            Some(&index) => ConnId { index, generation: self.slots[index as usize].generation },
            None => {
                let index = u32::try_from(self.slots.len()).expect("file descriptors are 31-bit numbers");
                ConnId { index, generation: 0 }
            }
        }
    }

    pub(super) fn insert(&mut self, connection: Connection) {
        match self.free.pop() {
            Some(index) => self.slots[index as usize].connection = Some(connection),
            None => self.slots.push(Slot { generation: 0, connection: Some(connection) }),
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, conn: ConnId) -> Option<&mut Connection> {
        let slot = self.slots.get_mut(conn.index as usize)?;
        if slot.generation == conn.generation { slot.connection.as_mut() } else { None }
    }

    /// Who has the slot now.
    #[inline]
    pub(super) fn id_at(&self, index: usize) -> Option<ConnId> {
        let slot = self.slots.get(index)?;
        slot.connection.as_ref()?;
        Some(ConnId { index: u32::try_from(index).ok()?, generation: slot.generation })
    }

    pub(super) fn remove(&mut self, conn: ConnId) -> Option<Connection> {
        let slot = self.slots.get_mut(conn.index as usize)?;
        if slot.generation != conn.generation {
            return None;
        }
        let connection = slot.connection.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(conn.index);
        Some(connection)
    }
}
