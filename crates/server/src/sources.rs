//! Tables that are not in memory: adapters that make each a [`Source`] of the pipeline.
//!
//! ```text
//!  pipeline: submit, flush --> request queue --> runtime: batches --> Postgres, chunk stores
//!     ^                                            |
//!     +--- woken once per batch <--- finished <----+
//! ```
//!
//! Postgres tables have threads of their own or share the pipeline's ([`PostgresTables`]). Chunk
//! stores always have a runtime of their own ([`ChunkStores`]).

mod chunk_set;
mod chunks;
mod finished;
mod postgres;
mod requests;

use std::{sync::Arc, task::Waker};

use busload_pipeline::{
    source::Source,
    tx::{Signals, Tx},
};
use tokio::runtime::Handle;

use crate::{
    chunk_sets::ChunkSet,
    chunk_stores::{ChunkStores, ChunkTable},
    config::CHUNKS,
    traces::Tracer,
};
use chunk_set::ChunkSetSource;
use chunks::ChunksSource;
pub use chunks::{ChunkQueue, form_of, start_queue, state_of as store_state};
use finished::FinishedAnswers;
pub use postgres::{
    PostgresTableMetrics, PostgresTables, RuntimePlacement, state_of as postgres_state,
};

/// Access to the pipeline that sources need.
#[derive(Clone, Debug)]
pub struct Pipeline {
    pub signals: Arc<Signals>,
    /// Wakes the thread that polls the sources.
    pub waker: Waker,
    pub tracer: Tracer,
}

/// Makes a chunk table a source of the pipeline. `runtime` is that of the stores.
pub fn chunks_source(table: &ChunkTable, runtime: &Handle, pipeline: &Pipeline) -> Box<dyn Source> {
    let ChunkTable { settings, store, queue, .. } = table;
    let answers = FinishedAnswers::start(&settings.name, pipeline.waker.clone(), runtime);
    let (queue, signals) = (queue.clone(), Arc::clone(&pipeline.signals));
    let tracer = pipeline.tracer.of_table(&settings.name, CHUNKS);
    Box::new(ChunksSource::new(settings, store.clone(), queue, answers, signals, tracer))
}

/// Registers the chunk stores as sources of the pipeline.
pub fn attach_chunks(stores: &ChunkStores, tx: &mut Tx, pipeline: &Pipeline) {
    let Some(runtime) = stores.handle() else { return };
    for table in &*stores.tables() {
        tx.add_source(&table.settings.name, chunks_source(table, &runtime, pipeline));
    }
    for set in &*stores.sets() {
        tx.add_source(set.pattern(), chunk_set_source(set, &runtime, pipeline));
    }
}

/// Makes the stores of a pattern a source of the pipeline. `runtime` is that of the stores.
pub fn chunk_set_source(
    set: &Arc<ChunkSet>,
    runtime: &Handle,
    pipeline: &Pipeline,
) -> Box<dyn Source> {
    let answers = FinishedAnswers::start(set.pattern(), pipeline.waker.clone(), runtime);
    let signals = Arc::clone(&pipeline.signals);
    let tracer = pipeline.tracer.of_table(set.pattern(), CHUNKS);
    Box::new(ChunkSetSource::new(Arc::clone(set), runtime.clone(), answers, signals, tracer))
}
