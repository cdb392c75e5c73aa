//! Hints that a chunk store has changed: its manifest is read at once, not at the next poll.
//!
//! ```text
//!  POST /api/stores/NAME/refresh    refreshes the store of a table; answers with its root as JSON
//!  POST /api/events/s3              notifications of S3: refreshes the stores whose manifests were
//!                                   written; answers with the tables as JSON
//! ```
//!
//! Both answer when the new version is served. Requests at the same time share a refresh that has
//! not begun. A hint cannot do harm: it takes no more from the sender than the name of a table that
//! the sender may read.

use std::sync::Arc;

use axum::{
    body::{Body, to_bytes},
    extract::{Path, State as Extract},
    http::{Extensions, StatusCode, header},
    response::{IntoResponse, Response},
};
use busload_dolt::Error;
use futures_util::future::join_all;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::{
    limits::MESSAGE_BYTES_MAX,
    s3_events::{ChangedObject, changed_objects},
};
use crate::{
    chunk_sets::{NotServed, ServedStore},
    rights::{may_read, token_sender},
    shown::{Shown, shown_error},
    status::Status,
    tokens::TokenError,
};

/// Status and answer of a request that failed.
type Refused = (StatusCode, Value);

/// Refreshes the store of a table.
pub async fn refresh(
    Extract(status): Extract<Arc<Status>>,
    Path(name): Path<String>,
    extensions: Extensions,
) -> Response {
    answer(refreshed_root(&status, &name, &extensions).await)
}

/// Refreshes the stores whose manifests were written, as notifications of S3 say.
pub async fn s3_events(
    Extract(status): Extract<Arc<Status>>,
    extensions: Extensions,
    body: Body,
) -> Response {
    answer(take_events(&status, &extensions, body).await)
}

fn answer(outcome: Result<Value, Refused>) -> Response {
    let (code, value) = outcome.map_or_else(|refused| refused, |value| (StatusCode::OK, value));
    (code, [(header::CONTENT_TYPE, "application/json")], format!("{value}\n")).into_response()
}

fn refused(code: StatusCode, why: impl Into<String>) -> Refused {
    (code, json!({"failed": why.into()}))
}

async fn refreshed_root(
    status: &Status,
    name: &str,
    extensions: &Extensions,
) -> Result<Value, Refused> {
    let stores = status.chunk_stores().ok_or_else(|| not_serving(status))?;
    let unknown = || {
        let why = format!("no table of kind chunks is called `{}`", Shown(name));
        refused(StatusCode::NOT_FOUND, why)
    };
    let sender = token_sender(extensions);
    if let Some(sender) = sender {
        let may_read = sender.may_read(name).await.map_err(|error| {
            let code = match error {
                TokenError::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::UNAUTHORIZED,
            };
            refused(code, error.to_string())
        })?;
        if !may_read {
            return Err(unknown());
        }
    }
    if !stores.knows(name) {
        return Err(unknown());
    }
    if sender.is_none() && !may_read(extensions, name) {
        let why = format!(
            "this user may not read the table {name}; expected one with the rules +get and \
             %R~{name}:*"
        );
        return Err(refused(StatusCode::FORBIDDEN, why));
    }
    let unavailable = |why: String| refused(StatusCode::SERVICE_UNAVAILABLE, why);
    let served = match stores.serve(name) {
        Ok(served) => served,
        Err(NotServed::Unknown) => return Err(unknown()),
        Err(NotServed::Failed(Error::NoStore(why))) => {
            return Err(refused(StatusCode::NOT_FOUND, why));
        }
        Err(NotServed::Failed(error)) => return Err(unavailable(error.to_string())),
    };
    refresh_store(&served).await.map_err(unavailable)?;
    let stats = served.store().stats();
    Ok(json!({
        "table": name,
        "root": stats.root.map(|root| root.to_string()),
        "files": stats.files,
        "chunks": stats.chunks,
    }))
}

async fn take_events(
    status: &Status,
    extensions: &Extensions,
    body: Body,
) -> Result<Value, Refused> {
    let stores = status.chunk_stores().ok_or_else(|| not_serving(status))?;
    let body = to_bytes(body, MESSAGE_BYTES_MAX).await.map_err(|_| {
        let why = format!("expected notifications of at most {MESSAGE_BYTES_MAX} bytes");
        refused(StatusCode::PAYLOAD_TOO_LARGE, why)
    })?;
    let no_notification = |why: String| refused(StatusCode::BAD_REQUEST, why);
    let objects = changed_objects(&body).map_err(no_notification)?;
    let is_meant = |served: &ServedStore| {
        may_read(extensions, served.name())
            && objects.iter().any(|object| is_manifest(served.store().url(), object))
    };
    let meant: Vec<_> = stores.open_stores().into_iter().filter(is_meant).collect();
    let outcomes = join_all(meant.iter().map(refresh_store)).await;
    let (mut refreshed, mut failed) = (Vec::new(), Map::new());
    for (served, outcome) in meant.iter().zip(outcomes) {
        let name = served.name().to_owned();
        match outcome {
            Ok(()) => refreshed.push(name),
            Err(why) => drop(failed.insert(name, why.into())),
        }
    }
    if failed.is_empty() {
        return Ok(json!({"objects": objects.len(), "refreshed": refreshed}));
    }
    // Who sends the notifications sends them again.
    let outcome = json!({"objects": objects.len(), "refreshed": refreshed, "failed": failed});
    Err((StatusCode::SERVICE_UNAVAILABLE, outcome))
}

fn not_serving(status: &Status) -> Refused {
    refused(StatusCode::SERVICE_UNAVAILABLE, format!("the server is {}", status.state()))
}

/// Waits until a version is served whose manifest was read after this call.
async fn refresh_store(served: &ServedStore) -> Result<(), String> {
    let limit = served.settings().timeout;
    match timeout(limit, served.store().refresh()).await {
        Ok(refreshed) => refreshed.map_err(|error: Error| shown_error(&error.to_string()).into()),
        Err(_) => Err(format!("{} did not answer within {limit:?}", served.store().url())),
    }
}

/// Returns whether an object is a manifest of the store at this URL.
fn is_manifest(url: &str, object: &ChangedObject) -> bool {
    let location = url.split('?').next().unwrap_or(url);
    let Some(location) = location.strip_prefix("s3://") else { return false };
    let (bucket, prefix) = location.split_once('/').unwrap_or((location, ""));
    let prefix = prefix.trim_matches('/');
    let below = match prefix {
        "" => Some(&*object.key),
        _ => object.key.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/')),
    };
    bucket == object.bucket && below.is_some_and(|name| MANIFESTS.contains(&name))
}

/// Names of manifests below a store's prefix: that of the store, and of its old generation.
const MANIFESTS: [&str; 2] = ["manifest", "oldgen/manifest"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_are_known_by_bucket_and_prefix() {
        let is = |url, bucket: &str, key: &str| {
            is_manifest(url, &ChangedObject { bucket: bucket.to_owned(), key: key.to_owned() })
        };
        assert!(is("s3://b/org/db?region=x", "b", "org/db/manifest"));
        assert!(is("s3://b/org/db/", "b", "org/db/oldgen/manifest"));
        assert!(is("s3://b", "b", "manifest"));
        assert!(is("s3://b/?region=x", "b", "manifest"));
        assert!(!is("s3://b/org/db", "other", "org/db/manifest"));
        assert!(!is("s3://b/org/db", "b", "org/db2/manifest"));
        assert!(!is("s3://b/org/db", "b", "org/db/x/manifest"));
        assert!(!is("s3://b/org/db", "b", "manifest"));
        assert!(!is("s3://b/org/db", "b", "org/db/0123"));
        assert!(!is("gs://b/org/db", "b", "org/db/manifest"));
        assert!(!is("aws://[t:b]/org/db", "b", "org/db/manifest"));
    }
}
