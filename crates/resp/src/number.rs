//! Integers as Redis reads them.

/// Length of `i64::MIN` in digits, sign included.
const DIGITS_MAX: usize = 20;

/// Parses `text` as Redis's `string2ll` does: it accepts only what printing the number would give
/// back. No leading plus, no leading zeros, no spaces, no `-0`, no empty text.
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let (&first, rest) = digits.split_first()?;
    if first == b'0' {
        return (text.len() == 1).then_some(0);
    }
    if !first.is_ascii_digit() || DIGITS_MAX < text.len() {
        return None;
    }
    let mut magnitude = u64::from(first - b'0');
    // Eighteen digits cannot overflow, so only unusually long numbers pay for the check.
    let (safe, tail) = rest.split_at(rest.len().min(17));
    for &byte in safe {
        let digit = byte.wrapping_sub(b'0');
        if 9 < digit {
            return None;
        }
        magnitude = magnitude * 10 + u64::from(digit);
    }
    for &byte in tail {
        let digit = byte.wrapping_sub(b'0');
        if 9 < digit {
            return None;
        }
        magnitude = magnitude.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

#[cfg(test)]
mod tests {
    use super::parse_i64;

    #[test]
    fn every_printed_number_reads_back() {
        let mut number = 1i64;
        for _ in 0..200 {
            number = number.wrapping_mul(-3).wrapping_add(7);
            assert_eq!(parse_i64(number.to_string().as_bytes()), Some(number));
        }
        for number in [0, 1, -1, 9, 10, i64::MAX, i64::MIN, i64::MAX - 1, i64::MIN + 1] {
            assert_eq!(parse_i64(number.to_string().as_bytes()), Some(number));
        }
    }

    #[test]
    fn what_printing_would_not_give_is_refused() {
        let refused = [
            "",
            "-",
            "+1",
            "-0",
            "00",
            "01",
            "-01",
            " 1",
            "1 ",
            "1a",
            "a",
            "--1",
            "1.0",
            "1e3",
            "0x10",
            "1\n",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999",
            "18446744073709551616",
            "184467440737095516150",
            "-99999999999999999999",
            "0\0",
            "\u{663}",
        ];
        for text in refused {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text:?}");
        }
    }
}
