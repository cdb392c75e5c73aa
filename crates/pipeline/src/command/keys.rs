//! Commands on keys of any kind: remove, move, copy, inspect.

use busload_resp::parse_i64;
use busload_tables::{HashRef, StringRef, TableId, Value, ValueKind};

mod large;

use super::{
    Call,
    strings::many::{ReadKeys, Shown},
};
use crate::{
    args::Cursor,
    error::{CommandError, CommandResult},
    limits::{MEMORY_SAMPLES_MAX, SPACE_COUNT},
    tx::{Key, Tx, Write},
};
use large::{CopyKey, CopyReply, DeleteMany, Source};

/// Executes DEL and UNLINK: both free large values in small steps.
pub(super) fn del(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    if tx.sliced {
        return tx.run_sliced(call, Write::new(DeleteMany::default()));
    }
    let keys = tx.keys(call.session, &call.args, 1, 1);
    let count = keys.iter().filter(|key| tx.delete(key)).count();
    call.reply.count(count);
    Ok(())
}

/// Executes EXISTS; a key named twice counts twice.
pub(super) fn exists(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    tx.run_sliced(call, ReadKeys::new(Shown::Count))
}

pub(super) fn type_of(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let key = tx.key_hashed(call.session, call.args.at(1), call.hash);
    let kind = tx.read(&key).map(|value| value.kind());
    call.reply.simple(kind.map_or("none", kind_name));
    Ok(())
}

/// Returns the name that TYPE and SCAN use.
pub(super) fn kind_name(kind: ValueKind) -> &'static str {
    match kind {
        ValueKind::String => "string",
        ValueKind::Hash => "hash",
    }
}

pub(super) fn rename(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let (from, to) = from_and_to(tx, call)?;
    if !same(&from, &to) {
        if tx.sliced {
            let copy = CopyKey::new(tx, &from, &to, Source::Removed, CopyReply::Ok);
            return tx.run_sliced(call, Write::new(copy));
        }
        move_key(tx, &from, &to);
    }
    call.reply.ok();
    Ok(())
}

pub(super) fn renamenx(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let (from, to) = from_and_to(tx, call)?;
    let free = !same(&from, &to) && tx.get(&to).is_none();
    if free && tx.sliced {
        let copy = CopyKey::new(tx, &from, &to, Source::Removed, CopyReply::One);
        return tx.run_sliced(call, Write::new(copy));
    }
    if free {
        move_key(tx, &from, &to);
    }
    call.reply.integer(i64::from(free));
    Ok(())
}

fn from_and_to<'a>(tx: &Tx, call: &Call<'a>) -> Result<(Key<'a>, Key<'a>), CommandError> {
    let from = tx.key_hashed(call.session, call.args.at(1), call.hash);
    let to = tx.key(call.session, call.args.at(2));
    match tx.get(&from) {
        Some(_) => Ok((from, to)),
        None => Err(CommandError::text("ERR no such key")),
    }
}

fn same(a: &Key<'_>, b: &Key<'_>) -> bool {
    a.table == b.table && a.bytes == b.bytes
}

fn move_key(tx: &mut Tx, from: &Key<'_>, to: &Key<'_>) {
    copy_key(tx, from, to);
    tx.delete(from);
}

pub(super) fn copy(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let CopyOptions { space, replace } = copy_options(call.args.cursor(3), call.session.space)?;
    let from = tx.key_hashed(call.session, call.args.at(1), call.hash);
    let to = call.args.at(2);
    let to = Key { table: tx.catalog.memory_table(space, to), hash: tx.hash(to), bytes: to };
    if same(&from, &to) {
        return Err(CommandError::text("ERR source and destination objects are the same"));
    }
    let copied = tx.get(&from).is_some() && (tx.get(&to).is_none() || replace);
    if copied && tx.sliced {
        let copy = CopyKey::new(tx, &from, &to, Source::Kept, CopyReply::One);
        return tx.run_sliced(call, Write::new(copy));
    }
    if copied {
        copy_key(tx, &from, &to);
    }
    call.reply.integer(i64::from(copied));
    Ok(())
}

struct CopyOptions {
    space: u16,
    replace: bool,
}

fn copy_options(mut cursor: Cursor<'_>, space: u16) -> Result<CopyOptions, CommandError> {
    let mut options = CopyOptions { space, replace: false };
    while cursor.peek().is_some() {
        if cursor.take_word("replace") {
            options.replace = true;
        } else if cursor.take_word("db") {
            options.space = space_number(cursor.expect()?)?;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    Ok(options)
}

/// Parses the number of a SELECT space.
pub(super) fn space_number(arg: &[u8]) -> Result<u16, CommandError> {
    let number = parse_i64(arg).ok_or(CommandError::NotInteger)?;
    if i32::try_from(number).is_err() {
        let text = "ERR value is out of range, value must between -2147483648 and 2147483647";
        return Err(CommandError::text(text));
    }
    u16::try_from(number)
        .ok()
        .filter(|space| *space < SPACE_COUNT)
        .ok_or(CommandError::text("ERR DB index is out of range"))
}

pub(super) fn randomkey(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let tables = listed(tx, call.session.space);
    let total: usize = tables.iter().map(|&table| tx.key_count(table)).sum();
    let mut ordinal = random_below(tx, total);
    // Choose a table with a probability proportional to its size; a chosen table with only expired
    // keys must not hide the keys of others.
    let first = tables.iter().position(|&table| match ordinal.checked_sub(tx.key_count(table)) {
        Some(rest) => {
            ordinal = rest;
            false
        }
        None => true,
    });
    let random = tx.rng.next_u64();
    let first = first.unwrap_or(0);
    let in_turn = tables[first..].iter().chain(&tables[..first]);
    let key = in_turn.copied().find_map(|table| tx.random_key(table, random));
    call.reply.bulk_or_null(key);
    Ok(())
}

fn random_below(tx: &mut Tx, end: usize) -> usize {
    let end = (end as u64).max(1);
    usize::try_from(tx.rng.next_u64() % end).expect("less than a count of keys")
}

/// Returns the tables whose keys a client in this space sees; the reply waits for the last change
/// to any of them.
pub(super) fn listed(tx: &Tx, space: u16) -> Vec<TableId> {
    let tables = tx.catalog.listed(space);
    tables.iter().for_each(|&table| tx.join_table_gate(table));
    tables
}

pub(super) fn dbsize(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let tables = listed(tx, call.session.space);
    call.reply.count(tables.iter().map(|&table| tx.key_count(table)).sum());
    Ok(())
}

pub(super) fn flushdb(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let tables = tx.catalog.listed(call.session.space);
    flush(tx, call, &tables)
}

pub(super) fn flushall(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let tables = tx.catalog.all_memory();
    flush(tx, call, &tables)
}

/// Empties tables. ASYNC and SYNC are the same here: the tables are empty at once, and their memory
/// is freed in small steps.
fn flush(tx: &mut Tx, call: &mut Call<'_>, tables: &[TableId]) -> CommandResult {
    let mut cursor = call.args.cursor(1);
    let _mode = cursor.take_word("async") || cursor.take_word("sync");
    if cursor.left() != 0 {
        return Err(CommandError::Syntax);
    }
    tables.iter().for_each(|&table| tx.flush(table));
    call.reply.ok();
    Ok(())
}

/// Returns the value that `OBJECT x key` and `MEMORY USAGE key` refer to.
fn object<'t>(tx: &'t Tx, call: &Call<'_>) -> Option<Value<'t>> {
    let key = tx.key(call.session, call.args.at(2));
    tx.get(&key)
}

/// Answers the encoding that Redis would use for such a value after the commands that made it, as
/// tools expect.
pub(super) fn object_encoding(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let key = tx.key(call.session, call.args.at(2));
    let name = tx.get(&key).map(|value| match (value, tx.is_general(&key)) {
        (Value::String(_), true) => "raw",
        (Value::String(string), false) => string_encoding(string),
        (Value::Hash(_), true) => "hashtable",
        (Value::Hash(_), false) => "listpack",
    });
    call.reply.bulk_or_null(name.map(str::as_bytes));
    Ok(())
}

/// Copies a value with its expiry, and with the mark that Redis would keep it in its general form.
fn copy_key(tx: &mut Tx, from: &Key<'_>, to: &Key<'_>) {
    let (expiry, general) = (tx.expiry(from).flatten(), tx.is_general(from));
    tx.copy(from, to, expiry);
    if general {
        tx.make_general(to);
    }
}

/// Returns the encoding of a string that was written as a whole.
fn string_encoding(string: StringRef<'_>) -> &'static str {
    const EMBEDDED_BYTES_MAX: usize = 44;
    let bytes = string.as_slice();
    if parse_i64(bytes).is_some() {
        "int"
    } else if bytes.len() <= EMBEDDED_BYTES_MAX {
        "embstr"
    } else {
        "raw"
    }
}

pub(super) fn object_refcount(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    integer_if_there(tx, call, 1)
}

/// Answers 0: last accesses are not recorded, so nothing has ever been idle.
pub(super) fn object_idletime(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    integer_if_there(tx, call, 0)
}

fn integer_if_there(tx: &mut Tx, call: &mut Call<'_>, value: i64) -> CommandResult {
    match object(tx, call) {
        Some(_) => call.reply.integer(value),
        None => call.reply.null(),
    }
    Ok(())
}

pub(super) fn object_freq(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    if object(tx, call).is_some() {
        return Err(CommandError::text(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please \
             note that when switching between policies at runtime LRU and LFU data will take some \
             time to adjust.",
        ));
    }
    call.reply.null();
    Ok(())
}

/// Mean memory of the index and an entry's header, beyond key and value.
const ENTRY_OVERHEAD_BYTES: usize = 24;
/// Number of fields to read when SAMPLES is not given, as in Redis.
const SAMPLES: usize = 5;

/// Answers the memory of key and value; that of a large hash is estimated from its first fields.
pub(super) fn memory_usage(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let samples = memory_samples(call.args.cursor(3))?;
    let key_bytes = call.args.at(2).len() + ENTRY_OVERHEAD_BYTES;
    match object(tx, call) {
        None => call.reply.null(),
        Some(Value::String(string)) => call.reply.count(key_bytes + string.as_slice().len()),
        Some(Value::Hash(hash)) => call.reply.count(key_bytes + hash_bytes(hash, samples)),
    }
    Ok(())
}

fn memory_samples(mut cursor: Cursor<'_>) -> Result<usize, CommandError> {
    let mut samples = SAMPLES;
    while cursor.peek().is_some() {
        if !cursor.take_word("samples") {
            return Err(CommandError::Syntax);
        }
        samples = usize::try_from(cursor.expect_integer()?).map_err(|_| CommandError::Syntax)?;
    }
    Ok(if samples == 0 { usize::MAX } else { samples })
}

fn hash_bytes(hash: HashRef<'_>, samples: usize) -> usize {
    const PAIR_OVERHEAD_BYTES: usize = 8;
    let samples = samples.min(hash.len()).clamp(1, MEMORY_SAMPLES_MAX);
    let sampled: usize = hash
        .iter()
        .take(samples)
        .map(|(field, value)| field.len() + value.len() + PAIR_OVERHEAD_BYTES)
        .sum();
    usize::try_from(sampled as u128 * hash.len() as u128 / samples as u128).unwrap_or(usize::MAX)
}
