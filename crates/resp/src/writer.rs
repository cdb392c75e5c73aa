//! Writers of replies. Each function appends to a buffer that the caller owns and reuses.
//!
//! The caller passes the protocol version that the client chose; where RESP2 lacks a type, the
//! function writes what Redis writes instead.

use crate::double;

/// Protocol version of a connection, chosen by `HELLO`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Version {
    /// Version that every connection starts with.
    #[default]
    Resp2,
    /// Version after `HELLO 3`.
    Resp3,
}

/// Length of the longest header or integer line: a type, 20 digits with sign, a line end.
const LINE_BYTES_MAX: usize = 23;

/// Appends `+text`. The text must not contain line ends; the function is meant for constants.
#[inline]
pub fn write_simple(out: &mut Vec<u8>, text: &str) {
    debug_assert!(
        !text.bytes().any(|byte| matches!(byte, b'\r' | b'\n')),
        "a simple string is one line"
    );
    out.reserve(text.len() + 3);
    out.push(b'+');
    out.extend_from_slice(text.as_bytes());
    write_crlf(out);
}

/// Appends `-text`, where the text begins with its code (`ERR ...`). The text may quote what a
/// client sent, so line ends around it are dropped and those within it become spaces.
#[inline]
pub fn write_error(out: &mut Vec<u8>, text: &[u8]) {
    let is_line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let start = text.iter().position(|byte| !is_line_end(byte)).unwrap_or(text.len());
    let end = text.iter().rposition(|byte| !is_line_end(byte)).map_or(start, |last| last + 1);
    out.reserve(text.len() + 3);
    out.push(b'-');
    out.extend(text[start..end].iter().map(|byte| if is_line_end(byte) { b' ' } else { *byte }));
    write_crlf(out);
}

/// Appends an integer as `:number`.
#[inline]
pub fn write_integer(out: &mut Vec<u8>, number: i64) {
    match u8::try_from(number) {
        Ok(digit @ 0..=9) => out.extend_from_slice(&[b':', b'0' + digit, b'\r', b'\n']),
        _ => {
            out.reserve(LINE_BYTES_MAX);
            out.push(b':');
            out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
            write_crlf(out);
        }
    }
}

/// Appends a bulk string with its header.
#[inline]
pub fn write_bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len() + LINE_BYTES_MAX + 2);
    write_bulk_header(out, bytes.len());
    out.extend_from_slice(bytes);
    write_crlf(out);
}

/// Appends the header of a bulk string of `len` bytes. [`write_crlf`] must follow the bytes.
#[inline]
pub fn write_bulk_header(out: &mut Vec<u8>, len: usize) {
    write_header(out, b'$', len);
}

/// Appends a line end.
#[inline]
pub fn write_crlf(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

/// Appends a null in place of a value.
#[inline]
pub fn write_null(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(match version {
        Version::Resp2 => b"$-1\r\n",
        Version::Resp3 => b"_\r\n",
    });
}

/// Appends a null in place of an array.
#[inline]
pub fn write_null_array(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(match version {
        Version::Resp2 => b"*-1\r\n",
        Version::Resp3 => b"_\r\n",
    });
}

/// Appends the header of an array of `count` elements.
#[inline]
pub fn write_array(out: &mut Vec<u8>, count: usize) {
    write_header(out, b'*', count);
}

/// Appends the header of a map of `count` pairs; in RESP2 that of an array of twice as many
/// elements.
#[inline]
pub fn write_map(out: &mut Vec<u8>, count: usize, version: Version) {
    match version {
        Version::Resp2 => write_header(out, b'*', count * 2),
        Version::Resp3 => write_header(out, b'%', count),
    }
}

/// Appends the header of a set of `count` elements; in RESP2 that of an array.
#[inline]
pub fn write_set(out: &mut Vec<u8>, count: usize, version: Version) {
    match version {
        Version::Resp2 => write_header(out, b'*', count),
        Version::Resp3 => write_header(out, b'~', count),
    }
}

/// Appends the header of a push message of `count` elements, which answers no request. RESP3 only.
#[inline]
pub fn write_push(out: &mut Vec<u8>, count: usize) {
    write_header(out, b'>', count);
}

/// Appends a double: `%.17g`, `inf`, `-inf` or `nan`; in RESP2 as a bulk string.
pub fn write_double(out: &mut Vec<u8>, number: f64, version: Version) {
    let text = double::format(number);
    match version {
        Version::Resp2 => write_bulk(out, text.as_bytes()),
        Version::Resp3 => write_line(out, b',', text.as_bytes()),
    }
}

/// Appends a boolean, in RESP2 as `:0` or `:1`.
#[inline]
pub fn write_bool(out: &mut Vec<u8>, value: bool, version: Version) {
    out.extend_from_slice(match (version, value) {
        (Version::Resp2, false) => b":0\r\n",
        (Version::Resp2, true) => b":1\r\n",
        (Version::Resp3, false) => b"#f\r\n",
        (Version::Resp3, true) => b"#t\r\n",
    });
}

/// Appends text for people with its format of three letters (`txt`, `mkd`); in RESP2 as a bulk
/// string.
pub fn write_verbatim(out: &mut Vec<u8>, format: &str, bytes: &[u8], version: Version) {
    debug_assert_eq!(format.len(), 3, "a format is three letters");
    match version {
        Version::Resp2 => write_bulk(out, bytes),
        Version::Resp3 => {
            out.reserve(bytes.len() + LINE_BYTES_MAX + 6);
            write_header(out, b'=', bytes.len() + format.len() + 1);
            out.extend_from_slice(format.as_bytes());
            out.push(b':');
            out.extend_from_slice(bytes);
            write_crlf(out);
        }
    }
}

/// Appends an integer beyond 64 bits, given as its digits; in RESP2 as a bulk string.
pub fn write_big_number(out: &mut Vec<u8>, digits: &str, version: Version) {
    match version {
        Version::Resp2 => write_bulk(out, digits.as_bytes()),
        Version::Resp3 => write_line(out, b'(', digits.as_bytes()),
    }
}

fn write_line(out: &mut Vec<u8>, kind: u8, text: &[u8]) {
    out.reserve(text.len() + 3);
    out.push(kind);
    out.extend_from_slice(text);
    write_crlf(out);
}

/// Appends a header. Nearly all counts and lengths are below a hundred, so these are appended as
/// one copy of known size.
#[inline]
fn write_header(out: &mut Vec<u8>, kind: u8, count: usize) {
    match u8::try_from(count) {
        Ok(digit @ 0..=9) => out.extend_from_slice(&[kind, b'0' + digit, b'\r', b'\n']),
        Ok(pair @ 10..=99) => {
            out.extend_from_slice(&[kind, b'0' + pair / 10, b'0' + pair % 10, b'\r', b'\n']);
        }
        _ => {
            out.reserve(LINE_BYTES_MAX);
            out.push(kind);
            out.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
            write_crlf(out);
        }
    }
}
