//! Writes classic table files and manifests, for tests and benchmarks.

use std::io::{self, Write};

use crate::{ChunkAddress, FileId, FileSpec};

/// Writes one classic table file, chunk by chunk.
#[derive(Debug)]
pub struct ClassicWriter<W> {
    _out: W,
}

impl<W: Write> ClassicWriter<W> {
    /// An empty file.
    pub fn new(_out: W) -> Self {
        unimplemented!()
    }

    /// Appends a chunk, compressed; returns its address.
    pub fn push(&mut self, _contents: &[u8]) -> io::Result<ChunkAddress> {
        unimplemented!()
    }

    /// Appends a chunk under an address that is not that of its contents.
    pub fn push_as(&mut self, _address: ChunkAddress, _contents: &[u8]) -> io::Result<()> {
        unimplemented!()
    }

    /// Writes index and footer; what the manifest says of the file.
    pub fn finish(self) -> io::Result<(FileSpec, W)> {
        unimplemented!()
    }
}

/// The text of a manifest of version 5; `lock` computed as Dolt does.
pub fn manifest(_root: ChunkAddress, _files: &[FileSpec]) -> String {
    let _: Option<FileId> = None;
    unimplemented!()
}
