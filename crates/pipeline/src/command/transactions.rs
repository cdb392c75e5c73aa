//! MULTI, EXEC, DISCARD, WATCH and UNWATCH: a client's commands that are executed together, or not
//! at all.
//!
//! The rules are Redis's: a command refused while queueing makes EXEC refuse everything, among them
//! MULTI and WATCH (as in Valkey 8; Redis 7 let EXEC run the other commands); a command
//! that fails while executing fails alone. All changes of EXEC are one transaction: one log record,
//! one LSN.

use busload_tables::KeyHash;

use super::{Call, rights::denial};
use crate::{
    error::{CommandError, CommandResult},
    limits::WATCHED_KEYS_MAX,
    reaper::drop_sized,
    reply::Reply,
    session::{Queue, Session},
    tx::{Tx, WatchedState},
};

pub(super) fn multi(_: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    refuse_in_multi(call.session, "ERR MULTI calls can not be nested")?;
    call.session.multi = Some(Box::default());
    call.reply.ok();
    Ok(())
}

/// Refuses a command inside a transaction, which EXEC then refuses.
fn refuse_in_multi(session: &mut Session, text: &'static str) -> CommandResult {
    match &mut session.multi {
        Some(queue) => {
            queue.refused = true;
            Err(CommandError::text(text))
        }
        None => Ok(()),
    }
}

pub(super) fn exec(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let queue = call.session.multi.take().ok_or(CommandError::text("ERR EXEC without MULTI"))?;
    let changed = watched_keys_changed(tx, call.session);
    unwatch_all(tx, call.session);
    if queue.refused {
        let text = "EXECABORT Transaction discarded because of previous errors.";
        return Err(CommandError::text(text));
    }
    if changed {
        call.reply.null_array();
        return Ok(());
    }
    run_queue(tx, call, &queue);
    free(queue);
    Ok(())
}

fn free(queue: Box<Queue>) {
    let bytes = queue.memory_bytes();
    drop_sized(queue, bytes);
}

fn run_queue(tx: &mut Tx, call: &mut Call<'_>, queue: &Queue) {
    call.reply.array(queue.len());
    for (id, args) in queue.iter() {
        let command = id.command().expect("only commands are queued");
        let command = command.resolve(&args).expect("subcommands are checked when queued");
        if call.session.restricted
            && let Some(denied) = denial(&call.session.user, id, command, &args)
        {
            tx.stats.errors_total.add(1);
            tx.stats.latencies.count_rejected(id);
            call.reply.error(&denied.error_in_exec().message());
            continue;
        }
        let hash = match command.keys.first {
            0 => KeyHash(0),
            first => tx.hash(args.at(usize::from(first))),
        };
        let reply: Reply<'_> = call.reply.reborrow();
        let mut inner = Call { session: call.session, args, reply, command, hash, in_exec: true };
        let started = tx.start_timing(command, &args);
        tx.run(&mut inner);
        let version = inner.reply.version();
        call.reply.set_version(version);
        if let Some(started) = started {
            tx.end_inner_command(started, call.session, command, &args);
        }
        if tx.monitors.any() {
            tx.show_to_monitors(call.session, command, &args);
        }
    }
}

/// Returns whether EXEC must fail. The answer depends on the watched keys, so the reply waits for
/// their last change.
fn watched_keys_changed(tx: &Tx, session: &Session) -> bool {
    if !session.watching {
        return false;
    }
    let mut changed = tx.watches.changed(session.conn);
    for (table, bytes, was_expired) in tx.watches.watched(session.conn) {
        let key = crate::tx::Key { table, hash: tx.hash(bytes), bytes };
        let live = tx.get(&key).is_some();
        changed |= !live && !was_expired && tx.is_expired(&key);
    }
    changed
}

/// Ends WATCH for the connection.
pub(super) fn unwatch_all(tx: &mut Tx, session: &mut Session) {
    if session.watching {
        session.watching = false;
        tx.watches.unwatch(session.conn);
    }
}

pub(super) fn discard(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    free(call.session.multi.take().ok_or(CommandError::text("ERR DISCARD without MULTI"))?);
    unwatch_all(tx, call.session);
    call.reply.ok();
    Ok(())
}

pub(super) fn watch(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    refuse_in_multi(call.session, "ERR WATCH inside MULTI is not allowed")?;
    if WATCHED_KEYS_MAX < tx.watches.key_count(call.session.conn) + call.args.len() - 1 {
        let text = format!("ERR too many watched keys, a client can watch {WATCHED_KEYS_MAX}");
        return Err(CommandError::from(text));
    }
    for key in tx.keys(call.session, &call.args, 1, 1) {
        let state = match tx.is_live_for_watch(&key) {
            true => WatchedState::Live,
            false if tx.is_expired(&key) => WatchedState::Expired,
            false => WatchedState::Absent,
        };
        tx.watches.watch(call.session.conn, &key, state);
    }
    call.session.watching = true;
    call.reply.ok();
    Ok(())
}

pub(super) fn unwatch(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    unwatch_all(tx, call.session);
    call.reply.ok();
    Ok(())
}
