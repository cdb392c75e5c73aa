//! Stores in a bucket behind a proxy, which records the requests.

use std::{ops::Range, path::PathBuf};

use busload_bucket::{Bucket, FaultProxy, Faults, Rule, url};
use busload_dolt::{Error, FileBytes, Settings, Store};
use busload_objects::{AccessHint, StreamOptions};
use futures_util::TryStreamExt;
use tokio::time::{Instant, timeout};

use crate::store::support::{Harness, LONG, copy, open};

/// Copy of a harness's store in a bucket.
pub struct RemoteStore {
    pub harness: Harness,
    pub proxy: FaultProxy,
    pub bucket: Bucket,
}

impl RemoteStore {
    pub fn of(harness: Harness) -> Self {
        copy(&harness.store(), &harness.path().join("s3/bucket/db"));
        let bucket = Bucket::start(&harness.path().join("s3")).unwrap();
        let proxy = FaultProxy::start(bucket.address(), 1, Faults::default()).unwrap();
        Self { harness, proxy, bucket }
    }

    pub fn settings(&self) -> Settings {
        Settings { url: url(self.proxy.address(), "db"), ..self.harness.settings() }
    }

    /// Opens the store without a disk cache.
    pub async fn open_without_disk(&self) -> Store {
        open(Settings { disk_bytes_max: 0, ..self.settings() }).await
    }

    /// Path of an object in the bucket.
    pub fn path(&self, name: &str) -> PathBuf {
        self.bucket.directory().join("db").join(name)
    }

    pub fn put(&self, name: &str, bytes: &[u8]) {
        self.bucket.put(&format!("db/{name}"), bytes).unwrap();
    }

    pub fn rules(&self, rules: Vec<Rule>) {
        self.proxy.set(Faults { rules, ..Faults::default() });
    }

    /// Counts requests for an object since the proxy last forgot them.
    pub fn count(&self, method: &str, name: &str) -> usize {
        let is_meant =
            |seen: &busload_bucket::Seen| seen.method == method && is_of(&seen.path, name);
        self.proxy.seen().iter().filter(|seen| is_meant(seen)).count()
    }

    /// Lists the requested ranges of an object, in their order.
    pub fn ranges(&self, name: &str) -> Vec<Range<u64>> {
        let seen = self.proxy.seen().into_iter().filter(|seen| is_of(&seen.path, name));
        let mut ranges: Vec<_> = seen.filter_map(|seen| seen.range).collect();
        ranges.sort_by_key(|range| range.start);
        ranges
    }
}

fn is_of(path: &str, name: &str) -> bool {
    path.split('?').next().is_some_and(|path| path.ends_with(&format!("/{name}")))
}

pub fn deadline() -> std::time::Instant {
    (Instant::now() + LONG).into_std()
}

/// Reads all of a range.
pub async fn stream(file: &FileBytes, range: Range<u64>) -> Result<Vec<u8>, Error> {
    let options = StreamOptions { hint: AccessHint::Random, timeout: LONG };
    let pieces = file.stream(range, options).try_collect::<Vec<_>>();
    Ok(timeout(LONG, pieces).await.expect("a stream ends")?.concat())
}

/// Waits until a condition holds.
pub async fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < end, "not within a minute: {what}");
        tokio::task::yield_now().await;
    }
}
