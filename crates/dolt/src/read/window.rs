//! Many reads, of which a bounded number is in progress.
//!
//! The window starts reads in the order of files and offsets, and many at a time, so that chunks
//! near each other share a ranged read.

use std::{sync::Arc, vec};

use busload_chunks::ChunkLocation;
use busload_objects::ReadOptions;
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};

use crate::{
    limits::{WINDOW_BYTES_MAX, WINDOW_CHUNKS_MAX},
    read::file_chunk_reader::{StartedRead, origin},
    versions::{
        table_file::{TableFile, range},
        version::FileChunk,
    },
};

/// One chunk that a window is to read.
#[derive(Clone, Debug)]
pub(crate) struct PlannedRead {
    /// Number that the caller gave the chunk.
    pub index: u32,
    pub chunk: FileChunk,
    pub location: ChunkLocation,
}

/// Makes the options of reads that start now.
pub(crate) type Options = Box<dyn Fn() -> ReadOptions + Send + Sync>;
/// Turns a started read into its result.
pub(crate) type Finish<T> =
    Arc<dyn Fn(PlannedRead, StartedRead) -> BoxFuture<'static, T> + Send + Sync>;

/// Reads in progress, and those to come.
pub(crate) struct Window<T> {
    options: Options,
    finish: Finish<T>,
    waiting: std::iter::Peekable<vec::IntoIter<PlannedRead>>,
    in_progress: FuturesUnordered<BoxFuture<'static, (u64, T)>>,
    bytes: u64,
}

impl PlannedRead {
    pub fn new(index: u32, chunk: FileChunk) -> Self {
        let location = chunk.file.location(chunk.position);
        Self { index, chunk, location }
    }

    /// Returns the stored bytes of the chunk.
    pub fn bytes(&self) -> u64 {
        u64::from(self.location.span.length)
    }
}

/// Sorts reads by file, then by offset.
pub(crate) fn sort(items: &mut [PlannedRead]) {
    items.sort_unstable_by_key(|item| (item.chunk.file.serial, item.location.span.offset));
}

impl<T: Send + 'static> Window<T> {
    /// Creates a window over reads in the order of [`sort`].
    pub fn new(options: Options, items: Vec<PlannedRead>, finish: Finish<T>) -> Self {
        Self {
            options,
            finish,
            waiting: items.into_iter().peekable(),
            in_progress: FuturesUnordered::new(),
            bytes: 0,
        }
    }

    /// Waits for the next read to complete, in any order.
    pub async fn next(&mut self) -> Option<T> {
        if self.is_half_empty() {
            self.fill();
        }
        let (bytes, done) = self.in_progress.next().await?;
        self.bytes -= bytes;
        Some(done)
    }

    fn is_half_empty(&self) -> bool {
        self.in_progress.len() <= WINDOW_CHUNKS_MAX / 2 && self.bytes <= WINDOW_BYTES_MAX / 2
    }

    /// Starts reads up to the limits, file by file.
    fn fill(&mut self) {
        while let Some(first) = self.take() {
            let file = first.chunk.file.clone();
            let mut items = vec![first];
            while let Some(item) = self.take_of(&file) {
                items.push(item);
            }
            self.start(&file, items);
        }
    }

    fn take(&mut self) -> Option<PlannedRead> {
        let next = self.waiting.peek()?;
        let fits = self.in_progress.len() < WINDOW_CHUNKS_MAX
            && self.bytes + next.bytes() <= WINDOW_BYTES_MAX;
        if !fits && self.bytes != 0 {
            return None;
        }
        let item = self.waiting.next()?;
        self.bytes += item.bytes();
        Some(item)
    }

    fn take_of(&mut self, file: &Arc<TableFile>) -> Option<PlannedRead> {
        let is_same = self.waiting.peek().is_some_and(|next| Arc::ptr_eq(&next.chunk.file, file));
        if is_same { self.take() } else { None }
    }

    fn start(&mut self, file: &Arc<TableFile>, items: Vec<PlannedRead>) {
        let ranges: Vec<_> = items.iter().map(|item| range(item.location.span)).collect();
        let origins: Vec<_> = ranges.iter().map(|range| origin(file, range)).collect();
        let readings = file.object.read_many(&ranges, (self.options)());
        assert_eq!(readings.len(), items.len(), "there is a reading for each range");
        for ((item, reading), origin) in items.into_iter().zip(readings).zip(origins) {
            let bytes = item.bytes();
            let finished = (self.finish)(item, StartedRead { reading, origin });
            self.in_progress.push(finished.map(move |done| (bytes, done)).boxed());
        }
    }
}
