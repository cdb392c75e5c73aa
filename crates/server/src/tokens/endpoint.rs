//! The endpoint that checks tokens: asked once for a token and a store, however many wait.
//!
//! ```text
//!  (token, store) --> kept answer, or one under way --> wait for it
//!                 `-> POST {"token", "store"} --> 200 {"allowed"} or {"read"}, "ttl_seconds"
//!                                             --> 401 no token, 403 no right
//!                                             --> anything else: nobody knows, which is no "yes"
//! ```
//!
//! Tokens are kept as hashes.

use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError, atomic::Ordering::Relaxed},
    time::Duration,
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use quick_cache::unsync::Cache;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

use super::{
    TokenMetrics,
    limits::{
        ANSWER_BYTES_MAX, ANSWER_COUNT_MAX, ENDPOINT_CALLS_MAX, ENDPOINT_TIMEOUT, FAILURE_PAUSE,
        REFUSAL_TTL, TTL_DEFAULT, TTL_MAX,
    },
    pattern::Patterns,
};

/// Answer of the endpoint about a token and a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The token may read the store.
    Allowed,
    /// The token may not read the store (403).
    Forbidden,
    /// There is no such token (401).
    Unknown,
    /// The endpoint did not answer as it should.
    Unavailable,
}

/// Client of the endpoint.
pub struct Endpoint {
    url: String,
    client: reqwest::Client,
    permits: Arc<Semaphore>,
    answers: Mutex<Cache<[u8; 32], Asked>>,
    /// Tokens with a permission for any store, and the time until which it holds.
    good: Arc<Mutex<Cache<[u8; 32], Instant>>>,
    metrics: Arc<TokenMetrics>,
}

/// A question that was asked.
#[derive(Clone)]
struct Asked {
    answer: Shared<BoxFuture<'static, Answer>>,
    /// Time until which the answer holds, once there is one.
    until: Arc<OnceLock<Instant>>,
}

impl Endpoint {
    /// Makes a client, which connects when it is first needed.
    pub fn new(url: String, metrics: Arc<TokenMetrics>) -> Result<Self, String> {
        // The client takes the provider of the process; it may be there already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // A redirect would take tokens elsewhere, and so would a proxy.
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .timeout(ENDPOINT_TIMEOUT)
            .build()
            .map_err(|error| format!("token_url: the client cannot be made: {error}"))?;
        let permits = Arc::new(Semaphore::new(ENDPOINT_CALLS_MAX));
        let answers = Mutex::new(Cache::new(ANSWER_COUNT_MAX));
        let good = Arc::new(Mutex::new(Cache::new(ANSWER_COUNT_MAX)));
        Ok(Self { url, client, permits, answers, good, metrics })
    }

    /// Returns whether a token may read a store.
    pub async fn ask(&self, token: &str, store: &str) -> Answer {
        let length = (token.len() as u64).to_be_bytes();
        let key = Sha256::new().chain_update(length).chain_update(token).chain_update(store);
        let answer = self.kept_or_asked(key.finalize().into(), token, store);
        answer.await
    }

    /// Returns whether a permission of the token holds.
    pub fn knows(&self, token: &str) -> bool {
        let good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        let hash: [u8; 32] = Sha256::digest(token).into();
        good.peek(&hash).is_some_and(|until| Instant::now() < *until)
    }

    fn kept_or_asked(
        &self,
        key: [u8; 32],
        token: &str,
        store: &str,
    ) -> Shared<BoxFuture<'static, Answer>> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let is_valid =
            |asked: &Asked| asked.until.get().is_none_or(|until| Instant::now() < *until);
        if let Some(asked) = answers.get(&key).filter(|asked| is_valid(asked)) {
            self.metrics.cache_hits.fetch_add(1, Relaxed);
            return asked.answer.clone();
        }
        let until = Arc::new(OnceLock::new());
        let asking = self.asking(json!({"token": token, "store": store}), store.to_owned());
        let (noted, metrics) = (Arc::clone(&until), Arc::clone(&self.metrics));
        let (good, hash) = (Arc::clone(&self.good), <[u8; 32]>::from(Sha256::digest(token)));
        // A task of its own, so that a client that leaves takes nobody's answer along.
        let task = tokio::spawn(async move {
            let (answer, ttl) = timeout(ENDPOINT_TIMEOUT, asking)
                .await
                .unwrap_or((Answer::Unavailable, FAILURE_PAUSE));
            if answer == Answer::Unavailable {
                metrics.endpoint_failures.fetch_add(1, Relaxed);
            }
            {
                let mut good = good.lock().unwrap_or_else(PoisonError::into_inner);
                match answer {
                    Answer::Allowed => good.insert(hash, Instant::now() + ttl),
                    Answer::Unknown => _ = good.remove(&hash),
                    Answer::Forbidden | Answer::Unavailable => {}
                }
            }
            // Nobody else sets it.
            let _ = noted.set(Instant::now() + ttl);
            answer
        });
        let answer = task.map(|done| done.unwrap_or(Answer::Unavailable)).boxed().shared();
        answers.insert(key, Asked { answer: answer.clone(), until });
        answer
    }

    fn asking(
        &self,
        question: Value,
        store: String,
    ) -> impl Future<Output = (Answer, Duration)> + Send + use<> {
        let (permits, metrics) = (Arc::clone(&self.permits), Arc::clone(&self.metrics));
        let request = self
            .client
            .post(&self.url)
            .header("content-type", "application/json")
            .body(question.to_string());
        async move {
            let _permit = permits.acquire().await;
            metrics.endpoint_calls.fetch_add(1, Relaxed);
            let failed = (Answer::Unavailable, FAILURE_PAUSE);
            let Ok(mut response) = request.send().await else { return failed };
            match response.status().as_u16() {
                200 => {}
                401 => return (Answer::Unknown, REFUSAL_TTL),
                403 => return (Answer::Forbidden, REFUSAL_TTL),
                _ => return failed,
            }
            let mut body = Vec::new();
            loop {
                match response.chunk().await {
                    Ok(Some(chunk)) if body.len() + chunk.len() <= ANSWER_BYTES_MAX => {
                        body.extend_from_slice(&chunk);
                    }
                    Ok(None) => break,
                    Ok(Some(_)) | Err(_) => return failed,
                }
            }
            parsed(&body, &store).unwrap_or(failed)
        }
    }

    /// Forgets all answers that are kept.
    pub fn forget(&self) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.good.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Returns what the body of a 200 says about the store, and how long that holds; none if it is not
/// as expected.
fn parsed(body: &[u8], store: &str) -> Option<(Answer, Duration)> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let is_allowed = match (value.get("read"), value.get("allowed")) {
        (Some(read), None) => {
            let texts: Option<Vec<&str>> = read.as_array()?.iter().map(Value::as_str).collect();
            Patterns::new(texts?).ok()?.fit(store)
        }
        (None, Some(allowed)) => allowed.as_bool()?,
        _ => return None,
    };
    let ttl = match value.get("ttl_seconds") {
        None => TTL_DEFAULT,
        Some(seconds) => Duration::from_secs(seconds.as_u64()?).min(TTL_MAX),
    };
    Some(match is_allowed {
        true => (Answer::Allowed, ttl),
        false => (Answer::Forbidden, ttl.min(REFUSAL_TTL)),
    })
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Endpoint")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_yes_only_if_it_says_so() {
        let answer = |text: &str| parsed(text.as_bytes(), "org/db");
        let allowed = |seconds| Some((Answer::Allowed, Duration::from_secs(seconds)));
        assert_eq!(answer(r#"{"allowed": true}"#), allowed(60));
        assert_eq!(answer(r#"{"read": ["x", "org/*"], "ttl_seconds": 5}"#), allowed(5));
        assert_eq!(answer(r#"{"allowed": true, "ttl_seconds": 99999}"#), allowed(3600));
        for no in [r#"{"allowed": false}"#, r#"{"read": []}"#, r#"{"read": ["x/*"]}"#] {
            assert_eq!(answer(no), Some((Answer::Forbidden, REFUSAL_TTL)), "{no}");
        }
        for other in [
            "",
            "{}",
            "true",
            r#"{"allowed": "true"}"#,
            r#"{"allowed": 1}"#,
            r#"{"read": "**"}"#,
            r#"{"read": ["**/x"]}"#,
            r#"{"allowed": true, "read": []}"#,
            r#"{"allowed": true, "ttl_seconds": -1}"#,
        ] {
            assert_eq!(answer(other), None, "{other}");
        }
    }
}
