//! Work on the cache of a chunk store (list, warm, verify, drop), shared by a running server and by
//! `busload cache` without one; and the JSON in which the server reports it. [`stores`] has the
//! same for stores by pattern.

pub mod stores;

use std::{fmt, str::FromStr};

use busload_dolt::Store;
use busload_objects::{Cache, CacheStats, CachedObject, Progress};
use serde_json::{Value, json};

use crate::{
    config::{ChunksSettings, Size},
    shown::Shown,
};

/// Work that changes or checks a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Bring every file of the store to disk.
    Warm,
    /// Read every block on disk and remove what is corrupt.
    Verify,
    /// Remove everything from disk.
    Drop,
}

impl Action {
    /// Returns the name in commands and paths.
    pub fn name(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Verify => "verify",
            Self::Drop => "drop",
        }
    }
}

impl FromStr for Action {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known =
            [Self::Warm, Self::Verify, Self::Drop].into_iter().find(|action| action.name() == text);
        known.ok_or_else(|| {
            format!("`{}` is nothing to do to a cache; expected warm, verify or drop", Shown(text))
        })
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Brings every file to disk, once the store is open.
pub async fn warm(
    store: &Store,
    report: &mut (dyn FnMut(Progress) + Send),
) -> Result<Progress, String> {
    store.opened().await.map_err(|error| error.to_string())?;
    store.warm(report).await.map_err(|error| error.to_string())
}

/// Verifies every block on disk by its checksum, and then every chunk in the blocks by its address.
/// The progress counts bytes on disk.
pub async fn verify(
    store: &Store,
    report: &mut (dyn FnMut(Progress) + Send),
) -> Result<Progress, String> {
    // This pass is half of the work: the total counts every byte twice.
    let on_disk = store.cache().verify(&mut |progress| report(twice(progress))).await;
    if store.snapshot().is_none() {
        return Ok(on_disk);
    }
    let mut compare = |compared: Progress| {
        let done = on_disk.done + compared.done.min(on_disk.done);
        report(Progress {
            done,
            total: 2 * on_disk.done,
            corrupt: on_disk.corrupt + compared.corrupt,
        });
    };
    let compared = store.verify_local(&mut compare).await.map_err(|error| error.to_string())?;
    Ok(Progress { corrupt: on_disk.corrupt + compared.corrupt, ..on_disk })
}

fn twice(progress: Progress) -> Progress {
    Progress { total: 2 * progress.total, ..progress }
}

/// Removes everything from disk; the progress counts bytes freed.
pub async fn drop_all(cache: &Cache) -> Progress {
    let freed = cache.drop_all().await;
    Progress { done: freed, total: freed, corrupt: 0 }
}

/// List of what one cache holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Name of the table.
    pub table: String,
    /// URL of the store.
    pub store: String,
    /// Absolute path of the cache's directory.
    pub directory: String,
    /// Disk space in use.
    pub bytes: u64,
    /// Limit of the disk space; 0: there is no cache on disk.
    pub bytes_max: u64,
    /// Reason why the cache is bypassed, if it is.
    pub bypassed: Option<String>,
    /// Objects with something on disk.
    pub objects: Vec<Entry>,
}

/// One object in a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name of the object in the store.
    pub name: String,
    /// Size of the object.
    pub size: u64,
    /// Bytes of the object that are on disk.
    pub present: u64,
}

impl Listing {
    /// Lists an open cache.
    pub fn of(settings: &ChunksSettings, stats: &CacheStats, objects: Vec<CachedObject>) -> Self {
        let entry = |object: CachedObject| Entry {
            name: object.meta.name,
            size: object.meta.size,
            present: object.present,
        };
        let mut objects: Vec<Entry> = objects.into_iter().map(entry).collect();
        objects.sort_by(|a, b| a.name.cmp(&b.name));
        Self {
            table: settings.name.clone(),
            store: settings.url.clone(),
            directory: absolute(settings),
            bytes: stats.bytes,
            bytes_max: settings.disk_bytes_max,
            bypassed: stats.bypassed.clone(),
            objects,
        }
    }

    /// Encodes the list as the server sends it.
    pub fn to_json(&self) -> Value {
        let object = |entry: &Entry| {
            let Entry { name, size, present } = entry;
            json!({"name": name, "size": size, "present": present})
        };
        json!({
            "table": self.table,
            "store": self.store,
            "directory": self.directory,
            "bytes": self.bytes,
            "bytes_max": self.bytes_max,
            "bypassed": self.bypassed,
            "objects": self.objects.iter().map(object).collect::<Vec<_>>(),
        })
    }

    /// Decodes a list that a server sent.
    pub fn from_json(value: &Value) -> Option<Self> {
        let text = |value: &Value, key: &str| value.get(key)?.as_str().map(str::to_owned);
        let number = |value: &Value, key: &str| value.get(key)?.as_u64();
        let entry = |value: &Value| {
            Some(Entry {
                name: text(value, "name")?,
                size: number(value, "size")?,
                present: number(value, "present")?,
            })
        };
        Some(Self {
            table: text(value, "table")?,
            store: text(value, "store")?,
            directory: text(value, "directory")?,
            bytes: number(value, "bytes")?,
            bytes_max: number(value, "bytes_max")?,
            bypassed: text(value, "bypassed"),
            objects: value.get("objects")?.as_array()?.iter().map(entry).collect::<Option<_>>()?,
        })
    }
}

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, store, directory, .. } = self;
        if self.bytes_max == 0 {
            return writeln!(f, "table {table}  {store}  no cache on disk");
        }
        let (used, max, count) = (Size(self.bytes), Size(self.bytes_max), self.objects.len());
        writeln!(f, "table {table}  {store}  {count} files, {used} of {max} in {directory}")?;
        if let Some(why) = &self.bypassed {
            writeln!(f, "  the cache is bypassed: {why}")?;
        }
        for Entry { name, size, present } in &self.objects {
            writeln!(f, "  {name}  {} of {}", Size(*present), Size(*size))?;
        }
        Ok(())
    }
}

/// Returns the absolute path of the cache's directory, with links resolved if it exists.
pub fn absolute(settings: &ChunksSettings) -> String {
    let directory = &settings.directory;
    let absolute = directory.canonicalize().or_else(|_| std::path::absolute(directory));
    absolute.unwrap_or_else(|_| directory.clone()).display().to_string()
}

/// Encodes progress for a line of the server's answer.
pub fn progress_to_json(progress: Progress) -> Value {
    json!({"done": progress.done, "total": progress.total, "corrupt": progress.corrupt})
}

/// Decodes progress from a line of the server's answer.
pub fn progress_from_json(value: &Value) -> Option<Progress> {
    let number = |key: &str| value.get(key)?.as_u64();
    Some(Progress { done: number("done")?, total: number("total")?, corrupt: number("corrupt")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_comes_back_from_json_as_it_was() {
        let listing = Listing {
            table: "db".into(),
            store: "s3://b/p".into(),
            directory: "/d".into(),
            bytes: 5,
            bytes_max: 1 << 30,
            bypassed: Some("full".into()),
            objects: vec![Entry { name: "manifest".into(), size: 10, present: 4 }],
        };
        assert_eq!(Listing::from_json(&listing.to_json()), Some(listing.clone()));
        let whole = Listing { bypassed: None, ..listing };
        assert_eq!(Listing::from_json(&whole.to_json()), Some(whole));
        assert_eq!(Listing::from_json(&json!({"table": "db"})), None);
    }

    #[test]
    fn progress_comes_back_from_json_as_it_was() {
        let progress = Progress { done: 1, total: u64::MAX, corrupt: 3 };
        assert_eq!(progress_from_json(&progress_to_json(progress)), Some(progress));
        assert_eq!(progress_from_json(&json!({"done": 1})), None);
    }

    #[test]
    fn actions_are_read_as_they_are_shown() {
        for action in [Action::Warm, Action::Verify, Action::Drop] {
            assert_eq!(action.to_string().parse(), Ok(action));
        }
        assert!("pin".parse::<Action>().is_err());
    }
}
