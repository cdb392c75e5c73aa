//! Splits the replies of one run of requests into reply runs that are sent together.

use busload_io::ConnId;
use busload_log::Lsn;

use crate::{
    batch::{ReplyRun, SharedPart},
    gate::Gate,
};

/// Replies of a run of requests so far.
#[derive(Debug)]
pub(super) struct ReplyRuns {
    conn: ConnId,
    /// LSN of the first record in the open log batch: the log writes and syncs these records
    /// together.
    first_open: Lsn,
    out_end: usize,
    shared_end: usize,
    shared_bytes: usize,
    current: Option<ReplyRun>,
}

impl ReplyRuns {
    pub fn new(conn: ConnId, out_len: usize, shared_len: usize, first_open: Lsn) -> Self {
        Self {
            conn,
            first_open,
            out_end: out_len,
            shared_end: shared_len,
            shared_bytes: 0,
            current: None,
        }
    }

    /// Returns the bytes of large values by reference in this run.
    pub fn shared_bytes(&self) -> usize {
        self.shared_bytes
    }

    /// Adds the reply to a request: the bytes up to `out_len`, which wait for `gate`.
    #[inline]
    pub fn answered(
        &mut self,
        seq: u64,
        out_len: usize,
        shared: &[SharedPart],
        gate: Gate,
        close: bool,
        replies: &mut Vec<ReplyRun>,
    ) {
        if self.current.is_some_and(|run| !self.can_join(run.gate, gate)) {
            self.finish(replies);
        }
        if shared.len() != self.shared_end {
            self.shared_bytes +=
                shared[self.shared_end..].iter().map(|part| part.bytes.len()).sum::<usize>();
        }
        let added =
            u32::try_from(shared.len() - self.shared_end).expect("one run has few large values");
        let run = self.current.get_or_insert(ReplyRun {
            conn: self.conn,
            first_seq: seq,
            seq_count: 0,
            start: self.out_end,
            end: self.out_end,
            first_shared: u32::try_from(self.shared_end).expect("one batch has few large values"),
            shared_count: 0,
            gate,
            close: false,
        });
        run.seq_count += 1;
        run.end = out_len;
        run.shared_count += added;
        run.gate = run.gate.join(gate);
        run.close |= close;
        self.out_end = out_len;
        self.shared_end = shared.len();
    }

    /// Ends the current reply run: the run of requests is over, or the next request will be
    /// answered later.
    pub fn finish(&mut self, replies: &mut Vec<ReplyRun>) {
        replies.extend(self.current.take());
    }

    /// Returns whether a reply that waits for `next` can join the reply run without delaying it.
    #[inline]
    fn can_join(&self, run: Gate, next: Gate) -> bool {
        let joined = run.join(next);
        joined == run
            || self.first_open <= run.durable
            || (joined.durable == run.durable && self.first_open <= run.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::Level;

    fn gates(of: &[Gate]) -> Vec<(u64, u32)> {
        let conn = ConnId { index: 0, generation: 0 };
        let mut reply_runs = ReplyRuns::new(conn, 0, 0, Lsn(10));
        let mut replies = Vec::new();
        for (index, &gate) in of.iter().enumerate() {
            reply_runs.answered(index as u64, index + 1, &[], gate, false, &mut replies);
        }
        reply_runs.finish(&mut replies);
        replies.iter().map(|run| (run.first_seq, run.seq_count)).collect()
    }

    #[test]
    fn clean_replies_leave_before_the_first_write_and_writes_of_one_turn_together() {
        let write = |lsn| Gate::at(Lsn(lsn), Level::Durable);
        assert_eq!(
            gates(&[Gate::OPEN, Gate::OPEN, write(10), Gate::OPEN, write(11)]),
            [(0, 2), (2, 3)]
        );
    }

    #[test]
    fn a_reply_that_waits_for_an_older_frame_leaves_before_those_of_this_turn() {
        let durable = |lsn| Gate::at(Lsn(lsn), Level::Durable);
        assert_eq!(gates(&[durable(7), durable(10)]), [(0, 1), (1, 1)]);
    }

    #[test]
    fn a_written_reply_does_not_wait_for_a_sync_that_follows_it() {
        let written = Gate::at(Lsn(10), Level::Written);
        let durable = Gate::at(Lsn(11), Level::Durable);
        assert_eq!(gates(&[written, durable]), [(0, 1), (1, 1)]);
        assert_eq!(gates(&[durable, written]), [(0, 2)]);
    }
}
