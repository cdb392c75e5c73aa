//! GETs over HTTP/1.1 on a pool of connections. Chunks near each other are one GET, a region;
//! chunks come out decoded and checked.

use std::{
    cell::RefCell,
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    fmt::Display,
    ops::Range,
    rc::Rc,
};

use busload_chunks::{ChunkAddress, ChunkLocation, Dictionary, Span, Stored, check};
use bytes::Bytes;
use futures_util::{TryStreamExt, future::try_join};
use http_body_util::{BodyDataStream, Empty};
use hyper::{Request, StatusCode, body::Incoming, header::RANGE};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::sync::OnceCell;

use crate::{clock::now_ns, failures::Failure};

/// Makes a failure of something refused, or that did not come.
pub fn refused(what: impl Display, why: impl Display) -> Failure {
    Failure::Refused(format!("{what}: {why}"))
}

/// Makes a failure of something that came and is not what it should be.
pub fn wrong(what: impl Display, why: impl Display) -> Failure {
    Failure::Wrong(format!("{what}: {why}"))
}

/// Fails unless something that came is what it should be.
pub fn ensure(is_right: bool, what: impl Display, why: impl Display) -> Result<(), Failure> {
    if is_right { Ok(()) } else { Err(wrong(what, why)) }
}

/// Returns a length as 64 bits.
pub fn count(length: usize) -> u64 {
    u64::try_from(length).expect("a length fits in 64 bits")
}

/// Calls, requests and bytes of the clients of one measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls by method; a stream is one.
    pub calls: BTreeMap<&'static str, u64>,
    /// GETs of everything, and those of dictionaries among them.
    pub gets: u64,
    pub dictionary_gets: u64,
    /// Bytes of bodies that came.
    pub body_bytes: u64,
    /// Chunks that came and were right.
    pub chunks: u64,
}

/// Counts that all parts of all clients share.
pub type Meter = Rc<RefCell<Counts>>;

/// A chunk and where it is.
#[derive(Clone, Debug)]
pub struct LocatedChunk {
    pub url: Rc<str>,
    pub address: ChunkAddress,
    pub location: ChunkLocation,
}

/// Dictionaries that were read or are under way.
pub type Dictionaries = RefCell<HashMap<(Rc<str>, Span), Rc<OnceCell<Rc<Dictionary>>>>>;

/// A client for GETs; idle connections are used again.
#[derive(Clone, Debug)]
pub struct Http {
    pool: Client<HttpConnector, Empty<Bytes>>,
    meter: Meter,
}

impl Http {
    pub fn new(meter: &Meter) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let pool = Client::builder(TokioExecutor::new()).build(connector);
        Self { pool, meter: Rc::clone(meter) }
    }

    /// Downloads a resource or a range of it, which has so many bytes, and hands on every piece.
    /// Returns the nanoseconds that it took.
    pub async fn download(
        &self,
        url: &str,
        range: Option<Range<u64>>,
        expected: u64,
        mut piece: impl FnMut(&[u8]),
    ) -> Result<u64, Failure> {
        let began_ns = now_ns();
        let mut body = self.get(url, range).await?;
        let mut bytes = 0;
        while let Some(data) = self.data(url, &mut body).await? {
            bytes += count(data.len());
            piece(&data);
        }
        ensure(bytes == expected, url, format_args!("{bytes} bytes, expected {expected}"))?;
        Ok(now_ns().saturating_sub(began_ns))
    }

    /// Reads a region by one GET and decodes its chunks as they come.
    pub async fn region(
        &self,
        Region { url, range, chunks }: Region,
        dictionaries: &Dictionaries,
    ) -> Result<Vec<(ChunkAddress, Bytes)>, Failure> {
        // Where the next chunks need another dictionary, they wait for it.
        let first = self.dictionary(&chunks[0], dictionaries);
        let (mut body, _) = try_join(self.get(&url, Some(range.clone())), first).await?;
        let (mut bytes, mut decoded) = (Vec::new(), Vec::with_capacity(chunks.len()));
        let offset = |of: u64| usize::try_from(of - range.start).expect("within a GET");
        for chunk in &chunks {
            let dictionary = self.dictionary(chunk, dictionaries).await?;
            let LocatedChunk { address, location, .. } = chunk;
            let Span { offset: from, length } = location.span;
            let (from, to) = (offset(from), offset(from + u64::from(length)));
            while bytes.len() < to {
                let data = self.data(&url, &mut body).await?;
                let data = data.ok_or_else(|| wrong(&url, "the body ends too early"))?;
                bytes.extend_from_slice(&data);
            }
            let contents = Stored::parse(Bytes::copy_from_slice(&bytes[from..to]), location)
                .and_then(|stored| stored.decode(dictionary.as_deref()))
                .and_then(|contents| check(address, &contents).map(|()| contents));
            let contents =
                contents.map_err(|error| wrong(&url, format_args!("{address}: {error}")))?;
            self.meter.borrow_mut().chunks += 1;
            decoded.push((*address, contents));
        }
        // The connection is free again when its end was seen.
        let is_end =
            bytes.len() == offset(range.end) && self.data(&url, &mut body).await?.is_none();
        ensure(is_end, url, "more bytes than asked for").map(|()| decoded)
    }

    /// Reads the dictionary that a chunk needs, unless another has.
    async fn dictionary(
        &self,
        LocatedChunk { url, location, .. }: &LocatedChunk,
        dictionaries: &Dictionaries,
    ) -> Result<Option<Rc<Dictionary>>, Failure> {
        let Some(span) = location.dictionary else { return Ok(None) };
        let key = (Rc::clone(url), span);
        let dictionary = Rc::clone(dictionaries.borrow_mut().entry(key).or_default());
        let read = || async {
            self.meter.borrow_mut().dictionary_gets += 1;
            let (mut bytes, length) = (Vec::new(), u64::from(span.length));
            let range = span.offset..span.offset + length;
            self.download(url, Some(range), length, |data| bytes.extend_from_slice(data)).await?;
            Dictionary::decode(&bytes).map(Rc::new).map_err(|error| wrong(url, error))
        };
        dictionary.get_or_try_init(read).await.cloned().map(Some)
    }

    /// Sends a GET for a resource or a range of it; the body comes piece by piece.
    async fn get(
        &self,
        url: &str,
        range: Option<Range<u64>>,
    ) -> Result<BodyDataStream<Incoming>, Failure> {
        let (mut request, mut wanted) = (Request::get(url), StatusCode::OK);
        if let Some(Range { start, end }) = range {
            request = request.header(RANGE, format!("bytes={start}-{}", end.saturating_sub(1)));
            wanted = StatusCode::PARTIAL_CONTENT;
        }
        let request = request.body(Empty::new()).map_err(|error| refused(url, error))?;
        self.meter.borrow_mut().gets += 1;
        let response = self.pool.request(request).await.map_err(|error| refused(url, error))?;
        if response.status() != wanted {
            return Err(refused(url, response.status()));
        }
        Ok(BodyDataStream::new(response.into_body()))
    }

    /// Receives the next piece; `None` at the end, when the connection is free again.
    async fn data(
        &self,
        url: &str,
        body: &mut BodyDataStream<Incoming>,
    ) -> Result<Option<Bytes>, Failure> {
        let data = body.try_next().await.map_err(|error| refused(url, error))?;
        self.meter.borrow_mut().body_bytes += data.as_ref().map_or(0, |data| count(data.len()));
        Ok(data)
    }
}

/// Chunks of one URL that are read by one GET, in the order of their offsets.
#[derive(Debug)]
pub struct Region {
    url: Rc<str>,
    range: Range<u64>,
    chunks: Vec<LocatedChunk>,
}

/// Merges chunks of a file that are less than `gap` bytes apart; the largest region comes first.
pub fn merge(mut chunks: Vec<LocatedChunk>, gap: u64) -> Vec<Region> {
    chunks.sort_unstable_by(|one, other| {
        (&one.url, one.location.span.offset).cmp(&(&other.url, other.location.span.offset))
    });
    let mut regions: Vec<Region> = Vec::new();
    for chunk in chunks {
        let (url, Span { offset: start, length }) = (Rc::clone(&chunk.url), chunk.location.span);
        let end = start + u64::from(length);
        match regions.last_mut().filter(|last| last.url == url && start < last.range.end + gap) {
            Some(last) => {
                last.range.end = last.range.end.max(end);
                last.chunks.push(chunk);
            }
            None => regions.push(Region { url, range: start..end, chunks: vec![chunk] }),
        }
    }
    regions.sort_by_key(|region| Reverse(region.range.end - region.range.start));
    regions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_less_than_the_gap_apart_are_one_and_the_largest_is_first() {
        let regions = |gap: u64, spans: &[(&str, u64, u32)]| -> Vec<_> {
            let chunk = |&(url, offset, length): &(&str, u64, u32)| {
                let location = ChunkLocation { span: Span { offset, length }, dictionary: None };
                LocatedChunk { url: url.into(), address: ChunkAddress::ZERO, location }
            };
            let regions = merge(spans.iter().map(chunk).collect(), gap);
            regions.into_iter().map(|region| (region.range, region.chunks.len())).collect()
        };
        let near = [("a", 8_291, 100), ("a", 0, 100), ("b", 0, 10)];
        assert_eq!(regions(8_192, &near), [(0..8_391, 2), (0..10, 1)]);
        let far = [("a", 0, 99), ("a", 8_292, 100)];
        assert_eq!(regions(8_192, &far), [(8_292..8_392, 1), (0..99, 1)]);
        let three = [("a", 0, 10), ("a", 200, 10), ("a", 100, 10)];
        assert_eq!(regions(95, &three), [(0..210, 3)]);
    }
}
