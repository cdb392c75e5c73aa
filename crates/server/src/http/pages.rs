//! Pages for people and monitoring.

use std::sync::Arc;

use axum::{
    extract::State as Extract,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};

use super::{front::Front, metrics::render};
use crate::status::{ServerState, Status};

const INDEX: &str = "\
<!doctype html>
<html lang=\"en\"><meta charset=\"utf-8\"><title>busload</title>
<h1>busload</h1>
<ul>
<li><a href=\"/healthz\">/healthz</a>: 200 while the process lives
<li><a href=\"/readyz\">/readyz</a>: 200 when it serves, else 503 and why not
<li><a href=\"/metrics\">/metrics</a>: metrics, for Prometheus
</ul>
</html>
";

/// Answers with a page that leads to the others.
pub async fn index() -> Response {
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], INDEX).into_response()
}

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
