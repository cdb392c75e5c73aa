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
//! A client that reads nothing is disconnected after
//! [`WRITE_STALL_MAX`](crate::http::limits::WRITE_STALL_MAX). **Shutdown.** Downloads in progress
//! are cut off.

mod body;
mod conditions;
mod plan;
mod range;
mod refusal;
mod source;

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State as Extract},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
    routing::any,
};
use busload_dolt::Error;
use futures_util::{FutureExt, StreamExt};
use tokio::time::timeout_at;

use self::{
    body::{AnswerBody, Sending},
    plan::{Part, Plan, plan},
    refusal::Refusal,
    source::{Records, Source},
};
use super::{
    Remotesapi,
    limits::{RECORDS_CHUNKS_MAX, SENDING_BYTES_MAX},
    records,
    rooms::{Budgets, Share},
    url::{Bundle, FileName, PREFIX, Resource},
};
use crate::{chunk_stores::ChunkTable, config::ChunksSettings, http::check_memory, shown::Shown};

/// Error text for paths that name no resource.
const PATHS: &str = "expected /dolt/v1/TABLE/files/VERSION/ID, the same with .darc, or \
                     /dolt/v1/TABLE/records/BUNDLE, as lists and locations have it";
/// Methods that downloads support.
const METHODS: &str = "GET, HEAD";
/// Query parameter that holds the key.
const KEY: &str = "key=";

/// Builds the routes of all downloads.
pub fn routes(remotesapi: &Arc<Remotesapi>) -> Router {
    let downloads =
        Downloads { remotesapi: Arc::clone(remotesapi), rooms: Budgets::new(SENDING_BYTES_MAX) };
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

/// State that answers to downloads need.
#[derive(Debug)]
struct Downloads {
    remotesapi: Arc<Remotesapi>,
    /// Memory budget of each table for bytes being sent.
    rooms: Budgets,
}

impl Downloads {
    async fn answer(&self, request: &Parts) -> Result<Response, Refusal> {
        let arrived = tokio::time::Instant::now();
        if !matches!(request.method, Method::GET | Method::HEAD) {
            let refusal = Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                format!("expected one of {METHODS}: this is for reading only"),
            );
            return Err(refusal.with(header::ALLOW, HeaderValue::from_static(METHODS)));
        }
        let target =
            Target::parse(request).ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, PATHS))?;
        let table = self.table(&target)?;
        let answer = self.answer_from(table, &target, request, arrived).await;
        answer.inspect_err(|refusal| {
            // Clients print at most the status of a refused download, so the text is logged here.
            if refusal.status.is_server_error() {
                let text = format!("a download was refused: {}", refusal.text);
                self.remotesapi
                    .status
                    .rate_limited_log
                    .warn(&format!("table {}", table.settings.name), &text);
            }
        })
    }

    async fn answer_from(
        &self,
        table: &ChunkTable,
        target: &Target<'_>,
        request: &Parts,
        arrived: tokio::time::Instant,
    ) -> Result<Response, Refusal> {
        check_memory(&request.extensions).map_err(|status| Refusal::later(status.message()))?;
        let deadline = (arrived + table.settings.timeout).into_std();
        let source = self.source(target, table, deadline).await?;
        let etag = etag(&target.resource);
        let share = request.extensions.get::<Arc<Share>>().map(|share| &**share);
        let headers = Headers {
            etag: &etag,
            is_public: !self.remotesapi.front.access.asks(),
            size: source.size(),
        };
        match plan(&request.method, &request.headers, &etag, source.size())? {
            Plan::NotModified => Ok(headers.not_modified()),
            Plan::Head => Ok(headers.whole(Body::empty())),
            Plan::Whole(part) => {
                Ok(headers.whole(self.body((&source, &part), table, share, deadline).await?))
            }
            Plan::Part(part) => {
                Ok(headers.part(&part, self.body((&source, &part), table, share, deadline).await?))
            }
        }
    }

    /// Checks the key and finds the table, in this order: a client without the key learns nothing
    /// about tables.
    fn table(&self, target: &Target<'_>) -> Result<&ChunkTable, Refusal> {
        let Remotesapi { status, front, .. } = &*self.remotesapi;
        if !front.access.allows_key(target.table, target.key) {
            front.metrics.auth_denied.fetch_add(u64::from(target.key.is_some()), Ordering::Relaxed);
            let text = "the key of this URL is not that of the table now: ask for locations again";
            return Err(Refusal::new(StatusCode::FORBIDDEN, text));
        }
        let stores = status.chunk_stores().ok_or_else(|| Refusal::later("busload is starting"))?;
        let table = stores.tables().iter().find(|table| table.settings.name == target.table);
        table.ok_or_else(|| {
            let text = format!("no table of kind chunks has the name \"{}\"", Shown(target.table));
            Refusal::new(StatusCode::NOT_FOUND, text)
        })
    }

    async fn source(
        &self,
        target: &Target<'_>,
        table: &ChunkTable,
        deadline: Instant,
    ) -> Result<Source, Refusal> {
        let (found, text) = match &target.resource {
            Resource::File(name) => {
                let FileName { id, kind, version } = *name;
                let file = table.store.file_bytes(id, kind, version, deadline);
                let file = within_deadline(deadline, table, file).await?.map(Source::File);
                (
                    file,
                    "the store has no such table file, or not in this version any more: \
                     list the files again",
                )
            }
            Resource::Records(bundle) => {
                let bytes = self.remotesapi.records.get(&table.store, bundle, deadline);
                let bytes = within_deadline(deadline, table, bytes).await?;
                let records = |bytes| Records::new(&self.remotesapi, (&table.store, bundle), bytes);
                (
                    bytes.map(|bytes| Source::Records(records(bytes))),
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
        table: &ChunkTable,
        share: Option<&Share>,
        deadline: Instant,
    ) -> Result<Body, Refusal> {
        let full = || {
            Refusal::later(
                "other downloads of the table, or of this connection, take all the memory for \
                 them, and none ended in time",
            )
        };
        let wanted = (&*table.settings.name, source.held(part));
        let room = self.rooms.take_shared(share, wanted, deadline).await.ok_or_else(full)?;
        let (status, kind) = (Arc::clone(&self.remotesapi.status), source.kind(part));
        let mut pieces = source.stream(part, table.settings.timeout);
        let first = match within_deadline(deadline, table, pieces.next().map(Option::transpose))
            .await?
        {
            Some(first) => first,
            None if part.range.is_empty() => return Ok(Body::empty()),
            None => return Err(Refusal::later("the bytes of the file ended before they began")),
        };
        status.remotesapi.count_download(kind);
        let sending =
            Sending { status, kind, table: table.settings.name.clone(), _room: Some(room) };
        Ok(Body::new(AnswerBody::new(first, pieces, part.range.end - part.range.start, sending)))
    }
}

/// Waits for the store's answer until the request's deadline.
async fn within_deadline<T>(
    deadline: Instant,
    table: &ChunkTable,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Refusal> {
    let ChunksSettings { name, url, timeout, .. } = &table.settings;
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
        let mut components = path.split('/');
        let mut next = || components.next();
        let (table, kind, first, second, end) = (next()?, next()?, next()?, next(), next());
        let resource = match (kind, second, end) {
            ("files", Some(name), None) => Resource::File(FileName::parse(first, name)?),
            ("records", None, None) => Resource::Records(bundle(first)?),
            _ => return None,
        };
        let key = query.and_then(|query| query.split('&').find_map(|pair| pair.strip_prefix(KEY)));
        Some(Self { table, resource, key })
    }
}

/// Parses a bundle. Longer ones than busload advertises are refused.
fn bundle(text: &str) -> Option<Bundle> {
    Bundle::parse(text).filter(|bundle| bundle.addresses.len() <= RECORDS_CHUNKS_MAX)
}

/// Returns the entity tag. It identifies the bytes as the URL does, so no process ever serves other
/// bytes under it.
fn etag(resource: &Resource) -> HeaderValue {
    let text = match resource {
        Resource::File(FileName { id, version, .. }) => format!("\"{version:016x}-{id}\""),
        Resource::Records(bundle) => format!("\"{}\"", records::digest(bundle)),
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
