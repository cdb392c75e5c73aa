//! Decimal numbers of `INCRBYFLOAT` and `HINCRBYFLOAT`.
//!
//! Redis computes with C's `long double` and prints `%.17Lf` without trailing zeros. Here the sum
//! is exact and then rounded to 17 digits after the point, ties to even, so the results agree
//! wherever Redis's binary fractions are exact. The syntax and the range are those of `strtold` on
//! x86-64, except that hexadecimal numbers are refused.
//!
//! Sums of ordinary size are one addition of 128-bit integers and allocate nothing. `bigdecimal`
//! computes the others; with 5 KiB of text and exponents within the range its numbers stay below
//! 20,000 digits.

use std::sync::LazyLock;

use bigdecimal::{
    BigDecimal, RoundingMode, Zero,
    num_bigint::{BigInt, Sign},
};

use crate::error::CommandError;

/// A number, or an infinity.
#[derive(Debug, Clone)]
pub(crate) struct Decimal(Repr);

#[derive(Debug, Clone)]
enum Repr {
    /// The number times ten to the power of [`SCALE`].
    Units(i128),
    Big(BigDecimal),
    Infinite,
}

/// Number of digits that are kept after the point.
const SCALE: usize = 17;
/// Largest number of digits before the point of a [`Repr::Units`] made from text.
const UNITS_INTEGER_DIGITS: usize = 20;
/// Size of the buffer into which Redis reads numbers; a number must be shorter.
const TEXT_BYTES_LIMIT: usize = 5 * 1024;
/// Limit to which exponents are clamped: with a text of fewer than [`TEXT_BYTES_LIMIT`] bytes every
/// number beyond it except 0 is out of range.
const EXPONENT_MAX: i64 = 11_000;
/// Half a step above the largest `long double`.
static LIMIT: LazyLock<BigDecimal> = LazyLock::new(|| {
    constant("1.18973149535723176505351158982948866796625400469556721895649e4932")
});
/// Half of the smallest `long double`, which reads as 0 and is therefore refused.
static TINY: LazyLock<BigDecimal> = LazyLock::new(|| {
    constant("1.82259976594123730126420296680970990819952540784678167186049e-4951")
});

// The sum of two still fits.
const _: () = assert!(UNITS_INTEGER_DIGITS + SCALE < 38);

const NOT_FINITE: CommandError = CommandError::text("ERR increment would produce NaN or Infinity");

impl Decimal {
    /// Zero, the value of an absent key or field.
    pub(crate) const ZERO: Self = Self(Repr::Units(0));

    /// Parses `text` as Redis does: a sign, digits with a point among them, an exponent; or `inf`,
    /// `infinity`. Spaces around it are an error.
    ///
    /// # Errors
    /// Returns [`CommandError::NotFloat`] for any other text and for numbers out of range.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, CommandError> {
        if TEXT_BYTES_LIMIT <= text.len() {
            return Err(CommandError::NotFloat);
        }
        let (is_negative, unsigned) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] | rest => (false, rest),
        };
        if let Some(units) = parse_plain(unsigned) {
            return Ok(Self(Repr::Units(if is_negative { -units } else { units })));
        }
        if unsigned.eq_ignore_ascii_case(b"inf") || unsigned.eq_ignore_ascii_case(b"infinity") {
            return Ok(Self(Repr::Infinite));
        }
        let number = parse_big(unsigned).ok_or(CommandError::NotFloat)?;
        Ok(Self(Repr::Big(if is_negative { -number } else { number })))
    }

    /// Returns whether this is a number and not an infinity.
    pub(crate) fn is_finite(&self) -> bool {
        !matches!(self.0, Repr::Infinite)
    }

    /// Returns the exact sum, rounded to 17 digits after the point.
    ///
    /// # Errors
    /// Returns an error when the sum is not a number in range.
    pub(crate) fn add(&self, other: &Self) -> Result<Self, CommandError> {
        if let (Repr::Units(left), Repr::Units(right)) = (&self.0, &other.0)
            && let Some(sum) = left.checked_add(*right)
        {
            return Ok(Self(Repr::Units(sum)));
        }
        let sum = rounded(&(self.big().ok_or(NOT_FINITE)? + other.big().ok_or(NOT_FINITE)?));
        if *LIMIT <= sum.abs() { Err(NOT_FINITE) } else { Ok(Self(Repr::Big(sum))) }
    }

    /// Appends the number without an exponent, rounded to 17 digits after the point and without
    /// trailing zeros.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Repr::Units(units) => {
                let mut buffer = itoa::Buffer::new();
                write_units(*units < 0, buffer.format(units.unsigned_abs()), out);
            }
            Repr::Big(number) => {
                let (units, _) = rounded(number).into_bigint_and_scale();
                write_units(units.sign() == Sign::Minus, &units.magnitude().to_string(), out);
            }
            Repr::Infinite => out.extend_from_slice(b"inf"),
        }
    }

    fn big(&self) -> Option<BigDecimal> {
        match &self.0 {
            Repr::Units(units) => Some(BigDecimal::new((*units).into(), SCALE as i64)),
            Repr::Big(number) => Some(number.clone()),
            Repr::Infinite => None,
        }
    }
}

fn constant(text: &str) -> BigDecimal {
    text.parse().expect("the constant is a number")
}

fn rounded(number: &BigDecimal) -> BigDecimal {
    number.with_scale_round(SCALE as i64, RoundingMode::HalfEven)
}

/// Parses text as people write it (few digits, no exponent) to the number times ten to the
/// power of [`SCALE`]. Allocates nothing.
fn parse_plain(text: &[u8]) -> Option<i128> {
    let (integer, fraction) = split_at_point(text);
    let is_modest = integer.len() <= UNITS_INTEGER_DIGITS && fraction.len() <= SCALE;
    if !is_modest || integer.len() + fraction.len() == 0 {
        return None;
    }
    let mut number = 0i128;
    for byte in integer.iter().chain(fraction) {
        if !byte.is_ascii_digit() {
            return None;
        }
        number = number * 10 + i128::from(byte - b'0');
    }
    Some(number * 10i128.pow((SCALE - fraction.len()) as u32))
}

fn parse_big(text: &[u8]) -> Option<BigDecimal> {
    let exponent_at = text.iter().position(|byte| matches!(byte, b'e' | b'E'));
    let (mantissa, exponent) = match exponent_at {
        Some(at) => (&text[..at], parse_exponent(&text[at + 1..])?),
        None => (text, 0),
    };
    let (integer, fraction) = split_at_point(mantissa);
    let digits = [integer, fraction].concat();
    // The library would also take a sign and underscores.
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let mantissa = BigInt::parse_bytes(&digits, 10)?;
    if mantissa.is_zero() {
        return Some(BigDecimal::zero());
    }
    let number = BigDecimal::new(mantissa, i64::try_from(fraction.len()).ok()? - exponent);
    (*TINY <= number && number < *LIMIT).then_some(number)
}

fn split_at_point(text: &[u8]) -> (&[u8], &[u8]) {
    let point = text.iter().position(|byte| *byte == b'.').unwrap_or(text.len());
    (&text[..point], text.get(point + 1..).unwrap_or_default())
}

fn parse_exponent(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let exponent = digits
        .iter()
        .fold(0, |exponent, digit| (exponent * 10 + i64::from(digit - b'0')).min(EXPONENT_MAX));
    Some(if text.starts_with(b"-") { -exponent } else { exponent })
}

fn write_units(is_negative: bool, digits: &str, out: &mut Vec<u8>) {
    if is_negative {
        out.push(b'-');
    }
    out.extend(std::iter::repeat_n(b'0', (SCALE + 1).saturating_sub(digits.len())));
    out.extend_from_slice(digits.as_bytes());
    out.insert(out.len() - SCALE, b'.');
    let zeros = out.iter().rev().take_while(|digit| **digit == b'0').count();
    out.truncate(out.len() - zeros);
    out.pop_if(|last| *last == b'.');
}

#[cfg(test)]
mod tests;
