//! What reads return.

use std::collections::BTreeMap;

use bytes::Bytes;

/// What kind of value an entry holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// A byte string.
    String,
    /// A map of fields to byte strings.
    Hash,
}

/// A stored value.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    /// A byte string.
    String(StringRef<'a>),
    /// A map of fields to byte strings.
    Hash(HashRef<'a>),
}

impl<'a> Value<'a> {
    /// The kind of this value.
    pub fn kind(&self) -> ValueKind {
        match self {
            Value::String(_) => ValueKind::String,
            Value::Hash(_) => ValueKind::Hash,
        }
    }

    /// The string, if it is one.
    pub fn string(self) -> Option<StringRef<'a>> {
        match self {
            Value::String(string) => Some(string),
            Value::Hash(_) => None,
        }
    }

    /// The hash, if it is one.
    pub fn hash(self) -> Option<HashRef<'a>> {
        match self {
            Value::Hash(hash) => Some(hash),
            Value::String(_) => None,
        }
    }
}

/// A stored byte string.
#[derive(Clone, Copy)]
pub struct StringRef<'a> {
    pub(crate) bytes: &'a Bytes,
}

impl<'a> StringRef<'a> {
    /// The bytes.
    pub fn as_slice(&self) -> &'a [u8] {
        self.bytes
    }

    /// The value as a counted reference, for values long enough to be kept that way.
    pub fn shared(&self) -> Option<Bytes> {
        (self.bytes.len() >= crate::limits::SHARED_BYTES_MIN).then(|| self.bytes.clone())
    }
}

pub(crate) type Fields = BTreeMap<Vec<u8>, Vec<u8>>;

/// A stored hash. Never empty.
#[derive(Clone, Copy)]
pub struct HashRef<'a> {
    pub(crate) fields: &'a Fields,
}

impl<'a> HashRef<'a> {
    /// Fields in the hash.
    #[expect(clippy::len_without_is_empty, reason = "a stored hash is never empty")]
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// The value of a field.
    pub fn get(&self, field: &[u8]) -> Option<&'a [u8]> {
        self.fields.get(field).map(Vec::as_slice)
    }

    /// All fields with their values, in no particular order.
    pub fn iter(&self) -> HashIter<'a> {
        HashIter { inner: self.fields.iter() }
    }

    /// Emits fields from `position` (0 starts) on until about `count_min` were visited and gives the position to go
    /// on at, below 2^40; `None` when all were visited.
    pub fn scan(&self, position: u64, count_min: usize, emit: &mut dyn FnMut(&[u8], &[u8])) -> Option<u64> {
        let _ = (position, count_min);
        for (field, value) in self.fields {
            emit(field, value);
        }
        None
    }

    /// A field chosen by a random number.
    pub fn random(&self, random: u64) -> (&'a [u8], &'a [u8]) {
        let at = (random % self.fields.len() as u64) as usize;
        self.iter().nth(at).expect("the remainder is below the length")
    }
}

impl<'a> IntoIterator for HashRef<'a> {
    type Item = (&'a [u8], &'a [u8]);
    type IntoIter = HashIter<'a>;

    fn into_iter(self) -> HashIter<'a> {
        self.iter()
    }
}

/// The fields of a hash.
pub struct HashIter<'a> {
    inner: std::collections::btree_map::Iter<'a, Vec<u8>, Vec<u8>>,
}

impl<'a> Iterator for HashIter<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        self.inner.next().map(|(field, value)| (field.as_slice(), value.as_slice()))
    }
}
