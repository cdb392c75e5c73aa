//! Leads a request to its handler: checks that the command exists, that this client may run it now,
//! and that the log can reserve space for it.

use std::collections::HashMap;

use busload_log::Reservation;
use busload_resp::parse_i64;
use busload_tables::{KeyHash, TableId, Value, effect, limits::STRING_BYTES_MAX};

use super::{Logging, PutOne, Route, Tx, Write, users::check_rights};
use crate::{
    args::Args,
    batch::DeferReason,
    command::{Call, Command, CommandId, Flags, LogReservation, SlicedBy, lookup, printable},
    error::CommandError,
    limits::{
        REPLY_COPIED_BYTES_MAX, SLICED_ARGS_MIN, SLICED_BYTES_MIN, SLICED_FIELDS_MIN, SPACE_COUNT,
    },
    reply::Reply,
    session::{Queue, Session},
};

/// Result of dispatching a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The reply is in the batch.
    Replied,
    /// A source or a job will answer.
    Pending,
    /// The request was not executed; net must submit it again.
    Deferred(DeferReason),
}

/// Reason for which a request cannot run.
pub(super) enum Refusal {
    Error(CommandError),
    Defer(DeferReason),
}

impl From<CommandError> for Refusal {
    fn from(error: CommandError) -> Self {
        Refusal::Error(error)
    }
}

/// Log bytes that the value of each key can take when it is copied.
type Sizes<'a> = HashMap<(TableId, &'a [u8]), usize>;

/// Upper bound of the digits of a number that a command computes.
const NUMBER_BYTES_MAX: usize = 8 * 1024;

impl Tx {
    /// Executes, queues, refuses or submits one request.
    pub(super) fn dispatch(
        &mut self,
        session: &mut Session,
        id: CommandId,
        args: Args<'_>,
        hash: KeyHash,
        seq: u64,
        mut reply: Reply<'_>,
    ) -> Outcome {
        if let Some(barrier) = session.barrier
            && self.tickets.is_open(barrier)
        {
            return Outcome::Deferred(DeferReason::Barrier);
        }
        let any_jobs = self.jobs.any();
        if any_jobs && self.jobs.has(session.conn) {
            return Outcome::Deferred(DeferReason::Barrier);
        }
        let admitted = self.admit(session, id, &args);
        if any_jobs && !matches!(admitted, Err(Refusal::Defer(_))) {
            self.jobs.writer_ran(session.conn);
        }
        let refusal = match admitted {
            Ok(Admitted::Run(command)) => {
                session.last_command = Some(command);
                self.defer_put = self.sliced && command.sliced == SlicedBy::Value;
                let start = reply.mark();
                let started = self.start_timing(command, &args);
                let mut call = Call { session, args, reply, command, hash, in_exec: false };
                self.run(&mut call);
                (self.sliced, self.defer_put) = (false, false);
                if let Some(put) = self.deferred_put.take()
                    && let Err(error) = self.run_sliced(&mut call, Write::new(PutOne::new(put)))
                {
                    call.reply.rewind(start);
                    call.reply.error(&error.message());
                }
                let Call { session, mut reply, .. } = call;
                let outcome = self.take_suspended(session, id, &args, seq, &mut reply, start);
                if let Some(started) = started {
                    self.end_command(started, outcome, session, command, &args);
                }
                if self.monitors.any() && !matches!(outcome, Outcome::Deferred(_)) {
                    self.show_to_monitors(session, command, &args);
                }
                return outcome;
            }
            Ok(Admitted::Queued) => {
                reply.simple("QUEUED");
                return Outcome::Replied;
            }
            Ok(Admitted::Source { command, ordinal }) => {
                match self.submit(session, id, command, &args, seq, ordinal) {
                    Ok(()) => {
                        if self.monitors.any() {
                            self.show_to_monitors(session, command, &args);
                        }
                        return Outcome::Pending;
                    }
                    Err(error) => error,
                }
            }
            Err(Refusal::Defer(reason)) => return Outcome::Deferred(reason),
            Err(Refusal::Error(error)) => error,
        };
        if id == CommandId::UNKNOWN && is_http(args.at(0)) {
            // A web page made a browser talk to us. What follows the header lines is not from a
            // client of ours.
            log::warn!("closing connection {}: it speaks HTTP", session.id);
            session.closing = true;
            return Outcome::Replied;
        }
        self.refuse(session, id, &refusal, &mut reply);
        Outcome::Replied
    }

    /// Runs a handler and turns its error into the reply.
    #[inline(always)]
    pub(crate) fn run(&mut self, call: &mut Call<'_>) {
        let start = call.reply.mark();
        let outcome = match (call.command.handler)(self, call) {
            // EXEC has checked each of its commands separately.
            Ok(()) if call.reply.is_cut_off() && call.command.name != "exec" => {
                Err(reply_too_long())
            }
            outcome => outcome,
        };
        if let Err(error) = outcome {
            call.reply.rewind(start);
            call.reply.error(&error.message());
            self.stats.errors_total.add(1);
            self.stats.latencies.count_failed(call.command);
        }
    }

    /// Replies with an error before execution. It spoils the transaction being queued; a refused
    /// EXEC ends it.
    fn refuse(
        &mut self,
        session: &mut Session,
        id: CommandId,
        error: &CommandError,
        reply: &mut Reply<'_>,
    ) {
        self.stats.errors_total.add(1);
        self.stats.latencies.count_rejected(id);
        if id == lookup(b"exec") {
            session.multi = None;
            session.watching = false;
            self.watches.unwatch(session.conn);
            let message = error.message();
            let reason = message.strip_prefix("ERR ").unwrap_or(&message);
            return reply.error(&format!("EXECABORT Transaction discarded because of: {reason}"));
        }
        if let Some(queue) = &mut session.multi {
            queue.refused = true;
        }
        reply.error(&error.message());
    }

    fn admit(
        &mut self,
        session: &mut Session,
        id: CommandId,
        args: &Args<'_>,
    ) -> Result<Admitted, Refusal> {
        let command = id.command().ok_or_else(|| unknown_command(args))?;
        let command = command.resolve(args)?;
        if !command.accepts(args.len()) {
            return Err(CommandError::Arity(command.name).into());
        }
        if session.restricted {
            check_rights(session, id, command, args)?;
        }
        let queueing = session.multi.is_some() && !command.flags.has(Flags::NOT_QUEUED);
        if queueing && command.flags.has(Flags::NO_MULTI) {
            return Err(CommandError::text("ERR Command not allowed inside a transaction").into());
        }
        if self.jobs.any() && self.must_wait(session, command, args) {
            return Err(Refusal::Defer(DeferReason::Locked));
        }
        if self.new_table.is_some() && command.flags.has(Flags::WRITE) {
            self.note_written(command, args);
        }
        if self.catalog.has_named() && command.keys.first != 0 {
            match self.route_command(session, command, args)? {
                // Keys in memory that a command names beside keys of a source are read at once.
                Some(_)
                    if !queueing
                        && self.jobs.any()
                        && self.wants_locked(session.space, command, args) =>
                {
                    return Err(Refusal::Defer(DeferReason::Locked));
                }
                Some(source) if queueing => return Err(self.not_in_multi(source, command).into()),
                Some(ordinal) => return Ok(Admitted::Source { command, ordinal }),
                None => {}
            }
        }
        if self.needs_memory(command, session) {
            self.make_room(session, command, args)?;
        }
        if queueing {
            session.multi.get_or_insert_default().push(id, args);
            return Ok(Admitted::Queued);
        }
        self.sliced = command.sliced != SlicedBy::Never && self.is_sliced(session, command, args);
        if self.sliced && !self.can_begin_write(session) {
            return Err(Refusal::Defer(DeferReason::Locked));
        }
        if self.catalog.any_logged() {
            self.reserve(session, command, args)?;
        }
        Ok(Admitted::Run(command))
    }

    /// Reserves space in the log for what the command may log, before it changes anything.
    #[inline]
    fn reserve(
        &mut self,
        session: &Session,
        command: &Command,
        args: &Args<'_>,
    ) -> Result<(), Refusal> {
        let bytes = match &session.multi {
            Some(queue) if command.name == "exec" => self.reservation_of_queue(session, queue),
            // The job logs the value in parts; what the handler logs itself may be the removal of
            // an expired key.
            None if self.sliced => key_reservation(args.get(1).unwrap_or_default()),
            None if command.flags.has(Flags::WRITE) => self.reservation_of(session, command, args),
            _ => return Ok(()),
        };
        if bytes == 0 {
            return Ok(());
        }
        match self.log.reserve(bytes as u64) {
            Reservation::Granted => {
                self.reservation_granted = bytes as u64;
                Ok(())
            }
            // After a failure of the log tx answers nothing more: the process is about to stop.
            Reservation::Behind | Reservation::Failed { .. } => {
                Err(Refusal::Defer(DeferReason::LogBehind))
            }
            Reservation::NoSpace { message } => Err(no_space(&message).into()),
        }
    }

    /// Returns whether the write is executed in slices.
    #[inline(always)]
    fn is_sliced(&mut self, session: &Session, command: &Command, args: &Args<'_>) -> bool {
        let is_long = SLICED_BYTES_MIN <= args.request_bytes();
        match command.sliced {
            SlicedBy::Never => false,
            SlicedBy::Args => is_long || SLICED_ARGS_MIN <= args.len(),
            SlicedBy::Value => is_long,
            SlicedBy::Source => self.has_large_value(session, args.at(1)),
            SlicedBy::Patch => SLICED_BYTES_MIN <= self.patch_copies(session, command, args),
        }
    }

    /// Out of line: few commands copy the value of a key.
    #[inline(never)]
    fn has_large_value(&mut self, session: &Session, key: &[u8]) -> bool {
        let key = self.key(session, key);
        match self.tables.get(key.table, key.hash, key.bytes, self.now_ms) {
            None => false,
            Some(Value::String(value)) => SLICED_BYTES_MIN <= value.as_slice().len(),
            Some(Value::Hash(hash)) => {
                SLICED_FIELDS_MIN <= hash.len() || SLICED_BYTES_MIN <= hash.memory_bytes()
            }
        }
    }

    /// Returns how many bytes APPEND, SETRANGE or SETBIT would copy or clear.
    #[inline(never)]
    fn patch_copies(&mut self, session: &Session, command: &Command, args: &Args<'_>) -> usize {
        let key = self.key(session, args.at(1));
        let number =
            || args.get(2).and_then(parse_i64).and_then(|number| usize::try_from(number).ok());
        let offset = match command.name {
            "append" => match self.tables.get(key.table, key.hash, key.bytes, self.now_ms) {
                Some(Value::String(value)) => Some(value.as_slice().len()),
                _ => Some(0),
            },
            "setbit" => number().map(|bit| bit / 8),
            _ => number(),
        };
        // The command refuses an offset beyond.
        let Some(offset) = offset.filter(|offset| *offset <= STRING_BYTES_MAX) else { return 0 };
        let length = args.at(args.len() - 1).len();
        length + self.tables.patch_copies(key.table, key.hash, key.bytes, offset, length)
    }

    /// Returns an upper bound of the log bytes of one command; 0 when none of its keys is logged.
    fn reservation_of(&self, session: &Session, command: &Command, args: &Args<'_>) -> usize {
        let mut keys_bytes = 0;
        let mut logged = command.flags.has(Flags::KEYSPACE);
        for index in command.keys.indexes(args.len()) {
            let key = args.at(index);
            logged |=
                self.catalog.logging(self.catalog.memory_table(session.space, key)) != Logging::Off;
            keys_bytes += key_reservation(key);
        }
        if !logged {
            return 0;
        }
        let tables =
            if command.flags.has(Flags::KEYSPACE) { self.catalog.all_memory().len() } else { 0 };
        let extra = match command.reservation {
            LogReservation::Args => 0,
            LogReservation::Number => NUMBER_BYTES_MAX,
            LogReservation::Values => command
                .keys
                .indexes(args.len())
                .map(|index| self.value_reservation(session, args.at(index)))
                .sum(),
        };
        args.request_bytes()
            + args.len() * effect::PAIR_OVERHEAD_BYTES_MAX
            + keys_bytes
            + (tables + 1) * effect::OVERHEAD_BYTES_MAX
            + extra
    }

    /// Returns an upper bound of the log bytes of a whole transaction. Values can grow in it before
    /// they are copied, so this follows the size that each key can have from command to command.
    fn reservation_of_queue(&self, session: &Session, queue: &Queue) -> usize {
        let tables = 1 + self.catalog.all_memory().len();
        let mut space = session.space;
        let mut sizes: Sizes<'_> = HashMap::new();
        let located = |space, key| (self.catalog.memory_table(space, key), key);
        let size_of = |sizes: &mut Sizes<'_>, (table, key)| {
            sizes
                .get(&(table, key))
                .copied()
                .unwrap_or_else(|| self.value_reservation_in(table, key))
        };
        let mut total = 0;
        for (id, args) in queue.iter() {
            let Some(command) = id.command() else { continue };
            if command.name == "select" {
                space = space_of(args.get(1)).unwrap_or(space);
            }
            if !command.flags.has(Flags::WRITE) {
                continue;
            }
            let keys = command.keys.indexes(args.len());
            let keys_bytes: usize = keys.map(|index| key_reservation(args.at(index))).sum();
            let number =
                if command.reservation == LogReservation::Number { NUMBER_BYTES_MAX } else { 0 };
            let own = args.request_bytes() + args.len() * effect::PAIR_OVERHEAD_BYTES_MAX + number;
            total += own + keys_bytes + tables * effect::OVERHEAD_BYTES_MAX;
            if command.reservation == LogReservation::Values {
                let (from, to, to_space) =
                    (args.at(1), args.at(2), target_space(&args).unwrap_or(space));
                // The command may fail: then the target stays what it was.
                let (from, to) = (located(space, from), located(to_space, to));
                let size = size_of(&mut sizes, from).max(size_of(&mut sizes, to));
                sizes.insert(to, size);
                total += size;
            } else {
                for index in command.keys.indexes(args.len()) {
                    let key = located(space, args.at(index));
                    let size = size_of(&mut sizes, key) + own + growth(&args);
                    sizes.insert(key, size);
                }
            }
        }
        total
    }

    fn value_reservation(&self, session: &Session, key: &[u8]) -> usize {
        self.value_reservation_in(self.catalog.memory_table(session.space, key), key)
    }

    fn value_reservation_in(&self, table: TableId, key: &[u8]) -> usize {
        match self.tables.get(table, self.tables.hash(key), key, self.now_ms) {
            None => 0,
            Some(Value::String(value)) => value.as_slice().len(),
            // The memory of the fields is at least the size of their bytes.
            Some(Value::Hash(fields)) => {
                fields.memory_bytes() + fields.len() * effect::PAIR_OVERHEAD_BYTES_MAX
            }
        }
    }

    #[inline]
    fn needs_memory(&self, command: &Command, session: &Session) -> bool {
        if command.flags.has(Flags::DENYOOM) {
            return true;
        }
        // EXEC needs memory when any of its commands does.
        session.multi.as_ref().is_some_and(|queue| {
            command.name == "exec"
                && queue
                    .iter()
                    .any(|(id, _)| id.command().is_some_and(|c| c.flags.has(Flags::DENYOOM)))
        })
    }

    /// Returns the source that must answer the command, if one must; fails when the command cannot
    /// be answered at all.
    fn route_command(
        &self,
        session: &Session,
        command: &'static Command,
        args: &Args<'_>,
    ) -> Result<Option<usize>, CommandError> {
        let mut source = None;
        let mut mixed = false;
        let mut first = None;
        for index in command.keys.indexes(args.len()) {
            let route = self.catalog.route(session.space, args.at(index));
            if let Route::Source(ordinal) = route {
                self.supported(ordinal, command)?;
                source = Some(ordinal);
            }
            let kind = |route| match route {
                Route::Memory(_) => None,
                Route::Source(ordinal) => Some(self.source_kind(ordinal)),
            };
            mixed |= *first.get_or_insert(kind(route)) != kind(route);
        }
        if mixed && command.flags.has(Flags::WRITE) {
            let text = "ERR keys of more than one kind of table in one write command; nothing was \
                        executed";
            return Err(CommandError::text(text));
        }
        Ok(source)
    }
}

/// Result of admitting a request.
enum Admitted {
    Run(&'static Command),
    Queued,
    Source { command: &'static Command, ordinal: usize },
}

/// Returns by how many bytes SETRANGE and SETBIT can make a string longer than their arguments are.
/// Offsets that they refuse count as none.
fn growth(args: &Args<'_>) -> usize {
    let bits_per_unit = match args.at(0) {
        name if name.eq_ignore_ascii_case(b"setrange") => 8,
        name if name.eq_ignore_ascii_case(b"setbit") => 1,
        _ => return 0,
    };
    let offset = args.get(2).and_then(parse_i64).and_then(|offset| usize::try_from(offset).ok());
    let bytes =
        offset.and_then(|offset| offset.checked_mul(bits_per_unit)).map_or(0, |bits| bits / 8);
    if bytes < STRING_BYTES_MAX { bytes } else { 0 }
}

/// Returns the log bytes of the effects on one key: removing an expired value, removing the key,
/// changing it, setting its expiry.
fn key_reservation(key: &[u8]) -> usize {
    4 * (key.len() + effect::OVERHEAD_BYTES_MAX)
}

/// Returns the space that COPY names as its target, if it does.
pub(super) fn target_space(args: &Args<'_>) -> Option<u16> {
    let db = (3..args.len()).find(|index| args.at(*index).eq_ignore_ascii_case(b"db"))?;
    space_of(args.get(db + 1))
}

/// Returns the space that a SELECT or COPY names.
pub(super) fn space_of(arg: Option<&[u8]>) -> Option<u16> {
    let space = u16::try_from(parse_i64(arg?)?).ok()?;
    (space < SPACE_COUNT).then_some(space)
}

pub(super) fn no_space(message: &str) -> CommandError {
    format!("MISCONF the log has no space, writes are refused until it has: {message}").into()
}

pub(crate) fn reply_too_long() -> CommandError {
    const MIB: usize = 1024 * 1024;
    format!("ERR the reply would pass {} MiB, ask for less at once", REPLY_COPIED_BYTES_MAX / MIB)
        .into()
}

fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

fn unknown_command(args: &Args<'_>) -> CommandError {
    const SHOWN_BYTES: usize = 128;
    let mut shown = String::new();
    for arg in args.iter_from(1) {
        if SHOWN_BYTES <= shown.len() {
            break;
        }
        let left = SHOWN_BYTES - shown.len();
        shown.push_str(&format!("'{}' ", printable(arg, left)));
    }
    let name = printable(args.at(0), SHOWN_BYTES);
    format!("ERR unknown command '{name}', with args beginning with: {shown}").into()
}
