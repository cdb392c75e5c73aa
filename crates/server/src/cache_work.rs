//! What can be done to the cache of a chunk store, by the server that has it or without one.

use std::{fmt, str::FromStr};

use busload_dolt::Store;
use busload_objects::{Cache, CacheStats, CachedObject, Progress};
use serde_json::{Value, json};

use crate::{
    config::{ChunksSettings, Size},
    shown::Shown,
};

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Bring everything to disk.
    Warm,
    /// Read every block on disk and remove what is corrupt.
    Verify,
    /// Remove everything.
    Drop,
}

impl Action {
    /// As it stands in commands and paths.
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

/// Brings everything to disk, once the store is open.
pub async fn warm(
    store: &Store,
    report: &mut (dyn FnMut(Progress) + Send),
) -> Result<Progress, String> {
    store.opened().await.map_err(|error| error.to_string())?;
    store.warm(report).await.map_err(|error| error.to_string())
}

/// Reads every block on disk, and then compares what they hold with the addresses of the chunks.
/// What is done are bytes on disk.
pub async fn verify(
    store: &Store,
    report: &mut (dyn FnMut(Progress) + Send),
) -> Result<Progress, String> {
    // Reported at half the pace: everything is looked at twice.
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

/// Removes everything; what is done are the bytes freed.
pub async fn drop_all(cache: &Cache) -> Progress {
    let freed = cache.drop_all().await;
    Progress { done: freed, total: freed, corrupt: 0 }
}

/// A cache, as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The table's name.
    pub table: String,
    /// The store's URL.
    pub store: String,
    /// The cache's directory, as the whole machine knows it.
    pub directory: String,
    /// Disk space used.
    pub bytes: u64,
    /// Disk space, at most; 0: there is no cache on disk.
    pub bytes_max: u64,
    /// Why the disk is left alone, if it is.
    pub bypassed: Option<String>,
    /// What is there.
    pub objects: Vec<Entry>,
}

/// One object in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name in the store.
    pub name: String,
    /// Its size.
    pub size: u64,
    /// Bytes of it on disk.
    pub present: u64,
}

impl Listing {
    /// Of a cache that is open.
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

    /// As the server tells it.
    pub fn to_json(&self) -> Value {
        let object = |entry: &Entry| json!({"name": entry.name, "size": entry.size, "present": entry.present});
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

    /// As the server told it.
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
            writeln!(f, "  the disk is left alone: {why}")?;
        }
        for Entry { name, size, present } in &self.objects {
            writeln!(f, "  {name}  {} of {}", Size(*present), Size(*size))?;
        }
        Ok(())
    }
}

/// The directory's name from everywhere; as it was given when there is none yet.
pub fn absolute(settings: &ChunksSettings) -> String {
    let directory = &settings.directory;
    let absolute = directory.canonicalize().or_else(|_| std::path::absolute(directory));
    absolute.unwrap_or_else(|_| directory.clone()).display().to_string()
}

/// How far work has come, as a line of the server's answer.
pub fn progress_to_json(progress: Progress) -> Value {
    json!({"done": progress.done, "total": progress.total, "corrupt": progress.corrupt})
}

/// The same, read.
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
