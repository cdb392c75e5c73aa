//! Closed loop: every connection has one pipeline under way.

use anyhow::{Result, bail};

use super::Group;
use crate::{
    clock::{duration_ns, now_ns},
    limits::SILENCE,
};

/// Source of a closed loop's pipelines, told when each is answered.
pub trait Driver {
    /// Prepares the next pipeline of a connection and says how many requests it has; 0 when the
    /// connection has nothing more to send.
    fn advance(&mut self, connection: usize, now_ns: u64) -> u32;

    /// The bytes of the pipeline that `advance` prepared last.
    fn bytes(&self, connection: usize) -> &[u8];

    /// Takes note that all replies of a pipeline have come.
    fn finished(&mut self, connection: usize, requests: u32, sent_ns: u64, now_ns: u64);
}

/// The pipeline a connection has under way.
#[derive(Clone, Copy, Debug, Default)]
struct Pipeline {
    requests: u32,
    unanswered: u32,
    sent_bytes: usize,
    sent_ns: u64,
}

impl Group {
    /// Runs until no connection has anything more to send and everything is answered.
    pub fn run_closed(&mut self, driver: &mut impl Driver) -> Result<()> {
        let mut pipelines = vec![Pipeline::default(); self.connections.len()];
        let mut active = 0;
        for (index, pipeline) in pipelines.iter_mut().enumerate() {
            active += usize::from(self.send_next(driver, pipeline, index, now_ns())?);
        }
        let mut heard_ns = now_ns();
        while 0 < active {
            self.poll.wait(SILENCE / 10)?;
            if self.poll.ready_count() == 0 && heard_ns + duration_ns(SILENCE) < now_ns() {
                bail!("the server has sent nothing for {SILENCE:?}");
            }
            for position in 0..self.poll.ready_count() {
                let index = self.poll.ready(position);
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
        pipeline.sent_bytes += self.connections[index].send(&self.poll, bytes)?;
        Ok(())
    }
}
