//! Keys: parses a client's text once into the one form that is compared, sorted and sent.
//!
//! A [`Key`] is canonical: two spellings of one key (`007` and `7`, a UUID in braces) are equal, so
//! that they share an entry. It is a short string of bytes, stored inline up to [`INLINE_BYTES`],
//! so that common keys allocate nothing; cloning, hashing and comparing it cost what its bytes
//! cost.
//!
//! | part | its bytes |
//! |---|---|
//! | tag | the type; the high bit says that further parts follow |
//! | length | four bytes, only of text or bytes that further parts follow |
//! | content | text and bytes as they are, a UUID's 16 bytes, an integer's 8 that sort as it does |
//!
//! Integers of all widths have one tag: a key stays the same key when its column changes from
//! `integer` to `bigint`.
//!
//! Keys of one column sort as an index with C collation does. Others have some fixed total
//! order.

mod parse;
#[cfg(test)]
mod tests;

use std::{cmp::Ordering, fmt, hash::Hash, sync::Arc};

pub use parse::KeyShape;

/// Largest encoded key that is stored inline: `Key` then fills four words.
const INLINE_BYTES: usize = 30;
/// Bit of a tag: another part follows.
const MORE: u8 = 0x80;
const INTEGER_BYTES: usize = 8;
const UUID_BYTES: usize = 16;
const LENGTH_BYTES: usize = 4;

/// Type of a key column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyType {
    /// `text`, and `varchar`, which is the same with a limit.
    Text,
    /// `bytea`: any bytes, as they are.
    Bytes,
    /// `uuid`, in its 16 bytes.
    Uuid,
    /// `smallint`, 16 bits with a sign.
    Int2,
    /// `integer`, 32 bits with a sign.
    Int4,
    /// `bigint`, 64 bits with a sign.
    Int8,
}

impl KeyType {
    /// Returns the type's name in `pg_catalog`.
    pub fn sql(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Bytes => "bytea",
            Self::Uuid => "uuid",
            Self::Int2 => "int2",
            Self::Int4 => "int4",
            Self::Int8 => "int8",
        }
    }

    /// Returns whether a column of this type can hold the part.
    fn holds(self, part: &Part<'_>) -> bool {
        match self {
            Self::Text | Self::Bytes | Self::Uuid => part.key_type == self,
            Self::Int2 => part.is_integer_of::<i16>(),
            Self::Int4 => part.is_integer_of::<i32>(),
            Self::Int8 => part.is_integer_of::<i64>(),
        }
    }

    fn tag(self) -> u8 {
        match self {
            Self::Text => 1,
            Self::Bytes => 2,
            Self::Uuid => 3,
            Self::Int2 | Self::Int4 | Self::Int8 => 4,
        }
    }

    fn of_tag(tag: u8) -> Option<Self> {
        match tag & !MORE {
            1 => Some(Self::Text),
            2 => Some(Self::Bytes),
            3 => Some(Self::Uuid),
            4 => Some(Self::Int8),
            _ => None,
        }
    }

    /// Returns the length of the content, if it is fixed.
    fn fixed_bytes(self) -> Option<usize> {
        match self {
            Self::Text | Self::Bytes => None,
            Self::Uuid => Some(UUID_BYTES),
            Self::Int2 | Self::Int4 | Self::Int8 => Some(INTEGER_BYTES),
        }
    }
}

/// Key of one row, typed and canonical. [`Table::parse_key`](crate::Table::parse_key) makes it.
#[derive(Clone)]
pub struct Key(Repr);

#[derive(Clone)]
enum Repr {
    Inline { len: u8, bytes: [u8; INLINE_BYTES] },
    Shared(Arc<[u8]>),
}

impl Key {
    fn new(encoded: &[u8]) -> Self {
        let mut bytes = [0; INLINE_BYTES];
        match (bytes.get_mut(..encoded.len()), u8::try_from(encoded.len())) {
            (Some(start), Ok(len)) => {
                start.copy_from_slice(encoded);
                Self(Repr::Inline { len, bytes })
            }
            _ => Self(Repr::Shared(encoded.into())),
        }
    }

    pub(crate) fn encoded(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Shared(bytes) => bytes,
        }
    }

    /// Returns the bytes of memory that the key takes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + match &self.0 {
                Repr::Inline { .. } => 0,
                Repr::Shared(bytes) => bytes.len(),
            }
    }

    pub(crate) fn parts(&self) -> Parts<'_> {
        Parts { rest: self.encoded() }
    }
}

/// Iterator over the parts of an encoded key, in order.
pub(crate) struct Parts<'a> {
    rest: &'a [u8],
}

/// Type and content of one part.
pub(crate) struct Part<'a> {
    /// Type of the part; `Int8` for every integer.
    key_type: KeyType,
    content: &'a [u8],
}

impl<'a> Iterator for Parts<'a> {
    type Item = Part<'a>;

    fn next(&mut self) -> Option<Part<'a>> {
        let (&tag, rest) = self.rest.split_first()?;
        let key_type = KeyType::of_tag(tag)?;
        let (content, rest) = match key_type.fixed_bytes() {
            Some(bytes) => rest.split_at_checked(bytes)?,
            None if tag & MORE == 0 => (rest, &[][..]),
            None => {
                let (length, rest) = rest.split_first_chunk::<LENGTH_BYTES>()?;
                rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?
            }
        };
        self.rest = rest;
        Some(Part { key_type, content })
    }
}

impl Part<'_> {
    /// Writes the part in Postgres' binary form, as an element of an array parameter of this type.
    pub(crate) fn write_binary(&self, element: KeyType, out: &mut impl FnMut(&[u8])) {
        match element {
            KeyType::Text | KeyType::Bytes | KeyType::Uuid => out(self.content),
            // The low bytes of the number, whose sign bit is stored flipped in the first byte.
            KeyType::Int2 => out(&self.integer().to_be_bytes()[INTEGER_BYTES - 2..]),
            KeyType::Int4 => out(&self.integer().to_be_bytes()[INTEGER_BYTES - 4..]),
            KeyType::Int8 => out(&self.integer().to_be_bytes()),
        }
    }

    fn is_integer_of<T: TryFrom<i64>>(&self) -> bool {
        self.key_type == KeyType::Int8 && T::try_from(self.integer()).is_ok()
    }

    fn integer(&self) -> i64 {
        let bytes = self.content.try_into().unwrap_or([0; INTEGER_BYTES]);
        i64::from_be_bytes(bytes) ^ i64::MIN
    }
}

impl fmt::Debug for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key_type {
            KeyType::Text => write!(f, "{:?}", String::from_utf8_lossy(self.content)),
            KeyType::Bytes | KeyType::Uuid => write!(f, "0x{}", hex(self.content)),
            KeyType::Int2 | KeyType::Int4 | KeyType::Int8 => write!(f, "{}", self.integer()),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Encodes a key part by part into a reused buffer.
#[derive(Debug, Default)]
pub(crate) struct KeyEncoder {
    bytes: Vec<u8>,
}

/// Says whether a part is the last one of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    Last,
    BeforeOthers,
}

impl KeyEncoder {
    /// Creates an encoder for a key that was written in this many bytes.
    fn for_bytes(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes + INLINE_BYTES) }
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
    }

    pub(crate) fn encoded(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn key(&self) -> Key {
        Key::new(&self.bytes)
    }

    fn tag(&mut self, key_type: KeyType, position: Position) {
        let more = if position == Position::Last { 0 } else { MORE };
        self.bytes.push(key_type.tag() | more);
    }

    pub(crate) fn integer(&mut self, key_type: KeyType, number: i64, position: Position) {
        self.tag(key_type, position);
        self.bytes.extend_from_slice(&(number ^ i64::MIN).to_be_bytes());
    }

    /// Adds text, bytes or a UUID. Content of 4 GiB cannot occur: a message of Postgres has at most
    /// 1 GiB.
    pub(crate) fn content(&mut self, key_type: KeyType, content: &[u8], position: Position) {
        self.tag(key_type, position);
        if position == Position::BeforeOthers && key_type.fixed_bytes().is_none() {
            let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
            self.bytes.extend_from_slice(&length.to_be_bytes());
        }
        self.bytes.extend_from_slice(content);
    }

    /// Adds a part given in Postgres' binary form; `None` if its bytes do not fit its type.
    pub(crate) fn binary(
        &mut self,
        key_type: KeyType,
        raw: &[u8],
        position: Position,
    ) -> Option<()> {
        match key_type {
            KeyType::Text | KeyType::Bytes => self.content(key_type, raw, position),
            KeyType::Uuid => self.content(key_type, raw.first_chunk::<UUID_BYTES>()?, position),
            KeyType::Int2 => {
                self.integer(key_type, i16::from_be_bytes(raw.try_into().ok()?).into(), position)
            }
            KeyType::Int4 => {
                self.integer(key_type, i32::from_be_bytes(raw.try_into().ok()?).into(), position)
            }
            KeyType::Int8 => {
                self.integer(key_type, i64::from_be_bytes(raw.try_into().ok()?), position)
            }
        }
        Some(())
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.encoded() == other.encoded()
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.encoded().hash(state);
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.encoded().cmp(other.encoded())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")?;
        f.debug_list().entries(self.parts()).finish()
    }
}
