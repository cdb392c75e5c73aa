//! Addresses of chunks and ids of table files: 20 bytes, 32 characters as text.

use std::{fmt, str::FromStr};

use sha2::{Digest, Sha512};

use crate::{base32, be};

/// Address of a chunk: the first 20 bytes of the SHA-512 of its contents.
///
/// As text it is 32 characters of `0-9a-v`; texts sort in the order of the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkAddress(pub [u8; 20]);

/// Id of a table file. It is opaque and never verified against the file's contents.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub [u8; 20]);

/// Error for text or bytes that are not an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected 32 characters of 0-9a-v, or 20 bytes")]
pub struct AddressError;

impl ChunkAddress {
    /// Length of an address in bytes.
    pub const BYTES: usize = 20;
    /// Root of an empty store.
    pub const ZERO: Self = Self([0; 20]);

    /// Returns the address of these contents.
    pub fn of(contents: &[u8]) -> Self {
        Self(digest(&[contents]))
    }

    /// Parses a RESP key: 20 raw bytes or 32 characters of text.
    ///
    /// # Errors
    /// For any other length, and for characters outside `0-9a-v`.
    pub fn from_key(key: &[u8]) -> Result<Self, AddressError> {
        match key.len() {
            base32::TEXT_BYTES => base32::decode(key).map(Self).ok_or(AddressError),
            _ => Self::from_slice(key),
        }
    }

    /// Creates an address from 20 raw bytes.
    ///
    /// # Errors
    /// For any other length.
    pub fn from_slice(bytes: &[u8]) -> Result<Self, AddressError> {
        bytes.try_into().map(Self).map_err(|_| AddressError)
    }

    /// Creates an address from its two parts, as indexes store them.
    pub(crate) fn from_parts(prefix: u64, suffix: &[u8; 12]) -> Self {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&prefix.to_be_bytes());
        bytes[8..].copy_from_slice(suffix);
        Self(bytes)
    }

    /// Returns the first 8 bytes, by which indexes are sorted.
    pub fn prefix(&self) -> u64 {
        be::u64_at(&self.0, 0)
    }

    /// Returns the other 12 bytes.
    pub fn suffix(&self) -> &[u8; 12] {
        self.0.last_chunk().expect("12 of 20 bytes")
    }

    /// Returns the address as 32 characters.
    pub fn to_text(&self) -> [u8; 32] {
        base32::encode(&self.0)
    }
}

impl FileId {
    /// Id of the journal of a local store.
    pub const JOURNAL: Self = Self([0xff; 20]);

    /// Creates an id from 20 raw bytes.
    ///
    /// # Errors
    /// For any other length.
    pub fn from_slice(bytes: &[u8]) -> Result<Self, AddressError> {
        bytes.try_into().map(Self).map_err(|_| AddressError)
    }
}

/// Returns the first 20 bytes of the SHA-512 of all parts, one after the other.
pub(crate) fn digest(parts: &[&[u8]]) -> [u8; 20] {
    let mut hash = Sha512::new();
    parts.iter().for_each(|part| hash.update(part));
    *hash.finalize().first_chunk().expect("20 of 64 bytes")
}

impl FromStr for ChunkAddress {
    type Err = AddressError;

    /// Parses an address of 32 characters; raw bytes are not accepted.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        base32::decode(text.as_bytes()).map(Self).ok_or(AddressError)
    }
}

impl FromStr for FileId {
    type Err = AddressError;

    /// Parses an id of 32 characters, without a suffix.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        base32::decode(text.as_bytes()).map(Self).ok_or(AddressError)
    }
}

impl fmt::Display for ChunkAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(base32::as_text(&base32::encode(&self.0)))
    }
}

impl fmt::Debug for ChunkAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(base32::as_text(&base32::encode(&self.0)))
    }
}

impl fmt::Debug for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_the_first_20_bytes_of_sha_512() {
        // NIST's example: SHA-512("abc") = ddaf35a193617abacc417349ae20413112e6fa4e89a97ea2...
        let address = ChunkAddress::of(b"abc");
        assert_eq!(
            address.0,
            *b"\xdd\xaf\x35\xa1\x93\x61\x7a\xba\xcc\x41\x73\x49\xae\x20\x41\x31\x12\xe6\xfa\x4e"
        );
        assert_eq!(address.prefix(), 0xddaf_35a1_9361_7aba);
        assert_eq!(address.suffix()[..4], [0xcc, 0x41, 0x73, 0x49]);
        assert_eq!(ChunkAddress::from_parts(address.prefix(), address.suffix()), address);
    }

    #[test]
    fn keys_are_32_characters_or_20_bytes() {
        let address = ChunkAddress::of(b"abc");
        assert_eq!(ChunkAddress::from_key(&address.0), Ok(address));
        assert_eq!(ChunkAddress::from_key(address.to_string().as_bytes()), Ok(address));
        assert_eq!(address.to_string().parse(), Ok(address));
        for length in (0..64).filter(|length| ![20, 32].contains(length)) {
            assert_eq!(ChunkAddress::from_key(&vec![b'0'; length]), Err(AddressError), "{length}");
        }
        assert_eq!(ChunkAddress::from_key(&[b'w'; 32]), Err(AddressError));
        assert_eq!(
            "0".repeat(20).parse::<ChunkAddress>(),
            Err(AddressError),
            "20 bytes are no text"
        );
        assert_eq!(AddressError.to_string(), "expected 32 characters of 0-9a-v, or 20 bytes");
    }

    #[test]
    fn journal_has_the_highest_id() {
        assert_eq!(FileId::JOURNAL.to_string(), "v".repeat(32));
        assert_eq!("v".repeat(32).parse(), Ok(FileId::JOURNAL));
        assert_eq!(format!("{:?} {:>33}", ChunkAddress::ZERO, FileId::JOURNAL).len(), 32 + 1 + 33);
    }
}
