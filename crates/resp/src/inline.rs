//! Inline requests: a line of words, with the quoting rules of Redis's `sdssplitargs`.
//!
//! Words are separated by white space. `"..."` understands `\n \r \t \b \a \xHH` and takes any
//! other escaped byte as itself; `'...'` understands only `\'`. A quote may open in the middle of a
//! word, but a closing one must end it.

use crate::{ArgRange, ProtocolError};

/// Whether the line can be cut into words without making new bytes.
pub(crate) fn is_plain(line: &[u8]) -> bool {
    memchr::memchr2(b'"', b'\'', line).is_none()
}

/// Appends the words of a line without quotes. `line` begins at the request's first byte.
pub(crate) fn split_plain(line: &[u8], args: &mut Vec<ArgRange>) {
    let mut position = 0;
    while let Some(skipped) = line[position..].iter().position(|byte| !is_space(*byte)) {
        let start = position + skipped;
        let len =
            line[start..].iter().position(|byte| ends_word(*byte)).unwrap_or(line.len() - start);
        position = start + len;
        args.push(ArgRange::new(start, position));
    }
}

/// The words of a line, unescaped.
pub(crate) fn split_quoted(line: &[u8]) -> Result<Vec<Vec<u8>>, ProtocolError> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        let skipped = rest.iter().position(|byte| !is_space(*byte));
        let Some(skipped) = skipped else { return Ok(words) };
        let (word, after) = take_word(&rest[skipped..])?;
        words.push(word);
        rest = after;
    }
}

/// Takes one word off `text`, which begins with it, and gives what comes after.
fn take_word(text: &[u8]) -> Result<(Vec<u8>, &[u8]), ProtocolError> {
    let mut word = Vec::new();
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        match byte {
            b'"' => {
                return close_word(take_double_quoted(after, &mut word)?).map(|rest| (word, rest));
            }
            b'\'' => {
                return close_word(take_single_quoted(after, &mut word)?).map(|rest| (word, rest));
            }
            _ if ends_word(byte) => break,
            _ => word.push(byte),
        }
        rest = after;
    }
    Ok((word, rest))
}

/// Unescapes up to the closing quote and gives what comes after it.
fn take_double_quoted<'a>(text: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    let mut rest = text;
    loop {
        rest = match rest {
            [b'\\', b'x', high, low, after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                word.push(hex_digit(*high) << 4 | hex_digit(*low));
                after
            }
            [b'\\', escaped, after @ ..] => {
                word.push(unescape(*escaped));
                after
            }
            [b'"', after @ ..] => return Ok(after),
            [byte, after @ ..] => {
                word.push(*byte);
                after
            }
            [] => return Err(ProtocolError::UnbalancedQuotes),
        }
    }
}

/// As [`take_double_quoted`], where only the quote itself can be escaped.
fn take_single_quoted<'a>(text: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    let mut rest = text;
    loop {
        rest = match rest {
            [b'\\', b'\'', after @ ..] => {
                word.push(b'\'');
                after
            }
            [b'\'', after @ ..] => return Ok(after),
            [byte, after @ ..] => {
                word.push(*byte);
                after
            }
            [] => return Err(ProtocolError::UnbalancedQuotes),
        }
    }
}

/// A closing quote is followed by white space or by nothing.
fn close_word(rest: &[u8]) -> Result<&[u8], ProtocolError> {
    match rest.first() {
        Some(byte) if !is_space(*byte) => Err(ProtocolError::UnbalancedQuotes),
        _ => Ok(rest),
    }
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

fn hex_digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        _ => (byte | 0x20) - b'a' + 10,
    }
}

/// C's `isspace`.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// What ends a word outside of quotes: not all of what [`is_space`] skips between words.
fn ends_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}
