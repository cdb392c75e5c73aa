//! `/api/stats`: all counters and the history of the last minutes as JSON, for the dashboard.
//!
//! ```text
//!  Status, FrontMetrics --> Reading --+--> document: counters, health with reasons, latencies
//!                             |       `--> History: a sample each second, the last five minutes
//!                             `--> the same reading is behind /metrics
//! ```
//!
//! Counters count since the start of the process or `CONFIG RESETSTAT`; whoever wants a rate takes
//! the difference of two samples. The server records the samples whether or not anybody looks, so
//! that a page opened in the middle of the night shows what happened before. A sample reads what
//! `/metrics` reads, once a second.
//!
//! `docs/dashboard.md` names every field; a test compares the page with what is served.

mod document;
mod health;
mod history;
mod tables;

use std::sync::Arc;

use axum::{
    extract::State as Extract,
    http::{StatusCode, Uri, header},
    response::{IntoResponse, Response},
};

pub use history::{History, record};

use super::{front::Front, metrics::Reading};
use crate::status::Status;

/// Treatment of the arguments of slow commands, which are keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlowArguments {
    /// Everybody who may ask for the statistics may see them.
    #[default]
    Shown,
    /// Redis clients need a password for them, and clients of HTTP do not.
    LeftOut,
}

/// Answers with all counters, and with the samples that are younger than `?since=MS` of uptime. All
/// samples have the uptime at which they were taken, and a client passes that of its last one.
pub async fn stats(
    Extract((status, front)): Extract<(Arc<Status>, Arc<Front>)>,
    uri: Uri,
) -> Response {
    let since = match since(uri.query()) {
        Ok(since) => since,
        Err(why) => return (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
    };
    let reading = Reading::new(&status, &front.metrics);
    let document = document::document(&reading, &front.history, since, front.slow_arguments);
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (headers, format!("{document}\n")).into_response()
}

/// Parses the query: nothing, or `since=` and a number.
fn since(query: Option<&str>) -> Result<Option<u64>, String> {
    let Some(query) = query.filter(|query| !query.is_empty()) else { return Ok(None) };
    let number = query.strip_prefix("since=").and_then(|number| number.parse().ok());
    number.map(Some).ok_or_else(|| "expected ?since= and a number of milliseconds".to_owned())
}

#[cfg(test)]
mod tests;
