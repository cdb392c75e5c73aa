//! Settings of stores by pattern, from `--stores PATTERN=URL` or from a section `[stores.PATTERN]`.
//!
//! ```text
//!  */*=s3://bucket/dolt/{name}?region=...&disk=100GiB&idle=10m
//!      |-- template of the URLs -|  |-- settings --|
//! ```
//!
//! All settings of a chunk table hold for each store, but `disk`, `requests` and the like for all
//! stores of the pattern together. What needs a name for each store does not exist here.

use std::{fmt, path::Path, str::FromStr, time::Duration};

use busload_dolt::{
    DynamoTables, SetLimits, SetSettings, StoreTemplate, limits::BUSIEST_STORES_MAX,
};
use busload_objects::StoreShare;
use busload_pipeline::name_pattern::NamePattern;
use tokio::runtime::Handle;

use super::{
    chunks::{ChunksSettings, ChunksSpec, DISK_MIN, count, one_to, size, within},
    settings::{STORES_SETTINGS, names},
    table::percent_decoded,
    units::{Size, parse_duration},
};
use crate::failure::Failure;

/// Keys that only patterns have.
const OWN_KEYS: [&str; 6] = names(&STORES_SETTINGS);
/// Keys of chunk tables that are for one store only.
const REFUSED_KEYS: [&str; 3] = ["memory", "dolt_paths", "kind"];

const STORES_MAX_DEFAULT: usize = 1000;
const STORES_MAX_MAX: usize = 100_000;
const INDEX_MEMORY_DEFAULT: Size = Size(1 << 30);
const INDEX_MEMORY_MIN: Size = Size(1 << 20);
const IDLE_DEFAULT: Duration = Duration::from_secs(600);
const IDLE_MIN: Duration = Duration::from_millis(100);
const BUSIEST_STORES_DEFAULT: usize = 20;

/// Settings of the stores of one pattern as given. `Debug` shows no URL.
#[derive(Clone, PartialEq, Eq)]
pub struct StoresSpec {
    chunks: ChunksSpec,
    stores_max: Option<usize>,
    index_memory: Option<Size>,
    idle: Option<Duration>,
    store_disk_min: Option<Size>,
    store_disk_max: Option<Size>,
    busiest_stores: Option<usize>,
}

/// Checked settings of the stores of one pattern, with defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoresSettings {
    /// Settings of each store. Its `name` is the pattern, its `url` the template.
    pub chunks: ChunksSettings,
    pub pattern: NamePattern,
    template: StoreTemplate,
    pub stores_max: usize,
    pub index_bytes_max: u64,
    pub idle: Duration,
    pub store_share: StoreShare,
    pub busiest_max: usize,
}

impl StoresSpec {
    /// Stores of this pattern without any settings.
    pub fn new(pattern: &str) -> Result<Self, String> {
        NamePattern::parse(pattern)?;
        let chunks = ChunksSpec::new(pattern);
        Ok(Self {
            chunks,
            stores_max: None,
            index_memory: None,
            idle: None,
            store_disk_min: None,
            store_disk_max: None,
            busiest_stores: None,
        })
    }

    /// Returns the pattern as it was written.
    pub fn pattern(&self) -> &str {
        &self.chunks.name
    }

    /// Sets one setting, from one value or those of an array.
    pub fn set(&mut self, key: &str, values: &[String]) -> Result<(), String> {
        if REFUSED_KEYS.contains(&key) {
            return Err(format!("`{key}` is a setting of one table, not of stores by pattern"));
        }
        if key != "url" && !OWN_KEYS.contains(&key) {
            return self.chunks.set(key, values);
        }
        let [value] = values else { return Err(format!("`{key}` takes one value")) };
        match key {
            "url" => return self.set_url(value),
            "stores_max" => self.stores_max = Some(count(key, value)?),
            "index_memory" => self.index_memory = Some(size(key, value)?),
            "store_disk_min" => self.store_disk_min = Some(size(key, value)?),
            "store_disk_max" => self.store_disk_max = Some(size(key, value)?),
            "busiest_stores" => self.busiest_stores = Some(count(key, value)?),
            _ => self.idle = Some(parse_duration(value)?),
        }
        Ok(())
    }

    /// Sets the template; settings of its query, too.
    fn set_url(&mut self, url: &str) -> Result<(), String> {
        let (location, query) = url.split_once('?').unwrap_or((url, ""));
        let mut rest = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if OWN_KEYS.contains(&key) || REFUSED_KEYS.contains(&key) {
                self.set(key, &[percent_decoded(value)?])?;
            } else {
                rest.push(pair);
            }
        }
        let question = if rest.is_empty() { "" } else { "?" };
        let url = format!("{location}{question}{}", rest.join("&"));
        self.chunks.set("url", &[url])
    }

    /// Checks all settings and fills in defaults.
    pub fn resolve(self, data: &Path) -> Result<StoresSettings, Failure> {
        let pattern = self.pattern().to_owned();
        let refuse = |error: String| Failure::usage(format!("stores {pattern}: {error}"));
        let Self {
            chunks,
            stores_max,
            index_memory,
            idle,
            store_disk_min,
            store_disk_max,
            busiest_stores,
        } = self;
        let mut chunks = chunks.resolve(data)?;
        if chunks.directory == data.join("cache").join(&pattern) {
            chunks.directory = data.join("cache").join(directory_of(&pattern));
        }
        let pattern = NamePattern::parse(&pattern).map_err(refuse)?;
        let template = StoreTemplate::parse(&chunks.url, pattern.part_count()).map_err(refuse)?;
        let index_memory = index_memory.unwrap_or(INDEX_MEMORY_DEFAULT);
        if index_memory < INDEX_MEMORY_MIN {
            return Err(refuse(format!(
                "index_memory = {index_memory} is too little; expected at least {INDEX_MEMORY_MIN}"
            )));
        }
        Ok(StoresSettings {
            store_share: store_share(store_disk_min, store_disk_max, Size(chunks.disk_bytes_max))
                .map_err(refuse)?,
            stores_max: one_to("stores_max", stores_max, STORES_MAX_DEFAULT, STORES_MAX_MAX)
                .map_err(refuse)?,
            index_bytes_max: index_memory.0,
            busiest_max: busiest(busiest_stores).map_err(refuse)?,
            idle: within("idle", idle, IDLE_DEFAULT, IDLE_MIN).map_err(refuse)?,
            chunks,
            pattern,
            template,
        })
    }
}

/// Checks the number of stores with metrics of their own.
fn busiest(stores: Option<usize>) -> Result<usize, String> {
    let stores = stores.unwrap_or(BUSIEST_STORES_DEFAULT);
    if BUSIEST_STORES_MAX < stores {
        return Err(format!(
            "busiest_stores = {stores} is out of range; expected 0 to {BUSIEST_STORES_MAX}"
        ));
    }
    Ok(stores)
}

/// Checks the share of a store in a disk.
fn store_share(min: Option<Size>, max: Option<Size>, disk: Size) -> Result<StoreShare, String> {
    let min = min.unwrap_or(Size(0));
    if let Some(max) = max {
        if disk < max {
            return Err(format!(
                "store_disk_max = {max} is more than disk = {disk}; expected at most that"
            ));
        }
        if max < DISK_MIN {
            return Err(format!(
                "store_disk_max = {max} is too little; expected at least {DISK_MIN}"
            ));
        }
        if max < min {
            return Err(format!(
                "store_disk_min = {min} is more than store_disk_max = {max}; expected at most that"
            ));
        }
    }
    if StoreShare::floor_bytes_max(disk.0) < min.0 {
        return Err(format!(
            "store_disk_min = {min} is more than half of disk = {disk}; expected at most that half"
        ));
    }
    Ok(StoreShare { floor_bytes: min.0, cap_bytes: max.map_or(u64::MAX, |max| max.0) })
}

/// Returns the name of a pattern's directory, which no table's name can be.
fn directory_of(pattern: &str) -> String {
    format!("stores+{}", pattern.replace('/', "+").replace('*', "@"))
}

impl FromStr for StoresSpec {
    type Err = String;

    /// Parses an argument like `PATTERN=URL`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (pattern, url) = text
            .split_once('=')
            .ok_or("expected PATTERN=URL, like '*/*=s3://bucket/dolt/{name}?region=eu-west-1'")?;
        let mut spec = Self::new(pattern)?;
        spec.set_url(url)?;
        Ok(spec)
    }
}

impl fmt::Debug for StoresSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoresSpec").field("pattern", &self.pattern()).finish_non_exhaustive()
    }
}

impl StoresSettings {
    /// Name that matches the pattern, to check the template with.
    fn sample(&self) -> String {
        self.pattern.text().replace('*', "x")
    }

    /// Converts to the settings of the crate `busload-dolt`, as [`ChunksSettings::of_store`].
    pub fn of_set(&self, runtime: Handle, tables: DynamoTables) -> SetSettings {
        SetSettings {
            store: self.chunks.of_store(runtime, tables),
            template: self.template.clone(),
            sample: self.sample(),
            stores_max: self.stores_max,
            index_bytes_max: self.index_bytes_max,
            idle: self.idle,
            store_share: self.store_share,
            busiest_max: self.busiest_max,
        }
    }

    /// Returns the limits of the open stores.
    pub fn limits(&self) -> SetLimits {
        let Self { stores_max, index_bytes_max, idle, .. } = *self;
        SetLimits { stores_max, index_bytes_max, idle }
    }

    /// Changes the limits of the open stores.
    pub fn set_limits(&mut self, limits: SetLimits) {
        let SetLimits { stores_max, index_bytes_max, idle } = limits;
        (self.stores_max, self.index_bytes_max, self.idle) = (stores_max, index_bytes_max, idle);
    }

    /// Checks that the stores' client accepts the URLs. Connects to nothing.
    pub fn check_url(&self, runtime: Handle) -> Result<(), String> {
        let url = self.template.url(&self.sample());
        ChunksSettings { url, ..self.chunks.clone() }.check_url(runtime)
    }

    /// Describes the settings in one line for people.
    pub fn describe(&self) -> String {
        let Self { stores_max, index_bytes_max, store_share, .. } = self;
        let memory = Size(*index_bytes_max);
        let share = match *store_share {
            share if share == StoreShare::default() => String::new(),
            StoreShare { floor_bytes, cap_bytes: u64::MAX } => {
                format!(", at least {} of disk each", Size(floor_bytes))
            }
            StoreShare { floor_bytes, cap_bytes } => {
                format!(", {} to {} of disk each", Size(floor_bytes), Size(cap_bytes))
            }
        };
        let chunks = self.chunks.describe();
        format!("{chunks}, {stores_max} open at most, indexes {memory}{share}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(text: &str) -> Result<StoresSettings, String> {
        let spec: StoresSpec = text.parse()?;
        spec.resolve(Path::new("data")).map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_url_has_the_settings_of_the_pattern_and_of_its_stores() {
        let text = "*/*=s3://b/dolt/{name}?region=x&disk=20GiB&idle=1m&stores_max=7";
        let settings = resolved(text).unwrap();
        let StoresSettings { chunks, stores_max, idle, .. } = &settings;
        assert_eq!((*stores_max, *idle), (7, Duration::from_secs(60)));
        assert_eq!(chunks.url, "s3://b/dolt/{name}?region=x");
        assert_eq!((chunks.disk_bytes_max, chunks.name.as_str()), (20 << 30, "*/*"));
        assert_eq!(chunks.directory, Path::new("data/cache/stores+@+@"));
        assert_eq!(settings.store_share, StoreShare::default());
        let text = "*=s3://b/{1}?disk=20GiB&store_disk_min=1GiB&store_disk_max=5GiB";
        let StoresSettings { store_share, .. } = resolved(text).unwrap();
        assert_eq!(store_share, StoreShare { floor_bytes: 1 << 30, cap_bytes: 5 << 30 });
        let given = resolved("*=file:///s/{1}?directory=/cache").unwrap();
        assert_eq!(given.chunks.directory, Path::new("/cache"));
    }

    #[test]
    fn what_makes_no_sense_for_many_stores_is_refused() {
        for (text, part) in [
            ("*/*", "expected PATTERN=URL"),
            ("org/db=s3://b/{name}", "is no pattern of names"),
            ("*/*=s3://b/{1}", "{2} is missing"),
            ("*/*=s3://b/{name}?memory=1GiB", "`memory` is a setting of one table"),
            ("*/*=s3://b/{name}?dolt_paths=a", "`dolt_paths` is a setting of one table"),
            ("*/*=s3://b/{name}?dsk=1GiB", "did you mean `disk`?"),
            ("*/*=s3://b/{name}?stores_max=0", "stores_max = 0 is out of range"),
            ("*/*=s3://b/{name}?index_memory=1KiB", "index_memory = 1 KiB is too little"),
            ("*/*=s3://b/{name}?idle=1ms", "idle = 1ms is out of range"),
            ("*/*=s3://b/{name}?busiest_stores=201", "expected 0 to 200"),
            ("*/*=s3://b/{name}?busiest_stores=-1", "busiest_stores"),
            ("*/*=s3://b/{name}?disk=1GiB&store_disk_max=2GiB", "is more than disk = 1 GiB"),
            ("*/*=s3://b/{name}?disk=0&store_disk_max=1GiB", "is more than disk = 0"),
            ("*/*=s3://b/{name}?store_disk_max=1MiB", "store_disk_max = 1 MiB is too little"),
            (
                "*/*=s3://b/{name}?store_disk_min=2GiB&store_disk_max=1GiB",
                "store_disk_min = 2 GiB is more than store_disk_max = 1 GiB",
            ),
            (
                "*/*=s3://b/{name}?disk=3GiB&store_disk_min=2GiB",
                "store_disk_min = 2 GiB is more than half of disk = 3 GiB",
            ),
            ("*/*=ftp://b/{name}", "stores of kind `ftp` are not known"),
        ] {
            let error = resolved(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn nothing_shows_the_url_of_a_spec() {
        let spec: StoresSpec = "*/*=s3://bucket/{name}".parse().unwrap();
        assert!(!format!("{spec:?}").contains("bucket"));
    }
}
