//! Reads big-endian numbers from bytes whose length has been checked.

/// Reads the four bytes at `at`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array_at(bytes, at))
}

/// Reads the eight bytes at `at`.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(array_at(bytes, at))
}

/// Returns the `N` bytes at `at`.
pub(crate) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a slice of N bytes is an array of N")
}

/// Reads a slice of whole `u32`s.
pub(crate) fn u32s(bytes: &[u8]) -> impl ExactSizeIterator<Item = u32> {
    bytes.as_chunks().0.iter().map(|number| u32::from_be_bytes(*number))
}

/// Reads a slice of whole `u64`s.
pub(crate) fn u64s(bytes: &[u8]) -> impl ExactSizeIterator<Item = u64> {
    bytes.as_chunks().0.iter().map(|number| u64::from_be_bytes(*number))
}

/// Converts a count or position in a file into an index. Memory holds what is indexed, so it always
/// fits.
pub(crate) fn to_usize(number: u32) -> usize {
    usize::try_from(number).expect("pointers have at least 32 bits")
}
