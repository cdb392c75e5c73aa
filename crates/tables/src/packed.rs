//! Small hashes, packed into one byte string: `(varint length, field, varint length, value)*`.
//!
//! The bytes are always our own, so a malformed string is a programming error.

/// Result of setting a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Set {
    Added,
    Replaced,
    /// The hash would become longer than allowed; it is unchanged.
    TooLong,
}

/// Iterator over the pairs of a packed hash.
#[derive(Clone)]
pub(crate) struct Pairs<'a> {
    rest: &'a [u8],
}

pub(crate) fn pairs(packed: &[u8]) -> Pairs<'_> {
    Pairs { rest: packed }
}

pub(crate) fn get<'a>(packed: &'a [u8], field: &[u8]) -> Option<&'a [u8]> {
    pairs(packed).find(|(name, _)| *name == field).map(|(_, value)| value)
}

/// Sets a field, unless the hash would become longer than `bytes_max`.
pub(crate) fn set(packed: &mut Vec<u8>, field: &[u8], value: &[u8], bytes_max: usize) -> Set {
    let new_len = string_len(field) + string_len(value);
    match find(packed, field) {
        None if bytes_max < packed.len() + new_len => Set::TooLong,
        None => {
            push_string(packed, field);
            push_string(packed, value);
            Set::Added
        }
        Some((start, end)) if bytes_max < packed.len() - (end - start) + new_len => Set::TooLong,
        Some((start, end)) => {
            // The pair moves to the end: the order of fields carries no meaning.
            packed.drain(start..end);
            push_string(packed, field);
            push_string(packed, value);
            Set::Replaced
        }
    }
}

/// Removes a field; returns whether it was there.
pub(crate) fn remove(packed: &mut Vec<u8>, field: &[u8]) -> bool {
    let found = find(packed, field);
    if let Some((start, end)) = found {
        packed.drain(start..end);
    }
    found.is_some()
}

/// Returns where the pair of a field begins and ends.
fn find(packed: &[u8], field: &[u8]) -> Option<(usize, usize)> {
    let mut pairs = pairs(packed);
    loop {
        let start = packed.len() - pairs.rest.len();
        let (name, _) = pairs.next()?;
        if name == field {
            return Some((start, packed.len() - pairs.rest.len()));
        }
    }
}

fn string_len(string: &[u8]) -> usize {
    let bits = usize::BITS - (string.len() | 1).leading_zeros();
    string.len() + bits.div_ceil(7) as usize
}

fn push_string(packed: &mut Vec<u8>, string: &[u8]) {
    let mut len = string.len();
    while 0x80 <= len {
        packed.push(len as u8 | 0x80);
        len >>= 7;
    }
    packed.push(len as u8);
    packed.extend_from_slice(string);
}

fn take_string<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let mut len = 0;
    let mut shift = 0;
    loop {
        let (&byte, behind) = rest.split_first()?;
        *rest = behind;
        len |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
        shift += 7;
    }
    let (string, behind) = rest.split_at(len);
    *rest = behind;
    Some(string)
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let field = take_string(&mut self.rest)?;
        let value = take_string(&mut self.rest).expect("a field is followed by its value");
        Some((field, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_set_replaced_and_removed_within_the_limit() {
        let mut packed = Vec::new();
        assert_eq!(set(&mut packed, b"a", b"1", 400), Set::Added);
        assert_eq!(set(&mut packed, b"", &[7; 300], 400), Set::Added);
        assert_eq!(set(&mut packed, b"a", b"", 400), Set::Replaced);
        assert_eq!(set(&mut packed, b"b", &[0; 200], 400), Set::TooLong);
        let len = packed.len();
        assert_eq!(set(&mut packed, b"", &[8; 300], len), Set::Replaced);
        assert_eq!(set(&mut packed, b"", &[8; 301], len), Set::TooLong);
        assert_eq!(get(&packed, b""), Some(&[8; 300][..]));
        assert_eq!((get(&packed, b"a"), get(&packed, b"b")), (Some(&b""[..]), None));
        assert_eq!(pairs(&packed).count(), 2);
        assert!(remove(&mut packed, b"") && !remove(&mut packed, b""));
        assert!(remove(&mut packed, b"a") && packed.is_empty());
    }

    #[test]
    fn announced_and_written_lengths_agree() {
        for len in [0, 1, 127, 128, 16_383, 16_384] {
            let mut packed = Vec::new();
            push_string(&mut packed, &vec![1; len]);
            assert_eq!(packed.len(), string_len(&vec![1; len]));
        }
    }
}
