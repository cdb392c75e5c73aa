//! Commands about the expiry of keys. Times are in Unix milliseconds; a key whose time has come is
//! absent.

use busload_resp::parse_i64;
use busload_tables::UnixMs;

use super::{Call, printable};
use crate::{
    args::Cursor,
    error::{CommandError, CommandResult},
    tx::{Key, Tx},
};

pub(super) fn expire(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let from = tx.now();
    set(tx, call, Unit::Seconds, from)
}

pub(super) fn pexpire(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let from = tx.now();
    set(tx, call, Unit::Milliseconds, from)
}

pub(super) fn expireat(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    set(tx, call, Unit::Seconds, 0)
}

pub(super) fn pexpireat(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    set(tx, call, Unit::Milliseconds, 0)
}

pub(super) fn ttl(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let from = tx.now();
    show(tx, call, Unit::Seconds, from)
}

pub(super) fn pttl(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let from = tx.now();
    show(tx, call, Unit::Milliseconds, from)
}

pub(super) fn expiretime(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    show(tx, call, Unit::Seconds, 0)
}

pub(super) fn pexpiretime(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    show(tx, call, Unit::Milliseconds, 0)
}

pub(super) fn persist(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let key = tx.key_hashed(call.session, call.args.at(1), call.hash);
    let expires = tx.expiry(&key).flatten().is_some();
    if expires {
        tx.set_expiry(&key, None);
    }
    call.reply.integer(i64::from(expires));
    Ok(())
}

#[derive(Clone, Copy)]
enum Unit {
    Seconds,
    Milliseconds,
}

/// Conditions for taking the new time.
#[derive(Clone, Copy, Default)]
struct Conditions {
    /// The key must not have an expiry (NX).
    unset: bool,
    /// The key must have an expiry (XX).
    set: bool,
    /// The new time must be later than the old one (GT); no expiry is later than any time.
    later: bool,
    /// The new time must be earlier than the old one (LT).
    earlier: bool,
}

impl Conditions {
    fn hold(self, old: Option<UnixMs>, new: UnixMs) -> bool {
        let later = old.is_some_and(|old| old < new);
        let earlier = old.is_none_or(|old| new < old);
        (!self.unset || old.is_none())
            && (!self.set || old.is_some())
            && (!self.later || later)
            && (!self.earlier || earlier)
    }
}

fn conditions(mut cursor: Cursor<'_>) -> Result<Conditions, CommandError> {
    let mut of = Conditions::default();
    while let Some(word) = cursor.peek() {
        let flag = if cursor.take_word("nx") {
            &mut of.unset
        } else if cursor.take_word("xx") {
            &mut of.set
        } else if cursor.take_word("gt") {
            &mut of.later
        } else if cursor.take_word("lt") {
            &mut of.earlier
        } else {
            return Err(format!("ERR Unsupported option {}", printable(word, 128)).into());
        };
        *flag = true;
    }
    if of.unset && (of.set || of.later || of.earlier) {
        let text = "ERR NX and XX, GT or LT options at the same time are not compatible";
        return Err(CommandError::text(text));
    }
    if of.later && of.earlier {
        return Err(CommandError::text(
            "ERR GT and LT options at the same time are not compatible",
        ));
    }
    Ok(of)
}

/// Sets the expiry. A time in the past removes the key at once.
fn set(tx: &mut Tx, call: &mut Call<'_>, unit: Unit, from: UnixMs) -> CommandResult {
    let conditions = conditions(call.args.cursor(3))?;
    let time = parse_i64(call.args.at(2)).ok_or(CommandError::NotInteger)?;
    let at = absolute(time, unit, from).ok_or_else(|| {
        CommandError::from(format!("ERR invalid expire time in '{}' command", call.command.name))
    })?;
    let key = tx.key_hashed(call.session, call.args.at(1), call.hash);
    let done = tx.expiry(&key).is_some_and(|old| conditions.hold(old, at));
    if done {
        expire_at(tx, &key, at);
    }
    call.reply.integer(i64::from(done));
    Ok(())
}

fn absolute(time: i64, unit: Unit, from: UnixMs) -> Option<UnixMs> {
    let time_ms = match unit {
        Unit::Seconds => time.checked_mul(1_000)?,
        Unit::Milliseconds => time,
    };
    time_ms.checked_add(from)
}

fn expire_at(tx: &mut Tx, key: &Key<'_>, at: UnixMs) {
    if at <= tx.now() {
        tx.delete(key);
    } else {
        tx.set_expiry(key, Some(at));
    }
}

fn show(tx: &mut Tx, call: &mut Call<'_>, unit: Unit, from: UnixMs) -> CommandResult {
    const ABSENT: i64 = -2;
    const NEVER: i64 = -1;
    let key = tx.key_hashed(call.session, call.args.at(1), call.hash);
    let found = tx.read(&key).is_some();
    let time = match tx.expiry(&key).flatten() {
        _ if !found => ABSENT,
        None => NEVER,
        Some(at) => match unit {
            Unit::Seconds => (at - from).saturating_add(500) / 1_000,
            Unit::Milliseconds => at - from,
        },
    };
    call.reply.integer(time);
    Ok(())
}
