//! Chunks as the store returns them.

use std::fmt;

use busload_chunks::{FileId, Span};
use bytes::Bytes;

/// Encoding in which a read returns a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// Decoded contents of the chunk.
    Contents,
    /// Encoding of the file: a snappy block without its CRC, or a zstd frame.
    Stored,
    /// Classic record: a snappy block and its CRC; the store recodes zstd frames.
    Record,
}

/// Name of a dictionary: its file and its span there. Opaque to clients.
///
/// 20 bytes of the file's id, 8 of the offset, 4 of the length, big-endian. A file's id is a hash
/// of what is in it, so equal names are equal dictionaries.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DictionaryId(pub [u8; 32]);

impl DictionaryId {
    pub(crate) fn new(file: &FileId, span: Span) -> Self {
        let mut id = [0; 32];
        id[..20].copy_from_slice(&file.0);
        id[20..28].copy_from_slice(&span.offset.to_be_bytes());
        id[28..].copy_from_slice(&span.length.to_be_bytes());
        Self(id)
    }

    pub(crate) fn file(&self) -> FileId {
        let (file, _) = self.0.split_first_chunk().expect("32 bytes are more than 20");
        FileId(*file)
    }

    pub(crate) fn span(&self) -> Span {
        let (_, rest) = self.0.split_at(20);
        let (offset, length) = rest.split_first_chunk().expect("12 bytes are more than 8");
        let length = length.first_chunk().expect("4 bytes are left");
        Span { offset: u64::from_be_bytes(*offset), length: u32::from_be_bytes(*length) }
    }
}

impl fmt::Debug for DictionaryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = self.span();
        write!(f, "{}:{}+{}", self.file(), span.offset, span.length)
    }
}

/// Chunk that was verified against its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// Decoded contents of the chunk.
    Contents(Bytes),
    /// Snappy block; with [`Form::Record`] followed by its CRC.
    Snappy(Bytes),
    /// Zstd frame and the name of its dictionary.
    Zstd(Bytes, DictionaryId),
}

impl Chunk {
    /// Returns the chunk's bytes, in whatever form.
    pub fn bytes(&self) -> &Bytes {
        match self {
            Self::Contents(bytes) | Self::Snappy(bytes) | Self::Zstd(bytes, _) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dictionary_is_found_by_its_name() {
        let file = FileId([7; 20]);
        let span = Span { offset: (1 << 40) + 3, length: 3049 };
        let id = DictionaryId::new(&file, span);
        assert_eq!((id.file(), id.span()), (file, span));
        assert_ne!(id, DictionaryId::new(&file, Span { offset: 3, length: 3049 }));
        assert_ne!(id, DictionaryId::new(&file, Span { offset: (1 << 40) + 3, length: 3050 }));
    }
}
