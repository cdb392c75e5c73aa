//! The HTTP front: pages for people and monitoring, metrics, gRPC and Dolt's downloads. It serves
//! HTTP/1.1 and HTTP/2, with TLS where the server has a certificate, on one port and on threads of
//! its own. It reads counters that the pipeline writes, and no request of a Redis client passes
//! through it.
//!
//! ```text
//!  accept --> connection --> account --> guard ---> routes --+--> pages, dashboard, metrics, APIs
//!  (permits)  (stalls)       (memory)   (names, password)    +--> gRPC, downloads
//! ```
//!
//! **Routes** (`routes`). One table has every path, its handler, who may call it, and its limits.
//!
//! **Limits** ([`limits`]). The number of connections is bounded, and further ones wait to be
//! accepted. Connections are closed when they are idle, or when their clients stop taking answers.
//! Requests and answers in memory count against budgets. **Access** (`guard`). On loopback
//! addresses without a file of users clients need no password, elsewhere every client is a user;
//! the configuration makes sure that there is a password. Where clients need none, the front
//! refuses requests for foreign host names (`names`).

mod accept;
mod account;
mod cache_api;
mod connection;
mod costs;
mod dashboard;
mod dolt_host;
mod frames;
mod front;
mod front_metrics;
mod guard;
pub mod limits;
mod metrics;
mod names;
mod pages;
mod routes;
mod s3_events;
mod stats_api;
mod stores_api;

use std::{
    net::{SocketAddr, TcpListener},
    num::NonZeroUsize,
    sync::Arc,
    thread,
};

use tokio::runtime::{Builder, Runtime};

pub use front::Front;
pub use front_metrics::FrontMetrics;
pub use limits::CONNECTION_COUNT_LIMIT;
pub use names::{HostName, Names};
pub use stats_api::SlowArguments;

use crate::{failure::Failure, peers, status::Status};

/// Threads and connections of the front.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Threads that serve HTTP and nothing else.
    pub threads: NonZeroUsize,
    /// Most connections at once.
    pub connections_max: u32,
}

/// Binds the socket that the front listens on.
pub fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).map_err(|error| cannot_listen(address, &error))
}

fn cannot_listen(address: SocketAddr, error: &std::io::Error) -> Failure {
    Failure::run(format!("cannot listen on {address} for HTTP: {error}"))
}

/// Binds the address and starts to serve. Returns the address with the port that the system chose.
pub fn start(
    address: SocketAddr,
    size: Size,
    front: Front,
    status: Arc<Status>,
) -> Result<SocketAddr, Failure> {
    let failed = |error: std::io::Error| cannot_listen(address, &error);
    let listener = listen(address)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let runtime = runtime(size.threads).map_err(failed)?;
    let listener = {
        let _within = runtime.enter();
        tokio::net::TcpListener::from_std(listener).map_err(failed)?
    };
    if let Some(found) = status.peers() {
        runtime.spawn(peers::run(Arc::clone(found)));
    }
    runtime.spawn(stats_api::record(Arc::clone(&status), front.clone()));
    // Spawned, so that with several threads this one only waits.
    let (metrics, tls) = (Arc::clone(&front.metrics), front.tls.clone());
    if let Some(identity) = &tls {
        // Once per process.
        let _ = metrics.tls.set(Arc::clone(identity));
    }
    let accept =
        accept::serve(listener, tls, routes::router(status, front), size.connections_max, metrics);
    let serve = async move { tokio::spawn(accept).await };
    let body = move || {
        if let Err(error) = runtime.block_on(serve) {
            log::error!("HTTP is not served any more: {error}");
        }
    };
    thread::Builder::new().name("http".into()).spawn(body).map_err(failed)?;
    Ok(bound)
}

fn runtime(threads: NonZeroUsize) -> std::io::Result<Runtime> {
    let mut builder = match threads.get() {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    builder.worker_threads(threads.get()).thread_name("http").enable_io().enable_time().build()
}
