//! Helpers that the adapters share: the queue's request of each open ticket (to cancel it), the
//! fields of INFO, and counts as integers of a reply.

use busload_batch::{ClassStats, QueueStats, RequestId};
use busload_pipeline::{
    source::{SourceInfo, Ticket},
    stats::BatchReading,
};

/// Request ids by the index of their ticket. The pipeline reuses indexes, so there are no more than
/// tickets were open at the same time.
#[derive(Debug, Default)]
pub struct OpenRequests(Vec<Option<RequestId>>);

impl OpenRequests {
    /// Records the request of a ticket.
    pub fn insert(&mut self, ticket: Ticket, request: RequestId) {
        let index = ticket.index();
        if self.0.len() <= index {
            self.0.resize(index + 1, None);
        }
        self.0[index] = Some(request);
    }

    /// Takes the request of a ticket. A ticket that was answered at once has none, or that of an
    /// earlier ticket with its index, which has been answered: ids are never reused.
    pub fn take(&mut self, ticket: Ticket) -> Option<RequestId> {
        self.0.get_mut(ticket.index())?.take()
    }
}

/// Builds INFO of a table: the fields of its own, and those of its queue, in which `waiting`
/// requests wait.
pub fn source_info(
    mut fields: Vec<(&'static str, String)>,
    queue: &QueueStats,
    waiting: usize,
) -> SourceInfo {
    let QueueStats { reads, writes, refused, expired, cancelled } = queue;
    fields.extend([
        ("reads", reads.requests.to_string()),
        ("writes", writes.requests.to_string()),
        ("deduplicated", reads.joined.to_string()),
        ("merged", writes.joined.to_string()),
        ("waiting", waiting.to_string()),
        ("batches_in_flight", queue.batches_in_flight().to_string()),
        ("refused", refused.to_string()),
        ("expired", expired.to_string()),
        ("cancelled", cancelled.to_string()),
    ]);
    let batches = |class: &ClassStats| BatchReading {
        batches: class.batches,
        items: class.entries,
        max: class.batch_entries_max as u64,
    };
    SourceInfo { batches: vec![("read", batches(reads)), ("write", batches(writes))], fields }
}

/// Converts a count to an integer of the protocol.
pub fn count(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
