//! Counters of the HTTP front, shown at `/metrics`.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use busload_tls::Identity;

use crate::tokens::TokenMetrics;

/// Counters of all connections together.
#[derive(Debug, Default)]
pub struct FrontMetrics {
    /// Certificate of the server, with the counters of TLS; set if the server uses TLS.
    pub tls: OnceLock<Arc<Identity>>,
    /// Connections that are open now.
    pub connections: AtomicU64,
    /// Connections accepted since the start.
    pub accepted: AtomicU64,
    /// Connections closed because their client did not take an answer.
    pub stuck: AtomicU64,
    /// Connections closed because they sent too many frames that ask for nothing.
    pub flooded: AtomicU64,
    /// Connections closed because their requests and answers took too much memory.
    pub evicted: AtomicU64,
    /// Bytes of requests and answers in memory now.
    pub memory_bytes: AtomicUsize,
    /// Requests refused because there was too little memory left.
    pub memory_refused: AtomicU64,
    /// Requests refused for a wrong password, unreadable credentials, or a wrong key. Requests
    /// without credentials do not count: some clients send one first to learn what is asked for.
    pub auth_denied: AtomicU64,
    /// Requests whose password was not checked, because too many wrong ones came from their
    /// address.
    pub auth_refused: AtomicU64,
    /// Counters of requests with tokens.
    pub tokens: Arc<TokenMetrics>,
    /// Requests refused because they asked for a foreign host, or came from a page of another site.
    pub foreign_refused: AtomicU64,
}

impl FrontMetrics {
    /// Counts a connection until the returned guard is dropped.
    pub fn accept(self: &Arc<Self>) -> Open {
        self.accepted.fetch_add(1, Relaxed);
        self.connections.fetch_add(1, Relaxed);
        Open(Arc::clone(self))
    }
}

/// Guard that counts one open connection.
#[derive(Debug)]
pub struct Open(Arc<FrontMetrics>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}
