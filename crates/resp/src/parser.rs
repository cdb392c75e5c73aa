//! The request parser: finds whole requests in the bytes of a connection.
//!
//! A request is either an array of bulk strings (what client libraries send) or a line of words
//! (what people type). The parser copies nothing and remembers only how far it has come, as offsets
//! from the request's first byte, so the caller may move the bytes between calls. It reads no byte
//! twice: n bytes in k pieces cost O(n + k).

use crate::limits::{
    HINT_BYTES_MIN, HINT_WHOLE_BYTES_MIN, UNAUTHENTICATED_ARG_COUNT, UNAUTHENTICATED_BULK_BYTES,
};
use crate::{Authentication, ParserLimits, ProtocolError, inline, parse_i64};

/// Range of an argument's bytes, as offsets from the request's first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgRange {
    /// Offset of the first byte.
    pub start: u32,
    /// Offset after the last byte.
    pub end: u32,
}

/// Result of a call of [`Parser::parse`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// A whole request of `end` bytes, whose arguments have been appended.
    Request {
        /// Offset where the next request begins.
        end: usize,
    },
    /// A whole inline request with quotes, whose words had to be unescaped. It has at least one
    /// word.
    Inline {
        /// Offset where the next request begins.
        end: usize,
        /// Words of the line.
        line: Vec<Vec<u8>>,
    },
    /// A request without words (an empty line, `*0`, `*-1`), which gets no reply.
    Empty {
        /// Offset where the next request begins.
        end: usize,
    },
    /// The request is not complete: more bytes are needed.
    Incomplete {
        /// Lower bound of the request's length, which is more than the bytes given. It is a hint
        /// for reserving buffer space: at most twice what has arrived, or 64 KiB, whatever the
        /// client announced; once a mebibyte has arrived, all of the current argument, so that
        /// hundreds of megabytes are not copied from one buffer to the next. A call with fewer
        /// bytes than this finds nothing new.
        needed: usize,
    },
}

/// Reads one request after the other; see the module's documentation. By default it expects a
/// request's first byte.
#[derive(Debug, Clone, Default)]
pub struct Parser {
    /// Offset of the next line: an argument's length, or the request's first line.
    position: u32,
    /// Bytes from `position` on that are known to hold no line end.
    scanned: u32,
    /// Number of the request's arguments still to come; 0 before its first line is read.
    args_left: u32,
}

/// Length line: its number, and the offset after it.
struct Line {
    number: Option<i64>,
    end: usize,
}

impl ArgRange {
    /// Creates a range. The offsets fit into 32 bits because requests are smaller than that.
    #[inline]
    pub(crate) fn new(start: usize, end: usize) -> Self {
        debug_assert!(start <= end && u32::try_from(end).is_ok());
        Self { start: start as u32, end: end as u32 }
    }

    /// Returns the argument's bytes, given those of the request.
    ///
    /// # Panics
    /// If `request` is shorter than the bytes that were parsed.
    #[inline]
    pub fn of<'a>(&self, request: &'a [u8]) -> &'a [u8] {
        &request[self.start as usize..self.end as usize]
    }
}

impl Parser {
    /// Looks for the end of the request that begins at `buf[0]`, also when called again with more
    /// of its bytes. Appends the arguments to `args` as it finds them; between calls for one
    /// request the caller must not change `args`.
    ///
    /// # Errors
    /// If the bytes are not a request. The connection cannot be read any further.
    #[inline]
    pub fn parse(
        &mut self,
        buf: &[u8],
        limits: &ParserLimits,
        args: &mut Vec<ArgRange>,
    ) -> Result<Progress, ProtocolError> {
        let (mut position, mut args_left) = (self.position as usize, self.args_left);
        if args_left == 0 {
            match short_line(buf, 0, b'*') {
                Some((count @ 1..=UNAUTHENTICATED_ARG_COUNT, end)) if count <= limits.arg_count => {
                    (position, args_left) = (end, count as u32);
                }
                _ => match self.begin(buf, limits, args)? {
                    Some(progress) => return Ok(progress),
                    None => (position, args_left) = (self.position as usize, self.args_left),
                },
            }
        }
        let bulk_bytes = match limits.authentication {
            Authentication::Done => limits.bulk_bytes,
            Authentication::Required => limits.bulk_bytes.min(UNAUTHENTICATED_BULK_BYTES),
        };
        let request_bytes = limits.request_bytes.min(u32::MAX as usize);
        while args_left != 0 {
            let (len, start) = match short_line(buf, position, b'$') {
                Some(line) => line,
                None => {
                    self.suspend(position, args_left);
                    match self.long_bulk_line(buf, limits)? {
                        Some(line) => line,
                        None => return Ok(incomplete(buf, buf.len() + 1)),
                    }
                }
            };
            if bulk_bytes < len || request_bytes < start + len + 2 {
                return Err(refuse_bulk(len, limits));
            }
            let end = start + len;
            if buf.len() < end + 2 {
                self.suspend(position, args_left);
                return Ok(incomplete(buf, end + 2));
            }
            // As in Redis, the two bytes after an argument are not checked.
            args.push(ArgRange::new(start, end));
            position = end + 2;
            args_left -= 1;
        }
        self.reset();
        Ok(Progress::Request { end: position })
    }

    /// Forgets the request being read: the next call expects the first byte of a request.
    #[inline]
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Returns whether part of a request has been read.
    #[inline]
    pub fn is_started(&self) -> bool {
        self.args_left != 0 || self.scanned != 0
    }

    #[inline]
    fn suspend(&mut self, position: usize, args_left: u32) {
        // The scanned bytes belong to the line at the old position.
        if self.position as usize != position {
            self.scanned = 0;
        }
        self.position = position as u32;
        self.args_left = args_left;
    }

    /// Reads the first line, unless it was a short `*` line. `None`: arguments follow.
    #[cold]
    #[inline(never)]
    fn begin(
        &mut self,
        buf: &[u8],
        limits: &ParserLimits,
        args: &mut Vec<ArgRange>,
    ) -> Result<Option<Progress>, ProtocolError> {
        match buf.first() {
            None => return Ok(Some(incomplete(buf, 1))),
            Some(b'*') => {}
            Some(_) => return self.inline(buf, limits, args).map(Some),
        }
        let line = self.take_line(buf, limits.inline_bytes, ProtocolError::MultibulkCountTooBig)?;
        let Some(Line { number, end }) = line else {
            return Ok(Some(incomplete(buf, buf.len() + 1)));
        };
        let number = number.filter(|number| *number <= i64::from(i32::MAX));
        let number = number.ok_or(ProtocolError::InvalidMultibulkLength)?;
        let Ok(count) = usize::try_from(number) else { return Ok(Some(self.empty(end))) };
        if limits.authentication == Authentication::Required && UNAUTHENTICATED_ARG_COUNT < count {
            return Err(ProtocolError::UnauthenticatedMultibulkLength);
        }
        if limits.arg_count < count {
            return Err(ProtocolError::InvalidMultibulkLength);
        }
        if count == 0 {
            return Ok(Some(self.empty(end)));
        }
        self.suspend(end, count as u32);
        Ok(None)
    }

    fn inline(
        &mut self,
        buf: &[u8],
        limits: &ParserLimits,
        args: &mut Vec<ArgRange>,
    ) -> Result<Progress, ProtocolError> {
        let limit = limits.inline_bytes.min(limits.request_bytes);
        let Some(newline) =
            self.find(b'\n', buf, limit).map_err(|_| ProtocolError::InlineTooBig)?
        else {
            return Ok(incomplete(buf, buf.len() + 1));
        };
        let line = buf[..newline].strip_suffix(b"\r").unwrap_or(&buf[..newline]);
        let end = newline + 1;
        self.reset();
        if !inline::is_plain(line) {
            let line = inline::split_quoted(line)?;
            return Ok(Progress::Inline { end, line });
        }
        let before = args.len();
        inline::split_plain(line, args);
        if args.len() == before {
            Ok(Progress::Empty { end })
        } else {
            Ok(Progress::Request { end })
        }
    }

    /// Returns the number and the end of the length line at `self.position`, whatever its length.
    #[cold]
    #[inline(never)]
    fn long_bulk_line(
        &mut self,
        buf: &[u8],
        limits: &ParserLimits,
    ) -> Result<Option<(usize, usize)>, ProtocolError> {
        let line = self.take_line(buf, limits.inline_bytes, ProtocolError::BulkCountTooBig)?;
        let Some(Line { number, end }) = line else { return Ok(None) };
        // Redis, too, checks the type only when the line is whole.
        match buf[self.position as usize] {
            b'$' => {}
            other => return Err(ProtocolError::ExpectedBulk(other)),
        }
        let len = number.and_then(|number| usize::try_from(number).ok());
        let len =
            len.filter(|len| *len <= limits.bulk_bytes).ok_or(ProtocolError::InvalidBulkLength)?;
        Ok(Some((len, end)))
    }

    /// Returns the line at `self.position`, if it is whole. It ends with `\r` and one more byte of
    /// any value, as in Redis.
    fn take_line(
        &mut self,
        buf: &[u8],
        limit: usize,
        too_big: ProtocolError,
    ) -> Result<Option<Line>, ProtocolError> {
        let Some(end) = self.find(b'\r', buf, limit).map_err(|_| too_big)? else { return Ok(None) };
        if buf.len() < end + 2 {
            return Ok(None);
        }
        let digits = buf.get(self.position as usize + 1..end).unwrap_or_default();
        Ok(Some(Line { number: parse_i64(digits), end: end + 2 }))
    }

    /// Returns the offset of `byte`, searched from where the last search ended.
    fn find(&mut self, byte: u8, buf: &[u8], limit: usize) -> Result<Option<usize>, TooFar> {
        let position = self.position as usize;
        let start = position + self.scanned as usize;
        let limit = limit.min(u32::MAX as usize / 2);
        // One more than the limit: the line end itself does not count.
        let end = buf.len().min(position + limit + 1);
        match memchr::memchr(byte, buf.get(start..end).unwrap_or_default()) {
            Some(found) => {
                self.scanned += found as u32;
                Ok(Some(start + found))
            }
            None if limit < buf.len().saturating_sub(position) => Err(TooFar),
            None => {
                self.scanned = buf.len().saturating_sub(position) as u32;
                Ok(None)
            }
        }
    }

    fn empty(&mut self, end: usize) -> Progress {
        self.reset();
        Progress::Empty { end }
    }
}

/// Error for a line without an end within the limit.
struct TooFar;

/// Reads a line of up to five digits, as nearly every line is, without searching for its end.
/// `None` proves nothing: the line may be unfinished, longer or wrong.
#[inline(always)]
fn short_line(buf: &[u8], position: usize, kind: u8) -> Option<(usize, usize)> {
    let line: &[u8; 8] = buf.get(position..)?.first_chunk()?;
    let digit = |index: usize| usize::from(line[index].wrapping_sub(b'0'));
    if line[0] != kind {
        return None;
    }
    let first = digit(1);
    if line[2] == b'\r' {
        return (first <= 9).then_some((first, position + 4));
    }
    // If there are several digits, the first is not 0.
    if 8 < first.wrapping_sub(1) {
        return None;
    }
    let mut number = first;
    let mut index = 2;
    while index < 7 {
        if 9 < digit(index) {
            return (line[index] == b'\r').then_some((number, position + index + 2));
        }
        number = number * 10 + digit(index);
        index += 1;
    }
    None
}

#[cold]
fn refuse_bulk(len: usize, limits: &ParserLimits) -> ProtocolError {
    if limits.bulk_bytes < len {
        ProtocolError::InvalidBulkLength
    } else if limits.authentication == Authentication::Required && UNAUTHENTICATED_BULK_BYTES < len
    {
        ProtocolError::UnauthenticatedBulkLength
    } else {
        ProtocolError::RequestTooBig
    }
}

/// Returns the hint for reserving, which never covers an announced length alone.
fn incomplete(buf: &[u8], needed: usize) -> Progress {
    let most = if HINT_WHOLE_BYTES_MIN <= buf.len() { usize::MAX } else { buf.len() * 2 };
    Progress::Incomplete { needed: needed.min(most.max(HINT_BYTES_MIN)) }
}
