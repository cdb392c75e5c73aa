//! Small, fast generator: xoshiro256** seeded by SplitMix64 (Blackman, Vigna; public domain).

use crate::Rng;

/// Seeded generator that gives the same numbers on every machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimRng {
    state: [u64; 4],
}

impl SimRng {
    /// Creates a generator. Any seed will do.
    pub fn new(seed: u64) -> Self {
        let mut seed = seed;
        Self { state: [(); 4].map(|()| split_mix(&mut seed)) }
    }

    /// Returns a number below `end`, each equally likely (the bias of one multiplication is below
    /// `end / 2^64`).
    ///
    /// # Panics
    /// If `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(0 < end, "no number is below 0");
        let product = u128::from(self.next_u64()) * u128::from(end);
        (product >> 64) as u64
    }

    /// Returns an index into a sequence of `count` elements.
    ///
    /// # Panics
    /// If `count` is 0.
    pub fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).expect("below a usize")
    }

    /// Returns `true` with the probability `numerator / denominator`.
    ///
    /// # Panics
    /// If `denominator` is 0.
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// Creates an independent generator, seeded by this one.
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }

    /// Shuffles `items` into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.index(end + 1));
        }
    }
}

impl Rng for SimRng {
    #[inline]
    fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }
}

fn split_mix(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *seed;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let numbers = |seed| {
            let mut rng = SimRng::new(seed);
            [(); 4].map(|()| rng.next_u64())
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
        // First numbers of the reference implementation from the SplitMix64 state of seed 0.
        assert_eq!(numbers(0)[..2], [0x99ec_5f36_cb75_f2b4, 0xbf6e_1f78_4956_452a]);
    }

    #[test]
    fn numbers_below_an_end_are_even() {
        let mut rng = SimRng::new(1);
        let mut counts = [0_u32; 7];
        for _ in 0..70_000 {
            counts[rng.index(7)] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
        let hits = (0..10_000).filter(|_| rng.chance(1, 4)).count();
        assert!((2_300..2_700).contains(&hits), "{hits}");
        assert!(!rng.chance(0, 5) && rng.chance(5, 5));
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        SimRng::new(3).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
