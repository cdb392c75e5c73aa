//! Cost of an operation on the wire.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use crate::clock::now_ns;

/// Calls, requests and bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls by method; a stream is one.
    pub rpcs: BTreeMap<&'static str, u64>,
    /// Messages sent on location streams.
    pub location_requests: u64,
    /// GETs of everything, of them those of dictionaries and those of whole files.
    pub gets: u64,
    pub dictionary_gets: u64,
    pub file_gets: u64,
    /// Bytes of bodies that came.
    pub body_bytes: u64,
    /// Chunks that came and were right.
    pub chunks: u64,
    /// Bytes of their contents.
    pub contents_bytes: u64,
    pub connections: u64,
    /// Calls and GETs made again.
    pub retries: u64,
}

impl Counts {
    /// Adds what another client counted.
    pub fn merge(&mut self, other: &Self) {
        for (method, count) in &other.rpcs {
            *self.rpcs.entry(method).or_default() += count;
        }
        self.location_requests += other.location_requests;
        self.gets += other.gets;
        self.dictionary_gets += other.dictionary_gets;
        self.file_gets += other.file_gets;
        self.body_bytes += other.body_bytes;
        self.chunks += other.chunks;
        self.contents_bytes += other.contents_bytes;
        self.connections += other.connections;
        self.retries += other.retries;
    }
}

/// An operation that succeeded: every chunk and file of it was what it should have been.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Time from its beginning to its end.
    pub elapsed_ns: u64,
    /// Times of its parts: chains of a point read, nodes of a scan whose children were read, files
    /// of a clone, ranges of a download.
    pub parts_ns: Vec<u64>,
    pub counts: Counts,
}

/// Counters that the parts of one client share.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    counts: Rc<RefCell<Counts>>,
}

impl Meter {
    pub fn add(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.counts.borrow_mut());
    }

    /// A call of this method.
    pub fn call(&self, method: &'static str) {
        self.add(|counts| *counts.rpcs.entry(method).or_default() += 1);
    }

    /// Begins an operation: counts from nothing.
    pub fn begin(&self) -> Started {
        self.counts.take();
        Started { meter: self.clone(), at_ns: now_ns() }
    }
}

/// An operation under way.
#[derive(Debug)]
pub struct Started {
    meter: Meter,
    at_ns: u64,
}

impl Started {
    pub fn end(self, parts_ns: Vec<u64>) -> Report {
        let elapsed_ns = now_ns().saturating_sub(self.at_ns);
        Report { elapsed_ns, parts_ns, counts: self.meter.counts.borrow().clone() }
    }
}
