//! Measures the queue's own cost per read: readers that read again when answered, and batches that
//! take no time.
//!
//! `cargo bench -p busload-batch --bench queue`

use std::collections::VecDeque;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use busload_batch::{EntryBatch, NoWrites, QueueSettings, RequestOptions, RequestQueue};

const READERS: usize = 300;
const READERS_MANY: usize = 30_000;
const KEYS: usize = 100_000;
const READS: usize = 6_000_000;
const BATCH: Duration = Duration::from_micros(300);
const TIMEOUT: Duration = Duration::from_secs(1);

fn main() {
    let names =
        || (0..KEYS).map(|key| format!("{:020}", key.wrapping_mul(2_654_435_761) % 10_000_000));
    let inline: Vec<[u8; 20]> =
        names().map(|name| name.into_bytes().try_into().expect("20 digits")).collect();
    let shared: Vec<Arc<[u8]>> = names().map(|name| name.into_bytes().into()).collect();
    report("inline keys", &inline, READERS, None);
    report("inline keys, deadlines", &inline, READERS, Some(TIMEOUT));
    report("shared keys, deadlines", &shared, READERS, Some(TIMEOUT));
    report("shared keys, deadlines", &shared, READERS_MANY, Some(TIMEOUT));
}

fn report<K: Clone + Eq + Hash + Ord>(
    what: &str,
    keys: &[K],
    readers: usize,
    timeout: Option<Duration>,
) {
    let mut world = World::new(keys, timeout);
    (0..readers).for_each(|reader| world.read(reader));
    world.run(READS / 10);
    let started = now();
    world.run(READS);
    let nanos = started.elapsed().as_nanos() / READS as u128;
    let reads = world.queue.stats().reads;
    println!(
        "{what}, {readers} readers: {nanos} ns per read, {} reads per batch",
        reads.requests / reads.batches
    );
}

struct World<'a, K> {
    queue: RequestQueue<K, NoWrites, usize>,
    keys: &'a [K],
    next_key: usize,
    timeout: Option<Duration>,
    now: Duration,
    batches: VecDeque<EntryBatch<K, NoWrites>>,
}

impl<'a, K: Clone + Eq + Hash + Ord> World<'a, K> {
    fn new(keys: &'a [K], timeout: Option<Duration>) -> Self {
        let queue = RequestQueue::new(QueueSettings::default()).expect("the default is sound");
        World { queue, keys, next_key: 0, timeout, now: Duration::ZERO, batches: VecDeque::new() }
    }

    fn read(&mut self, reader: usize) {
        let key = self.keys[self.next_key].clone();
        self.next_key = (self.next_key + 1) % self.keys.len();
        let deadline = self.timeout.map(|timeout| self.now + timeout);
        let read =
            self.queue.submit_load(self.now, key, reader, RequestOptions { bytes: 20, deadline });
        read.expect("the queue is large enough");
    }

    fn run(&mut self, mut reads: usize) {
        let mut answered = Vec::new();
        let mut rest = Vec::new();
        let mut late = Vec::new();
        while 0 < reads {
            self.queue.expire(self.now, &mut late);
            while let Some(batch) = self.queue.next_batch(self.now) {
                self.batches.push_back(batch);
            }
            self.now += BATCH;
            let Some(batch) = self.batches.pop_front() else { continue };
            for entry in 0..batch.content.len() {
                self.queue.answer(batch.id, entry, &mut answered);
            }
            self.queue.end(self.now, batch.id, &mut rest);
            reads = reads.saturating_sub(answered.len());
            for waiter in answered.drain(..) {
                self.read(waiter.waiter);
            }
            std::hint::black_box(self.queue.next_wake(self.now));
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the one clock of this program")]
fn now() -> Instant {
    Instant::now()
}
