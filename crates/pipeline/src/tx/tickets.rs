//! Requests at sources: which connection waits for which answers, and how they become replies.
//!
//! ```text
//!  dispatch --> submit: a slot and a ticket per key --> source
//!                  commands over several keys also share a multi-key request
//!  poll_answers: answers, timeouts --> finished requests
//!                  --> sorted by connection and order --> one batch of replies
//! ```
//!
//! A command with one key, which nearly all are, allocates nothing here.

mod held;
mod replies;
mod slots;

use std::{any::Any, time::Duration};

use busload_io::ConnId;
use busload_resp::Version;
use busload_tables::Value;
use bytes::Bytes;

use super::{Route, Tx, dispatch::reply_too_long, request_counts::add_timing};
use crate::{
    args::Args,
    batch::{ReplyRun, RequestBatch},
    command::{Command, CommandId, Flags, Keys},
    error::CommandError,
    gate::Gate,
    latency::Class,
    limits::{BATCH_REPLY_BYTES_MAX, SLOW_COMMAND, SLOW_SOURCE_KEY_BYTES, SOURCE_TICKETS_MAX},
    name_pattern::NamePattern,
    reply::Reply,
    session::{ReplyMode, Session},
    source::{
        Operation, Source, SourceEvent, SourceInfo, SourceRequest, SourceValue, Ticket, Unsupported,
    },
    stats::Stats,
};
pub(super) use held::HeldRequests;
use slots::{Slots, Waiting};

/// Sources, and the requests open at them.
pub(super) struct Tickets {
    /// Sources by ordinal. One that is gone leaves its ordinal to the next.
    sources: Vec<Option<Served>>,
    open: Slots<Part>,
    /// Multi-key requests that wait for answers, by the ordinal that their parts know. Free slots
    /// are `None`.
    multi_key_requests: Vec<Option<Box<MultiKeyRequest>>>,
    free_multi_key_requests: Vec<usize>,
    stream: Vec<SourceEvent>,
    /// Time from which on a request is noted in `slow`.
    slow_threshold: Option<Duration>,
    slow: Vec<SlowRequest>,
    finished: Vec<AnsweredRequest>,
    /// Connection, sequence number and ordinal of each finished request.
    order: Vec<(u32, u64, usize)>,
    answered: RequestBatch,
}

/// Source and the table that it serves.
struct Served {
    name: String,
    source: Box<dyn Source>,
}

/// Request that a ticket's answer belongs to.
enum Part {
    /// The answer is that of a whole request.
    Whole { seq: u64, asked: Asked, key: KeyStart },
    /// The answer is one of several of a multi-key request.
    OneOf { multi_key_request: usize, index: usize },
}

/// Facts needed to write the reply.
#[derive(Clone, Copy)]
struct Asked {
    command: &'static Command,
    version: Version,
    /// Gate of the parts that memory answered.
    gate: Gate,
    /// Class of the request, and when it was received.
    class: Class,
    received: Duration,
    /// Says whether CLIENT REPLY suppresses the reply: it has no bytes but keeps its place in the
    /// order.
    is_silent: bool,
}

/// First key of a request as the slow log shows it, kept without an allocation.
#[derive(Clone, Copy)]
struct KeyStart {
    bytes: [u8; SLOW_SOURCE_KEY_BYTES],
    /// Length of the whole key.
    length: u32,
    /// Number of arguments behind the key.
    further: u32,
}

impl KeyStart {
    fn new(args: &Args<'_>) -> Self {
        let key = args.get(1).unwrap_or_default();
        let shown = key.len().min(SLOW_SOURCE_KEY_BYTES);
        let mut bytes = [0; SLOW_SOURCE_KEY_BYTES];
        bytes[..shown].copy_from_slice(&key[..shown]);
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        Self { bytes, length: count(key.len()), further: count(args.len().saturating_sub(2)) }
    }

    /// Returns the arguments for the slow log: name, key, and how much is left out.
    fn shown(&self, command: &Command) -> Vec<Vec<u8>> {
        let length = self.length as usize;
        let mut key = self.bytes[..length.min(SLOW_SOURCE_KEY_BYTES)].to_vec();
        if SLOW_SOURCE_KEY_BYTES < length {
            let left = length - SLOW_SOURCE_KEY_BYTES;
            key.extend_from_slice(format!("... ({left} more bytes)").as_bytes());
        }
        let mut args = vec![command.name.as_bytes().to_vec(), key];
        if self.further != 0 {
            args.push(format!("... ({} more arguments)", self.further).into_bytes());
        }
        args
    }
}

/// Request at a source that took long.
struct SlowRequest {
    conn: ConnId,
    command: &'static Command,
    key: KeyStart,
    took: Duration,
}

/// Multi-key request: one reply from several answers.
struct MultiKeyRequest {
    seq: u64,
    asked: Asked,
    answers: Vec<Option<Answer>>,
    missing: usize,
    key: KeyStart,
}

/// Request whose answers are all there.
struct AnsweredRequest {
    conn: ConnId,
    seq: u64,
    asked: Asked,
    answers: Answers,
}

enum Answers {
    One(Answer),
    /// Answers by key, in the order of the command.
    Several(Vec<Option<Answer>>),
}

type Answer = Result<SourceValue, String>;

impl Answers {
    fn any_failed(&self) -> bool {
        match self {
            Answers::One(answer) => answer.is_err(),
            Answers::Several(answers) => answers.iter().flatten().any(Result::is_err),
        }
    }
}

/// One key of a command, to be submitted to a source.
struct Question<'a> {
    ordinal: usize,
    operation: Operation,
    key: &'a [u8],
    arguments: &'a [&'a [u8]],
}

impl Tickets {
    pub fn new() -> Self {
        Self {
            sources: Vec::new(),
            open: Slots::new(),
            multi_key_requests: Vec::new(),
            free_multi_key_requests: Vec::new(),
            stream: Vec::new(),
            slow_threshold: Some(SLOW_COMMAND),
            slow: Vec::new(),
            finished: Vec::new(),
            order: Vec::new(),
            answered: RequestBatch::default(),
        }
    }

    /// Changes the time from which on a request is slow; `None` notes none.
    pub fn set_slow_threshold(&mut self, threshold: Option<Duration>) {
        self.slow_threshold = threshold;
    }

    /// Returns whether requests of this connection are at sources.
    pub fn waits(&self, conn: ConnId) -> bool {
        self.open.first_of_conn(conn).is_some()
    }

    /// Notes a request that was answered if it took long.
    fn note_slow(&mut self, waiting: Waiting, asked: Asked, key: KeyStart, now: Duration) {
        let timeout = self.served(waiting.source).source.timeout();
        let submitted = waiting.deadline.saturating_sub(timeout);
        let took = now.saturating_sub(submitted);
        if self.slow_threshold.is_some_and(|threshold| threshold <= took) {
            self.slow.push(SlowRequest { conn: waiting.conn, command: asked.command, key, took });
        }
    }

    pub fn is_open(&self, ticket: Ticket) -> bool {
        self.open.is_open(ticket)
    }

    /// Registers a source; returns its ordinal.
    pub fn add(&mut self, name: String, source: Box<dyn Source>) -> usize {
        let served = Some(Served { name, source });
        match self.sources.iter_mut().enumerate().find(|(_, place)| place.is_none()) {
            Some((ordinal, place)) => {
                *place = served;
                ordinal
            }
            None => {
                self.sources.push(served);
                self.sources.len() - 1
            }
        }
    }

    /// Returns how long requests may take at a source.
    pub fn timeout_of(&self, ordinal: usize) -> Duration {
        self.served(ordinal).source.timeout()
    }

    /// Takes a source out, unless requests are open at it.
    pub fn take_idle(&mut self, ordinal: usize) -> Option<Box<dyn Source>> {
        match self.open.first_of_source(ordinal) {
            Some(_) => None,
            None => self.sources[ordinal].take().map(|served| served.source),
        }
    }

    /// Puts a source in the place of one that holds requests back, and submits those to it. What
    /// it does not support or has no space for is answered at once.
    pub fn release(&mut self, ordinal: usize, source: Box<dyn Source>) {
        let served = self.served_mut(ordinal);
        let replaced = std::mem::replace(&mut served.source, source);
        let Ok(held) = (replaced as Box<dyn Any>).downcast::<HeldRequests>() else { return };
        let (mut refused, now) = (Vec::new(), Duration::ZERO);
        for request in held.into_requests() {
            let Served { name, source } = self.served_mut(ordinal);
            let possible = source.supports(request.operation).map_err(|why| match why {
                Unsupported::Kind => "not supported any more".to_owned(),
                Unsupported::Table(why) => why.into_owned(),
            });
            let submitted = possible.and_then(|()| {
                request.submit_to(&mut **source).map_err(|_| "too many requests".to_owned())
            });
            if let Err(why) = submitted {
                refused.push((request.ticket, format!("ERR table {name}: {why}")));
            }
        }
        for (ticket, error) in refused {
            self.answer(ticket, Err(error), now);
        }
    }

    fn served(&self, ordinal: usize) -> &Served {
        self.sources[ordinal].as_ref().expect("a source stays as long as anything names it")
    }

    fn served_mut(&mut self, ordinal: usize) -> &mut Served {
        self.sources[ordinal].as_mut().expect("a source stays as long as anything names it")
    }

    /// Tells all sources that this turn has submitted all its requests.
    pub fn flush(&mut self) {
        self.sources.iter_mut().flatten().for_each(|served| served.source.flush());
    }

    /// Iterates over all sources: name, kind, facts.
    pub fn infos(&self) -> impl Iterator<Item = (&str, &'static str, SourceInfo)> {
        let served = self.sources.iter().flatten();
        served.map(|Served { name, source }| (name.as_str(), source.kind(), source.info()))
    }

    /// Opens a ticket and submits it to the source.
    fn submit(
        &mut self,
        now: Duration,
        conn: ConnId,
        question: &Question<'_>,
        part: Part,
    ) -> Result<Ticket, CommandError> {
        let Question { ordinal, operation, key, arguments } = *question;
        if SOURCE_TICKETS_MAX <= self.open.len() {
            return Err(CommandError::text(
                "ERR too many requests wait for sources, try again later",
            ));
        }
        let deadline = now + self.served(ordinal).source.timeout();
        let ticket = self.open.open(Waiting { conn, source: ordinal, deadline }, part);
        let place = self.sources[ordinal].as_mut();
        let Served { name, source } = place.expect("a source stays as long as anything names it");
        let key = match NamePattern::is_pattern(name) {
            true => key,
            false => key.get(name.len() + 1..).unwrap_or_default(),
        };
        let request = SourceRequest { ticket, conn, operation, key, arguments, deadline };
        if source.submit(request).is_err() {
            self.open.close(ticket);
            return Err(format!(
                "ERR table {name}: too many requests are waiting, try again later"
            )
            .into());
        }
        Ok(ticket)
    }

    fn answer(&mut self, ticket: Ticket, answer: Answer, now: Duration) {
        let Some((waiting, part)) = self.open.close(ticket) else { return };
        let conn = waiting.conn;
        match part {
            Part::Whole { seq, asked, key } => {
                self.note_slow(waiting, asked, key, now);
                self.finished.push(AnsweredRequest {
                    conn,
                    seq,
                    asked,
                    answers: Answers::One(answer),
                });
            }
            Part::OneOf { multi_key_request: ordinal, index } => {
                let Some(multi_key_request) = &mut self.multi_key_requests[ordinal] else { return };
                multi_key_request.answers[index] = Some(answer);
                multi_key_request.missing -= 1;
                if multi_key_request.missing == 0
                    && let Some(multi_key_request) = self.end_multi_key_request(ordinal)
                {
                    let MultiKeyRequest { seq, asked, answers, key, .. } = *multi_key_request;
                    self.note_slow(waiting, asked, key, now);
                    self.finished.push(AnsweredRequest {
                        conn,
                        seq,
                        asked,
                        answers: Answers::Several(answers),
                    });
                }
            }
        }
    }

    fn begin_multi_key_request(&mut self, multi_key_request: MultiKeyRequest) -> usize {
        let multi_key_request = Some(Box::new(multi_key_request));
        match self.free_multi_key_requests.pop() {
            Some(ordinal) => {
                self.multi_key_requests[ordinal] = multi_key_request;
                ordinal
            }
            None => {
                self.multi_key_requests.push(multi_key_request);
                self.multi_key_requests.len() - 1
            }
        }
    }

    fn end_multi_key_request(&mut self, ordinal: usize) -> Option<Box<MultiKeyRequest>> {
        let multi_key_request = self.multi_key_requests[ordinal].take()?;
        self.free_multi_key_requests.push(ordinal);
        Some(multi_key_request)
    }

    /// Closes a ticket for which nobody waits any more.
    fn abandon(&mut self, ticket: Ticket) {
        let Some((Waiting { source, .. }, part)) = self.open.close(ticket) else { return };
        self.served_mut(source).source.cancel(ticket);
        if let Part::OneOf { multi_key_request, .. } = part {
            self.end_multi_key_request(multi_key_request);
        }
    }

    /// Answers the requests whose timeout has passed.
    fn expire(&mut self, now: Duration) {
        for ordinal in 0..self.sources.len() {
            while let Some((deadline, ticket)) = self.open.first_of_source(ordinal)
                && deadline <= now
            {
                let what = if self.is_write(ticket) { "outcome unknown, " } else { "" };
                let Served { name, source } = self.served_mut(ordinal);
                source.cancel(ticket);
                let error = format!("ERR table {name}: {what}no answer in time");
                self.answer(ticket, Err(error), now);
            }
        }
    }

    fn is_write(&self, ticket: Ticket) -> bool {
        let asked = self.open.content(ticket).and_then(|part| match part {
            Part::Whole { asked, .. } => Some(asked),
            Part::OneOf { multi_key_request, .. } => {
                Some(&self.multi_key_requests[*multi_key_request].as_ref()?.asked)
            }
        });
        asked.is_some_and(|asked| asked.command.flags.has(Flags::WRITE))
    }

    /// Moves finished requests into the batch, up to the limit of one batch. Sorts the replies by
    /// connection and order: net then appends many replies of one connection as one piece.
    fn write_replies(&mut self, stats: &Stats) {
        let finished = self.finished.iter().enumerate();
        self.order.extend(finished.map(|(ordinal, done)| (done.conn.index, done.seq, ordinal)));
        self.order.sort_unstable();
        let batch = &mut self.answered;
        let mut written = 0;
        for &(.., ordinal) in &self.order {
            if BATCH_REPLY_BYTES_MAX <= batch.out.len() {
                break;
            }
            let finished = &self.finished[ordinal];
            write_reply(finished, batch);
            let Asked { class, received, gate, command, .. } = finished.asked;
            add_timing(&mut batch.timings, class, received, gate);
            if finished.answers.any_failed() {
                stats.latencies.count_failed(command);
            }
            written += 1;
        }
        let mut finished: Vec<Option<AnsweredRequest>> = Vec::new();
        if written != self.order.len() {
            // Rarely more finish at once than fit into a turn: the next turn takes the rest.
            finished.extend(self.finished.drain(..).map(Some));
        }
        self.finished.clear();
        let left = self.order.drain(..).skip(written);
        self.finished.extend(left.filter_map(|(.., ordinal)| finished[ordinal].take()));
    }
}

impl Tx {
    /// Adds a table that a source serves. Returns the source's ordinal.
    pub fn add_source(&mut self, name: &str, source: Box<dyn Source>) -> usize {
        let kind = source.kind();
        let ordinal = self.tickets.add(name.to_owned(), source);
        self.request_counts.add_source(ordinal, name, kind);
        self.catalog.add_source(name, ordinal);
        ordinal
    }

    /// Takes an order and the answers of sources, and executes a slice of a job. The returned
    /// batch holds replies and the memory that tx uses for connections, and belongs to the net
    /// stage of the connections named in it.
    pub fn poll_answers(&mut self, now: super::Now) -> Option<RequestBatch> {
        self.start_turn(now);
        self.run_order();
        let tickets = &mut self.tickets;
        let mut stream = std::mem::take(&mut tickets.stream);
        for Served { source, .. } in tickets.sources.iter_mut().flatten() {
            source.poll(&mut stream);
        }
        for event in stream.drain(..) {
            // tx caches nothing of sources yet, so Invalidate and Flush have nothing to do.
            if let SourceEvent::Answer { ticket, outcome, .. } = event {
                tickets.answer(ticket, outcome, now.monotonic);
            }
        }
        tickets.stream = stream;
        tickets.expire(now.monotonic);
        tickets.write_replies(&self.stats);
        if !tickets.slow.is_empty() {
            for slow in std::mem::take(&mut tickets.slow) {
                let args = slow.key.shown(slow.command);
                self.note_source(slow.took, self.session(slow.conn), args);
            }
        }
        if !self.leaving.is_empty() {
            self.hand_over_idle();
        }
        self.stats.source_tickets.set(self.tickets.open.len() as u64);
        let mut answered = std::mem::take(&mut self.tickets.answered);
        self.run_job(&mut answered);
        answered.jobs_ended.1 = self.jobs.ended();
        answered.closes.append(&mut self.closes);
        answered.limits = self.net_limits.take();
        let nothing =
            answered.replies.is_empty() && answered.held.is_empty() && answered.closes.is_empty();
        if nothing && answered.limits.is_none() {
            self.tickets.answered = answered;
            return None;
        }
        Some(answered)
    }

    /// Returns when answers must be polled again without a notification: at the next timeout of a
    /// request at a source, or at once when answers are left over or a job has more slices.
    pub fn next_deadline(&self) -> Option<Duration> {
        if !self.tickets.finished.is_empty() {
            return Some(Duration::ZERO);
        }
        let job = self.jobs.pause().map(|pause| self.now + pause);
        let order = self.order.as_ref().map(|(_, due)| *due);
        [self.tickets.open.next_deadline(), job, order].into_iter().flatten().min()
    }

    /// Returns whether requests are at sources.
    pub fn has_open_tickets(&self) -> bool {
        self.tickets.open.len() != 0
    }

    /// Returns what people call the source's kind.
    pub(super) fn source_kind(&self, ordinal: usize) -> &'static str {
        self.tickets.served(ordinal).source.kind()
    }

    /// Returns whether the source can answer the command, or the error that says it cannot.
    pub(super) fn supported(&self, ordinal: usize, command: &Command) -> Result<(), CommandError> {
        let Served { name, source } = self.tickets.served(ordinal);
        let supports =
            command.source.map_or(Err(Unsupported::Kind), |operation| source.supports(operation));
        let named = |name: &str| name.to_uppercase();
        match supports {
            Ok(()) => Ok(()),
            Err(Unsupported::Kind) => {
                let (command, kind) = (named(command.name), source.kind());
                Err(format!("ERR table {name}: {command} is not supported on a {kind} table")
                    .into())
            }
            Err(Unsupported::Table(why)) => {
                Err(format!("ERR table {name}: {} is not possible: {why}", named(command.name))
                    .into())
            }
        }
    }

    pub(super) fn not_in_multi(&self, ordinal: usize, command: &Command) -> CommandError {
        let Served { name, source } = self.tickets.served(ordinal);
        let (command, kind) = (command.name.to_uppercase(), source.kind());
        format!(
            "ERR table {name}: {command} cannot be queued, transactions span memory tables only \
             and this is a {kind} table; client libraries whose pipelines default to MULTI must \
             turn that off for it"
        )
        .into()
    }

    /// Submits a command with keys of a source, one operation per key (`ordinal` is the source of
    /// one of its keys). A read is submitted completely or not at all; a write that a source
    /// refuses midway reports how many of its keys were written.
    pub(super) fn submit(
        &mut self,
        session: &mut Session,
        id: CommandId,
        command: &'static Command,
        args: &Args<'_>,
        seq: u64,
        ordinal: usize,
    ) -> Result<(), CommandError> {
        let operation = command.source.ok_or(CommandError::Syntax)?;
        check_shape(operation, command, args)?;
        let is_silent = matches!(session.reply_mode, ReplyMode::Off | ReplyMode::Skipping);
        let class = self.request_counts.class_of_source(ordinal, id);
        let asked = Asked {
            command,
            version: session.version,
            gate: Gate::OPEN,
            class,
            received: self.request_counts.received,
            is_silent,
        };
        if command.keys == Keys::ONE {
            let part = Part::Whole { seq, asked, key: KeyStart::new(args) };
            self.submit_one(session, args, ordinal, part, operation)?;
        } else {
            self.submit_several(
                session,
                args,
                MultiKeyRequest {
                    seq,
                    asked,
                    answers: Vec::new(),
                    missing: 0,
                    key: KeyStart::new(args),
                },
            )?;
        }
        self.request_counts.add_pending(class);
        if session.reply_mode == ReplyMode::Skipping {
            session.reply_mode = ReplyMode::On;
        }
        Ok(())
    }

    #[inline]
    fn submit_one(
        &mut self,
        session: &Session,
        args: &Args<'_>,
        ordinal: usize,
        part: Part,
        operation: Operation,
    ) -> Result<(), CommandError> {
        let (key, mut several) = (args.at(1), Vec::new());
        let mut one = [&[][..]];
        let arguments = match args.len() - 2 {
            0 => &one[..0],
            1 => {
                one = [args.at(2)];
                &one
            }
            _ => {
                several.extend(args.iter_from(2));
                &several
            }
        };
        let question = Question { ordinal, operation, key, arguments };
        self.tickets.submit(self.now, session.conn, &question, part).map(drop)
    }

    fn submit_several(
        &mut self,
        session: &Session,
        args: &Args<'_>,
        mut multi_key_request: MultiKeyRequest,
    ) -> Result<(), CommandError> {
        let command = multi_key_request.asked.command;
        let operation = command.source.ok_or(CommandError::Syntax)?;
        let keys = || command.keys.indexes(args.len());
        if SOURCE_TICKETS_MAX < self.tickets.open.len() + keys().count() {
            return Err(CommandError::text(
                "ERR too many requests wait for sources, try again later",
            ));
        }
        multi_key_request.answers = vec![None; keys().count()];
        let multi_key_request = self.tickets.begin_multi_key_request(multi_key_request);
        let mut asked = Vec::new();
        for (index, at) in keys().enumerate() {
            let key = args.at(at);
            let Route::Source(ordinal) = self.catalog.route(session.space, key) else {
                let answer = self.memory_part(session, operation, key);
                self.multi_key_request(multi_key_request).answers[index] = Some(answer);
                continue;
            };
            // The value of MSET follows its key.
            let value = [args.get(at + 1).unwrap_or_default()];
            let arguments = &value[..usize::from(command.keys.step) - 1];
            let question = Question { ordinal, operation, key, arguments };
            match self.tickets.submit(
                self.now,
                session.conn,
                &question,
                Part::OneOf { multi_key_request, index },
            ) {
                Ok(ticket) => {
                    asked.push(ticket);
                    self.multi_key_request(multi_key_request).missing += 1;
                }
                // Earlier keys of this write are already submitted: the client must learn of both.
                Err(error) if operation.is_write() && !asked.is_empty() => {
                    self.multi_key_request(multi_key_request).answers[index] =
                        Some(Err(error.message().into_owned()));
                }
                Err(error) => {
                    self.gate.set(Gate::OPEN);
                    asked.into_iter().for_each(|ticket| self.tickets.abandon(ticket));
                    self.tickets.end_multi_key_request(multi_key_request);
                    return Err(error);
                }
            }
        }
        let gate = self.gate.replace(Gate::OPEN);
        self.multi_key_request(multi_key_request).asked.gate = gate;
        Ok(())
    }

    fn multi_key_request(&mut self, ordinal: usize) -> &mut MultiKeyRequest {
        let multi_key_request = self.tickets.multi_key_requests[ordinal].as_mut();
        multi_key_request.expect("it lasts until its last answer, and none comes during submission")
    }

    /// Answers the part of a reading command whose keys are in memory.
    fn memory_part(&self, session: &Session, operation: Operation, key: &[u8]) -> Answer {
        let key = self.key(session, key);
        Ok(match (operation, self.get(&key)) {
            (Operation::Get, Some(Value::String(value))) => SourceValue::Bulk(
                value.shared().unwrap_or_else(|| Bytes::copy_from_slice(value.as_slice())),
            ),
            (Operation::Exists, found) => SourceValue::Integer(i64::from(found.is_some())),
            _ => SourceValue::Nil,
        })
    }

    /// Cancels the requests of a connection that is gone.
    pub(super) fn cancel_tickets(&mut self, conn: ConnId) {
        while let Some(ticket) = self.tickets.open.first_of_conn(conn) {
            self.tickets.abandon(ticket);
        }
    }
}

/// Checks that the command has no options: `Operation::Set` means a SET without them, for example.
fn check_shape(
    operation: Operation,
    command: &Command,
    args: &Args<'_>,
) -> Result<(), CommandError> {
    let plain = match (operation, command.name) {
        (Operation::Set, "set") => args.len() == 3,
        (Operation::Set, "mset") => args.len() % 2 == 1,
        (Operation::HashSet, _) => args.len().is_multiple_of(2),
        _ => true,
    };
    match (plain, command.name) {
        (true, _) => Ok(()),
        (false, "set") => Err(CommandError::text("ERR SET takes no options on this kind of table")),
        (false, _) => Err(CommandError::Arity(command.name)),
    }
}

/// Appends the reply, to the connection's last reply run when it continues that.
fn write_reply(finished: &AnsweredRequest, batch: &mut RequestBatch) {
    let AnsweredRequest { conn, seq, asked, answers } = finished;
    let (start, first_shared) = (batch.out.len(), batch.shared.len());
    let mut reply = Reply::new(&mut batch.out, &mut batch.shared, asked.version);
    if replies::write(asked, answers, &mut reply).is_err() {
        reply.error(&reply_too_long().message());
    }
    let count = |length: usize| u32::try_from(length).expect("one batch has few large values");
    let (first_shared, shared_count) =
        (count(first_shared), count(batch.shared.len() - first_shared));
    if let Some(last) = batch.replies.last_mut()
        && (last.conn, last.gate) == (*conn, asked.gate)
        && last.first_seq + u64::from(last.seq_count) == *seq
    {
        last.seq_count += 1;
        last.end = batch.out.len();
        last.shared_count += shared_count;
        return;
    }
    batch.replies.push(ReplyRun {
        conn: *conn,
        first_seq: *seq,
        seq_count: 1,
        start,
        end: batch.out.len(),
        first_shared,
        shared_count,
        gate: asked.gate,
        close: false,
    });
}
