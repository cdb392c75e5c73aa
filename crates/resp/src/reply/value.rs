//! Whole replies as objects.

use std::fmt;

use crate::parse_i64;

/// Arrays within arrays; real servers send three at most.
const DEPTH_MAX: usize = 32;

/// A reply of RESP2 or RESP3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// `+`
    Simple(Vec<u8>),
    /// `-`, or the bulk error `!`, without the mark.
    Error(Vec<u8>),
    /// `:`
    Integer(i64),
    /// `$`
    Bulk(Vec<u8>),
    /// One of the three nulls.
    Null(NullKind),
    /// `*`
    Array(Vec<Reply>),
    /// `%`
    Map(Vec<(Reply, Reply)>),
    /// `~`
    Set(Vec<Reply>),
    /// `>`
    Push(Vec<Reply>),
    /// `|`: attributes, and the reply they belong to.
    Attribute(Vec<(Reply, Reply)>, Box<Reply>),
    /// `,` as its text, whose exact digits are part of what a server promises.
    Double(Vec<u8>),
    /// `#`
    Bool(bool),
    /// `=`
    Verbatim {
        /// Three letters, `txt` or `mkd`.
        format: [u8; 3],
        /// What comes after them.
        text: Vec<u8>,
    },
    /// `(` as its digits.
    BigNumber(Vec<u8>),
}

/// How a null was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NullKind {
    /// `$-1`
    Bulk,
    /// `*-1`
    Array,
    /// `_`
    Resp3,
}

/// The bytes are no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyError {
    /// A type there is not.
    UnknownType(u8),
    /// A count, a length or an integer that is none.
    InvalidNumber,
    /// Text that its type does not allow, or a line end missing after it.
    InvalidText,
    /// Arrays within arrays within arrays.
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
    /// Reads the reply at the beginning of `buf` and says how many bytes it took; `None` when it is
    /// not whole yet. Not resumable: each call reads from the beginning.
    ///
    /// # Errors
    /// When the bytes are no reply.
    pub fn parse(buf: &[u8]) -> Result<Option<(Self, usize)>, ReplyError> {
        let mut cursor = Cursor { rest: buf };
        match cursor.reply(0) {
            Ok(reply) => Ok(Some((reply, buf.len() - cursor.rest.len()))),
            Err(Stop::Incomplete) => Ok(None),
            Err(Stop::Invalid(error)) => Err(error),
        }
    }

    /// Whether this is an error reply.
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
