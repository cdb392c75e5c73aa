//! Sets of bytes, one bit each.

/// Set of bytes, one bit each, in the order of C's signed char: that is how ranges in Redis's
/// patterns sort on the machines on which Redis usually runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct ByteSet([u64; 4]);

impl ByteSet {
    pub(super) const ALL: ByteSet = ByteSet([u64::MAX; 4]);

    #[inline]
    pub(super) fn has(&self, byte: u8) -> bool {
        let index = bit_index(byte);
        self.0[index / 64] >> (index % 64) & 1 == 1
    }

    pub(super) fn add(&mut self, byte: u8) {
        let index = bit_index(byte);
        self.0[index / 64] |= 1 << (index % 64);
    }

    /// Adds all bytes from `first` to `last` in signed order; none when `last` comes before
    /// `first`.
    pub(super) fn add_range(&mut self, first: u8, last: u8) {
        let (first, last) = (bit_index(first), bit_index(last));
        if last < first {
            return;
        }
        for word in first / 64..=last / 64 {
            let from = if word == first / 64 { first % 64 } else { 0 };
            let to = if word == last / 64 { last % 64 } else { 63 };
            self.0[word] |= u64::MAX << from & u64::MAX >> (63 - to);
        }
    }

    /// Adds the upper case of each ASCII letter that is there in lower case, and removes upper case
    /// letters whose lower case is not there.
    pub(super) fn unfold(&mut self) {
        const SHIFT: usize = (b'a' - b'A') as usize;
        const LETTERS: u64 = ((1 << 26) - 1) << (b'A' % 64);
        let word = bit_index(b'A') / 64;
        self.0[word] = self.0[word] & !LETTERS | self.0[word] >> SHIFT & LETTERS;
    }

    pub(super) fn join(&mut self, other: ByteSet) {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word |= other);
    }

    pub(super) fn invert(&mut self) {
        self.0.iter_mut().for_each(|word| *word = !*word);
    }

    /// Returns its byte, if the set has exactly one.
    pub(super) fn single(&self) -> Option<u8> {
        let count: u32 = self.0.iter().map(|word| word.count_ones()).sum();
        let word = self.0.iter().position(|word| *word != 0)?;
        let index = word * 64 + self.0[word].trailing_zeros() as usize;
        (count == 1).then_some(u8::try_from(index).expect("below 256") ^ SIGN)
    }
}

const SIGN: u8 = 0x80;

/// Returns the position of a byte in signed order.
#[inline]
fn bit_index(byte: u8) -> usize {
    usize::from(byte ^ SIGN)
}
