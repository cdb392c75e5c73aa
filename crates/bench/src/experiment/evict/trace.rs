//! The traces: keys in the order in which they are read, the same for every server.

use clap::ValueEnum;

use crate::{random::Random, stats::float};

/// Exponent of the Zipf distribution: the n-th key is read as often as the first, by n to this.
const EXPONENT: f64 = 0.9;

/// Scans come in so many stretches of a trace, each with a pause three times as long before it.
const SCANS: usize = 5;

/// Part of the keys that `shift` reads at a time, and steps in which it moves on by all of them.
const WORKING_SET_SHARE: u64 = 4;
const STEPS_PER_SET: u64 = 20;
/// Number of times that `shift` replaces all keys.
const SETS: u64 = 3;

/// Keys that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Trace {
    /// Zipf-distributed reads of a fixed set of keys
    Zipf,
    /// The same, with keys in between that are read only once
    Scan,
    /// Zipf-distributed reads of a quarter of the keys, which moves on through all others
    Shift,
}

impl Trace {
    /// Returns the keys of a trace; the seed decides which.
    pub fn keys(self, keys: u64, reads: usize, seed: u64) -> Vec<u64> {
        let mut random = Random::new(seed);
        match self {
            Trace::Zipf => {
                let zipf = Zipf::new(keys);
                (0..reads).map(|_| scattered(zipf.draw(&mut random), keys)).collect()
            }
            Trace::Scan => {
                let zipf = Zipf::new(keys);
                // Keys of a scan have numbers above all others.
                let mut next = keys;
                let stretch = (reads / (4 * SCANS)).max(1);
                let mut read = |at: usize| {
                    if at / stretch % 4 == 3 && at.is_multiple_of(2) {
                        next += 1;
                        return next;
                    }
                    scattered(zipf.draw(&mut random), keys)
                };
                (0..reads).map(&mut read).collect()
            }
            Trace::Shift => {
                let set = (keys / WORKING_SET_SHARE).max(1);
                let zipf = Zipf::new(set);
                let steps = SETS * STEPS_PER_SET;
                let all = u64::try_from(reads).expect("a length");
                (0..all)
                    .map(|at| {
                        let moved = at * steps / all * set / STEPS_PER_SET;
                        (scattered(zipf.draw(&mut random), set) + moved) % keys
                    })
                    .collect()
            }
        }
    }
}

/// Spreads ranks over the numbers below a count, so that neighbours in rank are not neighbours.
fn scattered(rank: u64, count: u64) -> u64 {
    // A prime larger than any count makes this one to one.
    const PRIME: u128 = 1_000_000_000_039;
    u64::try_from(u128::from(rank) * PRIME % u128::from(count)).expect("below the count")
}

/// Numbers from 0 on, each rarer than the one before.
struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    fn new(count: u64) -> Self {
        let mut sum = 0.0;
        let weight = |rank: u64| float(rank).powf(-EXPONENT);
        let sums = (1..=count).map(|rank| {
            sum += weight(rank);
            sum
        });
        Self { sums: sums.collect() }
    }

    fn draw(&self, random: &mut Random) -> u64 {
        let total = self.sums.last().copied().unwrap_or(0.0);
        let drawn = total * float(random.next() >> 11) / float(1 << 53);
        let rank = self.sums.partition_point(|sum| *sum < drawn).min(self.sums.len() - 1);
        u64::try_from(rank).expect("a length")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn traces_are_the_same_for_every_server_and_read_what_they_say() {
        for trace in [Trace::Zipf, Trace::Scan, Trace::Shift] {
            let keys = trace.keys(1_000, 40_000, 1);
            assert_eq!(keys, trace.keys(1_000, 40_000, 1));
            assert_ne!(keys, trace.keys(1_000, 40_000, 2));
            assert_eq!(keys.len(), 40_000);
        }
        let mut counts = BTreeMap::<u64, usize>::new();
        Trace::Zipf
            .keys(1_000, 40_000, 1)
            .iter()
            .for_each(|key| *counts.entry(*key).or_default() += 1);
        assert!(counts.keys().all(|key| *key < 1_000));
        let most = counts.values().max().unwrap();
        assert!(40 * 5 < *most && *most < 40_000 / 4, "{most}");
    }

    #[test]
    fn a_scan_reads_each_of_its_keys_once_and_a_shift_leaves_its_first_keys() {
        let scan = Trace::Scan.keys(1_000, 40_000, 1);
        let once: Vec<_> = scan.iter().filter(|key| 1_000 < **key).collect();
        assert_eq!(once.len(), 5_000);
        assert_eq!(once.iter().collect::<BTreeSet<_>>().len(), 5_000);
        let shift = Trace::Shift.keys(1_000, 40_000, 1);
        let of =
            |range: std::ops::Range<usize>| shift[range].iter().copied().collect::<BTreeSet<_>>();
        assert!(of(0..600).iter().all(|key| *key < 250));
        assert!(of(0..600).is_disjoint(&of(20_000..20_600)));
    }

    #[test]
    fn scattering_is_one_to_one() {
        let keys: BTreeSet<_> = (0..1_000).map(|rank| scattered(rank, 1_000)).collect();
        assert_eq!(keys.len(), 1_000);
    }
}
