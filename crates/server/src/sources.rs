//! Tables that are not in memory: adapters that make each a
//! [`Source`](busload_pipeline::source::Source) of the pipeline.
//!
//! ```text
//!  pipeline: submit, flush --> request queue --> runtime: batches --> Postgres, chunk stores
//!     ^                                            |
//!     +--- woken once per batch <--- finished <----+
//! ```
//!
//! Postgres tables have threads of their own or share the pipeline's ([`PostgresTables`]). Chunk
//! stores always have a runtime of their own ([`ChunkStores`]).

mod chunks;
mod finished;
mod postgres;
mod requests;

use std::{sync::Arc, task::Waker};

use busload_pipeline::tx::{Signals, Tx};

use crate::{
    chunk_stores::{ChunkStores, ChunkTable},
    config::CHUNKS,
    traces::Tracer,
};
use chunks::ChunksSource;
pub use chunks::{ChunkQueue, form_of, start_queue, state_of as store_state};
use finished::FinishedAnswers;
pub use postgres::{
    PostgresTableMetrics, PostgresTables, RuntimePlacement, state_of as postgres_state,
};

/// Registers the chunk stores as sources of the pipeline; `pipeline` wakes the thread that polls
/// them.
pub fn attach_chunks(
    stores: &ChunkStores,
    tx: &mut Tx,
    signals: &Arc<Signals>,
    pipeline: &Waker,
    tracer: &Tracer,
) {
    let Some(runtime) = stores.handle() else { return };
    for ChunkTable { settings, store, queue, .. } in stores.tables() {
        let finished = Arc::new(FinishedAnswers::new(&settings.name, pipeline.clone()));
        let notifier = Arc::clone(&finished);
        runtime.spawn(async move { notifier.notify().await });
        let (queue, signals) = (queue.clone(), Arc::clone(signals));
        let tracer = tracer.of_table(&settings.name, CHUNKS);
        let source = ChunksSource::new(settings, store.clone(), queue, finished, signals, tracer);
        tx.add_source(&settings.name, Box::new(source));
    }
}
