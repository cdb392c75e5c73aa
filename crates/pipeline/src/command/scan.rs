//! The commands KEYS and SCAN.
//!
//! A cursor of SCAN is the ordinal of a table among those the client sees, and a position in the
//! order of key hashes in it. A growing table only splits ranges of hashes, so a scan from start to
//! end returns every entry that stays at least once. Cursors are below 2^53: clients that keep them
//! in a double lose nothing.

use std::{cell::Cell, sync::Arc};

use busload_acl::{Need, User};
use busload_tables::{KeyHash, TableId, ValueKind};
use bytes::Bytes;

use super::{Call, keys};
use crate::{
    args::{Args, Cursor},
    error::{CommandError, CommandResult},
    glob::Pattern,
    limits::{
        JOB_PIECE_BYTES, MATCH_STEPS_PER_STEP, REPLY_COPIED_BYTES_MAX, SCAN_ENTRIES_AT_ONCE,
        SCAN_ENTRIES_MAX, SCAN_REPLY_BYTES, SCAN_STEPS_MAX, TABLE_COUNT_MAX,
    },
    tx::{Locks, Slice, Step, Tx, Work, reply_too_long},
};

/// Number of cursor bits that are a position within a table.
const POSITION_BITS: u32 = 40;
const POSITION_MASK: u64 = (1 << POSITION_BITS) - 1;
const COUNT_DEFAULT: usize = 10;

const _: () = assert!(
    (TABLE_COUNT_MAX as u64) < 1 << (53 - POSITION_BITS),
    "ordinal and position of any table fit into 53 bits"
);

pub(super) fn keys(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let tables = tx.catalog.listed(call.session.space);
    let pattern = Pattern::compile(call.args.at(1))?;
    let reader = call.session.limited_reader();
    tx.run_sliced(call, AllKeys { reader, ..AllKeys::new(tables, pattern) })
}

/// Work of KEYS: collects every key that stays from start to end, once, and possibly keys that come
/// or go meanwhile.
struct AllKeys {
    tables: Vec<TableId>,
    pattern: Pattern,
    /// User whose keys are shown; none: all keys.
    reader: Option<Arc<User>>,
    /// Ordinal of the table that is being scanned; `from` is the position in it.
    next: usize,
    from: KeyHash,
    /// Keys, encoded for the reply, which begins with their count.
    found: Vec<Bytes>,
    found_bytes: usize,
    encoded: Vec<u8>,
    count: usize,
}

impl AllKeys {
    fn new(tables: Vec<TableId>, pattern: Pattern) -> Self {
        let (found, encoded) = Default::default();
        Self {
            tables,
            pattern,
            reader: None,
            next: 0,
            from: KeyHash(0),
            found,
            found_bytes: 0,
            encoded,
            count: 0,
        }
    }

    /// Moves the encoded keys to `found` when they have more bytes than this.
    fn seal(&mut self, bytes: usize) -> CommandResult {
        if bytes < self.encoded.len() {
            self.found_bytes += self.encoded.len();
            self.found.push(Bytes::from(std::mem::take(&mut self.encoded)));
        }
        if REPLY_COPIED_BYTES_MAX < self.found_bytes { Err(reply_too_long()) } else { Ok(()) }
    }
}

impl Work for AllKeys {
    fn step(&mut self, tx: &mut Tx, slice: &mut Slice<'_>) -> Result<Step, CommandError> {
        while let Some(&table) = self.tables.get(self.next) {
            tx.join_table_gate(table);
            let Self { pattern, reader, encoded, count, .. } = self;
            let (steps, full, mut too_costly) = (Cell::new(1), Cell::new(false), None);
            let mut emit = |key: &[u8]| {
                let mut cost = 0;
                let shown = may_show(reader.as_deref(), key, &mut cost);
                let taken = if shown { pattern.decide(key, &mut cost) } else { Some(false) };
                match taken {
                    None => too_costly = Some(key.len()),
                    Some(false) => {}
                    Some(true) => {
                        busload_resp::write_bulk(encoded, key);
                        full.set(JOB_PIECE_BYTES <= encoded.len());
                        *count += 1;
                    }
                }
                steps.set(steps.get() + 1 + cost / MATCH_STEPS_PER_STEP);
            };
            let budget = &mut slice.budget;
            let mut go_on = || budget.spend(steps.replace(0)) && !full.get();
            let next = tx.scan_once(table, self.from, &mut emit, &mut go_on);
            if let Some(bytes) = too_costly {
                return Err(pattern_too_costly(bytes));
            }
            self.seal(JOB_PIECE_BYTES)?;
            match next {
                Some(from) => self.from = from,
                None => (self.next, self.from) = (self.next + 1, KeyHash(0)),
            }
            if !slice.budget.spend(1) {
                return Ok(Step::More);
            }
        }
        self.seal(0)?;
        slice.reply.array(self.count);
        self.found.drain(..).for_each(|piece| slice.reply.raw(piece));
        Ok(Step::Done)
    }

    fn suspend(&mut self, _: &Tx, _: u16, _: &Args<'_>) {}

    fn knows_tables(&self) -> bool {
        true
    }

    fn locks(&self) -> Option<&Locks> {
        None
    }

    fn memory_bytes(&self) -> usize {
        self.found_bytes + self.encoded.capacity()
    }
}

/// Returns the error for a pattern with many classes or `?` between stars, the only expensive kind.
pub(super) fn pattern_too_costly(bytes: usize) -> CommandError {
    format!(
        "ERR this pattern takes too long to compare with a key or field of {bytes} bytes: use \
         fewer classes and question marks between two stars"
    )
    .into()
}

pub(super) fn scan(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let cursor = parse_cursor(call.args.at(1))?;
    let Options { count, mut filter } = options(call.args.cursor(2))?;
    filter.reader = call.session.limited_reader();
    let tables = tx.catalog.scanned(call.session.space);
    tables.iter().flatten().for_each(|&table| tx.join_table_gate(table));
    let mut found = Found::default();
    let next = scan_tables(tx, &tables, cursor, count, &filter, &mut found);
    if let Some(bytes) = found.too_costly {
        return Err(pattern_too_costly(bytes));
    }
    call.reply.array(2);
    call.reply.bulk(itoa::Buffer::new().format(next).as_bytes());
    found.write(call);
    Ok(())
}

/// Scans one table after the other until it has visited enough entries. Returns the next cursor, 0
/// at the end.
fn scan_tables(
    tx: &Tx,
    tables: &[Option<TableId>],
    cursor: u64,
    count: usize,
    filter: &Filter,
    found: &mut Found,
) -> u64 {
    let (first, mut position) = (cursor >> POSITION_BITS, cursor & POSITION_MASK);
    let first = usize::try_from(first).unwrap_or(usize::MAX).min(tables.len());
    for (ordinal, &table) in (first as u64..).zip(&tables[first..]) {
        if found.is_enough(count) {
            return ordinal << POSITION_BITS;
        }
        let Some(table) = table else {
            position = 0;
            continue;
        };
        while let Some(next) = scan_table(tx, table, position, count - found.visited, filter, found)
        {
            if found.is_enough(count) {
                return ordinal << POSITION_BITS | next;
            }
            position = next;
        }
        position = 0;
    }
    0
}

fn scan_table(
    tx: &Tx,
    table: TableId,
    position: u64,
    count: usize,
    filter: &Filter,
    found: &mut Found,
) -> Option<u64> {
    tx.scan(table, position, count.min(SCAN_ENTRIES_AT_ONCE), &mut |key, kind| {
        found.visited += 1;
        match filter.takes(key, kind, &mut found.steps) {
            Some(true) => found.push(key),
            Some(false) => {}
            None => found.too_costly = Some(key.len()),
        }
    })
}

/// Parses a cursor as Redis does (`strtoul`): a sign may precede the digits, and the digits may be
/// missing.
pub(super) fn parse_cursor(arg: &[u8]) -> Result<u64, CommandError> {
    const INVALID: CommandError = CommandError::text("ERR invalid cursor");
    let (negative, digits) = match arg {
        [] => return Ok(0),
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(INVALID);
    }
    let value = digits.iter().try_fold(0_u64, |value, digit| {
        value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    });
    let value = value.ok_or(INVALID)?;
    Ok(if negative { value.wrapping_neg() } else { value })
}

struct Options {
    count: usize,
    filter: Filter,
}

fn options(mut cursor: Cursor<'_>) -> Result<Options, CommandError> {
    let mut options = Options {
        count: COUNT_DEFAULT,
        filter: Filter { pattern: None, reader: None, kind: Wanted::Any },
    };
    let mut last_pattern = None;
    while cursor.peek().is_some() {
        if cursor.take_word("count") {
            let count = cursor.expect_integer()?;
            if count < 1 {
                return Err(CommandError::Syntax);
            }
            options.count = usize::try_from(count).unwrap_or(usize::MAX).min(SCAN_ENTRIES_MAX);
        } else if cursor.take_word("match") {
            last_pattern = Some(cursor.expect()?);
        } else if cursor.take_word("type") {
            options.filter.kind = wanted(cursor.expect()?);
        } else {
            return Err(CommandError::Syntax);
        }
    }
    // Compile only the last pattern, however many there are.
    options.filter.pattern = last_pattern.map(Pattern::compile).transpose()?;
    Ok(options)
}

/// Selects the keys that a scan returns.
struct Filter {
    /// Pattern that keys must match; `None` matches every key.
    pattern: Option<Pattern>,
    /// User whose keys are shown; none: all keys.
    reader: Option<Arc<User>>,
    kind: Wanted,
}

/// Kind of value that the option TYPE selects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Any,
    Kind(ValueKind),
    /// A kind that no key has.
    Nothing,
}

impl Filter {
    /// Returns whether the key is selected, or `None` when matching the pattern takes too long.
    fn takes(&self, key: &[u8], kind: ValueKind, steps: &mut usize) -> Option<bool> {
        let kind_fits = match self.kind {
            Wanted::Any => true,
            Wanted::Kind(wanted) => wanted == kind,
            Wanted::Nothing => false,
        };
        if !kind_fits || !may_show(self.reader.as_deref(), key, steps) {
            return Some(false);
        }
        match &self.pattern {
            Some(pattern) => pattern.decide(key, steps),
            None => Some(true),
        }
    }
}

/// Returns whether the user may know of the key: keys of tables that it may not read are not shown.
fn may_show(reader: Option<&User>, key: &[u8], steps: &mut usize) -> bool {
    let Some(reader) = reader else { return true };
    *steps += reader.keys().patterns().len();
    reader.keys().allow(key, Need::READ)
}

fn wanted(name: &[u8]) -> Wanted {
    [ValueKind::String, ValueKind::Hash]
        .into_iter()
        .find(|kind| name.eq_ignore_ascii_case(keys::kind_name(*kind).as_bytes()))
        .map_or(Wanted::Nothing, Wanted::Kind)
}

/// Consecutive keys, which the reply needs in one list behind their count.
#[derive(Default)]
struct Found {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Number of entries visited, returned or not.
    visited: usize,
    /// Steps spent matching them with the pattern.
    steps: usize,
    /// Length of a key that is too expensive to match.
    too_costly: Option<usize>,
}

impl Found {
    /// Returns whether this call has visited enough, also if COUNT asks for more.
    fn is_enough(&self, count: usize) -> bool {
        count <= self.visited
            || SCAN_STEPS_MAX <= self.steps
            || SCAN_REPLY_BYTES <= self.bytes.len()
    }

    fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    fn write(&self, call: &mut Call<'_>) {
        call.reply.array(self.ends.len());
        let mut start = 0;
        for &end in &self.ends {
            call.reply.bulk(&self.bytes[start..end]);
            start = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_as_strtoul_reads_them() {
        let cases: &[(&str, Option<u64>)] = &[
            ("", Some(0)),
            ("0", Some(0)),
            ("00", Some(0)),
            ("+7", Some(7)),
            ("-1", Some(u64::MAX)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            (" 0", None),
            ("0 ", None),
            ("a", None),
            ("-", None),
            ("1a", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_cursor(text.as_bytes()).ok(), *expected, "{text:?}");
        }
    }
}
