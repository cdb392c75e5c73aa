//! Inline requests: a line of words, with the quoting rules of Redis's `sdssplitargs`.
//!
//! White space separates words. `"..."` understands `\n \r \t \b \a \xHH` and takes any other
//! escaped byte literally; `'...'` understands only `\'`. A quote may open in the middle of a word,
//! but its closing quote must end the word.

use crate::{ArgRange, ProtocolError};

/// Returns whether the line has no quotes, so that its words need no unescaping.
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

/// Returns the words of a line, unescaped.
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

/// Takes one word from the beginning of `text` and returns it with the rest.
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

/// Unescapes up to the closing quote and returns the rest.
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

/// Does the same as [`take_double_quoted`] for single quotes, in which only the quote itself can be
/// escaped.
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

/// Checks that white space or the end of the line follows a closing quote.
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

/// Returns what C's `isspace` does.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Returns whether a byte ends a word outside of quotes: not every byte that [`is_space`] skips
/// between words does.
fn ends_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}
