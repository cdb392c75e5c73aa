//! Archives of version 3, as a push of Dolt writes them.

use std::{
    fmt,
    io::{self, Write},
};

use hashbrown::HashSet;
use sha2::{Digest, Sha512};
use zstd::bulk::Compressor;

use super::invalid;
use crate::{
    ChunkAddress, FileId, FileSpec,
    decode::record_of,
    index::{ARCHIVE_FOOTER_BYTES, ARCHIVE_SIGNATURE},
    limits::{DICTIONARY_SAMPLES, DICTIONARY_TRAINED_BYTES},
};

/// Version of the archives written.
const VERSION: u8 = 3;

/// Id of the dictionary's span, which is the first one of a file with a dictionary.
const DICTIONARY_SPAN: u32 = 1;

/// Id in place of a dictionary's span.
const NO_DICTIONARY: u32 = 0;

/// Compression level of zstd: its own default, which Dolt uses, too.
const LEVEL: i32 = 3;

/// Length of three former checksums of 64 bytes each; current versions of Dolt leave zeros there.
const CHECKSUMS_BYTES: usize = 192;

/// Metadata, a JSON object that readers do not need.
const METADATA: &[u8] = br#"{"dolt_version":"busload"}"#;

/// Writes one archive, chunk by chunk.
///
/// The first [`ArchiveWriter::ZSTD_CHUNKS_MIN`] chunks train a dictionary, and all chunks become
/// zstd frames made with it; a file with fewer chunks holds snappy records. Chunks are kept in
/// memory until there are enough for the dictionary; from then on they are written as they come,
/// and some 60 bytes per chunk are kept for the index. A chunk that is pushed again is not written
/// again.
pub struct ArchiveWriter<W> {
    out: Digesting<W>,
    /// Contents of the first chunks, while there are too few for a dictionary.
    held: Vec<(ChunkAddress, Vec<u8>)>,
    compressor: Option<Compressor<'static>>,
    /// Offsets where spans end.
    ends: Vec<u64>,
    /// Addresses with the ids of their spans: dictionary, data.
    chunks: Vec<(ChunkAddress, u32, u32)>,
    known: HashSet<ChunkAddress, std::hash::RandomState>,
}

impl<W> ArchiveWriter<W> {
    /// Number of chunks from which a file has a dictionary.
    pub const ZSTD_CHUNKS_MIN: usize = DICTIONARY_SAMPLES;
}

impl<W: Write> ArchiveWriter<W> {
    /// Starts an empty file.
    pub fn new(out: W) -> Self {
        Self {
            out: Digesting { out, digest: Sha512::new(), bytes: 0 },
            held: Vec::new(),
            compressor: None,
            ends: Vec::new(),
            chunks: Vec::new(),
            known: HashSet::with_hasher(std::hash::RandomState::new()),
        }
    }

    /// Compresses and appends a chunk; returns its address.
    ///
    /// # Errors
    /// Those of writing; [`io::ErrorKind::InvalidInput`] for an empty chunk or one too long for a
    /// span.
    pub fn push(&mut self, contents: &[u8]) -> io::Result<ChunkAddress> {
        if contents.is_empty() {
            return Err(invalid("expected a chunk of at least one byte"));
        }
        // One more span is needed for the dictionary.
        if u64::from(u32::MAX) - 1 <= self.known.len() as u64 {
            return Err(invalid("an archive holds fewer than 2^32 - 1 chunks"));
        }
        let address = ChunkAddress::of(contents);
        if !self.known.insert(address) {
            return Ok(address);
        }
        if self.compressor.is_some() {
            self.write_frame(address, contents)?;
            return Ok(address);
        }
        self.held.push((address, contents.to_vec()));
        if self.held.len() == DICTIONARY_SAMPLES {
            self.begin_frames()?;
        }
        Ok(address)
    }

    /// Writes the chunks held, the index, the metadata and the footer; returns the file's entry for
    /// the manifest. Does not flush.
    ///
    /// # Errors
    /// Those of writing.
    pub fn finish(mut self) -> io::Result<(FileSpec, W)> {
        for (address, contents) in std::mem::take(&mut self.held) {
            let record = record_of(&contents).map_err(|error| invalid(&error.to_string()))?;
            let span = self.write_span(&record)?;
            self.chunks.push((address, NO_DICTIONARY, span));
        }
        self.chunks.sort_unstable();
        let index = self.index();
        self.out.write(&index)?;
        self.out.write(METADATA)?;
        self.out.write(&self.footer(index.len())?)?;
        let chunk_count = count(self.chunks.len())?;
        let (id, out) = self.out.finish();
        Ok((FileSpec { id, chunk_count }, out))
    }

    /// Trains a dictionary with the chunks held and writes both.
    fn begin_frames(&mut self) -> io::Result<()> {
        let held = std::mem::take(&mut self.held);
        let samples: Vec<&[u8]> = held.iter().map(|(_, contents)| &**contents).collect();
        let dictionary = dictionary_of(&samples)?;
        let span = self.write_span(&zstd::bulk::compress(&dictionary, LEVEL)?)?;
        debug_assert_eq!(span, DICTIONARY_SPAN);
        self.compressor = Some(Compressor::with_dictionary(LEVEL, &dictionary)?);
        held.into_iter().try_for_each(|(address, contents)| self.write_frame(address, &contents))
    }

    fn write_frame(&mut self, address: ChunkAddress, contents: &[u8]) -> io::Result<()> {
        let compressor = self.compressor.as_mut().expect("set before the first frame is written");
        let frame = compressor.compress(contents)?;
        let span = self.write_span(&frame)?;
        self.chunks.push((address, DICTIONARY_SPAN, span));
        Ok(())
    }

    /// Writes a span and returns its id; ids are counted from 1.
    fn write_span(&mut self, bytes: &[u8]) -> io::Result<u32> {
        if u32::try_from(bytes.len()).is_err() {
            return Err(invalid("a span has less than 4 GiB"));
        }
        self.out.write(bytes)?;
        self.ends.push(self.out.bytes);
        count(self.ends.len())
    }

    /// Encodes the index. The chunks are in the order of their addresses.
    fn index(&self) -> Vec<u8> {
        let mut index: Vec<u8> = self.ends.iter().flat_map(|end| end.to_be_bytes()).collect();
        index.extend(self.chunks.iter().flat_map(|(address, ..)| address.prefix().to_be_bytes()));
        for (_, dictionary, data) in &self.chunks {
            index.extend(dictionary.to_be_bytes());
            index.extend(data.to_be_bytes());
        }
        index.extend(self.chunks.iter().flat_map(|(address, ..)| *address.suffix()));
        index
    }

    fn footer(&self, index_bytes: usize) -> io::Result<Vec<u8>> {
        let mut footer = (index_bytes as u64).to_be_bytes().to_vec();
        for number in [self.ends.len(), self.chunks.len(), METADATA.len()] {
            footer.extend(count(number)?.to_be_bytes());
        }
        footer.extend([0; CHECKSUMS_BYTES]);
        footer.push(VERSION);
        footer.extend(ARCHIVE_SIGNATURE);
        debug_assert_eq!(footer.len(), ARCHIVE_FOOTER_BYTES);
        Ok(footer)
    }
}

impl<W: fmt::Debug> fmt::Debug for ArchiveWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArchiveWriter")
            .field("out", &self.out.out)
            .field("chunks", &self.known.len())
            .finish_non_exhaustive()
    }
}

/// Trains a dictionary for chunks like these. Samples with nothing in common, or too little in all,
/// train none: then the first of them are used as a raw dictionary.
fn dictionary_of(samples: &[&[u8]]) -> io::Result<Vec<u8>> {
    if let Ok(dictionary) = zstd::dict::from_samples(samples, DICTIONARY_TRAINED_BYTES) {
        return Ok(dictionary);
    }
    let bytes = samples.iter().flat_map(|sample| sample.iter().copied());
    let mut dictionary = Vec::with_capacity(DICTIONARY_TRAINED_BYTES);
    // Bytes that begin like a trained dictionary must be one.
    dictionary.push(0);
    dictionary.extend(bytes.take(DICTIONARY_TRAINED_BYTES - 1));
    Ok(dictionary)
}

fn count(number: usize) -> io::Result<u32> {
    u32::try_from(number).map_err(|_| invalid("an archive counts its parts in 32 bits"))
}

/// Destination of the file, with the digest of which its name is made.
struct Digesting<W> {
    out: W,
    digest: Sha512,
    bytes: u64,
}

impl<W: Write> Digesting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.digest.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn finish(self) -> (FileId, W) {
        let digest = self.digest.finalize();
        let id = digest.first_chunk().expect("SHA-512 has 64 bytes");
        (FileId(*id), self.out)
    }
}
