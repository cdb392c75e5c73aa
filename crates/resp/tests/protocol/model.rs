//! Shared by the tests of the parser: a reference parser that is simple rather than fast, and
//! random streams.

use busload_resp::{ArgRange, Authentication, Parser, ParserLimits, Progress, ProtocolError};

/// Item that a parser found in a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// A request with these arguments.
    Request(Vec<Vec<u8>>),
    /// A request without arguments.
    Nothing,
    /// An error after which the stream cannot be read further.
    Broken(ProtocolError),
}

/// Reads a stream that arrives in pieces, as a connection does: consumed requests are dropped from
/// the buffer's front. Returns what was found and how many bytes were left over.
pub fn parse(pieces: &[&[u8]], limits: &ParserLimits) -> (Vec<Said>, usize) {
    let (mut parser, mut args, mut said) = (Parser::default(), Vec::new(), Vec::new());
    let mut buf: Vec<u8> = Vec::new();
    let mut needed_min = 0;
    for piece in pieces {
        buf.extend_from_slice(piece);
        let mut start = 0;
        loop {
            let request = &buf[start..];
            let progress = match parser.parse(request, limits, &mut args) {
                Ok(progress) => progress,
                Err(error) => {
                    said.push(Said::Broken(error));
                    return (said, request.len());
                }
            };
            let (end, what) = match progress {
                Progress::Incomplete { needed } => {
                    assert!(request.len() < needed, "more is needed than there is");
                    needed_min = needed;
                    break;
                }
                Progress::Request { end } => (end, Said::Request(copy(&args, request))),
                Progress::Inline { end, line } => (end, Said::Request(line)),
                Progress::Empty { end } => (end, Said::Nothing),
            };
            assert!(
                needed_min <= end,
                "a whole request is as long as was said: {needed_min} {end}"
            );
            assert!(!parser.is_started());
            needed_min = 0;
            args.clear();
            said.push(what);
            start += end;
        }
        buf.drain(..start);
    }
    (said, buf.len())
}

fn copy(args: &[ArgRange], request: &[u8]) -> Vec<Vec<u8>> {
    args.iter().map(|arg| arg.of(request).to_vec()).collect()
}

/// Does the same with a parser that starts from the beginning, one request at a time.
pub fn reference(stream: &[u8], limits: &ParserLimits) -> (Vec<Said>, usize) {
    let (mut said, mut rest) = (Vec::new(), stream);
    while !rest.is_empty() {
        let mut next = rest;
        let request =
            if rest[0] == b'*' { multibulk(&mut next, limits) } else { inline(&mut next, limits) };
        match request {
            Ok(None) => break,
            Ok(Some(args)) if args.is_empty() => said.push(Said::Nothing),
            Ok(Some(args)) => said.push(Said::Request(args)),
            Err(error) => {
                said.push(Said::Broken(error));
                break;
            }
        }
        rest = next;
    }
    (said, rest.len())
}

type Args = Option<Vec<Vec<u8>>>;

fn multibulk(rest: &mut &[u8], limits: &ParserLimits) -> Result<Args, ProtocolError> {
    let total = rest.len();
    let required = limits.authentication == Authentication::Required;
    let Some(line) = line(rest, limits, ProtocolError::MultibulkCountTooBig)? else {
        return Ok(None);
    };
    let invalid = ProtocolError::InvalidMultibulkLength;
    let count = number(&line[1..]).filter(|count| *count < 1 << 31).ok_or(invalid)?;
    if required && 10 < count {
        return Err(ProtocolError::UnauthenticatedMultibulkLength);
    }
    if (limits.arg_count as i64) < count {
        return Err(invalid);
    }
    let mut args = Vec::new();
    for _ in 0..count {
        let Some(line) = self::line(rest, limits, ProtocolError::BulkCountTooBig)? else {
            return Ok(None);
        };
        if line.first() != Some(&b'$') {
            return Err(ProtocolError::ExpectedBulk(*line.first().unwrap_or(&b'\r')));
        }
        let len = number(&line[1..]).and_then(|len| usize::try_from(len).ok());
        let len =
            len.filter(|len| *len <= limits.bulk_bytes).ok_or(ProtocolError::InvalidBulkLength)?;
        if required && 16384 < len {
            return Err(ProtocolError::UnauthenticatedBulkLength);
        }
        if limits.request_bytes < total - rest.len() + len + 2 {
            return Err(ProtocolError::RequestTooBig);
        }
        if rest.len() < len + 2 {
            return Ok(None);
        }
        args.push(rest[..len].to_vec());
        *rest = &rest[len + 2..];
    }
    Ok(Some(args))
}

fn line<'a>(
    rest: &mut &'a [u8],
    limits: &ParserLimits,
    too_big: ProtocolError,
) -> Result<Option<&'a [u8]>, ProtocolError> {
    match rest.iter().position(|byte| *byte == b'\r') {
        Some(end) if limits.inline_bytes < end => Err(too_big),
        Some(end) if end + 2 <= rest.len() => {
            let line = &rest[..end];
            *rest = &rest[end + 2..];
            Ok(Some(line))
        }
        None if limits.inline_bytes < rest.len() => Err(too_big),
        _ => Ok(None),
    }
}

fn inline(rest: &mut &[u8], limits: &ParserLimits) -> Result<Args, ProtocolError> {
    match rest.iter().position(|byte| *byte == b'\n') {
        Some(end) if end <= limits.inline_bytes => {
            let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
            *rest = &rest[end + 1..];
            split(line).map(Some).ok_or(ProtocolError::UnbalancedQuotes)
        }
        None if rest.len() <= limits.inline_bytes => Ok(None),
        _ => Err(ProtocolError::InlineTooBig),
    }
}

/// A translation of `sdssplitargs`, index by index. A byte behind the end reads as `None`.
fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let at = |index: usize| line.get(index).copied();
    let is_space = |byte: u8| b" \t\n\x0b\x0c\r".contains(&byte);
    let hex = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
    let (mut words, mut p) = (Vec::new(), 0);
    loop {
        while at(p).is_some_and(is_space) {
            p += 1;
        }
        if at(p).is_none() {
            return Some(words);
        }
        let (mut word, mut quote) = (Vec::new(), None);
        loop {
            match (quote, at(p)) {
                (Some(_), None) => return None,
                (None, None) => break,
                (Some(b'"'), Some(b'\\'))
                    if at(p + 1) == Some(b'x')
                        && hex(at(p + 2)).is_some()
                        && hex(at(p + 3)).is_some() =>
                {
                    word.push((hex(at(p + 2))? * 16 + hex(at(p + 3))?) as u8);
                    p += 3;
                }
                (Some(b'"'), Some(b'\\')) if at(p + 1).is_some() => {
                    p += 1;
                    let plain = b"nrtba".iter().position(|escaped| Some(*escaped) == at(p));
                    word.push(plain.map_or(at(p)?, |index| b"\n\r\t\x08\x07"[index]));
                }
                (Some(b'\''), Some(b'\\')) if at(p + 1) == Some(b'\'') => {
                    p += 1;
                    word.push(b'\'');
                }
                (Some(open), Some(byte)) if open == byte => {
                    p += 1;
                    if at(p).is_some_and(|byte| !is_space(byte)) {
                        return None;
                    }
                    break;
                }
                (None, Some(byte @ (b'"' | b'\''))) => quote = Some(byte),
                (None, Some(b' ' | b'\n' | b'\r' | b'\t')) => break,
                (_, Some(byte)) => word.push(byte),
            }
            p += 1;
        }
        words.push(word);
    }
}

/// Parses a number that prints as `text`.
fn number(text: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == text).then_some(number)
}

/// Random numbers from a seed, for tests only.
pub struct Random(pub u64);

impl Random {
    /// Returns a number below `limit`, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits") % limit
    }

    /// Returns one of the elements.
    pub fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    /// Returns bytes, most of which have a meaning to a parser.
    pub fn bytes(&mut self, len_max: usize) -> Vec<u8> {
        let alphabet = b"*$:+-0123456789\r\n\r\n \t\"'\\xabn\x0b\x00\xff";
        (0..self.below(len_max + 1)).map(|_| alphabet[self.below(alphabet.len())]).collect()
    }

    /// Returns the stream cut into pieces of at most `len_max` bytes.
    pub fn cut<'a>(&mut self, stream: &'a [u8], len_max: usize) -> Vec<&'a [u8]> {
        let (mut pieces, mut rest) = (Vec::new(), stream);
        while !rest.is_empty() {
            let (piece, after) = rest.split_at((1 + self.below(len_max)).min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        pieces
    }

    /// Returns some well-formed requests and some that are nearly so.
    pub fn stream(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        for _ in 0..1 + self.below(6) {
            match self.below(8) {
                0 => out.extend_from_slice(self.pick(&[
                    &b"PING\r\n"[..],
                    b"\r\n",
                    b"\n",
                    b" \t \r\n",
                    b"*0\r\n",
                    b"*-1\r\n",
                    b"SET a b\n",
                    b"SET \"a b\" 'c d'\r\n",
                    b"SET \"\\x41\\n\\\"\" ''\r\n",
                    b"a\rb c\x0bd\r\n",
                    b"\"unbalanced\r\n",
                    b"\"a\"b\r\n",
                    b"x'y z'  \"\" \r\n",
                ])),
                1 => {
                    let mut line = self.bytes(20);
                    line.push(b'\n');
                    out.extend_from_slice(&line);
                }
                _ => self.command(&mut out),
            }
        }
        out
    }

    fn command(&mut self, out: &mut Vec<u8>) {
        let count = [1, 2, 3, 3, 12][self.below(5)];
        busload_resp::write_array(out, count);
        for _ in 0..count {
            let len_max = [3, 12, 120, 1200, 40][self.below(5)];
            let arg = self.bytes(len_max);
            busload_resp::write_bulk(out, &arg);
        }
    }
}
