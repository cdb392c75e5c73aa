//! Traces of reads, the same in every run.

use crate::tests::Random;

/// Number of keys that the traces read again and again.
const KEYS: usize = 50_000;

/// Reads keys with a probability of one over their rank.
fn zipf_ranks(random: &mut Random, keys: usize) -> impl FnMut() -> u64 + '_ {
    let mut total = 0.0;
    let sums: Vec<f64> = (1..=keys)
        .map(|rank| {
            total += 1.0 / (rank as f64).powf(0.9);
            total
        })
        .collect();
    move || {
        let drawn = total * (random.next() >> 11) as f64 / (1_u64 << 53) as f64;
        sums.partition_point(|sum| *sum < drawn) as u64
    }
}

/// Reads of a fixed set of keys, some much more often than others.
pub fn zipf(reads: usize) -> Vec<u64> {
    let mut random = Random::new(11);
    let mut draw = zipf_ranks(&mut random, KEYS);
    (0..reads).map(|_| draw()).collect()
}

/// The same, and for a quarter of the time every second read is of a key that is read only once.
pub fn zipf_with_scans(reads: usize) -> Vec<u64> {
    let mut random = Random::new(12);
    let mut draw = zipf_ranks(&mut random, KEYS);
    let is_scan = |at: usize| at / 25_000 % 4 == 3 && at.is_multiple_of(2);
    (0..reads).map(|at| if is_scan(at) { (1 << 40) + at as u64 } else { draw() }).collect()
}

/// Reads of a set of keys that is replaced by others, a tenth at a time.
pub fn shifting(reads: usize) -> Vec<u64> {
    let mut random = Random::new(13);
    let mut draw = zipf_ranks(&mut random, KEYS / 4);
    // Multiplied, so that popular keys are not the first to be replaced.
    let set = (KEYS / 4) as u64;
    (0..reads).map(|at| (draw() * 7919) % set + (at / 25_000) as u64 * set / 10).collect()
}
