//! Times of the calls and downloads for the chunks of one table.

use std::sync::Arc;

use busload_histogram::{Reading, SharedHistogram};
use tokio::time::Instant;

/// Call or download whose time is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimedCall {
    /// `GetChunk`: until the chunk was there.
    GetChunk,
    /// `GetChunks`: until the first message of its stream was there.
    GetChunks,
    /// `HasChunks`: until all addresses were looked up.
    HasChunks,
    /// A download of a table file: until its first bytes were there, here and below.
    File,
    /// A download of a range of a table file.
    Range,
    /// A download of a bundle of records, or of a range of it.
    Records,
}

impl TimedCall {
    /// All variants, in the order of their discriminants.
    pub const ALL: [Self; 6] =
        [Self::GetChunk, Self::GetChunks, Self::HasChunks, Self::File, Self::Range, Self::Records];

    /// Returns the value of the label in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::GetChunk => "GetChunk",
            Self::GetChunks => "GetChunks",
            Self::HasChunks => "HasChunks",
            Self::File => "file",
            Self::Range => "range",
            Self::Records => "records",
        }
    }
}

/// Times of all calls for one table.
#[derive(Debug, Default)]
pub struct CallTimes([SharedHistogram; TimedCall::ALL.len()]);

impl CallTimes {
    /// Begins to time a call that has just arrived.
    pub fn begin(self: &Arc<Self>, call: TimedCall) -> CallTimer {
        self.since(call, Instant::now())
    }

    /// Times a call that arrived at this moment.
    pub fn since(self: &Arc<Self>, call: TimedCall, arrived: Instant) -> CallTimer {
        CallTimer { times: Arc::clone(self), call, arrived }
    }

    /// Returns the times of this call so far.
    pub fn read(&self, call: TimedCall) -> Reading {
        self.0[call as usize].read()
    }
}

/// Timer of one call. One that is dropped counts nothing: its client has gone.
#[derive(Debug)]
pub struct CallTimer {
    times: Arc<CallTimes>,
    call: TimedCall,
    arrived: Instant,
}

impl CallTimer {
    /// Records the time until now, when the answer, be it an error, can be sent.
    pub fn end(self) {
        self.times.0[self.call as usize].record(self.arrived.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, time::Duration};

    use super::*;

    #[test]
    fn a_call_counts_by_its_name_once_it_is_answered() {
        let times = Arc::new(CallTimes::default());
        for (index, call) in (0..).zip(TimedCall::ALL) {
            (0..=index).for_each(|_| times.begin(call).end());
            drop(times.begin(call));
            assert_eq!(times.read(call).count(), index + 1, "{call:?}");
        }
        let arrived = Instant::now();
        times.since(TimedCall::Range, arrived).end();
        assert!(times.read(TimedCall::Range).max() <= arrived.elapsed() + Duration::from_secs(1));
        let names: HashSet<&str> = TimedCall::ALL.iter().map(|call| call.name()).collect();
        assert_eq!(names.len(), TimedCall::ALL.len());
    }
}
