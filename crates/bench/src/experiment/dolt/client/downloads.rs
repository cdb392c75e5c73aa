//! Downloads of one fetch object: chunks near each other are one GET, the largest goes first, so
//! many are under way at once; chunks come out decoded and checked.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap},
    mem::swap,
    rc::Rc,
};

use busload_chunks::{ChunkAddress, ChunkLocation, Dictionary, Span, Stored, check};
use bytes::{Buf, Bytes, BytesMut};
use futures_util::{
    FutureExt, StreamExt, TryFutureExt,
    future::{LocalBoxFuture, Shared},
    stream::FuturesUnordered,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::http::{Body, Http, count, wrong};
use crate::failures::Failure;

/// A chunk and where it is.
#[derive(Clone, Debug)]
pub struct LocatedChunk {
    pub url: Rc<str>,
    pub address: ChunkAddress,
    pub location: ChunkLocation,
}

/// Dictionaries that were read or are under way. The stock client has them for one fetch object
/// only.
pub type Dictionaries = Rc<RefCell<HashMap<(Rc<str>, Span), SharedDictionary>>>;

/// A dictionary for which several regions wait.
type SharedDictionary = Shared<LocalBoxFuture<'static, Result<Rc<Dictionary>, Failure>>>;

/// Limits of a fetch object's downloads.
#[derive(Clone, Copy, Debug)]
pub struct DownloadLimits {
    /// Ranges less far apart are one GET.
    pub gap: u64,
    /// GETs under way at once.
    pub workers: usize,
}

/// Downloads of a fetch object.
pub struct Downloads {
    http: Http,
    workers: usize,
    dictionaries: Dictionaries,
    regions: Regions,
    running: FuturesUnordered<LocalBoxFuture<'static, Result<(), Failure>>>,
    chunks: (UnboundedSender<Decoded>, UnboundedReceiver<Decoded>),
}

/// A chunk's address and its contents.
type Decoded = (ChunkAddress, Bytes);

impl Downloads {
    pub fn new(http: &Http, limits: DownloadLimits, dictionaries: Dictionaries) -> Self {
        Self {
            http: http.clone(),
            workers: limits.workers,
            dictionaries,
            regions: Regions { gap: limits.gap, ..Regions::default() },
            running: FuturesUnordered::new(),
            chunks: unbounded_channel(),
        }
    }

    /// Adds a chunk to read; the read of its dictionary begins at once.
    pub fn want(&mut self, chunk: LocatedChunk) {
        if let Some(span) = chunk.location.dictionary {
            let key = (Rc::clone(&chunk.url), span);
            let (http, running) = (&self.http, &self.running);
            self.dictionaries.borrow_mut().entry(key).or_insert_with_key(|key| {
                let dictionary = read_dictionary(http.clone(), key.clone());
                let dictionary = dictionary.boxed_local().shared();
                running.push(dictionary.clone().map_ok(drop).boxed_local());
                dictionary
            });
        }
        self.regions.insert(chunk);
    }

    /// Returns the next chunk. Can be dropped and called again; never ends when nothing is wanted.
    pub async fn next(&mut self) -> Result<Decoded, Failure> {
        loop {
            while self.running.len() < self.workers
                && let Some(region) = self.regions.take_largest()
            {
                let dictionaries = Rc::clone(&self.dictionaries);
                let chunks = self.chunks.0.clone();
                self.running
                    .push(download(self.http.clone(), region, dictionaries, chunks).boxed_local());
            }
            tokio::select! {
                biased;
                Some(chunk) = self.chunks.1.recv() => return Ok(chunk),
                Some(ended) = self.running.next(), if !self.running.is_empty() => ended?,
            }
        }
    }
}

async fn read_dictionary(
    http: Http,
    (url, span): (Rc<str>, Span),
) -> Result<Rc<Dictionary>, Failure> {
    http.meter.add(|counts| counts.dictionary_gets += 1);
    let end = span.offset + u64::from(span.length);
    let mut range = RangeBody::get(&http, &url, span.offset, end).await?;
    let bytes = range.take(span).await?;
    range.finish().await?;
    Dictionary::decode(&bytes).map(Rc::new).map_err(|error| wrong(url, error))
}

/// Reads a region by one GET; its chunks are handed on as they come.
async fn download(
    http: Http,
    Region { url, start, end, mut chunks }: Region,
    dictionaries: Dictionaries,
    decoded: UnboundedSender<Decoded>,
) -> Result<(), Failure> {
    let mut range = RangeBody::get(&http, &url, start, end).await?;
    chunks.sort_unstable_by_key(|chunk| chunk.location.span.offset);
    for LocatedChunk { address, location, .. } in chunks {
        let bytes = range.take(location.span).await?;
        let dictionary = match location.dictionary {
            None => None,
            Some(span) => {
                let dictionary = dictionaries.borrow()[&(Rc::clone(&url), span)].clone();
                Some(dictionary.await?)
            }
        };
        let contents = Stored::parse(bytes, &location)
            .and_then(|stored| stored.decode(dictionary.as_deref()))
            .and_then(|contents| check(&address, &contents).map(|()| contents))
            .map_err(|error| wrong(&url, format_args!("{address}: {error}")))?;
        http.meter.add(|counts| {
            counts.chunks += 1;
            counts.contents_bytes += count(contents.len());
        });
        // Nobody takes chunks any more when the walk has failed.
        let _ = decoded.send((address, contents));
    }
    range.finish().await
}

/// Body of a ranged GET from which spans are cut in their order.
struct RangeBody<'a> {
    url: &'a str,
    body: Body,
    buffer: BytesMut,
    /// Offset in the resource of the buffer's first byte.
    position: u64,
}

impl<'a> RangeBody<'a> {
    async fn get(http: &Http, url: &'a str, start: u64, end: u64) -> Result<Self, Failure> {
        let body = http.get(url, Some(start..end)).await?;
        Ok(Self { url, body, buffer: BytesMut::new(), position: start })
    }

    /// Drops what is before a span and returns its bytes.
    async fn take(&mut self, Span { offset, length }: Span) -> Result<Bytes, Failure> {
        let overlap = || wrong(self.url, format_args!("another chunk overlaps that at {offset}"));
        let skipped = offset.checked_sub(self.position).ok_or_else(overlap)?;
        let skipped = usize::try_from(skipped).expect("within a range");
        let length = usize::try_from(length).expect("32 bits fit");
        while self.buffer.len() < skipped + length {
            let Some(data) = self.body.data().await? else {
                return Err(wrong(self.url, "the body ends too early"));
            };
            self.buffer.extend_from_slice(&data);
        }
        self.buffer.advance(skipped);
        self.position = offset + count(length);
        Ok(self.buffer.split_to(length).freeze())
    }

    /// Sees the end, so that the connection is free again.
    async fn finish(mut self) -> Result<(), Failure> {
        if self.buffer.is_empty() && self.body.data().await?.is_none() {
            return Ok(());
        }
        Err(wrong(self.url, "more bytes than asked for"))
    }
}

/// Chunks of one URL that are read by one GET.
#[derive(Debug)]
struct Region {
    url: Rc<str>,
    start: u64,
    end: u64,
    chunks: Vec<LocatedChunk>,
}

/// Chunks still to be read, merged where little is between them.
#[derive(Debug, Default)]
struct Regions {
    gap: u64,
    /// End and chunks of a region, by its URL and start.
    by_start: BTreeMap<(Rc<str>, u64), (u64, Vec<LocatedChunk>)>,
    /// Length, URL and start: the last is the largest.
    by_size: BTreeSet<(u64, Rc<str>, u64)>,
}

impl Regions {
    /// Adds a chunk and merges it with the regions next to it.
    fn insert(&mut self, chunk: LocatedChunk) {
        let (url, span) = (Rc::clone(&chunk.url), chunk.location.span);
        let (mut start, mut end) = (span.offset, span.offset + u64::from(span.length));
        let mut chunks = vec![chunk];
        while let Some(mut near) = self.take_near(&url, start, end) {
            (start, end) = (start.min(near.start), end.max(near.end));
            // The longer list grows.
            if near.chunks.len() < chunks.len() {
                swap(&mut near.chunks, &mut chunks);
            }
            near.chunks.append(&mut chunks);
            chunks = near.chunks;
        }
        self.by_size.insert((end - start, Rc::clone(&url), start));
        self.by_start.insert((url, start), (end, chunks));
    }

    fn take_largest(&mut self) -> Option<Region> {
        let (_, url, start) = self.by_size.last()?.clone();
        self.take(&url, start)
    }

    /// Removes a region that touches these bytes, or nearly.
    fn take_near(&mut self, url: &Rc<str>, start: u64, end: u64) -> Option<Region> {
        let key = |start| (Rc::clone(url), start);
        let before = self.by_start.range(key(0)..=key(start)).next_back();
        let before = before.filter(|(_, (near_end, _))| start < near_end + self.gap);
        let near = before.or_else(|| self.by_start.range(key(start)..key(end + self.gap)).next());
        let start = near?.0.1;
        self.take(url, start)
    }

    fn take(&mut self, url: &Rc<str>, start: u64) -> Option<Region> {
        let (end, chunks) = self.by_start.remove(&(Rc::clone(url), start))?;
        self.by_size.remove(&(end - start, Rc::clone(url), start));
        Some(Region { url: Rc::clone(url), start, end, chunks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn regions(gap: u64, spans: &[(u64, u32)]) -> Vec<(u64, u64, usize)> {
        let mut regions = Regions { gap, ..Regions::default() };
        for &(offset, length) in spans {
            let location = ChunkLocation { span: Span { offset, length }, dictionary: None };
            for url in ["http://host/a", "http://host/b"] {
                let address = ChunkAddress::ZERO;
                regions.insert(LocatedChunk { url: url.into(), address, location });
            }
        }
        let all: Vec<_> = std::iter::from_fn(|| regions.take_largest()).collect();
        // Files are never merged.
        let of_one = all.iter().filter(|region| region.url.ends_with('a'));
        assert_eq!(of_one.clone().count() * 2, all.len());
        of_one.map(|region| (region.start, region.end, region.chunks.len())).collect()
    }

    #[test]
    fn ranges_less_than_the_gap_apart_are_one_and_the_largest_comes_first() {
        assert_eq!(regions(8_192, &[(0, 100), (8_291, 100)]), [(0, 8_391, 2)]);
        assert_eq!(regions(8_192, &[(8_291, 100), (0, 100)]), [(0, 8_391, 2)]);
        assert_eq!(regions(8_192, &[(0, 99), (8_292, 100)]), [(8_292, 8_392, 1), (0, 99, 1)]);
        // A range between two makes them one.
        assert_eq!(regions(95, &[(0, 10), (200, 10), (100, 10)]), [(0, 210, 3)]);
        assert_eq!(regions(90, &[(0, 10), (200, 10), (100, 10)]).len(), 3);
    }

    #[test]
    fn however_ranges_come_the_regions_are_those_of_the_sorted_list() {
        let mut random = Random::new(1);
        for _ in 0..50 {
            let mut spans: Vec<(u64, u32)> = (0..200).map(|number| (number * 500, 100)).collect();
            random.shuffle(&mut spans);
            spans.truncate(120);
            let mut found = regions(600, &spans);
            found.sort_unstable();
            spans.sort_unstable();
            let mut expected: Vec<(u64, u64, usize)> = Vec::new();
            for (offset, length) in spans {
                let end = offset + u64::from(length);
                match expected.last_mut() {
                    Some(last) if offset < last.1 + 600 => (last.1, last.2) = (end, last.2 + 1),
                    _ => expected.push((offset, end, 1)),
                }
            }
            assert_eq!(found, expected);
        }
    }
}
