//! Keeps the store open: looks at the manifest every so often, or when somebody asks.

use std::sync::Arc;

use tokio::time::{Instant, sleep_until, timeout};

use crate::{
    Error,
    limits::REFRESH_TIMEOUT,
    shared::Shared,
    state::StoreStatus,
    task::blocking,
    versions::opener::Opener,
    versions::version::{Snapshot, Version},
};

/// The task of one store.
pub(crate) struct Refresher {
    shared: Arc<Shared>,
    opener: Opener,
}

impl Refresher {
    pub fn new(shared: Arc<Shared>, opener: Opener) -> Self {
        Self { shared, opener }
    }

    /// Ends when the store is closed.
    pub async fn run(mut self) {
        let shared = self.shared.clone();
        tokio::select! {
            biased;
            () = shared.closed() => {}
            () = self.keep() => {}
        }
    }

    async fn keep(&mut self) {
        loop {
            let number = self.shared.checks.begin();
            let outcome = self.look().await;
            note(&self.shared, &outcome);
            self.shared.checks.end(number, outcome);
            self.rest().await;
        }
    }

    /// One look at the manifest; what is new is served when this returns.
    async fn look(&mut self) -> Result<(), Error> {
        let current = self.shared.version.load_full();
        let look = timeout(REFRESH_TIMEOUT, self.opener.look(current.as_deref())).await;
        let too_late =
            |_| Err(Error::Unreachable(format!("not read within {} s", REFRESH_TIMEOUT.as_secs())));
        if let Some(snapshot) = look.unwrap_or_else(too_late)? {
            self.switch(snapshot, current).await?;
        }
        self.expire().await
    }

    async fn switch(
        &mut self,
        snapshot: Snapshot,
        current: Option<Arc<Version>>,
    ) -> Result<(), Error> {
        let (now, grace_period) = (Instant::now(), self.shared.grace_period);
        let previous = current.clone();
        let version = blocking(move || {
            Arc::new(Version::new(snapshot, previous.as_deref(), now, grace_period))
        })
        .await?;
        self.shared.counters.count_version();
        log_version(&self.shared, &version, current.as_deref());
        self.show(&version, current.as_deref());
        // Nobody waits for what only the next start needs.
        drop(tokio::spawn(self.opener.tidy(version)));
        Ok(())
    }

    /// Lets go files that were dropped from the manifest a while ago.
    async fn expire(&self) -> Result<(), Error> {
        let now = Instant::now();
        let current = self.shared.version.load_full().filter(|version| version.has_expired(now));
        if let Some(current) = current {
            let previous = current.clone();
            let version = blocking(move || Arc::new(current.without_expired(now))).await?;
            self.show(&version, Some(&previous));
        }
        Ok(())
    }

    /// Requests see this one from now on. What was promised of files that it does not have is
    /// remembered first.
    fn show(&self, version: &Arc<Version>, previous: Option<&Version>) {
        if let Some(previous) = previous {
            self.shared.old_files.remember_closed(previous, version);
        }
        self.shared.version.store(Some(version.clone()));
    }

    /// Until it is time to look again.
    async fn rest(&self) {
        let next_look = Instant::now() + self.shared.poll;
        loop {
            let expiry =
                self.shared.version.load().as_ref().and_then(|version| version.next_expiry());
            tokio::select! {
                () = self.shared.checks.wanted() => return,
                () = sleep_until(next_look) => return,
                () = sleep_until(expiry.unwrap_or(next_look)), if expiry.is_some() => {
                    // Only the end of the runtime makes this fail.
                    if self.expire().await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

/// Tells who waits for the state, and the log when it changes.
fn note(shared: &Shared, outcome: &Result<(), Error>) {
    let is_served = shared.version.load().is_some();
    let name = &shared.name;
    let next = match outcome {
        Ok(()) => StoreStatus::Open,
        Err(error) => StoreStatus::Failed(error.clone()),
    };
    let before = shared.state.send_replace(next);
    match (before, outcome) {
        (StoreStatus::Failed(before), Err(now)) if is_alike(&before, now) => {}
        (_, Err(error)) if is_served => {
            log::warn!(
                "table {name}: the last version is served on, a newer one cannot be seen: {error}"
            );
        }
        (_, Err(error)) => {
            let seconds = shared.poll.as_secs_f64();
            log::warn!("table {name}: cannot be opened, tried again every {seconds} s: {error}");
        }
        (StoreStatus::Failed(_), Ok(())) => {
            log::info!("table {name}: {} can be read again", shared.remote.url())
        }
        (StoreStatus::Opening | StoreStatus::Open, Ok(())) => {}
    }
}

/// Texts differ in times and ports from one attempt to the next; that is no change worth a line.
fn is_alike(one: &Error, other: &Error) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(other)
}

fn log_version(shared: &Shared, version: &Version, previous: Option<&Version>) {
    let snapshot = &version.snapshot;
    let (root, files, chunks) =
        (snapshot.manifest.root, snapshot.files.len(), snapshot.chunk_count());
    let what = match previous {
        None => format!("{} is open", shared.remote.url()),
        Some(_) => "new version".to_owned(),
    };
    log::info!("table {}: {what}: root {root}, {files} table files, {chunks} chunks", shared.name);
    if !snapshot.has_manifest {
        let url = shared.remote.url();
        log::warn!(
            "table {}: {url} has no manifest: served as an empty store; is this the right place?",
            shared.name
        );
    }
}
