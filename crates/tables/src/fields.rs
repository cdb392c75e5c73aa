//! Changes the fields of hashes, packed or indexed.

use crate::hasher::Hasher;
use crate::index::{Content, Heap, Index, NewContent};
use crate::limits::{
    COMPACT_HASH_FIELDS_MAX, COMPACT_HASH_STRING_BYTES_MAX, SMALL_HASH_BYTES_MAX,
    SMALL_HASH_FIELDS_MAX,
};
use crate::packed::{self, Set};

/// Hash while fields are being set in it.
enum Building {
    Packed { packed: Vec<u8>, count: usize },
    Indexed(Box<Index>),
}

/// Sets fields and returns how many are new. A long field or value, or many fields, make the hash
/// general from then on.
pub(crate) fn put<'p>(
    index: &mut Index,
    heap: &mut Heap,
    hasher: &Hasher,
    hash: u64,
    key: &[u8],
    pairs: &mut dyn Iterator<Item = (&'p [u8], &'p [u8])>,
) -> usize {
    let mut long = false;
    let mut pairs = pairs.inspect(|(field, value)| {
        long |= COMPACT_HASH_STRING_BYTES_MAX < field.len().max(value.len());
    });
    let in_place = index.with_indexed(heap, hash, key, |fields, heap| {
        let put = |(field, value)| put_indexed(fields, heap, hasher, field, value);
        let added: usize = pairs.by_ref().map(put).sum();
        (added, fields.len())
    });
    if let Some((added, len)) = in_place {
        let were_few = len - added <= COMPACT_HASH_FIELDS_MAX;
        if long || were_few && COMPACT_HASH_FIELDS_MAX < len {
            index.make_general(hash, key);
        }
        return added;
    }
    let mut packed = std::mem::take(&mut heap.scratch);
    packed.clear();
    let entry = index.find(hash, key);
    let expiry = entry.and_then(|entry| entry.expiry());
    let mut general = false;
    if let Some(entry) = entry
        && let Content::Packed(old) = entry.content()
    {
        packed.extend_from_slice(old);
        general = entry.is_general();
    }
    let count = packed::pairs(&packed).count();
    let mut building = Building::Packed { packed, count };
    let mut added = 0;
    for (field, value) in pairs {
        added += building.put(heap, hasher, field, value);
    }
    match building {
        Building::Packed { packed, .. } => {
            if !packed.is_empty() {
                index.put(heap, hasher, hash, key, NewContent::Packed(&packed), expiry);
            }
            heap.scratch = packed;
        }
        Building::Indexed(fields) => {
            general |= COMPACT_HASH_FIELDS_MAX < fields.len();
            index.put(heap, hasher, hash, key, NewContent::Indexed(fields), expiry);
        }
    }
    if general || long {
        index.make_general(hash, key);
    }
    added
}

/// Removes fields and returns how many were there. Removing the last field removes the key.
pub(crate) fn delete(
    index: &mut Index,
    heap: &mut Heap,
    hasher: &Hasher,
    hash: u64,
    key: &[u8],
    fields: &mut dyn Iterator<Item = &[u8]>,
) -> usize {
    let in_place = index.with_indexed(heap, hash, key, |indexed, heap| {
        let removed =
            fields.filter(|field| indexed.delete(heap, hasher.hash(field), field)).count();
        (removed, indexed.len())
    });
    let (removed, left) = match in_place {
        Some(result) => result,
        None => {
            let Some(entry) = index.find(hash, key) else { return 0 };
            let Content::Packed(old) = entry.content() else { return 0 };
            let (expiry, general) = (entry.expiry(), entry.is_general());
            let mut packed = std::mem::take(&mut heap.scratch);
            packed.clear();
            packed.extend_from_slice(old);
            let removed = fields.filter(|field| packed::remove(&mut packed, field)).count();
            if removed != 0 && !packed.is_empty() {
                index.put(heap, hasher, hash, key, NewContent::Packed(&packed), expiry);
                if general {
                    index.make_general(hash, key);
                }
            }
            let left = packed.len();
            heap.scratch = packed;
            (removed, left)
        }
    };
    if left == 0 {
        index.delete(heap, hash, key);
    }
    removed
}

impl Building {
    /// Sets a field and returns 1 if it is new. A packed hash that becomes too large is indexed.
    fn put(&mut self, heap: &mut Heap, hasher: &Hasher, field: &[u8], value: &[u8]) -> usize {
        if let Building::Packed { packed, count } = self {
            let is_full = SMALL_HASH_FIELDS_MAX <= *count && packed::get(packed, field).is_none();
            let set = if is_full {
                Set::TooLong
            } else {
                packed::set(packed, field, value, SMALL_HASH_BYTES_MAX)
            };
            match set {
                Set::Added => {
                    *count += 1;
                    return 1;
                }
                Set::Replaced => return 0,
                Set::TooLong => {}
            }
            let mut indexed = Index::new_boxed(heap);
            for (field, value) in packed::pairs(packed) {
                put_indexed(&mut indexed, heap, hasher, field, value);
            }
            heap.scratch = std::mem::take(packed);
            *self = Building::Indexed(indexed);
        }
        match self {
            Building::Indexed(fields) => put_indexed(fields, heap, hasher, field, value),
            Building::Packed { .. } => 0,
        }
    }
}

fn put_indexed(
    fields: &mut Index,
    heap: &mut Heap,
    hasher: &Hasher,
    field: &[u8],
    value: &[u8],
) -> usize {
    let before = fields.len();
    fields.put(heap, hasher, hasher.hash(field), field, NewContent::Slice(value), None);
    fields.len() - before
}
