//! Counts replies without parsing their contents.

use super::ReplyError;
use crate::parse_i64;

/// Length of the longest count or length line, after its type: 20 digits with sign, and `\r`.
const NUMBER_BYTES_MAX: usize = 21;
/// Number of bytes kept of the first error reply.
const ERROR_BYTES_MAX: usize = 256;

/// Counts whole replies in a stream that arrives in pieces cut anywhere. Keeps no bytes of it
/// except the text of the first error.
///
/// A nested reply counts once, as its outermost one; a RESP3 push counts as a push.
#[derive(Debug, Clone, Default)]
pub struct ReplyCounter {
    counts: ReplyCounts,
    state: CounterState,
    /// Number of elements still to come of the reply being read.
    elements_left: u64,
    kind: Kind,
    /// True if the element being read is not nested in another.
    outermost: bool,
    number: [u8; NUMBER_BYTES_MAX],
    number_len: u8,
    first_error: Vec<u8>,
}

/// Counts of the replies that a [`ReplyCounter`] has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplyCounts {
    /// Number of whole replies, errors included.
    pub replies: u64,
    /// Number of replies that are errors.
    pub errors: u64,
    /// Number of errors within other replies, such as those of `EXEC`.
    pub errors_nested: u64,
    /// Number of replies that are nulls: keys that were absent.
    pub nulls: u64,
    /// Number of RESP3 messages that answer no request.
    pub pushes: u64,
}

/// Kind of count that the outermost reply being read adds to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Kind {
    #[default]
    Reply,
    Push,
}

/// Meaning of the next byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum CounterState {
    /// The type of an element.
    #[default]
    Type,
    /// Part of a line whose text does not matter.
    Text,
    /// Part of the line of an error.
    Error,
    /// Part of the number after this type.
    Number(u8),
    /// Part of a bulk string with this many bytes left, its line end included.
    Skip(u64),
}

impl ReplyCounter {
    /// Takes the next bytes of the stream and returns how many replies they completed (without
    /// pushes).
    ///
    /// # Errors
    /// If the bytes are not replies. The counter is unusable afterwards.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<u64, ReplyError> {
        let before = self.counts.replies;
        let mut rest = bytes;
        while let Some((&byte, after)) = rest.split_first() {
            rest = match self.state {
                CounterState::Type if self.elements_left == 0 => match self.whole(rest) {
                    Some(after) => after,
                    None => self.begin(byte, after)?,
                },
                CounterState::Type => self.begin(byte, after)?,
                CounterState::Text => self.text(rest),
                CounterState::Error => self.error(rest),
                CounterState::Number(kind) => self.number(kind, byte, after)?,
                CounterState::Skip(left) => self.skip(left, rest),
            };
        }
        Ok(self.counts.replies - before)
    }

    /// Returns the counts of everything seen.
    pub fn counts(&self) -> ReplyCounts {
        self.counts
    }

    /// Returns the beginning of the first error's text, if there was an error.
    pub fn first_error(&self) -> Option<&[u8]> {
        (self.counts.errors + self.counts.errors_nested != 0).then_some(&self.first_error)
    }

    /// Returns whether the last byte taken ended a reply.
    pub fn is_at_boundary(&self) -> bool {
        self.state == CounterState::Type && self.elements_left == 0
    }

    /// Counts a reply of a kind that is common under load if it is whole in `rest`, and returns
    /// what follows it.
    #[inline(always)]
    fn whole<'a>(&mut self, rest: &'a [u8]) -> Option<&'a [u8]> {
        let line: &[u8; 5] = rest.first_chunk()?;
        let after = match line {
            b"+OK\r\n" => &rest[5..],
            b"$-1\r\n" => {
                self.counts.nulls += 1;
                &rest[5..]
            }
            [b'$', len @ b'0'..=b'9', b'\r', b'\n', _] => {
                rest.get(usize::from(len - b'0') + 6..)?
            }
            [b'$', ten @ b'1'..=b'9', one @ b'0'..=b'9', b'\r', b'\n'] => {
                rest.get(usize::from(ten - b'0') * 10 + usize::from(one - b'0') + 7..)?
            }
            [b':', b'0'..=b'9', b'\r', b'\n', _] => &rest[4..],
            _ => return None,
        };
        self.counts.replies += 1;
        Some(after)
    }

    fn begin<'a>(&mut self, byte: u8, after: &'a [u8]) -> Result<&'a [u8], ReplyError> {
        let outermost = self.elements_left == 0;
        if outermost {
            self.elements_left = 1;
            self.kind = if byte == b'>' { Kind::Push } else { Kind::Reply };
        }
        self.state = match byte {
            b'+' | b':' | b',' | b'#' | b'(' | b'_' => CounterState::Text,
            b'-' => CounterState::Error,
            b'$' | b'!' | b'=' | b'*' | b'~' | b'>' | b'%' | b'|' => CounterState::Number(byte),
            other => return Err(ReplyError::UnknownType(other)),
        };
        self.number_len = 0;
        self.outermost = outermost;
        match byte {
            b'-' | b'!' if outermost => self.counts.errors += 1,
            b'-' | b'!' => self.counts.errors_nested += 1,
            b'_' if outermost => self.counts.nulls += 1,
            _ => {}
        }
        Ok(after)
    }

    fn text<'a>(&mut self, rest: &'a [u8]) -> &'a [u8] {
        match memchr::memchr(b'\n', rest) {
            Some(end) => {
                self.end_element();
                &rest[end + 1..]
            }
            None => &[],
        }
    }

    fn error<'a>(&mut self, rest: &'a [u8]) -> &'a [u8] {
        let after = self.text(rest);
        if self.counts.errors + self.counts.errors_nested == 1 {
            let line = &rest[..rest.len() - after.len()];
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let room = ERROR_BYTES_MAX - self.first_error.len();
            self.first_error.extend_from_slice(&line[..line.len().min(room)]);
        }
        after
    }

    fn number<'a>(&mut self, kind: u8, byte: u8, after: &'a [u8]) -> Result<&'a [u8], ReplyError> {
        if byte != b'\n' {
            let place = self
                .number
                .get_mut(usize::from(self.number_len))
                .ok_or(ReplyError::InvalidNumber)?;
            *place = byte;
            self.number_len += 1;
            return Ok(after);
        }
        let line = &self.number[..usize::from(self.number_len)];
        let number = parse_i64(line.strip_suffix(b"\r").ok_or(ReplyError::InvalidText)?);
        match (kind, number.ok_or(ReplyError::InvalidNumber)?) {
            (b'$' | b'*', -1) => {
                self.counts.nulls += u64::from(self.outermost);
                self.end_element();
            }
            (_, negative) if negative < 0 => return Err(ReplyError::InvalidNumber),
            (b'$' | b'!' | b'=', len) => self.state = CounterState::Skip(len.unsigned_abs() + 2),
            (b'%', pairs) => self.add_elements(pairs.unsigned_abs().saturating_mul(2), 1)?,
            // Attributes precede the element they belong to and are not elements.
            (b'|', pairs) => self.add_elements(pairs.unsigned_abs().saturating_mul(2), 0)?,
            (_, count) => self.add_elements(count.unsigned_abs(), 1)?,
        }
        Ok(after)
    }

    /// Notes that the header of an aggregate has been read: `count` elements follow, and the
    /// aggregate itself was `own` elements.
    fn add_elements(&mut self, count: u64, own: u64) -> Result<(), ReplyError> {
        self.elements_left =
            self.elements_left.checked_add(count).ok_or(ReplyError::InvalidNumber)?;
        match own {
            0 => self.state = CounterState::Type,
            _ => self.end_element(),
        }
        Ok(())
    }

    fn skip<'a>(&mut self, left: u64, rest: &'a [u8]) -> &'a [u8] {
        match usize::try_from(left).ok().and_then(|left| rest.get(left..)) {
            Some(after) => {
                self.end_element();
                after
            }
            None => {
                self.state = CounterState::Skip(left - rest.len() as u64);
                &[]
            }
        }
    }

    fn end_element(&mut self) {
        self.state = CounterState::Type;
        self.elements_left -= 1;
        if self.elements_left == 0 {
            match self.kind {
                Kind::Reply => self.counts.replies += 1,
                Kind::Push => self.counts.pushes += 1,
            }
        }
    }
}
