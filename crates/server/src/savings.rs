//! Savings of a table of chunks, or of a pattern of stores: requests, bytes and money.
//!
//! Without busload a client would send one ranged GET for each chunk that it reads, and one for
//! each download of Dolt's protocol. What busload itself sent is taken off that: reads, fills,
//! manifests, indexes and listings, retries included. So what nobody used was a loss, and is shown
//! as one.

use busload_dolt::UsageStats;
use busload_objects::RemoteStats;

use crate::config::Prices;

/// Units that a price list names.
const MILLION: f64 = 1e6;
const GIB: f64 = (1_u64 << 30) as f64;

/// Both sides of what was saved.
#[derive(Clone, Copy, Debug, Default)]
pub struct Savings {
    /// GETs that clients would have sent to the object store.
    pub direct_requests: u64,
    /// Bytes that these would have brought.
    pub direct_bytes: u64,
    /// Requests that busload sent to the object store.
    pub store_requests: u64,
    /// LISTs among these requests.
    pub store_lists: u64,
    /// Bytes that these brought.
    pub store_bytes: u64,
    /// Read units of DynamoDB, for manifests.
    pub item_units: u64,
    prices: Prices,
}

impl Savings {
    pub fn new(usage: &UsageStats, store: &RemoteStats, prices: Prices) -> Self {
        Self {
            direct_requests: usage.direct_requests(),
            direct_bytes: usage.bytes,
            store_requests: store.requests,
            store_lists: store.lists,
            store_bytes: store.bytes,
            item_units: usage.item_units,
            prices,
        }
    }

    /// Requests saved; below 0 if busload sent more than clients would have.
    pub fn requests(&self) -> i64 {
        difference(self.direct_requests, self.store_requests)
    }

    /// Bytes saved; below 0 if busload fetched more than clients got.
    pub fn bytes(&self) -> i64 {
        difference(self.direct_bytes, self.store_bytes)
    }

    /// Money saved, in USD; below 0 if busload cost more than clients would have.
    pub fn usd(&self) -> f64 {
        let Prices { get, list, egress, dynamodb } = self.prices;
        let gets = self.store_requests.saturating_sub(self.store_lists);
        let requests = difference(self.direct_requests, gets) as f64 * get.usd()
            - self.store_lists as f64 * list.usd()
            - self.item_units as f64 * dynamodb.usd();
        // Nothing is 0, not -0.
        requests / MILLION + self.bytes() as f64 * egress.usd() / GIB + 0.0
    }
}

fn difference(one: u64, other: u64) -> i64 {
    // Counters of a process do not come near 63 bits.
    one.wrapping_sub(other).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_is_what_clients_would_have_sent_less_what_was_sent() {
        let usage = UsageStats {
            hits: 900_000,
            misses: 50_000,
            absent: 7,
            errors: 8,
            downloads: 50_000,
            bytes: 3 << 30,
            item_units: 2_000_000,
        };
        let store = RemoteStats {
            requests: 101_000,
            lists: 1_000,
            bytes: 1 << 30,
            ..RemoteStats::default()
        };
        let prices = Prices { egress: "0.09".parse().unwrap(), ..Prices::default() };
        let savings = Savings::new(&usage, &store, prices);
        assert_eq!((savings.requests(), savings.bytes()), (899_000, 2 << 30));
        let expected = 0.9 * 0.4 - 0.001 * 5.0 + 2.0 * 0.09 - 2.0 * 0.125;
        assert!((savings.usd() - expected).abs() < 1e-9, "{}", savings.usd());
        let free = Savings::new(&usage, &store, Prices::NONE);
        assert_eq!(free.usd(), 0.0);
    }

    #[test]
    fn what_nobody_used_is_a_loss() {
        let store = RemoteStats { requests: 10, bytes: 500, ..RemoteStats::default() };
        let savings = Savings::new(&UsageStats::default(), &store, Prices::default());
        assert_eq!((savings.requests(), savings.bytes()), (-10, -500));
        assert!((savings.usd() + 4e-6).abs() < 1e-12, "{}", savings.usd());
    }
}
