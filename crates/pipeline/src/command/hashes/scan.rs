//! HSCAN: all fields, some at a time.

use super::{first_key, read_hash};
use crate::{
    args::Cursor,
    command::{
        Call,
        scan::{parse_cursor, pattern_too_costly},
    },
    error::{CommandError, CommandResult},
    glob::Pattern,
    limits::{SCAN_ENTRIES_AT_ONCE, SCAN_ENTRIES_MAX, SCAN_REPLY_BYTES, SCAN_STEPS_MAX},
    tx::Tx,
};

/// Number of fields to visit unless COUNT says otherwise.
const COUNT_DEFAULT: usize = 10;

pub(in crate::command) fn hscan(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let position = parse_cursor(call.args.at(2))?;
    let found = read_hash(tx, &first_key(tx, call))?;
    call.reply.array(2);
    let Some(hash) = found else {
        // Check the options only when there is something to scan, as Redis 7.0 does.
        call.reply.bulk(b"0");
        call.reply.array(0);
        return Ok(());
    };
    let options = Options::parse(call.args.cursor(3))?;
    let mut found = Strings::default();
    let (mut position, mut visited, mut steps, mut too_costly) = (position, 0, 0, None);
    let next = loop {
        let count = (options.count - visited).min(SCAN_ENTRIES_AT_ONCE);
        let next = hash.scan(position, count, &mut |field, value| {
            visited += 1;
            match options
                .pattern
                .as_ref()
                .map_or(Some(true), |pattern| pattern.decide(field, &mut steps))
            {
                Some(true) => {
                    found.push(field);
                    if options.values {
                        found.push(value);
                    }
                }
                Some(false) => {}
                None => too_costly = Some(field.len()),
            }
        });
        let enough = options.count <= visited
            || SCAN_STEPS_MAX <= steps
            || SCAN_REPLY_BYTES <= found.bytes.len();
        match next {
            Some(next) if !enough => position = next,
            next => break next,
        }
    };
    if let Some(bytes) = too_costly {
        return Err(pattern_too_costly(bytes));
    }
    call.reply.bulk(itoa::Buffer::new().format(next.unwrap_or(0)).as_bytes());
    call.reply.bulks(found.iter());
    Ok(())
}

struct Options {
    pattern: Option<Pattern>,
    count: usize,
    /// Says whether the reply contains the values beside the fields.
    values: bool,
}

impl Options {
    fn parse(mut cursor: Cursor<'_>) -> Result<Self, CommandError> {
        let mut options = Options { pattern: None, count: COUNT_DEFAULT, values: true };
        let mut last_pattern = None;
        while cursor.left() != 0 {
            if cursor.take_word("count") {
                let count = cursor.expect_integer()?;
                options.count = usize::try_from(count)
                    .ok()
                    .filter(|count| *count != 0)
                    .ok_or(CommandError::Syntax)?;
                options.count = options.count.min(SCAN_ENTRIES_MAX);
            } else if cursor.take_word("match") {
                last_pattern = Some(cursor.expect()?);
            } else if cursor.take_word("novalues") {
                options.values = false;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        // Compile only the last pattern, however many there are.
        options.pattern = last_pattern.map(Pattern::compile).transpose()?;
        Ok(options)
    }
}

/// Consecutive strings in one buffer.
#[derive(Default)]
struct Strings {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Strings {
    fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len());
    }

    fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| &self.bytes[std::mem::replace(&mut start, end)..end])
    }
}
