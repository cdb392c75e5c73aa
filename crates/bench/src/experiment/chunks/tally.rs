//! What callers saw: how many chunks came, how long requests took, and what was wrong.

use anyhow::Result;
use hdrhistogram::Histogram;

use crate::stats::{new_histogram, record};

/// A request that was not answered as it should have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Refused or failed, and said so.
    Refused(String),
    /// Answered with what is not the chunk.
    Wrong(String),
}

/// Failures of one kind: how many, and the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// How many.
    pub count: u64,
    /// The first of them.
    pub example: Option<String>,
}

impl Failures {
    /// One more.
    pub fn add(&mut self, text: String) {
        self.count += 1;
        self.example.get_or_insert(text);
    }

    /// Adds what another load saw.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        if self.example.is_none() {
            self.example.clone_from(&other.example);
        }
    }
}

/// When a measurement counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Nothing before this counts.
    pub from_ns: u64,
    /// Nothing from this on counts, and no caller asks again.
    pub until_ns: u64,
}

impl Window {
    /// Whether this moment counts.
    pub fn contains(&self, ns: u64) -> bool {
        self.from_ns <= ns && ns < self.until_ns
    }
}

/// What a load saw.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Times of the requests that count.
    pub latency_ns: Histogram<u64>,
    /// Chunks that came within the window.
    pub chunks: u64,
    /// When the last of them came.
    pub last_ns: u64,
    /// Refusals, the warm-up included.
    pub refused: Failures,
    /// Wrong answers, the warm-up included.
    pub wrong: Failures,
}

impl Tally {
    /// Nothing seen so far.
    ///
    /// # Errors
    ///
    /// Never: the histogram's bounds are right.
    pub fn new() -> Result<Self> {
        Ok(Self {
            latency_ns: new_histogram()?,
            chunks: 0,
            last_ns: 0,
            refused: Failures::default(),
            wrong: Failures::default(),
        })
    }

    /// An answer with so many chunks: it counts when it came within the window.
    pub fn answer(&mut self, window: Window, chunks: u64, asked_ns: u64, now_ns: u64) {
        if window.contains(now_ns) {
            self.chunks += chunks;
            self.last_ns = self.last_ns.max(now_ns);
            record(&mut self.latency_ns, now_ns.saturating_sub(asked_ns));
        }
    }

    /// A request that failed.
    pub fn fail(&mut self, failure: Failure) {
        match failure {
            Failure::Refused(text) => self.refused.add(text),
            Failure::Wrong(text) => self.wrong.add(text),
        }
    }

    /// Failures of all kinds.
    pub fn failures(&self) -> u64 {
        self.refused.count + self.wrong.count
    }
}
