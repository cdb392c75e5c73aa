//! Writes archives of any shape, including those that Dolt would not write.

use busload_chunks::{ChunkAddress, Stored};
use bytes::Bytes;

/// An archive under construction.
#[derive(Clone, Default)]
pub struct Archive {
    pub version: u8,
    pub data: Vec<u8>,
    /// Offsets where spans end.
    pub ends: Vec<u64>,
    /// Address, dictionary span, data span.
    pub chunks: Vec<(ChunkAddress, u32, u32)>,
    pub metadata: Vec<u8>,
}

impl Archive {
    pub fn new(version: u8) -> Self {
        Self { version, metadata: b"{}".to_vec(), ..Self::default() }
    }

    /// Appends a span; returns its id.
    pub fn span(&mut self, bytes: &[u8]) -> u32 {
        self.data.extend_from_slice(bytes);
        self.ends.push(self.data.len() as u64);
        u32::try_from(self.ends.len()).unwrap()
    }

    /// Appends a dictionary, compressed as Dolt does; returns its span.
    pub fn dictionary(&mut self, bytes: &[u8]) -> u32 {
        self.span(&zstd::bulk::compress(bytes, 3).unwrap())
    }

    /// Appends a chunk as a zstd frame made with a dictionary, given with its span.
    pub fn zstd(&mut self, contents: &[u8], (dictionary, bytes): (u32, &[u8])) -> ChunkAddress {
        let mut compressor = zstd::bulk::Compressor::with_dictionary(3, bytes).unwrap();
        let span = self.span(&compressor.compress(contents).unwrap());
        self.chunk(ChunkAddress::of(contents), dictionary, span)
    }

    /// Appends a chunk as a classic record.
    pub fn record(&mut self, contents: &[u8]) -> ChunkAddress {
        let span = self.span(&record(contents));
        self.chunk(ChunkAddress::of(contents), 0, span)
    }

    pub fn chunk(&mut self, address: ChunkAddress, dictionary: u32, span: u32) -> ChunkAddress {
        self.chunks.push((address, dictionary, span));
        address
    }

    /// Returns index, metadata and footer.
    pub fn tail(&self) -> Vec<u8> {
        let mut chunks = self.chunks.clone();
        chunks.sort();
        let mut tail: Vec<u8> = self.ends.iter().flat_map(|end| end.to_be_bytes()).collect();
        tail.extend(chunks.iter().flat_map(|(address, ..)| address.prefix().to_be_bytes()));
        for (_, dictionary, span) in &chunks {
            tail.extend(dictionary.to_be_bytes());
            tail.extend(span.to_be_bytes());
        }
        tail.extend(chunks.iter().flat_map(|(address, ..)| *address.suffix()));
        let index_bytes = tail.len() as u64;
        tail.extend(&self.metadata);
        tail.extend(self.footer(index_bytes));
        tail
    }

    fn footer(&self, index_bytes: u64) -> Vec<u8> {
        let mut footer = index_bytes.to_be_bytes().to_vec();
        if self.version < 3 {
            footer.drain(..4);
        }
        for count in [self.ends.len(), self.chunks.len(), self.metadata.len()] {
            footer.extend(u32::try_from(count).unwrap().to_be_bytes());
        }
        footer.extend([0; 192]);
        footer.push(self.version);
        footer.extend(b"DOLTARC");
        footer
    }

    /// Returns the whole file.
    pub fn file(&self) -> Bytes {
        Bytes::from([&*self.data, &self.tail()].concat())
    }
}

/// Returns a classic record of these contents.
pub fn record(contents: &[u8]) -> Vec<u8> {
    let mut record = snap::raw::Encoder::new().compress_vec(contents).unwrap();
    record.extend(crc32c::crc32c(&record).to_be_bytes());
    record
}

/// Parses a span of these bytes as they are.
pub fn stored(bytes: &[u8], dictionary: bool) -> Result<Stored, busload_chunks::FormatError> {
    let span = busload_chunks::Span { offset: 0, length: u32::try_from(bytes.len()).unwrap() };
    let location = busload_chunks::ChunkLocation { span, dictionary: dictionary.then_some(span) };
    Stored::parse(Bytes::copy_from_slice(bytes), &location)
}
