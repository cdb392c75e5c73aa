//! Commands whose cost grows with the data or with their arguments, executed in slices.
//!
//! A handler describes such a command as [`Work`] and gives it to [`Tx::run_sliced`]. One slice
//! runs at once; nearly every command ends in it and costs nothing more. What does not end becomes
//! a job: the requests behind it on its connection wait, everybody else goes on, and one slice of
//! one job runs per turn.
//!
//! ```text
//!  handler --> run_sliced: first slice --done--> reply
//!                              '--more--> Jobs --a slice per turn--> reply in the connection's order
//! ```
//!
//! **Isolation.** A job holds locks on what it has read or will change ([`Locks`]), so it takes
//! effect as if at one moment. KEYS alone locks nothing: like SCAN it shows every key that stays
//! from start to end, and only those that were there at some moment in between. There is at most
//! one job that locks one key after the other, or that writes; further ones are offered again when
//! it has ended. So no two wait for each other, and the parts of two transactions never mix in the
//! log. A writer that had to wait for a lock is let through before further jobs begin. Inside EXEC
//! there are no slices: a transaction executes whole.

use std::{collections::VecDeque, time::Duration};

use busload_io::ConnId;
use busload_resp::{ArgRange, Version};
use busload_tables::{KeyHash, TableId};
use bytes::Bytes;

use super::{
    Key, Tx,
    dispatch::{Outcome, reply_too_long, space_of, target_space},
    locks::{Access, Locks},
};
use crate::{
    args::Args,
    batch::{Batch, DeferReason, Held, ReplySegment, SharedPart},
    command::{Call, Command, Flags},
    error::{CommandError, CommandResult},
    gate::Gate,
    limits::{
        JOB_PAUSE, JOB_PIECE_BYTES, REPLY_COPIED_BYTES_MAX, SLICE_BYTES, SLICE_STEPS,
        SLICED_ARGS_MIN,
    },
    reaper::drop_sized,
    reply::Reply,
    session::{ReplyMode, Session},
};

/// What is left of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    steps: usize,
    reply_bytes: usize,
}

impl Budget {
    /// One turn's worth.
    const SLICE: Budget = Budget { steps: SLICE_STEPS, reply_bytes: SLICE_BYTES };
    /// Inside EXEC.
    const UNLIMITED: Budget = Budget { steps: usize::MAX, reply_bytes: usize::MAX };

    /// Work of so many steps (about 100 ns each) was done; false when the slice is over.
    #[inline]
    pub fn spend(&mut self, steps: usize) -> bool {
        self.steps = self.steps.saturating_sub(steps);
        self.steps != 0
    }
}

/// One slice of a command.
pub(crate) struct Slice<'a> {
    /// SELECTed space of the client.
    pub space: u16,
    /// The command.
    pub args: Args<'a>,
    /// Where the answer goes.
    pub reply: Reply<'a>,
    /// How much may be done.
    pub budget: Budget,
}

impl Slice<'_> {
    /// One step was done; false when the slice is over.
    #[inline]
    pub fn step(&mut self) -> bool {
        self.budget.spend(1) && self.reply.written() < self.budget.reply_bytes
    }
}

/// How a slice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is more to do.
    More,
    /// There is more to do, when the log has come further or another command has ended.
    Wait,
    /// The command is done.
    Done,
}

/// A command that can be executed in slices. It changes nothing.
pub(crate) trait Work: Send {
    /// Goes on for a slice. An error becomes the whole reply.
    fn step(&mut self, tx: &mut Tx, slice: &mut Slice<'_>) -> Result<Step, CommandError>;

    /// The first slice did not suffice: locks what was read in it, and from now on locks what it
    /// reads.
    fn suspend(&mut self, tx: &Tx, space: u16, args: &Args<'_>);

    /// What is locked.
    fn locks(&self) -> Option<&Locks>;

    /// Whether it goes on when its client has gone away.
    fn must_finish(&self) -> bool {
        false
    }

    /// Whether it locks one key after the other.
    fn locks_many(&self) -> bool {
        false
    }

    /// Memory of its own.
    fn memory_bytes(&self) -> usize {
        0
    }
}

/// A request with bytes of its own.
struct OwnedArgs {
    bytes: Bytes,
    ranges: Vec<ArgRange>,
}

impl OwnedArgs {
    fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.ranges, Some(&self.bytes))
    }
}

/// A command between two slices.
struct Job {
    conn: ConnId,
    seq: u64,
    space: u16,
    version: Version,
    /// CLIENT REPLY: no bytes, but its place among the replies.
    is_silent: bool,
    args: OwnedArgs,
    work: Box<dyn Work>,
    reply: Pieces,
    gate: Gate,
}

/// A reply that grows without being moved.
#[derive(Default)]
struct Pieces {
    done: Vec<Bytes>,
    bytes: usize,
    /// Bytes that are not shared with a table.
    copied_bytes: usize,
    out: Vec<u8>,
    shared: Vec<SharedPart>,
}

impl Pieces {
    /// What the last slice wrote is cut at its large values.
    fn seal(&mut self) {
        if self.out.len() < JOB_PIECE_BYTES && self.shared.is_empty() {
            return;
        }
        self.copied_bytes += self.out.len();
        let out = Bytes::from(std::mem::take(&mut self.out));
        let mut from = 0;
        for part in self.shared.drain(..) {
            self.done.push(out.slice(from..part.at));
            self.bytes += part.bytes.len();
            self.done.push(part.bytes);
            from = part.at;
        }
        self.bytes += out.len();
        self.done.push(out.slice(from..));
    }

    fn memory_bytes(&self) -> usize {
        self.bytes + self.out.capacity()
    }
}

/// All jobs, the one that runs next in front.
#[derive(Default)]
pub(super) struct Jobs {
    queue: VecDeque<Job>,
    /// Slices in a row in which nothing could be done.
    waited: usize,
    /// Grows when a job has ended, or the writer that others waited for has run: requests that were
    /// refused are offered again.
    ended: u64,
    /// A connection whose write was refused because of a lock.
    waiting_writer: Option<ConnId>,
    /// The handler that just ran needs a job that cannot begin now.
    refused: bool,
    /// What the handler that just ran left to be done.
    suspended: Option<Box<dyn Work>>,
}

impl Jobs {
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether there is anything to look at before a request is executed.
    pub fn any(&self) -> bool {
        !self.queue.is_empty() || self.waiting_writer.is_some()
    }

    /// How long the next slice can wait: not at all, unless every job waits.
    pub fn pause(&self) -> Option<Duration> {
        match self.queue.len() {
            0 => None,
            jobs if self.waited < jobs => Some(Duration::ZERO),
            _ => Some(JOB_PAUSE),
        }
    }

    /// Whether a job of this connection must end before its next request is executed.
    pub fn has(&self, conn: ConnId) -> bool {
        self.queue.iter().any(|job| job.conn == conn)
    }

    /// Memory of the connection's job.
    pub fn memory_bytes(&self, conn: ConnId) -> usize {
        self.queue.iter().find(|job| job.conn == conn).map_or(0, Job::memory_bytes)
    }

    /// Whether a request that wants this must wait for a job.
    pub fn conflict(&self, table: TableId, hash: KeyHash, access: Access) -> bool {
        self.queue
            .iter()
            .filter_map(|job| job.work.locks())
            .any(|locks| locks.conflict(table, hash, access))
    }

    /// Whether any job holds locks: nothing may change a table as a whole.
    pub fn any_locks(&self) -> bool {
        self.queue.iter().filter_map(|job| job.work.locks()).any(|locks| !locks.is_empty())
    }

    /// A request of this connection was executed or refused for good: if it was the writer that
    /// waited, jobs may begin again.
    pub fn writer_ran(&mut self, conn: ConnId) {
        if self.waiting_writer.take_if(|writer| *writer == conn).is_some() {
            self.ended += 1;
        }
    }

    /// How many have ended, or stopped to be in the way otherwise.
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// The connection is gone.
    pub fn cancel(&mut self, conn: ConnId) {
        self.writer_ran(conn);
        if let Some(index) =
            self.queue.iter().position(|job| job.conn == conn && !job.work.must_finish())
            && let Some(job) = self.queue.remove(index)
        {
            self.ended += 1;
            job.free();
        }
    }

    /// Whether a job of this kind can begin: there is at most one that locks many keys, and none
    /// begins while a writer waits for locks to be given back.
    fn can_begin(&self, conn: ConnId, locks_many: bool) -> bool {
        let free = !locks_many || !self.queue.iter().any(|job| job.work.locks_many());
        free && self.waiting_writer.is_none_or(|writer| writer == conn)
    }
}

impl Job {
    fn memory_bytes(&self) -> usize {
        let args = self.args.ranges.capacity() * size_of::<ArgRange>() + self.args.bytes.len();
        let locks = self.work.locks().map_or(0, Locks::memory_bytes);
        self.reply.memory_bytes() + args + locks + self.work.memory_bytes()
    }

    fn free(self) {
        let bytes = self.memory_bytes();
        drop_sized((self.args.bytes, self.args.ranges, self.work), bytes);
    }
}

impl Tx {
    /// Executes a command that can be executed in slices: the first slice now, inside EXEC all of
    /// them. When more is left, the reply will follow; what is written of it so far is taken back
    /// by the caller of the handler.
    pub(crate) fn run_sliced<W: Work + 'static>(
        &mut self,
        call: &mut Call<'_>,
        mut work: W,
    ) -> CommandResult {
        let budget = if call.in_exec { Budget::UNLIMITED } else { Budget::SLICE };
        let (space, args) = (call.session.space, call.args);
        let mut slice = Slice { space, args, reply: call.reply.reborrow(), budget };
        match work.step(self, &mut slice)? {
            Step::Done => Ok(()),
            Step::More | Step::Wait => {
                assert!(!call.in_exec, "a transaction has no slices");
                if !self.jobs.can_begin(call.session.conn, work.locks_many()) {
                    self.jobs.refused = true;
                    return Ok(());
                }
                work.suspend(self, space, &args);
                self.jobs.suspended = Some(Box::new(work));
                Ok(())
            }
        }
    }

    /// Makes a job of what the handler left to be done, if it left anything.
    pub(super) fn take_suspended(
        &mut self,
        session: &mut Session,
        args: &Args<'_>,
        seq: u64,
        reply: &mut Reply<'_>,
        start: crate::reply::Mark,
    ) -> Outcome {
        if std::mem::take(&mut self.jobs.refused) {
            reply.rewind(start);
            return Outcome::Deferred(DeferReason::Locked);
        }
        let Some(work) = self.jobs.suspended.take() else { return Outcome::Replied };
        let (out, shared) = reply.take_since(start);
        let mut pieces = Pieces { out, shared, ..Pieces::default() };
        pieces.seal();
        let is_silent = matches!(session.reply_mode, ReplyMode::Off | ReplyMode::Skipping);
        if session.reply_mode == ReplyMode::Skipping {
            session.reply_mode = ReplyMode::On;
        }
        let (bytes, ranges) = args.to_owned_parts();
        self.jobs.queue.push_back(Job {
            conn: session.conn,
            seq,
            space: session.space,
            version: session.version,
            is_silent,
            args: OwnedArgs { bytes, ranges },
            work,
            reply: pieces,
            gate: self.gate.replace(Gate::OPEN),
        });
        Outcome::Pending
    }

    /// One slice of one job. Its reply, when it is done, and what it holds go into the batch.
    pub(super) fn run_job(&mut self, batch: &mut Batch) {
        let Some(mut job) = self.jobs.queue.pop_front() else { return };
        let Pieces { out, shared, .. } = &mut job.reply;
        let mut slice = Slice {
            space: job.space,
            args: job.args.args(),
            reply: Reply::new(out, shared, job.version),
            budget: Budget::SLICE,
        };
        let step = job.work.step(self, &mut slice);
        if self.records_open != 0 {
            self.end_turn();
        }
        job.gate = job.gate.join(self.gate.replace(Gate::OPEN));
        job.reply.seal();
        let step = match step {
            Ok(_) if REPLY_COPIED_BYTES_MAX < job.reply.copied_bytes => Err(reply_too_long()),
            step => step,
        };
        let (conn, mut held) = (job.conn, job.memory_bytes());
        match step {
            Ok(step @ (Step::More | Step::Wait)) => {
                self.jobs.waited = if step == Step::Wait { self.jobs.waited + 1 } else { 0 };
                self.jobs.queue.push_back(job);
            }
            Ok(Step::Done) => {
                self.jobs.ended += 1;
                answer(job, batch);
                held = 0;
            }
            Err(error) => {
                self.jobs.ended += 1;
                self.stats.errors_total.add(1);
                job.reply = Pieces::default();
                Reply::new(&mut job.reply.out, &mut job.reply.shared, job.version)
                    .error(&error.message());
                answer(job, batch);
                held = 0;
            }
        }
        if let Some(session) = self.session(conn) {
            let bytes = held + self.held_without_job(session);
            batch.held.push(Held { conn, bytes });
        }
    }

    /// Whether commands are executed in slices now.
    pub fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Whether another command that is executed in slices has locked the key against this.
    pub(crate) fn locked_for(&self, key: &Key<'_>, access: Access) -> bool {
        self.jobs.conflict(key.table, key.hash, access)
    }

    /// Whether the request must wait until a command that is executed in slices has ended.
    pub(super) fn must_wait(
        &mut self,
        session: &Session,
        command: &Command,
        args: &Args<'_>,
    ) -> bool {
        let waits = match &session.multi {
            Some(queue) if command.name == "exec" => {
                let mut space = session.space;
                self.jobs.any_locks()
                    && queue.iter().any(|(id, args)| {
                        let Some(command) = id.command() else { return false };
                        if command.name == "select" {
                            space = space_of(args.get(1)).unwrap_or(space);
                        }
                        self.wants_locked(space, command, &args)
                    })
            }
            Some(_) => false,
            // Commands over so many keys look for themselves, key by key, when it is their turn to
            // lock.
            None if SLICED_ARGS_MIN <= args.len() && command.keys.last < 0 => {
                !self.jobs.can_begin(session.conn, true)
            }
            None => self.wants_locked(session.space, command, args),
        };
        let writes = command.flags.has(Flags::WRITE) || command.name == "exec";
        if waits && writes {
            self.jobs.waiting_writer.get_or_insert(session.conn);
        }
        waits
    }

    /// Whether a write that is executed in slices can begin.
    pub(super) fn can_begin_write(&mut self, session: &Session) -> bool {
        let can = self.jobs.can_begin(session.conn, true);
        if !can {
            self.jobs.waiting_writer.get_or_insert(session.conn);
        }
        can
    }

    pub(super) fn wants_locked(&self, space: u16, command: &Command, args: &Args<'_>) -> bool {
        let access = if command.flags.has(Flags::WRITE) { Access::Write } else { Access::Read };
        if command.flags.has(Flags::KEYSPACE) && access == Access::Write {
            return self.jobs.any_locks();
        }
        let target = target_space(args).filter(|_| command.name == "copy").unwrap_or(space);
        command.keys.indexes(args.len()).any(|index| {
            let key = args.at(index);
            let hash = self.tables.hash(key);
            [space, target].into_iter().any(|space| {
                self.jobs.conflict(self.catalog.memory_table(space, key), hash, access)
            })
        })
    }
}

/// Moves the reply into the batch, by reference.
fn answer(mut job: Job, batch: &mut Batch) {
    let mut reply = std::mem::take(&mut job.reply);
    if job.is_silent {
        reply = Pieces::default();
    }
    let start = batch.out.len();
    let first_shared = u32::try_from(batch.shared.len()).expect("one batch has few large values");
    batch.shared.extend(reply.done.drain(..).map(|bytes| SharedPart { at: start, bytes }));
    debug_assert!(reply.shared.is_empty(), "a reply is sealed behind every slice");
    batch.out.extend_from_slice(&reply.out);
    let last_shared = u32::try_from(batch.shared.len()).expect("one reply has few pieces");
    batch.replies.push(ReplySegment {
        conn: job.conn,
        first_seq: job.seq,
        seq_count: 1,
        start,
        end: batch.out.len(),
        first_shared,
        shared_count: last_shared - first_shared,
        gate: job.gate,
        close: false,
    });
    job.free();
}
