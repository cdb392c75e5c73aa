//! Stores few different numbers for many entries, in as few bytes per entry as tell them apart.

use hashbrown::HashMap;

use crate::be;

/// Array with one number per entry.
#[derive(Debug)]
pub(super) struct Palette {
    /// The different numbers, in the order of their first use.
    numbers: Box<[u32]>,
    /// Index in `numbers` for each entry.
    of: Places,
}

#[derive(Debug)]
enum Places {
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
        let places = numbers
            .map(|number| match last {
                Some((same, place)) if same == number => place,
                _ => {
                    let place = *known.entry(number).or_insert_with(|| {
                        different.push(number);
                        different.len() - 1
                    });
                    last = Some((number, place));
                    place
                }
            })
            .map(|place| u32::try_from(place).expect("there are fewer than 2^32 numbers"))
            .collect();
        Self { of: Places::new(places, different.len()), numbers: different.into() }
    }

    /// Returns the number of an entry.
    pub(super) fn get(&self, entry: usize) -> u32 {
        let place = match &self.of {
            Places::Same => 0,
            Places::Byte(places) => usize::from(places[entry]),
            Places::Short(places) => usize::from(places[entry]),
            Places::Long(places) => be::to_usize(places[entry]),
        };
        self.numbers[place]
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.numbers)
            + match &self.of {
                Places::Same => 0,
                Places::Byte(places) => size_of_val(&**places),
                Places::Short(places) => size_of_val(&**places),
                Places::Long(places) => size_of_val(&**places),
            }
    }
}

impl Places {
    fn new(places: Vec<u32>, different: usize) -> Self {
        match different {
            0 | 1 => Self::Same,
            2..=0x100 => Self::Byte(narrowed(&places)),
            0x101..=0x1_0000 => Self::Short(narrowed(&places)),
            _ => Self::Long(places.into()),
        }
    }
}

fn narrowed<T: TryFrom<u32>>(places: &[u32]) -> Box<[T]> {
    places
        .iter()
        .map(|&place| T::try_from(place).ok().expect("a place is below the count looked at"))
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
