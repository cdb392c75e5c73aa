//! `busload cache list|warm|drop` for stores by pattern.

use std::path::Path;

use busload_dolt::{DynamoTables, StoreSet};
use busload_objects::{Cache, CacheStats, Error};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::{LIST_BYTES_MAX, by_server, print, server, unknown_name};
use crate::{
    cache_work::{
        Action, absolute,
        stores::{self, NO_VERIFY, StoreChoice, StoresCache, StoresListing, WorkOutcome},
    },
    chunk_stores,
    cli::{http_client, progress::Meter},
    config::{Config, Size, StoresSettings},
    failure::Failure,
};

/// Lists the stores of all patterns, or those of a choice.
pub fn list(choice: Option<&StoreChoice>, config: &Config) -> Result<(), Failure> {
    let all: Vec<&StoresSettings> = config.stores.iter().collect();
    let concerned = match choice {
        Some(choice) => choice.among(all, |stores| &stores.pattern),
        None => all,
    };
    let listings = concerned.into_iter().map(|settings| listing(settings, config));
    let mut listings = listings.collect::<Result<Vec<_>, _>>()?;
    if let Some(choice) = choice {
        StoresListing::keep(&mut listings, choice).map_err(Failure::usage)?;
    }
    listings.iter().for_each(|listing| print(&listing.to_string()));
    Ok(())
}

/// Lists the stores of a pattern, asking the server if one has the cache open.
fn listing(settings: &StoresSettings, config: &Config) -> Result<StoresListing, Failure> {
    let chunks = &settings.chunks;
    // Opening a cache would create its directory.
    let has_cache = chunks.disk_bytes_max != 0 && chunks.directory.exists();
    if has_cache && let Some(locked) = lock_of(&chunks.directory, settings)? {
        return listing_of_server(settings, config, &locked);
    }
    if !has_cache {
        return Ok(StoresListing::of(settings, &CacheStats::default(), Vec::new()));
    }
    let runtime = chunk_stores::runtime()?;
    let set = open(settings, &runtime)?;
    let known = runtime.block_on(set.known());
    let listing = StoresListing::of(settings, &set.cache().stats(), known);
    close([set], runtime);
    Ok(listing)
}

/// Does some work on the stores of a choice, or has the server do it that has their cache open.
pub fn act(
    action: Action,
    choice: &StoreChoice,
    name: &str,
    config: &Config,
) -> Result<(), Failure> {
    let concerned = choice.among(config.stores.iter().collect(), |stores| &stores.pattern);
    if concerned.is_empty() {
        return Err(unknown_name(name, config));
    }
    if action == Action::Verify {
        return Err(Failure::usage(NO_VERIFY));
    }
    let mut locked = None;
    for settings in &concerned {
        if settings.chunks.disk_bytes_max == 0 {
            let pattern = settings.pattern.text();
            return Err(Failure::usage(format!(
                "stores {pattern} have no cache on disk (disk = 0)"
            )));
        }
        locked = locked.or(lock_of(&settings.chunks.directory, settings)?);
    }
    let mut meter = Meter::new(format!("{action} {name}"));
    let outcome = match locked {
        None => here(action, choice, &concerned, &mut meter),
        Some(locked) => {
            // The directories in the answer show whether this server has all caches.
            let lists =
                concerned.iter().map(|settings| listing_of_server(settings, config, &locked));
            let server = lists.collect::<Result<Vec<_>, _>>().and(server(config, &locked));
            server.and_then(|server| by_server(action, name, server, &mut meter))
        }
    };
    match outcome {
        Ok(outcome) => {
            meter.finish(outcome.progress);
            conclude(action, choice, &outcome)
        }
        Err(failure) => {
            meter.clear();
            Err(failure)
        }
    }
}

/// Prints the outcome; stores that failed are a failure.
fn conclude(action: Action, choice: &StoreChoice, outcome: &WorkOutcome) -> Result<(), Failure> {
    let WorkOutcome { progress, stores, .. } = outcome;
    let done = Size(progress.done);
    let count = match choice {
        StoreChoice::Name(_) => String::new(),
        StoreChoice::Matching(_) => format!("{stores} stores, "),
    };
    let said = match action {
        Action::Warm => format!("{count}{done} are on disk"),
        Action::Drop | Action::Verify => format!("{count}{done} of disk are free again"),
    };
    print(&format!("{choice}: {said}\n"));
    outcome.failure().map_or(Ok(()), |why| Err(Failure::run(format!("{choice}: {why}"))))
}

/// Does the work in this process.
fn here(
    action: Action,
    choice: &StoreChoice,
    concerned: &[&StoresSettings],
    meter: &mut Meter,
) -> Result<WorkOutcome, Failure> {
    let runtime = chunk_stores::runtime()?;
    let mut sets = Vec::new();
    for settings in concerned {
        sets.push((settings.pattern.clone(), open(settings, &runtime)?));
    }
    let caches = sets.iter().cloned().map(|(pattern, set)| StoresCache { pattern, set }).collect();
    let outcome = runtime.block_on(async {
        let chosen = stores::choose(choice, caches, action).await.map_err(Failure::usage)?;
        let done = stores::work(choice, action, chosen, &mut |progress| meter.show(progress)).await;
        done.map_err(|why| Failure::run(format!("{choice}: {why}")))
    });
    close(sets.into_iter().map(|(_, set)| set), runtime);
    outcome
}

/// Opens the stores of a pattern, which no other process has open.
fn open(settings: &StoresSettings, runtime: &Runtime) -> Result<StoreSet, Failure> {
    let pattern = settings.pattern.text();
    let checked = settings.check_url(runtime.handle().clone());
    checked.map_err(|error| Failure::usage(format!("stores {pattern}: {error}")))?;
    let set = StoreSet::start(settings.of_set(runtime.handle().clone(), DynamoTables::default()));
    set.map_err(|error| Failure::run(format!("stores {pattern}: {error}")))
}

fn close(sets: impl IntoIterator<Item = StoreSet>, runtime: Runtime) {
    for set in sets {
        runtime.block_on(set.close());
    }
    runtime.shutdown_background();
}

/// Returns the message of a cache that another process has open; none if none has.
fn lock_of(directory: &Path, settings: &StoresSettings) -> Result<Option<String>, Failure> {
    match Cache::check_unused(directory) {
        Ok(()) => Ok(None),
        Err(Error::Locked(locked)) => Ok(Some(locked)),
        Err(error) => Err(Failure::run(format!("stores {}: {error}", settings.pattern.text()))),
    }
}

fn listing_of_server(
    settings: &StoresSettings,
    config: &Config,
    locked: &str,
) -> Result<StoresListing, Failure> {
    let server = server(config, locked)?;
    let failed = |why: &dyn std::fmt::Display| {
        Failure::run(format!(
            "{locked}; the server at {} should have it, but: {why} (--http says where it is)",
            server.url()
        ))
    };
    let answer = http_client::send(server, "GET", "/api/cache/stores");
    let text = answer.map_err(|error| failed(&error))?.into_text(LIST_BYTES_MAX);
    let value: Value = serde_json::from_str(&text.map_err(|error| failed(&error))?)
        .map_err(|error| failed(&error))?;
    let all = value.as_array().into_iter().flatten().map(StoresListing::from_json);
    let all: Option<Vec<_>> = all.collect();
    let all = all.ok_or_else(|| failed(&"its answer is no list of stores"))?;
    let (pattern, directory) = (settings.pattern.text(), absolute(&settings.chunks));
    all.into_iter()
        .find(|listing| listing.pattern == pattern && listing.directory == directory)
        .ok_or_else(|| {
            failed(&format!("it has no stores {pattern} with their cache in {directory}"))
        })
}
