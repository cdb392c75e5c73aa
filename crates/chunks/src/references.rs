//! The chunks that a chunk names.
//!
//! The chunks of Dolt are flatbuffers behind a header of four bytes, the first of which is
//! [`MESSAGE`]. Nodes of trees keep the addresses of their children in one vector of bytes, commits
//! and tables keep others in vectors of one address; roots and tables hold a node as a vector of
//! bytes of its own. This reader knows no schema: it takes every vector of the root table whose
//! length is a multiple of an address's, and looks into vectors that are messages. So what it gives
//! are candidates: only those that a store's index has are references, and others are as good as
//! impossible to be there by chance.

use crate::{
    ChunkAddress,
    limits::{REFERENCE_FIELDS_MAX, REFERENCES_MAX, REFERENCES_NESTED_MAX},
};

/// First byte of a message.
const MESSAGE: u8 = 27;
/// Bytes before the flatbuffer.
const HEADER_BYTES: usize = 4;

/// Returns addresses that these contents may refer to, in their order, at most
/// [`REFERENCES_MAX`]. Contents that are no message have none.
pub fn references(contents: &[u8]) -> Vec<ChunkAddress> {
    let mut found = Vec::new();
    add_references(contents, REFERENCES_NESTED_MAX, &mut found);
    found.truncate(REFERENCES_MAX);
    found
}

fn add_references(message: &[u8], nested_max: usize, found: &mut Vec<ChunkAddress>) {
    if message.first() != Some(&MESSAGE) {
        return;
    }
    let Some(buffer) = message.get(HEADER_BYTES..) else { return };
    for vector in vectors(buffer) {
        if REFERENCES_MAX <= found.len() {
            return;
        }
        if vector.len().is_multiple_of(ChunkAddress::BYTES) {
            found.extend(vector.as_chunks().0.iter().map(|bytes| ChunkAddress(*bytes)));
        }
        if 0 < nested_max {
            add_references(vector, nested_max - 1, found);
        }
    }
}

/// Returns what could be the vectors of bytes of the root table, each within the buffer.
fn vectors(buffer: &[u8]) -> impl Iterator<Item = &[u8]> {
    let table = u32_at(buffer, 0).unwrap_or(usize::MAX);
    let fields = fields(buffer, table).unwrap_or_default();
    fields.as_chunks().0.iter().take(REFERENCE_FIELDS_MAX).filter_map(move |field| {
        let field = usize::from(u16::from_le_bytes(*field));
        // Fields that are not set are 0.
        let at = (field != 0).then(|| table.checked_add(field))??;
        let vector = at.checked_add(u32_at(buffer, at)?)?;
        let start = vector.checked_add(4)?;
        buffer.get(start..start.checked_add(u32_at(buffer, vector)?)?)
    })
}

/// Returns the offsets of the fields of a table, two bytes each.
fn fields(buffer: &[u8], table: usize) -> Option<&[u8]> {
    let back = i32::from_le_bytes(array_at(buffer, table)?);
    let back = isize::try_from(back).ok()?;
    let fields = table.checked_sub_signed(back)?;
    let bytes = usize::from(u16::from_le_bytes(array_at(buffer, fields)?));
    buffer.get(fields.checked_add(4)?..fields.checked_add(bytes)?)
}

fn u32_at(buffer: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(array_at(buffer, at)?)).ok()
}

fn array_at<const N: usize>(buffer: &[u8], at: usize) -> Option<[u8; N]> {
    buffer.get(at..at.checked_add(N)?)?.try_into().ok()
}
