//! Downloads of one fetch object: chunks near each other are one GET, the largest goes first, so
//! many are under way at once; chunks come out decoded and checked.

use std::{cell::RefCell, collections::HashMap, mem::take, rc::Rc};

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
    limits: DownloadLimits,
    dictionaries: Dictionaries,
    /// Chunks that are in no region yet, and regions in the order of their sizes.
    wanted: Vec<LocatedChunk>,
    regions: Vec<Region>,
    running: FuturesUnordered<LocalBoxFuture<'static, Result<(), Failure>>>,
    chunks: (UnboundedSender<Decoded>, UnboundedReceiver<Decoded>),
}

/// A chunk's address and its contents.
type Decoded = (ChunkAddress, Bytes);

impl Downloads {
    pub fn new(http: &Http, limits: DownloadLimits, dictionaries: Dictionaries) -> Self {
        Self {
            http: http.clone(),
            limits,
            dictionaries,
            wanted: Vec::new(),
            regions: Vec::new(),
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
        self.wanted.push(chunk);
    }

    /// Returns the next chunk. Can be dropped and called again; never ends when nothing is wanted.
    pub async fn next(&mut self) -> Result<Decoded, Failure> {
        loop {
            if !self.wanted.is_empty() && self.running.len() < self.limits.workers {
                let pending = self.regions.drain(..).flat_map(|region| region.chunks);
                self.wanted.extend(pending);
                self.regions = merge(take(&mut self.wanted), self.limits.gap);
            }
            while self.running.len() < self.limits.workers
                && let Some(region) = self.regions.pop()
            {
                let (http, dictionaries) = (self.http.clone(), Rc::clone(&self.dictionaries));
                let download = download(http, region, dictionaries, self.chunks.0.clone());
                self.running.push(download.boxed_local());
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
    Region { url, start, end, chunks }: Region,
    dictionaries: Dictionaries,
    decoded: UnboundedSender<Decoded>,
) -> Result<(), Failure> {
    let mut range = RangeBody::get(&http, &url, start, end).await?;
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

/// Merges chunks of a file that are less than `gap` bytes apart; the largest region is the last.
fn merge(mut chunks: Vec<LocatedChunk>, gap: u64) -> Vec<Region> {
    chunks.sort_unstable_by(|one, other| {
        (&one.url, one.location.span.offset).cmp(&(&other.url, other.location.span.offset))
    });
    let mut regions: Vec<Region> = Vec::new();
    for chunk in chunks {
        let (url, Span { offset: start, length }) = (Rc::clone(&chunk.url), chunk.location.span);
        let end = start + u64::from(length);
        match regions.last_mut().filter(|last| last.url == url && start < last.end + gap) {
            Some(last) => {
                last.end = last.end.max(end);
                last.chunks.push(chunk);
            }
            None => regions.push(Region { url, start, end, chunks: vec![chunk] }),
        }
    }
    regions.sort_by_key(|region| region.end - region.start);
    regions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regions(gap: u64, spans: &[(u64, u32)]) -> Vec<(u64, u64, usize)> {
        let chunk = |url: &str, &(offset, length): &(u64, u32)| {
            let location = ChunkLocation { span: Span { offset, length }, dictionary: None };
            LocatedChunk { url: url.into(), address: ChunkAddress::ZERO, location }
        };
        let [first, second] = ["http://host/a", "http://host/b"]
            .map(|url| spans.iter().map(|span| chunk(url, span)).collect::<Vec<_>>());
        let all = merge([first, second].concat(), gap);
        // Files are never merged.
        let of_one: Vec<_> = all.iter().filter(|region| region.url.ends_with('a')).collect();
        assert_eq!(of_one.len() * 2, all.len());
        of_one.iter().map(|region| (region.start, region.end, region.chunks.len())).collect()
    }

    #[test]
    fn ranges_less_than_the_gap_apart_are_one_and_the_largest_is_last() {
        assert_eq!(regions(8_192, &[(8_291, 100), (0, 100)]), [(0, 8_391, 2)]);
        assert_eq!(regions(8_192, &[(8_292, 100), (0, 99)]), [(0, 99, 1), (8_292, 8_392, 1)]);
        assert_eq!(regions(95, &[(0, 10), (200, 10), (100, 10)]), [(0, 210, 3)]);
        assert_eq!(regions(90, &[(0, 10), (200, 10), (100, 10)]).len(), 3);
    }
}
