//! `s3://bucket/prefix`: the client of a bucket, and which credentials it has.

use std::sync::Arc;

use object_store::{
    ClientOptions,
    aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey as Key},
};
use url::Url;

use super::{
    Address, Query, S3_KEYS, address, checked_endpoint, client, container, endpoint_of_bucket,
    environment::{AWS, AWS_REGIONS, AWS_S3_ENDPOINTS, aws_endpoint, first_value_of, is_true},
    is_plain_http, no_retries, settings,
};
use crate::{
    Error,
    remote::{
        RemoteOptions,
        aws_credentials::{ChosenProfile, GivenProviders, GivenSource, ProviderParts},
        http::Connector,
    },
};

/// Region where nothing names one.
const REGION_DEFAULT: &str = "us-east-1";
const METADATA_ENDPOINT: &str = "AWS_EC2_METADATA_SERVICE_ENDPOINT";
const METADATA_OFF: &str = "AWS_EC2_METADATA_DISABLED";

/// Client of a bucket, and what was found on the way to it.
pub(super) struct Bucket {
    pub(super) store: AmazonS3,
    /// Endpoint, unless it is Amazon's.
    pub(super) endpoint: Option<Url>,
    pub(super) region: String,
    pub(super) profile: ChosenProfile,
}

/// Settings of the environment with the names of `object_store`.
type Settings = [(Key, String)];

const KEYS: [Key; 3] = [Key::AccessKeyId, Key::SecretAccessKey, Key::Token];
const WEB_IDENTITY: [Key; 3] = [Key::WebIdentityTokenFile, Key::RoleArn, Key::RoleSessionName];
const CONTAINER: [Key; 3] = [
    Key::ContainerCredentialsRelativeUri,
    Key::ContainerCredentialsFullUri,
    Key::ContainerAuthorizationTokenFile,
];

pub(super) fn parse(url: &Url, options: &RemoteOptions) -> Result<Address, Error> {
    let query = Query::parse(url, &S3_KEYS)?;
    let name = container(url, "bucket")?;
    let Bucket { store, endpoint, .. } = bucket(&name, &query, options)?;
    address(Arc::new(store), url, &name, endpoint.as_ref())
}

/// Makes the client of a bucket.
pub(super) fn bucket(name: &str, query: &Query, options: &RemoteOptions) -> Result<Bucket, Error> {
    let profile = ChosenProfile::new(&options.environment, query.get("profile"));
    let found = AWS.collect(&options.environment).settings;
    let from_outside = aws_endpoint(&options.environment, &AWS_S3_ENDPOINTS);
    let endpoint = query.endpoint(from_outside.or_else(|| profile.endpoint("s3")))?;
    let client = client(options, query, is_plain_http(endpoint.as_ref()))?;
    let region = query
        .get("region")
        .map(str::to_owned)
        .or_else(|| first_value_of(&options.environment, &AWS_REGIONS))
        .or_else(|| profile.region())
        .unwrap_or_else(|| REGION_DEFAULT.to_owned());
    let path_style = query.flag("path-style")?;
    let mut builder = builder(name, &client);
    for (key, value) in &found {
        builder = builder.with_config(*key, value);
    }
    // The text of the bucket's own host is what virtual hosting wants of the endpoint.
    let in_host = path_style.map(|path_style| !path_style);
    if let Some(in_host) = in_host {
        builder = builder.with_virtual_hosted_style_request(in_host);
    }
    if let Some(endpoint) = &endpoint {
        builder = builder.with_endpoint(endpoint_of_bucket(endpoint, name, in_host == Some(true))?);
    }
    builder = builder.with_region(&region);
    let anonymous = query.flag("anonymous")?;
    if let Some(anonymous) = anonymous {
        builder = builder.with_skip_signature(anonymous);
    }
    if let Some(pays) = query.flag("request-payer")? {
        builder = builder.with_request_payer(pays);
    }
    let is_unsigned =
        anonymous.unwrap_or_else(|| is_true(&options.environment, "AWS_SKIP_SIGNATURE"));
    if !is_unsigned && (profile.is_in_url() || !has_own_credentials(&found)) {
        let parts = ProviderParts {
            given: given_providers(name, &client, found, query, options)?,
            environment: options.environment.clone(),
            runtime: options.runtime.clone(),
            client,
            region: region.clone(),
        };
        let provider = profile.provider(parts)?;
        builder = builder.with_credentials(provider);
    }
    let store = builder.build().map_err(|error| settings(format!("s3://{name}: {error}")))?;
    Ok(Bucket { store, endpoint, region, profile })
}

fn builder(name: &str, client: &ClientOptions) -> AmazonS3Builder {
    AmazonS3Builder::new()
        .with_bucket_name(name)
        .with_retry(no_retries())
        .with_http_connector(Connector::default())
        .with_client_options(client.clone())
}

/// Returns whether the environment has keys, or a token and a role: they come before profiles.
fn has_own_credentials(found: &Settings) -> bool {
    let has = |wanted: Key| found.iter().any(|(key, _)| *key == wanted);
    has(Key::AccessKeyId)
        || has(Key::SecretAccessKey)
        || has(Key::WebIdentityTokenFile) && has(Key::RoleArn)
}

/// Returns how to make the providers of what is outside of AWS' files.
fn given_providers(
    name: &str,
    client: &ClientOptions,
    found: Vec<(Key, String)>,
    query: &Query,
    options: &RemoteOptions,
) -> Result<GivenProviders, Error> {
    let has = |wanted: Key| found.iter().any(|(key, _)| *key == wanted);
    let has_container = has(Key::ContainerCredentialsRelativeUri)
        || has(Key::ContainerCredentialsFullUri) && has(Key::ContainerAuthorizationTokenFile);
    let sources = [
        (GivenSource::Environment, has(Key::AccessKeyId) && has(Key::SecretAccessKey)),
        (GivenSource::Container, has_container),
        (GivenSource::Instance, !is_true(&options.environment, METADATA_OFF)),
    ];
    let metadata = query.get("metadata-endpoint").map(str::to_owned);
    let metadata = metadata.or_else(|| first_value_of(&options.environment, &[METADATA_ENDPOINT]));
    let metadata = metadata.map(|text| checked_endpoint(&text)).transpose()?;
    let (name, client) = (name.to_owned(), client.clone());
    let make = move |source| {
        let others = match source {
            GivenSource::Environment => [&WEB_IDENTITY[..], &CONTAINER].concat(),
            GivenSource::Container => [&KEYS[..], &WEB_IDENTITY].concat(),
            GivenSource::Instance => [&KEYS[..], &WEB_IDENTITY, &CONTAINER].concat(),
        };
        let mut builder = builder(&name, &client);
        for (key, value) in found.iter().filter(|(key, _)| !others.contains(key)) {
            builder = builder.with_config(*key, value);
        }
        if let Some(metadata) = &metadata {
            builder = builder.with_metadata_endpoint(metadata.as_str());
        }
        let built = builder.with_skip_signature(false).build();
        let store = built.map_err(|error| settings(format!("s3://{name}: {error}")))?;
        Ok(store.credentials().clone())
    };
    let sources = sources.into_iter().filter(|(_, is_there)| *is_there).map(|(source, _)| source);
    Ok(GivenProviders::new(sources, make))
}
