//! Pages for people and monitoring.

use std::sync::Arc;

use axum::{
    extract::State as Extract,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};

use super::{front::Front, metrics::render};
use crate::status::{ServerState, Status};

/// Answers while the process lives.
pub async fn alive() -> &'static str {
    "ok\n"
}

/// Answers whether the server serves, and if not, why.
pub async fn ready(Extract(status): Extract<Arc<Status>>) -> Response {
    let state = status.state();
    let code =
        if state == ServerState::Ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, format!("{state}\n")).into_response()
}

/// Answers with all metrics.
pub async fn metrics(Extract((status, front)): Extract<(Arc<Status>, Arc<Front>)>) -> Response {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], render(&status, &front.metrics)).into_response()
}
