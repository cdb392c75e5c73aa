//! Whole replies as values.

use std::fmt;

use crate::parse_i64;

/// Limit of arrays within arrays; real servers send at most three.
const DEPTH_MAX: usize = 32;

/// A reply of RESP2 or RESP3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Simple string, written with `+`.
    Simple(Vec<u8>),
    /// Error, written with `-` or as the bulk error `!`, without that mark.
    Error(Vec<u8>),
    /// Integer, written with `:`.
    Integer(i64),
    /// Bulk string, written with `$`.
    Bulk(Vec<u8>),
    /// Null, in one of its three forms.
    Null(NullKind),
    /// Array, written with `*`.
    Array(Vec<Reply>),
    /// Map, written with `%`.
    Map(Vec<(Reply, Reply)>),
    /// Set, written with `~`.
    Set(Vec<Reply>),
    /// Push message, written with `>`.
    Push(Vec<Reply>),
    /// Attributes, written with `|`, and the reply they belong to.
    Attribute(Vec<(Reply, Reply)>, Box<Reply>),
    /// Double, written with `,`, as its text, because a server promises its exact digits.
    Double(Vec<u8>),
    /// Boolean, written with `#`.
    Bool(bool),
    /// Verbatim string, written with `=`.
    Verbatim {
        /// Format in three letters, `txt` or `mkd`.
        format: [u8; 3],
        /// Text after the format.
        text: Vec<u8>,
    },
    /// Big number, written with `(`, as its digits.
    BigNumber(Vec<u8>),
}

/// Form in which a null was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NullKind {
    /// Null bulk string of RESP2, `$-1`.
    Bulk,
    /// Null array of RESP2, `*-1`.
    Array,
    /// Null of RESP3, `_`.
    Resp3,
}

/// Reason why bytes are not a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyError {
    /// A type that does not exist.
    UnknownType(u8),
    /// A count, a length or an integer that is not a number.
    InvalidNumber,
    /// Text that its type does not allow, or without a line end after it.
    InvalidText,
    /// Too many arrays within arrays.
    TooDeep,
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownType(byte) => write!(f, "no reply begins with {:?}", char::from(*byte)),
            Self::InvalidNumber => write!(f, "a reply has an invalid number"),
            Self::InvalidText => write!(f, "a reply has invalid text"),
            Self::TooDeep => write!(f, "a reply is nested deeper than {DEPTH_MAX} levels"),
        }
    }
}

impl std::error::Error for ReplyError {}

impl Reply {
    /// Reads the reply at the beginning of `buf` and returns it with its length; `None` if it is
    /// incomplete. Not resumable: each call reads from the beginning.
    ///
    /// # Errors
    /// If the bytes are not a reply.
    pub fn parse(buf: &[u8]) -> Result<Option<(Self, usize)>, ReplyError> {
        let mut cursor = Cursor { rest: buf };
        match cursor.reply(0) {
            Ok(reply) => Ok(Some((reply, buf.len() - cursor.rest.len()))),
            Err(Stop::Incomplete) => Ok(None),
            Err(Stop::Invalid(error)) => Err(error),
        }
    }

    /// Returns whether this is an error reply.
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }
}

enum Stop {
    Incomplete,
    Invalid(ReplyError),
}

impl From<ReplyError> for Stop {
    fn from(error: ReplyError) -> Self {
        Self::Invalid(error)
    }
}

struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn reply(&mut self, depth: usize) -> Result<Reply, Stop> {
        if DEPTH_MAX < depth {
            return Err(ReplyError::TooDeep.into());
        }
        let (&kind, line) = self.line()?.split_first().ok_or(ReplyError::InvalidText)?;
        let text = || line.to_vec();
        Ok(match kind {
            b'+' => Reply::Simple(text()),
            b'-' => Reply::Error(text()),
            b':' => Reply::Integer(parse_i64(line).ok_or(ReplyError::InvalidNumber)?),
            b'_' if line.is_empty() => Reply::Null(NullKind::Resp3),
            b'$' if line == b"-1" => Reply::Null(NullKind::Bulk),
            b'*' if line == b"-1" => Reply::Null(NullKind::Array),
            b'$' => Reply::Bulk(self.bulk(line)?.to_vec()),
            b'!' => Reply::Error(self.bulk(line)?.to_vec()),
            b'=' => verbatim(self.bulk(line)?)?,
            b',' => Reply::Double(text()),
            b'(' => Reply::BigNumber(text()),
            b'#' => Reply::Bool(truth(line)?),
            b'*' => Reply::Array(self.elements(line, depth)?),
            b'~' => Reply::Set(self.elements(line, depth)?),
            b'>' => Reply::Push(self.elements(line, depth)?),
            b'%' => Reply::Map(self.pairs(line, depth)?),
            b'|' => Reply::Attribute(self.pairs(line, depth)?, Box::new(self.reply(depth + 1)?)),
            b'_' => return Err(ReplyError::InvalidText.into()),
            other => return Err(ReplyError::UnknownType(other).into()),
        })
    }

    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let end = memchr::memchr(b'\n', self.rest).ok_or(Stop::Incomplete)?;
        let line = self.rest[..end].strip_suffix(b"\r").ok_or(ReplyError::InvalidText)?;
        self.rest = &self.rest[end + 1..];
        Ok(line)
    }

    fn bulk(&mut self, line: &[u8]) -> Result<&'a [u8], Stop> {
        let len = count(line)?;
        let bytes = self.rest.get(..len).ok_or(Stop::Incomplete)?;
        match &self.rest[len..] {
            [b'\r', b'\n', rest @ ..] => self.rest = rest,
            [] | [b'\r'] => return Err(Stop::Incomplete),
            _ => return Err(ReplyError::InvalidText.into()),
        }
        Ok(bytes)
    }

    fn elements(&mut self, line: &[u8], depth: usize) -> Result<Vec<Reply>, Stop> {
        (0..count(line)?).map(|_| self.reply(depth + 1)).collect()
    }

    fn pairs(&mut self, line: &[u8], depth: usize) -> Result<Vec<(Reply, Reply)>, Stop> {
        (0..count(line)?).map(|_| Ok((self.reply(depth + 1)?, self.reply(depth + 1)?))).collect()
    }
}

fn count(line: &[u8]) -> Result<usize, ReplyError> {
    parse_i64(line).and_then(|number| usize::try_from(number).ok()).ok_or(ReplyError::InvalidNumber)
}

fn truth(line: &[u8]) -> Result<bool, ReplyError> {
    match line {
        b"t" => Ok(true),
        b"f" => Ok(false),
        _ => Err(ReplyError::InvalidText),
    }
}

fn verbatim(bytes: &[u8]) -> Result<Reply, ReplyError> {
    match bytes {
        [a, b, c, b':', text @ ..] => {
            Ok(Reply::Verbatim { format: [*a, *b, *c], text: text.to_vec() })
        }
        _ => Err(ReplyError::InvalidText),
    }
}
