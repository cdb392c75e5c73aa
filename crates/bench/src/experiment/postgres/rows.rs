//! The table as published, `random_read_test(pk text primary key, payload text)`: what its rows
//! hold, and which of them a load asks for.
//!
//! Row `n` has `n` as its key, padded to 20 digits, and a payload of 35 bytes that ends with the
//! key: so every reply can be checked without knowing what was written when.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::random::Random;

/// Bytes of a key.
pub const KEY_BYTES: usize = 20;

/// Bytes of a payload.
pub const PAYLOAD_BYTES: usize = 35;

/// Text before the key in the payload of a loaded row.
const LOADED: &[u8; PAYLOAD_BYTES - KEY_BYTES] = b"payload of row ";

/// Text before the version in the payload of an upserted row.
const UPSERTED: &[u8; 7] = b"upsert ";

/// Digits of a version.
const VERSION_DIGITS: usize = LOADED.len() - UPSERTED.len() - 1;

/// Versions after which they begin again.
pub const VERSIONS: u64 = 10_000_000;

/// Equal keys in a row, as the published driver asks for them.
const RUN_LENGTH: u64 = 10;

/// The key of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key([u8; KEY_BYTES]);

impl Key {
    /// The key of row `number`.
    pub fn of(number: u64) -> Self {
        let mut digits = [b'0'; KEY_BYTES];
        write_digits(&mut digits, number);
        Self(digits)
    }

    pub fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.0).expect("digits are ASCII")
    }
}

/// The payload of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload([u8; PAYLOAD_BYTES]);

impl Payload {
    /// Returns the payload with which row `number` is loaded.
    pub fn loaded(number: u64) -> Self {
        Self::new(LOADED, number)
    }

    /// Returns the payload of version `version` of row `number`.
    pub fn upserted(number: u64, version: u64) -> Self {
        let mut prefix = [b' '; LOADED.len()];
        prefix[..UPSERTED.len()].copy_from_slice(UPSERTED);
        write_digits(
            &mut prefix[UPSERTED.len()..UPSERTED.len() + VERSION_DIGITS],
            version % VERSIONS,
        );
        Self::new(&prefix, number)
    }

    pub fn bytes(&self) -> &[u8; PAYLOAD_BYTES] {
        &self.0
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.0).expect("letters and digits are ASCII")
    }

    fn new(prefix: &[u8; LOADED.len()], number: u64) -> Self {
        let mut bytes = [0; PAYLOAD_BYTES];
        bytes[..LOADED.len()].copy_from_slice(prefix);
        bytes[LOADED.len()..].copy_from_slice(Key::of(number).bytes());
        Self(bytes)
    }
}

/// Whether `payload` is one that row `number` may hold.
#[inline]
pub fn belongs_to(payload: &[u8], number: u64) -> bool {
    let Some((prefix, key)) = payload.split_at_checked(LOADED.len()) else { return false };
    key == Key::of(number).bytes() && (prefix == LOADED || version_of(payload).is_some())
}

/// The version an upserted payload says it is, `None` of a loaded one.
pub fn version_of(payload: &[u8]) -> Option<u64> {
    let digits = payload.get(..LOADED.len())?.strip_prefix(UPSERTED)?.strip_suffix(b" ")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn write_digits(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).expect("a digit");
        number /= 10;
    }
}

/// Distributions of the rows that a load asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Distribution {
    /// Each key drawn by itself, uniformly from the table
    Uniform,
    /// Ten requests in a row, of whichever readers, for the same key; keys drawn uniformly
    Runs,
}

impl Distribution {
    /// The name in tables and in `--keys`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Runs => "runs",
        }
    }
}

/// Gives every client its sequence of rows.
#[derive(Clone, Debug)]
pub struct Sequences {
    distribution: Distribution,
    rows: u64,
    seed: u64,
    /// Requests handed out so far, for runs that all clients share.
    shared: Arc<AtomicU64>,
}

impl Sequences {
    /// Rows below `rows`, which is not 0.
    pub fn new(distribution: Distribution, rows: u64, seed: u64) -> Self {
        Self { distribution, rows, seed, shared: Arc::default() }
    }

    /// The sequence of one client.
    pub fn client(&self, index: usize) -> Sequence {
        let index = u64::try_from(index).expect("an index fits in 64 bits");
        let seed = Random::new(self.seed ^ index.rotate_left(32)).next();
        let shared = match self.distribution {
            Distribution::Uniform => None,
            Distribution::Runs => Some((Arc::clone(&self.shared), self.seed)),
        };
        Sequence { own: Random::new(seed), rows: self.rows, shared }
    }
}

/// The rows one client asks for, one after the other.
#[derive(Clone, Debug)]
pub struct Sequence {
    own: Random,
    rows: u64,
    shared: Option<(Arc<AtomicU64>, u64)>,
}

impl Sequence {
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
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn rows_look_as_published() {
        assert_eq!(Key::of(42).text(), "00000000000000000042");
        assert_eq!(Key::of(u64::MAX).text(), u64::MAX.to_string());
        assert_eq!(Payload::loaded(42).text(), "payload of row 00000000000000000042");
        assert_eq!(Payload::upserted(42, 10_000_007).text(), "upsert 0000007 00000000000000000042");
    }

    #[test]
    fn only_what_a_row_can_hold_belongs_to_it() {
        for payload in
            [Payload::loaded(7), Payload::upserted(7, 0), Payload::upserted(7, VERSIONS - 1)]
        {
            assert!(belongs_to(payload.bytes(), 7), "{payload:?}");
            assert!(!belongs_to(payload.bytes(), 8));
            assert!(!belongs_to(&payload.bytes()[1..], 7));
        }
        for wrong in [
            "",
            "payload of row",
            "payload of rox 00000000000000000007",
            "upsert 00x0007 00000000000000000007",
        ] {
            assert!(!belongs_to(wrong.as_bytes(), 7), "{wrong}");
        }
    }

    #[test]
    fn a_payload_tells_its_version() {
        assert_eq!(version_of(Payload::upserted(3, 1_234).bytes()), Some(1_234));
        assert_eq!(version_of(Payload::loaded(3).bytes()), None);
        assert_eq!(version_of(b"upsert"), None);
    }

    #[test]
    fn clients_draw_different_keys_and_each_the_same_ones_again() {
        let draw = |client| {
            let mut sequence = Sequences::new(Distribution::Uniform, 1_000_000, 5).client(client);
            (0..100).map(|_| sequence.next()).collect::<Vec<_>>()
        };
        assert_eq!(draw(0), draw(0));
        assert_ne!(draw(0), draw(1));
        assert!(draw(3).iter().all(|row| *row < 1_000_000));
    }

    #[test]
    fn uniform_keys_reach_the_whole_table() {
        let mut sequence = Sequences::new(Distribution::Uniform, 16, 1).client(0);
        let seen: BTreeSet<_> = (0..1_000).map(|_| sequence.next()).collect();
        assert_eq!(seen.len(), 16);
    }

    #[test]
    fn a_run_is_ten_requests_whoever_makes_them() {
        let sequences = Sequences::new(Distribution::Runs, 1_000_000_000, 5);
        let mut clients: Vec<_> = (0..3).map(|index| sequences.client(index)).collect();
        let mut counts = BTreeMap::new();
        for request in 0..300 {
            *counts.entry(clients[request % 3].next()).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 30);
        assert!(counts.values().all(|count| *count == 10));
    }
}
