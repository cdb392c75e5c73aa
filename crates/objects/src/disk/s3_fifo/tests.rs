use std::collections::HashMap;

use super::*;
use crate::disk::extents::Extents;

/// Model of a cache with extents of one file and no bytes: only which extents are there counts.
struct Cache {
    extents: File,
    queues: S3Fifo,
    capacity: usize,
    count: usize,
}

struct File(Extents);

impl ExtentStates for File {
    fn is_present(&self, place: ExtentId) -> bool {
        self.0.is_present(place.extent)
    }
    fn unqueue(&self, place: ExtentId) {
        self.0.unqueue(place.extent);
    }
    fn take_reads(&self, place: ExtentId, leave: fn(u8) -> u8) -> u8 {
        self.0.take_reads(place.extent, leave)
    }
    fn is_spared(&self, _: ExtentId) -> bool {
        false
    }
    fn name(&self, place: ExtentId) -> u64 {
        u64::from(place.extent + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

impl Cache {
    fn new(capacity: usize) -> Self {
        Self {
            extents: File(Extents::new(100_000)),
            queues: S3Fifo::new(capacity),
            capacity,
            count: 0,
        }
    }

    /// Reads an extent, and inserts it if it is missing. Returns whether it was there.
    fn read(&mut self, extent: u32) -> bool {
        if self.extents.0.is_present(extent) {
            self.extents.0.touch(extent, self.queues.tick());
            return true;
        }
        self.make_space();
        self.insert(extent, Entrance::New);
        false
    }

    fn make_space(&mut self) {
        while self.capacity <= self.count {
            let victim = self.queues.pop(&self.extents, Floors::Kept).expect("somebody is there");
            assert!(self.extents.0.remove(victim.extent), "who has to go is there");
            self.count -= 1;
        }
    }

    fn read_all(&mut self, extents: std::ops::Range<u32>) {
        for extent in extents {
            self.read(extent);
        }
    }

    /// Inserts an extent without reading it.
    fn copy(&mut self, extent: u32) {
        if !self.extents.0.is_present(extent) {
            self.make_space();
            self.insert(extent, Entrance::Sequential);
        }
    }

    fn insert(&mut self, extent: u32, entrance: Entrance) {
        let place = ExtentId { file: 1, extent };
        self.queues.count_insertion();
        if self.extents.0.insert(extent, self.queues.tick()) {
            self.queues.push(place, self.extents.name(place), entrance);
        }
        self.count += 1;
    }
}

#[test]
fn one_hit_wonders_do_not_evict_extents_that_are_read_again_and_again() {
    let mut cache = Cache::new(1000);
    let hot = 0..500;
    cache.read_all(hot.clone());
    for scanned in 1000..40_000 {
        // Each scanned extent is read many times over, as its blocks are read one after the other.
        (0..8).for_each(|_| cache.read_all(scanned..scanned + 1));
        cache.read(scanned % 500);
    }
    let hits = hot.filter(|&extent| cache.read(extent)).count();
    assert!(490 <= hits, "{hits} of 500");
}

#[test]
fn an_extent_that_comes_back_soon_after_its_eviction_goes_to_the_main_queue() {
    let mut cache = Cache::new(100);
    cache.read_all(0..100);
    cache.read(100);
    assert!(!cache.extents.0.is_present(0), "the first that came and was never read again");
    assert_eq!(cache.queues.main.len(), 0);
    cache.read(0);
    assert_eq!(cache.queues.main.iter().map(|place| place.extent).collect::<Vec<_>>(), [0]);
}

/// A copy of less than the ghosts remember, made twice, had all of it go into the main queue once.
#[test]
fn repeated_copies_do_not_evict_extents_that_are_read() {
    for copied in [1000..1150, 1000..3000] {
        let mut cache = Cache::new(100);
        cache.read_all(0..80);
        cache.read_all(100..180);
        (0..3).for_each(|_| cache.read_all(0..80));
        let main = cache.queues.main.len();
        assert!(50 < main, "{main}: hot extents went before");
        for _ in 0..5 {
            copied.clone().for_each(|extent| cache.copy(extent));
        }
        let hits = (0..80).filter(|&extent| cache.extents.0.is_present(extent)).count();
        assert!(79 <= hits, "{hits} of 80");
        let is_copied = |place: &ExtentId| copied.contains(&place.extent);
        assert!(!cache.queues.main.iter().any(is_copied), "no copy is among what is hot");
    }
}

#[test]
fn a_copied_extent_is_new_to_its_first_readers() {
    let mut cache = Cache::new(100);
    (0..200).for_each(|extent| cache.copy(extent));
    cache.read(50);
    assert_eq!(cache.queues.main.len(), 0, "its eviction left no name");
    cache.read_all(110..111);
    (200..300).for_each(|extent| cache.copy(extent));
    assert_eq!(
        cache.queues.main.iter().map(|place| place.extent).collect::<Vec<_>>(),
        [110],
        "it was read"
    );
}

#[test]
fn extents_that_went_otherwise_leave_no_second_entry() {
    let mut cache = Cache::new(100);
    for round in 0..1000 {
        cache.read(round % 50);
        if cache.extents.0.remove(round % 50) {
            cache.count -= 1;
        }
    }
    assert!(cache.queues.small.len() + cache.queues.main.len() <= 50);
    cache.read_all(1000..3000);
    let entries = cache
        .queues
        .small
        .iter()
        .map(|newcomer| newcomer.extent_id)
        .chain(cache.queues.main.iter().copied());
    let count = cache.queues.small.len() + cache.queues.main.len();
    assert_eq!(
        entries.map(|place| (place.extent, ())).collect::<HashMap<_, _>>().len(),
        count,
        "no extent twice"
    );
    assert_eq!(count, 100);
}

#[test]
fn an_empty_cache_has_no_victim() {
    let mut cache = Cache::new(10);
    assert_eq!(cache.queues.pop(&cache.extents, Floors::Kept), None);
    cache.insert(1, Entrance::New);
    cache.extents.0.remove(1);
    assert_eq!(cache.queues.pop(&cache.extents, Floors::Kept), None, "an entry alone is no extent");
}

#[test]
fn a_skewed_load_hits_more_often_than_with_lru() {
    let capacity = 500;
    let (mut cache, mut lru) =
        (Cache::new(capacity), Lru { capacity, clock: 0, times: HashMap::new() });
    let (mut hits, mut lru_hits, mut state) = (0, 0, 1_u64);
    for _ in 0..100_000 {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // A square root of a square root of a uniform number's inverse falls off about as a Zipf
        // law.
        let uniform = (state >> 40) as f64 / (1_u64 << 24) as f64;
        let extent = (20_000.0 * uniform.powi(5)) as u32;
        hits += u32::from(cache.read(extent));
        lru_hits += u32::from(lru.read(extent));
    }
    assert!(lru_hits < hits, "{hits} hits, LRU {lru_hits}");
}

struct Lru {
    capacity: usize,
    clock: u64,
    times: HashMap<u32, u64>,
}

impl Lru {
    fn read(&mut self, extent: u32) -> bool {
        self.clock += 1;
        let hit = self.times.insert(extent, self.clock).is_some();
        if self.capacity < self.times.len() {
            let oldest = *self.times.iter().min_by_key(|(_, time)| **time).unwrap().0;
            self.times.remove(&oldest);
        }
        hit
    }
}
