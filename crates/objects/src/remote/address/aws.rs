//! `aws://[table:bucket]/database`: a bucket, and an item of a DynamoDB table, as Dolt names them.

use std::sync::Arc;

use object_store::{
    client::{HttpConnector, ReqwestConnector},
    path::Path,
};
use url::Url;

use super::{
    Address, Query, S3_KEYS, client,
    environment::{AWS_DYNAMODB_ENDPOINTS, aws_endpoint},
    is_plain_http, prefix,
    s3::{self, Bucket},
    settings,
};
use crate::{
    Error,
    remote::{
        RemoteOptions,
        aws_api::{AwsApi, ItemAddress},
    },
};

const EXPECTED: &str = "expected aws://[TABLE:BUCKET]/DATABASE, as Dolt writes it";
const SERVICE: &str = "dynamodb";
const ENDPOINT_KEY: &str = "dynamodb-endpoint";
/// DynamoDB's limit of a table's name.
const TABLE_NAME_BYTES_MAX: usize = 255;
/// DynamoDB's limit of a key that finds an item.
const KEY_BYTES_MAX: usize = 2048;

/// Parses what follows `aws://`.
pub(super) fn parse(rest: &str, options: &RemoteOptions) -> Result<Address, Error> {
    let Parts { table, bucket, path } = split(rest)?;
    let url = Url::parse(&format!("aws://{bucket}{path}"))
        .map_err(|error| settings(format!("aws://[{table}:{bucket}]/...: {error}")))?;
    let keys: Vec<&str> =
        S3_KEYS.into_iter().filter(|key| *key != "anonymous").chain([ENDPOINT_KEY]).collect();
    let query = Query::parse(&url, &keys)?;
    let database = database(&url, table, bucket)?;
    let Bucket { store, endpoint, region, profile } = s3::bucket(bucket, &query, options)?;
    let from_outside = aws_endpoint(&options.environment, &AWS_DYNAMODB_ENDPOINTS);
    let from_outside = from_outside.or_else(|| profile.endpoint(SERVICE));
    let item_endpoint = query.endpoint_of(ENDPOINT_KEY, from_outside)?;

    let mut shown = format!("aws://[{table}:{bucket}]/{database}");
    let mut joint = '?';
    for (key, endpoint) in [("endpoint", &endpoint), (ENDPOINT_KEY, &item_endpoint)] {
        if let Some(endpoint) = endpoint {
            shown.push_str(&format!("{joint}{key}={}", endpoint.as_str().trim_end_matches('/')));
            joint = '&';
        }
    }
    let client_options = client(options, &query, is_plain_http(item_endpoint.as_ref()))?;
    let client = ReqwestConnector::default()
        .connect(&client_options)
        .map_err(|error| settings(format!("{shown}: {error}")))?;
    let endpoint = match item_endpoint {
        Some(endpoint) => endpoint,
        None => endpoint_in(&region)?,
    };
    // Two URLs share the calls of a service if they share all that these depend on.
    let account = ["metadata-endpoint", "allow-invalid-certificates", "profile"]
        .map(|key| query.get(key).unwrap_or_default())
        .join(" ");
    let api = AwsApi::new(SERVICE, &region, endpoint, account, store.credentials().clone(), client);
    let item = ItemAddress { api, table: table.to_owned(), key: database.as_ref().to_owned() };
    let store = Arc::new(store);
    Ok(Address { store, prefix: database, url: shown, directory: None, item: Some(item) })
}

/// Names and path in a URL, after its scheme.
struct Parts<'a> {
    table: &'a str,
    bucket: &'a str,
    /// Path of the URL and its query.
    path: &'a str,
}

fn split(rest: &str) -> Result<Parts<'_>, Error> {
    let path_start = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(path_start);
    if host.contains('@') {
        return Err(settings(
            "a user or password in the URL of a store; credentials come from the environment"
                .to_owned(),
        ));
    }
    let names = host.strip_prefix('[').and_then(|names| names.strip_suffix(']'));
    let Some((table, bucket)) = names.and_then(|names| names.split_once(':')) else {
        return Err(settings(format!("aws://{host}: {EXPECTED}")));
    };
    let is_of = |name: &str, others: &[u8]| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || others.contains(&byte))
    };
    if !is_of(table, b"_-.") || TABLE_NAME_BYTES_MAX < table.len() {
        return Err(settings(format!(
            "aws://{host}: {table:?} is no name of a DynamoDB table; {EXPECTED}"
        )));
    }
    if !is_of(bucket, b"_-.") {
        return Err(settings(format!("aws://{host}: {bucket:?} is no bucket; {EXPECTED}")));
    }
    Ok(Parts { table, bucket, path })
}

/// Returns the name of the database, which is the item's key and the prefix of the objects.
fn database(url: &Url, table: &str, bucket: &str) -> Result<Path, Error> {
    let database = prefix(url)?;
    if !(1..=KEY_BYTES_MAX).contains(&database.as_ref().len()) {
        return Err(settings(format!(
            "aws://[{table}:{bucket}]: the database is missing, or longer than {KEY_BYTES_MAX} \
             bytes; {EXPECTED}"
        )));
    }
    Ok(database)
}

/// Names Amazon's endpoint in a region; China has a domain of its own.
fn endpoint_in(region: &str) -> Result<Url, Error> {
    let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
    let is_plain = region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let url = Url::parse(&format!("https://{SERVICE}.{region}.{domain}"));
    url.ok()
        .filter(|_| is_plain && !region.is_empty())
        .ok_or_else(|| settings(format!("region {region:?}: expected one like eu-west-1")))
}
