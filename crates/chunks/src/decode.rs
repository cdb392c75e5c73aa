//! Decodes stored bytes into contents, and checks them.
//!
//! Nothing is allocated for a size that is only announced: [`snappy`] and [`frame`] first compute
//! the most that the given bytes can decode to. Each thread keeps its decoding context, so decoding
//! a chunk allocates its contents and nothing else.

mod frame;
mod snappy;

use std::{cell::RefCell, fmt};

use bytes::Bytes;
use zstd::zstd_safe::{self, DCtx, DDict};

use crate::{
    ChunkAddress, ChunkLocation, FormatError, be,
    error::{corrupt, malformed},
    limits::{CHUNK_BYTES_MAX, DICTIONARY_BYTES_MAX},
};

pub use snappy::record_of;

/// Length of the CRC-32C after a record's snappy block.
pub(crate) const CRC_BYTES: usize = 4;

/// Encoding of stored bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// A snappy block; in the file a CRC-32C follows it.
    Snappy,
    /// A zstd frame made with a dictionary.
    Zstd,
}

/// Dictionary that is ready for use.
pub struct Dictionary {
    bytes: Bytes,
    digested: DDict<'static>,
}

impl Dictionary {
    /// Decodes the bytes of a dictionary's span: one zstd frame, made without a dictionary.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] if the bytes are not such a frame, or its contents are larger than
    /// [`DICTIONARY_BYTES_MAX`] or not a dictionary.
    pub fn decode(span: &[u8]) -> Result<Self, FormatError> {
        let bytes = decompress(span, None, DICTIONARY_BYTES_MAX)?;
        // Bytes that do not begin like a trained dictionary are used as raw content.
        let digested = DDict::try_create(&bytes).ok_or_else(|| {
            corrupt!("expected a zstd dictionary, found {} bytes that are none", bytes.len())
        })?;
        Ok(Self { bytes, digested })
    }

    /// Returns the dictionary's bytes, decompressed.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the memory that it takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.digested.sizeof()
    }
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionary").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

/// Bytes of a chunk's span, as a file holds them.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Encoding of the bytes.
    pub encoding: Encoding,
    /// Bytes of the span without the CRC.
    pub bytes: Bytes,
    /// A snappy block with its CRC; empty for a frame.
    record: Bytes,
}

impl Stored {
    /// Parses the bytes of a span and checks the CRC of a record. Allocates nothing.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] if their number is not that of the location, if they are too few
    /// for a record, or if the CRC does not match.
    pub fn parse(span: Bytes, location: &ChunkLocation) -> Result<Self, FormatError> {
        if span.len() as u64 != u64::from(location.span.length) {
            return Err(corrupt!(
                "expected {} bytes of a chunk, got {}",
                location.span.length,
                span.len()
            ));
        }
        if location.dictionary.is_some() {
            return Ok(Self { encoding: Encoding::Zstd, bytes: span, record: Bytes::new() });
        }
        if span.len() <= CRC_BYTES {
            return Err(corrupt!("expected a snappy block and its CRC, got {} bytes", span.len()));
        }
        let bytes = span.slice(..span.len() - CRC_BYTES);
        let (expected, found) = (be::u32_at(&span, bytes.len()), crc32c::crc32c(&bytes));
        if found != expected {
            return Err(corrupt!("a record says its CRC-32C is {expected:08x}, it is {found:08x}"));
        }
        Ok(Self { encoding: Encoding::Snappy, bytes, record: span })
    }

    /// Takes bytes of a chunk that come from elsewhere than a file, without the CRC of a record.
    pub fn without_crc(encoding: Encoding, bytes: Bytes) -> Self {
        Self { encoding, bytes, record: Bytes::new() }
    }

    /// Returns the contents, which are not yet verified against an address. `dictionary` is that of
    /// the location, if it has one.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] if the bytes do not decode, or to more than [`CHUNK_BYTES_MAX`];
    /// [`FormatError::Malformed`] if the dictionary they need was not given.
    pub fn decode(&self, dictionary: Option<&Dictionary>) -> Result<Bytes, FormatError> {
        match self.encoding {
            Encoding::Snappy => snappy::decompress(&self.bytes),
            Encoding::Zstd => {
                let dictionary =
                    dictionary.ok_or_else(|| malformed!("a zstd chunk needs its dictionary"))?;
                decompress(&self.bytes, Some(dictionary), CHUNK_BYTES_MAX)
            }
        }
    }

    /// Returns the announced length of the contents, without decoding. Do not trust it before the
    /// chunk has been verified.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] if the bytes announce no length or an impossible one. A zstd frame
    /// need not announce its length (Dolt's do); that of a frame which does not is known only after
    /// decoding.
    pub fn contents_bytes(&self) -> Result<u64, FormatError> {
        match self.encoding {
            Encoding::Snappy => snappy::contents_bytes(&self.bytes).map(|bytes| bytes as u64),
            Encoding::Zstd => frame::Frame::parse(&self.bytes)?
                .contents_bytes
                .ok_or_else(|| corrupt!("a zstd frame does not say how long its contents are")),
        }
    }

    /// Returns the chunk as a classic record: a snappy block and its CRC. A zstd frame, and a block
    /// that came without its CRC, is decoded and compressed again.
    ///
    /// # Errors
    /// Those of [`Stored::decode`], for what is decoded.
    pub fn to_record(&self, dictionary: Option<&Dictionary>) -> Result<Bytes, FormatError> {
        match self.encoding {
            Encoding::Snappy if !self.record.is_empty() => Ok(self.record.clone()),
            Encoding::Snappy | Encoding::Zstd => {
                record_of(&self.decode(dictionary)?).map(Bytes::from)
            }
        }
    }
}

/// Checks that contents are those of an address.
///
/// # Errors
/// [`FormatError::Corrupt`] if they are not.
pub fn check(address: &ChunkAddress, contents: &[u8]) -> Result<(), FormatError> {
    let found = ChunkAddress::of(contents);
    if found != *address {
        return Err(corrupt!(
            "contents and address disagree: expected {address}, the contents are those of {found}"
        ));
    }
    Ok(())
}

thread_local! {
    /// Kept per thread: a context has about 160 KiB, and creating one takes longer than decoding a
    /// chunk.
    static CONTEXT: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// Returns the contents of one zstd frame.
fn decompress(
    bytes: &[u8],
    dictionary: Option<&Dictionary>,
    bytes_max: usize,
) -> Result<Bytes, FormatError> {
    let mut contents = Vec::with_capacity(frame::Frame::parse(bytes)?.capacity(bytes_max)?);
    CONTEXT
        .with_borrow_mut(|context| {
            let context = context.get_or_insert_with(DCtx::create);
            match dictionary {
                Some(dictionary) => {
                    context.decompress_using_ddict(&mut contents, bytes, &dictionary.digested)
                }
                None => context.decompress(&mut contents, bytes),
            }
        })
        .map_err(|code| corrupt!("zstd: {}", zstd_safe::get_error_name(code)))?;
    // A frame that does not announce its length got a buffer for its longest possible contents.
    contents.shrink_to_fit();
    Ok(Bytes::from(contents))
}
