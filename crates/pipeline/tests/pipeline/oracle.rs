//! Acknowledged data, and data that anyone has seen, survives: a seed decides requests,
//! interleaving and the crash.
//!
//! Every key has one owner, whose operations on it are numbered: SET writes its number, every third
//! operation is a DEL. Readers are other connections. After a crash each key must show an operation
//! at least as new as the newest that was acknowledged to its owner or shown to anybody.

use std::collections::BTreeMap;

use crate::world::{Client, World, settings};
use busload_io::sim::{CrashKind, SimClock, SimRng};
use busload_pipeline::settings::SyncMode;

const OWNERS: usize = 4;
const READERS: usize = 3;
const KEYS_PER_OWNER: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Sent {
    Write {
        key: usize,
        number: u64,
    },
    Pair {
        number: u64,
    },
    /// A read, with the newest operation on the key that had been seen when it was sent.
    Read {
        key: usize,
        seen: u64,
    },
}

/// Operations of one key, of which `seen` and later ones must survive.
#[derive(Clone, Copy, Debug, Default)]
struct Key {
    sent: u64,
    seen: u64,
}

struct Run {
    world: World,
    rng: SimRng,
    sync: SyncMode,
    keys: Vec<Key>,
    pair: Key,
    clients: Vec<(Client, Vec<Sent>)>,
}

fn deletes(number: u64) -> bool {
    number.is_multiple_of(3)
}

fn name(key: usize) -> String {
    format!("key{key}")
}

impl Run {
    fn new(seed: u64, sync: SyncMode) -> Run {
        let mut rng = SimRng::new(seed);
        let disk = busload_io::sim::SimDisk::new();
        let world =
            World::start(disk, settings(sync), SimClock::new(1_000_000), rng.below(u64::MAX))
                .unwrap();
        let mut run = Run {
            world,
            rng,
            sync,
            keys: vec![Key::default(); OWNERS * KEYS_PER_OWNER],
            pair: Key::default(),
            clients: Vec::new(),
        };
        run.connect();
        run
    }

    fn connect(&mut self) {
        self.clients = (0..OWNERS + READERS).map(|_| (self.world.connect(), Vec::new())).collect();
    }

    /// Makes one random event happen.
    fn step(&mut self) {
        match self.rng.below(10) {
            0..3 => self.send(),
            3..6 => self.world.turn(),
            6 => self.world.overlapped_turn(),
            7 | 8 => _ = self.world.log_step(),
            _ => _ = self.world.helper.step(busload_io::Clock::now(&self.world.clock)),
        }
        self.receive();
    }

    fn send(&mut self) {
        let who = self.rng.index(OWNERS + READERS);
        for _ in 0..=self.rng.below(4) {
            let (client, sent) = &mut self.clients[who];
            if OWNERS <= who {
                let key = self.rng.index(OWNERS * KEYS_PER_OWNER);
                self.world.send_words(client, &["GET", &name(key)]);
                sent.push(Sent::Read { key, seen: self.keys[key].seen });
            } else if who == 0 && self.rng.chance(1, 4) {
                let number = self.pair.sent + 1;
                self.pair.sent = number;
                let value = number.to_string();
                self.world.send_words(client, &["MSET", "left", &value, "right", &value]);
                sent.push(Sent::Pair { number });
            } else {
                let key = who * KEYS_PER_OWNER + self.rng.index(KEYS_PER_OWNER);
                let number = self.keys[key].sent + 1;
                self.keys[key].sent = number;
                match deletes(number) {
                    true => self.world.send_words(client, &["DEL", &name(key)]),
                    false => {
                        self.world.send_words(client, &["SET", &name(key), &number.to_string()])
                    }
                }
                sent.push(Sent::Write { key, number });
            }
        }
    }

    fn receive(&mut self) {
        for (client, sent) in &mut self.clients {
            for reply in self.world.replies(client) {
                match sent.remove(0) {
                    Sent::Write { key, number } => {
                        let expected = if deletes(number) { ":1" } else { "OK" };
                        assert_eq!(reply, expected, "key {key} operation {number}");
                        self.keys[key].seen = self.keys[key].seen.max(number);
                    }
                    Sent::Pair { number } => self.pair.seen = self.pair.seen.max(number),
                    Sent::Read { key, seen } => {
                        let state = &mut self.keys[key];
                        state.seen = state.seen.max(shown(&reply, seen));
                    }
                }
            }
        }
    }

    /// Simulates a power failure; what is left must contain everything acknowledged and seen.
    fn crash(&mut self, kind: CrashKind) {
        let disk = self.world.disk.crash(&mut self.rng, kind);
        let clock = SimClock::new(1_000_000);
        let seed = self.rng.below(u64::MAX);
        self.world = World::start(disk, settings(self.sync), clock, seed).expect("recovers");
        let mut client = self.world.connect();
        for key in 0..self.keys.len() {
            let reply = self.world.run(&mut client, &format!("GET {}", name(key))).remove(0);
            let state = &mut self.keys[key];
            let found = shown(&reply, state.seen);
            assert!(
                state.seen <= found,
                "key {key} went back from {} to {found} ({reply})",
                state.seen
            );
            assert!(found <= state.sent, "key {key} shows {found}, only {} were sent", state.sent);
            // The clients are gone: an operation that did not survive counts as never sent.
            *state = Key { sent: found, seen: found };
        }
        let pair = self.world.run(&mut client, "MGET left right").remove(0);
        let values: Vec<u64> =
            pair[1..pair.len() - 1].split(' ').map(|v| v.parse().unwrap_or(0)).collect();
        assert_eq!(values[0], values[1], "MSET survived in part");
        assert!(self.pair.seen <= values[0] && values[0] <= self.pair.sent);
        self.pair = Key { sent: values[0], seen: values[0] };
        self.connect();
    }
}

/// Returns the oldest operation, not before `seen`, after which a GET shows this.
fn shown(reply: &str, seen: u64) -> u64 {
    match reply {
        "nil" => (seen..).find(|number| *number == 0 || deletes(*number)).unwrap(),
        value => value.parse().unwrap(),
    }
}

fn run(seed: u64, sync: SyncMode, kinds: &[CrashKind]) -> BTreeMap<usize, u64> {
    let mut run = Run::new(seed, sync);
    for kind in kinds {
        let steps = 50 + run.rng.below(1500);
        for _ in 0..steps {
            run.step();
        }
        run.crash(*kind);
    }
    run.keys.iter().enumerate().map(|(key, state)| (key, state.seen)).collect()
}

#[test]
fn everything_acknowledged_or_observed_survives_losing_all_unsynced_data() {
    for seed in 0..60 {
        println!("seed {seed}");
        run(seed, SyncMode::Always, &[CrashKind::DropUnsynced; 3]);
    }
}

#[test]
fn everything_acknowledged_or_observed_survives_losing_any_unsynced_sectors() {
    for seed in 1000..1060 {
        println!("seed {seed}");
        run(seed, SyncMode::Always, &[CrashKind::AnySubset; 3]);
    }
}

#[test]
fn everything_acknowledged_or_observed_survives_a_kill_on_a_table_that_is_not_synced() {
    for seed in 2000..2040 {
        println!("seed {seed}");
        run(seed, SyncMode::Os, &[CrashKind::KeepAll; 3]);
    }
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let kinds = [CrashKind::AnySubset, CrashKind::DropUnsynced];
    let first = run(7, SyncMode::Always, &kinds);
    assert_eq!(first, run(7, SyncMode::Always, &kinds));
    assert!(first.values().any(|seen| 0 < *seen), "nothing happened");
}
