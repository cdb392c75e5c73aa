//! Snappy blocks: a length, then elements that are literals or copies of earlier contents.

use std::cell::RefCell;

use bytes::Bytes;

use crate::{FormatError, decode::CRC_BYTES, error::corrupt, limits::CHUNK_BYTES_MAX};

/// Length of the densest element, a copy with a two-byte offset.
const ELEMENT_BYTES: u64 = 3;

/// Most contents of such an element. (With a one-byte offset: two bytes for at most 11.)
const ELEMENT_CONTENTS_BYTES: u64 = 64;

thread_local! {
    /// Kept per thread: its tables take some tens of KiB.
    static ENCODER: RefCell<snap::raw::Encoder> = RefCell::new(snap::raw::Encoder::new());
}

/// Returns the announced length of a block's contents, if the block can decode to as much.
pub(crate) fn contents_bytes(block: &[u8]) -> Result<usize, FormatError> {
    let announced = snap::raw::decompress_len(block).map_err(|error| corrupt!("{error}"))?;
    let most = block.len() as u64 * ELEMENT_CONTENTS_BYTES / ELEMENT_BYTES;
    if announced as u64 > most {
        return Err(corrupt!(
            "a snappy block of {} bytes announces contents of {announced} bytes, \
             more than it can hold",
            block.len()
        ));
    }
    Ok(announced)
}

pub(crate) fn decompress(block: &[u8]) -> Result<Bytes, FormatError> {
    let length = contents_bytes(block)?;
    if length > CHUNK_BYTES_MAX {
        return Err(corrupt!("a chunk of {length} bytes, expected at most {CHUNK_BYTES_MAX}"));
    }
    let mut contents = vec![0; length];
    let decoded = snap::raw::Decoder::new().decompress(block, &mut contents);
    decoded.map_err(|error| corrupt!("{error}"))?;
    Ok(Bytes::from(contents))
}

/// Encodes contents as a classic record: a snappy block and its CRC-32C.
///
/// # Errors
/// [`FormatError::Corrupt`] if the contents are longer than snappy can encode.
pub fn record_of(contents: &[u8]) -> Result<Vec<u8>, FormatError> {
    let mut record = vec![0; snap::raw::max_compress_len(contents.len()) + CRC_BYTES];
    let length = ENCODER
        .with_borrow_mut(|encoder| encoder.compress(contents, &mut record))
        .map_err(|error| corrupt!("{error}"))?;
    record.truncate(length);
    record.extend_from_slice(&crc32c::crc32c(&record).to_be_bytes());
    record.shrink_to_fit();
    Ok(record)
}
