//! Counting replies without looking into them.
//!
//! Most replies of a measurement look alike (`+OK`, or bulk strings of one length), so the counter remembers the
//! last header of each of the two forms and steps over a reply with one comparison. Everything else takes the
//! ordinary way; errors are counted and one is kept to show.

use anyhow::{Result, bail};

use crate::limits::REPLY_LINE_BYTES;

/// Error replies seen.
#[derive(Clone, Debug, Default)]
pub struct ReplyErrors {
    /// How many.
    pub count: u64,
    /// The first one.
    pub example: Option<String>,
}

impl ReplyErrors {
    /// Adds what another measurement saw.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        if self.example.is_none() {
            self.example.clone_from(&other.example);
        }
    }

    fn add(&mut self, line: &[u8]) {
        self.count += 1;
        if self.example.is_none() {
            self.example = Some(String::from_utf8_lossy(line).into_owned());
        }
    }
}

/// The replies of one connection.
#[derive(Clone, Debug)]
pub struct ReplyCounter {
    /// Bytes of a bulk string, its line end included, that are still to come.
    skip: usize,
    /// Elements until the present reply is whole.
    open: u64,
    /// The first part of a line whose end has not come yet.
    line: Vec<u8>,
    bulk: Memo,
    simple: Memo,
}

/// A header of at most 8 bytes, and how long a reply that starts with it is.
#[derive(Clone, Copy, Debug, Default)]
struct Memo {
    word: u64,
    mask: u64,
    reply_bytes: usize,
}

impl Memo {
    /// Headers longer than a word are not remembered: such values are long enough for the cost not to matter.
    fn new(header: &[u8], rest_bytes: usize) -> Self {
        if 8 < header.len() {
            return Self::default();
        }
        let mut word = [0; 8];
        let mut mask = [0; 8];
        word[..header.len()].copy_from_slice(header);
        mask[..header.len()].fill(0xff);
        Self {
            word: u64::from_le_bytes(word),
            mask: u64::from_le_bytes(mask),
            reply_bytes: header.len() + rest_bytes,
        }
    }

    #[inline]
    fn fits(&self, word: u64, available: usize) -> bool {
        word & self.mask == self.word && self.reply_bytes <= available && self.reply_bytes != 0
    }
}

impl Default for ReplyCounter {
    fn default() -> Self {
        Self { skip: 0, open: 1, line: Vec::new(), bulk: Memo::default(), simple: Memo::default() }
    }
}

impl ReplyCounter {
    /// Replies that `bytes`, the next ones of the connection, complete.
    ///
    /// # Errors
    ///
    /// Bytes that are no RESP.
    pub fn count(&mut self, bytes: &[u8], errors: &mut ReplyErrors) -> Result<u32> {
        let mut replies = 0;
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.skip == 0 && self.open == 1 && self.line.is_empty() {
                rest = self.step_over(rest, &mut replies);
            }
            rest = self.take_part(rest, &mut replies, errors)?;
        }
        Ok(replies)
    }

    /// Steps over all whole replies of a remembered form.
    #[inline]
    fn step_over<'a>(&self, mut rest: &'a [u8], replies: &mut u32) -> &'a [u8] {
        while let Some(word) = rest.first_chunk::<8>() {
            let word = u64::from_le_bytes(*word);
            let memo = if self.bulk.fits(word, rest.len()) {
                &self.bulk
            } else if self.simple.fits(word, rest.len()) {
                &self.simple
            } else {
                break;
            };
            *replies += 1;
            rest = &rest[memo.reply_bytes..];
        }
        rest
    }

    /// The ordinary way: the rest of a bulk string, or one line or a part of it.
    fn take_part<'a>(
        &mut self,
        rest: &'a [u8],
        replies: &mut u32,
        errors: &mut ReplyErrors,
    ) -> Result<&'a [u8]> {
        if self.skip != 0 {
            let taken = self.skip.min(rest.len());
            self.skip -= taken;
            if self.skip == 0 {
                self.close_element(replies);
            }
            return Ok(&rest[taken..]);
        }
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            self.line.extend_from_slice(rest);
            if REPLY_LINE_BYTES < self.line.len() {
                bail!("a status line of more than {REPLY_LINE_BYTES} bytes");
            }
            return Ok(&[]);
        };
        let (head, rest) = rest.split_at(end + 1);
        if self.line.is_empty() {
            self.take_line(head, replies, errors)?;
        } else {
            let mut line = std::mem::take(&mut self.line);
            line.extend_from_slice(head);
            self.take_line(&line, replies, errors)?;
        }
        Ok(rest)
    }

    fn take_line(&mut self, line: &[u8], replies: &mut u32, errors: &mut ReplyErrors) -> Result<()> {
        let Some((kind, content)) = line.strip_suffix(b"\r\n").and_then(|line| line.split_first()) else {
            bail!("not RESP: {:?}", String::from_utf8_lossy(line));
        };
        match kind {
            b'+' => {
                self.simple = Memo::new(line, 0);
                self.close_element(replies);
            }
            b':' | b'_' | b',' | b'#' | b'(' => self.close_element(replies),
            b'-' => {
                errors.add(content);
                self.close_element(replies);
            }
            b'$' | b'=' | b'!' => match usize::try_from(length(content)?) {
                Ok(bytes) => {
                    self.skip = bytes + 2;
                    self.bulk = Memo::new(line, self.skip);
                }
                Err(_) => self.close_element(replies),
            },
            b'*' | b'~' | b'>' => self.open_elements(length(content)?, replies),
            b'%' => self.open_elements(length(content)? * 2, replies),
            _ => bail!("not RESP: {:?}", String::from_utf8_lossy(line)),
        }
        Ok(())
    }

    fn open_elements(&mut self, count: i64, replies: &mut u32) {
        self.open += u64::try_from(count).unwrap_or(0);
        self.close_element(replies);
    }

    fn close_element(&mut self, replies: &mut u32) {
        self.open -= 1;
        if self.open == 0 {
            self.open = 1;
            *replies += 1;
        }
    }
}

/// A length; more than 2 GiB is refused, so that arithmetic on it is safe.
fn length(content: &[u8]) -> Result<i64> {
    let number = std::str::from_utf8(content).ok().and_then(|text| text.parse::<i64>().ok());
    match number {
        Some(number) if (-1..=1 << 31).contains(&number) => Ok(number),
        _ => bail!("not a length: {:?}", String::from_utf8_lossy(content)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] =
        b"+OK\r\n+OK\r\n$3\r\nabc\r\n$3\r\n\r\n\n\r\n:17\r\n$-1\r\n*2\r\n$1\r\na\r\n*1\r\n:1\r\n\
        *0\r\n*-1\r\n$0\r\n\r\n-ERR no\r\n%1\r\n+k\r\n+v\r\n_\r\n+a longer status\r\n+OK\r\n";
    const REPLIES: u32 = 15;

    fn count(pieces: &[&[u8]]) -> (u32, ReplyErrors) {
        let mut counter = ReplyCounter::default();
        let mut errors = ReplyErrors::default();
        let replies = pieces.iter().map(|piece| counter.count(piece, &mut errors).unwrap()).sum();
        (replies, errors)
    }

    #[test]
    fn every_kind_of_reply_counts_once() {
        let (replies, errors) = count(&[STREAM]);
        assert_eq!(replies, REPLIES);
        assert_eq!(errors.count, 1);
        assert_eq!(errors.example.as_deref(), Some("ERR no"));
    }

    #[test]
    fn the_count_does_not_depend_on_where_the_stream_is_cut() {
        for first in 0..STREAM.len() {
            for second in first..STREAM.len() {
                let pieces = [&STREAM[..first], &STREAM[first..second], &STREAM[second..]];
                assert_eq!(count(&pieces).0, REPLIES, "cut at {first} and {second}");
            }
        }
    }

    #[test]
    fn alternating_forms_are_counted() {
        let stream = b"$2\r\nab\r\n+OK\r\n$3\r\nabc\r\n".repeat(1_000);
        assert_eq!(count(&[&stream]).0, 3_000);
    }

    #[test]
    fn what_is_no_resp_is_refused() {
        for stream in [&b"HTTP/1.1 200 OK\r\n"[..], b"$x\r\n", b"$99999999999\r\n", b"\r\n", b"+OK\n"] {
            let counted = ReplyCounter::default().count(stream, &mut ReplyErrors::default());
            assert!(counted.is_err(), "{stream:?}");
        }
        let endless = vec![b'+'; REPLY_LINE_BYTES + 1];
        assert!(ReplyCounter::default().count(&endless, &mut ReplyErrors::default()).is_err());
    }
}
