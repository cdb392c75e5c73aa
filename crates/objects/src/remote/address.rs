//! URLs of stores, and the environment variables that complete them.
//!
//! Keys of the query, by URL:
//!
//! * `file:///dir`: none.
//! * All others: `endpoint`, `anonymous`, `allow-http`, `allow-invalid-certificates`.
//! * `s3://bucket/prefix` also: `region`, `path-style`, `request-payer`, `metadata-endpoint`,
//!   `profile`.
//! * `aws://[table:bucket]/database`: those of `s3://` but `anonymous`, and `dynamodb-endpoint`.
//! * `gs://bucket/prefix`: no others.
//! * `az://container/prefix` also: `account`, `emulator`.
//!
//! Credentials come from the environment, and for AWS from profiles. A URL with a key that names a
//! secret is refused, because URLs are shown and logged.

use std::{path::PathBuf, sync::Arc, time::Duration};

use object_store::{
    ClientOptions, ObjectStore, RetryConfig, azure::MicrosoftAzureBuilder,
    gcp::GoogleCloudStorageBuilder, path::Path,
};
use percent_encoding::percent_decode_str;
use url::Url;

use super::{
    RemoteOptions,
    aws_api::ItemAddress,
    file_store::FileStore,
    http::Connector,
    limits::{CONNECT_TIMEOUT, NEAR_NAME_EDITS_MAX, STALLS_BEHIND_OTHERS_MAX},
};
use crate::Error;

mod aws;
pub(super) mod environment;
mod s3;

use environment::{AZURE, AZURE_ACCOUNT, GOOGLE, value_of};

/// Store and prefix that a URL names.
#[derive(Debug)]
pub(super) struct Address {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) prefix: Path,
    /// URL without secrets, for people and as identity.
    pub(super) url: String,
    /// Directory of a `file://` URL.
    pub(super) directory: Option<PathBuf>,
    /// Item of a DynamoDB table that an `aws://` URL names.
    pub(super) item: Option<ItemAddress>,
}

/// Keys that all stores but files take.
const HTTP_KEYS: [&str; 2] = ["allow-http", "allow-invalid-certificates"];
const S3_KEYS: [&str; 7] = [
    "endpoint",
    "region",
    "path-style",
    "anonymous",
    "request-payer",
    "metadata-endpoint",
    "profile",
];
const GS_KEYS: [&str; 2] = ["endpoint", "anonymous"];
const AZ_KEYS: [&str; 4] = ["account", "endpoint", "anonymous", "emulator"];
const SCHEMES: [&str; 5] = ["file", "s3", "aws", "gs", "az"];

/// Parts of the names of keys that stand for secrets.
const SECRET_PARTS: [&str; 7] =
    ["secret", "token", "password", "access-key", "credential", "sas", "account-key"];

impl Address {
    pub(super) fn parse(text: &str, options: &RemoteOptions) -> Result<Self, Error> {
        // Brackets around a name are no host in the grammar of URLs.
        if let Some(rest) = text.strip_prefix("aws://") {
            return aws::parse(rest, options);
        }
        let url = Url::parse(text).map_err(|error| {
            settings(format!(
                "{}: {error}; expected file:///DIRECTORY, s3://BUCKET/PREFIX, \
                 aws://[TABLE:BUCKET]/DATABASE, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX",
                without_secrets(text)
            ))
        })?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(settings(format!(
                "{}: a user or password in the URL of a store; credentials come from the \
                 environment",
                without_secrets(text)
            )));
        }
        match url.scheme() {
            "file" => file(&url),
            "s3" => s3::parse(&url, options),
            "gs" => gs(&url, options),
            "az" => az(&url, options),
            scheme => Err(settings(format!(
                "unknown kind of store {scheme}://{}",
                meant(scheme, SCHEMES.into_iter())
            ))),
        }
    }
}

fn file(url: &Url) -> Result<Address, Error> {
    let given = Query::parse(url, &[])?;
    debug_assert!(given.pairs.is_empty(), "no key is known");
    if url.host_str().is_some_and(|host| !host.is_empty() && host != "localhost") {
        return Err(settings(format!(
            "{url}: the path of a file URL is absolute: file:///DIRECTORY"
        )));
    }
    let directory =
        url.to_file_path().map_err(|()| settings(format!("{url}: not a path of this system")))?;
    let prefix = Path::from_absolute_path(&directory)
        .map_err(|error| settings(format!("{}: {error}", directory.display())))?;
    let url = format!("file://{}", directory.display());
    let url = url.trim_end_matches('/').to_owned();
    let store = Arc::new(FileStore::new());
    Ok(Address { store, prefix, url, directory: Some(directory), item: None })
}

fn gs(url: &Url, options: &RemoteOptions) -> Result<Address, Error> {
    let query = Query::parse(url, &GS_KEYS)?;
    let bucket = container(url, "bucket")?;
    let found = GOOGLE.collect(&options.environment);
    let endpoint = query.endpoint(found.endpoint)?;
    let mut builder = GoogleCloudStorageBuilder::new()
        .with_bucket_name(&bucket)
        .with_retry(no_retries())
        .with_http_connector(Connector::default());
    for (key, value) in found.settings {
        builder = builder.with_config(key, value);
    }
    let is_plain = is_plain_http(endpoint.as_ref());
    builder = builder.with_client_options(client(options, &query, is_plain)?);
    if let Some(endpoint) = &endpoint {
        builder = builder.with_base_url(endpoint.as_str().trim_end_matches('/'));
    }
    if let Some(anonymous) = query.flag("anonymous")? {
        builder = builder.with_skip_signature(anonymous);
    }
    let store = builder.build().map_err(|error| settings(format!("gs://{bucket}: {error}")))?;
    address(Arc::new(store), url, &bucket, endpoint.as_ref())
}

fn az(url: &Url, options: &RemoteOptions) -> Result<Address, Error> {
    let query = Query::parse(url, &AZ_KEYS)?;
    let bucket = container(url, "container")?;
    let found = AZURE.collect(&options.environment);
    let endpoint = query.endpoint(found.endpoint)?;
    let mut builder = MicrosoftAzureBuilder::new()
        .with_container_name(&bucket)
        .with_retry(no_retries())
        .with_http_connector(Connector::default());
    let account = query
        .get("account")
        .map(str::to_owned)
        .or_else(|| value_of(&options.environment, AZURE_ACCOUNT));
    for (key, value) in found.settings {
        builder = builder.with_config(key, value);
    }
    let is_plain = is_plain_http(endpoint.as_ref());
    let emulator = query.flag("emulator")?.unwrap_or_default();
    builder = builder.with_client_options(client(options, &query, is_plain || emulator)?);
    if let Some(account) = &account {
        builder = builder.with_account(account);
    }
    if let Some(endpoint) = &endpoint {
        builder = builder.with_endpoint(endpoint.as_str().trim_end_matches('/').to_owned());
    }
    if emulator {
        builder = builder.with_use_emulator(true);
    }
    if let Some(anonymous) = query.flag("anonymous")? {
        builder = builder.with_skip_signature(anonymous);
    }
    let store = builder.build().map_err(|error| settings(format!("az://{bucket}: {error}")))?;
    let mut address = address(Arc::new(store), url, &bucket, endpoint.as_ref())?;
    // Containers of two accounts may have one name.
    if let Some(account) = account {
        let joint = if address.url.contains('?') { '&' } else { '?' };
        address.url = format!("{}{joint}account={account}", address.url);
    }
    Ok(address)
}

fn is_plain_http(endpoint: Option<&Url>) -> bool {
    endpoint.is_some_and(|endpoint| endpoint.scheme() == "http")
}

/// No retries: [`super::attempts`] makes them.
fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

fn client(options: &RemoteOptions, query: &Query, is_plain: bool) -> Result<ClientOptions, Error> {
    let allow_http = query.flag("allow-http")?.unwrap_or(is_plain);
    if is_plain && !allow_http {
        return Err(settings("allow-http=false, but the endpoint is http://".to_owned()));
    }
    // The client takes the TLS of the process; a caller may have installed another before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut client = ClientOptions::new()
        .with_timeout_disabled()
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_read_timeout(
            // `Remote` ends attempts before.
            options.stall_timeout.max(Duration::from_millis(1)) * (STALLS_BEHIND_OTHERS_MAX + 1),
        )
        .with_pool_max_idle_per_host(options.requests_max.max(1))
        .with_allow_http(allow_http);
    if query.flag("allow-invalid-certificates")? == Some(true) {
        client = client.with_allow_invalid_certificates(true);
    }
    Ok(client)
}

fn container(url: &Url, what: &str) -> Result<String, Error> {
    match url.host_str() {
        Some(name) if !name.is_empty() && url.port().is_none() => Ok(name.to_owned()),
        _ => Err(settings(format!(
            "{url}: expected {0}://{1}/PREFIX",
            url.scheme(),
            what.to_uppercase()
        ))),
    }
}

fn address(
    store: Arc<dyn ObjectStore>,
    url: &Url,
    container: &str,
    endpoint: Option<&Url>,
) -> Result<Address, Error> {
    let prefix = prefix(url)?;
    let mut shown = format!("{}://{container}", url.scheme());
    if !prefix.as_ref().is_empty() {
        shown = format!("{shown}/{prefix}");
    }
    if let Some(endpoint) = endpoint {
        shown = format!("{shown}?endpoint={}", endpoint.as_str().trim_end_matches('/'));
    }
    Ok(Address { store, prefix, url: shown, directory: None, item: None })
}

/// Decodes the path of a URL.
fn prefix(url: &Url) -> Result<Path, Error> {
    let path = percent_decode_str(url.path())
        .decode_utf8()
        .map_err(|_| settings(format!("{url}: the path is not UTF-8")))?;
    let host = url.host_str().unwrap_or_default();
    Path::parse(path.trim_matches('/'))
        .map_err(|error| settings(format!("{}://{host}{path}: {error}", url.scheme())))
}

pub(super) fn checked_endpoint(text: &str) -> Result<Url, Error> {
    let error = |why: &str| settings(format!("endpoint {}: {why}", without_secrets(text)));
    let url =
        Url::parse(text).map_err(|_| error("expected a URL, for example http://127.0.0.1:9000"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(error("expected http://HOST or https://HOST"));
    }
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err(error(
            "a user, password or query in it; credentials come from the environment",
        ));
    }
    Ok(url)
}

/// Puts the bucket into the endpoint's host, as virtual hosting needs it.
fn endpoint_of_bucket(endpoint: &Url, bucket: &str, in_host: bool) -> Result<String, Error> {
    let mut endpoint = endpoint.clone();
    let host = endpoint.host_str().unwrap_or_default().to_owned();
    if in_host && !host.starts_with(&format!("{bucket}.")) {
        endpoint.set_host(Some(&format!("{bucket}.{host}"))).map_err(|_| {
            settings(format!("endpoint {endpoint}: path-style=false needs a host name"))
        })?;
    }
    Ok(endpoint.as_str().trim_end_matches('/').to_owned())
}

/// Query of a URL in which every key is known.
struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    fn parse(url: &Url, keys: &[&str]) -> Result<Self, Error> {
        let known =
            || keys.iter().copied().chain(HTTP_KEYS.into_iter().filter(|_| !keys.is_empty()));
        let mut pairs: Vec<(String, String)> = Vec::new();
        for (key, value) in url.query_pairs() {
            let name = key.to_ascii_lowercase().replace('_', "-");
            if let Some(part) = SECRET_PARTS.iter().find(|part| name.contains(**part)) {
                return Err(settings(format!(
                    "{key}: a {part} does not belong in the URL of a store; it comes from the \
                     environment"
                )));
            }
            if !known().any(|known| known == name) {
                let scheme = url.scheme();
                return Err(settings(format!(
                    "unknown key {key} for {scheme}://{}",
                    meant(&name, known())
                )));
            }
            if pairs.iter().any(|(other, _)| *other == name) {
                return Err(settings(format!("{key} is given twice")));
            }
            pairs.push((name, value.into_owned()));
        }
        Ok(Self { pairs })
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Value from the query, else from the environment.
    fn endpoint(&self, environment: Option<String>) -> Result<Option<Url>, Error> {
        self.endpoint_of("endpoint", environment)
    }

    fn endpoint_of(&self, key: &str, environment: Option<String>) -> Result<Option<Url>, Error> {
        let text = self.get(key).map(str::to_owned).or(environment);
        text.map(|text| checked_endpoint(&text)).transpose()
    }

    fn flag(&self, key: &str) -> Result<Option<bool>, Error> {
        match self.get(key) {
            None => Ok(None),
            Some("true" | "1" | "yes" | "on" | "") => Ok(Some(true)),
            Some("false" | "0" | "no" | "off") => Ok(Some(false)),
            Some(other) => Err(settings(format!("{key}={other}: expected true or false"))),
        }
    }
}

/// Hint of an error: `; did you mean X?`, or the known keys.
fn meant<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<_> = known.collect();
    let near = known.iter().map(|known| (strsim::osa_distance(name, known), known)).min();
    match near {
        Some((edits, near)) if edits <= NEAR_NAME_EDITS_MAX => format!("; did you mean {near}?"),
        _ if known.is_empty() => "; there are none".to_owned(),
        _ => format!("; known are {}", known.join(", ")),
    }
}

/// URL without query, user and password.
fn without_secrets(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    match (text.split_once("://"), text.rfind('@')) {
        (Some((scheme, _)), Some(at)) => format!("{scheme}://...{}", &text[at..]),
        _ => text.to_owned(),
    }
}

fn settings(text: String) -> Error {
    Error::Settings(text)
}

#[cfg(test)]
mod tests;
