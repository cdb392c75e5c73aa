//! Serves stores that Dolt wrote, within the process.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use busload_dolt::{ChunkAddress, Store};
use tempfile::TempDir;

use crate::{chunk_stores::ChunkStores, config::ChunksSettings, status::Status};

/// Name of the served table.
pub const TABLE: &str = "db";
/// Time within which something must happen even on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// A copy of a fixture, served as a table.
pub struct Served {
    pub status: Arc<Status>,
    pub stores: Arc<ChunkStores>,
    pub addresses: Vec<ChunkAddress>,
    directory: TempDir,
}

impl Served {
    pub fn new(fixture: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../chunks/tests/fixtures/dolt")
            .join(fixture);
        for entry in fs::read_dir(fixture.join("store")).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), directory.path().join(entry.file_name())).unwrap();
        }
        let alone =
            ChunksSettings::of_store_alone(&format!("file://{}", directory.path().display()))
                .unwrap();
        let settings = ChunksSettings { name: TABLE.to_owned(), timeout: LONG, ..alone };
        let stores = Arc::new(ChunkStores::start(&[settings]).unwrap());
        let status = Arc::new(Status::default());
        status.serve_stores(Arc::clone(&stores));
        let addresses = addresses(&fs::read_to_string(fixture.join("chunks.jsonl")).unwrap());
        Self { status, stores, addresses, directory }
    }

    pub fn store(&self) -> &Store {
        self.stores.get(TABLE).unwrap()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs work outside of the stores' runtime, as the threads of HTTP do.
    pub fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async { tokio::time::timeout(LONG, work).await.unwrap() })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stores.stop();
    }
}

pub fn soon() -> Instant {
    (tokio::time::Instant::now() + LONG).into_std()
}

fn addresses(lines: &str) -> Vec<ChunkAddress> {
    let address = |line| -> ChunkAddress {
        let entry: serde_json::Value = serde_json::from_str(line).unwrap();
        entry["addr"].as_str().unwrap().parse().unwrap()
    };
    lines.lines().map(address).collect()
}
