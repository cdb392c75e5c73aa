//! Commands on parts of strings.

use std::ops::Range;

use super::{first_key, read_string, string, value};
use crate::{
    command::Call,
    error::{CommandError, CommandResult},
    tx::{Key, PatchOne, Tx, Write},
};
use busload_tables::limits::STRING_BYTES_MAX;
use bytes::Bytes;

pub(in crate::command) fn append(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let key = first_key(tx, call);
    let more = call.args.at(2);
    let length = match string(tx, &key)?.map(|value| value.as_slice().len()) {
        None if tx.sliced => {
            call.reply.count(more.len());
            return patch_in_slices(tx, call, &key, 0, 2);
        }
        None => {
            tx.put(&key, value(&call.args, 2), None);
            more.len()
        }
        Some(length) => {
            check_length(length, more.len())?;
            if tx.sliced {
                call.reply.count(length + more.len());
                return patch_in_slices(tx, call, &key, length, 2);
            }
            tx.patch(&key, length, more)
        }
    };
    call.reply.count(length);
    Ok(())
}

pub(in crate::command) fn strlen(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let key = first_key(tx, call);
    let length = read_string(tx, &key)?.map_or(0, |value| value.as_slice().len());
    call.reply.count(length);
    Ok(())
}

pub(in crate::command) fn setrange(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let key = first_key(tx, call);
    let offset = usize::try_from(call.args.integer(2)?)
        .map_err(|_| CommandError::text("ERR offset is out of range"))?;
    let bytes = call.args.at(3);
    let old_length = string(tx, &key)?.map_or(0, |value| value.as_slice().len());
    if bytes.is_empty() {
        call.reply.count(old_length);
        return Ok(());
    }
    check_length(offset, bytes.len())?;
    if tx.sliced {
        call.reply.count(old_length.max(offset + bytes.len()));
        return patch_in_slices(tx, call, &key, offset, 3);
    }
    let length = tx.patch(&key, offset, bytes);
    call.reply.count(length);
    Ok(())
}

/// Writes the argument into part of a large value, in slices. The reply is written already.
fn patch_in_slices(
    tx: &mut Tx,
    call: &mut Call<'_>,
    key: &Key<'_>,
    offset: usize,
    index: usize,
) -> CommandResult {
    let args = call.args;
    let patch = args.shared(index).unwrap_or_else(|| Bytes::copy_from_slice(args.at(index)));
    let patch = PatchOne::new(tx, key, offset, patch);
    tx.run_sliced(call, Write::new(patch))
}

fn check_length(offset: usize, more: usize) -> CommandResult {
    match offset.checked_add(more) {
        Some(length) if length <= STRING_BYTES_MAX => Ok(()),
        _ => Err(CommandError::StringTooLong),
    }
}

/// Executes GETRANGE and SUBSTR, its old name.
pub(in crate::command) fn getrange(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let (first, last) = (call.args.integer(2)?, call.args.integer(3)?);
    let key = first_key(tx, call);
    let Some(value) = read_string(tx, &key)? else {
        call.reply.bulk(b"");
        return Ok(());
    };
    let range = index_range(first, last, value.as_slice().len());
    match value.shared() {
        Some(bytes) => call.reply.bulk_bytes(bytes.slice(range)),
        None => call.reply.bulk(&value.as_slice()[range]),
    }
    Ok(())
}

/// Returns the elements from `first` to `last`, both included, of `count`; negative ones count from
/// the end, -1 is the last.
pub(in crate::command) fn index_range(first: i64, last: i64, count: usize) -> Range<usize> {
    // Two positions before the first element, in the wrong order, would look like a range once they
    // are cut off at 0.
    if first < 0 && last < 0 && last < first {
        return 0..0;
    }
    let from_start = |index: i64| match usize::try_from(index) {
        Ok(index) => index,
        Err(_) => count.saturating_sub(usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX)),
    };
    let (start, end) = (from_start(first), from_start(last).saturating_add(1).min(count));
    if start < end { start..end } else { 0..0 }
}
