//! Downloads of table files and bundles of records, whole or by range.
//!
//! ```text
//!  GET, HEAD --> path, key --> source -------> plan -----> memory --> first piece --> body
//!                404, 403      FileBytes or    304, 412,   budget     503, 502        cut off
//!                              records; 404    400, 416    503
//! ```
//!
//! **Statuses** are sent once the first bytes are there, so that every failure until then has its
//! own status and text. All steps up to there share one deadline, the table's timeout after the
//! request's arrival: clients wait at most 15 seconds for a status. A later failure cuts the
//! connection: clients of Dolt then resume at the next byte, but take an answer that ends early
//! without an error for corruption. **Ranges** are answered one per request. Several ranges and
//! malformed ones are refused: the standard would allow a server to send the whole file instead,
//! which Dolt takes for the range. **Limits.** Bytes in memory for slow clients
//! ([`SENDING_BYTES_MAX`] for a table, a quarter of it for one connection); further downloads wait.
//! The HTTP front disconnects a client that reads nothing. **Shutdown.** Downloads in progress are
//! cut off.

mod body;
mod conditions;
mod plan;
mod range;
mod refusal;
mod source;

use std::{sync::Arc, time::Instant};

use axum::{
    Router,
    body::Body,
    extract::{Request, State as Extract},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
    routing::any,
};
use busload_calls::{Shown, check_memory};
use busload_dolt::Error;
use futures_util::{FutureExt, StreamExt};
use tokio::time::timeout_at;

use self::{
    body::{AnswerBody, Sending},
    plan::{Part, Plan, plan},
    refusal::Refusal,
    source::{BundleBytes, Source},
};
use crate::{
    Remotesapi, bundles,
    host::{KeyCheck, Repository},
    limits::{RECORDS_CHUNKS_MAX, SENDING_BYTES_MAX},
    memory::{ConnectionQuota, TableBudgets},
    url::{BundleId, FileName, PREFIX, Resource},
};

/// Error text for paths that name no resource.
const PATHS: &str = "expected /dolt/v1/TABLE/files/VERSION/ID, the same with .darc, or \
                     /dolt/v1/TABLE/records/BUNDLE, as lists and locations have it";
/// Methods that downloads support.
const METHODS: &str = "GET, HEAD";
/// Query parameter that holds the key.
const KEY: &str = "key=";

/// Builds the routes of all downloads.
pub fn routes(remotesapi: &Arc<Remotesapi>) -> Router {
    let memory = TableBudgets::new(SENDING_BYTES_MAX);
    let downloads = Downloads { remotesapi: Arc::clone(remotesapi), memory };
    Router::new()
        .route(PREFIX, any(answer))
        .route(&format!("{PREFIX}/"), any(answer))
        .route(&format!("{PREFIX}/{{*path}}"), any(answer))
        .with_state(Arc::new(downloads))
}

async fn answer(Extract(downloads): Extract<Arc<Downloads>>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    downloads.answer(&parts).await.unwrap_or_else(Refusal::into_response)
}

/// Time at which a request arrived, and until which its answer must begin.
#[derive(Clone, Copy, Debug)]
struct Due {
    arrived: tokio::time::Instant,
    deadline: Instant,
}

/// State that answers to downloads need.
#[derive(Debug)]
struct Downloads {
    remotesapi: Arc<Remotesapi>,
    /// Memory budget of each table for bytes being sent.
    memory: TableBudgets,
}

impl Downloads {
    async fn answer(&self, request: &Parts) -> Result<Response, Refusal> {
        let arrived = tokio::time::Instant::now();
        if !matches!(request.method, Method::GET | Method::HEAD) {
            let refusal = Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                format!("method not allowed, downloads are read-only; expected one of {METHODS}"),
            );
            return Err(refusal.with(header::ALLOW, HeaderValue::from_static(METHODS)));
        }
        let target =
            Target::parse(request).ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, PATHS))?;
        let (repository, key) = self.repository(&target)?;
        let answer = self.answer_from((&repository, key), &target, request, arrived).await;
        answer.inspect_err(|refusal| {
            // Clients print at most the status of a refused download, so the text is logged here.
            if refusal.status.is_server_error() {
                let text = format!("a download was refused: {}", refusal.text);
                let matter = format!("table {}", repository.name);
                self.remotesapi.rate_limited_log.warn(&matter, &text);
            }
        })
    }

    async fn answer_from(
        &self,
        (repository, key): (&Repository, KeyCheck),
        target: &Target<'_>,
        request: &Parts,
        arrived: tokio::time::Instant,
    ) -> Result<Response, Refusal> {
        check_memory(&request.extensions).map_err(|status| Refusal::later(status.message()))?;
        let deadline = (arrived + repository.timeout).into_std();
        let due = Due { arrived, deadline };
        let source = self.source(target, repository, deadline).await?;
        let etag = etag(&target.resource);
        let quota = request.extensions.get::<Arc<ConnectionQuota>>().map(|quota| &**quota);
        let headers =
            Headers { etag: &etag, is_public: key == KeyCheck::Public, size: source.size() };
        match plan(&request.method, &request.headers, &etag, source.size())? {
            Plan::NotModified => Ok(headers.not_modified()),
            Plan::Head => Ok(headers.whole(Body::empty())),
            Plan::Whole(part) => {
                let body = self.body((&source, &part), repository, quota, due).await?;
                Ok(headers.whole(body))
            }
            Plan::Part(part) => {
                let body = self.body((&source, &part), repository, quota, due).await?;
                Ok(headers.part(&part, body))
            }
        }
    }

    /// Checks the key and finds the repository, in this order: a client without the key learns
    /// nothing about tables.
    fn repository(&self, target: &Target<'_>) -> Result<(Arc<Repository>, KeyCheck), Refusal> {
        let host = &self.remotesapi.host;
        let key = host.check_key(target.table, target.key);
        if key == KeyCheck::Wrong {
            let text = "the key of this URL is not that of the table, or has expired: ask for \
                        locations again";
            return Err(Refusal::new(StatusCode::FORBIDDEN, text));
        }
        let repositories = host.repositories();
        let repositories = repositories.ok_or_else(|| Refusal::later("busload is starting"))?;
        let named = repositories.iter().find(|repository| repository.name == target.table);
        if let Some(repository) = named {
            return Ok((repository.clone(), key));
        }
        let repository = host.open_repository(target.table)?.ok_or_else(|| {
            let text = format!("no table of kind chunks has the name \"{}\"", Shown(target.table));
            Refusal::new(StatusCode::NOT_FOUND, text)
        })?;
        Ok((repository, key))
    }

    async fn source(
        &self,
        target: &Target<'_>,
        repository: &Repository,
        deadline: Instant,
    ) -> Result<Source, Refusal> {
        let store = &repository.store;
        let (found, text) = match &target.resource {
            Resource::File(name) => {
                let FileName { id, kind, version } = *name;
                let file = store.file_bytes(id, kind, version, deadline);
                let file = within_deadline(deadline, repository, file).await?.map(Source::File);
                (
                    file,
                    "the store has no such table file, or not in this version any more: \
                     list the files again",
                )
            }
            Resource::Records(bundle) => {
                let bytes = self.remotesapi.bundles.get(store, bundle, deadline);
                let bytes = within_deadline(deadline, repository, bytes).await?;
                let source = |bytes| BundleBytes::new(&self.remotesapi, (store, bundle), bytes);
                (
                    bytes.map(|bytes| Source::Bundle(source(bytes))),
                    "the store does not have these chunks any more, or not in this layout: \
                     ask for locations again",
                )
            }
        };
        found.ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, text))
    }

    /// Returns the body once its first piece is there.
    async fn body(
        &self,
        (source, part): (&Source, &Part),
        repository: &Repository,
        quota: Option<&ConnectionQuota>,
        Due { arrived, deadline }: Due,
    ) -> Result<Body, Refusal> {
        let full = || {
            Refusal::later(
                "other downloads of the table, or of this connection, take all the memory for \
                 them, and none ended in time",
            )
        };
        let wanted = (&*repository.name, source.reserved_bytes(part));
        let reserved = self.memory.reserve_with_quota(quota, wanted, deadline).await;
        let reservation = reserved.ok_or_else(full)?;
        let (remotesapi, kind) = (Arc::clone(&self.remotesapi), source.kind(part));
        let mut pieces = source.stream(part, repository.timeout);
        let first = pieces.next().map(Option::transpose);
        let timer = repository.times.since(kind.timed(), arrived);
        let first = within_deadline(deadline, repository, first).await;
        timer.end();
        let first = match first? {
            Some(first) => first,
            None if part.range.is_empty() => return Ok(Body::empty()),
            None => return Err(Refusal::later("the bytes of the file ended before they began")),
        };
        remotesapi.stats.count_download(kind);
        let usage = Arc::clone(repository.store.usage());
        usage.count_download();
        let sending = Sending {
            remotesapi,
            kind,
            usage,
            table: repository.name.clone(),
            _reservation: Some(reservation),
        };
        Ok(Body::new(AnswerBody::new(first, pieces, part.range.end - part.range.start, sending)))
    }
}

/// Waits for the store's answer until the request's deadline.
async fn within_deadline<T>(
    deadline: Instant,
    repository: &Repository,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Refusal> {
    let Repository { name, url, timeout, .. } = repository;
    let late = |_| {
        let text =
            format!("{url} did not answer within {timeout:?}, the timeout of the table {name}");
        Refusal::later(text)
    };
    Ok(timeout_at(deadline.into(), answer).await.map_err(late)??)
}

/// Table, resource and key that a request names.
#[derive(Debug, PartialEq, Eq)]
struct Target<'a> {
    table: &'a str,
    resource: Resource,
    key: Option<&'a str>,
}

impl<'a> Target<'a> {
    fn parse(request: &'a Parts) -> Option<Self> {
        let (path, query) =
            (request.uri.path().strip_prefix(PREFIX)?.strip_prefix('/')?, request.uri.query());
        // The name of a store may have several components.
        let (path, last) = path.rsplit_once('/')?;
        let (path, middle) = path.rsplit_once('/')?;
        let (table, resource) = match middle {
            "records" => (path, Resource::Records(bundle(last)?)),
            version => {
                let (table, kind) = path.rsplit_once('/')?;
                let name = FileName::parse(version, last).filter(|_| kind == "files")?;
                (table, Resource::File(name))
            }
        };
        if table.is_empty() {
            return None;
        }
        let key = query.and_then(|query| query.split('&').find_map(|pair| pair.strip_prefix(KEY)));
        Some(Self { table, resource, key })
    }
}

/// Parses a bundle. Longer ones than busload advertises are refused.
fn bundle(text: &str) -> Option<BundleId> {
    BundleId::parse(text).filter(|bundle| bundle.addresses.len() <= RECORDS_CHUNKS_MAX)
}

/// Returns the entity tag. It identifies the bytes as the URL does, so no process ever serves other
/// bytes under it.
fn etag(resource: &Resource) -> HeaderValue {
    let text = match resource {
        Resource::File(FileName { id, version, .. }) => format!("\"{version:016x}-{id}\""),
        Resource::Records(bundle) => format!("\"{}\"", bundles::digest(bundle)),
    };
    HeaderValue::try_from(text).expect("hexadecimal and base 32 are ASCII")
}

/// Headers of an answer about the bytes of a resource.
struct Headers<'a> {
    etag: &'a HeaderValue,
    /// Set if shared caches may store the bytes.
    is_public: bool,
    size: u64,
}

impl Headers<'_> {
    fn not_modified(&self) -> Response {
        (StatusCode::NOT_MODIFIED, self.common()).into_response()
    }

    fn whole(&self, body: Body) -> Response {
        let mut headers = self.common();
        headers.insert(header::CONTENT_LENGTH, self.size.into());
        (StatusCode::OK, headers, body).into_response()
    }

    fn part(&self, part: &Part, body: Body) -> Response {
        let range = &part.range;
        let text = format!("bytes {}-{}/{}", range.start, range.end - 1, self.size);
        let mut headers = self.common();
        headers.insert(header::CONTENT_LENGTH, (range.end - range.start).into());
        headers.insert(header::CONTENT_RANGE, HeaderValue::try_from(text).expect("ASCII"));
        (StatusCode::PARTIAL_CONTENT, headers, body).into_response()
    }

    /// Returns the headers of all answers. A URL with a key is a secret, so the bytes under it must
    /// not be stored by shared caches.
    fn common(&self) -> HeaderMap {
        let control = match self.is_public {
            true => "public, max-age=31536000, immutable",
            false => "private, max-age=31536000, immutable",
        };
        HeaderMap::from_iter([
            (header::ETAG, self.etag.clone()),
            (header::ACCEPT_RANGES, HeaderValue::from_static("bytes")),
            (header::CACHE_CONTROL, HeaderValue::from_static(control)),
            (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        ])
    }
}

#[cfg(test)]
mod tests;
