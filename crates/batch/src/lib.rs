//! Batches single-key reads and writes of many callers: a bounded request queue and its dispatch
//! policy.
//!
//! A service that reads one row by key, very often, pays for a statement each time. The same
//! requests, still made one by one, cost a fraction of that when those pending at the same moment
//! share one statement. This crate is the queue of pending requests, for any slow backend that
//! takes many keys as readily as one.
//!
//! ```text
//!  load(key)  --+     +--------------- RequestQueue ----------------+             batch in flight:
//!  store(key) --+---> | entries by key, in order of arrival | next_batch-> one statement,
//!               |     | reads | writes                      |              one call, ...
//!  waiters <----+---- +-------------------------------------+ <--answer, end--+
//! ```
//!
//! # The one rule
//!
//! A batch that can be sent takes all pending requests, up to a limit, and is sent at once; it
//! never waits for more. A lone request has no delay, a thousand at once share a batch, and batches
//! grow with the load by themselves, with no time to tune. A batch costs the backend something
//! besides its entries, so there is one refinement ([`DispatchPolicy::Adaptive`]): how many batches
//! may be in flight. With more, a request waits less for a slot; with fewer, batches are larger and
//! cost the backend less. The queue finds the number by itself: it measures what a request costs
//! with one limit and with another in turns, and stays with the better one. A backend that bounds
//! its own work, such as an object store, needs no such limit: [`DispatchPolicy::Immediate`] sends
//! all that is pending at once. [`DispatchPolicy::Eager`], with a fixed limit, and
//! [`DispatchPolicy::Window`], the usual fixed window of size and time, are there for comparison.
//!
//! # Two layers
//!
//! * [`RequestQueue`]: the core. It has no IO, no clock and no threads: requests go in, batches
//!   come out, and the time is an argument. Every call costs O(1) amortised; a read takes about 150
//!   ns in all.
//! * `Batcher` (feature `tokio`): the queue with a clock, tasks and futures around it.
//!   `batcher.load(key).await`.
//!
//! # Order
//!
//! * Operations on one key take effect in order of arrival: a read sees the writes before it and
//!   none after it. A write waits until all earlier operations on its key are answered, a read
//!   until the earlier writes are. Reads of one key may be in flight side by side.
//! * A batch is sorted and has each key once. If the backend takes locks in the order it is given,
//!   batches cannot deadlock.
//! * Batches in flight have no key in common, reads of one key aside. A batch of writes has writes
//!   of one [`Write::Kind`].
//! * No entry starves: of all entries that can be sent, the one that could be sent for longest goes
//!   first.
//!
//! # Sharing
//!
//! Pending reads of one key share one entry, and so do writes as far as [`Write::merge`] merges
//! them. No request joins an entry in flight: the backend may have read it before the request was
//! made, and the reply would miss a write acknowledged meanwhile. [`Sharing::InFlight`] gives that
//! up for fewer reads.
//!
//! # Limits, overload, cancellation
//!
//! The queue bounds pending requests and their bytes, a batch's entries and bytes, and the number
//! of batches in flight. A full queue refuses at once with [`Refusal::Full`] and returns the
//! waiter. A caller may cancel with [`cancel`](RequestQueue::cancel) at any time, and
//! [`RequestQueue::expire`] returns requests whose deadline has passed: neither affects other
//! requests, nor stops a batch in flight. The queue returns each waiter exactly once: refused,
//! cancelled, expired, answered, or with the end of its batch.
//!
//! The queue itself has no shutdown. A caller that stops adding requests goes on calling it until
//! [`RequestQueue::is_empty`].
//!
//! # Example
//!
//! ```
//! use std::collections::HashMap;
//! use std::time::Duration;
//!
//! use busload_batch::{RequestOptions, Content, LastWins, RequestQueue, QueueSettings};
//!
//! let mut store = HashMap::new();
//! let mut queue = RequestQueue::new(QueueSettings::default())?;
//!
//! // Four callers, known by a number here. In a program the waiter says where the answer goes.
//! let now = Duration::from_millis(1);
//! let options = RequestOptions { bytes: 8, deadline: Some(now + Duration::from_secs(1)) };
//! queue.submit_store(now, "teapot", LastWins("short"), 1, options)?;
//! queue.submit_store(now, "teapot", LastWins("stout"), 2, options)?;
//! queue.submit_load(now, "teapot", 3, options)?;
//! queue.submit_load(now, "kettle", 4, options)?;
//!
//! // When to call `next_batch`: at once, as no batch is in flight.
//! assert_eq!(queue.next_wake(now), Some(now));
//!
//! let mut log = Vec::new();
//! while !queue.is_empty() {
//!     let batch = queue.next_batch(now).expect("each batch ends before the next one starts");
//!     let mut answered = Vec::new();
//!     match batch.content {
//!         // One statement for all keys ...
//!         Content::Read(keys) => {
//!             for (entry, key) in keys.into_iter().enumerate() {
//!                 queue.answer(batch.id, entry, &mut answered);
//!                 answered
//!                     .drain(..)
//!                     .for_each(|caller| log.push((caller.waiter, store.get(key).copied())));
//!             }
//!         }
//!         // ... and for all writes.
//!         Content::Write(entries) => {
//!             for (entry, (key, LastWins(value))) in entries.into_iter().enumerate() {
//!                 store.insert(key, value);
//!                 queue.answer(batch.id, entry, &mut answered);
//!                 answered.drain(..).for_each(|caller| log.push((caller.waiter, None)));
//!             }
//!         }
//!     }
//!     // Returns the waiters that were not answered because the batch failed.
//!     queue.end(now, batch.id, &mut Vec::new());
//! }
//!
//! // The read of the teapot sees the write before it, in which two requests were merged.
//! log.sort();
//! assert_eq!(log, [(1, None), (2, None), (3, Some("stout")), (4, None)]);
//! assert_eq!(queue.stats().writes.entries, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod batch;
#[cfg(feature = "tokio")]
mod batcher;
#[cfg(feature = "tokio")]
mod clock;
#[cfg(feature = "tokio")]
mod core;
#[cfg(feature = "tokio")]
mod driver;
#[cfg(feature = "tokio")]
mod functions;
#[cfg(feature = "tokio")]
mod in_flight;
mod limiter;
pub mod limits;
#[cfg(feature = "tokio")]
mod oneshot;
#[cfg(feature = "tokio")]
mod reply;
mod request;
mod request_queue;
#[cfg(feature = "tokio")]
mod service;
mod settings;
mod stats;
#[cfg(feature = "tokio")]
mod timer;
#[cfg(feature = "tokio")]
mod trace;
mod write;

pub use batch::{BatchEnd, BatchId, Content, EntryBatch, SentBatch};
#[cfg(feature = "tokio")]
pub use batcher::{Batcher, BatcherSettings};
#[cfg(feature = "tokio")]
pub use functions::{Functions, LoadOutput, ReadFunction, StoreOutput};
#[cfg(feature = "tokio")]
pub use oneshot::Oneshot;
pub use request::{Answered, Late, Operation, Refusal, Refused, RequestId, RequestOptions, Stage};
pub use request_queue::RequestQueue;
#[cfg(feature = "tokio")]
pub use service::{
    BatchError, EarlyAnswers, Loaded, LoadedAll, LoadedOne, Receipt, Reply, Service, Stored,
    StoredAll, StoredOne,
};
pub use settings::{DispatchPolicy, QueueSettings, SettingsError, Sharing};
pub use stats::{ClassLatencies, ClassStats, QueueLatencies, QueueStats};
#[cfg(feature = "tokio")]
pub use trace::BatchTrace;
pub use write::{LastWins, NoWrites, Write};
