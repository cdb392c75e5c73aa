//! `busload cache list|warm|verify|drop`: asks the server that has the cache open, or does the work
//! itself when none has.
//!
//! ```text
//!  cache's directory --locked?--yes--> server: POST /api/cache/NAME/ACTION --> lines of progress
//!                           +---no---> opened here, worked on, closed
//! ```
//!
//! A name that is no table's is that of a store by pattern, or a pattern of such stores.

mod stores;

use std::{
    io::{self, BufRead, Write},
    sync::Arc,
};

use busload_dolt::DynamoTables;
use busload_objects::{Cache, Error, Progress};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::{
    arguments::CacheCommand,
    http_client::{self, Answer, Target},
    progress::Meter,
    resp_client::reachable,
};
use crate::{
    cache_work::{
        self, Action, Listing, absolute, progress_from_json,
        stores::{StoreChoice, WorkOutcome},
    },
    chunk_stores,
    config::{ChunksSettings, Config, Size, unknown},
    failure::Failure,
    logger::{self, LogFormat},
};

/// Longest list of caches that a server may answer with.
const LIST_BYTES_MAX: u64 = 256 << 20;
/// Longest line of progress.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// Executes a command of `busload cache`.
pub fn run(command: &CacheCommand, config: &Config) -> Result<(), Failure> {
    logger::init(&config.log_levels.at_most_warnings(), LogFormat::Text);
    match command {
        CacheCommand::List(which) => list(which.name.as_deref(), config),
        CacheCommand::Warm(which) => act(Action::Warm, &which.name, config),
        CacheCommand::Verify(which) => act(Action::Verify, &which.name, config),
        CacheCommand::Drop(which) => act(Action::Drop, &which.name, config),
    }
}

fn list(name: Option<&str>, config: &Config) -> Result<(), Failure> {
    let tables = match name.map(|name| named(name, config)).transpose()? {
        Some(Named::Table(table)) => std::slice::from_ref(table),
        Some(Named::Stores(choice)) => return stores::list(Some(&choice), config),
        None => &config.chunks,
    };
    if tables.is_empty() && config.stores.is_empty() {
        return Err(no_tables());
    }
    for table in tables {
        print(&listing(table, config)?.to_string());
    }
    if name.is_none() { stores::list(None, config) } else { Ok(()) }
}

/// Lists what is on disk, asking the server if one has the cache open.
fn listing(settings: &ChunksSettings, config: &Config) -> Result<Listing, Failure> {
    // Opening a cache would create its directory.
    if settings.disk_bytes_max == 0 || !settings.directory.exists() {
        return Ok(Listing::of(settings, &busload_objects::CacheStats::default(), Vec::new()));
    }
    let runtime = chunk_stores::runtime()?;
    match open(settings, &runtime)? {
        Opened::Here(cache) => {
            let listing = Listing::of(settings, &cache.stats(), cache.list());
            close(&cache, runtime);
            Ok(listing)
        }
        Opened::Elsewhere(locked) => listing_of_server(settings, config, &locked),
    }
}

fn act(action: Action, name: &str, config: &Config) -> Result<(), Failure> {
    let settings = match named(name, config)? {
        Named::Table(table) => table,
        Named::Stores(choice) => return stores::act(action, &choice, name, config),
    };
    if settings.disk_bytes_max == 0 {
        return Err(Failure::usage(format!("table {name} has no cache on disk (disk = 0)")));
    }
    let mut meter = Meter::new(format!("{action} {name}"));
    let runtime = chunk_stores::runtime()?;
    let outcome = match open(settings, &runtime)? {
        Opened::Here(cache) => here(action, settings, cache, runtime, &mut meter),
        Opened::Elsewhere(locked) => {
            // The directory in the answer shows whether this server has the cache.
            let server =
                listing_of_server(settings, config, &locked).and_then(|_| server(config, &locked));
            let outcome = server.and_then(|server| by_server(action, name, server, &mut meter));
            outcome.map(|outcome| outcome.progress)
        }
    };
    match outcome {
        Ok(progress) => {
            meter.finish(progress);
            conclude(action, name, progress)
        }
        Err(failure) => {
            meter.clear();
            Err(failure)
        }
    }
}

/// Prints the outcome; corrupt blocks found by `verify` are a failure.
fn conclude(action: Action, name: &str, progress: Progress) -> Result<(), Failure> {
    let (done, corrupt) = (Size(progress.done), Size(progress.corrupt));
    match action {
        Action::Warm => print(&format!("table {name}: {done} are on disk\n")),
        Action::Drop => print(&format!("table {name}: {done} of disk are free again\n")),
        Action::Verify if progress.corrupt == 0 => {
            print(&format!("table {name}: {done} on disk verified\n"))
        }
        Action::Verify => {
            return Err(Failure::run(format!(
                "table {name}: {corrupt} of {done} on disk were corrupt; they are removed and will \
                 be read again from the store"
            )));
        }
    }
    Ok(())
}

/// Does the work in this process.
fn here(
    action: Action,
    settings: &ChunksSettings,
    cache: Arc<Cache>,
    runtime: Runtime,
    meter: &mut Meter,
) -> Result<Progress, Failure> {
    let mut report = |progress| meter.show(progress);
    match action {
        Action::Verify => {
            let progress = runtime.block_on(cache.verify(&mut report));
            close(&cache, runtime);
            Ok(progress)
        }
        Action::Drop => {
            let progress = runtime.block_on(cache_work::drop_all(&cache));
            close(&cache, runtime);
            Ok(progress)
        }
        Action::Warm => {
            // Opening the store opens the cache again.
            runtime.block_on(cache.close());
            drop(cache);
            let dynamo = DynamoTables::default();
            let store = chunk_stores::start_store(settings, runtime.handle(), dynamo, None)?;
            let warmed = runtime.block_on(async {
                let warmed = cache_work::warm(&store, &mut report).await;
                store.close().await;
                warmed
            });
            runtime.shutdown_background();
            warmed.map_err(|error| cannot(settings, &error))
        }
    }
}

fn close(cache: &Cache, runtime: Runtime) {
    runtime.block_on(cache.close());
    runtime.shutdown_background();
}

fn cannot(settings: &ChunksSettings, error: &dyn std::fmt::Display) -> Failure {
    Failure::run(format!("table {}: {error}", settings.name))
}

enum Opened {
    Here(Arc<Cache>),
    /// Another process has the cache open; the message of the cache says so.
    Elsewhere(String),
}

fn open(settings: &ChunksSettings, runtime: &Runtime) -> Result<Opened, Failure> {
    match Cache::open(settings.of_cache(runtime.handle().clone())) {
        Ok(cache) => Ok(Opened::Here(cache)),
        Err(Error::Locked(locked)) => Ok(Opened::Elsewhere(locked)),
        Err(error) => Err(cannot(settings, &error)),
    }
}

/// Returns the address and password of the server that should have the cache open.
fn server<'a>(config: &'a Config, locked: &str) -> Result<Target<'a>, Failure> {
    let address = config.http.map(reachable).ok_or_else(|| {
        Failure::run(format!(
            "{locked}; expected --http with the address of the server that has it, to ask that one"
        ))
    })?;
    let (password, tls) = (config.settings.password.as_deref(), config.tls.as_ref());
    Ok(Target { address, password, tls: tls.map(|tls| tls.files()) })
}

fn listing_of_server(
    settings: &ChunksSettings,
    config: &Config,
    locked: &str,
) -> Result<Listing, Failure> {
    let server = server(config, locked)?;
    let failed = |why: &dyn std::fmt::Display| {
        Failure::run(format!(
            "{locked}; the server at {} should have it, but: {why} (--http says where it \
             is)",
            server.url()
        ))
    };
    let answer = http_client::send(server, "GET", "/api/cache").map_err(|error| failed(&error))?;
    let caches = read_list(answer).map_err(|error| failed(&error))?;
    let directory = absolute(settings);
    caches
        .into_iter()
        .find(|cache| cache.table == settings.name && cache.directory == directory)
        .ok_or_else(|| {
            failed(&format!("it has no table {} with its cache in {directory}", settings.name))
        })
}

fn read_list(answer: Answer) -> Result<Vec<Listing>, String> {
    let text = answer.into_text(LIST_BYTES_MAX)?;
    let value: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let caches: Option<Vec<Listing>> =
        value.as_array().into_iter().flatten().map(Listing::from_json).collect();
    caches.ok_or_else(|| "its answer is no list of caches".to_owned())
}

/// Lets the server that has the cache open do the work.
fn by_server(
    action: Action,
    name: &str,
    server: Target<'_>,
    meter: &mut Meter,
) -> Result<WorkOutcome, Failure> {
    let failed = |why: &dyn std::fmt::Display| {
        Failure::run(format!("the server at {}: {why}", server.url()))
    };
    // Names have no other characters that a path may not have (RFC 3986, section 3.3).
    let path = format!("/api/cache/{}/{action}", name.replace('/', "%2F"));
    let answer = http_client::send(server, "POST", &path);
    let mut body = answer.map_err(|error| failed(&error))?.body;
    loop {
        let mut line = String::new();
        let read = io::Read::take(&mut body, LINE_BYTES_MAX).read_line(&mut line);
        if read.map_err(|error| failed(&error))? == 0 {
            return Err(failed(&format!("it ended before `{action}` did")));
        }
        match read_line(&line) {
            Some(Line::Progress(progress)) => meter.show(progress),
            Some(Line::Finished(outcome)) => return Ok(outcome),
            Some(Line::Failed(why)) => return Err(failed(&why)),
            None => return Err(failed(&"its answer is malformed")),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Line {
    Progress(Progress),
    Finished(WorkOutcome),
    Failed(String),
}

fn read_line(line: &str) -> Option<Line> {
    let value: Value = serde_json::from_str(line).ok()?;
    if let Some(why) = value.get("failed") {
        return Some(Line::Failed(why.as_str()?.to_owned()));
    }
    if let Some(outcome) = value.get("finished") {
        return WorkOutcome::from_json(outcome).map(Line::Finished);
    }
    progress_from_json(value.get("progress")?).map(Line::Progress)
}

/// Table or stores that an argument names.
enum Named<'a> {
    Table(&'a ChunksSettings),
    Stores(StoreChoice),
}

fn named<'a>(name: &str, config: &'a Config) -> Result<Named<'a>, Failure> {
    if let Some(table) = config.chunks.iter().find(|table| table.name == name) {
        return Ok(Named::Table(table));
    }
    let choice: StoreChoice = name.parse().map_err(Failure::usage)?;
    let stores = choice.among(config.stores.iter().collect(), |stores| &stores.pattern);
    if stores.is_empty() { Err(unknown_name(name, config)) } else { Ok(Named::Stores(choice)) }
}

/// Says that a name is neither that of a table nor fits a pattern of stores.
fn unknown_name(name: &str, config: &Config) -> Failure {
    let tables = config.chunks.iter().map(|table| table.name.as_str());
    let known: Vec<&str> =
        tables.chain(config.stores.iter().map(|stores| stores.pattern.text())).collect();
    match (known.is_empty(), config.stores.is_empty()) {
        (true, _) => no_tables(),
        (false, true) => Failure::usage(unknown(name, "table of kind chunks", &known)),
        (false, false) => {
            let what = "table of kind chunks and fits no pattern of stores";
            Failure::usage(unknown(name, what, &known))
        }
    }
}

fn no_tables() -> Failure {
    Failure::usage(
        "no table of kind chunks is configured; expected --config FILE or --table \
         NAME='chunks+s3://bucket/prefix', or --stores 'PATTERN=s3://bucket/{name}'",
    )
}

/// Prints the text; a closed standard output is no failure.
fn print(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_server_are_read() {
        let progress = Progress { done: 1, total: 2, corrupt: 0 };
        let outcome = WorkOutcome::of_table(progress);
        for (line, expected) in [
            (r#"{"progress":{"done":1,"total":2,"corrupt":0}}"#, Some(Line::Progress(progress))),
            (r#"{"finished":{"done":1,"total":2,"corrupt":0}}"#, Some(Line::Finished(outcome))),
            (r#"{"failed":"why"}"#, Some(Line::Failed("why".into()))),
            (r#"{"failed":5}"#, None),
            (r#"{"finished":{}}"#, None),
            ("{}", None),
            ("", None),
        ] {
            assert_eq!(read_line(line), expected, "{line}");
        }
    }
}
