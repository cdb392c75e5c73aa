//! Numbers stored as text: INCR and its relatives.

use busload_resp::parse_i64;
use busload_tables::StringValue;

use super::{first_key, string};
use crate::{
    command::Call,
    decimal::Decimal,
    error::{CommandError, CommandResult},
    tx::{Key, Tx},
};

/// Error of an integer sum beyond 64 bits.
pub(in crate::command) const OVERFLOW: CommandError =
    CommandError::text("ERR increment or decrement would overflow");

pub(in crate::command) fn incr(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    increment(tx, call, 1)
}

pub(in crate::command) fn decr(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    increment(tx, call, -1)
}

pub(in crate::command) fn incrby(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let by = call.args.integer(2)?;
    increment(tx, call, by)
}

pub(in crate::command) fn decrby(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let by = call.args.integer(2)?.checked_neg();
    increment(tx, call, by.ok_or(CommandError::text("ERR decrement would overflow"))?)
}

fn increment(tx: &mut Tx, call: &mut Call<'_>, by: i64) -> CommandResult {
    let key = first_key(tx, call);
    let old = match string(tx, &key)? {
        None => 0,
        Some(value) => parse_i64(value.as_slice()).ok_or(CommandError::NotInteger)?,
    };
    let new = old.checked_add(by).ok_or(OVERFLOW)?;
    put_number(tx, &key, itoa::Buffer::new().format(new).as_bytes());
    call.reply.integer(new);
    Ok(())
}

pub(in crate::command) fn incrbyfloat(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let key = first_key(tx, call);
    let old = match string(tx, &key)? {
        None => Decimal::ZERO,
        Some(value) => Decimal::parse(value.as_slice())?,
    };
    let by = Decimal::parse(call.args.at(2))?;
    let mut new = Vec::new();
    old.add(&by)?.write(&mut new);
    put_number(tx, &key, &new);
    call.reply.bulk(&new);
    Ok(())
}

/// Replaces the value and keeps the expiry.
fn put_number(tx: &mut Tx, key: &Key<'_>, number: &[u8]) {
    let expiry = tx.expiry(key).flatten();
    tx.put(key, StringValue::Slice(number), expiry);
}
