//! A host for tests: serves stores that Dolt wrote, within the process.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use axum::http::HeaderMap;
use busload_dolt::{ChunkAddress, Error, Occasion, Settings, Store};
use busload_peers::View;
use futures_util::{
    FutureExt,
    future::{BoxFuture, ready},
};
use tempfile::TempDir;
use tokio::runtime::{Builder, Handle, Runtime};
use tonic::Extensions;

use crate::{
    Remotesapi,
    host::{DoltLayout, Host, KeyCheck, Repositories, Repository, TableRights},
    stats::RemotesapiStats,
};

/// Name of the served table.
pub const TABLE: &str = "db";
/// Time within which something must happen even on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// A host whose stores start when the test says so.
#[derive(Debug, Default)]
pub struct TestHost {
    repositories: OnceLock<Repositories>,
    runtime: Mutex<Option<Runtime>>,
    asks_for_keys: AtomicBool,
    peers: Mutex<Arc<View>>,
}

/// Base URL of a request, in its extensions.
#[derive(Clone, Debug)]
pub struct BaseUrl(pub Option<String>);

impl TestHost {
    /// Starts stores of these names and paths over one directory.
    pub fn serve(&self, directory: &Path, repositories: &[(&str, &[&str])]) {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let url = format!("file://{}", directory.display());
        let repository = |(number, (name, paths)): (usize, &(&str, &[&str]))| {
            let settings = settings(name, &url, runtime.handle().clone());
            Arc::new(Repository {
                name: (*name).to_owned(),
                paths: paths.iter().map(|&path| path.to_owned()).collect(),
                url: url.clone(),
                timeout: LONG,
                layout: DoltLayout::Files,
                store: Store::start(settings).unwrap(),
                times: Arc::default(),
                number,
                lease: None,
            })
        };
        let repositories = repositories.iter().enumerate().map(repository).collect();
        self.repositories.set(repositories).unwrap();
        *self.runtime.lock().unwrap() = Some(runtime);
    }

    /// Closes the stores and ends their runtime.
    pub fn stop(&self) {
        let Some(runtime) = self.runtime.lock().unwrap().take() else { return };
        for repository in self.repositories.get().iter().flat_map(|all| all.iter()) {
            runtime.block_on(repository.store.close());
        }
        runtime.shutdown_background();
    }

    /// Asks for a key from now on.
    pub fn ask_for_keys(&self) {
        self.asks_for_keys.store(true, Ordering::Relaxed);
    }

    /// Has these peers from now on.
    pub fn set_peers(&self, view: &Arc<View>) {
        *self.peers.lock().unwrap() = Arc::clone(view);
    }

    /// Returns the key of a table.
    pub fn key(table: &str) -> String {
        format!("key-of-{table}")
    }
}

impl Host for TestHost {
    fn repositories(&self) -> Option<Repositories> {
        self.repositories.get().cloned()
    }

    fn runtime(&self) -> Option<Handle> {
        self.runtime.lock().unwrap().as_ref().map(|runtime| runtime.handle().clone())
    }

    fn base_url(&self, extensions: &Extensions, _headers: &HeaderMap) -> Option<String> {
        extensions.get::<BaseUrl>()?.0.clone()
    }

    fn peers(&self) -> Arc<View> {
        Arc::clone(&self.peers.lock().unwrap())
    }

    fn settled_peers(&self) -> BoxFuture<'_, Arc<View>> {
        ready(self.peers()).boxed()
    }

    fn open_repository(&self, _name: &str) -> Result<Option<Arc<Repository>>, Error> {
        Ok(None)
    }

    fn is_known(&self, _name: &str) -> bool {
        false
    }

    fn table_rights(&self, _extensions: &Extensions) -> TableRights {
        TableRights::new(|_| true)
    }

    fn reader(&self, _extensions: &Extensions) -> Option<Arc<dyn crate::StoreReader>> {
        None
    }

    fn url_lifetime(&self) -> Option<Duration> {
        None
    }

    fn download_key(&self, table: &str) -> Option<String> {
        self.asks_for_keys.load(Ordering::Relaxed).then(|| Self::key(table))
    }

    fn check_key(&self, table: &str, key: Option<&str>) -> KeyCheck {
        match self.download_key(table) {
            None => KeyCheck::Public,
            Some(expected) if key == Some(&expected) => KeyCheck::Right,
            Some(_) => KeyCheck::Wrong,
        }
    }

    fn wall_ms(&self) -> i64 {
        0
    }
}

/// A copy of a fixture, served as a table.
pub struct Served {
    pub host: Arc<TestHost>,
    pub stats: Arc<RemotesapiStats>,
    pub remotesapi: Arc<Remotesapi>,
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
        let (host, stats) = (Arc::<TestHost>::default(), Arc::default());
        host.serve(directory.path(), &[(TABLE, &[])]);
        let remotesapi = Remotesapi::new(Arc::clone(&host) as _, Arc::clone(&stats));
        let addresses = addresses(&fs::read_to_string(fixture.join("chunks.jsonl")).unwrap());
        Self { host, stats, remotesapi, addresses, directory }
    }

    pub fn store(&self) -> &Store {
        &self.host.repositories.get().unwrap()[0].store
    }

    /// Returns another server for the same stores, as after a restart.
    pub fn restarted(&self) -> Arc<Remotesapi> {
        Remotesapi::new(Arc::clone(&self.host) as _, Arc::clone(&self.stats))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs work outside of the stores' runtime, as the threads of HTTP do.
    pub fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async { tokio::time::timeout(LONG, work).await.unwrap() })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.host.stop();
    }
}

pub fn soon() -> Instant {
    (tokio::time::Instant::now() + LONG).into_std()
}

fn settings(name: &str, url: &str, runtime: Handle) -> Settings {
    Settings {
        name: name.to_owned(),
        url: url.to_owned(),
        directory: PathBuf::new(),
        disk_bytes_max: 0,
        disk_free_bytes_min: 0,
        fill_whole_max: 0,
        fill_bytes_max: 64 << 20,
        poll: Duration::from_secs(5),
        memory_bytes_max: 0,
        requests_max: 64,
        hedge: true,
        grace_period: Duration::from_secs(600),
        occasion: Occasion::Configured,
        peers: None,
        tables: busload_dolt::DynamoTables::default(),
        environment: Arc::new(|_| None),
        runtime,
    }
}

fn addresses(lines: &str) -> Vec<ChunkAddress> {
    let address = |line| -> ChunkAddress {
        let entry: serde_json::Value = serde_json::from_str(line).unwrap();
        entry["addr"].as_str().unwrap().parse().unwrap()
    };
    lines.lines().map(address).collect()
}
