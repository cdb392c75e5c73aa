//! `/api/cache`: the API by which `busload cache` asks a running server for work on its caches.
//!
//! ```text
//!  GET  /api/cache                          caches of tables and what is in them, as JSON
//!  GET  /api/cache/stores                   the same of stores by pattern: those that are open or
//!                                           have something on disk
//!  POST /api/cache/NAME/warm|verify|drop    does the work; answers with lines of JSON meanwhile:
//!        {"progress": {"done", "total", "corrupt"}} ...
//!        then {"finished": {...}} or {"failed": "why"}
//! ```
//!
//! NAME is a table, a store by pattern, or a pattern of such stores: `org%2Fdb`, `org%2F*`.
//!
//! The work runs on the stores' runtime; its answer is a stream, and a client that hangs up cancels
//! it. At most [`WORK_COUNT_MAX`] pieces of work run at once.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{Path, State as Extract},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use busload_dolt::Store;
use busload_io::{Clock, RealClock};
use busload_objects::Progress;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::{
    sync::{Semaphore, SemaphorePermit, mpsc},
    task::AbortHandle,
};
use tokio_stream::{Stream, StreamExt, wrappers::ReceiverStream};

use crate::{
    cache_work::{
        self, Action, Listing, progress_to_json,
        stores::{
            self, ChosenStores, NO_VERIFY, StoreChoice, StoresCache, StoresListing, WorkOutcome,
        },
    },
    chunk_sets::ChunkSet,
    chunk_stores::{ChunkStores, ChunkTable},
    shown::Shown,
    status::Status,
};

/// Most pieces of work at once, on all caches together.
const WORK_COUNT_MAX: usize = 4;
/// Maximum number of lines that wait for the client; beyond it, lines of progress are left out.
const LINES_MAX: usize = 16;
/// Pause between two lines of progress.
const LINE_INTERVAL: Duration = Duration::from_millis(200);

/// Permits of the work.
static WORK: Semaphore = Semaphore::const_new(WORK_COUNT_MAX);

/// Answers with a list of all caches.
pub async fn list(Extract(status): Extract<Arc<Status>>) -> Response {
    let listing = |table: &Arc<ChunkTable>| {
        let cache = table.store.cache();
        Listing::of(&table.settings, &cache.stats(), cache.list()).to_json()
    };
    let caches: Vec<_> = status.chunk_tables().iter().map(listing).collect();
    ([(header::CONTENT_TYPE, "application/json")], format!("{}\n", Value::from(caches)))
        .into_response()
}

/// Answers with a list of the stores by pattern.
pub async fn list_stores(Extract(status): Extract<Arc<Status>>) -> Response {
    let sets = status.chunk_stores().map(|stores| stores.sets()).unwrap_or_default();
    let mut all = Vec::new();
    for set in &*sets {
        let known = set.set.known().await;
        let stats = set.set.cache().stats();
        all.push(StoresListing::of(&set.settings, &stats, known).to_json());
    }
    ([(header::CONTENT_TYPE, "application/json")], format!("{}\n", Value::from(all)))
        .into_response()
}

/// Answers with the progress and the outcome of work on a cache.
pub async fn act(
    Extract(status): Extract<Arc<Status>>,
    Path((name, action)): Path<(String, String)>,
) -> Response {
    match begin(&status, &name, &action).await {
        Ok(body) => ([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response(),
        Err((code, why)) => (code, format!("{}\n", json!({"failed": why}))).into_response(),
    }
}

/// Work that was asked for.
enum Work {
    OfTable(Store),
    OfStores(StoreChoice, Vec<ChosenStores>),
}

async fn begin(status: &Status, name: &str, action: &str) -> Result<Body, (StatusCode, String)> {
    let not_found = |why| (StatusCode::NOT_FOUND, why);
    let action: Action = action.parse().map_err(not_found)?;
    let ended = || (StatusCode::SERVICE_UNAVAILABLE, format!("the server is {}", status.state()));
    let stores = status.chunk_stores().ok_or_else(ended)?;
    let runtime = stores.handle();
    let busy =
        |_| (StatusCode::TOO_MANY_REQUESTS, "too much work on caches is under way".to_owned());
    let permit = WORK.try_acquire().map_err(busy)?;
    let wanted = match stores.get(name) {
        Some(table) => Work::OfTable(table.store.clone()),
        None => choose(stores, name, action).await?,
    };
    let runtime = runtime.ok_or_else(ended)?;
    let (lines, received) = mpsc::channel(LINES_MAX);
    let task = runtime.spawn(work(wanted, action, lines, permit));
    let lines =
        Lines { received: ReceiverStream::new(received), _work: AbortOnDrop(task.abort_handle()) };
    Ok(Body::from_stream(lines.map(Ok::<_, Infallible>)))
}

/// Chooses stores by pattern, if the name is that of one, or a pattern.
async fn choose(
    stores: &ChunkStores,
    name: &str,
    action: Action,
) -> Result<Work, (StatusCode, String)> {
    let sets = stores.sets();
    let choice: StoreChoice = name.parse().map_err(|why| (StatusCode::BAD_REQUEST, why))?;
    let concerned = choice.among(sets.to_vec(), |set| &set.settings.pattern);
    if concerned.is_empty() {
        let shown = Shown(name);
        let why = match sets.is_empty() {
            true => format!("no table of kind chunks is called `{shown}`"),
            false => {
                let tables = stores.tables();
                let tables = tables.iter().map(|table| table.settings.name.as_str());
                let known: Vec<_> = tables.chain(sets.iter().map(|set| set.pattern())).collect();
                format!(
                    "`{shown}` is no table of kind chunks, and no pattern of stores fits it; \
                     there are {}",
                    known.join(", ")
                )
            }
        };
        return Err((StatusCode::NOT_FOUND, why));
    }
    if action == Action::Verify {
        return Err((StatusCode::BAD_REQUEST, NO_VERIFY.to_owned()));
    }
    let without_disk = concerned.iter().find(|set| set.settings.chunks.disk_bytes_max == 0);
    if let Some(set) = without_disk {
        let why = format!("stores {} have no cache on disk (disk = 0)", set.pattern());
        return Err((StatusCode::BAD_REQUEST, why));
    }
    let cache = |set: &Arc<ChunkSet>| StoresCache {
        pattern: set.settings.pattern.clone(),
        set: set.set.clone(),
    };
    let caches = concerned.iter().map(cache).collect();
    let chosen = stores::choose(&choice, caches, action).await;
    let chosen = chosen.map_err(|why| (StatusCode::NOT_FOUND, why))?;
    Ok(Work::OfStores(choice, chosen))
}

async fn work(
    wanted: Work,
    action: Action,
    lines: mpsc::Sender<Bytes>,
    _permit: SemaphorePermit<'static>,
) {
    let clock = RealClock::new();
    let mut said = None;
    let mut report = |progress: Progress| {
        let now = clock.now();
        if said.is_none_or(|said| LINE_INTERVAL <= now.saturating_sub(said)) {
            said = Some(now);
            // Progress that the client does not take is left out.
            let _ = lines.try_send(line(&json!({"progress": progress_to_json(progress)})));
        }
    };
    let outcome = match wanted {
        Work::OfTable(store) => {
            let progress = match action {
                Action::Warm => cache_work::warm(&store, &mut report).await,
                Action::Verify => cache_work::verify(&store, &mut report).await,
                Action::Drop => Ok(cache_work::drop_all(store.cache()).await),
            };
            progress.map(WorkOutcome::of_table)
        }
        Work::OfStores(choice, chosen) => stores::work(&choice, action, chosen, &mut report).await,
    };
    let last = match outcome {
        Ok(outcome) => json!({"finished": outcome.to_json()}),
        Err(why) => json!({"failed": why}),
    };
    // The client may be gone.
    let _ = lines.send(line(&last)).await;
}

fn line(value: &Value) -> Bytes {
    format!("{value}\n").into()
}

/// Cancels work when it is dropped.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Stream of the lines of one piece of work.
struct Lines {
    received: ReceiverStream<Bytes>,
    _work: AbortOnDrop,
}

impl Stream for Lines {
    type Item = Bytes;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Bytes>> {
        std::pin::Pin::new(&mut self.received).poll_next(context)
    }
}
