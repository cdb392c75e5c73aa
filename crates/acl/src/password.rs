//! Passwords at rest: argon2id hashes, as PHC strings (`$argon2id$v=19$m=19456,t=2,p=1$SALT$HASH`).

use std::fmt;

use argon2::{Algorithm, Argon2, Params, Version};
use base64::{Engine, prelude::BASE64_STANDARD_NO_PAD};

use crate::limits::{
    HASH_BYTES, HASH_MEMORY_KIB, HASH_MEMORY_KIB_MAX, HASH_PARALLELISM, HASH_PARALLELISM_MAX,
    HASH_PASSES, HASH_PASSES_MAX, SALT_AND_HASH_BYTES, SALT_BYTES,
};

/// Beginning of every hash: the only algorithm and version that are taken.
const BEGINNING: &str = "$argon2id$v=19$";

/// Returns random bytes of the system, which nobody can guess.
pub fn random<const COUNT: usize>() -> [u8; COUNT] {
    let mut bytes = [0; COUNT];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes
}

/// A password in plain text, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The argon2id hash of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash {
    memory_kib: u32,
    passes: u32,
    parallelism: u32,
    salt: Vec<u8>,
    hash: Vec<u8>,
}

impl PasswordHash {
    /// Hashes a password with a new salt. It takes tens of milliseconds and 19 MiB.
    pub fn new(password: &[u8]) -> Self {
        let salt = random::<SALT_BYTES>().to_vec();
        let (memory_kib, passes, parallelism) = (HASH_MEMORY_KIB, HASH_PASSES, HASH_PARALLELISM);
        let mut new = Self { memory_kib, passes, parallelism, salt, hash: vec![0; HASH_BYTES] };
        new.hash = new.hash_of(password);
        new
    }

    /// Returns a hash that costs as much as others to compare with and fits no password.
    pub fn of_nobody() -> Self {
        let (memory_kib, passes, parallelism) = (HASH_MEMORY_KIB, HASH_PASSES, HASH_PARALLELISM);
        let (salt, hash) = (random::<SALT_BYTES>().to_vec(), random::<HASH_BYTES>().to_vec());
        Self { memory_kib, passes, parallelism, salt, hash }
    }

    /// Returns whether this is the hash of the password. It takes as long as the hash says.
    pub fn fits(&self, password: &[u8]) -> bool {
        let hash = self.hash_of(password);
        let pairs = hash.iter().zip(&self.hash);
        let difference = pairs.fold(0, |all, (a, b)| std::hint::black_box(all | (a ^ b)));
        hash.len() == self.hash.len() && difference == 0
    }

    fn hash_of(&self, password: &[u8]) -> Vec<u8> {
        let mut hash = vec![0; self.hash.len()];
        let params = Params::new(self.memory_kib, self.passes, self.parallelism, Some(hash.len()))
            .expect("the numbers were checked");
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into(password, &self.salt, &mut hash)
            .expect("a password and a salt of these lengths can be hashed");
        hash
    }

    /// Parses a PHC string.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix(BEGINNING)?.split('$');
        let (numbers, salt, hash) = (parts.next()?, parts.next()?, parts.next()?);
        let mut numbers = numbers.split(',');
        let mut number = |name: &str, max: u32| {
            let digits = numbers.next()?.strip_prefix(name)?.strip_prefix('=')?;
            let number: u32 = digits.parse().ok()?;
            (1..=max).contains(&number).then_some(number)
        };
        let memory_kib = number("m", HASH_MEMORY_KIB_MAX)?;
        let (passes, parallelism) =
            (number("t", HASH_PASSES_MAX)?, number("p", HASH_PARALLELISM_MAX)?);
        let decoded = |text: &str| {
            let bytes = BASE64_STANDARD_NO_PAD.decode(text).ok()?;
            SALT_AND_HASH_BYTES.contains(&bytes.len()).then_some(bytes)
        };
        let (salt, hash) = (decoded(salt)?, decoded(hash)?);
        let is_whole =
            parts.next().is_none() && numbers.next().is_none() && 8 * parallelism <= memory_kib;
        is_whole.then_some(Self { memory_kib, passes, parallelism, salt, hash })
    }
}

impl fmt::Display for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory_kib, passes, parallelism, salt, hash } = self;
        let encoded = |bytes: &[u8]| BASE64_STANDARD_NO_PAD.encode(bytes);
        let (salt, hash) = (encoded(salt), encoded(hash));
        write!(f, "{BEGINNING}m={memory_kib},t={passes},p={parallelism}${salt}${hash}")
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_fits_its_password_alone_and_survives_being_written_down() {
        let hash = PasswordHash::new(b"open sesame");
        let text = hash.to_string();
        assert!(text.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{text}");
        let read = PasswordHash::parse(&text).unwrap();
        assert_eq!(read, hash);
        assert!(read.fits(b"open sesame"));
        for wrong in ["", "open sesam", "open sesame ", "Open sesame"] {
            assert!(!read.fits(wrong.as_bytes()), "{wrong:?}");
        }
        assert_ne!(PasswordHash::new(b"open sesame"), hash, "each has a salt of its own");
        assert!(!PasswordHash::of_nobody().fits(b""));
    }

    /// Made by the reference implementation (`argon2 somesalt -id -t 2 -m 16 -p 1`).
    #[test]
    fn hashes_of_other_programs_fit() {
        let text = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$\
                    CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";
        let hash = PasswordHash::parse(text).unwrap();
        assert!(hash.fits(b"password") && !hash.fits(b"passwore"));
    }

    #[test]
    fn other_texts_are_no_hashes() {
        let good = PasswordHash::of_nobody().to_string();
        assert!(PasswordHash::parse(&good).is_some());
        let (salt_and_hash, beginning) = (&good[30..], &good[..30]);
        assert_eq!(beginning, "$argon2id$v=19$m=19456,t=2,p=1");
        for bad in [
            String::new(),
            "secret".to_owned(),
            good.replace("argon2id", "argon2i"),
            good.replace("v=19", "v=16"),
            good.replace("m=19456", "m=4294967295"),
            good.replace("m=19456", "m=300000"),
            good.replace("m=19456", "m=7"),
            good.replace("t=2", "t=0"),
            good.replace("t=2", "t=17"),
            good.replace("p=1", "p=99"),
            good.replace(",p=1", ""),
            good.replace("p=1", "p=1,q=1"),
            format!("{good}$"),
            format!("{good}="),
            format!("{beginning}$c2hvcnQ${}", &salt_and_hash[24..]),
            good[..good.len() - 40].to_owned(),
            beginning.to_owned(),
        ] {
            assert!(PasswordHash::parse(&bad).is_none(), "{bad}");
        }
    }
}
