//! Reads a chunk from one table file and verifies it against its address.
//!
//! ```text
//!  span of a file --> local disk, else object store --+--> CRC, decode, verify --> Decoded
//!  its dictionary --> memory, disk, object store -----+                | wrong
//!                     ^----- invalidate, read again (CHUNK_READS_MAX) -+
//! ```

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use busload_chunks::{ChunkAddress, ChunkLocation, FormatError, Span};
use busload_objects::{ReadOptions, Reading};
use bytes::Bytes;
use futures_util::future::join;

use super::{
    decode::{Decoded, RawChunk, Trust, Wanted},
    dictionaries::{Dictionaries, LoadedDictionary},
    known_corruption::KnownCorruption,
    memory_cache::MemoryCache,
};
use crate::{
    Request,
    fault::Fault,
    lifecycle::Lifecycle,
    limits::{
        CHUNK_READS_MAX, DICTIONARY_STORED_BYTES_MAX, INLINE_CONTENTS_BYTES_MAX,
        INLINE_STORED_BYTES_MAX,
    },
    object_source::ObjectSource,
    stats::Origin,
    task::blocking,
    versions::{
        table_file::{TableFile, range},
        version::FileChunk,
    },
};

/// One chunk to read, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadRequest {
    pub address: ChunkAddress,
    pub wanted: Wanted,
    pub local_only: bool,
    pub deadline: Instant,
}

impl ReadRequest {
    pub fn new(address: ChunkAddress, wanted: Wanted, request: Request) -> Self {
        let Request { local_only, deadline, .. } = request;
        Self { address, wanted, local_only, deadline }
    }

    pub fn read_options(&self) -> ReadOptions {
        ReadOptions { deadline: self.deadline, local_only: self.local_only }
    }
}

/// Read of a span that was started together with others.
pub(crate) struct StartedRead {
    pub reading: Reading,
    pub origin: Origin,
}

/// Reads and verifies chunks of given table files. Owns the caches of these reads: decoded chunks,
/// dictionaries, and the chunks found corrupt lately.
pub(crate) struct FileChunkReader {
    pub lifecycle: Arc<Lifecycle>,
    pub source: ObjectSource,
    pub memory: MemoryCache,
    pub dictionaries: Arc<Dictionaries>,
    known_corruption: KnownCorruption,
    corrupt_count: AtomicU64,
}

/// One attempt at a chunk.
struct ReadAttempt<'a> {
    request: ReadRequest,
    is_last: bool,
    received: &'a mut Received,
}

/// Bytes from which an attempt decoded a chunk.
#[derive(Debug, Default, PartialEq, Eq)]
struct Received {
    span: Option<Bytes>,
    dictionary: Option<Bytes>,
}

impl Received {
    fn is_complete(&self, location: &ChunkLocation) -> bool {
        self.span.is_some() && self.dictionary.is_some() == location.dictionary.is_some()
    }
}

impl FileChunkReader {
    pub fn new(lifecycle: Arc<Lifecycle>, source: ObjectSource, memory: MemoryCache) -> Self {
        Self {
            lifecycle,
            source,
            memory,
            dictionaries: Arc::new(Dictionaries::default()),
            known_corruption: KnownCorruption::default(),
            corrupt_count: AtomicU64::new(0),
        }
    }

    /// Counts a chunk, or a part of a file, whose bytes were wrong.
    pub fn count_corrupt(&self) {
        self.corrupt_count.fetch_add(1, Relaxed);
    }

    /// Number of chunks and parts of files whose bytes were wrong.
    pub fn corrupt_count(&self) -> u64 {
        self.corrupt_count.load(Relaxed)
    }

    /// Reads a chunk from the page cache, if it is there and small. Returns none also if its bytes
    /// are wrong: callers that may wait handle it.
    pub fn try_read(
        &self,
        file: &TableFile,
        position: u32,
        address: &ChunkAddress,
        wanted: Wanted,
    ) -> Option<Decoded> {
        let location = file.location(position);
        if INLINE_STORED_BYTES_MAX < location.span.length {
            return None;
        }
        let writes = file.object.disk_writes();
        let bytes = file.object.try_read(range(location.span))?;
        let is_same = || file.object.disk_writes() == writes;
        let trust = match file.verified.has(position, writes) && is_same() {
            true => Trust::Verified,
            false => Trust::Unverified,
        };
        let raw = RawChunk::parse(bytes, location).ok()?;
        let dictionary = match wanted.needs_contents(trust, &location) {
            true if INLINE_CONTENTS_BYTES_MAX < raw.contents_bytes().ok()? => return None,
            true => match location.dictionary {
                Some(span) => Some(self.dictionaries.try_load(file, span)?),
                None => None,
            },
            false => None,
        };
        let with = dictionary.as_deref().map(LoadedDictionary::dictionary);
        let decoded = raw.decode(address, &file.id, with, (wanted, trust)).ok()?;
        if trust == Trust::Unverified && is_same() {
            file.verified.set(position, writes);
            dictionary.iter().for_each(|dictionary| dictionary.mark_verified());
        }
        self.memory.insert_decoded(address, &decoded, location.span.length);
        Some(decoded)
    }

    /// Reads a chunk of a file, unless it was found corrupt there a moment ago.
    pub async fn read_verified(
        &self,
        chunk: &FileChunk,
        started: Option<StartedRead>,
        request: ReadRequest,
    ) -> Result<(Decoded, Origin), Fault> {
        match self.known_corruption.of(&chunk.file, chunk.position) {
            None => self.read_even_if_known_corrupt(chunk, started, request).await,
            Some(text) => {
                self.count_corrupt();
                Err(Fault::Corrupt(text))
            }
        }
    }

    /// Reads a chunk of a file, also if it was found corrupt there a moment ago. Removes wrong
    /// bytes from local disk and reads them again from the store.
    pub async fn read_even_if_known_corrupt(
        &self,
        chunk: &FileChunk,
        mut started: Option<StartedRead>,
        request: ReadRequest,
    ) -> Result<(Decoded, Origin), Fault> {
        let FileChunk { file, position } = chunk;
        let location = file.location(*position);
        let (mut last, mut received) = (String::new(), Received::default());
        let mut is_agreed = false;
        for attempt in 0..CHUNK_READS_MAX {
            let StartedRead { reading, origin } =
                started.take().unwrap_or_else(|| start(file, &location, request));
            let before = std::mem::take(&mut received);
            let is_last = attempt + 1 == CHUNK_READS_MAX;
            let one = ReadAttempt { request, is_last, received: &mut received };
            match self.receive(file, &location, reading, one).await {
                Ok(decoded) => {
                    let stored_bytes = location.span.length;
                    self.memory.insert_decoded(&request.address, &decoded, stored_bytes);
                    return Ok((decoded, origin));
                }
                Err(Fault::Corrupt(text)) => last = text,
                Err(Fault::Gone) => {
                    file.set_gone();
                    return Err(Fault::Gone);
                }
                Err(fault) => return Err(fault),
            }
            if attempt == 0 {
                self.count_corrupt();
            }
            is_agreed = received.is_complete(&location) && received == before;
            // If the last two reads of the store agree, the store holds these bytes: they stay on
            // disk, with their neighbours.
            if !is_last || origin == Origin::Disk || !is_agreed {
                self.invalidate(file, &location);
            }
        }
        let text = self.log_corruption(file, &location, &request.address, &last);
        // Bytes that differ from read to read are corrupted in transit, and may be right next time.
        if is_agreed {
            self.known_corruption.note(file, *position, &text);
        }
        Err(Fault::Corrupt(text))
    }

    /// Waits for the bytes, verifies and decodes them.
    async fn receive(
        &self,
        file: &Arc<TableFile>,
        location: &ChunkLocation,
        reading: Reading,
        attempt: ReadAttempt<'_>,
    ) -> Result<Decoded, Fault> {
        let ReadAttempt { request, is_last, received } = attempt;
        let dictionary = self.dictionary_for(file, location.dictionary, request, is_last);
        let (bytes, dictionary) = join(reading, dictionary).await;
        let bytes = bytes?;
        received.span = Some(bytes.clone());
        received.dictionary =
            dictionary.iter().flatten().next().map(|loaded| loaded.dictionary().bytes().clone());
        let raw = RawChunk::parse(bytes, *location)?;
        let dictionary = dictionary?;
        let contents_bytes = raw.contents_bytes()?;
        let (id, used) = (file.id, dictionary.clone());
        let decode = move || {
            let with = dictionary.as_deref().map(LoadedDictionary::dictionary);
            let trust = Trust::Unverified;
            let decoded = raw.decode(&request.address, &id, with, (request.wanted, trust))?;
            dictionary.iter().for_each(|dictionary| dictionary.mark_verified());
            Ok::<_, FormatError>(decoded)
        };
        let decoded = match contents_bytes <= INLINE_CONTENTS_BYTES_MAX {
            true => decode()?,
            false => blocking(decode).await??,
        };
        if let (true, Some(span), Some(used)) = (is_last, location.dictionary, used) {
            // The dictionary that other chunks were decoded with is wrong in a byte that this chunk
            // needs.
            file.object.invalidate(range(span));
            self.dictionaries.insert(file, span, used);
        }
        Ok(decoded)
    }

    async fn dictionary_for(
        &self,
        file: &Arc<TableFile>,
        span: Option<Span>,
        request: ReadRequest,
        is_last: bool,
    ) -> Result<Option<Arc<LoadedDictionary>>, Fault> {
        let Some(span) = span else { return Ok(None) };
        // A dictionary with which other chunks were verified may still be wrong in a byte that only
        // this chunk needs. So the last attempt reads it for this chunk alone.
        if is_last && !request.local_only && span.length <= DICTIONARY_STORED_BYTES_MAX {
            let bytes = self.source.remote.read(file.object.meta(), range(span)).await?;
            return Ok(Some(Arc::new(LoadedDictionary::decode(&bytes)?)));
        }
        self.dictionaries.load(file, span, request.read_options()).await.map(Some)
    }

    /// Removes a chunk from local disk and from fetches in progress; its dictionary only if no
    /// chunk was verified with it, because the file's other chunks need it, too.
    fn invalidate(&self, file: &TableFile, location: &ChunkLocation) {
        file.object.invalidate(range(location.span));
        if let Some(span) = location.dictionary
            && self.dictionaries.evict_unless_verified(file, span)
        {
            file.object.invalidate(range(span));
        }
    }

    /// Logs a corrupt chunk, once per file, and returns the description.
    fn log_corruption(
        &self,
        file: &TableFile,
        location: &ChunkLocation,
        address: &ChunkAddress,
        text: &str,
    ) -> String {
        let text = format!(
            "chunk {address} in {}, {} bytes at {}: {text}",
            file.name(),
            location.span.length,
            location.span.offset
        );
        if file.should_log_corruption() {
            log::error!("table {}: corrupt in the store: {text}", self.lifecycle.name());
        }
        text
    }

    /// Returns whether a chunk of a file and its dictionary can be read without the object store.
    pub fn is_local(&self, file: &TableFile, position: u32) -> bool {
        let location = file.location(position);
        let is_local = |span| file.object.is_local(range(span));
        let has_dictionary = |span| self.dictionaries.get(file, span).is_some() || is_local(span);
        is_local(location.span) && location.dictionary.is_none_or(has_dictionary)
    }
}

fn start(file: &TableFile, location: &ChunkLocation, request: ReadRequest) -> StartedRead {
    let range = range(location.span);
    let origin = origin(file, &range);
    StartedRead { reading: file.object.read(range, request.read_options()), origin }
}

/// Tells where a read of a range is going to get its bytes.
pub(crate) fn origin(file: &TableFile, range: &Range<u64>) -> Origin {
    match file.object.is_local(range.clone()) {
        true => Origin::Disk,
        false => Origin::Store,
    }
}
