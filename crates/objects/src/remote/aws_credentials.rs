//! Credentials as AWS' own tools find them, for S3 and DynamoDB alike.
//!
//! ```text
//!  ?profile=NAME ----------------------------------+
//!  AWS_ACCESS_KEY_ID ... --> object_store          |
//!  web identity of the environment --> object_store|
//!  AWS_PROFILE, else `default` --------------------+--> files --> plan --> keys, STS, SSO, process
//!  a container's endpoint, the machine's --> object_store <-- `-- no plan
//! ```
//!
//! The first that there is counts. Profiles are read when a store is opened, for its region and
//! endpoints, and again at each refresh: what `aws sso login` or an editor changes holds without a
//! restart. [`refresh`] keeps what was found, and refreshes it once for all who wait.
//!
//! `aws-config`, Amazon's own crate, would add 39 crates and more than a minute of processor time
//! to a release build.
//!
//! No error and no log line has a secret in it: not a line of a file, not an answer of STS or SSO
//! but its code and message, not a command.

mod config_file;
mod given;
mod http;
pub mod limits;
mod process;
mod profile;
mod refresh;
mod sso;
mod sts;

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    sync::Arc,
    time::SystemTime,
};

use async_trait::async_trait;
use object_store::{
    ClientOptions,
    aws::{AwsCredential, AwsCredentialProvider},
};
use tokio::{runtime::Handle, task::spawn_blocking};

pub(super) use self::{given::GivenProviders, profile::GivenSource};
use self::{
    http::CredentialHttp,
    profile::{Plan, ProfileFiles, Profiles},
    refresh::{Refreshing, Source},
};
use super::address::environment::{has_aws_endpoints, value_of};
use crate::{Environment, Error};

const PROFILE_VARIABLE: &str = "AWS_PROFILE";
const PROFILE_DEFAULT: &str = "default";

/// Credentials that were found, and for how long.
#[derive(Clone, Debug)]
pub(super) struct Found {
    credentials: Whose,
    lifetime: Lifetime,
}

#[derive(Clone, Debug)]
enum Whose {
    Keys(Arc<AwsCredential>),
    /// The container's or the machine's, which its provider refreshes.
    Given(AwsCredentialProvider),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lifetime {
    /// They hold until this time.
    Until(SystemTime),
    /// They hold until somebody changes the file.
    OfFile,
    /// They hold for ever, as their source says.
    Endless,
}

/// Reason why there are no credentials. The text has no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CredentialError {
    /// Somebody has to do something about it.
    #[error("{0}")]
    Settings(String),
    /// A service or a program failed; a retry may help.
    #[error("{0}")]
    Unavailable(String),
}

/// Profile that counts for a store, and what it says about regions and endpoints.
pub(super) struct ChosenProfile {
    name: String,
    /// True if the URL names it: then nothing else counts.
    is_in_url: bool,
    /// True if URL or environment name it: then it has to exist.
    is_named: bool,
    files: ProfileFiles,
    profiles: Result<Profiles, String>,
    has_endpoints: bool,
}

/// Parts that a provider needs beside a profile.
pub(super) struct ProviderParts {
    pub(super) environment: Environment,
    pub(super) runtime: Handle,
    pub(super) client: ClientOptions,
    /// Region of the store, for STS.
    pub(super) region: String,
    /// Provider of the container's or the machine's credentials.
    pub(super) given: GivenProviders,
}

impl ChosenProfile {
    /// Reads the files of profiles.
    pub(super) fn new(environment: &Environment, in_url: Option<&str>) -> Self {
        let in_environment = value_of(environment, PROFILE_VARIABLE);
        let files = ProfileFiles::of(environment);
        Self {
            is_in_url: in_url.is_some(),
            is_named: in_url.is_some() || in_environment.is_some(),
            name: in_url
                .map(str::to_owned)
                .or(in_environment)
                .unwrap_or_else(|| PROFILE_DEFAULT.to_owned()),
            profiles: files.read(),
            files,
            has_endpoints: has_aws_endpoints(environment),
        }
    }

    /// Returns whether nothing else than this profile counts.
    pub(super) fn is_in_url(&self) -> bool {
        self.is_in_url
    }

    /// Returns the region of the profile.
    pub(super) fn region(&self) -> Option<String> {
        self.profiles.as_ref().ok()?.get(&self.name, "region").map(str::to_owned)
    }

    /// Returns the endpoint that the profile has for a service, named as in `[services NAME]`.
    pub(super) fn endpoint(&self, service: &str) -> Option<String> {
        let profiles = self.profiles.as_ref().ok().filter(|_| self.has_endpoints)?;
        profiles.endpoint(&self.name, service)
    }

    /// Makes the provider of the profile's credentials, or of those outside if it has none.
    ///
    /// # Errors
    /// The files are malformed, or the profile that somebody named is missing or incomplete.
    pub(super) fn provider(&self, parts: ProviderParts) -> Result<AwsCredentialProvider, Error> {
        let profiles = self.profiles.as_ref().map_err(|error| Error::Settings(error.clone()))?;
        if self.is_named && !profiles.has(&self.name) {
            return Err(Error::Settings(missing_profile(&self.name, &self.files)));
        }
        profiles.plan(&self.name).map_err(Error::Settings)?;
        let http = CredentialHttp::new(&parts.environment, &parts.client)?;
        let source = ProfileSource {
            profile: self.name.clone(),
            is_named: self.is_named,
            files: self.files.clone(),
            region: parts.region,
            given: parts.given,
            http,
        };
        Ok(Arc::new(Refreshing::new(Arc::new(source), parts.runtime)))
    }
}

fn missing_profile(name: &str, files: &ProfileFiles) -> String {
    format!("there is no AWS profile {name}; looked in {}", files.shown())
}

/// Credentials of a profile.
#[derive(Debug)]
struct ProfileSource {
    profile: String,
    is_named: bool,
    files: ProfileFiles,
    region: String,
    given: GivenProviders,
    http: CredentialHttp,
}

#[async_trait]
impl Source for ProfileSource {
    async fn fetch(&self) -> Result<Found, CredentialError> {
        let files = self.files.clone();
        let read = spawn_blocking(move || files.read()).await;
        let stopped = |_| CredentialError::Unavailable("the runtime has stopped".to_owned());
        let profiles = read.map_err(stopped)?.map_err(CredentialError::Settings)?;
        if self.is_named && !profiles.has(&self.profile) {
            return Err(CredentialError::Settings(missing_profile(&self.profile, &self.files)));
        }
        match profiles.plan(&self.profile).map_err(CredentialError::Settings)? {
            Some(plan) => self.follow(plan).await,
            None => {
                let given = match self.given.get(GivenSource::Container)? {
                    Some(given) => Some(given),
                    None => self.given.get(GivenSource::Instance)?,
                };
                let given = given.ok_or_else(|| CredentialError::Settings(self.nothing()))?;
                Ok(Found { credentials: Whose::Given(given), lifetime: Lifetime::OfFile })
            }
        }
    }

    fn nothing(&self) -> String {
        let given = if self.given.has(GivenSource::Container) {
            "the container's endpoint has none either"
        } else if self.given.has(GivenSource::Instance) {
            "the machine (instance metadata) has none either"
        } else {
            "instance metadata is off (AWS_EC2_METADATA_DISABLED)"
        };
        format!(
            "no credentials for AWS: no AWS_ACCESS_KEY_ID, no AWS_WEB_IDENTITY_TOKEN_FILE with \
             AWS_ROLE_ARN, none in the profile {} (in {}), and {given}",
            self.profile,
            self.files.shown()
        )
    }
}

impl ProfileSource {
    async fn follow(&self, plan: Plan) -> Result<Found, CredentialError> {
        // A role of a role of ...: the innermost has the first credentials.
        let mut roles = Vec::new();
        let mut innermost = plan;
        while let Plan::Role { role, source } = innermost {
            roles.push(role);
            innermost = *source;
        }
        let mut found = match innermost {
            Plan::Keys(keys) => {
                Found { credentials: Whose::Keys(keys), lifetime: Lifetime::OfFile }
            }
            Plan::WebIdentity { role, token_file } => {
                sts::assume_with_web_identity(&self.http, &self.region, &role, token_file).await?
            }
            Plan::Sso(role) => {
                let cache = self.files.sso_cache.as_deref();
                sso::credentials(&self.http, &role, cache).await?
            }
            Plan::Process(command) => process::credentials(&self.profile, command).await?,
            Plan::Given(source) => self.given(source)?,
            Plan::Role { .. } => unreachable!("the loop above takes the roles"),
        };
        for role in roles.iter().rev() {
            let keys = match &found.credentials {
                Whose::Keys(keys) => keys.clone(),
                Whose::Given(given) => given.get_credential().await.map_err(|error| {
                    CredentialError::Unavailable(super::fault::error_text(&error))
                })?,
            };
            found = sts::assume(&self.http, &self.region, role, &keys).await?;
        }
        Ok(found)
    }

    fn given(&self, source: GivenSource) -> Result<Found, CredentialError> {
        let provider = self.given.get(source)?.ok_or_else(|| {
            let variable = match source {
                GivenSource::Environment => "AWS_ACCESS_KEY_ID is not set",
                GivenSource::Container => "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI is not set",
                GivenSource::Instance => "AWS_EC2_METADATA_DISABLED is set",
            };
            CredentialError::Settings(format!(
                "credential_source of profile {}: {variable}",
                self.profile
            ))
        })?;
        Ok(Found { credentials: Whose::Given(provider), lifetime: Lifetime::OfFile })
    }
}

/// Reads a file of text, which may not be longer than a limit.
fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(bytes_max + 1).read_to_string(&mut text)?;
    if bytes_max < text.len() as u64 {
        return Err(io::Error::other(format!("expected at most {bytes_max} bytes")));
    }
    Ok(text)
}

/// Returns the time; that at which credentials end is one of the calendar.
#[allow(clippy::disallowed_methods, reason = "services say when credentials end by the calendar")]
fn now() -> SystemTime {
    SystemTime::now()
}

/// Parses a time as AWS writes it, `2027-01-01T00:00:00Z`; the tools once wrote `UTC` at its end.
fn parse_time(text: &str) -> Option<SystemTime> {
    let text = text.strip_suffix("UTC").map_or_else(|| text.to_owned(), |time| format!("{time}Z"));
    chrono::DateTime::parse_from_rfc3339(&text).ok().map(SystemTime::from)
}

#[cfg(test)]
mod tests;
