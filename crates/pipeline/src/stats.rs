//! What the stages count. Written by the stages with relaxed atomics, read by INFO and `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Batches of one stage and how full they were.
#[derive(Debug, Default)]
pub struct BatchCounter {
    batches: AtomicU64,
    items: AtomicU64,
    max: AtomicU64,
}

/// A reading of a [`BatchCounter`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BatchReading {
    /// Batches so far.
    pub batches: u64,
    /// Items in them.
    pub items: u64,
    /// Items of the fullest.
    pub max: u64,
}

impl BatchReading {
    /// Items per batch.
    pub fn mean(&self) -> f64 {
        if self.batches == 0 { 0.0 } else { self.items as f64 / self.batches as f64 }
    }
}

impl BatchCounter {
    /// One batch more. Only one thread writes a counter, so plain loads and stores do.
    pub fn record(&self, items: usize) {
        let items = items as u64;
        self.batches.store(self.batches.load(Relaxed) + 1, Relaxed);
        self.items.store(self.items.load(Relaxed) + items, Relaxed);
        if self.max.load(Relaxed) < items {
            self.max.store(items, Relaxed);
        }
    }

    /// The figures now.
    pub fn read(&self) -> BatchReading {
        BatchReading {
            batches: self.batches.load(Relaxed),
            items: self.items.load(Relaxed),
            max: self.max.load(Relaxed),
        }
    }

    /// Starts again (CONFIG RESETSTAT).
    pub fn reset(&self) {
        self.batches.store(0, Relaxed);
        self.items.store(0, Relaxed);
        self.max.store(0, Relaxed);
    }
}

/// A number one thread writes and others read.
#[derive(Debug, Default)]
pub struct Figure(AtomicU64);

impl Figure {
    /// Adds; only the owning thread may.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(amount), Relaxed);
    }

    /// Sets.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// Sets, unless it is larger.
    #[inline]
    pub fn raise(&self, value: u64) {
        if self.get() < value {
            self.set(value);
        }
    }

    /// The value now.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Figures of all stages. `*_total` only grow (but for a reset), the others are of now.
#[derive(Debug, Default)]
pub struct Stats {
    /// Requests per batch that net handed to tx.
    pub net_batches: BatchCounter,
    /// Requests per batch that tx executed (given-back ones not counted).
    pub tx_batches: BatchCounter,
    /// Log records per hand-over to the log.
    pub commit_batches: BatchCounter,
    /// Replies per release.
    pub reply_batches: BatchCounter,
    /// The longest turn of the thread that executes transactions: what a request waited for others
    /// at most, once it was received.
    pub turn_us_max: Figure,
    /// Polls of the socket driver.
    pub net_polls_total: Figure,
    /// Receive calls.
    pub net_receives_total: Figure,
    /// Send calls.
    pub net_sends_total: Figure,
    /// Bytes received.
    pub net_received_bytes_total: Figure,
    /// Bytes sent.
    pub net_sent_bytes_total: Figure,
    /// Connections accepted.
    pub connections_total: Figure,
    /// Connections refused for `maxclients`.
    pub connections_rejected_total: Figure,
    /// Connections closed because of `reply_bytes_total`.
    pub connections_evicted_total: Figure,
    /// Connections now.
    pub connections: Figure,
    /// Bytes of pending replies, half-read requests and MULTI queues now.
    pub connection_bytes: Figure,
    /// Connections that wait for the log now.
    pub connections_blocked: Figure,
    /// Commands executed.
    pub commands_total: Figure,
    /// Error replies.
    pub errors_total: Figure,
    /// AUTH and HELLO with a wrong user or password.
    pub auth_denied_total: Figure,
    /// AUTH and HELLO not looked at, since too many wrong passwords came from their address.
    pub auth_refused_total: Figure,
    /// Runs given back because the log was behind.
    pub deferred_total: Figure,
    /// Lookups of reading commands that found their key.
    pub keyspace_hits_total: Figure,
    /// Lookups that did not.
    pub keyspace_misses_total: Figure,
    /// Keys removed because their time was over.
    pub expired_keys_total: Figure,
    /// Keys in all memory tables now.
    pub keys: Figure,
    /// Keys that expire now.
    pub keys_expiring: Figure,
    /// Memory of keys, values and indexes now.
    pub memory_used_bytes: Figure,
    /// The most it was.
    pub memory_peak_bytes: Figure,
    /// Of it waiting to be freed.
    pub memory_garbage_bytes: Figure,
    /// Requests at sources now.
    pub source_tickets: Figure,
}

impl Stats {
    /// CONFIG RESETSTAT.
    pub fn reset(&self) {
        for counter in
            [&self.net_batches, &self.tx_batches, &self.commit_batches, &self.reply_batches]
        {
            counter.reset();
        }
        for figure in [
            &self.turn_us_max,
            &self.commands_total,
            &self.errors_total,
            &self.auth_denied_total,
            &self.auth_refused_total,
            &self.deferred_total,
            &self.keyspace_hits_total,
            &self.keyspace_misses_total,
            &self.expired_keys_total,
            &self.connections_total,
            &self.connections_rejected_total,
        ] {
            figure.set(0);
        }
    }
}
