//! Profiles of AWS' files, and where the credentials of one come from.
//!
//! ```text
//!  [dev]  role_arn + source_profile --> credentials of that profile --> AssumeRole
//!         role_arn + credential_source --> container, machine or environment --> AssumeRole
//!         aws_access_key_id ...
//!         role_arn + web_identity_token_file --> AssumeRoleWithWebIdentity
//!         sso_session, sso_account_id, sso_role_name --> cached token --> GetRoleCredentials
//!         credential_process --> its output
//! ```
//!
//! The first that a profile has counts, from top to bottom.

use std::{
    collections::BTreeMap,
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use object_store::aws::AwsCredential;

use super::{
    config_file::{self, Section},
    limits::{CONFIG_FILE_BYTES_MAX, PROFILE_CHAIN_MAX},
    read_text,
};
use crate::{Environment, remote::address::environment::value_of};

/// Paths of the files, whether they exist or not.
#[derive(Clone, Debug)]
pub(super) struct ProfileFiles {
    pub(super) credentials: Option<PathBuf>,
    pub(super) config: Option<PathBuf>,
    /// Folder with the tokens that `aws sso login` keeps.
    pub(super) sso_cache: Option<PathBuf>,
}

/// Contents of the files. It has no `Debug`, as there are secrets in it.
#[derive(Default)]
pub(super) struct Profiles {
    profiles: BTreeMap<String, Section>,
    sso_sessions: BTreeMap<String, Section>,
    services: BTreeMap<String, Section>,
}

/// Way to the credentials of a profile.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    Keys(Arc<AwsCredential>),
    Role { role: Role, source: Box<Plan> },
    WebIdentity { role: Role, token_file: PathBuf },
    Sso(SsoRole),
    Process(ProcessCommand),
    Given(GivenSource),
}

/// Source outside of the files that `credential_source` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::remote) enum GivenSource {
    Environment,
    Container,
    Instance,
}

/// Role to assume by STS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Role {
    pub(super) arn: String,
    pub(super) session_name: Option<String>,
    pub(super) external_id: Option<String>,
    pub(super) duration_seconds: Option<String>,
}

/// Role of an account that IAM Identity Center lets a person have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SsoRole {
    pub(super) profile: String,
    pub(super) region: String,
    pub(super) account_id: String,
    pub(super) role_name: String,
    /// Text whose SHA-1 names the file of the cached token: session or start URL.
    pub(super) cache_key: String,
}

/// Command of `credential_process`, which is not shown: its arguments may be secrets.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ProcessCommand(pub(super) String);

impl ProfileFiles {
    pub(super) fn of(environment: &Environment) -> Self {
        let home = value_of(environment, "HOME").map(PathBuf::from);
        let path = |variable, name: &str| match value_of(environment, variable) {
            Some(path) => Some(match (path.strip_prefix("~/"), &home) {
                (Some(below), Some(home)) => home.join(below),
                _ => PathBuf::from(path),
            }),
            None => home.as_ref().map(|home| home.join(".aws").join(name)),
        };
        Self {
            credentials: path("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
            config: path("AWS_CONFIG_FILE", "config"),
            sso_cache: home.as_ref().map(|home| home.join(".aws/sso/cache")),
        }
    }

    /// Reads both files; one that does not exist is empty.
    pub(super) fn read(&self) -> Result<Profiles, String> {
        let mut profiles = Profiles::default();
        if let Some(path) = &self.config {
            profiles.add_config(read(path)?);
        }
        if let Some(path) = &self.credentials {
            // Its properties count more.
            for (name, section) in read(path)? {
                profiles.profiles.entry(name).or_default().extend(section);
            }
        }
        Ok(profiles)
    }

    /// Names the files, for people.
    pub(super) fn shown(&self) -> String {
        let shown = |path: &PathBuf| match path.exists() {
            true => path.display().to_string(),
            false => format!("{}, which does not exist", path.display()),
        };
        let paths: Vec<_> = [&self.credentials, &self.config].into_iter().flatten().collect();
        match &*paths {
            [] => "no file: HOME, AWS_CONFIG_FILE and AWS_SHARED_CREDENTIALS_FILE are not set"
                .to_owned(),
            paths => paths.iter().map(|path| shown(path)).collect::<Vec<_>>().join("; "),
        }
    }
}

/// Reads a file, which may be missing.
fn read(path: &Path) -> Result<Vec<(String, Section)>, String> {
    let text = match read_text(path, CONFIG_FILE_BYTES_MAX) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
    };
    config_file::parse(&text).map_err(|error| format!("{}, {error}", path.display()))
}

impl Profiles {
    fn add_config(&mut self, sections: Vec<(String, Section)>) {
        // `[profile default]` counts more than `[default]`.
        let (plain, rest): (Vec<_>, Vec<_>) =
            sections.into_iter().partition(|(name, _)| name == "default");
        let has_full = rest.iter().any(|(name, _)| name == "profile default");
        let plain = plain.into_iter().filter(|_| !has_full);
        for (name, section) in plain.chain(rest) {
            let (group, name) = match name.split_once(' ') {
                None if name == "default" => (&mut self.profiles, "default"),
                Some(("profile", name)) => (&mut self.profiles, name),
                Some(("sso-session", name)) => (&mut self.sso_sessions, name),
                Some(("services", name)) => (&mut self.services, name),
                // Sections of other tools, and those that AWS' own tools pass over.
                _ => continue,
            };
            group.entry(name.to_owned()).or_default().extend(section);
        }
    }

    pub(super) fn has(&self, profile: &str) -> bool {
        self.profiles.contains_key(profile)
    }

    /// Returns a property of a profile; one that is empty counts as missing.
    pub(super) fn get(&self, profile: &str, key: &str) -> Option<&str> {
        let value = self.profiles.get(profile)?.get(key)?;
        Some(value.as_str()).filter(|value| !value.is_empty())
    }

    /// Returns the endpoint of a service that a profile names, for it or for all services.
    pub(super) fn endpoint(&self, profile: &str, service: &str) -> Option<String> {
        let services = self.get(profile, "services").and_then(|name| self.services.get(name));
        let of_service = services
            .and_then(|services| services.get(service))
            .and_then(|value| config_file::nested(value).remove("endpoint_url"));
        of_service.or_else(|| self.get(profile, "endpoint_url").map(str::to_owned))
    }

    /// Returns the way to a profile's credentials; none if it has nothing about credentials.
    pub(super) fn plan(&self, profile: &str) -> Result<Option<Plan>, String> {
        self.plan_of(profile, &mut Vec::new())
    }

    fn plan_of<'a>(
        &'a self,
        profile: &'a str,
        chain: &mut Vec<&'a str>,
    ) -> Result<Option<Plan>, String> {
        if chain.contains(&profile) || PROFILE_CHAIN_MAX <= chain.len() {
            chain.push(profile);
            return Err(format!(
                "source_profile leads in a circle, or through more than {PROFILE_CHAIN_MAX} \
                 profiles: {}",
                chain.join(" -> ")
            ));
        }
        chain.push(profile);
        let get = |key| self.get(profile, key);
        let missing = |text: String| Err(format!("profile {profile}: {text}"));
        let role = get("role_arn").map(|arn| Role {
            arn: arn.to_owned(),
            session_name: get("role_session_name").map(str::to_owned),
            external_id: get("external_id").map(str::to_owned),
            duration_seconds: get("duration_seconds").map(str::to_owned),
        });
        if role.is_some() && get("mfa_serial").is_some() {
            return missing(
                "role_arn with mfa_serial needs a code that a server cannot ask for; use an SSO \
                 session or credential_process"
                    .to_owned(),
            );
        }
        match (role, get("source_profile"), get("credential_source")) {
            (Some(_), Some(_), Some(_)) => {
                return missing("expected source_profile or credential_source, not both".into());
            }
            // A profile that names itself has the keys for its role.
            (Some(role), Some(source), None) if source == profile => {
                let keys = self.keys(profile)?;
                let keys = keys.ok_or_else(|| {
                    format!("profile {profile}: source_profile is {profile}, which has no keys")
                })?;
                return Ok(Some(Plan::Role { role, source: Box::new(keys) }));
            }
            (Some(role), Some(source), None) => {
                if !self.has(source) {
                    return missing(format!("its source_profile {source} does not exist"));
                }
                let Some(plan) = self.plan_of(source, chain)? else {
                    return missing(format!("its source_profile {source} has no credentials"));
                };
                return Ok(Some(Plan::Role { role, source: Box::new(plan) }));
            }
            (Some(role), None, Some(source)) => {
                let source = match source {
                    "Environment" => GivenSource::Environment,
                    "EcsContainer" => GivenSource::Container,
                    "Ec2InstanceMetadata" => GivenSource::Instance,
                    _ => {
                        return missing(
                            "credential_source: expected Environment, EcsContainer or \
                             Ec2InstanceMetadata"
                                .to_owned(),
                        );
                    }
                };
                return Ok(Some(Plan::Role { role, source: Box::new(Plan::Given(source)) }));
            }
            _ => {}
        }
        if let Some(keys) = self.keys(profile)? {
            return Ok(Some(keys));
        }
        if let Some(role) = self.web_identity(profile) {
            return Ok(Some(role));
        }
        if let Some(role) = self.sso(profile)? {
            return Ok(Some(Plan::Sso(role)));
        }
        if let Some(command) = get("credential_process") {
            return Ok(Some(Plan::Process(ProcessCommand(command.to_owned()))));
        }
        if get("role_arn").is_some() {
            return missing(
                "role_arn needs source_profile, credential_source or web_identity_token_file"
                    .to_owned(),
            );
        }
        Ok(None)
    }

    fn keys(&self, profile: &str) -> Result<Option<Plan>, String> {
        let get = |key| self.get(profile, key).map(str::to_owned);
        match (get("aws_access_key_id"), get("aws_secret_access_key")) {
            (None, None) => Ok(None),
            (Some(key_id), Some(secret_key)) => {
                let token = get("aws_session_token");
                Ok(Some(Plan::Keys(Arc::new(AwsCredential { key_id, secret_key, token }))))
            }
            (key_id, _) => {
                let missing =
                    if key_id.is_some() { "aws_secret_access_key" } else { "aws_access_key_id" };
                Err(format!("profile {profile}: {missing} is missing"))
            }
        }
    }

    fn web_identity(&self, profile: &str) -> Option<Plan> {
        let get = |key| self.get(profile, key);
        let role = Role {
            arn: get("role_arn")?.to_owned(),
            session_name: get("role_session_name").map(str::to_owned),
            external_id: None,
            duration_seconds: get("duration_seconds").map(str::to_owned),
        };
        Some(Plan::WebIdentity { role, token_file: get("web_identity_token_file")?.into() })
    }

    fn sso(&self, profile: &str) -> Result<Option<SsoRole>, String> {
        let get = |key| self.get(profile, key);
        // A session without account and role is for other tools' bearer tokens.
        if get("sso_account_id").is_none() && get("sso_role_name").is_none() {
            return Ok(None);
        }
        let session = get("sso_session");
        let of_session = match session {
            Some(name) => Some(self.sso_sessions.get(name).ok_or_else(|| {
                format!("profile {profile}: there is no section [sso-session {name}]")
            })?),
            None => None,
        };
        let need = |key: &str| {
            let of_session = of_session.and_then(|section| section.get(key)).map(String::as_str);
            of_session
                .or_else(|| self.get(profile, key))
                .map(str::to_owned)
                .ok_or_else(|| format!("profile {profile}: {key} is missing, for SSO"))
        };
        let start_url = need("sso_start_url")?;
        Ok(Some(SsoRole {
            profile: profile.to_owned(),
            region: need("sso_region")?,
            account_id: need("sso_account_id")?,
            role_name: need("sso_role_name")?,
            cache_key: session.map_or(start_url, str::to_owned),
        }))
    }
}

impl fmt::Debug for ProcessCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProcessCommand")
    }
}

#[cfg(test)]
mod tests;
