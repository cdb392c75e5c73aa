//! Requests at sources: which connection waits for which answers, and what becomes of them.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use busload_io::ConnId;
use busload_resp::Version;
use busload_tables::Value;
use bytes::Bytes;

use super::{Route, Tx};
use crate::{
    args::Args,
    batch::{Batch, ReplySegment},
    command::{Command, Flags},
    error::CommandError,
    gate::Gate,
    limits::SOURCE_TICKETS_MAX,
    reply::Reply,
    session::Session,
    source::{Operation, Source, SourceEvent, SourceRequest, SourceValue, Ticket},
};

/// Sources, and what is open at them.
pub(super) struct Tickets {
    sources: Vec<(String, Box<dyn Source>)>,
    next: u64,
    /// Ticket to the request it belongs to, and which part of it.
    open: HashMap<Ticket, (u64, usize)>,
    pending: HashMap<u64, Pending>,
    deadlines: BTreeSet<(Duration, u64)>,
    stream: Vec<SourceEvent>,
    answered: Batch,
}

/// A request that waits for one or more answers.
struct Pending {
    conn: ConnId,
    seq: u64,
    version: Version,
    command: &'static Command,
    parts: Vec<Option<Answer>>,
    tickets: Vec<Ticket>,
    missing: usize,
    deadline: Duration,
    table: String,
    /// What the parts from memory wait for.
    gate: Gate,
}

type Answer = Result<SourceValue, String>;

impl Tickets {
    pub fn new() -> Self {
        Self {
            sources: Vec::new(),
            next: 0,
            open: HashMap::new(),
            pending: HashMap::new(),
            deadlines: BTreeSet::new(),
            stream: Vec::new(),
            answered: Batch::default(),
        }
    }

    pub fn is_open(&self, ticket: Ticket) -> bool {
        self.open.contains_key(&ticket)
    }

    /// Registers a source; its ordinal.
    pub fn add(&mut self, name: String, source: Box<dyn Source>) -> usize {
        self.sources.push((name, source));
        self.sources.len() - 1
    }
}

impl Tx {
    /// Adds a table that a source answers for.
    pub fn add_source(&mut self, name: &str, source: Box<dyn Source>) {
        let ordinal = self.tickets.add(name.to_owned(), source);
        self.catalog.add_source(name, ordinal);
    }

    /// Takes what sources have answered. The batch that comes out holds replies only and belongs to the net stage
    /// of the connections named in it.
    pub fn poll_sources(&mut self, now: super::Now) -> Option<Batch> {
        self.now = now.monotonic;
        let mut stream = std::mem::take(&mut self.tickets.stream);
        for (_, source) in &mut self.tickets.sources {
            source.poll(&mut stream);
        }
        for event in stream.drain(..) {
            // Nothing is cached here yet, so Invalidate and Flush have nothing to do.
            if let SourceEvent::Answer { ticket, outcome, .. } = event {
                self.answer(ticket, outcome);
            }
        }
        self.tickets.stream = stream;
        self.expire_tickets();
        self.stats.source_tickets.set(self.tickets.open.len() as u64);
        let answered = &mut self.tickets.answered;
        (!answered.replies.is_empty()).then(|| std::mem::take(answered))
    }

    /// When the next request at a source is too late.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.tickets.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Whether requests are at sources.
    pub fn has_open_tickets(&self) -> bool {
        !self.tickets.pending.is_empty()
    }

    /// Whether the source can answer the command, or the error that says it cannot.
    pub(super) fn supported(&self, ordinal: usize, command: &Command) -> Result<(), CommandError> {
        let (name, source) = &self.tickets.sources[ordinal];
        match command.source {
            Some(operation) if source.supports(operation) => Ok(()),
            _ => {
                let (command, kind) = (command.name.to_uppercase(), source.kind());
                Err(format!("ERR table {name}: {command} is not supported on a {kind} table").into())
            }
        }
    }

    pub(super) fn not_in_multi(&self, ordinal: usize, command: &Command) -> CommandError {
        let (name, source) = &self.tickets.sources[ordinal];
        let (command, kind) = (command.name.to_uppercase(), source.kind());
        format!(
            "ERR table {name}: {command} cannot be queued, transactions span memory tables only and this is a {kind} \
             table; client libraries whose pipelines default to MULTI must turn that off for it"
        )
        .into()
    }

    /// Gives a command with keys of a source to it, one operation per key. All or nothing is submitted.
    pub(super) fn submit(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        args: &Args<'_>,
        seq: u64,
    ) -> Result<(), CommandError> {
        let operation = command.source.ok_or(CommandError::Syntax)?;
        check_shape(operation, command, args)?;
        let indexes: Vec<usize> = command.keys.indexes(args.len()).collect();
        if SOURCE_TICKETS_MAX < self.tickets.open.len() + indexes.len() {
            return Err(CommandError::text("ERR too many requests wait for sources, try again later"));
        }
        let id = self.tickets.next;
        let mut pending = Pending {
            conn: session.conn,
            seq,
            version: session.version,
            command,
            parts: vec![None; indexes.len()],
            tickets: Vec::new(),
            missing: 0,
            deadline: Duration::MAX,
            table: String::new(),
            gate: Gate::OPEN,
        };
        self.tickets.next += 1;
        for (part, &index) in indexes.iter().enumerate() {
            let key = args.at(index);
            let Route::Source(ordinal) = self.catalog.route(session.space, key) else {
                pending.parts[part] = Some(self.memory_part(session, operation, key));
                continue;
            };
            let arguments = arguments_of(command, args, index);
            if let Err(error) = self.submit_part(&mut pending, part, id, ordinal, operation, key, &arguments)
            {
                if part == 0 || !operation.is_write() {
                    self.cancel_parts(&pending);
                    return Err(error);
                }
                // Earlier keys of this write are on their way: the client must hear of both.
                pending.parts[part] = Some(Err(error.message().into_owned()));
            }
        }
        pending.gate = self.gate.replace(Gate::OPEN);
        session.tickets.retain(|ticket| self.tickets.open.contains_key(ticket));
        session.tickets.extend_from_slice(&pending.tickets);
        self.tickets.deadlines.insert((pending.deadline, id));
        self.tickets.pending.insert(id, pending);
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "one call, right above")]
    fn submit_part(
        &mut self,
        pending: &mut Pending,
        part: usize,
        id: u64,
        ordinal: usize,
        operation: Operation,
        key: &[u8],
        arguments: &[&[u8]],
    ) -> Result<(), CommandError> {
        let ticket = Ticket(self.tickets.next);
        self.tickets.next += 1;
        let (name, source) = &mut self.tickets.sources[ordinal];
        let deadline = self.now + source.timeout();
        let key = key.get(name.len() + 1..).unwrap_or_default();
        let request = SourceRequest { ticket, conn: pending.conn, operation, key, arguments, deadline };
        if source.submit(request).is_err() {
            return Err(format!("ERR table {name}: too many requests are waiting, try again later").into());
        }
        pending.table.clone_from(name);
        pending.deadline = pending.deadline.min(deadline);
        pending.tickets.push(ticket);
        pending.missing += 1;
        self.tickets.open.insert(ticket, (id, part));
        Ok(())
    }

    /// The part of a reading command that memory answers.
    fn memory_part(&self, session: &Session, operation: Operation, key: &[u8]) -> Answer {
        let key = self.key(session, key);
        Ok(match (operation, self.get(&key)) {
            (Operation::Get, Some(Value::String(value))) => {
                SourceValue::Bulk(value.shared().unwrap_or_else(|| Bytes::copy_from_slice(value.as_slice())))
            }
            (Operation::Exists, found) => SourceValue::Integer(i64::from(found.is_some())),
            _ => SourceValue::Nil,
        })
    }

    fn answer(&mut self, ticket: Ticket, outcome: Answer) {
        let Some((id, part)) = self.tickets.open.remove(&ticket) else { return };
        let Some(pending) = self.tickets.pending.get_mut(&id) else { return };
        pending.parts[part] = Some(outcome);
        pending.missing -= 1;
        if pending.missing == 0 {
            self.finish(id);
        }
    }

    fn finish(&mut self, id: u64) {
        let Some(pending) = self.tickets.pending.remove(&id) else { return };
        self.tickets.deadlines.remove(&(pending.deadline, id));
        let batch = &mut self.tickets.answered;
        let (start, first_shared) = (batch.out.len(), batch.shared.len());
        let mut reply = Reply::new(&mut batch.out, &mut batch.shared, pending.version);
        write_answers(&pending, &mut reply);
        batch.replies.push(ReplySegment {
            conn: pending.conn,
            first_seq: pending.seq,
            seq_count: 1,
            start,
            end: batch.out.len(),
            first_shared: u32::try_from(first_shared).expect("one batch has few large values"),
            shared_count: u32::try_from(batch.shared.len() - first_shared)
                .expect("one batch has few large values"),
            gate: pending.gate,
            close: false,
        });
    }

    /// Answers what a source has not answered in time.
    fn expire_tickets(&mut self) {
        while let Some(&(deadline, id)) = self.tickets.deadlines.first() {
            if self.now < deadline {
                return;
            }
            self.tickets.deadlines.pop_first();
            let Some(pending) = self.tickets.pending.get_mut(&id) else { continue };
            let write = pending.command.flags.has(Flags::WRITE);
            let what = if write { "outcome unknown, " } else { "" };
            let message = format!("ERR table {}: {what}no answer in time", pending.table);
            for part in pending.parts.iter_mut().filter(|part| part.is_none()) {
                *part = Some(Err(message.clone()));
            }
            let tickets = std::mem::take(&mut pending.tickets);
            self.cancel_all(&tickets);
            self.finish(id);
        }
    }

    /// The connection is gone: nobody waits for its answers.
    pub(super) fn cancel_tickets(&mut self, session: &Session) {
        for ticket in &session.tickets {
            if let Some((id, _)) = self.tickets.open.get(ticket).copied()
                && let Some(pending) = self.tickets.pending.remove(&id)
            {
                self.tickets.deadlines.remove(&(pending.deadline, id));
                self.cancel_parts(&pending);
            }
        }
    }

    fn cancel_parts(&mut self, pending: &Pending) {
        self.cancel_all(&pending.tickets);
    }

    fn cancel_all(&mut self, tickets: &[Ticket]) {
        for &ticket in tickets {
            if self.tickets.open.remove(&ticket).is_some() {
                self.tickets.sources.iter_mut().for_each(|(_, source)| source.cancel(ticket));
            }
        }
    }
}

/// SET with options and the like are not what `Operation::Set` means.
fn check_shape(operation: Operation, command: &Command, args: &Args<'_>) -> Result<(), CommandError> {
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

/// What belongs to the key at `index`: the value behind it for MSET, all that follows it otherwise.
fn arguments_of<'a>(command: &Command, args: &Args<'a>, index: usize) -> Vec<&'a [u8]> {
    let per_key = usize::from(command.keys.step) - 1;
    let single = command.keys.first == 1 && command.keys.last == 1;
    let count = if single { args.len() - index - 1 } else { per_key };
    args.iter_from(index + 1).take(count).collect()
}

fn write_answers(pending: &Pending, reply: &mut Reply<'_>) {
    let name = pending.command.name;
    if name == "mget" {
        reply.array(pending.parts.len());
        return pending.parts.iter().for_each(|part| write_answer(part.as_ref(), reply));
    }
    let error = pending.parts.iter().find_map(|part| part.as_ref()?.as_ref().err());
    if let Some(error) = error {
        let failed = pending.parts.iter().filter(|part| matches!(part, Some(Err(_)))).count();
        let done = pending.parts.len() - failed;
        return match pending.parts.len() {
            1 => reply.error(error),
            of => reply.error(&format!("{error} ({done} of {of} keys succeeded)")),
        };
    }
    if pending.parts.len() == 1 {
        return write_answer(pending.parts[0].as_ref(), reply);
    }
    let counts = pending.parts.iter().map(|part| match part {
        Some(Ok(SourceValue::Integer(count))) => *count,
        _ => 0,
    });
    if name == "mset" { reply.ok() } else { reply.integer(counts.sum()) }
}

fn write_answer(answer: Option<&Answer>, reply: &mut Reply<'_>) {
    match answer {
        None | Some(Ok(SourceValue::Nil)) => reply.null(),
        Some(Err(error)) => reply.error(error),
        Some(Ok(SourceValue::Bulk(bytes))) => reply.bulk_bytes(bytes.clone()),
        Some(Ok(SourceValue::Integer(value))) => reply.integer(*value),
        Some(Ok(SourceValue::Done)) => reply.ok(),
        Some(Ok(SourceValue::Values(values))) => {
            reply.array(values.len());
            values.iter().for_each(|value| write_optional(value.as_ref(), reply));
        }
        Some(Ok(SourceValue::Fields(fields))) => {
            reply.map(fields.len());
            for (field, value) in fields {
                reply.bulk(field);
                write_optional(value.as_ref(), reply);
            }
        }
    }
}

fn write_optional(value: Option<&Bytes>, reply: &mut Reply<'_>) {
    match value {
        Some(bytes) => reply.bulk_bytes(bytes.clone()),
        None => reply.null(),
    }
}
