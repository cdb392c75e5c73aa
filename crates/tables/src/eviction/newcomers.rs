//! The queue of newcomers: hashes in chunks, so that it grows and shrinks without being moved.

use std::collections::VecDeque;

use crate::index::held_bytes;

/// Number of hashes in one chunk.
const CHUNK_HASHES: usize = 128;

type Chunk = [u64; CHUNK_HASHES];

/// First-in first-out queue of hashes.
#[derive(Default)]
pub(super) struct Newcomers {
    chunks: VecDeque<Box<Chunk>>,
    /// Index of the first hash in the first chunk.
    first: usize,
    len: usize,
}

impl Newcomers {
    /// Returns the number of queued hashes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Appends a hash as the newest.
    pub fn push(&mut self, hash: u64) {
        let at = self.first + self.len;
        if at == self.chunks.len() * CHUNK_HASHES {
            self.chunks.push_back(Box::new([0; CHUNK_HASHES]));
        }
        self.chunks[at / CHUNK_HASHES][at % CHUNK_HASHES] = hash;
        self.len += 1;
    }

    /// Takes out the oldest hash.
    pub fn pop(&mut self) -> Option<u64> {
        let hash = *self.chunks.front()?.get(self.first).filter(|_| self.len != 0)?;
        self.first += 1;
        self.len -= 1;
        if self.first == CHUNK_HASHES {
            self.chunks.pop_front();
            self.first = 0;
        }
        Some(hash)
    }

    /// Returns the bytes that the allocator holds for the queue.
    pub fn held_bytes(&self) -> usize {
        let list = self.chunks.capacity() * size_of::<Box<Chunk>>();
        held_bytes(list) + self.chunks.len() * held_bytes(size_of::<Chunk>())
    }

    /// Iterates over the hashes, the oldest first.
    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        (self.first..self.first + self.len)
            .map(|at| self.chunks[at / CHUNK_HASHES][at % CHUNK_HASHES])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_come_out_in_the_order_in_which_they_went_in_and_chunks_are_freed() {
        let mut queue = Newcomers::default();
        let (mut pushed, mut popped) = (0, 0);
        for round in 0_u64..200 {
            for _ in 0..round % 37 * 20 {
                queue.push(pushed);
                pushed += 1;
            }
            for _ in 0..round % 29 * 30 {
                let expected = (popped < pushed).then_some(popped);
                assert_eq!(queue.pop(), expected);
                popped += u64::from(expected.is_some());
            }
            assert_eq!(queue.len() as u64, pushed - popped);
            assert!(queue.iter().eq(popped..pushed));
            assert!(queue.chunks.len() <= queue.len() / CHUNK_HASHES + 2);
        }
        while queue.pop().is_some() {}
        assert!(queue.chunks.len() <= 1);
    }
}
