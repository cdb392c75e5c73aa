//! Sixteen peers that come and go, on a simulated network with a clock of its own.
//!
//! Each process has a view of its own, from lists that reach it late and from probes that fail. A
//! client asks any process where a file is, and downloads it from the peer in the answer. A seed
//! reproduces a run.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use busload_peers::{
    Membership, Owner,
    limits::{FAILURES_UNTIL_SUSPECT, PROBE_INTERVAL},
};

const PEERS: usize = 16;
const SEEDS: u64 = 50;
const FILES: u64 = 4_000;
/// Time that a probe to a peer that is gone takes at most, in this network.
const TICK: Duration = Duration::from_millis(100);

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

fn url(peer: usize) -> String {
    format!("http://10.0.0.{peer}:6381")
}

fn number(url: &str) -> usize {
    (0..PEERS).find(|&peer| self::url(peer) == url).expect("it is one of them")
}

/// A store of many, and one of its files.
fn file(number: u64) -> (String, [u8; 20]) {
    let mut rng = Rng(number);
    let mut id = [0; 20];
    id.fill_with(|| rng.next() as u8);
    (format!("database-{}", number % 997), id)
}

/// Peers of one list that all answer.
fn settled(peers: &[usize]) -> BTreeMap<usize, Membership> {
    let of = |&me: &usize| {
        let mut membership = Membership::new(&url(me));
        membership
            .handle_listed(peers.iter().map(|&peer| url(peer)), Duration::ZERO)
            .expect("it fits");
        (me, membership)
    };
    peers.iter().map(of).collect()
}

fn owner(me: usize, membership: &Membership, (store, id): &(String, [u8; 20])) -> usize {
    match membership.owner(store, id) {
        Owner::Me => me,
        Owner::Peer(url) => number(url),
    }
}

struct World {
    rng: Rng,
    now: Duration,
    /// Processes that live, with what each knows.
    living: BTreeMap<usize, Membership>,
    /// List that a process reads next; a newer one may not have reached it yet.
    lists: BTreeMap<usize, BTreeSet<usize>>,
    /// Peers that the list names: all that were ever there.
    listed: BTreeSet<usize>,
    /// Pairs that do not reach each other now.
    cut: BTreeSet<(usize, usize)>,
    /// Files on each disk.
    disks: BTreeMap<usize, BTreeSet<u64>>,
}

impl World {
    fn new(seed: u64) -> Self {
        let all: Vec<usize> = (0..PEERS).collect();
        Self {
            rng: Rng(seed),
            now: Duration::ZERO,
            living: settled(&all),
            lists: BTreeMap::new(),
            listed: all.into_iter().collect(),
            cut: BTreeSet::new(),
            disks: BTreeMap::new(),
        }
    }

    /// Something changes: a process ends or starts, a list changes, a link is cut or mended.
    fn disturb(&mut self) {
        let peer = self.rng.below(PEERS);
        match self.rng.below(5) {
            0 if 2 < self.living.len() => drop(self.living.remove(&peer)),
            0 | 1 => {
                self.listed.insert(peer);
                let (now, listed) = (self.now, self.listed.clone());
                self.living.entry(peer).or_insert_with(|| {
                    let mut membership = Membership::new(&url(peer));
                    membership.handle_listed(listed.into_iter().map(url), now).expect("it fits");
                    membership
                });
                self.announce();
            }
            2 if !self.living.contains_key(&peer) => {
                self.listed.remove(&peer);
                self.announce();
            }
            2 | 3 => _ = self.cut.insert((peer, self.rng.below(PEERS))),
            _ => self.cut.clear(),
        }
    }

    fn announce(&mut self) {
        for &peer in self.living.keys() {
            self.lists.insert(peer, self.listed.clone());
        }
    }

    /// Lets time pass: due probes go out and are answered or not, and some lists arrive.
    fn tick(&mut self) {
        self.now += TICK;
        let alive: BTreeSet<usize> = self.living.keys().copied().collect();
        for (&me, membership) in &mut self.living {
            if self.rng.below(10) == 0
                && let Some(list) = self.lists.remove(&me)
            {
                membership.handle_listed(list.into_iter().map(url), self.now).expect("it fits");
            }
            while let Some(asked) = membership.poll_probe(self.now, self.rng.next() as u32) {
                let peer = number(&asked);
                match alive.contains(&peer) && !self.cut.contains(&(me, peer)) {
                    true => membership.handle_answered(&asked),
                    false => membership.handle_failed(&asked),
                }
            }
        }
    }

    /// Waits until every process has the newest list and has found out who answers.
    fn settle(&mut self) {
        self.cut.clear();
        self.announce();
        let until = self.now + PROBE_INTERVAL * 2 * (FAILURES_UNTIL_SUSPECT + 1);
        while self.now < until || !self.lists.is_empty() {
            self.lists.retain(|peer, _| self.living.contains_key(peer));
            self.tick();
        }
    }

    /// A client asks for a file until it has it. Returns the peers that it was sent to.
    fn download(&mut self, number: u64) -> Vec<usize> {
        let mut sent_to = Vec::new();
        // The server that it first asked always lives, or it would ask another one.
        let living: Vec<usize> = self.living.keys().copied().collect();
        let asked = living[self.rng.below(living.len())];
        loop {
            let peer = owner(asked, &self.living[&asked], &file(number));
            sent_to.push(peer);
            // Whoever is asked for bytes answers itself: nobody sends the client on. It fills its
            // disk only with what is its own.
            if let Some(membership) = self.living.get(&peer) {
                if owner(peer, membership, &file(number)) == peer {
                    self.disks.entry(peer).or_default().insert(number);
                }
                return sent_to;
            }
            self.tick();
        }
    }
}

#[test]
fn views_agree_soon_after_the_last_change_and_every_file_has_one_owner() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        for step in 0..60 {
            world.disturb();
            (0..world.rng.below(30)).for_each(|_| world.tick());
            let number = (seed << 32) + step;
            let sent_to = world.download(number);
            let (last, gone) = sent_to.split_last().unwrap();
            assert!(world.living.contains_key(last), "seed {seed}");
            // A peer that is gone is advertised until it is suspect, and then no more.
            let ticks = (PROBE_INTERVAL.as_millis() / TICK.as_millis()) as u32;
            let ticks_max = 2 * ticks * FAILURES_UNTIL_SUSPECT * PEERS as u32;
            assert!(gone.len() < ticks_max as usize, "seed {seed}: {}", gone.len());
        }
        world.settle();
        for number in 0..200 {
            let owners: BTreeSet<usize> = world
                .living
                .iter()
                .map(|(&me, membership)| owner(me, membership, &file(number)))
                .collect();
            assert_eq!(owners.len(), 1, "seed {seed}: file {number} has {owners:?}");
            assert!(world.living.contains_key(owners.first().unwrap()), "seed {seed}");
        }
    }
}

#[test]
fn the_bytes_on_all_disks_are_one_copy_when_views_agree() {
    for seed in 0..10 {
        let mut world = World::new(seed);
        for number in 0..1_000 {
            // Several clients, which ask several servers.
            for _ in 0..3 {
                assert_eq!(world.download(number).len(), 1, "nobody is sent on");
            }
        }
        let copies: usize = world.disks.values().map(BTreeSet::len).sum();
        assert_eq!(copies, 1_000, "seed {seed}");
    }
}

#[test]
fn a_lost_peer_moves_its_share_and_nothing_else() {
    let all: Vec<usize> = (0..PEERS).collect();
    let before = settled(&all);
    let owners = |peers: &BTreeMap<usize, Membership>| -> Vec<usize> {
        let (&me, membership) = peers.first_key_value().unwrap();
        (0..FILES).map(|number| owner(me, membership, &file(number))).collect()
    };
    let owners_before = owners(&before);
    let share = FILES as f64 / PEERS as f64;
    for lost in 1..PEERS {
        let rest: Vec<usize> = all.iter().copied().filter(|&peer| peer != lost).collect();
        let owners_after = owners(&settled(&rest));
        let mut moved_to = BTreeMap::<usize, u32>::new();
        for (before, after) in owners_before.iter().zip(&owners_after) {
            if before == after {
                continue;
            }
            assert_eq!(*before, lost, "only files of the lost peer move");
            *moved_to.entry(*after).or_default() += 1;
        }
        let moved = f64::from(moved_to.values().sum::<u32>());
        assert!((0.75 * share..1.25 * share).contains(&moved), "{lost}: {moved} of {share}");
        assert!(PEERS - 3 <= moved_to.len(), "they go to all others: {moved_to:?}");
    }
}

/// Bytes that several peers hold and send, all disks and links being alike, are bounded by the peer
/// with the largest share.
#[test]
fn three_peers_hold_and_send_nearly_three_times_as_much_as_one() {
    let peers = settled(&[0, 1, 2]);
    let mut of_peer = BTreeMap::<usize, u64>::new();
    for number in 0..FILES {
        // From 1 MiB to 1 GiB, as many of each power of two.
        let bytes = 1u64 << (20 + Rng(!number).below(11));
        *of_peer.entry(owner(0, &peers[&0], &file(number))).or_default() += bytes;
    }
    let (total, largest) = (of_peer.values().sum::<u64>(), *of_peer.values().max().unwrap());
    let times = total as f64 / largest as f64;
    println!("three peers: {times:.2} times the bytes and the bandwidth of one");
    assert!((2.7..=3.0).contains(&times), "{times}");
}
