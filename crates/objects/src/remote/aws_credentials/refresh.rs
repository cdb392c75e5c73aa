//! Keeps credentials, and refreshes them before they end: once, however many wait.
//!
//! ```text
//!  |-- good ------------------------|-- refreshed beside requests --|-- requests wait --|
//!  fetched                          5 min before                    10 s before         end
//! ```
//!
//! A fetch is a task of its own, so that a request that gives up takes nobody's along. After a
//! failure, what is still good is used on; the next attempt comes a second later.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use object_store::{CredentialProvider, aws::AwsCredential};
use tokio::{runtime::Handle, time::Instant};

use super::{
    CredentialError, Found, Lifetime, Whose,
    limits::{FAILURE_PAUSE, REFRESH_BEFORE_END, REREAD_INTERVAL, UNUSABLE_BEFORE_END},
    now,
};

/// Place that credentials come from.
#[async_trait]
pub(super) trait Source: fmt::Debug + Send + Sync {
    async fn fetch(&self) -> Result<Found, CredentialError>;

    /// Says where credentials were looked for, for when there are none.
    fn nothing(&self) -> String;
}

/// Provider that keeps what its source found.
#[derive(Debug)]
pub(super) struct Refreshing(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    source: Arc<dyn Source>,
    runtime: Handle,
    state: Mutex<RefreshState>,
}

type Fetch = Shared<BoxFuture<'static, Result<Whose, CredentialError>>>;

#[derive(Default)]
struct RefreshState {
    held: Option<Held>,
    /// Fetch that is under way.
    fetch: Option<Fetch>,
    /// Last failure, and the time until which there is no other attempt.
    failed: Option<(CredentialError, Instant)>,
}

struct Held {
    credentials: Whose,
    refresh_at: Option<Instant>,
    /// Time from which on they are not used.
    unusable_at: Option<Instant>,
}

impl Refreshing {
    pub(super) fn new(source: Arc<dyn Source>, runtime: Handle) -> Self {
        Self(Arc::new(Inner { source, runtime, state: Mutex::default() }))
    }

    async fn get(&self) -> Result<Whose, CredentialError> {
        let fetch = {
            let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let is_pausing = state.failed.as_ref().is_some_and(|(_, until)| now < *until);
            let passed = |at: Option<Instant>| at.is_some_and(|at| at <= now);
            if let Some(held) = state.held.as_ref().filter(|held| !passed(held.unusable_at)) {
                let credentials = held.credentials.clone();
                if passed(held.refresh_at) && !is_pausing {
                    drop(self.0.fetch(&mut state));
                }
                return Ok(credentials);
            }
            match &state.failed {
                Some((error, _)) if is_pausing => return Err(error.clone()),
                _ => self.0.fetch(&mut state),
            }
        };
        fetch.await
    }
}

impl Inner {
    /// Returns the fetch under way, or starts one.
    fn fetch(self: &Arc<Self>, state: &mut RefreshState) -> Fetch {
        // One that has ended and is still here has panicked: it noted nothing.
        if let Some(fetch) = state.fetch.as_ref().filter(|fetch| fetch.peek().is_none()) {
            return fetch.clone();
        }
        let inner = self.clone();
        let task = self.runtime.spawn(async move {
            let found = inner.source.fetch().await;
            inner.note(found)
        });
        let stopped = || CredentialError::Unavailable("the search for credentials ended".into());
        let fetch = task.map(move |done| done.unwrap_or_else(|_| Err(stopped()))).boxed().shared();
        state.fetch = Some(fetch.clone());
        fetch
    }

    fn note(&self, found: Result<Found, CredentialError>) -> Result<Whose, CredentialError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.fetch = None;
        match found {
            Ok(found) => {
                state.failed = None;
                let credentials = found.credentials.clone();
                state.held = Some(Held::new(found));
                Ok(credentials)
            }
            Err(error) => {
                if state.held.is_some() {
                    log::warn!("credentials for AWS cannot be refreshed: {error}");
                }
                state.failed = Some((error.clone(), Instant::now() + FAILURE_PAUSE));
                Err(error)
            }
        }
    }
}

impl Held {
    fn new(found: Found) -> Self {
        let Found { credentials, lifetime } = found;
        let from_now = |time: Duration| Instant::now().checked_add(time);
        let (refresh_at, unusable_at) = match lifetime {
            Lifetime::Endless => (None, None),
            Lifetime::OfFile => (from_now(REREAD_INTERVAL), None),
            Lifetime::Until(end) => {
                let left = end.duration_since(now()).unwrap_or_default();
                let refresh = left.saturating_sub(REFRESH_BEFORE_END).max(left / 2);
                (from_now(refresh), from_now(left.saturating_sub(UNUSABLE_BEFORE_END)))
            }
        };
        Self { credentials, refresh_at, unusable_at }
    }
}

#[async_trait]
impl CredentialProvider for Refreshing {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        match self.get().await {
            Ok(Whose::Keys(keys)) => Ok(keys),
            Ok(Whose::Given(provider)) => provider.get_credential().await.map_err(|source| {
                let error = Nothing { text: self.0.source.nothing(), source };
                object_store::Error::Generic { store: "AWS", source: Box::new(error) }
            }),
            Err(error) => {
                Err(object_store::Error::Generic { store: "AWS", source: Box::new(error) })
            }
        }
    }
}

/// Failure of the last place where credentials could have been.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct Nothing {
    text: String,
    source: object_store::Error,
}

impl fmt::Debug for RefreshState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefreshState").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use futures_util::future::join_all;
    use tokio::{
        sync::Semaphore,
        time::{advance, timeout},
    };

    use super::*;

    /// Source whose fetches wait for a permit, and have a lifetime or fail.
    #[derive(Debug)]
    struct Fake {
        fetches: AtomicUsize,
        permits: Semaphore,
        results: Mutex<Vec<Result<Lifetime, CredentialError>>>,
    }

    #[async_trait]
    impl Source for Fake {
        async fn fetch(&self) -> Result<Found, CredentialError> {
            let number = self.fetches.fetch_add(1, Relaxed);
            self.permits.acquire().await.unwrap().forget();
            let lifetime = self.results.lock().unwrap().remove(0)?;
            let key_id = number.to_string();
            let keys = AwsCredential { key_id, secret_key: "hush".to_owned(), token: None };
            Ok(Found { credentials: Whose::Keys(Arc::new(keys)), lifetime })
        }

        fn nothing(&self) -> String {
            "nothing".to_owned()
        }
    }

    fn provider(
        permits: usize,
        results: Vec<Result<Lifetime, CredentialError>>,
    ) -> (Arc<Refreshing>, Arc<Fake>) {
        let fake = Arc::new(Fake {
            fetches: AtomicUsize::new(0),
            permits: Semaphore::new(permits),
            results: Mutex::new(results),
        });
        (Arc::new(Refreshing::new(fake.clone(), Handle::current())), fake)
    }

    fn until(seconds: u64) -> Result<Lifetime, CredentialError> {
        Ok(Lifetime::Until(now() + Duration::from_secs(seconds)))
    }

    fn failure() -> Result<Lifetime, CredentialError> {
        Err(CredentialError::Unavailable("STS is away".to_owned()))
    }

    async fn key(provider: &Refreshing) -> String {
        provider.get_credential().await.unwrap().key_id.clone()
    }

    /// Lets tasks run that nobody waits for.
    async fn settle() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn however_many_wait_there_is_one_fetch_and_one_that_gives_up_ends_nothing() {
        let (provider, fake) = provider(0, vec![until(3600)]);
        let gone = timeout(Duration::from_millis(1), provider.get_credential()).await;
        assert!(gone.is_err());
        let all = join_all((0..50).map(|_| key(&provider)));
        let (all, ()) = tokio::join!(all, async { fake.permits.add_permits(1) });
        assert_eq!(all, vec!["0"; 50]);
        assert_eq!(fake.fetches.load(Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn credentials_are_refreshed_before_their_end_beside_requests() {
        let (provider, fake) = provider(1, vec![until(3600), until(7200)]);
        assert_eq!(key(&provider).await, "0");
        advance(Duration::from_secs(3290)).await;
        assert_eq!((key(&provider).await.as_str(), fake.fetches.load(Relaxed)), ("0", 1));
        advance(Duration::from_secs(20)).await;
        assert_eq!(key(&provider).await, "0", "nobody waits for the refresh");
        assert_eq!(key(&provider).await, "0");
        settle().await;
        assert_eq!(fake.fetches.load(Relaxed), 2, "one refresh");
        fake.permits.add_permits(1);
        settle().await;
        assert_eq!(key(&provider).await, "1");
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_ended_is_never_used() {
        let (provider, fake) = provider(1, vec![until(600), until(1200)]);
        assert_eq!(key(&provider).await, "0");
        advance(Duration::from_secs(591)).await;
        let (key, ()) = tokio::join!(key(&provider), async { fake.permits.add_permits(1) });
        assert_eq!(key, "1", "too near to the end to be sent");
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_failure_the_old_ones_serve_until_their_end() {
        let (provider, fake) =
            provider(9, vec![until(600), failure(), failure(), failure(), until(600)]);
        assert_eq!(key(&provider).await, "0");
        advance(Duration::from_secs(400)).await;
        assert_eq!(key(&provider).await, "0");
        settle().await;
        assert_eq!(fake.fetches.load(Relaxed), 2);
        assert_eq!(key(&provider).await, "0");
        settle().await;
        assert_eq!(fake.fetches.load(Relaxed), 2, "not again within a second");
        advance(FAILURE_PAUSE).await;
        assert_eq!(key(&provider).await, "0");
        settle().await;
        assert_eq!(fake.fetches.load(Relaxed), 3);
        advance(Duration::from_secs(300)).await;
        for _ in 0..3 {
            let error = provider.get_credential().await.unwrap_err().to_string();
            assert!(error.contains("STS is away"), "{error}");
        }
        assert_eq!(fake.fetches.load(Relaxed), 4, "the failure is kept for a second");
        advance(FAILURE_PAUSE).await;
        assert_eq!(key(&provider).await, "4");
    }

    #[tokio::test(start_paused = true)]
    async fn keys_of_a_file_are_read_again_and_endless_ones_are_not() {
        let (provider_of_file, fake) = provider(9, vec![Ok(Lifetime::OfFile), until(600)]);
        assert_eq!(key(&provider_of_file).await, "0");
        advance(REREAD_INTERVAL).await;
        assert_eq!(key(&provider_of_file).await, "0");
        settle().await;
        assert_eq!((key(&provider_of_file).await.as_str(), fake.fetches.load(Relaxed)), ("1", 2));
        let (endless, fake) = provider(9, vec![Ok(Lifetime::Endless)]);
        assert_eq!(key(&endless).await, "0");
        advance(Duration::from_secs(86_400 * 30)).await;
        assert_eq!((key(&endless).await.as_str(), fake.fetches.load(Relaxed)), ("0", 1));
    }
}
