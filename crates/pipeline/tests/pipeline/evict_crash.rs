//! Crashes while keys are evicted: a seed decides requests, interleaving and the crash.
//!
//! Every key has one owner, whose SETs of it are numbered. What was acknowledged and not evicted is
//! there after a crash, with the value that it had in memory; what somebody has seen to be gone
//! does not come back; and the recovered cache is within its limit.

use busload_io::{
    Clock,
    sim::{CrashKind, SimClock, SimDisk, SimRng},
};
use busload_pipeline::settings::{Eviction, Settings, SyncMode};
use busload_tables::Value;

use crate::world::{Client, World, read, settings};

const OWNERS: usize = 3;
const READERS: usize = 2;
const KEYS_PER_OWNER: usize = 25;
const KEYS: usize = OWNERS * KEYS_PER_OWNER;
const MEMORY_MAX: u64 = 16 * 1024;
const SLACK_BYTES: u64 = 8 * 1024;

#[derive(Clone, Copy, Debug)]
enum Sent {
    Set {
        key: usize,
        number: u64,
    },
    Exec {
        keys: [usize; 2],
        number: u64,
    },
    Queued,
    /// A read, and the newest acknowledged SET when it was sent.
    Get {
        key: usize,
        acknowledged: u64,
    },
}

/// SETs of one key, by number.
#[derive(Clone, Copy, Debug, Default)]
struct Key {
    sent: u64,
    /// Newest that was acknowledged, or that anybody has read.
    seen: u64,
    /// Newest that is known to have been evicted.
    gone: u64,
}

struct Run {
    world: World,
    rng: SimRng,
    sync: SyncMode,
    keys: Vec<Key>,
    clients: Vec<(Client, Vec<Sent>)>,
    evicted: u64,
    kept: u64,
}

fn name(key: usize) -> String {
    format!("key{key}")
}

fn value(number: u64) -> String {
    format!("{number}:{}", "v".repeat(200 + number as usize % 300))
}

fn number_of(value: &str) -> u64 {
    value.split(':').next().unwrap().parse().unwrap()
}

fn cache(sync: SyncMode) -> Settings {
    let mut settings = settings(sync);
    settings.memory_max = MEMORY_MAX;
    settings.tables[0].evict = Eviction::S3Fifo;
    settings
}

impl Run {
    fn new(seed: u64, sync: SyncMode) -> Run {
        let mut rng = SimRng::new(seed);
        let clock = SimClock::new(1_000_000);
        let world = World::start(SimDisk::new(), cache(sync), clock, rng.below(u64::MAX)).unwrap();
        let keys = vec![Key::default(); KEYS];
        let mut run = Run { world, rng, sync, keys, clients: Vec::new(), evicted: 0, kept: 0 };
        run.connect();
        run
    }

    fn connect(&mut self) {
        self.clients = (0..OWNERS + READERS).map(|_| (self.world.connect(), Vec::new())).collect();
    }

    /// Makes one random event happen.
    fn step(&mut self) {
        match self.rng.below(12) {
            0..4 => self.send(),
            4..7 => self.world.turn(),
            7 => self.world.overlapped_turn(),
            8 | 9 => _ = self.world.log_step(),
            10 => {
                self.world.tx.housekeep(read(&self.world.clock));
                self.world.tx.end_turn();
            }
            _ => _ = self.world.helper.step(self.world.clock.now()),
        }
        self.receive();
    }

    fn send(&mut self) {
        let who = self.rng.index(OWNERS + READERS);
        for _ in 0..=self.rng.below(6) {
            let own = who.min(OWNERS - 1) * KEYS_PER_OWNER;
            let (client, sent) = &mut self.clients[who];
            if OWNERS <= who {
                let key = self.rng.index(KEYS);
                self.world.send_words(client, &["GET", &name(key)]);
                sent.push(Sent::Get { key, acknowledged: self.keys[key].seen });
            } else if self.rng.chance(1, 6) {
                let keys = [0, 1].map(|_| own + self.rng.index(KEYS_PER_OWNER));
                let number = keys.iter().map(|key| self.keys[*key].sent).max().unwrap() + 1;
                self.world.send_words(client, &["MULTI"]);
                for key in keys {
                    self.keys[key].sent = number;
                    self.world.send_words(client, &["SET", &name(key), &value(number)]);
                }
                self.world.send_words(client, &["EXEC"]);
                sent.extend([Sent::Queued; 3]);
                sent.push(Sent::Exec { keys, number });
            } else {
                let key = own + self.rng.index(KEYS_PER_OWNER);
                let number = self.keys[key].sent + 1;
                self.keys[key].sent = number;
                self.world.send_words(client, &["SET", &name(key), &value(number)]);
                sent.push(Sent::Set { key, number });
            }
        }
    }

    fn receive(&mut self) {
        for (client, sent) in &mut self.clients {
            for reply in self.world.replies(client) {
                match sent.remove(0) {
                    Sent::Queued => assert!(["OK", "QUEUED"].contains(&reply.as_str()), "{reply}"),
                    Sent::Set { key, number } => {
                        assert_eq!(reply, "OK");
                        self.keys[key].seen = self.keys[key].seen.max(number);
                    }
                    Sent::Exec { keys, number } => {
                        assert_eq!(reply, "[OK OK]");
                        for key in keys {
                            self.keys[key].seen = self.keys[key].seen.max(number);
                        }
                    }
                    Sent::Get { key, acknowledged } if reply == "nil" => {
                        self.keys[key].gone = self.keys[key].gone.max(acknowledged);
                    }
                    Sent::Get { key, .. } => {
                        self.keys[key].seen = self.keys[key].seen.max(number_of(&reply));
                    }
                }
            }
        }
    }

    /// Returns the number of the SET that a key shows in memory.
    fn in_memory(&self, key: usize) -> Option<u64> {
        let name = name(key);
        match self.world.tx.get(&self.world.tx.key_in(0, name.as_bytes()))? {
            Value::String(value) => Some(number_of(std::str::from_utf8(value.as_slice()).unwrap())),
            Value::Hash(_) => panic!("no hash was written"),
        }
    }

    /// Simulates a power failure and compares what is left with what was in memory.
    fn crash(&mut self, kind: CrashKind) {
        let disk = self.world.disk.crash(&mut self.rng, kind);
        let before: Vec<_> = (0..KEYS).map(|key| self.in_memory(key)).collect();
        self.evicted += self.world.stats.evicted_keys_total.get();
        let clock = SimClock::new(1_000_000);
        let seed = self.rng.below(u64::MAX);
        self.world = World::start(disk, cache(self.sync), clock, seed).expect("recovers");
        for (key, before) in before.into_iter().enumerate() {
            let after = self.in_memory(key);
            let state = &mut self.keys[key];
            match (before, after) {
                (Some(number), after) if number <= state.seen => {
                    assert_eq!(after, Some(number), "key {key} was acknowledged and not evicted");
                    self.kept += 1;
                }
                (_, Some(number)) => {
                    assert!(state.seen <= number && number <= state.sent, "key {key}: {number}");
                    assert!(
                        state.gone < number,
                        "key {key} came back with {number}, {state:?} was seen to be gone"
                    );
                }
                (_, None) => {}
            }
            // The clients are gone: what did not survive counts as never sent.
            let last = after.unwrap_or(state.sent);
            *state = Key { sent: last, seen: after.unwrap_or(0), gone: state.gone.min(last) };
        }
        self.check_limit();
        self.connect();
    }

    fn check_limit(&mut self) {
        self.world.tx.housekeep(read(&self.world.clock));
        self.world.tx.end_turn();
        self.world.settle();
        let used = self.world.stats.memory_used_bytes.get();
        assert!(used <= MEMORY_MAX + SLACK_BYTES, "{used} bytes are used");
    }
}

fn run(seed: u64, sync: SyncMode, kinds: &[CrashKind]) -> (u64, u64) {
    let mut run = Run::new(seed, sync);
    for kind in kinds {
        let steps = 100 + run.rng.below(1500);
        for _ in 0..steps {
            run.step();
        }
        run.crash(*kind);
    }
    (run.evicted, run.kept)
}

fn run_all(seeds: std::ops::Range<u64>, sync: SyncMode, kind: CrashKind) {
    let (mut evicted, mut kept) = (0, 0);
    for seed in seeds {
        println!("seed {seed}");
        let of_seed = run(seed, sync, &[kind; 3]);
        (evicted, kept) = (evicted + of_seed.0, kept + of_seed.1);
    }
    assert!(2_000 < evicted && 500 < kept, "{evicted} evicted, {kept} kept");
}

#[test]
fn what_was_not_evicted_survives_losing_all_unsynced_data_and_the_evicted_stays_away() {
    run_all(0..40, SyncMode::Always, CrashKind::DropUnsynced);
}

#[test]
fn what_was_not_evicted_survives_losing_any_unsynced_sectors_and_the_evicted_stays_away() {
    run_all(1000..1040, SyncMode::Always, CrashKind::AnySubset);
}

#[test]
fn what_was_not_evicted_survives_a_kill_on_a_table_that_is_not_synced() {
    run_all(2000..2030, SyncMode::Os, CrashKind::KeepAll);
}

#[test]
fn the_same_seed_evicts_the_same() {
    let kinds = [CrashKind::AnySubset, CrashKind::DropUnsynced];
    assert_eq!(run(7, SyncMode::Always, &kinds), run(7, SyncMode::Always, &kinds));
}
