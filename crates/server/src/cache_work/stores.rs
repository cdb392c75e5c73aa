//! Work on the caches of stores by pattern: which stores a name or a pattern chooses, the work on
//! them, and the JSON in which the server reports it.
//!
//! ```text
//!  org/db --> the store of this name: list, drop if it is known; warm opens it in any case
//!  org/*  --> the known stores whose names match: open, or with something on disk
//!  */*    --> a pattern as it is configured: all that its cache holds, whatever it was
//! ```

use std::{collections::HashSet, fmt, str::FromStr, time::Duration};

use busload_dolt::{Error, KnownStore, OpenUse, StoreSet, Warmed};
use busload_objects::{CacheStats, Progress};
use busload_pipeline::name_pattern::NamePattern;
use serde_json::{Value, json};

use super::{Action, absolute, progress_from_json, progress_to_json};
use crate::{
    config::{Size, StoresSettings},
    shown::Shown,
};

/// Names of known stores that an error repeats.
const NAMES_SHOWN_MAX: usize = 8;

/// Choice of stores by pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreChoice {
    /// The store of this name.
    Name(String),
    /// Known stores whose names match.
    Matching(NamePattern),
}

impl FromStr for StoreChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match NamePattern::is_pattern(text) {
            true => NamePattern::parse(text).map(Self::Matching),
            false => Ok(Self::Name(text.to_owned())),
        }
    }
}

impl fmt::Display for StoreChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "store {}", Shown(name)),
            Self::Matching(pattern) => write!(f, "stores {}", pattern.text()),
        }
    }
}

impl StoreChoice {
    /// Returns the configured patterns whose stores may be chosen, from all of them.
    pub fn among<T>(&self, all: Vec<T>, pattern: impl Fn(&T) -> &NamePattern) -> Vec<T> {
        let mut concerned: Vec<T> = all
            .into_iter()
            .filter(|one| match self {
                Self::Name(name) => pattern(one).matches(name.as_bytes()),
                Self::Matching(chosen) => chosen.overlaps(pattern(one)),
            })
            .collect();
        concerned.sort_by(|one, other| pattern(one).rank().cmp(&pattern(other).rank()));
        if matches!(self, Self::Name(_)) {
            // A name belongs to the first pattern that matches it.
            concerned.truncate(1);
        }
        concerned
    }

    /// Returns whether a known store of a configured pattern is chosen.
    fn chooses(&self, store: &KnownStore, configured: &NamePattern) -> bool {
        self.is_whole(configured)
            || store.name.as_ref().is_some_and(|name| match self {
                Self::Name(chosen) => chosen == name,
                Self::Matching(chosen) => chosen.matches(name.as_bytes()),
            })
    }

    /// Returns whether this is a pattern as it is configured.
    fn is_whole(&self, configured: &NamePattern) -> bool {
        matches!(self, Self::Matching(chosen) if chosen == configured)
    }

    /// Says that no known store is chosen, and which there are.
    fn nothing(&self, known: &[String]) -> String {
        let chosen = match self {
            Self::Name(name) => format!("is called `{}`", Shown(name)),
            Self::Matching(pattern) => format!("matches `{}`", pattern.text()),
        };
        let there = match known {
            [] => "there are none yet".to_owned(),
            known if known.len() <= NAMES_SHOWN_MAX => format!("there are {}", known.join(", ")),
            known => format!(
                "there are {}, and {} more",
                known[..NAMES_SHOWN_MAX].join(", "),
                known.len() - NAMES_SHOWN_MAX
            ),
        };
        format!("no store that is open or on disk {chosen}; {there}")
    }
}

/// Stores of one configured pattern.
#[derive(Clone, Debug)]
pub struct StoresCache {
    pub pattern: NamePattern,
    pub set: StoreSet,
}

/// Stores of one configured pattern that were chosen for work.
#[derive(Debug)]
pub struct ChosenStores {
    set: StoreSet,
    names: Vec<String>,
    urls: HashSet<String>,
    /// True if everything in the cache was chosen.
    is_whole: bool,
}

/// Chooses the stores for some work. Fails if there are none; the text says which there are.
pub async fn choose(
    choice: &StoreChoice,
    caches: Vec<StoresCache>,
    action: Action,
) -> Result<Vec<ChosenStores>, String> {
    let (mut all, mut names_known, mut is_any) = (Vec::new(), Vec::new(), false);
    for StoresCache { pattern, set } in caches {
        if let (StoreChoice::Name(name), Action::Warm) = (choice, action) {
            let (names, urls) = (vec![name.clone()], HashSet::new());
            return Ok(vec![ChosenStores { set, names, urls, is_whole: false }]);
        }
        let known = set.known().await;
        names_known.extend(known.iter().filter_map(|store| store.name.clone()));
        let chosen = known.into_iter().filter(|store| choice.chooses(store, &pattern));
        let (mut names, mut urls) = (Vec::new(), HashSet::new());
        for store in chosen {
            names.extend(store.name);
            urls.insert(store.url);
        }
        let is_whole = choice.is_whole(&pattern);
        is_any |= is_whole || !urls.is_empty();
        all.push(ChosenStores { set, names, urls, is_whole });
    }
    if is_any { Ok(all) } else { Err(choice.nothing(&names_known)) }
}

/// Outcome of work on a cache: of a table, or of stores by pattern.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkOutcome {
    pub progress: Progress,
    /// Number of stores by pattern for which the work succeeded.
    pub stores: u64,
    /// Number of those for which it failed.
    pub failed: u64,
    /// Some of these with the reasons.
    pub failures: Vec<(String, String)>,
}

/// Does some work on stores.
///
/// # Errors
/// The only store of that name failed.
pub async fn work(
    choice: &StoreChoice,
    action: Action,
    chosen: Vec<ChosenStores>,
    report: &mut (dyn FnMut(Progress) + Send),
) -> Result<WorkOutcome, String> {
    let mut outcome = WorkOutcome::default();
    for ChosenStores { set, names, urls, is_whole } in chosen {
        let before = outcome.progress;
        match action {
            Action::Warm => {
                let mut add = |now| report(sum(before, now));
                let warmed = set.warm(names, &mut add).await;
                outcome.add_warmed(warmed);
            }
            Action::Drop => {
                outcome.stores += urls.len() as u64;
                let freed = match is_whole {
                    true => set.cache().drop_all().await,
                    false => set.drop_stores(urls).await,
                };
                let freed = Progress { done: freed, total: freed, corrupt: 0 };
                outcome.progress = sum(before, freed);
            }
            Action::Verify => return Err(NO_VERIFY.to_owned()),
        }
    }
    match (choice, &outcome.failures[..]) {
        (StoreChoice::Name(_), [(_, why)]) => Err(why.clone()),
        _ => Ok(outcome),
    }
}

/// Reason for which stores by pattern are not verified.
pub const NO_VERIFY: &str = "verify takes a table; what stores by pattern have on disk is checked \
                             whenever it is read";

fn sum(one: Progress, other: Progress) -> Progress {
    Progress {
        done: one.done + other.done,
        total: one.total + other.total,
        corrupt: one.corrupt + other.corrupt,
    }
}

impl WorkOutcome {
    /// Makes the outcome of work on a table.
    pub fn of_table(progress: Progress) -> Self {
        Self { progress, ..Self::default() }
    }

    fn add_warmed(&mut self, warmed: Warmed) {
        self.progress = sum(self.progress, warmed.progress);
        self.stores += warmed.stores as u64;
        self.failed += warmed.failed as u64;
        let why = |(name, error): (String, Error)| (name, error.to_string());
        self.failures.extend(warmed.failures.into_iter().map(why));
    }

    /// Encodes the outcome for the last line of the server's answer.
    pub fn to_json(&self) -> Value {
        let mut value = progress_to_json(self.progress);
        if 0 < self.stores + self.failed {
            let failure = |(store, why): &(String, String)| json!({"store": store, "why": why});
            value["stores"] = self.stores.into();
            value["failed"] = self.failed.into();
            value["failures"] = self.failures.iter().map(failure).collect();
        }
        value
    }

    /// Decodes an outcome that a server sent.
    pub fn from_json(value: &Value) -> Option<Self> {
        let number = |key: &str| value.get(key).map_or(Some(0), Value::as_u64);
        let failure = |value: &Value| {
            let text = |key: &str| value.get(key)?.as_str().map(str::to_owned);
            Some((text("store")?, text("why")?))
        };
        let failures = value.get("failures").and_then(Value::as_array).into_iter().flatten();
        Some(Self {
            progress: progress_from_json(value)?,
            stores: number("stores")?,
            failed: number("failed")?,
            failures: failures.map(failure).collect::<Option<_>>()?,
        })
    }

    /// Says for how many stores the work failed, and why; none if for none.
    pub fn failure(&self) -> Option<String> {
        if self.failed == 0 {
            return None;
        }
        let Self { stores, failed, failures, .. } = self;
        let mut all: Vec<String> =
            failures.iter().map(|(name, why)| format!("{name}: {why}")).collect();
        if (all.len() as u64) < *failed {
            all.push(format!("and {} more", failed - all.len() as u64));
        }
        Some(format!("{failed} of {} stores failed: {}", stores + failed, all.join("; ")))
    }
}

/// List of the stores of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoresListing {
    /// The pattern as it is configured.
    pub pattern: String,
    /// Template of the stores' URLs.
    pub template: String,
    /// Absolute path of the cache's directory.
    pub directory: String,
    /// Disk space in use.
    pub bytes: u64,
    /// Limit of the disk space; 0: there is no cache on disk.
    pub bytes_max: u64,
    /// Reason why the cache is bypassed, if it is.
    pub bypassed: Option<String>,
    /// Stores that are open or have something on disk.
    pub stores: Vec<KnownStore>,
}

impl StoresListing {
    /// Lists the stores of an open cache.
    pub fn of(settings: &StoresSettings, stats: &CacheStats, stores: Vec<KnownStore>) -> Self {
        Self {
            pattern: settings.pattern.text().to_owned(),
            template: settings.chunks.url.clone(),
            directory: absolute(&settings.chunks),
            bytes: stats.bytes,
            bytes_max: settings.chunks.disk_bytes_max,
            bypassed: stats.bypassed.clone(),
            stores,
        }
    }

    /// Keeps the chosen stores in lists. Fails if there are none; the text says which there are.
    pub fn keep(all: &mut [Self], choice: &StoreChoice) -> Result<(), String> {
        let (mut names, mut is_any) = (Vec::new(), false);
        for listing in all {
            let pattern = NamePattern::parse(&listing.pattern)?;
            names.extend(listing.stores.iter().filter_map(|store| store.name.clone()));
            listing.stores.retain(|store| choice.chooses(store, &pattern));
            is_any |= !listing.stores.is_empty() || choice.is_whole(&pattern);
        }
        if is_any { Ok(()) } else { Err(choice.nothing(&names)) }
    }

    /// Encodes the list as the server sends it.
    pub fn to_json(&self) -> Value {
        let store = |store: &KnownStore| {
            let KnownStore { name, url, open, files, disk_bytes } = store;
            let open = open.map(|OpenUse { index_bytes, idle }| {
                json!({"index_bytes": index_bytes, "idle_s": idle.as_secs()})
            });
            json!({"name": name, "url": url, "files": files, "bytes": disk_bytes, "open": open})
        };
        json!({
            "pattern": self.pattern,
            "store": self.template,
            "directory": self.directory,
            "bytes": self.bytes,
            "bytes_max": self.bytes_max,
            "bypassed": self.bypassed,
            "stores": self.stores.iter().map(store).collect::<Vec<_>>(),
        })
    }

    /// Decodes a list that a server sent.
    pub fn from_json(value: &Value) -> Option<Self> {
        let text = |value: &Value, key: &str| value.get(key)?.as_str().map(str::to_owned);
        let number = |value: &Value, key: &str| value.get(key)?.as_u64();
        let open = |value: &Value| {
            let idle = Duration::from_secs(number(value, "idle_s")?);
            Some(OpenUse { index_bytes: number(value, "index_bytes")?, idle })
        };
        let store = |value: &Value| {
            Some(KnownStore {
                name: text(value, "name"),
                url: text(value, "url")?,
                open: value.get("open").and_then(open),
                files: number(value, "files")?,
                disk_bytes: number(value, "bytes")?,
            })
        };
        Some(Self {
            pattern: text(value, "pattern")?,
            template: text(value, "store")?,
            directory: text(value, "directory")?,
            bytes: number(value, "bytes")?,
            bytes_max: number(value, "bytes_max")?,
            bypassed: text(value, "bypassed"),
            stores: value.get("stores")?.as_array()?.iter().map(store).collect::<Option<_>>()?,
        })
    }
}

impl fmt::Display for StoresListing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pattern, template, directory, stores, .. } = self;
        let open = stores.iter().filter(|store| store.open.is_some()).count();
        write!(f, "stores {pattern}  {template}  {} listed, {open} open, ", stores.len())?;
        match self.bytes_max {
            0 => writeln!(f, "no cache on disk")?,
            max => writeln!(f, "{} of {} in {directory} in all", Size(self.bytes), Size(max))?,
        }
        if let Some(why) = &self.bypassed {
            writeln!(f, "  the cache is bypassed: {why}")?;
        }
        for KnownStore { name, url, open, files, disk_bytes } in stores {
            let name = name.as_ref().unwrap_or(url);
            let state = if open.is_some() { "open" } else { "closed" };
            write!(f, "  {name}  {state}, {files} files, {} on disk", Size(*disk_bytes))?;
            if let Some(OpenUse { index_bytes, idle }) = open {
                let (index, seconds) = (Size(*index_bytes), idle.as_secs());
                write!(f, ", {index} of index memory, used {seconds} s ago")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(name: &str) -> KnownStore {
        KnownStore {
            name: Some(name.to_owned()),
            url: format!("s3://b/{name}"),
            open: None,
            files: 2,
            disk_bytes: 5 << 20,
        }
    }

    fn listing() -> StoresListing {
        let open = Some(OpenUse { index_bytes: 2048, idle: Duration::from_secs(7) });
        let nameless = KnownStore { name: None, url: "s3://old/x".to_owned(), ..store("") };
        StoresListing {
            pattern: "*/*".to_owned(),
            template: "s3://b/{name}".to_owned(),
            directory: "/d".to_owned(),
            bytes: 15 << 20,
            bytes_max: 1 << 30,
            bypassed: Some("full".to_owned()),
            stores: vec![nameless, store("a/x"), KnownStore { open, ..store("b/y") }],
        }
    }

    #[test]
    fn a_listing_comes_back_from_json_and_is_shown() {
        let listing = listing();
        assert_eq!(StoresListing::from_json(&listing.to_json()), Some(listing.clone()));
        assert_eq!(
            listing.to_string(),
            "stores */*  s3://b/{name}  3 listed, 1 open, 15 MiB of 1 GiB in /d in all\n  \
             the cache is bypassed: full\n  \
             s3://old/x  closed, 2 files, 5 MiB on disk\n  \
             a/x  closed, 2 files, 5 MiB on disk\n  \
             b/y  open, 2 files, 5 MiB on disk, 2 KiB of index memory, used 7 s ago\n"
        );
    }

    #[test]
    fn names_and_patterns_choose_among_known_stores() {
        let kept = |choice: &str| {
            let (mut all, choice) = ([listing()], choice.parse().unwrap());
            StoresListing::keep(&mut all, &choice)?;
            let [StoresListing { stores, .. }] = all;
            Ok::<_, String>(stores.into_iter().map(|store| store.url).collect::<Vec<_>>())
        };
        assert_eq!(kept("a/x").unwrap(), ["s3://b/a/x"]);
        assert_eq!(kept("b/*").unwrap(), ["s3://b/b/y"]);
        assert_eq!(kept("*/*").unwrap().len(), 3, "the configured pattern is everything");
        let none = kept("c/*").unwrap_err();
        assert!(none.ends_with("matches `c/*`; there are a/x, b/y"), "{none}");
        let none = kept("c/z").unwrap_err();
        assert!(none.contains("is called `c/z`; there are a/x, b/y"), "{none}");
        assert!("a*b*".parse::<StoreChoice>().unwrap_err().contains("expected 1 to"));
    }

    #[test]
    fn a_name_belongs_to_the_first_pattern_and_a_pattern_to_all_that_it_overlaps() {
        let among = |choice: &str| {
            let all = ["*/*", "team-*/db", "*"].map(|text| NamePattern::parse(text).unwrap());
            let chosen = choice.parse::<StoreChoice>().unwrap().among(all.to_vec(), |one| one);
            chosen.iter().map(|pattern| pattern.text().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(among("team-a/db"), ["team-*/db"]);
        assert_eq!(among("org/db"), ["*/*"]);
        assert_eq!(among("team-*/*"), ["team-*/db", "*/*"]);
        assert_eq!(among("a/b/c"), [""; 0]);
    }

    #[test]
    fn an_outcome_comes_back_from_json_and_says_what_failed() {
        let progress = Progress { done: 3, total: 4, corrupt: 0 };
        let table = WorkOutcome::of_table(progress);
        assert_eq!(table.to_json(), progress_to_json(progress), "tables have no counts of stores");
        let failures = vec![("a/b".to_owned(), "why".to_owned())];
        let outcome = WorkOutcome { progress, stores: 2, failed: 5, failures };
        assert_eq!(WorkOutcome::from_json(&outcome.to_json()), Some(outcome.clone()));
        assert_eq!(WorkOutcome::from_json(&table.to_json()), Some(table.clone()));
        assert_eq!(table.failure(), None);
        assert_eq!(outcome.failure().unwrap(), "5 of 7 stores failed: a/b: why; and 4 more");
    }
}
