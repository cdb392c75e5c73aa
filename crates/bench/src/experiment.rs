//! The experiments, each a file or a folder: arguments, cases, a layout, one measurement.

mod chunks;
mod costs;
mod disk;
mod dolt;
mod evict;
mod growth;
mod kv;
mod memory_tables;
mod postgres;
mod recovery;
mod report;
mod snapshot;
mod store_bench;
mod stores;

pub use self::{
    chunks::{Chunks, chunks},
    costs::{Costs, costs},
    disk::{Disk, disk},
    dolt::{Dolt, dolt},
    evict::{Evict, evict},
    growth::{Growth, growth},
    kv::{Connections, Kv, connections, kv},
    postgres::{Lakefs, Postgres, lakefs, postgres},
    recovery::{Recovery, recovery},
    report::{Report, report},
    snapshot::{Snapshot, snapshot},
    stores::{Stores, stores},
};
