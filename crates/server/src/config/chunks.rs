//! Settings of tables of kind `chunks`, from a URL on the command line or from a section of the
//! file.
//!
//! ```text
//!  chunks+s3://bucket/prefix?endpoint=...&region=...&disk=20GiB&poll=5s
//!         |-- the store: what is left of the URL --|  |-- settings --|
//! ```
//!
//! Credentials come from the environment only: a URL that holds any is refused, and no message
//! shows a URL that could.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use busload_dolt::{DynamoTables, Occasion};
use busload_objects::{CacheOptions, Environment, Remote, RemoteOptions, StoreShare};
use busload_remotesapi::DoltLayout;
use tokio::runtime::Handle;

use super::{
    settings::{CHUNKS_SETTINGS, names},
    table::{percent_decoded, unknown},
    units::{Size, parse_duration, yes_or_no},
};
use crate::failure::Failure;

/// Keys of a section.
pub const CHUNKS_KEYS: [&str; 18] = names(&CHUNKS_SETTINGS);

/// Keys that the query of a URL passes on to the object store.
pub const STORE_KEYS: [&str; 12] = [
    "account",
    "allow-http",
    "allow-invalid-certificates",
    "anonymous",
    "dynamodb-endpoint",
    "emulator",
    "endpoint",
    "metadata-endpoint",
    "path-style",
    "profile",
    "region",
    "request-payer",
];

/// Schemes of the URLs of object stores.
const SCHEMES: [&str; 5] = ["file", "s3", "aws", "gs", "az"];
/// Prefix of the store's URL on the command line.
const PREFIX: &str = "chunks+";
/// Parts of query keys that mark a secret.
const SECRET_WORDS: [&str; 8] = [
    "access_key",
    "secret",
    "token",
    "password",
    "credential",
    "account_key",
    "sas",
    "service_account",
];
/// Key whose value is a list, separated by commas or as an array.
const DOLT_PATHS_KEY: &str = "dolt_paths";
/// Name of the caches' directory in the directory of the data.
const CACHE_DIRECTORY: &str = "cache";

const DISK_DEFAULT: Size = Size(10 << 30);
/// Least size of a cache: one part of a fill and the extents that are being read.
pub(super) const DISK_MIN: Size = Size(16 << 20);
const DISK_FREE_DEFAULT: Size = Size(1 << 30);
const FILL_WHOLE_MAX_DEFAULT: Size = Size(1 << 30);
const FILL_MEMORY_DEFAULT: Size = Size(64 << 20);
/// Least memory of fills: one part.
const FILL_MEMORY_MIN: Size = Size(16 << 20);
const POLL_DEFAULT: Duration = Duration::from_secs(5);
const POLL_MIN: Duration = Duration::from_millis(10);
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
const TIMEOUT_MIN: Duration = Duration::from_millis(10);
const GRACE_PERIOD_DEFAULT: Duration = Duration::from_secs(600);
/// Longest value of any duration.
const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);
const REQUESTS_DEFAULT: usize = 64;
const REQUESTS_MAX: usize = 1024;
const QUEUE_REQUESTS_DEFAULT: usize = 10_000;
const QUEUE_REQUESTS_MAX: usize = 1_000_000;
const DOLT_LAYOUT_DEFAULT: DoltLayout = DoltLayout::Files;

/// Settings of one table as given. `Debug` shows no URL.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ChunksSpec {
    pub name: String,
    url: Option<String>,
    directory: Option<PathBuf>,
    disk: Option<Size>,
    disk_free: Option<Size>,
    fill: Option<Fill>,
    fill_whole_max: Option<Size>,
    fill_memory: Option<Size>,
    poll: Option<Duration>,
    memory: Option<Size>,
    requests: Option<usize>,
    hedge: Option<bool>,
    timeout: Option<Duration>,
    grace_period: Option<Duration>,
    contents: Option<Contents>,
    queue_requests: Option<usize>,
    dolt_paths: Option<Vec<String>>,
    dolt_layout: Option<DoltLayout>,
}

/// Choice of the bytes that the cache fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fill {
    /// Whole files, up to a size.
    Whole,
    /// Only the blocks that are read.
    Touched,
}

/// Form in which GET returns a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Contents of the chunk.
    Decoded,
    /// Record of a table file: a snappy block and its CRC.
    Stored,
}

/// Checked settings of a table, with defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunksSettings {
    /// Name of the table.
    pub name: String,
    /// URL of the object store, without secrets.
    pub url: String,
    /// Directory of the cache.
    pub directory: PathBuf,
    /// Disk space of the cache; 0: no cache on disk.
    pub disk_bytes_max: u64,
    /// Space of the file system that the cache leaves free.
    pub disk_free_bytes_min: u64,
    /// Size up to which the cache fills whole files; 0: it fills none.
    pub fill_whole_max: u64,
    /// Memory of fills in flight.
    pub fill_bytes_max: u64,
    /// Interval between reads of the manifest.
    pub poll: Duration,
    /// Memory for decoded chunks; 0: none.
    pub memory_bytes_max: u64,
    /// Most requests to the object store at once.
    pub requests_max: usize,
    /// True to send the slowest percent of the reads that somebody waits for a second time.
    pub hedge: bool,
    /// Timeout of a client's request.
    pub timeout: Duration,
    /// Time that a file dropped from the manifest stays readable.
    pub grace_period: Duration,
    /// Form in which GET returns a chunk.
    pub contents: Contents,
    /// Most requests of RESP clients in the queue.
    pub queue_requests: usize,
    /// Paths, like `org/repo`, under which Dolt's clients find the store, beside the table's name.
    pub dolt_paths: Vec<String>,
    /// Kind of chunk locations that Dolt's clients get.
    pub dolt_layout: DoltLayout,
}

impl ChunksSpec {
    /// Table of this name without any settings.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Parses a URL with all settings of a table: `chunks+s3://bucket/prefix?disk=20GiB`.
    pub fn of_url(name: &str, url: &str) -> Result<Self, String> {
        let mut spec = Self::new(name);
        if !url.starts_with(PREFIX) {
            return Err(
                "expected a URL like chunks+s3://bucket/prefix or chunks+file:///directory".into(),
            );
        }
        spec.set_url(url)?;
        Ok(spec)
    }

    /// Sets one setting of the file, from one value or those of an array.
    pub fn set(&mut self, key: &str, values: &[String]) -> Result<(), String> {
        if key == DOLT_PATHS_KEY {
            let paths = dolt_paths(values)?;
            return once(&mut self.dolt_paths, key, paths);
        }
        let [value] = values else { return Err(format!("`{key}` takes one value")) };
        match key {
            "url" => self.set_url(value),
            _ => self.set_one(key, value),
        }
    }

    fn set_one(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "directory" if value.is_empty() => Err("`directory` is empty; expected a path".into()),
            "directory" => once(&mut self.directory, key, value.into()),
            "disk" => once(&mut self.disk, key, size(key, value)?),
            "disk_free" => once(&mut self.disk_free, key, size(key, value)?),
            "fill" => once(&mut self.fill, key, fill(value)?),
            "fill_whole_max" => once(&mut self.fill_whole_max, key, size(key, value)?),
            "fill_memory" => once(&mut self.fill_memory, key, size(key, value)?),
            "poll" => once(&mut self.poll, key, parse_duration(value)?),
            "memory" => once(&mut self.memory, key, size(key, value)?),
            "requests" => once(&mut self.requests, key, count(key, value)?),
            "hedge" => once(&mut self.hedge, key, yes_or_no(key, value)?),
            "timeout" => once(&mut self.timeout, key, parse_duration(value)?),
            "grace_period" => once(&mut self.grace_period, key, parse_duration(value)?),
            "contents" => once(&mut self.contents, key, contents(value)?),
            "queue_requests" => once(&mut self.queue_requests, key, count(key, value)?),
            "dolt_layout" => once(&mut self.dolt_layout, key, dolt_layout(value)?),
            key if STORE_KEYS.contains(&key) => Err(format!(
                "`{key}` belongs to the store; expected it in the query of url: \
                 s3://bucket/prefix?{key}=..."
            )),
            _ => Err(unknown(key, "setting of a chunks table", &CHUNKS_KEYS)),
        }
    }

    /// Sets the store's URL, with the part of the query that is the store's. The rest of the query
    /// are settings.
    fn set_url(&mut self, url: &str) -> Result<(), String> {
        let url = url.strip_prefix(PREFIX).unwrap_or(url);
        let (location, query) = url.split_once('?').unwrap_or((url, ""));
        check_location(location)?;
        let mut of_store = String::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            check_not_secret(key, value)?;
            if STORE_KEYS.contains(&key) {
                of_store += if of_store.is_empty() { "?" } else { "&" };
                of_store += pair;
            } else if key == "url" || key == "kind" || !CHUNKS_KEYS.contains(&key) {
                let known: Vec<&str> = settings_of_url().collect();
                return Err(unknown(key, "setting of a chunks table", &known));
            } else if value.is_empty() {
                return Err(format!("`{key}` has no value"));
            } else {
                self.set(key, &[percent_decoded(value)?])?;
            }
        }
        self.url = Some(format!("{location}{of_store}"));
        Ok(())
    }

    /// Checks all settings and fills in defaults. A cache without a directory of its own gets one
    /// in the directory of the data.
    pub fn resolve(self, data: &Path) -> Result<ChunksSettings, Failure> {
        let name = self.name.clone();
        self.checked(data).map_err(|error| Failure::usage(format!("table {name}: {error}")))
    }

    fn checked(self, data: &Path) -> Result<ChunksSettings, String> {
        let url = self
            .url
            .ok_or("url is missing; expected one like s3://bucket/prefix or file:///directory")?;
        let disk = self.disk.unwrap_or(DISK_DEFAULT);
        if disk.0 != 0 && disk < DISK_MIN {
            return Err(format!(
                "disk = {disk} is too little; expected 0 for none, or at least {DISK_MIN}"
            ));
        }
        let fill_memory = self.fill_memory.unwrap_or(FILL_MEMORY_DEFAULT);
        if fill_memory < FILL_MEMORY_MIN {
            return Err(format!(
                "fill_memory = {fill_memory} is too little; expected at least {FILL_MEMORY_MIN}"
            ));
        }
        let fill_whole_max = match self.fill.unwrap_or(Fill::Whole) {
            Fill::Whole => self.fill_whole_max.unwrap_or(FILL_WHOLE_MAX_DEFAULT),
            Fill::Touched if self.fill_whole_max.is_some() => {
                return Err(
                    "fill_whole_max means nothing with fill = touched; expected one of them".into(),
                );
            }
            Fill::Touched => Size(0),
        };
        let directory = match self.directory {
            Some(directory) => directory,
            // A table named `.` or `..` would name another directory.
            None if self.name.bytes().all(|byte| byte == b'.') => {
                return Err(
                    "a cache in a directory of this name cannot be; expected directory = PATH"
                        .into(),
                );
            }
            None => data.join(CACHE_DIRECTORY).join(&self.name),
        };
        Ok(ChunksSettings {
            name: self.name,
            url,
            directory,
            disk_bytes_max: disk.0,
            disk_free_bytes_min: self.disk_free.unwrap_or(DISK_FREE_DEFAULT).0,
            fill_whole_max: fill_whole_max.0,
            fill_bytes_max: fill_memory.0,
            poll: within("poll", self.poll, POLL_DEFAULT, POLL_MIN)?,
            memory_bytes_max: self.memory.unwrap_or(Size(0)).0,
            requests_max: one_to("requests", self.requests, REQUESTS_DEFAULT, REQUESTS_MAX)?,
            hedge: self.hedge.unwrap_or(true),
            timeout: within("timeout", self.timeout, TIMEOUT_DEFAULT, TIMEOUT_MIN)?,
            grace_period: within(
                "grace_period",
                self.grace_period,
                GRACE_PERIOD_DEFAULT,
                Duration::ZERO,
            )?,
            contents: self.contents.unwrap_or(Contents::Decoded),
            queue_requests: one_to(
                "queue_requests",
                self.queue_requests,
                QUEUE_REQUESTS_DEFAULT,
                QUEUE_REQUESTS_MAX,
            )?,
            dolt_paths: self.dolt_paths.unwrap_or_default(),
            dolt_layout: self.dolt_layout.unwrap_or(DOLT_LAYOUT_DEFAULT),
        })
    }
}

impl fmt::Debug for ChunksSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunksSpec").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ChunksSettings {
    /// Settings for `busload chunks`, which reads a store without a table: no cache on disk,
    /// defaults for the rest.
    pub fn of_store_alone(url: &str) -> Result<Self, Failure> {
        let mut spec = ChunksSpec::new("chunks");
        spec.set_url(url)
            .map_err(|error| Failure::usage(format!("the URL of the store: {error}")))?;
        spec.disk.get_or_insert(Size(0));
        spec.resolve(Path::new(""))
    }

    /// Converts to the settings of the crate `busload-dolt`; `runtime` runs what has to wait.
    /// Stores that are to share their requests to DynamoDB get the same `tables`.
    pub fn of_store(&self, runtime: Handle, tables: DynamoTables) -> busload_dolt::Settings {
        busload_dolt::Settings {
            name: self.name.clone(),
            url: self.url.clone(),
            directory: self.directory.clone(),
            disk_bytes_max: self.disk_bytes_max,
            disk_free_bytes_min: self.disk_free_bytes_min,
            fill_whole_max: self.fill_whole_max,
            fill_bytes_max: self.fill_bytes_max,
            poll: self.poll,
            memory_bytes_max: self.memory_bytes_max,
            requests_max: self.requests_max,
            hedge: self.hedge,
            grace_period: self.grace_period,
            occasion: Occasion::Configured,
            peers: None,
            tables,
            environment: environment(),
            runtime,
        }
    }

    /// Checks that the store's client accepts the URL. Connects to nothing.
    pub fn check_url(&self, runtime: Handle) -> Result<(), String> {
        let options = RemoteOptions {
            environment: environment(),
            runtime,
            requests_max: self.requests_max,
            stall_timeout: self.timeout,
            attempts_max: 1,
            hedge: false,
        };
        Remote::new(&self.url, options).map(drop).map_err(|error| error.to_string())
    }

    /// Converts to the options of the cache alone, without a store.
    pub fn of_cache(&self, runtime: Handle) -> CacheOptions {
        CacheOptions {
            directory: self.directory.clone(),
            bytes_max: self.disk_bytes_max,
            free_bytes_min: self.disk_free_bytes_min,
            fill_bytes_max: self.fill_bytes_max,
            fill_whole_max: self.fill_whole_max,
            store_share: StoreShare::default(),
            runtime,
        }
    }

    /// Describes the settings in one line for people.
    pub fn describe(&self) -> String {
        let disk = match self.disk_bytes_max {
            0 => "no disk".to_owned(),
            bytes => format!("{} of disk in {}", Size(bytes), self.directory.display()),
        };
        let fill = match self.fill_whole_max {
            0 => "what is read comes there".to_owned(),
            bytes => format!("files up to {} come there whole", Size(bytes)),
        };
        let memory = match self.memory_bytes_max {
            0 => String::new(),
            bytes => format!(", {} of memory for chunks", Size(bytes)),
        };
        let contents = match self.contents {
            Contents::Decoded => "",
            Contents::Stored => ", chunks as stored",
        };
        format!("{}, {disk}, {fill}{memory}{contents}{}", self.url, self.describe_dolt())
    }

    /// Describes the settings for Dolt's clients that differ from the defaults.
    fn describe_dolt(&self) -> String {
        let paths = match self.dolt_paths.as_slice() {
            [] => String::new(),
            paths => format!(", for Dolt also {}", paths.join(", ")),
        };
        let layout = match self.dolt_layout {
            layout if layout == DOLT_LAYOUT_DEFAULT => String::new(),
            layout => format!(", Dolt reads {}", layout.name()),
        };
        paths + &layout
    }
}

/// The process's environment, the only source of credentials.
fn environment() -> Environment {
    Arc::new(|name| std::env::var(name).ok())
}

/// Returns the keys that the query of a URL may have.
fn settings_of_url() -> impl Iterator<Item = &'static str> {
    CHUNKS_KEYS.into_iter().filter(|key| !matches!(*key, "kind" | "url")).chain(STORE_KEYS)
}

/// Checks scheme, bucket and prefix. The store's client checks the rest.
fn check_location(location: &str) -> Result<(), String> {
    let Some((scheme, rest)) = location.split_once("://") else {
        return Err(
            "this is no URL of a store; expected one like s3://bucket/prefix or file:///directory"
                .into(),
        );
    };
    if !SCHEMES.contains(&scheme) {
        return Err(format!(
            "stores of kind `{scheme}` are not known; expected {}",
            SCHEMES.join(", ")
        ));
    }
    let host = rest.split('/').next().unwrap_or(rest);
    if host.contains('@') {
        return Err(no_secrets("the URL holds credentials before an @"));
    }
    match (scheme, host.is_empty(), rest.is_empty()) {
        ("file", false, _) => Err("a file store has no host; expected file:///directory".into()),
        ("file", true, true) => Err("the directory is missing; expected file:///directory".into()),
        ("aws", true, _) => {
            Err("the table and the bucket are missing; expected aws://[TABLE:BUCKET]/DATABASE"
                .into())
        }
        ("file", ..) | (_, false, _) => Ok(()),
        _ => Err(format!("the bucket is missing; expected {scheme}://bucket/prefix")),
    }
}

/// Refuses secrets in a URL, which `ps` and logs show to others.
fn check_not_secret(key: &str, value: &str) -> Result<(), String> {
    let flat = key.to_ascii_lowercase().replace('-', "_");
    if SECRET_WORDS.iter().any(|word| flat.contains(word)) {
        return Err(no_secrets(&format!("the URL holds `{key}`")));
    }
    match percent_decoded(value) {
        Ok(decoded) if key.ends_with("endpoint") && decoded.contains('@') => {
            Err(no_secrets("the endpoint holds credentials before an @"))
        }
        _ => Ok(()),
    }
}

fn no_secrets(found: &str) -> String {
    format!(
        "{found}, which everybody on this machine can read there (`ps`); expected credentials in \
         the environment, as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )
}

/// Sets a setting. Refuses one that is given twice, in the URL and in the section.
fn once<T>(place: &mut Option<T>, key: &str, value: T) -> Result<(), String> {
    if place.replace(value).is_some() {
        return Err(format!("`{key}` is given twice; expected it in the URL or beside it, once"));
    }
    Ok(())
}

pub fn size(key: &str, value: &str) -> Result<Size, String> {
    value.parse().map_err(|error| format!("{key} = `{value}`; {error}"))
}

pub fn count(key: &str, value: &str) -> Result<usize, String> {
    value.parse().map_err(|_| format!("{key} = `{value}`; expected a whole number"))
}

fn fill(value: &str) -> Result<Fill, String> {
    match value {
        "whole" => Ok(Fill::Whole),
        "touched" => Ok(Fill::Touched),
        _ => Err(format!("fill = `{value}`; expected whole or touched")),
    }
}

fn contents(value: &str) -> Result<Contents, String> {
    match value {
        "decoded" => Ok(Contents::Decoded),
        "stored" => Ok(Contents::Stored),
        _ => Err(format!("contents = `{value}`; expected decoded or stored")),
    }
}

/// Checks paths like `org/repo`, which clients put in a URL unescaped.
fn dolt_paths(values: &[String]) -> Result<Vec<String>, String> {
    let check = |path: &str| {
        // A client that normalizes the URL would turn `.` and `..` into another path.
        let fits =
            |part: &str| !matches!(part, "" | "." | "..") && part.bytes().all(is_plain_in_paths);
        if path.split('/').all(fits) {
            return Ok(path.to_owned());
        }
        Err(format!(
            "{DOLT_PATHS_KEY}: `{path}` is no path of a repository; expected one like org/repo, of \
             letters, digits, `-`, `_`, `.` and `~`"
        ))
    };
    values.iter().flat_map(|value| value.split(',')).map(check).collect()
}

/// Returns whether a byte is one of the unreserved characters of URLs (RFC 3986, 2.3), which
/// clients do not escape.
fn is_plain_in_paths(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte)
}

fn dolt_layout(value: &str) -> Result<DoltLayout, String> {
    let known =
        [DoltLayout::Files, DoltLayout::Records].into_iter().find(|layout| layout.name() == value);
    known.ok_or_else(|| format!("dolt_layout = `{value}`; expected files or records"))
}

pub fn within(
    key: &str,
    given: Option<Duration>,
    default: Duration,
    min: Duration,
) -> Result<Duration, String> {
    let duration = given.unwrap_or(default);
    if (min..=DURATION_MAX).contains(&duration) {
        return Ok(duration);
    }
    Err(format!(
        "{key} = {duration:?} is out of range; expected {min:?} to {} h",
        DURATION_MAX.as_secs() / 3600
    ))
}

pub fn one_to(
    key: &str,
    given: Option<usize>,
    default: usize,
    max: usize,
) -> Result<usize, String> {
    let count = given.unwrap_or(default);
    if (1..=max).contains(&count) {
        return Ok(count);
    }
    Err(format!("{key} = {count} is out of range; expected 1 to {max}"))
}

#[cfg(test)]
mod tests;
