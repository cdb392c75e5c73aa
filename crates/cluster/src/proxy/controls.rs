//! Controls that a test sets and that every writer checks before it forwards a piece.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{Shutdown, TcpStream},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::Direction;
use crate::wait::now;

/// Controls, and the condition variable on which waiters for a change sleep.
#[derive(Debug, Default)]
pub struct SharedControls {
    controls: Mutex<Controls>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub struct Controls {
    to_server: Way,
    to_client: Way,
    pub cuts: VecDeque<Cut>,
    pub refuses: bool,
    pub closed: bool,
    pub connections: BTreeMap<u64, Connection>,
    next_connection: u64,
}

/// Controls and counters of one direction.
#[derive(Debug, Default)]
pub struct Way {
    pub stalled: bool,
    pub delay: Duration,
    pub forwarded: u64,
    /// Bytes that wait for a stall or a delay to end.
    pub held: u64,
}

/// A cut that is still to come.
#[derive(Debug)]
pub struct Cut {
    pub direction: Direction,
    pub bytes_left: u64,
}

/// Both sockets of a connection, to shut them down.
#[derive(Debug)]
pub struct Connection {
    pub client: TcpStream,
    pub server: TcpStream,
}

/// A piece about to be forwarded.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    pub connection: u64,
    pub direction: Direction,
    pub bytes: usize,
    pub arrived: Instant,
}

/// Decision about a piece.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    Forward,
    /// Forward only this many of its bytes, then cut the connection.
    CutAfter(usize),
    /// Drop it: the connection is gone.
    Drop,
}

impl Controls {
    pub fn way(&mut self, direction: Direction) -> &mut Way {
        match direction {
            Direction::ToServer => &mut self.to_server,
            Direction::ToClient => &mut self.to_client,
        }
    }

    pub fn add(&mut self, connection: Connection) -> u64 {
        let id = self.next_connection;
        self.next_connection += 1;
        self.connections.insert(id, connection);
        id
    }

    pub fn cut_all(&mut self) -> usize {
        let cut = std::mem::take(&mut self.connections);
        cut.values().for_each(Connection::shut_down);
        cut.len()
    }

    /// Cuts one connection, which may be over already.
    pub fn cut_one(&mut self, id: u64) {
        if let Some(connection) = self.connections.remove(&id) {
            connection.shut_down();
        }
    }

    pub fn close(&mut self) {
        self.closed = true;
        self.cut_all();
    }

    /// Counts a piece that is forwarded now, and decides whether a cut hits it.
    fn pass(&mut self, piece: Piece) -> Verdict {
        let bytes = u64::try_from(piece.bytes).expect("pieces are short");
        let verdict = self.meets_cut(piece.direction, bytes);
        let forwarded = match verdict {
            Verdict::CutAfter(count) => u64::try_from(count).expect("less than the piece"),
            _ => bytes,
        };
        self.way(piece.direction).forwarded += forwarded;
        verdict
    }

    fn meets_cut(&mut self, direction: Direction, bytes: u64) -> Verdict {
        let Some(cut) = self.cuts.front_mut().filter(|cut| cut.direction == direction) else {
            return Verdict::Forward;
        };
        if bytes <= cut.bytes_left {
            cut.bytes_left -= bytes;
            return Verdict::Forward;
        }
        let before = usize::try_from(cut.bytes_left).expect("less than the piece");
        self.cuts.pop_front();
        Verdict::CutAfter(before)
    }
}

impl Connection {
    /// Shuts down both sockets; one that is closed already stays so.
    fn shut_down(&self) {
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

impl SharedControls {
    /// Changes the controls, and wakes all waiters.
    pub fn change<T>(&self, change: impl FnOnce(&mut Controls) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }

    /// Holds a piece as long as the controls say.
    pub fn admit(&self, piece: Piece) -> Verdict {
        let bytes = u64::try_from(piece.bytes).expect("pieces are short");
        let mut controls = self.lock();
        controls.way(piece.direction).held += bytes;
        self.changed.notify_all();
        let verdict = loop {
            if !controls.connections.contains_key(&piece.connection) {
                break Verdict::Drop;
            }
            let way = controls.way(piece.direction);
            let wait = (piece.arrived + way.delay).saturating_duration_since(now());
            if way.stalled {
                controls = self.changed.wait(controls).unwrap_or_else(PoisonError::into_inner);
            } else if wait.is_zero() {
                break controls.pass(piece);
            } else {
                let waited = self.changed.wait_timeout(controls, wait);
                controls = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        };
        controls.way(piece.direction).held -= bytes;
        self.changed.notify_all();
        verdict
    }

    /// Waits for a condition; returns whether it became true.
    pub fn wait_until(
        &self,
        timeout: Duration,
        mut condition: impl FnMut(&mut Controls) -> bool,
    ) -> bool {
        let controls = self.lock();
        let waited =
            self.changed.wait_timeout_while(controls, timeout, |controls| !condition(controls));
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn lock(&self) -> MutexGuard<'_, Controls> {
        self.controls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
