//! Values as reads return them.

use bytes::Bytes;

use crate::hasher::Hasher;
use crate::index::{self, Content, EntryRef, Index};
use crate::packed;

/// Kind of value that an entry holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// A string of bytes.
    String,
    /// A map of fields to byte strings.
    Hash,
}

/// A stored value, borrowed from its table.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    /// A string of bytes.
    String(StringRef<'a>),
    /// A map of fields to byte strings.
    Hash(HashRef<'a>),
}

/// A stored byte string.
#[derive(Clone, Copy)]
pub struct StringRef<'a> {
    bytes: &'a [u8],
    shared: Option<&'a Bytes>,
}

/// A stored hash. Never empty.
#[derive(Clone, Copy)]
pub struct HashRef<'a> {
    fields: Fields<'a>,
}

#[derive(Clone, Copy)]
enum Fields<'a> {
    Packed(&'a [u8]),
    Indexed(&'a Index, &'a Hasher),
}

/// Iterator over the fields of a hash and their values.
pub struct HashIter<'a> {
    inner: HashIterInner<'a>,
}

/// Position of an iteration over the fields of a hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashCursor(index::IterCursor);

enum HashIterInner<'a> {
    Packed(packed::Pairs<'a>),
    Indexed(index::Iter<'a>),
}

impl<'a> Value<'a> {
    #[inline]
    pub(crate) fn new(content: Content<'a>, hasher: &'a Hasher) -> Self {
        match content {
            Content::Inline(bytes) => Value::String(StringRef { bytes, shared: None }),
            Content::Shared(bytes) => Value::String(StringRef { bytes, shared: Some(bytes) }),
            Content::Packed(packed) => Value::Hash(HashRef { fields: Fields::Packed(packed) }),
            Content::Indexed(index) => {
                Value::Hash(HashRef { fields: Fields::Indexed(index, hasher) })
            }
        }
    }

    /// Returns the kind of this value.
    pub fn kind(&self) -> ValueKind {
        match self {
            Value::String(_) => ValueKind::String,
            Value::Hash(_) => ValueKind::Hash,
        }
    }

    /// Returns the string, if it is one.
    pub fn string(self) -> Option<StringRef<'a>> {
        match self {
            Value::String(string) => Some(string),
            Value::Hash(_) => None,
        }
    }

    /// Returns the hash, if it is one.
    pub fn hash(self) -> Option<HashRef<'a>> {
        match self {
            Value::Hash(hash) => Some(hash),
            Value::String(_) => None,
        }
    }
}

impl<'a> StringRef<'a> {
    /// Returns the bytes of the string.
    #[inline]
    pub fn as_slice(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the value as a counted reference, if it is long enough to be kept that way.
    #[inline]
    pub fn shared(&self) -> Option<Bytes> {
        self.shared.cloned()
    }
}

impl<'a> HashRef<'a> {
    /// Returns the number of fields.
    #[expect(clippy::len_without_is_empty, reason = "a stored hash is never empty")]
    pub fn len(&self) -> usize {
        match self.fields {
            Fields::Packed(packed) => packed::pairs(packed).count(),
            Fields::Indexed(index, _) => index.len(),
        }
    }

    /// Returns the memory that the fields and their index take.
    pub fn memory_bytes(&self) -> usize {
        match self.fields {
            Fields::Packed(packed) => packed.len(),
            Fields::Indexed(index, _) => usize::try_from(index.bytes()).unwrap_or(usize::MAX),
        }
    }

    /// Returns the value of a field.
    pub fn get(&self, field: &[u8]) -> Option<&'a [u8]> {
        match self.fields {
            Fields::Packed(packed) => packed::get(packed, field),
            Fields::Indexed(index, hasher) => {
                index.find(hasher.hash(field), field).map(field_value)
            }
        }
    }

    /// Iterates over all fields with their values, in no particular order.
    pub fn iter(&self) -> HashIter<'a> {
        let inner = match self.fields {
            Fields::Packed(packed) => HashIterInner::Packed(packed::pairs(packed)),
            Fields::Indexed(index, _) => HashIterInner::Indexed(index.iter()),
        };
        HashIter { inner }
    }

    /// Emits fields from `position` (0 starts) on until about `count_min` were visited. Returns the
    /// position to continue at, below 2^40; `None` when all were visited. A small hash is emitted
    /// whole. Guarantees what [`crate::Tables::scan`] guarantees.
    pub fn scan(
        &self,
        position: u64,
        count_min: usize,
        emit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Option<u64> {
        match self.fields {
            Fields::Packed(packed) => {
                packed::pairs(packed).for_each(|(field, value)| emit(field, value));
                None
            }
            Fields::Indexed(index, _) => {
                index.scan(position, count_min, |entry| emit(entry.key(), field_value(entry)))
            }
        }
    }

    /// Continues at a cursor that [`HashIter::cursor`] returned. The hash must not have changed
    /// since.
    pub fn iter_from(&self, cursor: HashCursor) -> HashIter<'a> {
        match self.fields {
            Fields::Packed(_) => self.iter(),
            Fields::Indexed(index, _) => {
                HashIter { inner: HashIterInner::Indexed(index.iter_from(cursor.0)) }
            }
        }
    }

    /// Returns a field chosen by a random number, about fairly, with its value.
    pub fn random(&self, random: u64) -> (&'a [u8], &'a [u8]) {
        let chosen = match self.fields {
            Fields::Packed(packed) => {
                let at = random % packed::pairs(packed).count().max(1) as u64;
                packed::pairs(packed).nth(at as usize)
            }
            Fields::Indexed(index, _) => {
                index.random(random, |_| true).map(|entry| (entry.key(), field_value(entry)))
            }
        };
        chosen.expect("a stored hash is never empty")
    }
}

impl HashIter<'_> {
    /// Returns the cursor where [`HashRef::iter_from`] continues; `None` for a hash small enough to
    /// be iterated at once.
    pub fn cursor(&self) -> Option<HashCursor> {
        match &self.inner {
            HashIterInner::Packed(_) => None,
            HashIterInner::Indexed(entries) => Some(HashCursor(entries.cursor())),
        }
    }
}

impl<'a> IntoIterator for HashRef<'a> {
    type Item = (&'a [u8], &'a [u8]);
    type IntoIter = HashIter<'a>;

    fn into_iter(self) -> HashIter<'a> {
        self.iter()
    }
}

impl<'a> Iterator for HashIter<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.inner {
            HashIterInner::Packed(pairs) => pairs.next(),
            HashIterInner::Indexed(entries) => {
                entries.next().map(|entry| (entry.key(), field_value(entry)))
            }
        }
    }
}

pub(crate) fn kind(content: Content<'_>) -> ValueKind {
    match content {
        Content::Inline(_) | Content::Shared(_) => ValueKind::String,
        Content::Packed(_) | Content::Indexed(_) => ValueKind::Hash,
    }
}

/// Returns the value of an entry of a large hash.
fn field_value(entry: EntryRef<'_>) -> &[u8] {
    match entry.content() {
        Content::Inline(value) => value,
        Content::Shared(value) => value,
        Content::Packed(_) | Content::Indexed(_) => unreachable!("hashes are not nested"),
    }
}
