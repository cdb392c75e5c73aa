//! Loads over RESP: one thread, one epoll, many connections; every reply is read and checked.
//!
//! ```text
//!   clients (depth of them on every connection) --requests--> unsent bytes --one write--> server
//!        ^                                                                                  |
//!        +---- next request of the client <---- check, note <---- whole replies <--one read-+
//! ```
//!
//! Closed loop: a client asks again as soon as it has its reply; all that a read brought is
//! answered before one write sends what follows. Open loop: requests are due on a schedule,
//! whatever is still unanswered, and their times count from then. The thread sleeps when there is
//! nothing to do, also in the open loop: polling would take a processor from Postgres.

mod connection;
mod protocol;

use std::{net::SocketAddr, num::NonZeroU64, time::Duration};

use anyhow::{Result, bail};

use self::connection::Connection;
pub use self::protocol::Prefix;
use super::{
    rows::{Sequence, Sequences},
    tasks::Operation,
};
use crate::{
    clock::{Window, duration_ns, now_ns},
    counters::Counters,
    limits::{OPEN_LOOP_DRAIN, OPEN_LOOP_TASKS, RECEIVE_BYTES, SILENCE},
    schedule::Schedule,
    sockets::Poll,
    stats::record,
};

/// A load over RESP.
#[derive(Clone, Debug)]
pub struct Plan {
    pub address: SocketAddr,
    pub connections: usize,
    pub operation: Operation,
    /// Prefix of the row's key.
    pub prefix: Prefix,
    pub sequences: Sequences,
    pub window: Window,
    /// The version of the first upsert.
    pub first_version: u64,
}

/// A request without its reply.
#[derive(Clone, Copy, Debug)]
struct Pending {
    row: u64,
    /// Moment at which it was sent or was due.
    since_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    Closed,
    Open,
}

/// The connections and what they have seen.
struct Load {
    plan: Plan,
    pace: Pace,
    poll: Poll,
    connections: Vec<Connection>,
    received: Vec<u8>,
    rows: Sequence,
    unanswered: usize,
    counters: Counters,
}

/// Keeps `clients` requests under way, spread evenly over the connections, until the window ends.
pub fn run_closed(plan: Plan, clients: usize) -> Result<Counters> {
    let connections = plan.connections;
    let mut load = Load::connect(plan, Pace::Closed)?;
    for client in 0..clients {
        load.ask(client % connections, now_ns());
    }
    load.send_all()?;
    let mut heard_ns = now_ns();
    while 0 < load.unanswered {
        let answered = load.turn(SILENCE / 10)?;
        if 0 < answered {
            heard_ns = now_ns();
        } else if heard_ns + duration_ns(SILENCE) < now_ns() {
            bail!("the server has sent nothing for {SILENCE:?}");
        }
    }
    Ok(load.counters)
}

/// Asks `rate` times a second until the window ends.
pub fn run_open(plan: Plan, rate: u64) -> Result<Counters> {
    let until_ns = plan.window.until_ns;
    let mut load = Load::connect(plan, Pace::Open)?;
    let slack = rustix::thread::current_timer_slack().ok().and_then(NonZeroU64::new);
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let mut schedule = Schedule::new(now_ns(), rate);
    while schedule.next_due_ns() < until_ns && !load.counters.overloaded {
        load.ask_due(&mut schedule);
        load.send_all()?;
        let due_ns = schedule.next_due_ns();
        load.turn(Duration::from_nanos(due_ns.saturating_sub(now_ns())))?;
    }
    let _ = rustix::thread::set_current_timer_slack(slack);
    load.drain()?;
    Ok(load.counters)
}

impl Load {
    fn connect(plan: Plan, pace: Pace) -> Result<Self> {
        let (poll, sockets) = Poll::connect(plan.address, plan.connections)?;
        Ok(Self {
            poll,
            connections: sockets.into_iter().map(Connection::new).collect(),
            received: vec![0; RECEIVE_BYTES],
            rows: plan.sequences.client(0),
            unanswered: 0,
            counters: Counters::new()?,
            plan,
            pace,
        })
    }

    /// Puts a client's next request behind what its connection has to send.
    fn ask(&mut self, index: usize, since_ns: u64) {
        let row = self.rows.next();
        let connection = &mut self.connections[index];
        match self.plan.operation {
            Operation::Read => self.plan.prefix.write_get(connection.unsent(), row),
            Operation::Upsert => {
                let version = self.plan.first_version + self.counters.versions;
                self.plan.prefix.write_set(connection.unsent(), row, version);
                self.counters.versions += 1;
            }
        }
        connection.pending.push_back(Pending { row, since_ns });
        self.unanswered += 1;
    }

    fn ask_due(&mut self, schedule: &mut Schedule) {
        let now_ns = now_ns();
        let until_ns = self.plan.window.until_ns;
        while let Some((number, due_ns)) = schedule.poll(now_ns.min(until_ns - 1)) {
            if OPEN_LOOP_TASKS <= self.unanswered {
                self.counters.overloaded = true;
                return;
            }
            let connections =
                u64::try_from(self.connections.len()).expect("a count fits in 64 bits");
            self.ask(usize::try_from(number % connections).expect("below a count"), due_ns);
            if self.plan.window.contains(due_ns) {
                record(&mut self.counters.late_ns, now_ns - due_ns);
            }
        }
    }

    fn send_all(&mut self) -> Result<()> {
        self.connections.iter_mut().try_for_each(|connection| connection.send(&self.poll))
    }

    /// Waits for events and handles them; gives how many replies came.
    fn turn(&mut self, timeout: Duration) -> Result<usize> {
        self.poll.wait(timeout)?;
        let mut answered = 0;
        for position in 0..self.poll.ready_count() {
            let index = self.poll.ready(position);
            answered += self.receive(index)?;
            self.connections[index].send(&self.poll)?;
        }
        Ok(answered)
    }

    fn receive(&mut self, index: usize) -> Result<usize> {
        let count = self.connections[index].receive(&mut self.received)?;
        if count == 0 {
            return Ok(0);
        }
        let now_ns = now_ns();
        let mut answered = 0;
        loop {
            let connection = &mut self.connections[index];
            let Some(pending) = connection.pending.front().copied() else { break };
            let Some(outcome) = connection.next_reply(self.plan.operation, pending.row)? else {
                break;
            };
            connection.pending.pop_front();
            self.unanswered -= 1;
            answered += 1;
            if outcome.is_ok() && self.plan.operation == Operation::Upsert {
                self.counters.acknowledge(pending.row);
            }
            match (outcome, self.pace) {
                (Err(failure), _) => self.counters.failed.add(failure),
                (Ok(()), Pace::Closed) => {
                    self.counters.answer(self.plan.window, 1, pending.since_ns, now_ns)
                }
                (Ok(()), Pace::Open) => {
                    self.counters.answer_due(self.plan.window, pending.since_ns, now_ns)
                }
            }
            if self.pace == Pace::Closed && now_ns < self.plan.window.until_ns {
                self.ask(index, now_ns);
            }
        }
        self.connections[index].end_of_replies()?;
        Ok(answered)
    }

    /// Waits for the last replies of an open loop; what does not come is noted.
    fn drain(&mut self) -> Result<()> {
        let until_ns = now_ns() + duration_ns(OPEN_LOOP_DRAIN);
        while 0 < self.unanswered && now_ns() < until_ns {
            self.turn(OPEN_LOOP_DRAIN / 10)?;
        }
        let pending = self.connections.iter().flat_map(|connection| &connection.pending);
        for pending in pending {
            self.counters.give_up(self.plan.window, pending.since_ns, now_ns());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
