//! `busload check`: says what a start would do.
//!
//! It recovers the log as a start would, on a copy-on-write disk that fails where the real one
//! would; listens on the addresses for a moment; checks the caches' directories; asks Postgres
//! whether it could serve its tables; and opens the chunk stores without a cache.

use std::{io, sync::Arc, time::Duration};

use busload_dolt::{DynamoTables, Store};
use busload_io::{Clock, NetOptions, OsRng, RealClock, RealNet};
use busload_log::Options;
use busload_objects::Cache;
use busload_pipeline::{
    settings::Eviction,
    stats::Stats,
    tx::{self, Now, Signals},
};
use busload_postgres::Settings;
use tokio::runtime::Runtime;

use super::{
    copy_on_write_disk::{self, CopyOnWriteDisk},
    log_tools::summary,
};
use crate::{
    chunk_stores,
    config::{ChunksSettings, Config, Size, StoresSettings},
    failure::Failure,
    http, open_files,
    peers::tls_of,
    recovery::{RecoveryMeter, start_failure},
};

/// Least time to wait for a store to open, however short the table's timeout.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);

/// Prints what a start would do; fails where the start would fail.
pub fn check(config: &Config) -> Result<(), Failure> {
    print(&describe(config));
    let log = check_log(config);
    print(log.as_deref().unwrap_or_default());
    let outcome = log.and_then(|_| check_addresses(config)).and_then(|()| check_caches(config));
    let outcome = outcome.and_then(|()| check_patterns(&config.stores));
    let outcome = outcome.and_then(|()| check_peers(config));
    print(match &outcome {
        Ok(()) => "start           would succeed\n",
        Err(_) => "start           would be refused\n",
    });
    let tables = check_postgres(&config.postgres);
    let stores = check_stores(&config.chunks);
    outcome?;
    match [tables, stores?].into_iter().flatten().collect::<Vec<_>>() {
        failures if failures.is_empty() => Ok(()),
        failures => Err(Failure::run(failures.join("; "))),
    }
}

/// Reads the files that connections to peers need.
fn check_peers(config: &Config) -> Result<(), Failure> {
    config.peers.as_ref().map_or(Ok(()), |peers| tls_of(peers, config.tls.clone()).map(drop))
}

/// Listens for a moment on every address that a start would listen on.
fn check_addresses(config: &Config) -> Result<(), Failure> {
    RealNet::bind(&config.resp_addresses(), NetOptions::default())
        .map_err(|error| Failure::run(error.to_string()))?;
    config.http.map_or(Ok(()), |address| http::listen(address).map(drop))
}

/// Checks the caches' directories. One that another process uses is an error; one that cannot be
/// written is a warning, since its table would run without a cache.
fn check_caches(config: &Config) -> Result<(), Failure> {
    let by_pattern = config.stores.iter().map(|stores| &stores.chunks);
    let tables = config.chunks.iter().chain(by_pattern);
    for table in tables.filter(|table| table.disk_bytes_max != 0) {
        let (name, directory) = (&table.name, &table.directory);
        Cache::check_unused(directory)
            .map_err(|error| Failure::run(format!("cannot start table {name}: {error}")))?;
        if let Err(error) = copy_on_write_disk::try_directory(directory) {
            let directory = directory.display();
            print(&format!("{:<15} table {name}: no cache in {directory}: {error}\n", "warning"));
        }
    }
    Ok(())
}

/// Checks the URLs of stores by pattern. Which stores there are is not known before they are asked
/// for.
fn check_patterns(stores: &[StoresSettings]) -> Result<(), Failure> {
    if stores.is_empty() {
        return Ok(());
    }
    let runtime = chunk_stores::runtime()?;
    let checked = stores.iter().try_for_each(|stores| {
        let (pattern, checked) =
            (stores.pattern.text(), stores.check_url(runtime.handle().clone()));
        checked.map_err(|error| Failure::usage(format!("stores {pattern}: {error}")))
    });
    runtime.shutdown_background();
    checked
}

/// Returns why Postgres tables could not be served, if so.
fn check_postgres(tables: &[Settings]) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    check_all(tables.iter().map(|table| (table.name.clone(), check_table(table.clone()))), runtime)
}

/// Returns why chunk stores could not be served, if so.
fn check_stores(tables: &[ChunksSettings]) -> Result<Option<String>, Failure> {
    if tables.is_empty() {
        return Ok(None);
    }
    let runtime = chunk_stores::runtime()?;
    let dynamo = DynamoTables::default();
    let mut checks = Vec::with_capacity(tables.len());
    for table in tables {
        // Opening the cache would write to it, and a running server may have it open.
        let settings = ChunksSettings { disk_bytes_max: 0, ..table.clone() };
        let store = chunk_stores::start_store(&settings, runtime.handle(), dynamo.clone(), None)?;
        checks.push((table.name.clone(), check_store(settings, store)));
    }
    Ok(check_all(checks.into_iter(), Ok(runtime)))
}

/// Checks all tables at the same time and prints the reports in order. Returns which tables could
/// not be served, and why.
fn check_all<F>(
    checks: impl Iterator<Item = (String, F)>,
    runtime: io::Result<Runtime>,
) -> Option<String>
where
    F: Future<Output = Result<String, String>> + Send + 'static,
{
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return Some(format!("tables cannot be checked: {error}")),
    };
    let checks: Vec<_> = checks.map(|(name, check)| (name, runtime.spawn(check))).collect();
    let mut failures = Vec::new();
    for (name, check) in checks {
        // A panic has been reported already; its table counts as one that could not be served.
        let seen = runtime.block_on(check).unwrap_or_else(|error| Err(error.to_string()));
        match seen {
            Ok(report) => print(
                &report.lines().map(|line| format!("table {name:<9} {line}\n")).collect::<String>(),
            ),
            Err(error) => failures.push(format!("table {name} could not be served: {error}")),
        }
    }
    runtime.shutdown_background();
    (!failures.is_empty()).then(|| failures.join("; "))
}

async fn check_store(settings: ChunksSettings, store: Store) -> Result<String, String> {
    let timeout = STORE_TIMEOUT.max(settings.timeout);
    match tokio::time::timeout(timeout, store.opened()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err(format!("{} is not open after {timeout:?}", settings.url)),
    }
    let stats = store.stats();
    let root = stats.root.map_or_else(|| "none".to_owned(), |root| root.to_string());
    let has_manifest = store.snapshot().is_some_and(|snapshot| snapshot.has_manifest);
    store.close().await;
    if !has_manifest {
        return Ok(chunk_stores::NO_MANIFEST.to_owned());
    }
    Ok(format!(
        "root {root}, {} files, {} chunks, index {}",
        stats.files,
        stats.chunks,
        Size(stats.index_bytes)
    ))
}

async fn check_table(settings: Settings) -> Result<String, String> {
    match busload_postgres::check(&settings).await {
        Ok(report) => Ok(report.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

fn describe(config: &Config) -> String {
    let settings = &config.settings;
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
    let mut lines: Vec<(&str, String)> = Vec::new();
    let file = settings.about.config_file.as_ref();
    lines.push(("configuration", or_none(file.map(|path| path.display().to_string()))));
    let exists = if config.data.exists() { "exists" } else { "does not exist: a start creates it" };
    lines.push(("data", format!("{} ({exists})", config.data.display())));
    lines.extend(config.resp.iter().map(|address| ("resp", address.to_string())));
    lines.extend(config.unix.iter().map(|path| ("unix", path.display().to_string())));
    let asks = if config.front.access.asks() { ", asks for the password" } else { "" };
    lines.push(("http", or_none(config.http.map(|address| format!("{address}{asks}")))));
    lines.extend(config.front.url.iter().map(|url| ("http url", url.clone())));
    lines.push(("http threads", config.http_threads.to_string()));
    lines.push(("net threads", config.net_threads.to_string()));
    let password = if settings.needs_password() { "is asked for" } else { "none" };
    lines.push(("password", password.to_owned()));
    lines.extend(settings.users.iter().filter(|users| users.has_file()).map(|users| {
        ("users", users.all().iter().map(|user| user.name()).collect::<Vec<_>>().join(", "))
    }));
    lines.push((
        "memory",
        format!("{} of {}", limit(settings.memory_max), Size(settings.about.memory_total)),
    ));
    lines.push(("clients", format!("{} at most", settings.clients_max)));
    let (client, total) =
        (Size(settings.client_reply_bytes as u64), Size(settings.reply_bytes_total as u64));
    lines.push(("replies", format!("{client} pending for a client, {total} for all")));
    lines.push(("request", format!("{} at most", Size(settings.request_bytes as u64))));
    for table in &settings.tables {
        let memory =
            table.memory_max.map_or(String::new(), |max| format!(", {} at most", Size(max)));
        let evict = match table.evict {
            Eviction::None => String::new(),
            evict => format!(", evict={evict}"),
        };
        let (name, sync) = (&table.name, table.sync);
        let promise = sync.promise();
        lines.push(("table", format!("{name}: memory{memory}{evict}, sync={sync}: {promise}")));
    }
    for table in &config.postgres {
        lines.push(("table", format!("{}: {}", table.name, table.describe())));
    }
    for table in &config.chunks {
        lines.push(("table", format!("{}: {}", table.name, table.describe())));
    }
    for stores in &config.stores {
        lines.push(("stores", format!("{}: {}", stores.pattern.text(), stores.describe())));
    }
    lines.extend(config.warnings.iter().map(|warning| ("warning", warning.clone())));
    lines.into_iter().map(|(name, value)| format!("{name:<15} {value}\n")).collect()
}

fn limit(bytes: u64) -> String {
    if bytes == 0 { "no limit".to_owned() } else { Size(bytes).to_string() }
}

fn check_log(config: &Config) -> Result<String, Failure> {
    open_files::fit_log(&config.log_directory());
    let disk = CopyOnWriteDisk::rehearse(&config.log_directory())
        .map_err(|error| Failure::run(error.to_string()))?;
    let clock = RealClock::new();
    let now = Now { monotonic: clock.now(), wall_ms: clock.wall_ms() };
    let stats = Arc::new(Stats::default());
    let mut meter = RecoveryMeter::default();
    let opened = tx::open(
        disk,
        Options::default(),
        config.settings.clone(),
        Arc::clone(&stats),
        Arc::new(Signals::default()),
        Box::new(OsRng::new()),
        now,
        &mut |progress| meter.show(progress),
    );
    meter.clear();
    let opened = opened.map_err(|error| start_failure(error, &config.data))?;
    let (keys, memory) = (stats.keys.get(), Size(stats.memory_used_bytes.get()));
    let refused =
        opened.progress.no_space().map(|message| format!("writes would be refused: {message}"));
    let warning = refused.map_or(String::new(), |text| format!("{:<15} {text}\n", "warning"));
    Ok(format!(
        "{:<15} {}\n{:<15} {keys} in {memory}\n{warning}",
        "log",
        summary(&opened.report),
        "keys"
    ))
}

/// Prints the text; a closed standard output is no failure.
fn print(text: &str) {
    use std::io::Write;
    let _ = std::io::stdout().write_all(text.as_bytes());
}
