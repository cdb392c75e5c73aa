//! KEYS and SCAN.
//!
//! A cursor of SCAN is the ordinal of a table among those the client sees, and a position in the order of key
//! hashes in it. A growing table only splits ranges of hashes, so an entry that stays is met at least once by a scan from
//! start to end. Cursors are below 2^53: clients that keep them in a double lose nothing.

use busload_tables::{TableId, ValueKind};

use super::{Call, keys};
use crate::{
    args::Cursor,
    error::{CommandError, CommandResult},
    glob::Pattern,
    limits::TABLE_COUNT_MAX,
    tx::Tx,
};

/// Bits of a cursor that are a position within a table.
const POSITION_BITS: u32 = 40;
const POSITION_MASK: u64 = (1 << POSITION_BITS) - 1;
const COUNT_DEFAULT: usize = 10;

const _: () = assert!(
    (TABLE_COUNT_MAX as u64) < 1 << (53 - POSITION_BITS),
    "ordinal and position of any table fit into 53 bits"
);

/// KEYS
pub(super) fn keys(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let filter = Filter { pattern: Some(Pattern::compile(call.args.at(1))?), kind: Wanted::Any };
    let mut found = Found::default();
    for table in keys::listed(tx, call.session.space) {
        let rest = scan_table(tx, table, 0, usize::MAX, &filter, &mut found);
        debug_assert!(rest.is_none(), "a scan without a limit ends at the end");
    }
    found.write(call);
    Ok(())
}

/// SCAN
pub(super) fn scan(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let cursor = parse_cursor(call.args.at(1))?;
    let Options { count, filter } = options(call.args.cursor(2))?;
    let tables = keys::listed(tx, call.session.space);
    let mut found = Found::default();
    let next = scan_tables(tx, &tables, cursor, count, &filter, &mut found);
    call.reply.array(2);
    call.reply.bulk(itoa::Buffer::new().format(next).as_bytes());
    found.write(call);
    Ok(())
}

/// Goes on from table to table until enough was looked at. Returns the next cursor, 0 at the end.
fn scan_tables(
    tx: &Tx,
    tables: &[TableId],
    cursor: u64,
    count: usize,
    filter: &Filter,
    found: &mut Found,
) -> u64 {
    let (first, mut position) = (cursor >> POSITION_BITS, cursor & POSITION_MASK);
    let first = usize::try_from(first).unwrap_or(usize::MAX).min(tables.len());
    for (ordinal, &table) in (first as u64..).zip(&tables[first..]) {
        if count <= found.visited {
            return ordinal << POSITION_BITS;
        }
        if let Some(next) = scan_table(tx, table, position, count - found.visited, filter, found) {
            return ordinal << POSITION_BITS | next;
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
    tx.tables.scan(table, position, count, tx.now(), &mut |key, kind| {
        found.visited += 1;
        if filter.takes(key, kind) {
            found.push(key);
        }
    })
}

/// A cursor, read as Redis reads it (`strtoul`): a sign may precede the digits, which may be missing.
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
    let value = digits
        .iter()
        .try_fold(0_u64, |value, digit| value.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
    let value = value.ok_or(INVALID)?;
    Ok(if negative { value.wrapping_neg() } else { value })
}

struct Options {
    count: usize,
    filter: Filter,
}

fn options(mut cursor: Cursor<'_>) -> Result<Options, CommandError> {
    let mut options = Options { count: COUNT_DEFAULT, filter: Filter { pattern: None, kind: Wanted::Any } };
    let mut last_pattern = None;
    while cursor.peek().is_some() {
        if cursor.take_word("count") {
            let count = cursor.expect_integer()?;
            if count < 1 {
                return Err(CommandError::Syntax);
            }
            options.count = usize::try_from(count).unwrap_or(usize::MAX);
        } else if cursor.take_word("match") {
            last_pattern = Some(cursor.expect()?);
        } else if cursor.take_word("type") {
            options.filter.kind = wanted(cursor.expect()?);
        } else {
            return Err(CommandError::Syntax);
        }
    }
    // Only one is compiled, however many there are.
    options.filter.pattern = last_pattern.map(Pattern::compile).transpose()?;
    Ok(options)
}

/// Which keys are shown.
struct Filter {
    /// `None` is every key.
    pattern: Option<Pattern>,
    kind: Wanted,
}

/// What TYPE asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Any,
    Kind(ValueKind),
    /// A kind that no key has.
    Nothing,
}

impl Filter {
    fn takes(&self, key: &[u8], kind: ValueKind) -> bool {
        let kind_fits = match self.kind {
            Wanted::Any => true,
            Wanted::Kind(wanted) => wanted == kind,
            Wanted::Nothing => false,
        };
        kind_fits && self.pattern.as_ref().is_none_or(|pattern| pattern.matches(key))
    }
}

fn wanted(name: &[u8]) -> Wanted {
    [ValueKind::String, ValueKind::Hash]
        .into_iter()
        .find(|kind| name.eq_ignore_ascii_case(keys::kind_name(*kind).as_bytes()))
        .map_or(Wanted::Nothing, Wanted::Kind)
}

/// Keys one behind the other: their count comes before them in the reply.
#[derive(Default)]
struct Found {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Entries looked at, shown or not.
    visited: usize,
}

impl Found {
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
