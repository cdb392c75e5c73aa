//! Traces of single requests: which batch carries them, and how it ends.
//!
//! ```text
//!  Reply::is_traced --> submitted --> batch sent --> Reply::trace_batch, once --> BatchTrace
//!                           |                                                     ^  carry, end
//!                           +----------- carry, for each traced request ---------+
//! ```
//!
//! What a trace is, and where it goes, is the user's affair.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::service::{Reply, Service};
use crate::{BatchEnd, BatchId, SentBatch};

/// Follows one batch in flight for the traced requests that it carries.
///
/// A batch has at most one: the first traced request in it makes it, by [`Reply::trace_batch`].
/// If it is dropped without a call of `end`, so was the batcher.
pub trait BatchTrace<R>: Send {
    /// Notes that the batch carries `request`, which [is traced](Reply::is_traced). This is called
    /// under the queue's lock: it must be short and must not panic.
    fn carry(&mut self, request: &mut R);

    /// Notes that the batch has ended. This is called outside the lock, before those waiters of the
    /// batch get their answers that have none yet.
    fn end(self: Box<Self>, end: BatchEnd);
}

/// Traces of the batches in flight that carry traced requests.
pub(crate) struct BatchTraces<R>(HashMap<BatchId, Box<dyn BatchTrace<R>>>);

impl<R> Default for BatchTraces<R> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<R> BatchTraces<R> {
    /// Adds a traced request to the trace of the batch that carries it.
    pub(crate) fn carry<S: Service>(&mut self, batch: BatchId, sent: &SentBatch, request: &mut R)
    where
        R: Reply<S>,
    {
        let trace = match self.0.entry(batch) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => match request.trace_batch(sent) {
                Some(trace) => new.insert(trace),
                None => return,
            },
        };
        trace.carry(request);
    }

    /// Takes the trace of a batch that ends, if there is one.
    pub(crate) fn take(&mut self, batch: BatchId) -> Option<Box<dyn BatchTrace<R>>> {
        if self.0.is_empty() {
            return None;
        }
        self.0.remove(&batch)
    }
}
