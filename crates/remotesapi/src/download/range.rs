//! The header `Range` of RFC 9110, section 14, for one range of bytes.

use axum::http::{HeaderMap, header};

/// Error text for ranges that are refused.
pub const EXPECTED: &str =
    "Range: expected one range of bytes: bytes=FIRST-LAST, bytes=FIRST- or bytes=-LENGTH";

/// Bytes that a request asks for. Positions and lengths beyond 64 bits are clamped to the maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All bytes: there is no range, or one in another unit, which the standard says to ignore.
    All,
    /// From one position to another, inclusive.
    Closed { first: u64, last: u64 },
    /// From a position to the end.
    From(u64),
    /// This many bytes at the end.
    Last(u64),
}

impl Wanted {
    /// Parses the header. A malformed range is an error, and so are several ranges, which would
    /// need a multipart answer.
    pub fn of(headers: &HeaderMap) -> Result<Self, &'static str> {
        let mut values = headers.get_all(header::RANGE).iter();
        let Some(value) = values.next() else { return Ok(Self::All) };
        if values.next().is_some() {
            return Err(EXPECTED);
        }
        parse(value.as_bytes()).ok_or(EXPECTED)
    }

    /// Returns the half-open range within a resource of this size, or none if it contains none of
    /// the bytes. A range is cut at the end of the resource, as clients expect that ask for pieces
    /// of one size; clients of Dolt never ask beyond the end.
    pub fn within(self, size: u64) -> Option<std::ops::Range<u64>> {
        let (start, end) = match self {
            Self::All => return Some(0..size),
            Self::Closed { first, last } => (first, last.saturating_add(1).min(size)),
            Self::From(first) => (first, size),
            Self::Last(length) => (size.saturating_sub(length), size),
        };
        (start < end).then_some(start..end)
    }
}

fn parse(value: &[u8]) -> Option<Wanted> {
    let (unit, ranges) = value.split_at(value.iter().position(|byte| *byte == b'=')?);
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return is_token(unit).then_some(Wanted::All);
    }
    let range = ranges.strip_prefix(b"=")?.trim_ascii();
    let dash = range.iter().position(|byte| *byte == b'-')?;
    match (&range[..dash], &range[dash + 1..]) {
        (b"", length) => number(length).map(Wanted::Last),
        (first, b"") => number(first).map(Wanted::From),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(Wanted::Closed { first, last })
        }
    }
}

/// Checks for a token of RFC 9110, section 5.6.2.
fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty()
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte))
}

/// Parses a number of digits only, clamped to 64 bits.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value =
        |value: u64, digit: &u8| value.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Some(digits.iter().fold(0, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(values: &[&str]) -> Result<Wanted, &'static str> {
        let headers =
            values.iter().map(|value| (header::RANGE, value.parse().unwrap())).collect::<Vec<_>>();
        let mut map = HeaderMap::new();
        headers.into_iter().for_each(|(name, value)| _ = map.append(name, value));
        Wanted::of(&map)
    }

    #[test]
    fn one_range_of_bytes_is_understood() {
        for (value, expected) in [
            ("bytes=0-0", Wanted::Closed { first: 0, last: 0 }),
            ("bytes=10-299", Wanted::Closed { first: 10, last: 299 }),
            ("Bytes= 10-299 ", Wanted::Closed { first: 10, last: 299 }),
            ("bytes=0007-8", Wanted::Closed { first: 7, last: 8 }),
            ("bytes=5-99999999999999999999999", Wanted::Closed { first: 5, last: u64::MAX }),
            ("bytes=5-", Wanted::From(5)),
            ("bytes=-5", Wanted::Last(5)),
            ("bytes=-0", Wanted::Last(0)),
            ("lines=1-2", Wanted::All),
            ("lines=whatever", Wanted::All),
        ] {
            assert_eq!(wanted(&[value]), Ok(expected), "{value}");
        }
        assert_eq!(wanted(&[]), Ok(Wanted::All));
    }

    #[test]
    fn everything_else_is_refused() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=5",
            "bytes=5-4",
            "bytes=a-b",
            "bytes=1-2,4-5",
            "bytes=1-2,",
            "bytes=+1-2",
            "bytes=1--2",
            "bytes=1 - 2",
            "bytes =1-2",
            "bytes:1-2",
            "0-5",
            "=0-5",
            "bytes=0x1-2",
            "bytes=1-2-3",
        ] {
            assert_eq!(wanted(&[value]), Err(EXPECTED), "{value}");
        }
        assert_eq!(wanted(&["bytes=1-2", "bytes=1-2"]), Err(EXPECTED));
    }

    #[test]
    fn ranges_are_those_of_the_bytes_that_are_there() {
        let closed = |first, last| Wanted::Closed { first, last };
        for (wanted, size, expected) in [
            (Wanted::All, 100, Some(0..100)),
            (Wanted::All, 0, Some(0..0)),
            (closed(0, 99), 100, Some(0..100)),
            (closed(99, 99), 100, Some(99..100)),
            (closed(100, 100), 100, None),
            (closed(50, 149), 100, Some(50..100)),
            (closed(50, u64::MAX), 100, Some(50..100)),
            (closed(0, 0), 0, None),
            (closed(u64::MAX, u64::MAX), u64::MAX, None),
            (Wanted::From(0), 100, Some(0..100)),
            (Wanted::From(99), 100, Some(99..100)),
            (Wanted::From(100), 100, None),
            (Wanted::From(0), 0, None),
            (Wanted::Last(1), 100, Some(99..100)),
            (Wanted::Last(100), 100, Some(0..100)),
            (Wanted::Last(u64::MAX), 100, Some(0..100)),
            (Wanted::Last(0), 100, None),
            (Wanted::Last(5), 0, None),
        ] {
            assert_eq!(wanted.within(size), expected, "{wanted:?} of {size}");
        }
    }
}
