//! Reproducible random numbers: the load must be the same for every server.

/// `SplitMix64` (Steele, Lea, Flood 2014): one addition and two multiplications a number.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Numbers that depend on `seed` only.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0. The bias is below `bound / 2^64`.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next()) * u128::from(bound);
        u64::try_from(wide >> 64).expect("the upper half of 128 bits")
    }

    /// Puts items into random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let count = u64::try_from(last + 1).expect("a length fits in 64 bits");
            items.swap(last, usize::try_from(self.below(count)).expect("below a length"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbers_stay_below_the_bound_and_items_reach_every_place() {
        let mut random = Random::new(1);
        let seen: BTreeSet<_> = (0..1_000).map(|_| random.below(10)).collect();
        assert_eq!(seen, (0..10).collect());
        let mut items = [1, 2, 3, 4, 5];
        let mut shuffled = || {
            random.shuffle(&mut items);
            items
        };
        let firsts: BTreeSet<_> = (0..200).map(|_| shuffled()[0]).collect();
        assert_eq!(firsts, shuffled().into_iter().collect());
    }
}
