//! Keeps a store's version current: reads the manifest every `poll`, or when a request asks.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep_until, timeout};

use crate::{
    Error, Occasion, StoreStatus,
    lifecycle::Lifecycle,
    limits::REFRESH_TIMEOUT,
    task::blocking,
    versions::{
        Versions,
        opener::Opener,
        version::{Snapshot, Version},
    },
};

/// Task that opens new versions of one store.
pub(crate) struct Refresher {
    pub lifecycle: Arc<Lifecycle>,
    pub versions: Arc<Versions>,
    pub opener: Opener,
    pub poll: Duration,
    pub occasion: Occasion,
    pub grace_period: Duration,
}

impl Refresher {
    /// Refreshes until the store is closed.
    pub async fn run(mut self) {
        let lifecycle = self.lifecycle.clone();
        tokio::select! {
            biased;
            () = lifecycle.closed() => {}
            () = self.refresh_forever() => {}
        }
    }

    async fn refresh_forever(&mut self) {
        loop {
            let number = self.versions.refreshes.begin();
            // A box of its own: the task waits most of its life, and stores are many.
            let outcome = Box::pin(self.refresh()).await;
            self.report(&outcome);
            self.versions.refreshes.end(number, outcome);
            self.wait().await;
        }
    }

    /// Reads the manifest once; a new version is served when this returns.
    async fn refresh(&mut self) -> Result<(), Error> {
        let current = self.versions.current();
        let open = timeout(REFRESH_TIMEOUT, self.opener.open_new(current.as_deref())).await;
        let timed_out = |_| {
            let seconds = REFRESH_TIMEOUT.as_secs();
            Err(Error::Unreachable(format!("not read within {seconds} s")))
        };
        if let Some(snapshot) = open.unwrap_or_else(timed_out)? {
            if self.occasion.is_request() && !snapshot.has_manifest {
                let name = self.lifecycle.name();
                return Err(Error::NoStore(format!("there is no store {name}")));
            }
            self.switch_to(snapshot, current).await?;
        }
        self.expire().await
    }

    async fn switch_to(
        &mut self,
        snapshot: Snapshot,
        current: Option<Arc<Version>>,
    ) -> Result<(), Error> {
        let (now, grace_period) = (Instant::now(), self.grace_period);
        let previous = current.clone();
        let build = move || Version::new(snapshot, previous.as_deref(), now, grace_period);
        let version = blocking(move || Arc::new(build())).await?;
        self.versions.count_new();
        self.log_version(&version, current.as_deref());
        self.versions.publish(&version, current.as_deref());
        // Only the next opening needs the sidecars, so nothing waits for them.
        drop(tokio::spawn(self.opener.write_sidecars(version)));
        Ok(())
    }

    /// Closes files whose grace period is over.
    async fn expire(&self) -> Result<(), Error> {
        let now = Instant::now();
        let current = self.versions.current().filter(|version| version.has_expired(now));
        if let Some(current) = current {
            let previous = current.clone();
            let version = blocking(move || Arc::new(current.without_expired(now))).await?;
            self.versions.publish(&version, Some(&previous));
        }
        Ok(())
    }

    /// Waits until the next refresh is due or requested; closes expired files meanwhile. Of a store
    /// that a request opened a refresh is due only if there were requests since the last one.
    async fn wait(&self) {
        let mut next_refresh = Instant::now() + self.poll;
        loop {
            let expiry = self.versions.load().as_ref().and_then(|version| version.next_expiry());
            tokio::select! {
                () = self.versions.refreshes.requested() => return,
                () = sleep_until(next_refresh) => {
                    if self.occasion == Occasion::Configured || self.versions.take_used() {
                        return;
                    }
                    next_refresh = Instant::now() + self.poll;
                }
                () = sleep_until(expiry.unwrap_or(next_refresh)), if expiry.is_some() => {
                    // Fails only when the runtime ends.
                    if self.expire().await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Sets the store's status, and logs when it changes.
    fn report(&self, outcome: &Result<(), Error>) {
        let is_served = self.versions.load().is_some();
        let (name, url) = (self.lifecycle.name(), self.lifecycle.url());
        let previous = self.lifecycle.replace_status(match outcome {
            Ok(()) => StoreStatus::Open,
            Err(error) => StoreStatus::Failed(error.clone()),
        });
        match (previous, outcome) {
            (StoreStatus::Failed(before), Err(now)) if is_same_kind(&before, now) => {}
            // The requests that named the store get the error.
            (_, Err(Error::NoStore(_))) => {}
            (_, Err(error)) if is_served => {
                log::warn!(
                    "table {name}: the last version is still served, a newer one cannot be read: \
                     {error}"
                );
            }
            (_, Err(error)) => {
                let seconds = self.poll.as_secs_f64();
                log::warn!(
                    "table {name}: cannot be opened, tried again every {seconds} s: {error}"
                );
            }
            (StoreStatus::Failed(_), Ok(())) => {
                log::info!("table {name}: {url} can be read again");
            }
            (StoreStatus::Opening | StoreStatus::Open, Ok(())) => {}
        }
    }

    fn log_version(&self, version: &Version, previous: Option<&Version>) {
        let (name, url) = (self.lifecycle.name(), self.lifecycle.url());
        let snapshot = &version.snapshot;
        let (root, files) = (snapshot.manifest.root, snapshot.files.len());
        let chunks = snapshot.chunk_count();
        let event = match previous {
            None => format!("{url} is open"),
            Some(_) => "new version".to_owned(),
        };
        let level = match self.occasion {
            Occasion::Configured => log::Level::Info,
            // Stores that come and go with requests would fill the log.
            Occasion::Request | Occasion::Guess => log::Level::Debug,
        };
        log::log!(
            level,
            "table {name}: {event}: root {root}, {files} table files, {chunks} chunks"
        );
        if !snapshot.has_manifest {
            log::warn!(
                "table {name}: {url} has no manifest: served as an empty store; is the URL right?"
            );
        }
    }
}

/// Returns whether two errors are of one kind. Their texts differ in times and ports from one
/// attempt to the next, which is not worth a log line.
fn is_same_kind(one: &Error, other: &Error) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(other)
}
