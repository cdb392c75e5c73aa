//! IAM Identity Center (SSO): the token that `aws sso login` keeps, and the role that it is for.
//!
//! ```text
//!  ~/.aws/sso/cache/SHA1.json --> token --> GetRoleCredentials --> keys
//!                `--< refreshed token <-- CreateToken <-- near its end, where the file allows it
//! ```

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use object_store::aws::AwsCredential;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::{
    CredentialError, Found, Lifetime, Whose,
    http::{CredentialHttp, HttpAnswer, Service, is_transient, request},
    limits::{REFRESH_BEFORE_END, TOKEN_BYTES_MAX, TOKEN_SECONDS_MAX},
    now, parse_time,
    profile::SsoRole,
};

const TOKEN_HEADER: &str = "x-amz-sso_bearer_token";

/// File of a cached token. Fields that this program does not know stay as they are.
struct CachedToken {
    path: PathBuf,
    file: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RoleAnswer {
    role_credentials: RoleCredentials,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RoleCredentials {
    access_key_id: String,
    secret_access_key: String,
    session_token: String,
    /// End in milliseconds since 1970.
    expiration: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RefreshedToken {
    access_token: String,
    expires_in: u64,
    refresh_token: Option<String>,
}

/// Returns the credentials of a role for who has logged in.
pub(super) async fn credentials(
    http: &CredentialHttp,
    role: &SsoRole,
    cache: Option<&Path>,
) -> Result<Found, CredentialError> {
    let Some(cache) = cache else {
        let text = "HOME is not set, and with it where `aws sso login` keeps its tokens";
        return Err(CredentialError::Settings(format!("profile {}: {text}", role.profile)));
    };
    let path = cache.join(format!("{}.json", sha1_hex(&role.cache_key)));
    let token = token(http, role, path).await?;
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let url = format!(
        "{}/federation/credentials?role_name={}&account_id={}",
        http.endpoint(Service::Sso, &role.region)?,
        encoded(&role.role_name),
        encoded(&role.account_id)
    );
    let request = request("GET", &url, &[(TOKEN_HEADER, &token)], String::new())?;
    let HttpAnswer { status, body } = http.call(request).await?;
    let (name, account) = (&role.role_name, &role.account_id);
    match status {
        200 => {}
        401 => return Err(log_in(role, "SSO does not take the cached token")),
        _ => {
            let text = format!(
                "profile {}: SSO does not give the role {name} of account {account}: status \
                 {status}{}",
                role.profile,
                message(&body)
            );
            return Err(if is_transient(status) {
                CredentialError::Unavailable(text)
            } else {
                CredentialError::Settings(text)
            });
        }
    }
    let answer: RoleAnswer = serde_json::from_slice(&body).map_err(|_| {
        CredentialError::Unavailable("SSO: expected roleCredentials as JSON".to_owned())
    })?;
    let found = answer.role_credentials;
    Ok(Found {
        lifetime: Lifetime::Until(UNIX_EPOCH + Duration::from_millis(found.expiration)),
        credentials: Whose::Keys(Arc::new(AwsCredential {
            key_id: found.access_key_id,
            secret_key: found.secret_access_key,
            token: Some(found.session_token),
        })),
    })
}

/// Returns the cached token, refreshed if it ends soon.
async fn token(
    http: &CredentialHttp,
    role: &SsoRole,
    path: PathBuf,
) -> Result<String, CredentialError> {
    let mut cached = CachedToken::read(role, path).await?;
    let end = cached.text("expiresAt").and_then(parse_time);
    let malformed = |key: &str| log_in(role, &format!("{} has no {key}", cached.path.display()));
    let token = cached.text("accessToken").ok_or_else(|| malformed("accessToken"))?.to_owned();
    let left = end.ok_or_else(|| malformed("expiresAt"))?.duration_since(now());
    if left.as_ref().is_ok_and(|left| REFRESH_BEFORE_END < *left) {
        return Ok(token);
    }
    match cached.refresh(http, &role.region).await {
        Ok(Some(token)) => Ok(token),
        // It is good a little longer.
        _ if left.is_ok() => Ok(token),
        Ok(None) => Err(log_in(role, &format!("the token in {} ended", cached.path.display()))),
        Err(error @ CredentialError::Unavailable(_)) => Err(error),
        Err(CredentialError::Settings(why)) => Err(log_in(role, &why)),
    }
}

impl CachedToken {
    async fn read(role: &SsoRole, path: PathBuf) -> Result<Self, CredentialError> {
        let of_file = path.clone();
        let read = spawn_blocking(move || super::read_text(&of_file, TOKEN_BYTES_MAX)).await;
        let text = match read {
            Ok(Ok(text)) => text,
            Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => {
                return Err(log_in(role, &format!("there is no token in {}", path.display())));
            }
            Ok(Err(error)) => {
                return Err(log_in(role, &format!("{}: {error}", path.display())));
            }
            Err(_) => return Err(CredentialError::Unavailable("the runtime has stopped".into())),
        };
        match serde_json::from_str(&text) {
            Ok(file) => Ok(Self { path, file }),
            Err(_) => Err(log_in(role, &format!("{} is no JSON", path.display()))),
        }
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.file.get(key)?.as_str()
    }

    /// Exchanges the refresh token for a new token, if there is one, and keeps that for others.
    async fn refresh(
        &mut self,
        http: &CredentialHttp,
        region: &str,
    ) -> Result<Option<String>, CredentialError> {
        let all = ["clientId", "clientSecret", "refreshToken"].map(|key| self.text(key));
        let [Some(client_id), Some(client_secret), Some(refresh_token)] = all else {
            return Ok(None);
        };
        if self.text("registrationExpiresAt").and_then(parse_time).is_some_and(|end| end <= now()) {
            return Ok(None);
        }
        let body = json!({
            "clientId": client_id,
            "clientSecret": client_secret,
            "grantType": "refresh_token",
            "refreshToken": refresh_token,
        });
        let url = format!("{}/token", http.endpoint(Service::SsoOidc, region)?);
        let content = ("content-type", "application/json");
        let request = request("POST", &url, &[content], body.to_string())?;
        let HttpAnswer { status, body } = http.call(request).await?;
        if status != 200 {
            let text =
                format!("SSO refused to refresh the token: status {status}{}", message(&body));
            return Err(if is_transient(status) {
                CredentialError::Unavailable(text)
            } else {
                CredentialError::Settings(text)
            });
        }
        let fresh: RefreshedToken = serde_json::from_slice(&body)
            .map_err(|_| CredentialError::Unavailable("SSO: expected a token as JSON".into()))?;
        // A longer time than this is no lifetime of a token, and the calendar ends somewhere.
        let seconds = fresh.expires_in.min(TOKEN_SECONDS_MAX);
        let end = now() + Duration::from_secs(seconds);
        let end = chrono::DateTime::<chrono::Utc>::from(end);
        self.file["accessToken"] = Value::String(fresh.access_token.clone());
        self.file["expiresAt"] = Value::String(end.format("%Y-%m-%dT%H:%M:%SZ").to_string());
        if let Some(token) = fresh.refresh_token {
            self.file["refreshToken"] = Value::String(token);
        }
        let (path, text) = (self.path.clone(), self.file.to_string());
        let written = spawn_blocking(move || replace(&path, &text)).await;
        if let Ok(Err(error)) = written {
            // The token is good all the same, but the next refresh may fail.
            log::warn!("cannot write the refreshed token to {}: {error}", self.path.display());
        }
        Ok(Some(fresh.access_token))
    }
}

fn log_in(role: &SsoRole, why: &str) -> CredentialError {
    let profile = &role.profile;
    let quoted = if profile.contains(' ') { format!("'{profile}'") } else { profile.clone() };
    CredentialError::Settings(format!(
        "profile {profile}: {why}; run `aws sso login --profile {quoted}`"
    ))
}

/// Returns what an error of SSO says of itself.
fn message(body: &[u8]) -> String {
    let body: Option<Value> = serde_json::from_slice(body).ok();
    let text = |key: &str| body.as_ref()?.get(key)?.as_str();
    ["message", "error_description", "error"]
        .into_iter()
        .find_map(text)
        .map_or_else(String::new, |text| format!(", {text}"))
}

fn sha1_hex(text: &str) -> String {
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Replaces a file as a whole; only its owner may read it.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension("json.busload");
    let _ = fs::remove_file(&beside);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(beside, path)
}
