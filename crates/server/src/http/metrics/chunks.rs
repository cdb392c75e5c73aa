//! Metrics of chunk stores. Their families appear only if there are such tables.

use busload_batch::QueueStats;
use busload_dolt::{StoreStats, StoreStatus};

use super::Page;
use crate::{chunk_stores::ChunkTable, sources::store_state};

/// Readings of one table.
pub(super) struct Metrics {
    pub name: String,
    pub stats: StoreStats,
    pub state: StoreStatus,
    pub waiting: usize,
    pub queue: QueueStats,
}

impl Metrics {
    pub fn of(table: &ChunkTable) -> Self {
        Self {
            name: table.settings.name.clone(),
            stats: table.store.stats(),
            state: table.store.status(),
            waiting: table.queue.waiting(),
            queue: table.queue.stats(),
        }
    }
}

pub(super) fn render(page: &mut Page, tables: &[Metrics]) {
    if tables.is_empty() {
        return;
    }
    outcomes(page, tables);
    versions(page, tables);
    prefetches(page, tables);
    queue(page, tables);
    disk(page, tables);
    object_store(page, tables);
    let name = "busload_chunks_info";
    page.family(
        name,
        "gauge",
        "1, with the state of the store, its root, and the last error, if it is not served.",
    );
    for table in tables {
        let root = table.stats.root.map_or_else(String::new, |root| root.to_string());
        let error = match &table.state {
            StoreStatus::Failed(error) => error.to_string(),
            StoreStatus::Opening | StoreStatus::Open => String::new(),
        };
        let state = store_state(&table.state);
        page.sample(
            name,
            &[("table", &table.name), ("state", state), ("root", &root), ("error", &error)],
            1,
        );
    }
}

fn outcomes(page: &mut Page, tables: &[Metrics]) {
    each(page, tables, "busload_chunks_requests_total", COUNTER, "Chunks asked for.", |table| {
        table.stats.requests
    });
    let name = "busload_chunks_answers_total";
    page.family(name, COUNTER, "Chunks asked for, by where the answer came from.");
    for table in tables {
        let stats = &table.stats;
        for (outcome, count) in [
            ("memory", stats.memory_hits),
            ("local", stats.local),
            ("remote", stats.remote),
            ("absent", stats.absent),
            ("error", stats.errors),
        ] {
            page.sample(name, &[("table", &table.name), ("outcome", outcome)], count);
        }
    }
    each(
        page,
        tables,
        "busload_chunks_corrupt_total",
        COUNTER,
        "Chunks whose contents did not match their address.",
        |table| table.stats.corrupt,
    );
}

fn versions(page: &mut Page, tables: &[Metrics]) {
    let mut each =
        |name, kind, help, of: fn(&Metrics) -> u64| each(page, tables, name, kind, help, of);
    each("busload_chunks_versions_total", COUNTER, "Versions of the manifest seen.", |table| {
        table.stats.versions
    });
    each("busload_chunks_files", GAUGE, "Files of the current version.", |table| table.stats.files);
    each("busload_chunks_stored", GAUGE, "Chunks of the current version.", |table| {
        table.stats.chunks
    });
    each("busload_chunks_index_bytes", GAUGE, "Memory of the indexes.", |table| {
        table.stats.index_bytes
    });
    each("busload_chunks_memory_bytes", GAUGE, "Memory of the cache of decoded chunks.", |table| {
        table.stats.memory_bytes
    });
}

/// Renders prefetches of chunks whose locations were advertised to Dolt's clients.
fn prefetches(page: &mut Page, tables: &[Metrics]) {
    let mut each =
        |name, kind, help, of: fn(&Metrics) -> u64| each(page, tables, name, kind, help, of);
    each("busload_chunks_prefetches", GAUGE, "Prefetches in flight.", |table| {
        table.stats.prefetches
    });
    each(
        "busload_chunks_prefetches_skipped_total",
        COUNTER,
        "Chunks not prefetched because too many prefetches were in flight.",
        |table| table.stats.prefetches_skipped,
    );
}

fn queue(page: &mut Page, tables: &[Metrics]) {
    let mut each =
        |name, kind, help, of: fn(&Metrics) -> u64| each(page, tables, name, kind, help, of);
    each(
        "busload_chunks_waiting",
        GAUGE,
        "Requests of Redis clients that wait for the store.",
        |table| table.waiting as u64,
    );
    each(
        "busload_chunks_refused_total",
        COUNTER,
        "Requests refused because too many waited.",
        |table| table.queue.refused,
    );
    each("busload_chunks_batches_total", COUNTER, "Batches of queued requests sent.", |table| {
        table.queue.reads.batches
    });
    each("busload_chunks_batch_items_total", COUNTER, "Requests in the batches sent.", |table| {
        table.queue.reads.entries
    });
    each("busload_chunks_batch_items_max", GAUGE, "Requests in the fullest batch.", |table| {
        table.queue.reads.batch_entries_max as u64
    });
}

fn disk(page: &mut Page, tables: &[Metrics]) {
    let mut each =
        |name, kind, help, of: fn(&Metrics) -> u64| each(page, tables, name, kind, help, of);
    each("busload_chunks_disk_bytes", GAUGE, "Disk space of the cache.", |table| {
        table.stats.cache.bytes
    });
    each("busload_chunks_disk_bytes_max", GAUGE, "The most it may take.", |table| {
        table.stats.cache.bytes_max
    });
    each("busload_chunks_disk_objects", GAUGE, "Objects with something on disk.", |table| {
        table.stats.cache.objects
    });
    each("busload_chunks_disk_extents", GAUGE, "Extents on disk.", |table| {
        table.stats.cache.extents
    });
    each(
        "busload_chunks_disk_hits_total",
        COUNTER,
        "Reads of objects answered from disk.",
        |table| table.stats.cache.hits,
    );
    each(
        "busload_chunks_disk_misses_total",
        COUNTER,
        "Reads of objects that needed the store.",
        |table| table.stats.cache.misses,
    );
    each(
        "busload_chunks_joined_total",
        COUNTER,
        "Misses that joined a fetch in flight.",
        |table| table.stats.cache.joined,
    );
    each("busload_chunks_evicted_total", COUNTER, "Extents evicted.", |table| {
        table.stats.cache.evicted
    });
    each(
        "busload_chunks_disk_corrupt_total",
        COUNTER,
        "Blocks on disk whose checksum was wrong; they were read again from the store.",
        |table| table.stats.cache.corrupt,
    );
    each(
        "busload_chunks_disk_errors_total",
        COUNTER,
        "Reads and writes of the disk that failed.",
        |table| table.stats.cache.disk_errors,
    );
    each(
        "busload_chunks_disk_bypassed",
        GAUGE,
        "1 while the cache is bypassed because its disk is degraded or full.",
        |table| u64::from(table.stats.cache.bypassed.is_some()),
    );
    each("busload_chunks_fill_bytes", GAUGE, "Bytes of fills in memory.", |table| {
        table.stats.cache.fill_bytes
    });
}

fn object_store(page: &mut Page, tables: &[Metrics]) {
    let mut count =
        |name, kind, help, of: fn(&Metrics) -> u64| each(page, tables, name, kind, help, of);
    count(
        "busload_chunks_store_requests_total",
        COUNTER,
        "Requests to the object store.",
        |table| table.stats.store.requests,
    );
    count(
        "busload_chunks_store_foreground_total",
        COUNTER,
        "Reads of the object store that a request waited for.",
        |table| table.stats.store.foreground_reads,
    );
    count(
        "busload_chunks_store_fills_total",
        COUNTER,
        "Reads of the object store in the background.",
        |table| table.stats.store.fill_reads,
    );
    count(
        "busload_chunks_store_bytes_total",
        COUNTER,
        "Bytes received from the object store.",
        |table| table.stats.store.bytes,
    );
    count(
        "busload_chunks_store_retries_total",
        COUNTER,
        "Attempts that failed and were repeated.",
        |table| table.stats.store.retries,
    );
    count(
        "busload_chunks_store_slow_downs_total",
        COUNTER,
        "Answers that asked to slow down.",
        |table| table.stats.store.slow_downs,
    );
    count(
        "busload_chunks_store_wrong_responses_total",
        COUNTER,
        "Answers of the object store that did not match the request.",
        |table| table.stats.store.wrong_responses,
    );
    count(
        "busload_chunks_store_window",
        GAUGE,
        "Requests at once that the window allows now.",
        |table| table.stats.store.window,
    );
    count(
        "busload_chunks_store_in_flight",
        GAUGE,
        "Requests to the object store in flight.",
        |table| table.stats.store.in_flight,
    );
    let name = "busload_chunks_store_first_byte_seconds";
    page.family(name, GAUGE, "Moving average of the time to the first byte.");
    for table in tables {
        page.sample(name, &[("table", &table.name)], table.stats.store.first_byte.as_secs_f64());
    }
    let name = "busload_chunks_store_bandwidth_bytes";
    page.family(name, GAUGE, "Moving average of the bytes per second of one read.");
    for table in tables {
        page.sample(name, &[("table", &table.name)], table.stats.store.bandwidth);
    }
}

const COUNTER: &str = "counter";
const GAUGE: &str = "gauge";

fn each(
    page: &mut Page,
    tables: &[Metrics],
    name: &str,
    kind: &str,
    help: &str,
    of: impl Fn(&Metrics) -> u64,
) {
    page.family(name, kind, help);
    tables.iter().for_each(|table| page.sample(name, &[("table", &table.name)], of(table)));
}
