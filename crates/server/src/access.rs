//! Identity of clients over HTTP: the users of Redis clients, senders of tokens, and peers. On
//! loopback addresses without a file of users nobody is asked who they are. `http::guard` asks here
//! before the router gets a request.
//!
//! **Tokens** ([`crate::tokens`]) are `Bearer` without a colon. Their senders are no users: they
//! read stores, and the handlers ask for each store.
//!
//! **Peers** ([`crate::peers`]) ask each other for chunks as `Busload-Peer TIME.MAC`, a key made
//! like those of downloads. They read the chunks of every store, and are no users.
//!
//! Credentials of users are `Basic`, or `Bearer USER:PASSWORD`. Without a file of users any name
//! stands for `default`, whose password is that of the configuration. After a few wrong passwords
//! an address may try one a second (`busload_pipeline::password_limiter`); a token that is known to
//! be good passes. Hashes are computed on the workers of the users.
//!
//! **Keys.** Dolt's clients download without credentials, so the URLs that they are given carry a
//! key: a time, and a MAC of the time and the table's name, keyed by a secret derived from the
//! password. The key opens the downloads of one table until then. It survives restarts and is
//! valid in other processes with the same password; without one the secret is random and ends with
//! the process. The derivation is slow, because URLs end up in logs of proxies, where somebody
//! might use a key to guess the password offline.

use std::{
    fmt,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::http::{HeaderMap, header};
use base64::{Engine, prelude::BASE64_STANDARD, prelude::BASE64_URL_SAFE_NO_PAD};
use busload_acl::{Attempt, DEFAULT, User, Users};
use busload_pipeline::{
    limits::VERIFICATION_TRIES,
    password_limiter::{ClientAddress, PasswordLimiter, whole_seconds},
    secret::is_secret,
};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio::time::Instant;

use crate::{
    peers::limits::PEER_KEY_LIFETIME,
    tokens::{Reader, TokenError, Tokens},
};

/// Scheme of credentials that encodes user and password.
const BASIC: &str = "Basic";
/// Scheme of credentials that are `USER:PASSWORD` as they are.
const BEARER: &str = "Bearer";
/// Scheme of the key by which a peer logs in.
const PEER: &str = "Busload-Peer";
/// Subject of the MAC in that key: no name of a table begins so.
const PEER_SUBJECT: &str = "\0peer";
/// Length of a key's MAC before it is encoded as text: too long to guess.
const KEY_BYTES: usize = 16;
/// Salt of the derivation, so that the secret serves no other purpose.
const KEY_PURPOSE: &[u8] = b"busload: keys of downloads, 2";
/// Iterations of the derivation: tens of milliseconds at a start, and for each offline guess.
const KEY_DERIVATION_STEPS: u32 = 100_000;
/// Parts of its lifetime to which the end of a key is rounded up: Dolt's clients merge ranges of
/// equal URLs only.
const LIFETIME_PARTS: u64 = 8;

type Code = Hmac<Sha256>;

/// Check of credentials, or none if every client may send requests.
#[derive(Clone, Default)]
pub struct Access(Option<Arc<Guarded>>);

struct Guarded {
    users: Arc<Users>,
    tokens: Option<Arc<Tokens>>,
    /// MAC that makes the keys of downloads.
    keys: Code,
    lifetime: Duration,
    /// Limiter of wrong passwords.
    guesses: Mutex<PasswordLimiter>,
    /// Start of the limiter's time.
    started: Instant,
}

/// Client at the other end of a connection. It is in the extensions of every request.
#[derive(Debug)]
pub struct Visitor {
    address: ClientAddress,
    /// User whose password was the last right one on this connection. Its password is looked at
    /// even if other clients at the same address send wrong ones.
    knows: Mutex<Option<Arc<User>>>,
}

impl Visitor {
    /// Visitor at this address.
    pub fn new(peer: IpAddr) -> Arc<Self> {
        Arc::new(Self { address: peer.into(), knows: Mutex::default() })
    }

    fn knows(&self, name: &[u8]) -> bool {
        let knows = self.knows.lock().unwrap_or_else(PoisonError::into_inner);
        knows.as_ref().is_some_and(|user| user.name().as_bytes() == name)
    }

    fn note(&self, user: Option<Arc<User>>) {
        *self.knows.lock().unwrap_or_else(PoisonError::into_inner) = user;
    }
}

/// Sender of a request with a token. It is in the request's extensions.
#[derive(Clone, Debug)]
pub struct TokenSender {
    reader: Reader,
    access: Access,
    address: ClientAddress,
}

impl TokenSender {
    /// Returns whether the sender may read a store, which need not exist. A token that the endpoint
    /// does not know counts as a guess.
    pub async fn may_read(&self, store: &str) -> Result<bool, TokenError> {
        let checked = self.reader.may_read(store).await;
        if checked == Err(TokenError::Unknown) {
            self.access.note_wrong(self.address);
        }
        checked
    }
}

/// Mark of a request by a peer. It is in the request's extensions.
#[derive(Clone, Copy, Debug)]
pub struct PeerSender;

/// Reason why a client may not ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The request has no credentials.
    Missing,
    /// The request has no credentials, where tokens are as good as a user.
    MissingToken,
    /// The credentials are of another scheme, or cannot be decoded.
    Unknown,
    /// The password is wrong, or there is no such user.
    Wrong,
    /// Too many wrong passwords came from the address; none is checked for this many seconds.
    TooMany(u64),
    /// Too many passwords wait to be verified.
    Busy,
    /// The token is not taken.
    Token(TokenError),
    /// The key of a peer is wrong, or has expired: peers have the same password, and clocks that
    /// do not differ much.
    PeerKey,
    /// Tokens have no rights to this path.
    NotForTokens,
    /// The user may not run the command that shows or does as much.
    Forbidden(Box<str>, &'static str),
}

impl Access {
    /// Makes a check of users. Keys of downloads are valid for about `lifetime`; their secret is
    /// derived from the password, if there is one.
    pub fn of_users(
        users: Arc<Users>,
        password: Option<&[u8]>,
        lifetime: Duration,
        tokens: Option<Arc<Tokens>>,
    ) -> Self {
        let secret = match password {
            Some(password) => derived(password, KEY_PURPOSE, KEY_DERIVATION_STEPS),
            None => busload_acl::random(),
        };
        Self(Some(Arc::new(Guarded {
            users,
            tokens,
            keys: code(&secret),
            lifetime,
            guesses: Mutex::default(),
            started: Instant::now(),
        })))
    }

    /// Makes a check of the user `default` with this password, and no other users.
    #[cfg(test)]
    pub fn asking(password: &[u8]) -> Self {
        let commands = busload_pipeline::command::command_list().clone();
        let users = Users::open(commands, Some(password), None).unwrap();
        Self::of_users(Arc::new(users), Some(password), Duration::from_secs(3600), None)
    }

    /// Returns whether clients must say who they are.
    pub fn asks(&self) -> bool {
        self.0.as_ref().is_some_and(|guarded| !guarded.users.default_user().is_open())
    }

    /// Checks the credentials in these headers. Returns the user; `None` if there are no users.
    pub async fn check(
        &self,
        headers: &HeaderMap,
        visitor: &Visitor,
    ) -> Result<Option<Arc<User>>, Denied> {
        let Some(guarded) = &self.0 else { return Ok(None) };
        let Some(given) = headers.get(header::AUTHORIZATION) else {
            let default = guarded.users.default_user();
            return if default.is_open() { Ok(Some(default)) } else { Err(Denied::Missing) };
        };
        let (name, password) = credentials(given.as_bytes()).ok_or(Denied::Unknown)?;
        guarded.user(&name, &password, visitor).await.map(Some)
    }

    /// Returns the verifier of tokens, if there is one.
    pub fn tokens(&self) -> Option<&Arc<Tokens>> {
        self.0.as_ref()?.tokens.as_ref()
    }

    /// Checks the token in these headers, if there is one: `Bearer` without a colon.
    pub fn check_token(
        &self,
        headers: &HeaderMap,
        host: Option<&str>,
        visitor: &Visitor,
        now: Duration,
    ) -> Option<Result<TokenSender, Denied>> {
        let guarded = self.0.as_ref()?;
        let tokens = guarded.tokens.as_ref()?;
        let token = token(headers.get(header::AUTHORIZATION)?.as_bytes())?;
        let found = tokens.reader(token, host, now);
        // A good token passes, whatever others at its address have sent. So the limit spares the
        // endpoint, and hides from who guesses nothing but how a token is wrong: what protects a
        // token is its length.
        let is_known = found.as_ref().is_ok_and(Reader::is_known);
        if !is_known
            && let Some(wait) = guarded.guesses().wait(visitor.address, guarded.started.elapsed())
        {
            return Some(Err(Denied::TooMany(whole_seconds(wait))));
        }
        if found.is_err() {
            self.note_wrong(visitor.address);
        }
        let sender =
            |reader| TokenSender { reader, access: self.clone(), address: visitor.address };
        Some(found.map(sender).map_err(Denied::Token))
    }

    fn note_wrong(&self, address: ClientAddress) {
        if let Some(guarded) = &self.0 {
            guarded.guesses().note_wrong(address, guarded.started.elapsed());
        }
    }

    /// Returns the key for the URLs of a table's downloads, with which clients send no credentials;
    /// none where there are no users.
    pub fn key(&self, table: &str, now_ms: i64) -> Option<String> {
        let guarded = self.0.as_ref()?;
        Some(guarded.key(table, guarded.lifetime, now_ms))
    }

    /// Returns the credentials by which this server asks its peers for chunks; none where there are
    /// no users.
    pub fn peer_authorization(&self, now_ms: i64) -> Option<String> {
        let guarded = self.0.as_ref()?;
        Some(format!("{PEER} {}", guarded.key(PEER_SUBJECT, PEER_KEY_LIFETIME, now_ms)))
    }

    /// Checks the credentials of a peer in these headers, if there are any.
    pub fn check_peer(
        &self,
        headers: &HeaderMap,
        now_ms: i64,
    ) -> Option<Result<PeerSender, Denied>> {
        let guarded = self.0.as_ref()?;
        let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let (_, key) =
            value.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case(PEER))?;
        let is_right = guarded.allows(PEER_SUBJECT, key, now_ms);
        Some(if is_right { Ok(PeerSender) } else { Err(Denied::PeerKey) })
    }

    /// Returns how long keys are valid at least, where there are any.
    pub fn url_lifetime(&self) -> Option<Duration> {
        self.0.as_ref().map(|guarded| guarded.lifetime)
    }

    /// Returns whether a URL's key is that of the table and has not expired, or there are no users.
    pub fn allows_key(&self, table: &str, key: Option<&str>, now_ms: i64) -> bool {
        let Some(guarded) = &self.0 else { return true };
        key.is_some_and(|key| guarded.allows(table, key, now_ms))
    }
}

fn seconds(now_ms: i64) -> u64 {
    u64::try_from(now_ms / 1_000).unwrap_or_default()
}

impl Guarded {
    /// Makes a key that is valid for about `lifetime`.
    fn key(&self, subject: &str, lifetime: Duration, now_ms: i64) -> String {
        let lifetime_s = lifetime.as_secs();
        let step = (lifetime_s / LIFETIME_PARTS).max(1);
        let expires = (seconds(now_ms) + lifetime_s).div_ceil(step) * step;
        format!("{expires}.{}", self.mac(subject, expires))
    }

    /// Returns whether a key is of this subject and has not expired.
    fn allows(&self, subject: &str, key: &str, now_ms: i64) -> bool {
        let Some((digits, mac)) = key.split_once('.') else { return false };
        let expires = digits.parse::<u64>().ok().filter(|number| number.to_string() == digits);
        expires.is_some_and(|expires| {
            is_secret(mac.as_bytes(), self.mac(subject, expires).as_bytes())
                && seconds(now_ms) < expires
        })
    }

    fn mac(&self, table: &str, expires: u64) -> String {
        let code = self.keys.clone().chain_update(expires.to_be_bytes()).chain_update(table);
        BASE64_URL_SAFE_NO_PAD.encode(&code.finalize().into_bytes()[..KEY_BYTES])
    }

    /// Returns the user that credentials name. Without a file of users, any name is that of
    /// `default` unless there is such a user.
    fn named<'a>(&self, name: &'a [u8]) -> &'a [u8] {
        let is_default =
            name.is_empty() || !self.users.has_file() && self.users.get(name).is_none();
        if is_default { DEFAULT.as_bytes() } else { name }
    }

    async fn user(
        &self,
        name: &[u8],
        password: &[u8],
        visitor: &Visitor,
    ) -> Result<Arc<User>, Denied> {
        let name = self.named(name);
        if !visitor.knows(name)
            && let Some(wait) = self.guesses().wait(visitor.address, self.started.elapsed())
        {
            return Err(Denied::TooMany(whole_seconds(wait)));
        }
        let mut is_counted = false;
        for _ in 0..=VERIFICATION_TRIES {
            match self.users.begin(name, password) {
                Attempt::Right(user) => {
                    if is_counted {
                        self.guesses().note_right(visitor.address);
                    }
                    visitor.note(Some(Arc::clone(&user)));
                    return Ok(user);
                }
                Attempt::Wrong => break,
                Attempt::Slow(unverified) => {
                    let verification = self.users.verify(unverified).map_err(|_| Denied::Busy)?;
                    // Counted before it is known, so that many connections cannot guess at once.
                    if verification.is_first && !is_counted {
                        self.guesses().note_wrong(visitor.address, self.started.elapsed());
                    }
                    is_counted |= verification.is_first;
                    if !verification.result.await {
                        visitor.note(None);
                        return Err(Denied::Wrong);
                    }
                }
            }
        }
        visitor.note(None);
        if !is_counted {
            self.guesses().note_wrong(visitor.address, self.started.elapsed());
        }
        Err(Denied::Wrong)
    }

    fn guesses(&self) -> MutexGuard<'_, PasswordLimiter> {
        self.guesses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Access(users)" } else { "Access(everybody)" })
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "this server asks for a password",
            Self::MissingToken => {
                return f.write_str(
                    "this server asks for a token or a password; expected `authorization: Bearer \
                     TOKEN`, of dolt a key pair whose public key is in the server's file of \
                     tokens (dolt creds new, dolt creds use), or a user and password (of dolt: \
                     --user NAME, and the password in DOLT_REMOTE_PASSWORD)",
                );
            }
            Self::Unknown => "these credentials are of another kind than this server takes",
            Self::Wrong => "this is not the password of a user of this server",
            Self::Token(error) => return error.fmt(f),
            Self::PeerKey => {
                return f.write_str(
                    "the key of this peer is wrong or has expired; expected the same password and \
                     the same time at all peers",
                );
            }
            Self::NotForTokens => {
                return f
                    .write_str("a token gives no right to this; expected a user of this server");
            }
            Self::Busy => {
                return f.write_str("too many passwords wait to be verified; try again later");
            }
            Self::Forbidden(user, command) => {
                let command = command.replace('|', " ").to_uppercase();
                return write!(
                    f,
                    "user {user} has no right to this; expected a user who may run {command}"
                );
            }
            Self::TooMany(seconds) => {
                return write!(
                    f,
                    "too many wrong passwords came from this address, so none is looked at now; \
                     try again in {seconds} s"
                );
            }
        })?;
        f.write_str(
            "; expected `authorization: Basic` with a user (or any name, for the password of the \
             server) and the password (of dolt: --user NAME with each clone, fetch and pull, and \
             the password in DOLT_REMOTE_PASSWORD)",
        )
    }
}

/// Returns the header value that clients send to log in.
pub fn basic(user: &str, password: &[u8]) -> String {
    let text = [user.as_bytes(), b":", password].concat();
    format!("{BASIC} {}", BASE64_STANDARD.encode(text))
}

/// Returns the token in the value of `Authorization`: user and password have a colon between them.
fn token(value: &[u8]) -> Option<&str> {
    let (scheme, token) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case(BEARER) && !token.contains(':')).then_some(token)
}

/// Returns user and password in the value of `Authorization`.
fn credentials(value: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let space = value.iter().position(|&byte| byte == b' ')?;
    let (scheme, text) = (&value[..space], value[space..].trim_ascii());
    let decoded = if scheme.eq_ignore_ascii_case(BASIC.as_bytes()) {
        BASE64_STANDARD.decode(text).ok()?
    } else if scheme.eq_ignore_ascii_case(BEARER.as_bytes()) {
        text.to_vec()
    } else {
        return None;
    };
    // A user name holds no colon, a password may.
    let colon = decoded.iter().position(|&byte| byte == b':')?;
    Some((decoded[..colon].to_vec(), decoded[colon + 1..].to_vec()))
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
