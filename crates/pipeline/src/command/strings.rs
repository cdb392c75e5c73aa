//! Commands on strings.
//!
//! A new value replaces whatever the key held together with its expiry, unless the command says
//! otherwise; commands that change part of a value keep the expiry and log only what changed.

mod counters;
pub(super) mod many;
mod options;
mod ranges;

use busload_tables::{StringRef, StringValue};

use super::Call;
use crate::{
    args::Args,
    error::{CommandError, CommandResult},
    reply::Reply,
    tx::{Key, Tx, Write},
};

use options::{Condition, Expiring, Lifetime, Options, Permitted};

use many::{Always, ReadKeys, SetMany, Shown};

pub(super) use counters::{OVERFLOW, decr, decrby, incr, incrby, incrbyfloat};
pub(super) use ranges::{append, getrange, index_range, setrange, strlen};

/// Returns the first argument as a key.
#[inline]
pub(super) fn first_key<'a>(tx: &Tx, call: &Call<'a>) -> Key<'a> {
    tx.key_hashed(call.session, call.args.at(1), call.hash)
}

/// Returns the string at the key, `None` when the key is absent, an error when it holds another
/// kind.
pub(super) fn string<'t>(tx: &'t Tx, key: &Key<'_>) -> Result<Option<StringRef<'t>>, CommandError> {
    tx.get(key).map(|value| value.string().ok_or(CommandError::WrongType)).transpose()
}

/// Returns what [`string`] does and counts a hit or miss.
pub(super) fn read_string<'t>(
    tx: &'t Tx,
    key: &Key<'_>,
) -> Result<Option<StringRef<'t>>, CommandError> {
    tx.read(key).map(|value| value.string().ok_or(CommandError::WrongType)).transpose()
}

/// Returns the argument as a value to be stored, by reference when that is worth it.
#[inline]
pub(super) fn value<'a>(args: &Args<'a>, index: usize) -> StringValue<'a> {
    match args.shared(index) {
        Some(bytes) => StringValue::Shared(bytes),
        None => StringValue::Slice(args.at(index)),
    }
}

pub(super) fn get(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let key = first_key(tx, call);
    reply_with_value(tx, &key, &mut call.reply)?;
    Ok(())
}

/// Answers with the string or null. Returns whether the key was there.
#[inline]
fn reply_with_value(tx: &Tx, key: &Key<'_>, reply: &mut Reply<'_>) -> Result<bool, CommandError> {
    match read_string(tx, key)? {
        Some(value) => {
            reply.value(value);
            Ok(true)
        }
        None => {
            reply.null();
            Ok(false)
        }
    }
}

pub(super) fn set(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let key = first_key(tx, call);
    if call.args.len() == 3 {
        tx.put(&key, value(&call.args, 2), None);
        call.reply.ok();
        return Ok(());
    }
    let options = Options::parse(call.args.cursor(3), Permitted::OfSet)?;
    let keep = matches!(options.lifetime, Some(Lifetime::Keep));
    let expiry = match options.lifetime {
        Some(Lifetime::Until(until)) => Some(until.at(tx.now(), call.command.name)?),
        _ => None,
    };
    let found = match options.get {
        true => reply_with_value(tx, &key, &mut call.reply)?,
        false => tx.get(&key).is_some(),
    };
    if !options.condition.is_none_or(|condition| condition.holds(found)) {
        if !options.get {
            call.reply.null();
        }
        return Ok(());
    }
    let expiry = if keep { tx.expiry(&key).flatten() } else { expiry };
    put_until(tx, &key, value(&call.args, 2), expiry);
    if !options.get {
        call.reply.ok();
    }
    Ok(())
}

/// Sets the string. A value that has expired already is not stored, and the key it would have
/// replaced is deleted.
fn put_until(tx: &mut Tx, key: &Key<'_>, value: StringValue<'_>, expiry: Option<i64>) {
    if expiry.is_some_and(|at| at <= tx.now()) {
        tx.delete(key);
    } else {
        tx.put(key, value, expiry);
    }
}

pub(super) fn setnx(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let key = first_key(tx, call);
    let free = Condition::Absent.holds(tx.get(&key).is_some());
    if free {
        tx.put(&key, value(&call.args, 2), None);
    }
    call.reply.integer(i64::from(free));
    Ok(())
}

pub(super) fn setex(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    set_expiring(tx, call, Expiring::InSeconds)
}

pub(super) fn psetex(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    set_expiring(tx, call, Expiring::InMilliseconds)
}

fn set_expiring(tx: &mut Tx, call: &mut Call<'_>, kind: Expiring) -> CommandResult {
    let key = first_key(tx, call);
    let expiry = kind.number(call.args.at(2)).at(tx.now(), call.command.name)?;
    tx.put(&key, value(&call.args, 3), Some(expiry));
    call.reply.ok();
    Ok(())
}

pub(super) fn getset(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let key = first_key(tx, call);
    reply_with_value(tx, &key, &mut call.reply)?;
    tx.put(&key, value(&call.args, 2), None);
    Ok(())
}

pub(super) fn getdel(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let key = first_key(tx, call);
    if reply_with_value(tx, &key, &mut call.reply)? {
        tx.delete(&key);
    }
    Ok(())
}

pub(super) fn getex(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let key = first_key(tx, call);
    let options = Options::parse(call.args.cursor(2), Permitted::OfGetex)?;
    if !reply_with_value(tx, &key, &mut call.reply)? {
        return Ok(());
    }
    match options.lifetime {
        Some(Lifetime::Until(until)) => {
            let at = until.at(tx.now(), call.command.name)?;
            if at <= tx.now() {
                tx.delete(&key);
            } else {
                tx.set_expiry(&key, Some(at));
            }
        }
        Some(Lifetime::Endless) if tx.expiry(&key).flatten().is_some() => tx.set_expiry(&key, None),
        _ => {}
    }
    Ok(())
}

pub(super) fn mget(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    tx.run_sliced(call, ReadKeys::new(Shown::Values))
}

pub(super) fn mset(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    if tx.sliced {
        check_pairs(call)?;
        return tx.run_sliced(call, Write::new(SetMany::new(Always::Yes)));
    }
    let keys = keys_of_pairs(tx, call)?;
    put_all(tx, call, &keys);
    call.reply.ok();
    Ok(())
}

pub(super) fn msetnx(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    if tx.sliced {
        check_pairs(call)?;
        return tx.run_sliced(call, Write::new(SetMany::new(Always::OnlyIfNoneExists)));
    }
    let keys = keys_of_pairs(tx, call)?;
    let free = keys.iter().all(|key| tx.get(key).is_none());
    if free {
        put_all(tx, call, &keys);
    }
    call.reply.integer(i64::from(free));
    Ok(())
}

fn check_pairs(call: &Call<'_>) -> CommandResult {
    match call.args.len().is_multiple_of(2) {
        true => Err(CommandError::Arity(call.command.name)),
        false => Ok(()),
    }
}

fn keys_of_pairs<'a>(tx: &Tx, call: &Call<'a>) -> Result<Vec<Key<'a>>, CommandError> {
    check_pairs(call)?;
    Ok(tx.keys(call.session, &call.args, 1, 2))
}

fn put_all(tx: &mut Tx, call: &Call<'_>, keys: &[Key<'_>]) {
    for (key, index) in keys.iter().zip((2..).step_by(2)) {
        tx.put(key, value(&call.args, index), None);
    }
}
