//! Many reads with a bounded part of them under way.
//!
//! Reads are started in the order of files and offsets, so that what is near each other shares a
//! trip; and a good part of the window at a time, so that there is something to share.

use std::{sync::Arc, vec};

use busload_chunks::ChunkLocation;
use busload_objects::ReadOptions;
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};

use crate::{
    limits::{WINDOW_BYTES_MAX, WINDOW_CHUNKS_MAX},
    read::reader::{StartedRead, origin},
    versions::table_file::{TableFile, range},
    versions::version::ChunkCopy,
};

/// One chunk to be read.
#[derive(Clone, Debug)]
pub(crate) struct PlannedRead {
    /// What the caller knows it by.
    pub index: u32,
    pub place: ChunkCopy,
    pub location: ChunkLocation,
}

/// How what starts now is read.
pub(crate) type Options = Box<dyn Fn() -> ReadOptions + Send + Sync>;
/// What a read becomes.
pub(crate) type Finish<T> =
    Arc<dyn Fn(PlannedRead, StartedRead) -> BoxFuture<'static, T> + Send + Sync>;

/// Reads under way, and those to come.
pub(crate) struct Window<T> {
    options: Options,
    finish: Finish<T>,
    waiting: std::iter::Peekable<vec::IntoIter<PlannedRead>>,
    under_way: FuturesUnordered<BoxFuture<'static, (u64, T)>>,
    bytes: u64,
}

impl PlannedRead {
    pub fn new(index: u32, place: ChunkCopy) -> Self {
        let location = place.file.location(place.position);
        Self { index, place, location }
    }

    fn bytes(&self) -> u64 {
        u64::from(self.location.span.length)
    }
}

/// By file, then by offset.
pub(crate) fn sort(items: &mut [PlannedRead]) {
    items.sort_unstable_by_key(|item| (item.place.file.serial, item.location.span.offset));
}

impl<T: Send + 'static> Window<T> {
    /// Of items in the order of [`sort`].
    pub fn new(options: Options, items: Vec<PlannedRead>, finish: Finish<T>) -> Self {
        Self {
            options,
            finish,
            waiting: items.into_iter().peekable(),
            under_way: FuturesUnordered::new(),
            bytes: 0,
        }
    }

    /// The next read that has ended, in any order.
    pub async fn next(&mut self) -> Option<T> {
        if self.is_half_empty() {
            self.fill();
        }
        let (bytes, done) = self.under_way.next().await?;
        self.bytes -= bytes;
        Some(done)
    }

    fn is_half_empty(&self) -> bool {
        self.under_way.len() <= WINDOW_CHUNKS_MAX / 2 && self.bytes <= WINDOW_BYTES_MAX / 2
    }

    /// Starts what there is room for, file by file.
    fn fill(&mut self) {
        while let Some(first) = self.take() {
            let file = first.place.file.clone();
            let mut items = vec![first];
            while let Some(item) = self.take_of(&file) {
                items.push(item);
            }
            self.start(&file, items);
        }
    }

    fn take(&mut self) -> Option<PlannedRead> {
        let next = self.waiting.peek()?;
        let has_room = self.under_way.len() < WINDOW_CHUNKS_MAX
            && self.bytes + next.bytes() <= WINDOW_BYTES_MAX;
        if !has_room && self.bytes != 0 {
            return None;
        }
        let item = self.waiting.next()?;
        self.bytes += item.bytes();
        Some(item)
    }

    fn take_of(&mut self, file: &Arc<TableFile>) -> Option<PlannedRead> {
        let is_same = self.waiting.peek().is_some_and(|next| Arc::ptr_eq(&next.place.file, file));
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
            self.under_way.push(finished.map(move |done| (bytes, done)).boxed());
        }
    }
}
