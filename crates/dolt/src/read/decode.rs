//! Decodes the bytes of a span and verifies them against the chunk's address.

use busload_chunks::{
    ChunkAddress, ChunkLocation, Dictionary, Encoding, FileId, FormatError, Stored, check,
    record_of,
};
use bytes::Bytes;

use crate::{Chunk, Form, read::chunk::DictionaryId};

/// Kind of answer that a read wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Chunk(Form),
    /// Length of the contents.
    Length,
}

/// Answer of a read, of the kind that [`Wanted`] names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    Chunk(Chunk),
    Length(u64),
}

/// State of the bytes: already verified against the chunk's address, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    Verified,
    Unverified,
}

impl Decoded {
    pub fn into_chunk(self) -> Chunk {
        match self {
            Self::Chunk(chunk) => chunk,
            Self::Length(_) => unreachable!("the read wanted a chunk"),
        }
    }

    pub fn into_length(self) -> u64 {
        match self {
            Self::Length(length) => length,
            Self::Chunk(_) => unreachable!("the read wanted the length"),
        }
    }
}

/// Bytes of a chunk's span, whose record checksum, if it has one, is right.
pub(crate) struct RawChunk {
    span: Bytes,
    stored: Stored,
    location: ChunkLocation,
}

impl Wanted {
    /// Returns whether the read has to decode the contents.
    pub fn needs_contents(self, trust: Trust, location: &ChunkLocation) -> bool {
        let is_zstd = location.dictionary.is_some();
        match (trust, self) {
            (Trust::Unverified, _) | (_, Self::Chunk(Form::Contents)) => true,
            (Trust::Verified, Self::Chunk(Form::Record)) => is_zstd,
            (Trust::Verified, Self::Chunk(Form::Stored) | Self::Length) => false,
        }
    }
}

impl RawChunk {
    pub fn parse(span: Bytes, location: ChunkLocation) -> Result<Self, FormatError> {
        let stored = Stored::parse(span.clone(), &location)?;
        Ok(Self { span, stored, location })
    }

    /// Returns the length of the contents that the encoding announces.
    pub fn contents_bytes(&self) -> Result<u64, FormatError> {
        self.stored.contents_bytes()
    }

    /// Decodes the chunk; with [`Trust::Unverified`] fails unless the contents hash to the address.
    /// Contents that were compressed with a dictionary need it.
    pub fn decode(
        self,
        address: &ChunkAddress,
        file: &FileId,
        dictionary: Option<&Dictionary>,
        (wanted, trust): (Wanted, Trust),
    ) -> Result<Decoded, FormatError> {
        let contents = match wanted.needs_contents(trust, &self.location) {
            true => Some(self.stored.decode(dictionary)?),
            false => None,
        };
        if let (Trust::Unverified, Some(contents)) = (trust, &contents) {
            check(address, contents)?;
        }
        Ok(match wanted {
            Wanted::Length => Decoded::Length(match contents {
                Some(contents) => {
                    u64::try_from(contents.len()).expect("lengths have at most 64 bits")
                }
                None => self.stored.contents_bytes()?,
            }),
            Wanted::Chunk(Form::Contents) => {
                Decoded::Chunk(Chunk::Contents(contents.expect("decoded above")))
            }
            Wanted::Chunk(Form::Stored) => Decoded::Chunk(self.stored_form(file)),
            Wanted::Chunk(Form::Record) => Decoded::Chunk(Chunk::Snappy(self.record(dictionary)?)),
        })
    }

    fn stored_form(self, file: &FileId) -> Chunk {
        match (self.stored.encoding, self.location.dictionary) {
            (Encoding::Zstd, Some(span)) => {
                Chunk::Zstd(self.stored.bytes, DictionaryId::new(file, span))
            }
            (Encoding::Snappy, _) | (Encoding::Zstd, None) => Chunk::Snappy(self.stored.bytes),
        }
    }

    fn record(self, dictionary: Option<&Dictionary>) -> Result<Bytes, FormatError> {
        match self.stored.encoding {
            Encoding::Snappy => Ok(self.span),
            Encoding::Zstd => self.stored.to_record(dictionary),
        }
    }
}

/// Decodes a chunk that a peer sent, and fails unless the contents hash to the address. The answer
/// is in the form that a read wants.
pub(crate) fn decode_sent(
    sent: Chunk,
    address: &ChunkAddress,
    dictionary: Option<&Dictionary>,
    wanted: Wanted,
) -> Result<Decoded, FormatError> {
    let decode =
        |encoding, bytes: &Bytes| Stored::without_crc(encoding, bytes.clone()).decode(dictionary);
    let contents = match &sent {
        Chunk::Contents(bytes) => bytes.clone(),
        Chunk::Snappy(block) => decode(Encoding::Snappy, block)?,
        Chunk::Zstd(frame, _) => decode(Encoding::Zstd, frame)?,
    };
    check(address, &contents)?;
    Ok(match wanted {
        Wanted::Length => {
            Decoded::Length(u64::try_from(contents.len()).expect("lengths have at most 64 bits"))
        }
        Wanted::Chunk(Form::Contents) => Decoded::Chunk(Chunk::Contents(contents)),
        Wanted::Chunk(Form::Stored) => Decoded::Chunk(sent),
        Wanted::Chunk(Form::Record) => {
            Decoded::Chunk(Chunk::Snappy(Bytes::from(record_of(&contents)?)))
        }
    })
}
