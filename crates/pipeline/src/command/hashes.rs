//! Commands on hashes. A hash exists as long as it has fields: the first field creates it, removing
//! the last one deletes it.

mod all;
mod many;
mod random;
mod scan;

use busload_resp::parse_i64;
use busload_tables::HashRef;

use super::{
    Call,
    strings::{OVERFLOW, first_key},
};
use crate::{
    decimal::Decimal,
    error::{CommandError, CommandResult},
    tx::{Key, Tx, Write},
};

use all::{AllFields, Shown};
use many::{DeleteFields, PutFields, PutReply, SomeFields};

pub(super) use random::hrandfield;
pub(super) use scan::hscan;

/// Returns the hash at the key, `None` when the key is absent, an error when it holds another kind.
fn hash<'t>(tx: &'t Tx, key: &Key<'_>) -> Result<Option<HashRef<'t>>, CommandError> {
    tx.get(key).map(|value| value.hash().ok_or(CommandError::WrongType)).transpose()
}

/// Returns what [`hash`] does and counts a hit or miss.
fn read_hash<'t>(tx: &'t Tx, key: &Key<'_>) -> Result<Option<HashRef<'t>>, CommandError> {
    tx.read(key).map(|value| value.hash().ok_or(CommandError::WrongType)).transpose()
}

pub(super) fn hset(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    if tx.sliced {
        return put_many(tx, call, PutReply::Added);
    }
    let added = put_pairs(tx, call)?;
    call.reply.count(added);
    Ok(())
}

pub(super) fn hmset(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    if tx.sliced {
        return put_many(tx, call, PutReply::Ok);
    }
    put_pairs(tx, call)?;
    call.reply.ok();
    Ok(())
}

fn put_many(tx: &mut Tx, call: &mut Call<'_>, reply: PutReply) -> CommandResult {
    if call.args.len() % 2 == 1 {
        return Err(CommandError::Arity(call.command.name));
    }
    hash(tx, &first_key(tx, call))?;
    tx.run_sliced(call, Write::new(PutFields::new(reply)))
}

fn put_pairs(tx: &mut Tx, call: &Call<'_>) -> Result<usize, CommandError> {
    if call.args.len() % 2 == 1 {
        return Err(CommandError::Arity(call.command.name));
    }
    let key = first_key(tx, call);
    hash(tx, &key)?;
    let fields = call.args.iter_from(2).step_by(2);
    let values = call.args.iter_from(3).step_by(2);
    Ok(tx.hash_put(&key, fields.zip(values)))
}

pub(super) fn hsetnx(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let key = first_key(tx, call);
    let field = call.args.at(2);
    let free = hash(tx, &key)?.is_none_or(|hash| hash.get(field).is_none());
    if free {
        put_field(tx, &key, field, call.args.at(3));
    }
    call.reply.integer(i64::from(free));
    Ok(())
}

fn put_field(tx: &mut Tx, key: &Key<'_>, field: &[u8], value: &[u8]) {
    tx.hash_put(key, std::iter::once((field, value)));
}

pub(super) fn hget(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let key = first_key(tx, call);
    let value = read_hash(tx, &key)?.and_then(|hash| hash.get(call.args.at(2)));
    call.reply.bulk_or_null(value);
    Ok(())
}

pub(super) fn hmget(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let key = first_key(tx, call);
    tx.run_sliced(call, SomeFields::new(&key))
}

pub(super) fn hgetall(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let key = first_key(tx, call);
    tx.run_sliced(call, AllFields::new(&key, Shown::FieldsAndValues))
}

pub(super) fn hkeys(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let key = first_key(tx, call);
    tx.run_sliced(call, AllFields::new(&key, Shown::Fields))
}

pub(super) fn hvals(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let key = first_key(tx, call);
    tx.run_sliced(call, AllFields::new(&key, Shown::Values))
}

pub(super) fn hdel(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let key = first_key(tx, call);
    if hash(tx, &key)?.is_some() && tx.sliced {
        return tx.run_sliced(call, Write::new(DeleteFields::default()));
    }
    let removed = match hash(tx, &key)? {
        Some(_) => tx.hash_delete(&key, call.args.iter_from(2)),
        None => 0,
    };
    call.reply.count(removed);
    Ok(())
}

pub(super) fn hlen(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let key = first_key(tx, call);
    let count = read_hash(tx, &key)?.map_or(0, |hash| hash.len());
    call.reply.count(count);
    Ok(())
}

pub(super) fn hexists(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let key = first_key(tx, call);
    let value = read_hash(tx, &key)?.and_then(|hash| hash.get(call.args.at(2)));
    call.reply.integer(i64::from(value.is_some()));
    Ok(())
}

pub(super) fn hstrlen(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let key = first_key(tx, call);
    let value = read_hash(tx, &key)?.and_then(|hash| hash.get(call.args.at(2)));
    call.reply.count(value.map_or(0, <[u8]>::len));
    Ok(())
}

pub(super) fn hincrby(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let by = call.args.integer(3)?;
    let key = first_key(tx, call);
    let field = call.args.at(2);
    let old = match hash(tx, &key)?.and_then(|hash| hash.get(field)) {
        None => 0,
        Some(value) => {
            parse_i64(value).ok_or(CommandError::text("ERR hash value is not an integer"))?
        }
    };
    let new = old.checked_add(by).ok_or(OVERFLOW)?;
    put_field(tx, &key, field, itoa::Buffer::new().format(new).as_bytes());
    call.reply.integer(new);
    Ok(())
}

pub(super) fn hincrbyfloat(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let by = Decimal::parse(call.args.at(3))?;
    if !by.is_finite() {
        return Err(CommandError::text("ERR value is NaN or Infinity"));
    }
    let key = first_key(tx, call);
    let field = call.args.at(2);
    let old = match hash(tx, &key)?.and_then(|hash| hash.get(field)) {
        None => Decimal::ZERO,
        Some(value) => Decimal::parse(value)
            .map_err(|_| CommandError::text("ERR hash value is not a float"))?,
    };
    let mut new = Vec::new();
    old.add(&by)?.write(&mut new);
    put_field(tx, &key, field, &new);
    call.reply.bulk(&new);
    Ok(())
}
