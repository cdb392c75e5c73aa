//! Dolt's text form of 20 bytes: base32 with the digits `0-9a-v`, most significant bits first, no
//! padding.
//!
//! Five bytes are eight characters, so 20 bytes are exactly 32 characters, and texts sort in the
//! order of the bytes.

/// Number of characters of 20 bytes.
pub(crate) const TEXT_BYTES: usize = 32;

const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

/// Value of a byte that is not a digit. Any value with a bit above the lowest five would do.
const NONE: u8 = 0xff;

/// Value of each byte as a digit.
const VALUES: [u8; 256] = {
    let mut values = [NONE; 256];
    let mut digit = 0;
    while digit < 32 {
        values[DIGITS[digit as usize] as usize] = digit;
        digit += 1;
    }
    values
};

pub(crate) fn encode(bytes: &[u8; 20]) -> [u8; TEXT_BYTES] {
    let mut text = [0; TEXT_BYTES];
    let (groups, _) = bytes.as_chunks::<5>();
    for (group, characters) in groups.iter().zip(text.as_chunks_mut::<8>().0) {
        let bits = group.iter().fold(0u64, |bits, &byte| bits << 8 | u64::from(byte));
        for (index, character) in characters.iter_mut().enumerate() {
            *character = DIGITS[(bits >> (35 - 5 * index)) as usize & 31];
        }
    }
    text
}

/// Decodes a text; `None` if it does not have 32 characters or one is not a digit.
pub(crate) fn decode(text: &[u8]) -> Option<[u8; 20]> {
    let text: &[u8; TEXT_BYTES] = text.try_into().ok()?;
    let mut bytes = [0; 20];
    let mut seen = 0;
    for (characters, group) in text.as_chunks::<8>().0.iter().zip(bytes.as_chunks_mut::<5>().0) {
        let mut bits = 0u64;
        for &character in characters {
            let value = VALUES[usize::from(character)];
            // One check at the end instead of 32: a wrong digit leaves a high bit here.
            seen |= value;
            bits = bits << 5 | u64::from(value & 31);
        }
        group.copy_from_slice(&bits.to_be_bytes()[3..]);
    }
    (seen < 32).then_some(bytes)
}

/// Returns the characters as a string.
pub(crate) fn as_text(characters: &[u8; TEXT_BYTES]) -> &str {
    std::str::from_utf8(characters).expect("digits are ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Encodes bit by bit, as the definition says.
    fn encode_slowly(bytes: &[u8; 20]) -> String {
        let bit = |index: usize| usize::from(bytes[index / 8] >> (7 - index % 8) & 1);
        let digit = |at: usize| (0..5).fold(0, |value, index| value << 1 | bit(5 * at + index));
        (0..32).map(|at| char::from(DIGITS[digit(at)])).collect()
    }

    proptest! {
        #[test]
        fn text_is_that_of_the_definition_and_reads_back(bytes: [u8; 20]) {
            let text = encode(&bytes);
            prop_assert_eq!(as_text(&text), encode_slowly(&bytes));
            prop_assert_eq!(decode(&text), Some(bytes));
        }

        #[test]
        fn order_of_texts_is_that_of_bytes(a: [u8; 20], b: [u8; 20]) {
            prop_assert_eq!(encode(&a).cmp(&encode(&b)), a.cmp(&b));
        }
    }

    #[test]
    fn every_digit_and_no_other_byte_is_read_at_every_place() {
        for place in 0..TEXT_BYTES {
            for byte in 0..=u8::MAX {
                let mut text = [b'0'; TEXT_BYTES];
                text[place] = byte;
                let read = decode(&text);
                assert_eq!(read.is_some(), DIGITS.contains(&byte), "byte {byte} at {place}");
                assert!(read.is_none_or(|bytes| encode(&bytes) == text), "byte {byte} at {place}");
            }
        }
        assert_eq!(decode(&[b'0'; 31]), None);
        assert_eq!(decode(&[b'0'; 33]), None);
    }
}
