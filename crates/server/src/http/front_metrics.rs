//! What the front counts. `/metrics` shows it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

/// Of all connections together.
#[derive(Debug, Default)]
pub struct FrontMetrics {
    /// Connections now.
    pub connections: AtomicU64,
    /// Connections accepted.
    pub accepted: AtomicU64,
    /// Connections closed because their client did not take an answer.
    pub stuck: AtomicU64,
    /// Connections closed because they sent too many frames that ask for nothing.
    pub flooded: AtomicU64,
    /// Connections closed because there was too much of their requests and answers in memory.
    pub evicted: AtomicU64,
    /// Bytes of requests and answers in memory now.
    pub memory_bytes: AtomicUsize,
    /// Requests refused because that was too much.
    pub memory_refused: AtomicU64,
    /// Requests refused for a wrong password, credentials that cannot be read, or a wrong key. One
    /// without any is none: some clients ask what is asked for.
    pub auth_denied: AtomicU64,
    /// Requests whose password was not looked at, since too many wrong ones came from their
    /// address.
    pub auth_refused: AtomicU64,
    /// Requests refused because they were for another host, or came from a page of another site.
    pub foreign_refused: AtomicU64,
}

impl FrontMetrics {
    /// A connection more, until the place is dropped.
    pub fn accept(self: &Arc<Self>) -> Open {
        self.accepted.fetch_add(1, Relaxed);
        self.connections.fetch_add(1, Relaxed);
        Open(Arc::clone(self))
    }
}

/// One connection.
#[derive(Debug)]
pub struct Open(Arc<FrontMetrics>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}
