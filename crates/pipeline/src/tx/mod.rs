//! The stage that owns all tables and every connection's state.
//!
//! [`Tx::execute`] takes a batch of requests and runs them in groups (it hashes and prefetches the
//! keys of a group, then executes the group). It writes the replies into the batch and appends one
//! record per transaction to the open log batch. It never blocks and does no IO. What it cannot
//! answer from memory it submits to a [`Source`](crate::source::Source).
//!
//! ```text
//!  batch --> group: hash, prefetch --> dispatch --> handler --> commit --> reply, gate
//!                                        |  |  |
//!                   inside MULTI: queue -+  |  +- log is behind: defer
//!                                           '- key of a source: submit
//! ```
//!
//! **Single writer**: no locks, serializable by construction. **Overload**: when the log cannot
//! grant a reservation, tx defers the first write of a connection and everything after it; reads of
//! other connections continue.

mod catalog;
mod data;
mod dispatch;
mod evict;
mod expire;
mod jobs;
mod locks;
mod open;
mod ordered;
mod reply_runs;
mod request_counts;
mod stopwatch;
mod table_changes;
mod tickets;
mod ungated;
mod users;
mod watch;
mod writes;

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use busload_acl::Users;
use busload_io::{ConnId, Rng};
use busload_log::{LogWriter, Lsn, Progress, Reservation, SyncPolicy};
use busload_resp::ArgRange;
use busload_tables::{
    KeyHash, TableId, Tables,
    effect::{self, PartPosition},
};

use crate::{
    args::Args,
    batch::{
        BatchBuffer, Control, DeferReason, Deferred, Held, NetLimits, Request, RequestBatch, Run,
    },
    command::CommandId,
    gate::{Gate, GateFilter},
    gauges::ConnectionGauges,
    latency_events::LatencyEvent,
    limits::{
        BATCH_REPLY_BYTES_MAX, BATCH_REPLY_BYTES_SHARED, GARBAGE_STEPS_PER_TURN, GROUP_REQUESTS,
        IDLE_CHECK_INTERVAL, RUN_REPLY_BYTES_MIN,
    },
    monitor::Monitors,
    password_limiter::PasswordLimiter,
    reload::{Order, OrderSlot, Reloads},
    reply::Reply,
    session::{ReplyMode, Session},
    settings::Settings,
    source::SourceInfo,
    stats::Stats,
};

pub use catalog::{Catalog, Logging, MemoryTable, Route};
pub use data::Key;
pub use open::{Opened, RecoveryProgress, SnapshotReport, StartError, open};
pub use ordered::NewLimits;
pub use table_changes::{Leave, Search, TableRefusal};
pub use watch::{KeyIs, WatchedState, Watches};

use data::Changes;
pub(crate) use jobs::{Slice, Step, Work};
pub(crate) use locks::{Access, LockMode, Locks};
pub(crate) use writes::{ChangeSet, Counts, DeferredPut, PatchOne, Plan, Planned, PutOne, Write};

pub(crate) use dispatch::reply_too_long;

use dispatch::Outcome;
use reply_runs::ReplyRuns;
use request_counts::{RequestCounts, SameRequests};
use table_changes::{Leaving, NewTable};
use tickets::Tickets;

/// Time at the start of a turn.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Monotonic time, which timeouts use.
    pub monotonic: Duration,
    /// Wall clock, in Unix milliseconds.
    pub wall_ms: i64,
}

/// Requests of other threads to the pipeline.
#[derive(Debug, Default)]
pub struct Signals {
    stop: AtomicBool,
    /// Requests to read the configuration again.
    pub reloads: Reloads,
    /// Place for a change of tx; its thread must be woken afterwards.
    pub orders: OrderSlot,
}

impl Signals {
    /// Asks for a clean shutdown; the caller must wake the net stage afterwards.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Returns whether a stop was asked for.
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// The tx stage: all tables, and the state of every connection.
pub struct Tx {
    /// Asks for snapshots, and knows their state.
    pub(crate) snapshots: Arc<busload_snapshot::Control>,
    /// True if the log ends with parts of a transaction whose last part will never come. As long as
    /// that is so, no snapshot covers what is behind the first part.
    parts_abandoned: bool,
    /// Memory tables, with their keys and values.
    tables: Tables,
    /// Names and settings of tables.
    pub(crate) catalog: Catalog,
    /// Settings; CONFIG SET changes some of them.
    pub(crate) settings: Settings,
    /// Counters of all stages.
    pub(crate) stats: Arc<Stats>,
    /// Random numbers for RANDOMKEY and HRANDFIELD.
    pub(crate) rng: Box<dyn Rng + Send>,
    /// Progress of the log, and its counters.
    pub(crate) progress: Progress,
    /// Keys watched by WATCH, and by whom.
    pub(crate) watches: Watches,
    /// Users, shared with the other fronts.
    pub(crate) users: Arc<Users>,
    /// Says whether net takes a new connection for one that has logged in.
    net_assumes_log_in: bool,
    /// Wrong passwords by address.
    pub(crate) guesses: PasswordLimiter,
    /// Signals shared with the other threads.
    pub(crate) signals: Arc<Signals>,
    /// Time when the process started: monotonic, and wall clock.
    pub(crate) started: Now,
    log: LogWriter,
    filter: GateFilter,
    gate: Cell<Gate>,
    changes: Changes,
    any_change: bool,
    records_open: usize,
    /// Bytes reserved in the log for the record of the current transaction.
    reservation_granted: u64,
    /// Says whether the current command sets a large value: it describes the write, and a job
    /// executes it in slices.
    defer_put: bool,
    deferred_put: Option<DeferredPut>,
    /// Says whether the current command takes long: its handler makes a job of it.
    pub(crate) sliced: bool,
    sessions: Vec<Option<Box<Session>>>,
    next_client_id: u64,
    closes: Vec<ConnId>,
    /// Limits that CONFIG SET has changed and net does not know yet.
    net_limits: Option<NetLimits>,
    /// Most connections that CONFIG SET may allow: those of the start, which knows how many files
    /// may be open.
    pub(crate) clients_max_at_start: u32,
    /// Time at which idle clients are looked for next.
    idle_check_due: Duration,
    pub(crate) monitors: Monitors,
    stopwatch: stopwatch::Stopwatch,
    tickets: Tickets,
    /// Order of another thread that has more to do, and when.
    order: Option<(Order, Duration)>,
    /// Sources for which no new requests come, until those at them have ended.
    leaving: Vec<Leaving>,
    /// Table that is about to be added, while keys are looked for that it would hide.
    new_table: Option<NewTable>,
    jobs: jobs::Jobs,
    now_ms: i64,
    now: Duration,
    sweep: expire::SweepState,
    eviction: evict::EvictionState,
    scratch: Vec<u8>,
    hashes: Vec<(TableId, KeyHash)>,
    request_counts: RequestCounts,
}

impl Tx {
    /// Asks for a snapshot of everything that was executed so far. Returns the request's number.
    pub(crate) fn request_snapshot(&self) -> u64 {
        self.snapshots.request(self.last_lsn())
    }

    /// Returns the last record that was executed.
    pub(crate) fn last_lsn(&self) -> Lsn {
        Lsn(self.log.next_lsn().0 - 1)
    }

    /// Executes a batch. The caller then calls [`Tx::end_turn`] (after all batches of the turn) and
    /// returns the batch to its net stage.
    pub fn execute(&mut self, batch: &mut RequestBatch, now: Now) {
        self.start_turn(now);
        batch.jobs_ended.0 = self.jobs.ended();
        for control in &batch.control {
            if let Control::Opened { conn, peer, gauges } = control {
                let authenticated = self.open_session(*conn, peer.clone(), Arc::clone(gauges));
                if authenticated != self.net_assumes_log_in {
                    batch.authenticated.push((*conn, authenticated));
                }
            }
        }
        self.execute_runs(batch);
        for control in std::mem::take(&mut batch.control) {
            if let Control::Closed { conn } = control {
                self.close_session(conn);
            }
        }
        batch.closes.append(&mut self.closes);
        batch.limits = self.net_limits.take();
        if self.monitors.any() {
            self.monitors.flush(batch, self.now_ms);
        }
        batch.jobs_ended.1 = self.jobs.ended();
    }

    /// Removes some expired keys and garbage, and evicts what is above the limits.
    ///
    /// Returns the longest time until the next call, or `None` when there is nothing left to
    /// remove.
    pub fn housekeep(&mut self, now: Now) -> Option<Duration> {
        self.start_turn(now);
        let sweep = self.time_housekeeping(LatencyEvent::ExpireCycle, Self::sweep_expired);
        let excess = self.time_housekeeping(LatencyEvent::EvictionCycle, Self::evict_excess);
        let idle = self.close_idle();
        let garbage = self.tables.collect_garbage(GARBAGE_STEPS_PER_TURN);
        self.publish_metrics();
        self.note_syncs();
        if self.parts_abandoned {
            self.end_abandoned_parts();
        }
        if garbage || self.parts_abandoned {
            return Some(Duration::ZERO);
        }
        [sweep, excess, idle].into_iter().flatten().min()
    }

    /// Closes clients that have sent nothing for longer than `timeout` says and wait for nothing.
    /// Returns when to look again.
    fn close_idle(&mut self) -> Option<Duration> {
        if self.settings.idle_timeout_s == 0 {
            return None;
        }
        if self.now < self.idle_check_due {
            return Some(self.idle_check_due - self.now);
        }
        self.idle_check_due = self.now + IDLE_CHECK_INTERVAL;
        let oldest_ms = self.now_ms - 1_000 * i64::from(self.settings.idle_timeout_s);
        let oldest =
            self.now.saturating_sub(Duration::from_secs(self.settings.idle_timeout_s.into()));
        let is_idle = |session: &&Session| {
            session.active_ms < oldest_ms
                // It may be in the middle of a long request.
                && Duration::from_millis(session.gauges.received_ms.get()) < oldest
                && !session.monitors
                && !session.closing
                // Its requests or replies wait for the log.
                && session.blocked.is_none()
                && session.gauges.reply_bytes.get() == 0
                && !self.tickets.waits(session.conn)
                && !self.jobs.has(session.conn)
        };
        let idle: Vec<ConnId> =
            self.other_sessions().filter(is_idle).map(|session| session.conn).collect();
        idle.into_iter().for_each(|conn| self.kill(conn));
        Some(IDLE_CHECK_INTERVAL)
    }

    /// Lets net use the limits that CONFIG SET has changed, from the next batch on.
    pub(crate) fn change_net_limits(&mut self) {
        self.net_limits = Some(NetLimits {
            client_reply_bytes: self.settings.client_reply_bytes,
            reply_bytes_total: self.settings.reply_bytes_total,
            request_bytes: self.settings.request_bytes,
            clients_max: self.settings.clients_max,
        });
    }

    /// Ends a transaction in several records whose last record will never come, if the log has
    /// space: by another in two records that deletes a key which does not exist.
    fn end_abandoned_parts(&mut self) {
        let is_absent = |key: &Vec<u8>| {
            let hash = self.tables.hash(key);
            self.tables.get(TableId(0), hash, key, i64::MIN).is_none()
        };
        let keys = (0_u64..).map(|number| format!("busload:absent:{number}").into_bytes());
        let key = keys.into_iter().find(is_absent).expect("memory holds finitely many keys");
        let mut delete = Vec::new();
        effect::delete(&mut delete, TableId(0), &key);
        let (first, last) = delete.split_at(delete.len() / 2);
        for (position, bytes) in [(PartPosition::First, first), (PartPosition::Last, last)] {
            let length = effect::PART_OVERHEAD_BYTES + bytes.len();
            if self.log.reserve(length as u64) != Reservation::Granted {
                return;
            }
            self.log.begin();
            effect::part_header(self.log.record(), position);
            self.log.record().extend_from_slice(bytes);
            self.log.commit(SyncPolicy::Always);
            self.records_open += 1;
        }
        self.parts_abandoned = false;
    }

    /// Hands the records of this turn to the log, and tells the sources that the turn has submitted
    /// all its requests.
    pub fn end_turn(&mut self) {
        self.tickets.flush();
        if self.records_open != 0 {
            self.stats.commit_batches.record(self.records_open);
            self.records_open = 0;
            self.log.flush(self.now_ms);
        }
        while let Some(huge) = self.tables.take_huge() {
            crate::reaper::drop_elsewhere(huge);
        }
    }

    /// Closes the log once everything handed over is durable; nothing may be executed afterwards.
    pub fn close_log(&mut self) {
        self.end_turn();
        self.log.close();
    }

    fn start_turn(&mut self, now: Now) {
        self.now = now.monotonic;
        self.now_ms = self.now_ms.max(now.wall_ms);
        self.start_turn_of_eviction();
        self.filter
            .advance(Gate { written: self.progress.written(), durable: self.progress.durable() });
    }

    fn open_session(
        &mut self,
        conn: ConnId,
        peer: busload_io::Peer,
        gauges: Arc<ConnectionGauges>,
    ) -> bool {
        let index = conn.index as usize;
        if self.sessions.len() <= index {
            self.sessions.resize_with(index + 1, || None);
        }
        self.next_client_id += 1;
        let user = self.users.default_user();
        let mut session = Session::new(conn, self.next_client_id, peer, user, self.now_ms);
        session.gauges = gauges;
        let authenticated = session.authenticated;
        // net may report the slot's previous connection as closed only after this batch's requests.
        if let Some(last) = self.sessions[index].replace(Box::new(session)) {
            self.forget_session(&last);
        }
        authenticated
    }

    fn close_session(&mut self, conn: ConnId) {
        if let Some(session) = self.take_session(conn) {
            self.forget_session(&session);
            let queued = session.multi.as_ref().map_or(0, |queue| queue.memory_bytes());
            crate::reaper::drop_sized(session, queued);
        }
    }

    fn forget_session(&mut self, session: &Session) {
        self.watches.unwatch(session.conn);
        self.monitors.remove(session.conn);
        self.cancel_tickets(session.conn);
        self.jobs.cancel(session.conn);
    }

    fn execute_runs(&mut self, batch: &mut RequestBatch) {
        let RequestBatch {
            buffers,
            runs,
            requests,
            args,
            errors,
            out,
            shared,
            replies,
            deferred,
            held,
            timings,
            ..
        } = batch;
        let batch_received = batch.received;
        let authenticated = &mut batch.authenticated;
        let input = Input { buffers, requests, args, errors };
        let run_limit = (BATCH_REPLY_BYTES_SHARED / runs.len().max(1))
            .max(RUN_REPLY_BYTES_MIN)
            .min(self.settings.client_reply_bytes);
        // Bytes sent by reference cost little here, but net sends and counts them.
        let mut shared_total = 0;
        let mut executed = 0;
        let mut prefetched_to = 0;
        let mut same = SameRequests::default();
        for (ordinal, run) in (0..).zip(runs.iter()) {
            let Some(mut session) = self.take_session(run.conn) else { continue };
            if run.resubmitted {
                session.blocked = None;
            }
            self.count_uses_of(&session);
            let received = run.received.unwrap_or(batch_received);
            if self.request_counts.received != received {
                self.request_counts.add_all(&mut same);
                self.request_counts.flush(self.now, timings);
                self.request_counts.received = received;
            }
            let mut reply_runs =
                ReplyRuns::new(run.conn, out.len(), shared.len(), self.log.first_open_lsn());
            let held_before = self.held_bytes(&session);
            let authenticated_before = session.authenticated;
            let run_start = out.len();
            let last = run.first_request + run.request_count;
            for index in run.first_request..last {
                if prefetched_to <= index as usize {
                    let run = (ordinal as usize, session.space);
                    prefetched_to = self.prefetch_group(&input, runs, run, index as usize);
                }
                let (table, hash) = self.hashes[index as usize % GROUP_REQUESTS];
                let request = &requests[index as usize];
                let seq = run.first_seq + u64::from(index - run.first_request);
                let pending = out.len() - run_start + reply_runs.shared_bytes();
                let outcome = if session.closing {
                    break;
                } else if let Some(reason) = session.blocked {
                    Outcome::Deferred(reason)
                } else if run_limit <= pending
                    || BATCH_REPLY_BYTES_MAX <= out.len() + shared_total + reply_runs.shared_bytes()
                {
                    Outcome::Deferred(DeferReason::ReplyBytes)
                } else {
                    self.execute_one(&mut session, &input, request, hash, seq, out, shared)
                };
                match outcome {
                    Outcome::Replied => {
                        executed += 1;
                        let gate = self.gate.replace(Gate::OPEN);
                        self.request_counts.add(&mut same, table, request.command, gate);
                        reply_runs.answered(seq, out.len(), shared, gate, session.closing, replies);
                    }
                    Outcome::Pending => {
                        executed += 1;
                        reply_runs.finish(replies);
                    }
                    Outcome::Deferred(reason) => {
                        self.gate.set(Gate::OPEN);
                        session.blocked = Some(reason);
                        self.stats.deferred_total.add(1);
                        deferred.push(Deferred { run: ordinal, request: index, reason });
                        break;
                    }
                }
            }
            reply_runs.finish(replies);
            shared_total += reply_runs.shared_bytes();
            let held_after = self.held_bytes(&session);
            if held_after != held_before {
                held.push(Held { conn: run.conn, bytes: held_after });
            }
            if session.authenticated != authenticated_before {
                authenticated.push((run.conn, session.authenticated));
            }
            self.put_session(session);
        }
        self.request_counts.add_all(&mut same);
        self.request_counts.flush(self.now, timings);
        if executed != 0 {
            self.stats.tx_batches.record(executed);
            self.stats.commands_total.add(executed as u64);
        }
    }

    /// Hashes and prefetches the first keys of the next group of requests, which may reach into the
    /// next runs; `run` is the ordinal of the first one and the space that its session selected.
    /// Returns the end of the group. The hash of request `i` is then at `hashes[i %
    /// GROUP_REQUESTS]`.
    fn prefetch_group(
        &mut self,
        input: &Input<'_>,
        runs: &[Run],
        (mut run, mut space): (usize, u16),
        first: usize,
    ) -> usize {
        let end = input.requests.len().min((first / GROUP_REQUESTS + 1) * GROUP_REQUESTS);
        for (index, request) in (first..end).zip(&input.requests[first..end]) {
            while (runs[run].first_request + runs[run].request_count) as usize <= index {
                run += 1;
                // The session that is being executed is not in its place; it may have more runs.
                space = self.session(runs[run].conn).map_or(space, |session| session.space);
            }
            let mut place = (TableId(u16::MAX), KeyHash(0));
            if let Some(command) = request.command.command()
                && command.keys.first != 0
                && u32::from(command.keys.first) < request.arg_count
            {
                let key = input.args_of(request).at(usize::from(command.keys.first));
                if let Route::Memory(table) = self.catalog.route(space, key) {
                    let hash = self.tables.hash(key);
                    self.tables.prefetch_bucket(table, hash);
                    place = (table, hash);
                }
            }
            self.hashes[index % GROUP_REQUESTS] = place;
        }
        for index in first..end {
            let (table, hash) = self.hashes[index % GROUP_REQUESTS];
            if table.0 != u16::MAX {
                self.tables.prefetch_entry(table, hash);
            }
        }
        end
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of a batch, borrowed apart")]
    fn execute_one(
        &mut self,
        session: &mut Session,
        input: &Input<'_>,
        request: &Request,
        hash: KeyHash,
        seq: u64,
        out: &mut Vec<u8>,
        shared: &mut Vec<crate::batch::SharedPart>,
    ) -> Outcome {
        if request.command == CommandId::PROTOCOL_ERROR {
            input.errors[request.first_arg as usize].write(out);
            session.closing = true;
            return Outcome::Replied;
        }
        let reply = Reply::new(out, shared, session.version);
        let start = reply.mark();
        let args = input.args_of(request);
        let outcome = self.dispatch(session, request.command, args, hash, seq, reply);
        session.active_ms = self.now_ms;
        self.commit();
        if session.reply_mode != ReplyMode::On && matches!(outcome, Outcome::Replied) {
            let mut reply = Reply::new(out, shared, session.version);
            match session.reply_mode {
                ReplyMode::On => {}
                ReplyMode::Off => reply.rewind(start),
                ReplyMode::Skipping => {
                    reply.rewind(start);
                    session.reply_mode = ReplyMode::On;
                }
                ReplyMode::SkipNext => {
                    reply.rewind(start);
                    session.reply_mode = ReplyMode::Skipping;
                }
            }
        }
        outcome
    }

    /// Returns the memory that tx uses for a connection beyond its session.
    fn held_bytes(&self, session: &Session) -> usize {
        self.held_without_job(session) + self.jobs.memory_bytes(session.conn)
    }

    fn held_without_job(&self, session: &Session) -> usize {
        let queued = session.multi.as_ref().map_or(0, |queue| queue.memory_bytes());
        let watched = if session.watching { self.watches.memory_bytes(session.conn) } else { 0 };
        queued + watched
    }

    /// Returns the connection's state.
    pub(crate) fn session(&self, conn: ConnId) -> Option<&Session> {
        self.sessions.get(conn.index as usize)?.as_deref().filter(|session| session.conn == conn)
    }

    /// Iterates over all sources: name, kind, facts.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (&str, &'static str, SourceInfo)> {
        self.tickets.infos()
    }

    /// Iterates over all connections but the one whose command runs.
    pub(crate) fn other_sessions(&self) -> impl Iterator<Item = &Session> {
        self.sessions.iter().flatten().map(|session| &**session)
    }

    /// Returns when the turn began, on the monotonic clock.
    pub fn monotonic(&self) -> Duration {
        self.now
    }

    /// Returns how long the process has been running.
    pub(crate) fn uptime(&self) -> Duration {
        self.now.saturating_sub(self.started.monotonic)
    }

    /// Closes another connection at once, without its pending replies; tx executes nothing more
    /// that it sent.
    pub(crate) fn kill(&mut self, conn: ConnId) {
        if let Some(session) = self.sessions.get_mut(conn.index as usize).and_then(Option::as_mut) {
            session.closing = true;
        }
        self.closes.push(conn);
    }

    fn take_session(&mut self, conn: ConnId) -> Option<Box<Session>> {
        self.sessions.get_mut(conn.index as usize)?.take_if(|session| session.conn == conn)
    }

    fn put_session(&mut self, session: Box<Session>) {
        let index = session.conn.index as usize;
        self.sessions[index] = Some(session);
    }

    fn publish_metrics(&self) {
        let tables = self.catalog.all_memory();
        let total = |of: &dyn Fn(TableId) -> usize| {
            tables.iter().map(|&table| of(table) as u64).sum::<u64>()
        };
        let stats = &self.stats;
        stats.keys.set(total(&|table| self.tables.len(table)));
        stats.keys_expiring.set(total(&|table| self.tables.expiring_len(table)));
        let used = self.tables.memory_used_total();
        stats.memory_used_bytes.set(used);
        let is_logged = |table: &&TableId| self.catalog.logging(**table) != Logging::Off;
        let logged = tables.iter().filter(is_logged).map(|&table| self.tables.memory_used(table));
        stats.memory_logged_bytes.set(logged.sum());
        stats.memory_peak_bytes.set(stats.memory_peak_bytes.get().max(used));
        stats.memory_max_bytes.set(self.settings.memory_max);
        stats.memory_garbage_bytes.set(self.tables.garbage_bytes());
    }
}

impl std::fmt::Debug for Tx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tx").field("now_ms", &self.now_ms).finish_non_exhaustive()
    }
}

/// Part of a batch that requests are read from.
struct Input<'a> {
    buffers: &'a [BatchBuffer],
    requests: &'a [Request],
    args: &'a [ArgRange],
    errors: &'a [busload_resp::ProtocolError],
}

impl<'a> Input<'a> {
    #[inline]
    fn args_of(&self, request: &Request) -> Args<'a> {
        let buffer = &self.buffers[request.buffer as usize];
        let owner = match buffer {
            BatchBuffer::Received(_) => None,
            BatchBuffer::Collected(bytes) => Some(bytes),
        };
        let bytes = &buffer.as_slice()[request.start as usize..request.end as usize];
        let ranges = &self.args
            [request.first_arg as usize..(request.first_arg + request.arg_count) as usize];
        Args::new(bytes, ranges, owner)
    }
}
