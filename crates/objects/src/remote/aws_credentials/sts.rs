//! Roles: AssumeRole and AssumeRoleWithWebIdentity of STS.

use std::{path::PathBuf, sync::Arc};

use object_store::aws::{AwsAuthorizer, AwsCredential};
use serde::Deserialize;
use tokio::task::spawn_blocking;
use url::form_urlencoded::Serializer;

use super::{
    CredentialError, Found, Lifetime, Whose,
    http::{CredentialHttp, HttpAnswer, Service, is_transient, request},
    limits::TOKEN_BYTES_MAX,
    parse_time,
    profile::Role,
};

const API_VERSION: &str = "2011-06-15";
const SESSION_NAME_DEFAULT: &str = "busload";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Response {
    #[serde(alias = "AssumeRoleResult", alias = "AssumeRoleWithWebIdentityResult")]
    result: RoleResult,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RoleResult {
    credentials: Credentials,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Credentials {
    access_key_id: String,
    secret_access_key: String,
    session_token: String,
    expiration: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ErrorResponse {
    error: StsError,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StsError {
    code: String,
    #[serde(default)]
    message: String,
}

/// Assumes a role with the credentials of its source.
pub(super) async fn assume(
    http: &CredentialHttp,
    region: &str,
    role: &Role,
    source: &AwsCredential,
) -> Result<Found, CredentialError> {
    let id = role.external_id.as_deref().map(|id| ("ExternalId", id));
    call(http, region, role, form("AssumeRole", role, id), Some(source)).await
}

/// Assumes a role with the token of a file, which is read at each refresh.
pub(super) async fn assume_with_web_identity(
    http: &CredentialHttp,
    region: &str,
    role: &Role,
    token_file: PathBuf,
) -> Result<Found, CredentialError> {
    let shown = token_file.display().to_string();
    let read = spawn_blocking(move || super::read_text(&token_file, TOKEN_BYTES_MAX));
    let token = match read.await {
        Ok(Ok(token)) => token,
        Ok(Err(error)) => {
            let text = format!("web_identity_token_file {shown}: {error}");
            return Err(CredentialError::Settings(text));
        }
        Err(_) => return Err(CredentialError::Unavailable("the runtime has stopped".into())),
    };
    let token = ("WebIdentityToken", token.trim());
    let form = form("AssumeRoleWithWebIdentity", role, Some(token));
    call(http, region, role, form, None).await
}

fn form(action: &str, role: &Role, further: Option<(&str, &str)>) -> String {
    let mut form = Serializer::new(String::new());
    form.append_pair("Action", action);
    form.append_pair("Version", API_VERSION);
    form.append_pair("RoleArn", &role.arn);
    let name = role.session_name.as_deref().unwrap_or(SESSION_NAME_DEFAULT);
    form.append_pair("RoleSessionName", name);
    if let Some(seconds) = &role.duration_seconds {
        form.append_pair("DurationSeconds", seconds);
    }
    form.extend_pairs(further);
    form.finish()
}

async fn call(
    http: &CredentialHttp,
    region: &str,
    role: &Role,
    form: String,
    signer: Option<&AwsCredential>,
) -> Result<Found, CredentialError> {
    let url = format!("{}/", http.endpoint(Service::Sts, region)?);
    let content = ("content-type", "application/x-www-form-urlencoded; charset=utf-8");
    let mut request = request("POST", &url, &[content], form)?;
    if let Some(credential) = signer {
        AwsAuthorizer::new(credential, "sts", region)
            .try_authorize(&mut request, None)
            .map_err(|error| CredentialError::Settings(format!("a signature for STS: {error}")))?;
    }
    let HttpAnswer { status, body } = http.call(request).await?;
    let text = String::from_utf8_lossy(&body);
    if status != 200 {
        let error = quick_xml::de::from_str::<ErrorResponse>(&text).ok();
        let why = error.map_or_else(String::new, |ErrorResponse { error }| {
            format!(", {}: {}", error.code, error.message)
        });
        let text = format!("STS does not give the role {}: status {status}{why}", role.arn);
        return Err(if is_transient(status) {
            CredentialError::Unavailable(text)
        } else {
            CredentialError::Settings(text)
        });
    }
    let malformed = || CredentialError::Unavailable("STS: expected credentials as XML".to_owned());
    let response: Response = quick_xml::de::from_str(&text).map_err(|_| malformed())?;
    let found = response.result.credentials;
    let end = parse_time(&found.expiration).ok_or_else(malformed)?;
    Ok(Found {
        credentials: Whose::Keys(Arc::new(AwsCredential {
            key_id: found.access_key_id,
            secret_key: found.secret_access_key,
            token: Some(found.session_token),
        })),
        lifetime: Lifetime::Until(end),
    })
}
