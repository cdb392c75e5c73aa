//! Caches that the table is compared with: textbook code, without regard for memory or time.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// Cache that adds a key when a read misses it.
pub trait Cache {
    /// Reads a key; returns whether it was there.
    fn read(&mut self, key: u64) -> bool;
}

pub struct Fifo {
    entries_max: usize,
    queue: VecDeque<u64>,
    keys: HashSet<u64>,
}

impl Fifo {
    pub fn new(entries_max: usize) -> Self {
        Fifo { entries_max, queue: VecDeque::new(), keys: HashSet::new() }
    }
}

impl Cache for Fifo {
    fn read(&mut self, key: u64) -> bool {
        if !self.keys.insert(key) {
            return true;
        }
        self.queue.push_back(key);
        if self.entries_max < self.queue.len() {
            let oldest = self.queue.pop_front().expect("it is not empty");
            self.keys.remove(&oldest);
        }
        false
    }
}

pub struct Lru {
    entries_max: usize,
    now: u64,
    read_at: HashMap<u64, u64>,
    by_time: BTreeMap<u64, u64>,
}

impl Lru {
    pub fn new(entries_max: usize) -> Self {
        Lru { entries_max, now: 0, read_at: HashMap::new(), by_time: BTreeMap::new() }
    }
}

impl Cache for Lru {
    fn read(&mut self, key: u64) -> bool {
        self.now += 1;
        let before = self.read_at.insert(key, self.now);
        self.by_time.insert(self.now, key);
        if let Some(before) = before {
            self.by_time.remove(&before);
        }
        if self.entries_max < self.read_at.len() {
            let (_, oldest) = self.by_time.pop_first().expect("it is not empty");
            self.read_at.remove(&oldest);
        }
        before.is_some()
    }
}

/// S3-FIFO as in the paper, with a queue for the main part, and one use to be promoted.
pub struct PaperS3Fifo {
    entries_max: usize,
    uses: HashMap<u64, u8>,
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    ghosts: VecDeque<u64>,
    are_ghosts: HashSet<u64>,
}

impl PaperS3Fifo {
    pub fn new(entries_max: usize) -> Self {
        let (uses, small, main, ghosts, are_ghosts) = Default::default();
        PaperS3Fifo { entries_max, uses, small, main, ghosts, are_ghosts }
    }

    fn evict(&mut self) {
        loop {
            if self.entries_max / 10 <= self.small.len() || self.main.is_empty() {
                let key = self.small.pop_front().expect("one of the queues has entries");
                if 0 < self.uses[&key] {
                    self.uses.insert(key, 0);
                    self.main.push_back(key);
                    continue;
                }
                self.uses.remove(&key);
                self.ghosts.push_back(key);
                self.are_ghosts.insert(key);
                if self.entries_max < self.ghosts.len()
                    && let Some(oldest) = self.ghosts.pop_front()
                {
                    self.are_ghosts.remove(&oldest);
                }
                return;
            }
            let key = self.main.pop_front().expect("it is not empty");
            let uses = self.uses.get_mut(&key).expect("queued keys are there");
            if *uses == 0 {
                self.uses.remove(&key);
                return;
            }
            *uses -= 1;
            self.main.push_back(key);
        }
    }
}

impl Cache for PaperS3Fifo {
    fn read(&mut self, key: u64) -> bool {
        if let Some(uses) = self.uses.get_mut(&key) {
            *uses = (*uses + 1).min(3);
            return true;
        }
        if self.entries_max <= self.uses.len() {
            self.evict();
        }
        if self.are_ghosts.remove(&key) {
            self.ghosts.retain(|ghost| *ghost != key);
            self.main.push_back(key);
        } else {
            self.small.push_back(key);
        }
        self.uses.insert(key, 0);
        false
    }
}
