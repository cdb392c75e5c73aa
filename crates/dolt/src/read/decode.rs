//! From the bytes of a span to an answer.

use busload_chunks::{
    ChunkAddress, ChunkLocation, Dictionary, Encoding, FileId, FormatError, Stored, check,
};
use bytes::Bytes;

use crate::{Chunk, Form, read::chunk::DictionaryId};

/// What somebody wants to know of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Chunk(Form),
    /// The length of its contents.
    Length,
}

/// And gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    Chunk(Chunk),
    Length(u64),
}

/// Whether bytes have been compared with the address before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    Verified,
    Unverified,
}

/// Bytes of a chunk's span, whose record checksum, if it has one, is right.
pub(crate) struct RawChunk {
    span: Bytes,
    stored: Stored,
    location: ChunkLocation,
}

impl Wanted {
    /// Whether the contents are needed.
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

    /// Length of the contents as announced.
    pub fn contents_bytes(&self) -> Result<u64, FormatError> {
        self.stored.contents_bytes()
    }

    /// The answer; without [`Trust::Verified`] only if these are the contents of the address. A
    /// dictionary is needed for the contents of what is compressed with one.
    pub fn answer(
        self,
        address: &ChunkAddress,
        file: &FileId,
        dictionary: Option<&Dictionary>,
        (want, trust): (Wanted, Trust),
    ) -> Result<Decoded, FormatError> {
        let contents = match want.needs_contents(trust, &self.location) {
            true => Some(self.stored.decode(dictionary)?),
            false => None,
        };
        if let (Trust::Unverified, Some(contents)) = (trust, &contents) {
            check(address, contents)?;
        }
        Ok(match want {
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
