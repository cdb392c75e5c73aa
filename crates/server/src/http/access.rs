//! Access to HTTP: on loopback addresses every client may send requests, elsewhere only clients
//! that know the password.
//!
//! ```text
//!  request --> guard --+-- foreign host or site (`names`) --> 403 (gRPC: PERMISSION_DENIED)
//!                      +-- /healthz, /readyz --------------> answered
//!                      +-- downloads ----------------------> check ?key=KEY of their table
//!                      |                                     themselves
//!                      +-- else: authorization: Basic -----> answered, or 401 (UNAUTHENTICATED),
//!                                                            or after too many wrong passwords
//!                                                            429 (RESOURCE_EXHAUSTED)
//! ```
//!
//! The guard wraps the router, so that no path can be forgotten. The password is that of Redis
//! clients, with any user name. After a few wrong ones an address may try one a second
//! (`busload_pipeline::guesses`).
//!
//! **Keys.** Dolt's clients download without credentials, so the URLs that they are given carry a
//! key: a MAC of the table's name, keyed by a secret derived from the password. It survives
//! restarts, is valid as long as the password is, and opens the downloads of one table only. The
//! derivation is slow, because URLs end up in logs of proxies, where somebody might use a key to
//! guess the password offline.

use std::{
    fmt,
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    Extension,
    extract::{Request, State as Extract},
    http::{HeaderMap, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use base64::{Engine, prelude::BASE64_STANDARD, prelude::BASE64_URL_SAFE_NO_PAD};
use busload_pipeline::{
    password_limiter::{ClientAddress, PasswordLimiter, whole_seconds},
    secret::is_secret,
};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio::time::Instant;
use tonic::{Status as Refusal, body::Body};

use super::{
    front::Front,
    routes::{self, Caller},
};
use crate::grpc;

/// Value of `WWW-Authenticate` in a refusal (RFC 7617).
const CHALLENGE: &str = "Basic realm=\"busload\"";
/// The only authentication scheme that is accepted.
const SCHEME: &str = "Basic";
/// Length of a key before it is encoded as text: too long to guess.
const KEY_BYTES: usize = 16;
/// Salt of the derivation, so that the secret serves no other purpose.
const KEY_PURPOSE: &[u8] = b"busload: keys of downloads, 1";
/// Iterations of the derivation: tens of milliseconds at a start, and for each offline guess.
const KEY_DERIVATION_STEPS: u32 = 100_000;

type Code = Hmac<Sha256>;

/// Check of credentials: against the password, or none if every client may send requests.
#[derive(Clone, Default)]
pub struct Access(Option<Arc<Secret>>);

struct Secret {
    password: Vec<u8>,
    /// MAC that makes the keys of downloads.
    keys: Code,
    /// Limiter of wrong passwords.
    guesses: Mutex<PasswordLimiter>,
    /// Start of the limiter's time.
    started: Instant,
}

/// Client at the other end of a connection. It is in the extensions of every request.
#[derive(Debug)]
pub struct Visitor {
    address: ClientAddress,
    /// Set if the last password on this connection was right. If so, wrong ones of other clients
    /// at the same address do not lock it out.
    knows: AtomicBool,
}

impl Visitor {
    /// Visitor at this address.
    pub fn new(peer: IpAddr) -> Arc<Self> {
        Arc::new(Self { address: peer.into(), knows: AtomicBool::new(false) })
    }
}

/// Reason why a client may not ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The request has no credentials.
    Missing,
    /// The credentials are of another scheme, or cannot be decoded.
    Unknown,
    /// The password is wrong.
    Wrong,
    /// Too many wrong passwords came from the address; none is checked for this many seconds.
    TooMany(u64),
}

impl Access {
    /// Makes a check that asks for this password.
    pub fn asking(password: &[u8]) -> Self {
        let derived = derived(password, KEY_PURPOSE, KEY_DERIVATION_STEPS);
        Self(Some(Arc::new(Secret {
            password: password.to_owned(),
            keys: code(&derived),
            guesses: Mutex::default(),
            started: Instant::now(),
        })))
    }

    /// Returns whether a password is asked for.
    pub fn asks(&self) -> bool {
        self.0.is_some()
    }

    /// Checks the credentials in these headers, if a password is asked for.
    pub fn check(&self, headers: &HeaderMap, visitor: &Visitor) -> Result<(), Denied> {
        let Some(secret) = &self.0 else { return Ok(()) };
        let given = headers.get(header::AUTHORIZATION).ok_or(Denied::Missing)?;
        let password = basic_password(given.as_bytes()).ok_or(Denied::Unknown)?;
        let mut guesses = secret.guesses.lock().unwrap_or_else(PoisonError::into_inner);
        let now = secret.started.elapsed();
        if let Some(wait) = guesses.wait(visitor.address, now)
            && !visitor.knows.load(Ordering::Relaxed)
        {
            return Err(Denied::TooMany(whole_seconds(wait)));
        }
        let is_right = is_secret(&password, &secret.password);
        visitor.knows.store(is_right, Ordering::Relaxed);
        if is_right {
            return Ok(());
        }
        guesses.note_wrong(visitor.address, now);
        Err(Denied::Wrong)
    }

    /// Returns the key for the URLs of a table's downloads, with which clients send no credentials;
    /// none where no password is asked for.
    pub fn key(&self, table: &str) -> Option<String> {
        let secret = self.0.as_ref()?;
        let code = secret.keys.clone().chain_update(table).finalize().into_bytes();
        Some(BASE64_URL_SAFE_NO_PAD.encode(&code[..KEY_BYTES]))
    }

    /// Returns whether a URL's key is that of the table, or no password is asked for.
    pub fn allows_key(&self, table: &str, key: Option<&str>) -> bool {
        let Some(expected) = self.key(table) else { return true };
        key.is_some_and(|key| is_secret(key.as_bytes(), expected.as_bytes()))
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.asks() { "Access(password)" } else { "Access(everybody)" })
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "this server asks for a password",
            Self::Unknown => "these credentials are of another kind than this server takes",
            Self::Wrong => "this is not the password of this server",
            Self::TooMany(seconds) => {
                return write!(
                    f,
                    "too many wrong passwords came from this address, so none is looked at now; \
                     try again in {seconds} s"
                );
            }
        })?;
        f.write_str(
            "; expected `authorization: Basic` with any user name and the password (of dolt: \
             --user NAME with each clone, fetch and pull, and the password in \
             DOLT_REMOTE_PASSWORD)",
        )
    }
}

impl Denied {
    fn into_response(self, headers: &HeaderMap) -> Response {
        if grpc::is_call(headers) {
            let refusal = match self {
                Self::TooMany(_) => Refusal::resource_exhausted(self.to_string()),
                _ => Refusal::unauthenticated(self.to_string()),
            };
            return refusal.into_http::<Body>().into_response();
        }
        if let Self::TooMany(seconds) = self {
            let retry_after = [(header::RETRY_AFTER, seconds.to_string())];
            return (StatusCode::TOO_MANY_REQUESTS, retry_after, format!("{self}\n"))
                .into_response();
        }
        let challenge = [(header::WWW_AUTHENTICATE, CHALLENGE)];
        (StatusCode::UNAUTHORIZED, challenge, format!("{self}\n")).into_response()
    }
}

/// Checks every request before the router gets it.
pub async fn guard(
    Extract(front): Extract<Arc<Front>>,
    Extension(visitor): Extension<Arc<Visitor>>,
    request: Request,
    next: Next,
) -> Response {
    let Front { access, names, metrics, .. } = &*front;
    if let Err(foreign) = names.check(access.asks(), request.uri(), request.headers()) {
        metrics.foreign_refused.fetch_add(1, Ordering::Relaxed);
        return foreign.into_response(request.headers());
    }
    let checked = match routes::caller(request.uri().path()) {
        Caller::Anybody | Caller::UrlKey => Ok(()),
        Caller::Password => access.check(request.headers(), &visitor),
    };
    match checked {
        Ok(()) => next.run(request).await,
        Err(denied) => {
            match denied {
                Denied::Missing => {}
                Denied::Unknown | Denied::Wrong => {
                    _ = metrics.auth_denied.fetch_add(1, Ordering::Relaxed)
                }
                Denied::TooMany(_) => _ = metrics.auth_refused.fetch_add(1, Ordering::Relaxed),
            }
            denied.into_response(request.headers())
        }
    }
}

/// Returns the header value that clients send to give a password.
pub fn basic(password: &[u8]) -> String {
    format!("{SCHEME} {}", BASE64_STANDARD.encode([b"busload:", password].concat()))
}

/// Returns the password in credentials of the scheme Basic.
fn basic_password(credentials: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(credentials).ok()?;
    let (scheme, encoded) = text.split_once(' ')?;
    let decoded = BASE64_STANDARD.decode(encoded.trim()).ok()?;
    // A user name holds no colon, a password may.
    let colon = decoded.iter().position(|&byte| byte == b':')?;
    scheme.eq_ignore_ascii_case(SCHEME).then(|| decoded[colon + 1..].to_vec())
}

fn code(key: &[u8]) -> Code {
    Code::new_from_slice(key).expect("a key of any length is one")
}

/// Computes the first block of PBKDF2 (RFC 8018, 5.2).
fn derived(password: &[u8], salt: &[u8], steps: u32) -> [u8; 32] {
    let code = code(password);
    let mut step: [u8; 32] =
        code.clone().chain_update(salt).chain_update([0, 0, 0, 1]).finalize().into_bytes().into();
    let mut derived = step;
    for _ in 1..steps {
        step = code.clone().chain_update(step).finalize().into_bytes().into();
        derived.iter_mut().zip(step).for_each(|(derived, step)| *derived ^= step);
    }
    derived
}

#[cfg(test)]
mod tests;
