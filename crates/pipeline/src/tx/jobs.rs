//! Sliced commands: commands whose cost grows with the data or with their arguments, executed in
//! slices.
//!
//! A handler describes such a command as [`Work`] and gives it to [`Tx::run_sliced`]. One slice
//! runs at once; nearly every command ends in it and costs nothing more. A command that does not
//! end in it becomes a job: the requests behind it on its connection wait, everybody else
//! continues, and one slice of one job runs per turn.
//!
//! ```text
//!  handler --> run_sliced: first slice --done--> reply
//!                             '--more--> Jobs --a slice per turn--> reply in order
//! ```
//!
//! **Isolation.** A job holds locks on what it has read or will change ([`Locks`]), so it takes
//! effect as if at one moment. Only KEYS locks nothing: like SCAN it shows every key that stays
//! from start to end, and otherwise keys that were there at some moment in between. At most one job
//! at a time writes, or locks one key after the other; net submits further ones again when that job
//! has ended. So no two jobs wait for each other, and the parts of two transactions never mix in
//! the log. A writer that had to wait for a lock runs before further jobs begin. Inside EXEC there
//! are no slices: a transaction executes whole.

use std::{collections::VecDeque, time::Duration};

use busload_io::ConnId;
use busload_resp::{ArgRange, Version};
use busload_tables::{KeyHash, TableId};
use bytes::Bytes;

use super::{
    Key, Tx,
    dispatch::{Outcome, reply_too_long, space_of, target_space},
    locks::{Access, Locks},
    request_counts::add_timing,
};
use crate::{
    args::Args,
    batch::{DeferReason, Held, ReplyRun, RequestBatch, SharedPart},
    command::{Call, Command, CommandId, Flags},
    error::{CommandError, CommandResult},
    gate::Gate,
    latency::Class,
    limits::{
        JOB_PAUSE, JOB_PIECE_BYTES, REPLY_COPIED_BYTES_MAX, SLICE_BYTES, SLICE_STEPS,
        SLICED_ARGS_MIN,
    },
    reaper::drop_sized,
    reply::Reply,
    session::{ReplyMode, Session},
};

/// Remaining work of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    steps: usize,
    reply_bytes: usize,
}

impl Budget {
    /// Budget of one turn's slice.
    const SLICE: Budget = Budget { steps: SLICE_STEPS, reply_bytes: SLICE_BYTES };
    /// Budget of a command inside EXEC.
    const UNLIMITED: Budget = Budget { steps: usize::MAX, reply_bytes: usize::MAX };

    /// Spends this many steps (about 100 ns each); returns false when the slice is over.
    #[inline]
    pub fn spend(&mut self, steps: usize) -> bool {
        self.steps = self.steps.saturating_sub(steps);
        self.steps != 0
    }
}

/// One slice of a command.
pub(crate) struct Slice<'a> {
    /// SELECT space of the client.
    pub space: u16,
    /// Arguments of the command.
    pub args: Args<'a>,
    /// Writer of the reply.
    pub reply: Reply<'a>,
    /// Work that this slice may do.
    pub budget: Budget,
}

impl Slice<'_> {
    /// Spends one step; returns false when the slice is over.
    #[inline]
    pub fn step(&mut self) -> bool {
        self.budget.spend(1) && self.reply.written() < self.budget.reply_bytes
    }
}

/// Result of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is more to do.
    More,
    /// There is more to do, when the log has advanced or another command has ended.
    Wait,
    /// The command is done.
    Done,
}

/// Command that can be executed in slices.
pub(crate) trait Work: Send {
    /// Runs the next slice. An error becomes the whole reply.
    fn step(&mut self, tx: &mut Tx, slice: &mut Slice<'_>) -> Result<Step, CommandError>;

    /// Called when the first slice did not suffice: locks what that slice read, and from now on
    /// whatever the command reads.
    fn suspend(&mut self, tx: &Tx, space: u16, args: &Args<'_>);

    /// Returns what is locked.
    fn locks(&self) -> Option<&Locks>;

    /// Returns whether the command knows tables or keys between its slices: then no table may come
    /// or go. Others only wait for another thread.
    fn knows_tables(&self) -> bool {
        self.locks().is_some()
    }

    /// Returns whether the command continues when its client has disconnected.
    fn must_finish(&self) -> bool {
        false
    }

    /// Returns whether the command locks one key after the other.
    fn locks_many(&self) -> bool {
        false
    }

    /// Returns the memory of the work itself.
    fn memory_bytes(&self) -> usize {
        0
    }
}

/// Request with bytes of its own.
struct OwnedArgs {
    bytes: Bytes,
    ranges: Vec<ArgRange>,
}

impl OwnedArgs {
    fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.ranges, Some(&self.bytes))
    }
}

/// Command between two slices.
struct Job {
    conn: ConnId,
    seq: u64,
    space: u16,
    command: Option<&'static Command>,
    /// Time that its slices have taken so far.
    took: Duration,
    version: Version,
    /// Says whether CLIENT REPLY suppresses the reply: it has no bytes but keeps its place in the
    /// order.
    is_silent: bool,
    args: OwnedArgs,
    work: Box<dyn Work>,
    reply: Pieces,
    gate: Gate,
    class: Class,
    received: Duration,
}

/// Reply that grows without being moved.
#[derive(Default)]
struct Pieces {
    done: Vec<Bytes>,
    bytes: usize,
    /// Number of bytes that are not shared with a table.
    copied_bytes: usize,
    out: Vec<u8>,
    shared: Vec<SharedPart>,
}

impl Pieces {
    /// Splits the output of the last slice at its large values.
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

/// All jobs; the job at the front runs next.
#[derive(Default)]
pub(super) struct Jobs {
    queue: VecDeque<Job>,
    /// Number of consecutive slices in which nothing could be done.
    waited: usize,
    /// Number that grows when a job has ended, or when the writer that jobs waited for has run: net
    /// then submits deferred requests again.
    ended: u64,
    /// Connection whose write was deferred because of a lock.
    waiting_writer: Option<ConnId>,
    /// Says whether the handler that just ran needs a job that cannot begin now.
    refused: bool,
    /// Remaining work of the handler that just ran.
    suspended: Option<Box<dyn Work>>,
}

impl Jobs {
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns whether any job knows tables or keys.
    pub fn any_knows_tables(&self) -> bool {
        self.queue.iter().any(|job| job.work.knows_tables())
    }

    /// Returns whether there are jobs or a waiting writer to check before a request is executed.
    pub fn any(&self) -> bool {
        !self.queue.is_empty() || self.waiting_writer.is_some()
    }

    /// Returns how long the next slice can wait: not at all, unless every job waits.
    pub fn pause(&self) -> Option<Duration> {
        match self.queue.len() {
            0 => None,
            jobs if self.waited < jobs => Some(Duration::ZERO),
            _ => Some(JOB_PAUSE),
        }
    }

    /// Returns whether a job of this connection must end before its next request is executed.
    pub fn has(&self, conn: ConnId) -> bool {
        self.queue.iter().any(|job| job.conn == conn)
    }

    /// Adds to the time that the slices of the connection's job have taken.
    pub fn add_time(&mut self, conn: ConnId, took: Duration) {
        if let Some(job) = self.queue.iter_mut().find(|job| job.conn == conn) {
            job.took += took;
        }
    }

    /// Returns the memory of the connection's job.
    pub fn memory_bytes(&self, conn: ConnId) -> usize {
        self.queue.iter().find(|job| job.conn == conn).map_or(0, Job::memory_bytes)
    }

    /// Returns whether a request that needs this access must wait for a job.
    pub fn conflict(&self, table: TableId, hash: KeyHash, access: Access) -> bool {
        self.queue
            .iter()
            .filter_map(|job| job.work.locks())
            .any(|locks| locks.conflict(table, hash, access))
    }

    /// Returns whether any job holds locks: then nothing may change a table as a whole.
    pub fn any_locks(&self) -> bool {
        self.queue.iter().filter_map(|job| job.work.locks()).any(|locks| !locks.is_empty())
    }

    /// Notes that a request of this connection was executed or refused for good: if it was the
    /// waiting writer, jobs may begin again.
    pub fn writer_ran(&mut self, conn: ConnId) {
        if self.waiting_writer.take_if(|writer| *writer == conn).is_some() {
            self.ended += 1;
        }
    }

    /// Returns how many jobs have ended or ceased to block others.
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// Cancels the job of a connection that is gone.
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

    /// Returns whether a job of this kind can begin: there is at most one that locks many keys, and
    /// none begins while a writer waits for locks to be released.
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
    /// them. When more is left, the reply follows later; the caller of the handler discards what
    /// was written of it so far.
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

    /// Makes a job of the work that the handler left, if it left any.
    pub(super) fn take_suspended(
        &mut self,
        session: &mut Session,
        id: CommandId,
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
        let first_key = id.command().map_or(0, |command| usize::from(command.keys.first));
        let table = match args.get(first_key) {
            Some(key) if first_key != 0 => self.catalog.memory_table(session.space, key),
            _ => TableId(u16::MAX),
        };
        let class = self.request_counts.class_of(table, id);
        self.request_counts.add_pending(class);
        let (bytes, ranges) = args.to_owned_parts();
        self.jobs.queue.push_back(Job {
            conn: session.conn,
            seq,
            space: session.space,
            command: session.last_command,
            took: Duration::ZERO,
            version: session.version,
            is_silent,
            args: OwnedArgs { bytes, ranges },
            work,
            reply: pieces,
            gate: self.gate.replace(Gate::OPEN),
            class,
            received: self.request_counts.received,
        });
        Outcome::Pending
    }

    /// Runs one slice of one job. When the job is done, its reply goes into the batch, as does the
    /// memory that tx uses for its connection.
    pub(super) fn run_job(&mut self, batch: &mut RequestBatch) {
        let Some(mut job) = self.jobs.queue.pop_front() else { return };
        let Pieces { out, shared, .. } = &mut job.reply;
        let mut slice = Slice {
            space: job.space,
            args: job.args.args(),
            reply: Reply::new(out, shared, job.version),
            budget: Budget::SLICE,
        };
        let authenticated = self.is_authenticated(job.conn);
        let started = self.read_clock();
        let step = job.work.step(self, &mut slice);
        if self.is_authenticated(job.conn) != authenticated {
            batch.authenticated.push((job.conn, !authenticated));
        }
        job.took += started.map_or(Duration::ZERO, |started| self.end_timing(started));
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
        if !matches!(step, Ok(Step::More | Step::Wait))
            && let Some(command) = job.command
        {
            let args = job.args.args();
            self.note_execution(job.took, self.session(conn), command, &args);
        }
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
                if let Some(command) = job.class.command().command() {
                    self.stats.latencies.count_failed(command);
                }
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

    fn is_authenticated(&self, conn: ConnId) -> bool {
        self.session(conn).is_some_and(|session| session.authenticated)
    }

    /// Returns whether there are jobs.
    pub fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Returns whether another sliced command has locked the key against this access.
    pub(crate) fn locked_for(&self, key: &Key<'_>, access: Access) -> bool {
        self.jobs.conflict(key.table, key.hash, access)
    }

    /// Returns whether the request must wait until a sliced command has ended.
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
            // Commands over many keys check each key themselves, when they are about to lock it.
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

    /// Returns whether a sliced write can begin.
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
fn answer(mut job: Job, batch: &mut RequestBatch) {
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
    batch.replies.push(ReplyRun {
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
    add_timing(&mut batch.timings, job.class, job.received, job.gate);
    job.free();
}
