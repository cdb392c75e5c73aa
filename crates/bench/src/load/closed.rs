//! Closed loop: every connection has one pipeline under way.

use anyhow::{Result, bail};

use super::Group;
use crate::{
    clock::{duration_ns, now_ns},
    limits::SILENCE,
};

/// What a closed loop sends and who wants to know.
pub trait Driver {
    /// Prepares the next pipeline of a connection and says how many requests it has; 0 when the
    /// connection has nothing more to send.
    fn advance(&mut self, connection: usize, now_ns: u64) -> u32;

    /// The bytes of the pipeline that `advance` prepared last.
    fn bytes(&self, connection: usize) -> &[u8];

    /// All replies of a pipeline have come.
    fn finished(&mut self, connection: usize, requests: u32, sent_ns: u64, now_ns: u64);
}

/// The pipeline a connection has under way.
#[derive(Clone, Copy, Debug, Default)]
struct Flight {
    requests: u32,
    unanswered: u32,
    sent_bytes: usize,
    sent_ns: u64,
}

impl Group {
    /// Runs until no connection has anything more to send and everything is answered.
    pub fn run_closed(&mut self, driver: &mut impl Driver) -> Result<()> {
        let mut flights = vec![Flight::default(); self.connections.len()];
        let mut active = 0;
        for (index, flight) in flights.iter_mut().enumerate() {
            active += usize::from(self.depart(driver, flight, index, now_ns())?);
        }
        let mut heard_ns = now_ns();
        while 0 < active {
            self.poll.wait(SILENCE / 10)?;
            if self.poll.ready_count() == 0 && heard_ns + duration_ns(SILENCE) < now_ns() {
                bail!("the server has sent nothing for {SILENCE:?}");
            }
            for position in 0..self.poll.ready_count() {
                let index = self.poll.ready(position);
                let flight = &mut flights[index];
                if flight.sent_bytes < driver.bytes(index).len() && 0 < flight.unanswered {
                    self.send_rest(driver, flight, index)?;
                }
                let replies = self.connections[index].receive(&mut self.received)?;
                if replies == 0 {
                    continue;
                }
                if flight.unanswered < replies {
                    bail!("more replies than requests");
                }
                flight.unanswered -= replies;
                if 0 < flight.unanswered {
                    continue;
                }
                heard_ns = now_ns();
                driver.finished(index, flight.requests, flight.sent_ns, heard_ns);
                active -= usize::from(!self.depart(driver, flight, index, heard_ns)?);
            }
        }
        Ok(())
    }

    /// Sends the next pipeline; false when there is none.
    fn depart(
        &mut self,
        driver: &mut impl Driver,
        flight: &mut Flight,
        index: usize,
        now_ns: u64,
    ) -> Result<bool> {
        let requests = driver.advance(index, now_ns);
        *flight = Flight { requests, unanswered: requests, sent_bytes: 0, sent_ns: now_ns };
        if 0 < requests {
            self.send_rest(driver, flight, index)?;
        }
        Ok(0 < requests)
    }

    fn send_rest(&mut self, driver: &impl Driver, flight: &mut Flight, index: usize) -> Result<()> {
        let bytes = &driver.bytes(index)[flight.sent_bytes..];
        flight.sent_bytes += self.connections[index].send(&self.poll, bytes)?;
        Ok(())
    }
}
