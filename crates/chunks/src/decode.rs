//! Stored bytes to contents, checked.
//!
//! Nothing is allocated for a size that is only announced: [`snappy`] and [`frame`] first work out
//! how much the bytes that are there can become at most. What a thread needs for decoding it keeps,
//! so decoding a chunk allocates its contents and nothing else.

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

pub(crate) use snappy::record_of;

/// Bytes of the CRC-32C after a record's snappy block.
pub(crate) const CRC_BYTES: usize = 4;

/// What stored bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// A snappy block; in the file a CRC-32C follows it.
    Snappy,
    /// A zstd frame made with a dictionary.
    Zstd,
}

/// A dictionary, ready for use.
pub struct Dictionary {
    bytes: Bytes,
    digested: DDict<'static>,
}

impl Dictionary {
    /// From the bytes of its span: one zstd frame, made without a dictionary.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] if it is none, or what it holds is larger than
    /// [`DICTIONARY_BYTES_MAX`] or no dictionary.
    pub fn decode(span: &[u8]) -> Result<Self, FormatError> {
        let bytes = decompress(span, None, DICTIONARY_BYTES_MAX)?;
        // What does not begin as a trained dictionary does is taken as plain bytes to refer to.
        let digested = DDict::try_create(&bytes).ok_or_else(|| {
            corrupt!("expected a zstd dictionary, found {} bytes that are none", bytes.len())
        })?;
        Ok(Self { bytes, digested })
    }

    /// The dictionary's bytes, decompressed.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Bytes of memory it takes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.digested.sizeof()
    }
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionary").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

/// The bytes of a chunk's span, as a file holds them.
#[derive(Clone, Debug)]
pub struct Stored {
    /// What they are.
    pub encoding: Encoding,
    /// Without the CRC.
    pub bytes: Bytes,
    /// A snappy block with its CRC; of a frame nothing.
    record: Bytes,
}

impl Stored {
    /// From the bytes of a span; checks the CRC of a record. Allocates nothing.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] if they are not as many as the location says, too few for a record,
    /// or have another CRC.
    pub fn parse(span: Bytes, location: &ChunkLocation) -> Result<Self, FormatError> {
        let stored = Self::parse_unchecked(span, location)?;
        if stored.encoding == Encoding::Snappy {
            let expected = be::u32_at(&stored.record, stored.bytes.len());
            let found = crc32c::crc32c(&stored.bytes);
            if found != expected {
                return Err(corrupt!(
                    "a record says its CRC-32C is {expected:08x}, it is {found:08x}"
                ));
            }
        }
        Ok(stored)
    }

    /// [`Stored::parse`] without checking the CRC: for bytes that something else vouches for.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] if they are not as many as the location says or too few for a
    /// record.
    pub fn parse_unchecked(span: Bytes, location: &ChunkLocation) -> Result<Self, FormatError> {
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
        Ok(Self {
            encoding: Encoding::Snappy,
            bytes: span.slice(..span.len() - CRC_BYTES),
            record: span,
        })
    }

    /// The contents. `dictionary` is that of the location, if it has one. Not yet compared with an
    /// address.
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

    /// Length of the contents as announced, without decoding; only to be trusted once the chunk has
    /// been checked.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] if the bytes announce nothing or something they cannot become. A
    /// zstd frame need not announce its length (Dolt's do); only decoding tells the length of one
    /// that does not.
    pub fn contents_bytes(&self) -> Result<u64, FormatError> {
        match self.encoding {
            Encoding::Snappy => snappy::contents_bytes(&self.bytes).map(|bytes| bytes as u64),
            Encoding::Zstd => frame::Frame::parse(&self.bytes)?
                .contents_bytes
                .ok_or_else(|| corrupt!("a zstd frame does not say how long its contents are")),
        }
    }

    /// As a classic record: a snappy block and its CRC. What is no snappy block is made one.
    ///
    /// # Errors
    /// Those of [`Stored::decode`], for a zstd frame.
    pub fn to_record(&self, dictionary: Option<&Dictionary>) -> Result<Bytes, FormatError> {
        match self.encoding {
            Encoding::Snappy => Ok(self.record.clone()),
            Encoding::Zstd => record_of(&self.decode(dictionary)?).map(Bytes::from),
        }
    }
}

/// Whether contents are those of an address.
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
    /// A context has about 160 KiB and takes longer to make than a chunk to decode.
    static CONTEXT: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// The contents of one zstd frame.
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
    // A frame that does not announce its length got the room of its longest possible contents.
    contents.shrink_to_fit();
    Ok(Bytes::from(contents))
}
