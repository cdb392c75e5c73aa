//! A chunk as it is handed out.

use bytes::Bytes;

/// What is wanted of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// The contents.
    Contents,
    /// As the file holds it, a snappy block without its CRC or a zstd frame.
    Stored,
    /// A classic record: a snappy block and its CRC; what is zstd in the file is encoded again.
    Record,
}

/// Names a dictionary of a store: its file and where in it. Opaque to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DictionaryId(pub [u8; 32]);

/// A chunk, checked against its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// Contents.
    Contents(Bytes),
    /// A snappy block; with [`Form::Record`] with its CRC.
    Snappy(Bytes),
    /// A zstd frame and its dictionary's name.
    Zstd(Bytes, DictionaryId),
}
