//! Counters of the stages. The stages write them with relaxed atomics, INFO and `/metrics` read
//! them.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::{latency::Latencies, latency_events::LatencyEvents, slow_log::SlowLog};

/// Number of batches of one stage, and how full they were.
#[derive(Debug, Default)]
pub struct BatchCounter {
    batches: AtomicU64,
    items: AtomicU64,
    max: AtomicU64,
}

/// Values of a [`BatchCounter`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BatchReading {
    /// Number of batches so far.
    pub batches: u64,
    /// Number of items in all batches.
    pub items: u64,
    /// Number of items in the fullest batch.
    pub max: u64,
}

impl BatchReading {
    /// Returns the mean number of items per batch.
    pub fn mean(&self) -> f64 {
        if self.batches == 0 { 0.0 } else { self.items as f64 / self.batches as f64 }
    }
}

impl BatchCounter {
    /// Counts one more batch. Only one thread writes a counter, so plain loads and stores suffice.
    pub fn record(&self, items: usize) {
        let items = items as u64;
        self.batches.store(self.batches.load(Relaxed) + 1, Relaxed);
        self.items.store(self.items.load(Relaxed) + items, Relaxed);
        if self.max.load(Relaxed) < items {
            self.max.store(items, Relaxed);
        }
    }

    /// Returns the values at this moment.
    pub fn read(&self) -> BatchReading {
        BatchReading {
            batches: self.batches.load(Relaxed),
            items: self.items.load(Relaxed),
            max: self.max.load(Relaxed),
        }
    }

    /// Resets all values to zero (CONFIG RESETSTAT).
    pub fn reset(&self) {
        self.batches.store(0, Relaxed);
        self.items.store(0, Relaxed);
        self.max.store(0, Relaxed);
    }
}

/// Number that one thread writes and others read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to the number; only the owning thread may.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(amount), Relaxed);
    }

    /// Replaces the number by `value`.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// Raises the number to `value` if it is smaller.
    #[inline]
    pub fn raise(&self, value: u64) {
        if self.get() < value {
            self.set(value);
        }
    }

    /// Returns the current number.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Counters of all stages. `*_total` only grow (but for a reset), the others describe this moment.
#[derive(Debug, Default)]
pub struct Stats {
    /// Requests per batch that net handed to tx.
    pub net_batches: BatchCounter,
    /// Requests per batch that tx executed (deferred ones do not count).
    pub tx_batches: BatchCounter,
    /// Log records per batch that tx handed to the log.
    pub commit_batches: BatchCounter,
    /// Connections to which net sent replies, per turn.
    pub reply_batches: BatchCounter,
    /// Longest turn, in microseconds, of the thread that executes transactions: the longest that a
    /// received request waited for others.
    pub turn_us_max: Counter,
    /// Turns of the thread that executes transactions. Never reset: it shows that the thread lives.
    pub turns_total: Counter,
    /// Polls of the socket driver. Never reset, either.
    pub net_polls_total: Counter,
    /// Receive calls of the socket driver.
    pub net_receives_total: Counter,
    /// Send calls of the socket driver.
    pub net_sends_total: Counter,
    /// Bytes received from clients.
    pub net_received_bytes_total: Counter,
    /// Bytes sent to clients.
    pub net_sent_bytes_total: Counter,
    /// Connections accepted so far.
    pub connections_total: Counter,
    /// Connections refused because of `maxclients`.
    pub connections_rejected_total: Counter,
    /// Connections closed because of `reply_bytes_total`.
    pub connections_evicted_total: Counter,
    /// Clients in MONITOR mode closed because they did not take what they were sent.
    pub monitors_closed_total: Counter,
    /// Connections open at this moment.
    pub connections: Counter,
    /// Bytes of pending replies, half-read requests and MULTI queues at this moment.
    pub connection_bytes: Counter,
    /// Connections that wait for the log at this moment.
    pub connections_blocked: Counter,
    /// Commands executed so far.
    pub commands_total: Counter,
    /// Error replies so far.
    pub errors_total: Counter,
    /// AUTH and HELLO commands with a wrong user or password.
    pub auth_denied_total: Counter,
    /// AUTH and HELLO commands that were refused without a check, because too many wrong passwords
    /// came from their address.
    pub auth_refused_total: Counter,
    /// Runs of requests that tx deferred because the log was behind.
    pub deferred_total: Counter,
    /// Lookups of reading commands that found their key.
    pub keyspace_hits_total: Counter,
    /// Lookups of reading commands that did not find their key.
    pub keyspace_misses_total: Counter,
    /// Keys removed because they had expired.
    pub expired_keys_total: Counter,
    /// Keys removed from tables that are caches to make room.
    pub evicted_keys_total: Counter,
    /// Keys in all memory tables at this moment.
    pub keys: Counter,
    /// Keys with an expiry at this moment.
    pub keys_expiring: Counter,
    /// Memory of keys, values and indexes at this moment.
    pub memory_used_bytes: Counter,
    /// Memory of keys, values and indexes of the tables that are logged, at this moment.
    pub memory_logged_bytes: Counter,
    /// Largest memory of keys, values and indexes so far.
    pub memory_peak_bytes: Counter,
    /// Limit of that memory, 0 for none.
    pub memory_max_bytes: Counter,
    /// Commands refused because they need memory beyond a limit.
    pub memory_refused_total: Counter,
    /// Memory that waits for garbage collection.
    pub memory_garbage_bytes: Counter,
    /// Requests open at sources at this moment.
    pub source_tickets: Counter,
    /// Times of requests, per table and per command.
    pub latencies: Arc<Latencies>,
    /// Last commands that took long.
    pub slow_log: SlowLog,
    /// Last times that something took long.
    pub latency_events: LatencyEvents,
}

impl Stats {
    /// Resets the counters, as CONFIG RESETSTAT asks.
    pub fn reset(&self) {
        self.latencies.reset();
        for counter in
            [&self.net_batches, &self.tx_batches, &self.commit_batches, &self.reply_batches]
        {
            counter.reset();
        }
        for counter in [
            &self.turn_us_max,
            &self.commands_total,
            &self.errors_total,
            &self.auth_denied_total,
            &self.auth_refused_total,
            &self.deferred_total,
            &self.keyspace_hits_total,
            &self.keyspace_misses_total,
            &self.expired_keys_total,
            &self.evicted_keys_total,
            &self.memory_refused_total,
            &self.connections_total,
            &self.connections_rejected_total,
            &self.monitors_closed_total,
        ] {
            counter.set(0);
        }
    }
}
