//! Decimal numbers of `INCRBYFLOAT` and `HINCRBYFLOAT`.
//!
//! Redis computes with C's `long double` and prints `%.17Lf` without trailing zeros. Here the sum
//! is exact and then rounded to 17 digits after the point, ties to even, so the results agree
//! wherever Redis's binary fractions are exact. The syntax and the range are those of `strtold` on
//! x86-64, except that hexadecimal numbers are refused.
//!
//! Sums of ordinary size are one addition of 128-bit integers and allocate nothing. Beyond that,
//! numbers are strings of digits; with 5 KiB of text and exponents within the range those are below
//! 20,000 digits.

use std::cmp::Ordering;
use std::fmt;

/// A number, or an infinity.
#[derive(Debug, Clone)]
pub struct Decimal(Repr);

/// Error of parsing or adding numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecimalError {
    /// The text is no number, or one that is out of range.
    NotAFloat,
    /// The sum is infinite, undefined or out of range.
    NotFinite,
}

impl fmt::Display for DecimalError {
    /// Writes the text of Redis's error after `ERR `.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAFloat => "value is not a valid float",
            Self::NotFinite => "increment would produce NaN or Infinity",
        })
    }
}

impl std::error::Error for DecimalError {}

/// Number of digits that are kept after the point.
const SCALE: usize = 17;
/// Ten to the power of [`SCALE`].
const UNIT: u128 = 10u128.pow(SCALE as u32);
/// Largest number of digits before the point of a [`Repr::Scaled`] made from text.
const SCALED_INTEGER_DIGITS: i64 = 20;
/// Size of the buffer into which Redis reads numbers; a number must be shorter.
const TEXT_BYTES_LIMIT: usize = 5 * 1024;
/// Limit to which exponents are clamped: beyond it every number except 0 is out of range anyway.
const EXPONENT_MAX: i64 = 1_000_000;
/// Half a step above the largest `long double`: 0.(these digits) times ten to the power of
/// [`LIMIT_POINT`].
const LIMIT_DIGITS: &[u8] = b"118973149535723176505351158982948866796625400469556721895649";
const LIMIT_POINT: i64 = 4933;
/// Half of the smallest `long double`, which reads as 0 and is therefore refused.
const TINY_DIGITS: &[u8] = b"182259976594123730126420296680970990819952540784678167186049";
const TINY_POINT: i64 = -4950;

// The sum of two still fits.
const _: () = assert!(SCALED_INTEGER_DIGITS as usize + SCALE < 38);

#[derive(Debug, Clone)]
enum Repr {
    /// The number times [`UNIT`].
    Scaled(i128),
    Digits(Digits),
    Infinite(Sign),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    Plus,
    Minus,
}

/// Number of any size.
#[derive(Debug, Clone)]
struct Digits {
    sign: Sign,
    /// Digits 0 to 9, the least significant first.
    digits: Vec<u8>,
    /// Number of digits after the point.
    scale: usize,
}

/// Parts of a number's text: 0 followed by a point and `digits`, times ten to the power of `point`.
struct Text {
    sign: Sign,
    /// Digits without zeros at either end.
    digits: Vec<u8>,
    point: i64,
}

impl Decimal {
    /// Zero, the value of an absent key or field.
    pub const ZERO: Self = Self(Repr::Scaled(0));

    /// Parses `text` as Redis does: a sign, digits with a point among them, an exponent; or `inf`,
    /// `infinity`. Spaces around it are an error.
    ///
    /// # Errors
    /// Returns [`DecimalError::NotAFloat`] for any other text.
    pub fn parse(text: &[u8]) -> Result<Self, DecimalError> {
        if TEXT_BYTES_LIMIT <= text.len() {
            return Err(DecimalError::NotAFloat);
        }
        let (sign, unsigned) = match text {
            [b'-', rest @ ..] => (Sign::Minus, rest),
            [b'+', rest @ ..] => (Sign::Plus, rest),
            rest => (Sign::Plus, rest),
        };
        if let Some(scaled) = parse_plain(unsigned) {
            return Ok(Self(Repr::Scaled(if sign == Sign::Minus { -scaled } else { scaled })));
        }
        if unsigned.eq_ignore_ascii_case(b"inf") || unsigned.eq_ignore_ascii_case(b"infinity") {
            return Ok(Self(Repr::Infinite(sign)));
        }
        let text = Text::parse(sign, unsigned).ok_or(DecimalError::NotAFloat)?;
        if text.digits.is_empty() {
            return Ok(Self::ZERO);
        }
        if text.is_at_least(LIMIT_DIGITS, LIMIT_POINT) || !text.is_at_least(TINY_DIGITS, TINY_POINT)
        {
            return Err(DecimalError::NotAFloat);
        }
        Ok(Self(text.scaled().map_or_else(|| Repr::Digits(text.to_digits()), Repr::Scaled)))
    }

    /// Returns whether this is a number and not an infinity.
    pub fn is_finite(&self) -> bool {
        !matches!(self.0, Repr::Infinite(_))
    }

    /// Returns the exact sum, rounded to 17 digits after the point.
    ///
    /// # Errors Returns [`DecimalError::NotFinite`] when the sum is not a number in range.
    pub fn add(&self, other: &Self) -> Result<Self, DecimalError> {
        if let (Repr::Scaled(left), Repr::Scaled(right)) = (&self.0, &other.0)
            && let Some(sum) = left.checked_add(*right)
        {
            return Ok(Self(Repr::Scaled(sum)));
        }
        let left = self.to_digits().ok_or(DecimalError::NotFinite)?;
        let right = other.to_digits().ok_or(DecimalError::NotFinite)?;
        let sum = left.add(right).rounded();
        if sum.is_out_of_range() {
            return Err(DecimalError::NotFinite);
        }
        Ok(Self(Repr::Digits(sum)))
    }

    /// Appends the number without an exponent, rounded to 17 digits after the point and without
    /// trailing zeros.
    pub fn write(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Repr::Scaled(scaled) => write_scaled(*scaled, out),
            Repr::Digits(digits) => digits.clone().rounded().write(out),
            Repr::Infinite(Sign::Plus) => out.extend_from_slice(b"inf"),
            Repr::Infinite(Sign::Minus) => out.extend_from_slice(b"-inf"),
        }
    }

    fn to_digits(&self) -> Option<Digits> {
        match &self.0 {
            Repr::Scaled(scaled) => Some(Digits::from_scaled(*scaled)),
            Repr::Digits(digits) => Some(digits.clone()),
            Repr::Infinite(_) => None,
        }
    }
}

/// Parses text as people write it (few digits, no exponent) to the number times [`UNIT`]. Allocates
/// nothing.
fn parse_plain(text: &[u8]) -> Option<i128> {
    let integer_len = text.iter().position(|byte| *byte == b'.').unwrap_or(text.len());
    let (integer, fraction) =
        (&text[..integer_len], text.get(integer_len + 1..).unwrap_or_default());
    let is_modest = integer.len() as i64 <= SCALED_INTEGER_DIGITS && fraction.len() <= SCALE;
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

impl Text {
    fn parse(sign: Sign, text: &[u8]) -> Option<Self> {
        let exponent_at = text.iter().position(|byte| matches!(byte, b'e' | b'E'));
        let (mantissa, exponent) = match exponent_at {
            Some(at) => (&text[..at], parse_exponent(&text[at + 1..])?),
            None => (text, 0),
        };
        let integer_len = mantissa.iter().position(|byte| *byte == b'.').unwrap_or(mantissa.len());
        let fraction = mantissa.get(integer_len + 1..).unwrap_or_default();
        let all = [&mantissa[..integer_len], fraction].concat();
        if all.is_empty() || !all.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let zeros = all.iter().take_while(|byte| **byte == b'0').count();
        let end = all.iter().rposition(|byte| *byte != b'0').map_or(zeros, |last| last + 1);
        let digits = all[zeros..end].to_vec();
        let point = i64::try_from(integer_len).ok()? - i64::try_from(zeros).ok()? + exponent;
        Some(Self { sign, digits, point })
    }

    /// Returns whether the magnitude is at least that of `digits`, compared to that many digits.
    fn is_at_least(&self, digits: &[u8], point: i64) -> bool {
        match self.point.cmp(&point) {
            Ordering::Equal => digits <= &self.digits[..self.digits.len().min(digits.len())],
            other => other == Ordering::Greater,
        }
    }

    /// Returns the number times [`UNIT`], if that is a whole number of moderate size.
    fn scaled(&self) -> Option<i128> {
        let len = i64::try_from(self.digits.len()).ok()?;
        let zeros = u32::try_from(self.point - len + SCALE as i64).ok()?;
        if SCALED_INTEGER_DIGITS < self.point {
            return None;
        }
        let number =
            self.digits.iter().fold(0i128, |number, digit| number * 10 + i128::from(digit - b'0'));
        let scaled = number * 10i128.pow(zeros);
        Some(if self.sign == Sign::Minus { -scaled } else { scaled })
    }

    fn to_digits(&self) -> Digits {
        let len = self.digits.len() as i64;
        // Zeros between the last digit and the point, where the point is behind it.
        let zeros = usize::try_from(self.point - len).unwrap_or(0);
        let scale = usize::try_from(len - self.point).unwrap_or(0);
        let mut digits = vec![0; zeros];
        digits.extend(self.digits.iter().rev().map(|digit| digit - b'0'));
        Digits { sign: self.sign, digits, scale }
    }
}

fn parse_exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let exponent = digits
        .iter()
        .fold(0, |exponent, digit| (exponent * 10 + i64::from(digit - b'0')).min(EXPONENT_MAX));
    Some(if negative { -exponent } else { exponent })
}

impl Digits {
    fn from_scaled(scaled: i128) -> Self {
        let sign = if scaled < 0 { Sign::Minus } else { Sign::Plus };
        let mut digits = Vec::with_capacity(40);
        let mut rest = scaled.unsigned_abs();
        while rest != 0 {
            digits.push((rest % 10) as u8);
            rest /= 10;
        }
        Self { sign, digits, scale: SCALE }
    }

    fn add(mut self, mut other: Self) -> Self {
        let scale = self.scale.max(other.scale);
        self.rescale(scale);
        other.rescale(scale);
        if self.sign == other.sign {
            add_magnitude(&mut self.digits, &other.digits);
            return self;
        }
        // The sign of the sum is that of the number with the larger magnitude.
        if compare_magnitude(&self.digits, &other.digits) == Ordering::Less {
            std::mem::swap(&mut self, &mut other);
        }
        subtract_magnitude(&mut self.digits, &other.digits);
        self
    }

    /// Appends zeros after the point.
    fn rescale(&mut self, scale: usize) {
        let zeros = scale - self.scale;
        self.digits.splice(0..0, std::iter::repeat_n(0, zeros));
        self.scale = scale;
    }

    /// Rounds to 17 digits after the point, ties to even.
    fn rounded(mut self) -> Self {
        let Some(excess) = self.scale.checked_sub(SCALE).filter(|excess| *excess != 0) else {
            return self;
        };
        let at = |index: usize| self.digits.get(index).copied().unwrap_or(0);
        let beyond_half = self.digits.iter().take(excess - 1).any(|digit| *digit != 0);
        let is_odd = at(excess) % 2 == 1;
        let up = match at(excess - 1).cmp(&5) {
            Ordering::Less => false,
            Ordering::Equal => beyond_half || is_odd,
            Ordering::Greater => true,
        };
        self.digits.drain(..excess.min(self.digits.len()));
        if up {
            add_magnitude(&mut self.digits, &[1]);
        }
        self.scale = SCALE;
        self
    }

    fn is_out_of_range(&self) -> bool {
        self.to_text().is_at_least(LIMIT_DIGITS, LIMIT_POINT)
    }

    fn to_text(&self) -> Text {
        let len = self.digits.iter().rposition(|digit| *digit != 0).map_or(0, |last| last + 1);
        let digits: Vec<u8> = self.digits[..len].iter().rev().map(|digit| digit + b'0').collect();
        Text { sign: self.sign, digits, point: len as i64 - self.scale as i64 }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let len = self.digits.iter().rposition(|digit| *digit != 0).map_or(0, |last| last + 1);
        let trailing = self.digits.iter().take(self.scale).take_while(|digit| **digit == 0).count();
        if self.sign == Sign::Minus && len != 0 {
            out.push(b'-');
        }
        let at = |index: usize| b'0' + self.digits.get(index).copied().unwrap_or(0);
        match len.checked_sub(self.scale).filter(|integer_len| *integer_len != 0) {
            Some(_) => out.extend((self.scale..len).rev().map(at)),
            None => out.push(b'0'),
        }
        if trailing < self.scale.min(len) {
            out.push(b'.');
            out.extend((trailing..self.scale).rev().map(at));
        }
    }
}

fn add_magnitude(left: &mut Vec<u8>, right: &[u8]) {
    left.resize(left.len().max(right.len()) + 1, 0);
    let mut carry = 0;
    for (index, digit) in left.iter_mut().enumerate() {
        let sum = *digit + right.get(index).copied().unwrap_or(0) + carry;
        (*digit, carry) = (sum % 10, sum / 10);
    }
}

/// Subtracts magnitudes; `left` is the larger one.
fn subtract_magnitude(left: &mut [u8], right: &[u8]) {
    let mut borrow = 0;
    for (index, digit) in left.iter_mut().enumerate() {
        let difference = 10 + *digit - right.get(index).copied().unwrap_or(0) - borrow;
        (*digit, borrow) = (difference % 10, u8::from(difference < 10));
    }
}

fn compare_magnitude(left: &[u8], right: &[u8]) -> Ordering {
    let at = |digits: &[u8], index: usize| digits.get(index).copied().unwrap_or(0);
    (0..left.len().max(right.len()))
        .rev()
        .map(|index| at(left, index).cmp(&at(right, index)))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

fn write_scaled(scaled: i128, out: &mut Vec<u8>) {
    let magnitude = scaled.unsigned_abs();
    if scaled < 0 {
        out.push(b'-');
    }
    let mut buffer = itoa::Buffer::new();
    out.extend_from_slice(buffer.format(magnitude / UNIT).as_bytes());
    let mut fraction = magnitude % UNIT;
    if fraction == 0 {
        return;
    }
    let mut digits = [0; SCALE];
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (fraction % 10) as u8;
        fraction /= 10;
    }
    let len = digits.iter().rposition(|digit| *digit != b'0').map_or(0, |last| last + 1);
    out.push(b'.');
    out.extend_from_slice(&digits[..len]);
}

#[cfg(test)]
mod tests;
