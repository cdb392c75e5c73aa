//! Many callers' single-key reads and writes in few batches: a waiting line with limits, and when a
//! batch leaves.
//!
//! A service asks a database for one row by key, very often, and pays for a statement each time.
//! The same requests, still asked one by one, cost a fraction of it when those that wait at the
//! same moment share one statement. This crate is that line of waiting requests: for any slow thing
//! that takes many keys as readily as one.
//!
//! ```text
//!  read(key)  --+     +--------------- Line ----------------+
//!  write(key) --+---> | entries by key, in order of arrival | --next_batch--> trip: one statement, one call, ...
//!               |     | reads | writes of lane 0 | lane 1 ..|                  |
//!  waiters <----+---- +-------------------------------------+ <--answer, end---+
//! ```
//!
//! # The one rule
//!
//! A trip that can start takes all that waits, up to a limit, and leaves at once; it never waits
//! for more. A lone request pays no delay, a thousand at once share a trip, and batches grow with
//! the load by themselves. No time is to be tuned. A batch in a trip costs something that others
//! need, so there is one refinement ([`Departure::WhenFree`]): with nothing of its class under way
//! a batch leaves at once; beside others it leaves with at least `min_batch` entries, or when the
//! first has waited one mean trip. [`Departure::Window`], the fixed window of size and time that is
//! used elsewhere, is there for comparison.
//!
//! # Two layers
//!
//! * [`Line`]: the core. No IO, no clock, no threads: requests go in, batches come out, and the
//!   time is an argument. Every call costs O(1) amortised, and a read from question to answer about
//!   150 ns.
//! * `Batcher` (feature `tokio`): the line with a clock, tasks and futures around it.
//!   `batcher.load(key).await`.
//!
//! # Order
//!
//! * Operations on one key take effect in the order in which they came: a read sees the writes
//!   before it and none behind it. A write waits for the answers of all that came before it on its
//!   key, a read for those of the writes. Reads of one key may be under way side by side.
//! * A batch is sorted and has each key once. Where the slow thing takes locks in the order it is
//!   given, batches cannot deadlock.
//! * Each key has a lane by its hash, a lane has one batch of writes under way at most, and a batch
//!   is of one lane and one [`Write::Kind`].
//! * Nobody is passed over for ever: of all that may leave, what could leave for longest goes
//!   first.
//!
//! # Sharing
//!
//! Reads of one key that wait share one entry, and so do writes as far as [`Write::merge`] takes
//! them in. Nobody joins an entry under way: it may have been read before the question was asked,
//! and miss a write that someone else was told has been made. [`Sharing::InFlight`] gives that up
//! for fewer reads.
//!
//! # Limits, overload, giving up
//!
//! Requests and bytes that wait are bounded, and so are a batch's entries and bytes and the number
//! of batches under way. A full line refuses at once with [`Refusal::Full`] and gives the waiter
//! back. A caller may [`leave`](Line::leave) at any time, and one with a deadline is given back
//! when it passes ([`Line::expire`]): neither harms anybody else, nor stops a batch under way. A
//! waiter is given back exactly once: refused, left, late, answered, or with the end of its batch.
//!
//! The line itself has no shutdown. Whoever stops feeding it goes on calling it until
//! [`Line::is_empty`].
//!
//! # Example
//!
//! ```
//! use std::collections::HashMap;
//! use std::time::Duration;
//!
//! use busload_batch::{Ask, Content, LastWins, Line, LineSettings};
//!
//! let mut store = HashMap::new();
//! let mut line = Line::new(LineSettings::default())?;
//!
//! // Four callers, known by a number here. In a program the waiter is where the answer goes.
//! let now = Duration::from_millis(1);
//! let ask = Ask { bytes: 8, deadline: Some(now + Duration::from_secs(1)) };
//! line.write(now, "teapot", LastWins("short"), 1, ask)?;
//! line.write(now, "teapot", LastWins("stout"), 2, ask)?;
//! line.read(now, "teapot", 3, ask)?;
//! line.read(now, "kettle", 4, ask)?;
//!
//! // What wakes the program: at once, as nothing is under way.
//! assert_eq!(line.next_wake(now), Some(now));
//!
//! let mut log = Vec::new();
//! while !line.is_empty() {
//!     let batch = line.next_batch(now).expect("each trip ends before the next one starts");
//!     let mut answered = Vec::new();
//!     match batch.content {
//!         // One statement for all keys ...
//!         Content::Read(keys) => {
//!             for (entry, key) in keys.into_iter().enumerate() {
//!                 line.answer(batch.id, entry, &mut answered);
//!                 answered.drain(..).for_each(|caller| log.push((caller.waiter, store.get(key).copied())));
//!             }
//!         }
//!         // ... and for all writes of one lane.
//!         Content::Write { entries, .. } => {
//!             for (entry, (key, LastWins(value))) in entries.into_iter().enumerate() {
//!                 store.insert(key, value);
//!                 line.answer(batch.id, entry, &mut answered);
//!                 answered.drain(..).for_each(|caller| log.push((caller.waiter, None)));
//!             }
//!         }
//!     }
//!     // Whoever was not answered, because the trip failed, is given back here.
//!     line.end(now, batch.id, &mut Vec::new());
//! }
//!
//! // The kettle waits for nobody. The read of the teapot sees the write before it, two requests in one.
//! log.sort();
//! assert_eq!(log, [(1, None), (2, None), (3, Some("stout")), (4, None)]);
//! assert_eq!(line.stats().writes.entries, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod batch;
#[cfg(feature = "tokio")]
mod batcher;
#[cfg(feature = "tokio")]
mod clock;
#[cfg(feature = "tokio")]
mod driver;
#[cfg(feature = "tokio")]
mod functions;
pub mod limits;
mod line;
#[cfg(feature = "tokio")]
mod oneshot;
#[cfg(feature = "tokio")]
mod reply;
mod request;
#[cfg(feature = "tokio")]
mod service;
mod settings;
#[cfg(feature = "tokio")]
mod shared;
mod stats;
#[cfg(feature = "tokio")]
mod timer;
#[cfg(feature = "tokio")]
mod trip;
mod write;

pub use batch::{Batch, BatchId, Content};
#[cfg(feature = "tokio")]
pub use batcher::{Batcher, BatcherSettings};
#[cfg(feature = "tokio")]
pub use functions::{Functions, LoadOutput, ReadFunction, StoreOutput};
pub use line::Line;
#[cfg(feature = "tokio")]
pub use oneshot::Oneshot;
pub use request::{Answered, Ask, Late, Operation, Refusal, Refused, RequestId, Stage};
#[cfg(feature = "tokio")]
pub use service::{
    BatchError, Loaded, LoadedAll, LoadedOne, Receipt, Reply, Service, Stored, StoredAll, StoredOne,
};
pub use settings::{Departure, LineSettings, SettingsError, Sharing};
pub use stats::{ClassStats, LineStats};
pub use write::{LastWins, NoWrites, Write};
