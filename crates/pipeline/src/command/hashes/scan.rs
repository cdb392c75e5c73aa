//! HSCAN: all fields, some at a time.

use super::{first_key, read_hash};
use crate::{
    args::Cursor,
    command::{Call, scan::parse_cursor},
    error::{CommandError, CommandResult},
    glob::Pattern,
    tx::Tx,
};

/// Fields visited at a time unless COUNT says otherwise.
const COUNT_DEFAULT: usize = 10;

/// HSCAN
pub(in crate::command) fn hscan(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let position = parse_cursor(call.args.at(2))?;
    let found = read_hash(tx, &first_key(tx, call))?;
    call.reply.array(2);
    let Some(hash) = found else {
        // Options are looked at only when there is something to scan, as in Redis 7.0.
        call.reply.bulk(b"0");
        call.reply.array(0);
        return Ok(());
    };
    let options = Options::parse(call.args.cursor(3))?;
    let mut found = Strings::default();
    let next = hash.scan(position, options.count, &mut |field, value| {
        if options.pattern.as_ref().is_none_or(|pattern| pattern.matches(field)) {
            found.push(field);
            if options.values {
                found.push(value);
            }
        }
    });
    call.reply.bulk(itoa::Buffer::new().format(next.unwrap_or(0)).as_bytes());
    call.reply.bulks(found.iter());
    Ok(())
}

struct Options {
    pattern: Option<Pattern>,
    count: usize,
    /// Whether values are wanted beside the fields.
    values: bool,
}

impl Options {
    fn parse(mut cursor: Cursor<'_>) -> Result<Self, CommandError> {
        let mut options = Options { pattern: None, count: COUNT_DEFAULT, values: true };
        let mut last_pattern = None;
        while cursor.left() != 0 {
            if cursor.take_word("count") {
                let count = cursor.expect_integer()?;
                options.count =
                    usize::try_from(count).ok().filter(|count| *count != 0).ok_or(CommandError::Syntax)?;
            } else if cursor.take_word("match") {
                last_pattern = Some(cursor.expect()?);
            } else if cursor.take_word("novalues") {
                options.values = false;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        // Only one is compiled, however many there are.
        options.pattern = last_pattern.map(Pattern::compile).transpose()?;
        Ok(options)
    }
}

/// Strings one behind the other.
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
