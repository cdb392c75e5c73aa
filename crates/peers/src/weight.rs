//! The hash by which files find their peers. It is a format: all processes of a deployment must
//! agree on it, those of older versions, too.
//!
//! ```text
//!  FileHash = rapidhash v3 (default secrets, seed FILE_SEED) of the store's name, a zero byte,
//!             the 20 bytes of the id of the file
//!  PeerHash = rapidhash v3 (default secrets, seed PEER_SEED) of the URL of the peer
//!  weight   = the finalizer of SplitMix64 of (FileHash xor PeerHash)
//! ```
//!
//! The finalizer is a bijection, so two peers have the same weight for a file only if their hashes
//! are equal.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

/// Seed of the hash of files.
const FILE_SEED: u64 = 0x6275_736c_6f61_6431;
/// Seed of the hash of peers.
const PEER_SEED: u64 = 0x6275_736c_6f61_6432;

/// Secrets of the hash of files, made at compile time.
static FILE_SECRETS: RapidSecrets = RapidSecrets::seed(FILE_SEED);
/// Secrets of the hash of peers, made at compile time.
static PEER_SECRETS: RapidSecrets = RapidSecrets::seed(PEER_SEED);

/// Hash of a table file of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHash(u64);

/// Hash of a peer's URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerHash(u64);

impl FileHash {
    /// Hashes the name of a store and the id of one of its table files.
    pub fn of(store: &str, file: &[u8; 20]) -> Self {
        let mut bytes = Vec::with_capacity(store.len() + 1 + file.len());
        bytes.extend_from_slice(store.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(file);
        Self(rapidhash_v3_seeded(&bytes, &FILE_SECRETS))
    }
}

impl PeerHash {
    /// Hashes the URL of a peer.
    pub fn of(url: &str) -> Self {
        Self(rapidhash_v3_seeded(url.as_bytes(), &PEER_SECRETS))
    }
}

/// Returns the weight of a peer for a file; the highest one wins.
pub fn weight(file: FileHash, peer: PeerHash) -> u64 {
    let value = file.0 ^ peer.0;
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes of all versions must agree: a change here moves every file of every deployment.
    #[test]
    fn weights_do_not_change_with_the_program() {
        let weight = |store: &str, byte: u8, peer: &str| {
            format!("{:016x}", weight(FileHash::of(store, &[byte; 20]), PeerHash::of(peer)))
        };
        let weights = [
            weight("db", 0, "http://a:6381"),
            weight("db", 0, "http://b:6381"),
            weight("db", 1, "http://a:6381"),
            weight("other", 0, "http://a:6381"),
            weight("", 255, "https://[2001:db8::1]:6381"),
        ];
        assert_eq!(
            weights,
            [
                "8cb1a473caa3e382",
                "3b6def5314ba0c5b",
                "a2d8dc4667c72746",
                "deaf6ae58e087771",
                "839119f0e98c8c9c",
            ]
        );
    }
}
