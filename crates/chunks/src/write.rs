//! Writes classic table files, archives and manifests, for tests and benchmarks.

mod archive;

use std::io::{self, Write};

use hashbrown::HashSet;

use crate::{
    ChunkAddress, FileId, FileSpec,
    address::digest,
    base32,
    decode::record_of,
    index::{CLASSIC_FOOTER_BYTES, CLASSIC_MAGIC},
    manifest::{NOMS_FORMAT, lock_of},
};

pub use archive::ArchiveWriter;

/// Writes one classic table file, chunk by chunk.
///
/// Records are written as they come; some 60 bytes per chunk are kept for the index. A chunk that
/// is pushed again is not written again.
#[derive(Debug)]
pub struct ClassicWriter<W> {
    out: W,
    /// Addresses and record lengths, in the order of the records.
    chunks: Vec<(ChunkAddress, u32)>,
    known: HashSet<ChunkAddress, std::hash::RandomState>,
    contents_bytes: u64,
}

impl<W: Write> ClassicWriter<W> {
    /// Starts an empty file.
    pub fn new(out: W) -> Self {
        let known = HashSet::with_hasher(std::hash::RandomState::new());
        Self { out, chunks: Vec::new(), known, contents_bytes: 0 }
    }

    /// Compresses and appends a chunk; returns its address.
    ///
    /// # Errors
    /// Those of writing; [`io::ErrorKind::InvalidInput`] for an empty chunk or one too long for a
    /// record.
    pub fn push(&mut self, contents: &[u8]) -> io::Result<ChunkAddress> {
        let address = ChunkAddress::of(contents);
        self.push_as(address, contents)?;
        Ok(address)
    }

    /// Appends a chunk under an address that is not that of its contents.
    ///
    /// # Errors
    /// Those of [`ClassicWriter::push`].
    pub fn push_as(&mut self, address: ChunkAddress, contents: &[u8]) -> io::Result<()> {
        if contents.is_empty() {
            return Err(invalid("expected a chunk of at least one byte"));
        }
        if self.chunks.len() as u64 == u64::from(u32::MAX) {
            return Err(invalid("a table file holds fewer than 2^32 chunks"));
        }
        if self.known.contains(&address) {
            return Ok(());
        }
        let record = record_of(contents).map_err(|error| invalid(&error.to_string()))?;
        let length =
            u32::try_from(record.len()).map_err(|_| invalid("a record has less than 4 GiB"))?;
        self.out.write_all(&record)?;
        self.known.insert(address);
        self.chunks.push((address, length));
        self.contents_bytes += contents.len() as u64;
        Ok(())
    }

    /// Writes the index and the footer; returns the file's entry for the manifest. Does not flush.
    ///
    /// # Errors
    /// Those of writing.
    pub fn finish(mut self) -> io::Result<(FileSpec, W)> {
        let chunk_count = u32::try_from(self.chunks.len()).expect("checked by push");
        let mut tuples: Vec<(u64, u32)> =
            self.chunks.iter().map(|(address, _)| address.prefix()).zip(0..).collect();
        tuples.sort_unstable();
        let suffixes: Vec<u8> =
            self.chunks.iter().flat_map(|(address, _)| *address.suffix()).collect();
        let mut tail: Vec<u8> =
            tuples.iter().flat_map(|(prefix, ordinal)| tuple(*prefix, *ordinal)).collect();
        tail.extend(self.chunks.iter().flat_map(|(_, length)| length.to_be_bytes()));
        tail.extend(&suffixes);
        tail.extend(footer(chunk_count, self.contents_bytes));
        self.out.write_all(&tail)?;
        Ok((FileSpec { id: FileId(digest(&[&suffixes])), chunk_count }, self.out))
    }
}

/// Returns the text of a manifest of version 5, with the lock computed as Dolt does.
pub fn manifest(root: ChunkAddress, files: &[FileSpec]) -> String {
    let lock = base32::encode(&lock_of(root, &[], files.iter().copied()));
    let never_collected = ChunkAddress::ZERO;
    let mut text = format!("5:{NOMS_FORMAT}:{}:{root}:{never_collected}", base32::as_text(&lock));
    for file in files {
        text.push_str(&format!(":{}:{}", file.id, file.chunk_count));
    }
    text
}

fn tuple(prefix: u64, ordinal: u32) -> [u8; 12] {
    let mut tuple = [0; 12];
    tuple[..8].copy_from_slice(&prefix.to_be_bytes());
    tuple[8..].copy_from_slice(&ordinal.to_be_bytes());
    tuple
}

fn footer(chunk_count: u32, contents_bytes: u64) -> [u8; CLASSIC_FOOTER_BYTES] {
    let mut footer = [0; CLASSIC_FOOTER_BYTES];
    footer[..4].copy_from_slice(&chunk_count.to_be_bytes());
    footer[4..12].copy_from_slice(&contents_bytes.to_be_bytes());
    footer[12..].copy_from_slice(&CLASSIC_MAGIC);
    footer
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod archive_tests;
#[cfg(test)]
mod tests;
