//! Memory for replies that clients do not read: anonymous maps, reused while there is demand for
//! them and returned to the system a few at a time when there is none.
//!
//! Mapping, clearing and unmapping gigabytes a second would keep a processor busy when clients that
//! do not read come and go; unmapping a gigabyte at once would block every thread that touches new
//! memory meanwhile. So a separate thread, the trimmer, unmaps the maps that stayed unused since
//! its last round, at most [`TRIMMED_COUNT_MAX`] at a time.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, OnceLock, Weak},
    thread::{self, Thread},
};

use memmap2::MmapMut;

use crate::limits::{MAPPED_CHUNK_BYTES, TRIM_INTERVAL, TRIMMED_COUNT_MAX};

/// Pool that maps come from and return to.
#[derive(Clone, Debug, Default)]
pub(super) struct MapPool(Arc<PoolInner>);

#[derive(Debug, Default)]
struct PoolInner {
    idle: Mutex<Idle>,
    trimmer: OnceLock<Option<Thread>>,
}

#[derive(Debug, Default)]
struct Idle {
    maps: Vec<MmapMut>,
    /// Smallest number of maps in the pool since the trimmer last looked: nobody took these.
    unused_count: usize,
}

/// Memory of [`MAPPED_CHUNK_BYTES`], written from its start on. Dropping it returns it to its pool.
#[derive(Debug)]
pub(super) struct Mapped {
    /// The map; `None` only while it is dropped.
    memory: Option<MmapMut>,
    length: usize,
    pool: MapPool,
}

impl MapPool {
    /// Takes an empty map; `None` when the system has no memory.
    pub fn take(&self) -> Option<Mapped> {
        let reused = {
            let mut idle = self.0.lock();
            let map = idle.maps.pop();
            idle.unused_count = idle.unused_count.min(idle.maps.len());
            map
        };
        let memory = reused.or_else(|| MmapMut::map_anon(MAPPED_CHUNK_BYTES).ok());
        Some(Mapped { memory: Some(memory?), length: 0, pool: self.clone() })
    }

    fn give_back(&self, memory: MmapMut) {
        let was_empty = {
            let mut idle = self.0.lock();
            idle.maps.push(memory);
            idle.maps.len() == 1
        };
        if was_empty && let Some(trimmer) = self.trimmer() {
            trimmer.unpark();
        }
    }

    /// Returns the trimmer, which starts with the first map that comes back. When the thread cannot
    /// be started the pool keeps its maps.
    fn trimmer(&self) -> Option<&Thread> {
        let start = || {
            let pool = Arc::downgrade(&self.0);
            let thread = thread::Builder::new().name("trimmer".into()).spawn(move || trim(&pool));
            thread.ok().map(|thread| thread.thread().clone())
        };
        self.0.trimmer.get_or_init(start).as_ref()
    }
}

impl PoolInner {
    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().expect("no code that holds the lock panics")
    }
}

impl Drop for PoolInner {
    fn drop(&mut self) {
        if let Some(Some(trimmer)) = self.trimmer.get() {
            trimmer.unpark();
        }
    }
}

fn trim(pool: &Weak<PoolInner>) {
    while let Some(shared) = pool.upgrade() {
        let (trimmed, is_empty) = {
            let mut idle = shared.lock();
            let count = idle.unused_count.min(TRIMMED_COUNT_MAX).min(idle.maps.len());
            let trimmed: Vec<MmapMut> = idle.maps.drain(..count).collect();
            idle.unused_count = idle.maps.len();
            (trimmed, idle.maps.is_empty())
        };
        drop(shared);
        drop(trimmed);
        match is_empty {
            true => thread::park(),
            false => thread::park_timeout(TRIM_INTERVAL),
        }
    }
}

impl Mapped {
    /// Returns the number of bytes written.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Appends the bytes that fit; returns the rest.
    pub fn append<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let (taken, rest) = bytes.split_at(bytes.len().min(MAPPED_CHUNK_BYTES - self.length));
        if let Some(memory) = &mut self.memory {
            memory[self.length..][..taken.len()].copy_from_slice(taken);
            self.length += taken.len();
        }
        rest
    }
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], |memory| &memory[..self.length])
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if let Some(memory) = mem::take(&mut self.memory) {
            self.pool.give_back(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_reused_and_what_nobody_wants_is_unmapped() {
        let pool = MapPool::default();
        let mut maps: Vec<Mapped> = (0..3).map(|_| pool.take().unwrap()).collect();
        assert_eq!(maps[0].append(&vec![7; MAPPED_CHUNK_BYTES + 5]).len(), 5);
        assert_eq!(maps[0].len(), MAPPED_CHUNK_BYTES);
        maps.clear();
        let reused = pool.take().unwrap();
        assert_eq!((reused.len(), reused.as_ref().len()), (0, 0));
        // The trimmer looks again and again, and finds the other maps unused.
        while !pool.0.lock().maps.is_empty() {
            thread::yield_now();
        }
        drop(reused);
        while !pool.0.lock().maps.is_empty() {
            thread::yield_now();
        }
    }
}
