//! Requests, built before they are needed: sending costs the load side no more than reading memory.

use std::io::Write;

use crate::{
    limits::{POOL_BYTES, POOL_REQUESTS},
    random::Random,
};

/// Bytes of a key: `key:` and twelve digits.
pub const KEY_BYTES: usize = 16;

/// Operations that a case sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Operation {
    /// Read a key
    Get,
    /// Write a key
    Set,
    /// Nine reads and one write
    Mix,
}

/// Keys and values that a load uses.
#[derive(Clone, Copy, Debug)]
pub struct KeySpace {
    pub keys: u64,
    pub value_bytes: usize,
    /// Decides all random choices.
    pub seed: u64,
}

/// A million requests with random keys in one run of bytes, cut into pipelines of any length.
#[derive(Debug)]
pub struct Pool {
    bytes: Vec<u8>,
    /// Start of each request, and at last the end of the bytes.
    starts: Vec<usize>,
}

impl Pool {
    /// Makes requests of one kind with uniformly random keys; at least `pipeline` of them.
    pub fn build(operation: Operation, space: KeySpace, pipeline: usize) -> Self {
        let mut random = Random::new(space.seed);
        let letters = letters(&mut random, space.value_bytes + 4_096);
        let largest = if operation == Operation::Get { 64 } else { 96 + space.value_bytes };
        let count = (POOL_BYTES / largest).clamp(1, POOL_REQUESTS).max(pipeline);
        Self::of(count, |out| {
            let key = random.below(space.keys);
            let writes = match operation {
                Operation::Get => false,
                Operation::Set => true,
                Operation::Mix => random.below(10) == 0,
            };
            if writes {
                let from = usize::try_from(random.below(4_096)).expect("below 4096");
                write_set(out, key, &letters[from..from + space.value_bytes]);
            } else {
                write_get(out, key);
            }
        })
    }

    /// Makes `count` requests, each appended by `write`.
    pub fn of(count: usize, mut write: impl FnMut(&mut Vec<u8>)) -> Self {
        let mut pool = Self { bytes: Vec::new(), starts: Vec::with_capacity(count + 1) };
        for _ in 0..count {
            pool.starts.push(pool.bytes.len());
            write(&mut pool.bytes);
        }
        pool.starts.push(pool.bytes.len());
        pool
    }

    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// The bytes of `count` requests from `first` on.
    #[inline]
    pub fn slice(&self, first: usize, count: usize) -> &[u8] {
        &self.bytes[self.starts[first]..self.starts[first + count]]
    }

    /// Walks through the pool for ever: returns the first of `count` requests from `next` on, or
    /// from the start where there are no longer so many, and moves `next` behind them.
    #[inline]
    pub fn take(&self, next: &mut usize, count: usize) -> usize {
        let first = if self.len() < *next + count { 0 } else { *next };
        *next = first + count;
        first
    }
}

/// Requests of the connections of a load.
#[derive(Clone, Copy, Debug)]
pub struct Pools<'a> {
    pub all: &'a Pool,
    /// Requests of the first connection, if they are others: as many as in `all`.
    pub first: Option<&'a Pool>,
}

impl<'a> Pools<'a> {
    /// Returns the requests of a connection.
    #[inline]
    pub fn of(self, connection: usize) -> &'a Pool {
        self.first.filter(|_| connection == 0).unwrap_or(self.all)
    }
}

/// Appends a read of one key.
pub fn write_get(out: &mut Vec<u8>, key: u64) {
    out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n$16\r\n");
    write_key(out, key);
    out.extend_from_slice(b"\r\n");
}

/// Appends a write of one key.
pub fn write_set(out: &mut Vec<u8>, key: u64, value: &[u8]) {
    out.extend_from_slice(b"*3\r\n$3\r\nSET\r\n$16\r\n");
    write_key(out, key);
    write!(out, "\r\n${}\r\n", value.len()).expect("memory takes what is written to it");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends a write of one field of the one hash that there is.
pub fn write_hset(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    out.extend_from_slice(b"*4\r\n$4\r\nHSET\r\n$4\r\nhash\r\n$16\r\n");
    write_key(out, field);
    write!(out, "\r\n${}\r\n", value.len()).expect("memory takes what is written to it");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn write_key(out: &mut Vec<u8>, key: u64) {
    let mut text = *b"key:000000000000";
    let mut rest = key;
    for digit in text[4..].iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).expect("a digit");
        rest /= 10;
    }
    out.extend_from_slice(&text);
}

/// Makes a value of letters.
pub fn letters(random: &mut Random, count: usize) -> Vec<u8> {
    (0..count).map(|_| b'a' + u8::try_from(random.below(26)).expect("a letter")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACE: KeySpace = KeySpace { keys: 100, value_bytes: 5, seed: 3 };

    #[test]
    fn requests_are_exact_resp() {
        let mut out = Vec::new();
        write_get(&mut out, 42);
        write_set(&mut out, 7, b"hello");
        write_hset(&mut out, 7, b"x");
        let wanted = "*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000042\r\n\
                      *3\r\n$3\r\nSET\r\n$16\r\nkey:000000000007\r\n$5\r\nhello\r\n\
                      *4\r\n$4\r\nHSET\r\n$4\r\nhash\r\n$16\r\nkey:000000000007\r\n$1\r\nx\r\n";
        assert_eq!(std::str::from_utf8(&out), Ok(wanted));
    }

    #[test]
    fn a_pool_of_a_mix_has_whole_requests_and_one_in_ten_writes() {
        let pool = Pool::build(Operation::Mix, SPACE, 64);
        let slice = pool.slice(pool.len() - 64, 64);
        assert!(slice.starts_with(b"*") && slice.ends_with(b"\r\n"));
        assert_eq!(slice.iter().filter(|byte| **byte == b'*').count(), 64);
        let sets = (0..100_000).filter(|index| pool.slice(*index, 1).starts_with(b"*3")).count();
        assert!((9_500..10_500).contains(&sets), "{sets}");
    }

    #[test]
    fn a_walk_never_leaves_the_pool_and_starts_again() {
        let (pool, mut next) = (Pool::of(100, |out| write_get(out, 1)), 90);
        assert_eq!([10, 64, 36, 1].map(|count| pool.take(&mut next, count)), [90, 0, 64, 0]);
    }

    #[test]
    fn the_first_connection_may_have_requests_of_its_own() {
        let [one, other] = [1, 2].map(|key| Pool::of(1, |out| write_get(out, key)));
        let keys = |first| [0, 1].map(|connection| Pools { all: &one, first }.of(connection));
        assert!(keys(None).iter().all(|pool| pool.slice(0, 1) == one.slice(0, 1)));
        assert_eq!(
            keys(Some(&other)).map(|pool| pool.slice(0, 1)),
            [&other, &one].map(|pool| pool.slice(0, 1))
        );
    }
}
