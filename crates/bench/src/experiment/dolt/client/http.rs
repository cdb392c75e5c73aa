//! GETs over HTTP/1.1 on a pool of connections, and what a client counts.

use std::{cell::RefCell, collections::BTreeMap, fmt::Display, ops::Range, rc::Rc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::{Request, StatusCode, body::Incoming, header::RANGE};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::time::timeout;

use crate::failures::Failure;

/// Longest wait for the headers of a response.
const HEADERS: Duration = Duration::from_secs(15);

/// A body of which nothing comes for so long is given up.
const STALL: Duration = Duration::from_secs(5);

/// Makes a failure of something refused, or that did not come.
pub fn refused(what: impl Display, why: impl Display) -> Failure {
    Failure::Refused(format!("{what}: {why}"))
}

/// Makes a failure of something that came and is not what it should be.
pub fn wrong(what: impl Display, why: impl Display) -> Failure {
    Failure::Wrong(format!("{what}: {why}"))
}

/// Calls, requests and bytes of one client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls by method; a stream is one.
    pub calls: BTreeMap<&'static str, u64>,
    /// GETs of everything, and those of dictionaries among them.
    pub gets: u64,
    pub dictionary_gets: u64,
    /// Bytes of bodies that came.
    pub body_bytes: u64,
    /// Chunks that came and were right, and bytes of their contents.
    pub chunks: u64,
    pub contents_bytes: u64,
}

impl Counts {
    /// Adds the counts of another client.
    pub fn merge(&mut self, other: &Self) {
        for (method, count) in &other.calls {
            *self.calls.entry(method).or_default() += count;
        }
        self.gets += other.gets;
        self.dictionary_gets += other.dictionary_gets;
        self.body_bytes += other.body_bytes;
        self.chunks += other.chunks;
        self.contents_bytes += other.contents_bytes;
    }
}

/// Counts that the parts of one client share.
#[derive(Clone, Debug, Default)]
pub struct Meter(Rc<RefCell<Counts>>);

impl Meter {
    pub fn add(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.0.borrow_mut());
    }

    /// Returns the counts so far and begins anew.
    pub fn take(&self) -> Counts {
        self.0.take()
    }
}

/// A client for GETs; idle connections are used again.
#[derive(Clone, Debug)]
pub struct Http {
    pool: Client<HttpConnector, Empty<Bytes>>,
    pub meter: Meter,
}

impl Http {
    pub fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let pool = Client::builder(TokioExecutor::new()).build(connector);
        Self { pool, meter: Meter::default() }
    }

    /// Sends a GET for a resource or a range of it; the body comes piece by piece.
    pub async fn get(&self, url: &str, range: Option<Range<u64>>) -> Result<Body, Failure> {
        let mut request = Request::get(url);
        let mut wanted = StatusCode::OK;
        if let Some(Range { start, end }) = range {
            request = request.header(RANGE, format!("bytes={start}-{}", end.saturating_sub(1)));
            wanted = StatusCode::PARTIAL_CONTENT;
        }
        let request = request.body(Empty::new()).map_err(|error| refused(url, error))?;
        self.meter.add(|counts| counts.gets += 1);
        let response = timeout(HEADERS, self.pool.request(request)).await;
        let response =
            response.map_err(|_| refused(url, format_args!("silent for {HEADERS:?}")))?;
        let response = response.map_err(|error| refused(url, error))?;
        if response.status() != wanted {
            return Err(refused(url, response.status()));
        }
        Ok(Body { body: response.into_body(), meter: self.meter.clone() })
    }
}

/// Body of a response that is still to come.
#[derive(Debug)]
pub struct Body {
    body: Incoming,
    meter: Meter,
}

impl Body {
    /// Receives the next piece; `None` at the end, when the connection is free again.
    pub async fn data(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let frame = timeout(STALL, self.body.frame()).await;
            let frame =
                frame.map_err(|_| refused("a body", format_args!("stalled for {STALL:?}")))?;
            let Some(frame) = frame.transpose().map_err(|error| refused("a body", error))? else {
                return Ok(None);
            };
            // A frame without data has trailers, which nobody sends.
            if let Ok(data) = frame.into_data() {
                self.meter.add(|counts| counts.body_bytes += count(data.len()));
                return Ok(Some(data));
            }
        }
    }
}

/// Returns a length as 64 bits.
pub fn count(length: usize) -> u64 {
    u64::try_from(length).expect("a length fits in 64 bits")
}
