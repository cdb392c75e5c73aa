//! Bearer tokens, and tokens that Dolt's clients sign: who sends one may read the stores that it
//! is for, and nothing else.
//!
//! ```text
//!  token --> file: SHA-256, or a JWT of a known key --> patterns --+
//!        `-> endpoint, if there is one ---------------> asked -----+--> may it read the store?
//! ```

mod endpoint;
mod file;
mod jwt;
pub mod limits;
mod pattern;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use sha2::{Digest, Sha256};

pub use self::file::read_text;
use self::{
    endpoint::{Answer, Endpoint},
    file::{Entries, Rights},
    jwt::{JwtError, Unverified},
    limits::{PATTERN_BYTES_MAX, TOKEN_BYTES_MAX},
};

/// Counters of requests with tokens.
#[derive(Debug, Default)]
pub struct TokenMetrics {
    /// Checks that let a token read a store.
    pub accepted: AtomicU64,
    /// Tokens that are wrong, or may not read what they asked for.
    pub refused: AtomicU64,
    /// Requests to the endpoint.
    pub endpoint_calls: AtomicU64,
    /// Requests that the endpoint did not answer as it should.
    pub endpoint_failures: AtomicU64,
    /// Questions that a kept answer, or one under way, served.
    pub cache_hits: AtomicU64,
}

/// Verifier of all kinds of tokens.
pub struct Tokens {
    file: Option<PathBuf>,
    entries: RwLock<Arc<Entries>>,
    endpoint: Option<Arc<Endpoint>>,
    /// Audiences of JWTs; if there are none, the host of each request is one.
    audiences: Vec<String>,
    metrics: Arc<TokenMetrics>,
}

/// Sender of a request with a token. It is in the request's extensions.
#[derive(Clone)]
pub struct Reader {
    rights: Known,
    metrics: Arc<TokenMetrics>,
}

#[derive(Clone)]
enum Known {
    /// The token is in the file.
    Rights(Arc<Rights>),
    /// The endpoint has to be asked about each store.
    Ask(Arc<Endpoint>, Arc<str>),
}

/// Reason why a token is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// It is longer than tokens are.
    Long,
    /// Neither file nor endpoint knows it.
    Unknown,
    /// It is not valid any more.
    Expired,
    /// It is a JWT that is not right.
    Jwt(JwtError),
    /// The endpoint did not say whether it is right.
    Unavailable,
}

impl Tokens {
    /// Reads the file, and makes the client of the endpoint.
    pub fn new(
        file: Option<&Path>,
        url: Option<String>,
        audiences: Vec<String>,
    ) -> Result<Self, String> {
        let metrics = Arc::<TokenMetrics>::default();
        let entries = file.map(Entries::read).transpose()?.unwrap_or_default();
        let endpoint = url.map(|url| Endpoint::new(url, Arc::clone(&metrics))).transpose()?;
        Ok(Self {
            file: file.map(Path::to_owned),
            entries: RwLock::new(Arc::new(entries)),
            endpoint: endpoint.map(Arc::new),
            audiences,
            metrics,
        })
    }

    /// Reads the file again and forgets what the endpoint has answered. Returns whether there is a
    /// file; after an error everything stays as it was.
    pub fn reload(&self) -> Result<bool, String> {
        let entries = self.file.as_deref().map(Entries::read).transpose()?;
        if let Some(endpoint) = &self.endpoint {
            endpoint.forget();
        }
        let has_file = entries.is_some();
        if let Some(entries) = entries {
            *self.entries.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(entries);
        }
        Ok(has_file)
    }

    /// Returns the counters of tokens.
    pub fn metrics(&self) -> &Arc<TokenMetrics> {
        &self.metrics
    }

    /// Returns who sent a token to this host, at this time since 1970. What the endpoint knows is
    /// not verified before a store is read.
    pub fn reader(
        &self,
        token: &str,
        host: Option<&str>,
        now: Duration,
    ) -> Result<Reader, TokenError> {
        let found = self.find(token, host, now);
        if found.is_err() {
            self.metrics.refused.fetch_add(1, Relaxed);
        }
        found.map(|rights| Reader { rights, metrics: Arc::clone(&self.metrics) })
    }

    fn find(&self, token: &str, host: Option<&str>, now: Duration) -> Result<Known, TokenError> {
        if token.is_empty() || TOKEN_BYTES_MAX < token.len() {
            return Err(TokenError::Long);
        }
        let entries = Arc::clone(&self.entries.read().unwrap_or_else(PoisonError::into_inner));
        let hash: [u8; 32] = Sha256::digest(token).into();
        let mut rights = entries.tokens.get(&hash);
        let jwt = Unverified::parse(token);
        let named = jwt.as_ref().and_then(|jwt| Some((jwt, entries.keys.get(jwt.key_id()?)?)));
        if let (None, Some((jwt, (key, of_key)))) = (rights, named) {
            let is_audience = |audience: &str| match &*self.audiences {
                [] => host.is_some_and(|host| is_host(audience, host)),
                all => all.iter().any(|known| known == audience),
            };
            jwt.verify(key, now, is_audience).map_err(TokenError::Jwt)?;
            rights = Some(of_key);
        }
        match (rights, &self.endpoint) {
            (Some(rights), _) if rights.expires.is_some_and(|end| end <= now) => {
                Err(TokenError::Expired)
            }
            (Some(rights), _) => Ok(Known::Rights(Arc::clone(rights))),
            (None, Some(endpoint)) => Ok(Known::Ask(Arc::clone(endpoint), token.into())),
            (None, None) => Err(TokenError::Unknown),
        }
    }
}

/// Checks the text of a file.
pub fn check_text(text: &str) -> Result<(), String> {
    Entries::parse(text).map(drop)
}

/// Returns whether an audience is this host, with its port or without. Dolt leaves out the brackets
/// of an IPv6 address.
fn is_host(audience: &str, host: &str) -> bool {
    let without_port = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let without_brackets =
        without_port.strip_prefix('[').and_then(|address| address.strip_suffix(']'));
    [Some(host), Some(without_port), without_brackets]
        .into_iter()
        .flatten()
        .any(|known| audience.eq_ignore_ascii_case(known))
}

impl Reader {
    /// Returns whether the token is known to be good: it is in the file, or the endpoint's last
    /// word about it was a permission that still holds.
    pub fn is_known(&self) -> bool {
        match &self.rights {
            Known::Rights(_) => true,
            Known::Ask(endpoint, token) => endpoint.knows(token),
        }
    }

    /// Returns whether the sender may read a store, which need not exist.
    pub async fn may_read(&self, store: &str) -> Result<bool, TokenError> {
        let checked = match &self.rights {
            Known::Rights(rights) => Ok(rights.read.fit(store)),
            Known::Ask(..) if PATTERN_BYTES_MAX < store.len() => Ok(false),
            Known::Ask(endpoint, token) => match endpoint.ask(token, store).await {
                Answer::Allowed => Ok(true),
                Answer::Forbidden => Ok(false),
                Answer::Unknown => Err(TokenError::Unknown),
                Answer::Unavailable => Err(TokenError::Unavailable),
            },
        };
        match checked {
            Ok(true) => _ = self.metrics.accepted.fetch_add(1, Relaxed),
            // Counted as a failure of the endpoint.
            Err(TokenError::Unavailable) => {}
            Ok(false) | Err(_) => _ = self.metrics.refused.fetch_add(1, Relaxed),
        }
        checked
    }
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Long => write!(f, "expected a token of 1 to {TOKEN_BYTES_MAX} bytes"),
            Self::Unknown => f.write_str("this server does not know the token, or its key"),
            Self::Expired => f.write_str("the token, or its key, has expired"),
            Self::Jwt(error) => error.fmt(f),
            Self::Unavailable => {
                f.write_str("the endpoint that checks tokens does not answer; try again later")
            }
        }
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tokens")
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reader")
    }
}

#[cfg(test)]
mod tests;
