//! The HTTP front: for people and for metrics. HTTP/1.1 and HTTP/2 without TLS, on a thread of its own; it reads figures the
//! pipeline writes and is never on the way of a request.
//!
//! **Limits.** So many connections at once ([`CONNECTION_COUNT_LIMIT`]), the others wait; idle ones are closed. No password is asked, so it
//! listens on loopback only, which the configuration sees to.

mod limited;
mod metrics;

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread,
};

use axum::{
    Router,
    extract::State as Extract,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};

use crate::{
    failure::Failure,
    status::{State, Status},
};

/// Connections served at once.
pub const CONNECTION_COUNT_LIMIT: usize = 64;

const PAGE: &str = "\
<!doctype html>
<html lang=\"en\"><meta charset=\"utf-8\"><title>busload</title>
<h1>busload</h1>
<ul>
<li><a href=\"/healthz\">/healthz</a>: 200 while the process lives
<li><a href=\"/readyz\">/readyz</a>: 200 when it serves, else 503 and why not
<li><a href=\"/metrics\">/metrics</a>: figures, for Prometheus
</ul>
</html>
";

/// Binds and serves on a thread of its own. Returns the address, with the port the system chose.
pub fn start(address: SocketAddr, status: Arc<Status>) -> Result<SocketAddr, Failure> {
    let failed =
        |error: std::io::Error| Failure::run(format!("cannot listen on {address} for HTTP: {error}"));
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.map_err(failed)?;
    let serve = async move {
        let listener = limited::Listener::new(listener, CONNECTION_COUNT_LIMIT)?;
        axum::serve(listener, router(status)).await
    };
    thread::Builder::new()
        .name("http".into())
        .spawn(move || {
            if let Err(error) = runtime.block_on(serve) {
                log::error!("HTTP is not served any more: {error}");
            }
        })
        .map_err(failed)?;
    Ok(bound)
}

fn router(status: Arc<Status>) -> Router {
    Router::new()
        .route("/", get(async || text("text/html; charset=utf-8", PAGE.to_owned())))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route(
            "/metrics",
            get(async |Extract(status): Extract<Arc<Status>>| {
                text("text/plain; version=0.0.4; charset=utf-8", metrics::render(&status))
            }),
        )
        .with_state(status)
}

async fn ready(Extract(status): Extract<Arc<Status>>) -> Response {
    let state = status.state();
    let code = if state == State::Ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, format!("{state}\n")).into_response()
}

fn text(kind: &'static str, body: String) -> Response {
    ([(header::CONTENT_TYPE, kind)], body).into_response()
}
