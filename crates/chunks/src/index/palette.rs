//! Stores few different numbers for many entries, in as few bytes per entry as tell them apart.

use hashbrown::HashMap;

use crate::be;

/// Array with one number per entry.
#[derive(Debug)]
pub(super) struct Palette {
    /// The different numbers, in the order of their first use.
    numbers: Box<[u32]>,
    /// Index in `numbers` for each entry.
    of: Indexes,
}

#[derive(Debug)]
enum Indexes {
    /// All entries have the first number, or there is no entry.
    Same,
    Byte(Box<[u8]>),
    Short(Box<[u16]>),
    Long(Box<[u32]>),
}

impl Palette {
    pub(super) fn new(numbers: impl Iterator<Item = u32>) -> Self {
        let mut known = HashMap::with_hasher(std::hash::RandomState::new());
        let mut different = Vec::new();
        // Mostly an entry has the number of the one before, so nothing is looked up.
        let mut last = None;
        let indexes = numbers
            .map(|number| match last {
                Some((same, index)) if same == number => index,
                _ => {
                    let index = *known.entry(number).or_insert_with(|| {
                        different.push(number);
                        different.len() - 1
                    });
                    last = Some((number, index));
                    index
                }
            })
            .map(|index| u32::try_from(index).expect("there are fewer than 2^32 numbers"))
            .collect();
        Self { of: Indexes::new(indexes, different.len()), numbers: different.into() }
    }

    /// Returns the number of an entry.
    pub(super) fn get(&self, entry: usize) -> u32 {
        let index = match &self.of {
            Indexes::Same => 0,
            Indexes::Byte(indexes) => usize::from(indexes[entry]),
            Indexes::Short(indexes) => usize::from(indexes[entry]),
            Indexes::Long(indexes) => be::to_usize(indexes[entry]),
        };
        self.numbers[index]
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.numbers)
            + match &self.of {
                Indexes::Same => 0,
                Indexes::Byte(indexes) => size_of_val(&**indexes),
                Indexes::Short(indexes) => size_of_val(&**indexes),
                Indexes::Long(indexes) => size_of_val(&**indexes),
            }
    }
}

impl Indexes {
    fn new(indexes: Vec<u32>, different: usize) -> Self {
        match different {
            0 | 1 => Self::Same,
            2..=0x100 => Self::Byte(narrowed(&indexes)),
            0x101..=0x1_0000 => Self::Short(narrowed(&indexes)),
            _ => Self::Long(indexes.into()),
        }
    }
}

fn narrowed<T: TryFrom<u32>>(indexes: &[u32]) -> Box<[T]> {
    indexes
        .iter()
        .map(|&index| T::try_from(index).ok().expect("an index is below the count of numbers"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_get_their_numbers_back_in_the_fewest_bytes() {
        for (different, bytes_each) in
            [(1, 0), (2, 1), (256, 1), (257, 2), (65_536, 2), (65_537, 4)]
        {
            let numbers: Vec<u32> =
                (0..70_000).map(|entry| u32::MAX - entry * 7 % different).collect();
            let palette = Palette::new(numbers.iter().copied());
            assert!(
                (0..numbers.len()).all(|entry| palette.get(entry) == numbers[entry]),
                "{different}"
            );
            let expected = 70_000 * bytes_each + 4 * usize::try_from(different).unwrap();
            assert_eq!(palette.memory_bytes(), expected, "{different}");
        }
        assert_eq!(Palette::new([].into_iter()).memory_bytes(), 0);
    }
}
