//! The table as published, `random_read_test(pk text primary key, payload text)`: what its rows
//! hold, and which of them a load asks for.
//!
//! Row `n` has `n` as its key, padded to 20 digits, and a payload of 35 bytes that ends with the
//! key: so every reply can be checked without knowing what was written when.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::{failures::Failure, random::Random};

/// Digits of a key.
pub const KEY_BYTES: usize = 20;

/// Text before the key in the payload of a loaded row.
pub const LOADED: &str = "payload of row ";

/// Versions after which they begin again: a payload has room for seven digits.
pub const VERSIONS: u64 = 10_000_000;

/// Equal keys in a row, as the published driver asks for them.
const RUN_LENGTH: u64 = 10;

pub fn key(row: u64) -> String {
    format!("{row:020}")
}

/// Returns the payload that an upsert writes, as long as a loaded one.
pub fn upserted(row: u64, version: u64) -> String {
    format!("upsert {:07} {row:020}", version % VERSIONS)
}

/// Returns the version that an upserted payload names, and nothing for a loaded one.
pub fn version_of(payload: &[u8]) -> Option<u64> {
    let digits = payload.get(..LOADED.len())?.strip_prefix(b"upsert ")?.strip_suffix(b" ")?;
    number(digits)
}

/// Checks that a row may hold this payload. Returns the number of rows, 1.
pub fn check(row: u64, payload: Option<&[u8]>) -> Result<u64, Failure> {
    let Some(payload) = payload else {
        return Err(Failure::Wrong(format!("row {row} is said to be missing")));
    };
    let fits = payload.split_at_checked(LOADED.len()).is_some_and(|(prefix, digits)| {
        let is_ours = prefix == LOADED.as_bytes() || version_of(payload).is_some();
        is_ours && digits.len() == KEY_BYTES && number(digits) == Some(row)
    });
    let wrong = || {
        let payload = String::from_utf8_lossy(payload);
        Failure::Wrong(format!("row {row} is said to hold `{payload}`"))
    };
    if fits { Ok(1) } else { Err(wrong()) }
}

fn number(digits: &[u8]) -> Option<u64> {
    let are_digits = digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| are_digits)?.parse().ok()
}

/// Distributions of the rows that a load asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Distribution {
    /// Each key drawn by itself, uniformly from the table
    Uniform,
    /// Ten requests in a row, of whichever readers, for the same key; keys drawn uniformly
    Runs,
}

/// Rows that one client asks for, one after the other.
#[derive(Clone, Debug)]
pub struct Sequence {
    own: Random,
    rows: u64,
    /// Requests handed out so far to all clients, and the seed of runs that they share.
    shared: Option<(Arc<AtomicU64>, u64)>,
}

impl Sequence {
    /// Makes one sequence after the other for clients of a table with this many rows, which is not
    /// 0.
    pub fn of_clients(keys: Distribution, rows: u64, seed: u64) -> impl Iterator<Item = Self> {
        let requests = (keys == Distribution::Runs).then(Arc::default);
        (0_u64..).map(move |index| Self {
            own: Random::new(Random::new(seed ^ index.rotate_left(32)).next()),
            rows,
            shared: requests.clone().map(|requests| (requests, seed)),
        })
    }

    #[inline]
    pub fn next(&mut self) -> u64 {
        match &self.shared {
            None => self.own.below(self.rows),
            Some((requests, seed)) => {
                let run = requests.fetch_add(1, Ordering::Relaxed) / RUN_LENGTH;
                Random::new(seed.wrapping_add(run)).below(self.rows)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn only_what_a_row_can_hold_belongs_to_it() {
        assert_eq!(upserted(42, 10_000_007), "upsert 0000007 00000000000000000042");
        for payload in [format!("{LOADED}{}", key(7)), upserted(7, 0), upserted(7, VERSIONS - 1)] {
            assert_eq!(check(7, Some(payload.as_bytes())), Ok(1), "{payload}");
            assert!(check(8, Some(payload.as_bytes())).is_err(), "{payload}");
            assert!(check(7, Some(&payload.as_bytes()[1..])).is_err(), "{payload}");
        }
        for wrong in ["", LOADED, "payload of rox 00000000000000000007", "upsert 00x0007 00007"] {
            assert!(matches!(check(7, Some(wrong.as_bytes())), Err(Failure::Wrong(_))), "{wrong}");
        }
        assert!(matches!(check(7, None), Err(Failure::Wrong(_))));
        assert_eq!(version_of(upserted(3, 1_234).as_bytes()), Some(1_234));
        assert_eq!(version_of(b"payload of row 00000000000000000007"), None);
    }

    #[test]
    fn clients_draw_different_keys_and_a_run_is_ten_requests_whoever_makes_them() {
        let draw = || {
            let clients = Sequence::of_clients(Distribution::Uniform, 1_000_000, 5).take(2);
            let rows = |mut client: Sequence| (0..100).map(|_| client.next()).collect::<Vec<_>>();
            clients.map(rows).collect::<Vec<_>>()
        };
        assert_eq!(draw(), draw());
        assert_ne!(draw()[0], draw()[1]);
        let clients = Sequence::of_clients(Distribution::Runs, 1_000_000_000, 5).take(3);
        let mut clients: Vec<_> = clients.collect();
        let mut counts = BTreeMap::new();
        for request in 0..300 {
            *counts.entry(clients[request % 3].next()).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 30);
        assert!(counts.values().all(|count| *count == 10));
    }
}
