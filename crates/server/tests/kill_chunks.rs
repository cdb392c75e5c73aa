//! The process killed again and again while it fills its cache from a slow object store: what it
//! reads afterwards is right, and it starts warm.

#![allow(clippy::unwrap_used, reason = "in tests a panic is the message")]

mod support;

use std::{path::Path, time::Duration};

use busload_bucket::{Bucket, FaultProxy, Faults, url};
use busload_chunks::{
    ChunkAddress, FileSpec,
    write::{ClassicWriter, manifest},
};
use busload_resp::reply::Reply;
use support::{Client, Server, TIMEOUT, client::command, eventually};
use tempfile::{TempDir, tempdir};

const FILES: u64 = 4;
const CHUNKS_PER_FILE: u64 = 300;
const ROUNDS: u64 = 6;

/// Chunks in a bucket, and where a server may keep them.
struct World {
    _root: TempDir,
    data: TempDir,
    bucket: Bucket,
    proxy: FaultProxy,
    addresses: Vec<ChunkAddress>,
    bytes: u64,
}

impl World {
    fn new() -> Self {
        let root = tempdir().unwrap();
        let bucket = Bucket::start(root.path()).unwrap();
        let proxy = FaultProxy::start(bucket.address(), 1, Faults::default()).unwrap();
        let mut world = Self {
            _root: root,
            data: tempdir().unwrap(),
            bucket,
            proxy,
            addresses: Vec::new(),
            bytes: 0,
        };
        let files: Vec<_> = (0..FILES).map(|file| world.put_file(file)).collect();
        let manifest = manifest(world.addresses[0], &files);
        world.bucket.put("db/manifest", manifest.as_bytes()).unwrap();
        world
    }

    fn put_file(&mut self, file: u64) -> FileSpec {
        let mut writer = ClassicWriter::new(Vec::new());
        for index in 0..CHUNKS_PER_FILE {
            self.addresses.push(writer.push(&contents(file, index)).unwrap());
        }
        let (spec, bytes) = writer.finish().unwrap();
        self.bytes += bytes.len() as u64;
        self.bucket.put(&format!("db/{}", spec.id), &bytes).unwrap();
        spec
    }

    fn serve(&self) -> Server {
        self.serve_from(self.data.path())
    }

    fn serve_from(&self, data: &Path) -> Server {
        let table = format!("db=chunks+{}", url(self.proxy.address(), "db"));
        Server::start(data, &["--table", &table])
    }

    fn address(&self, draw: u64) -> &ChunkAddress {
        &self.addresses[usize::try_from(mix(draw) % self.addresses.len() as u64).unwrap()]
    }

    /// A client of a server that has reached the store.
    fn open(&self, server: &Server) -> Resp {
        let mut client = server.client();
        wait_until_open(&mut client, &self.addresses[0]);
        client
    }

    /// Reads everything again and again: until it all comes from the disk, and for so long at
    /// least.
    fn read_until_nothing_is_fetched(&self, client: &mut Resp, at_least: Duration) {
        let started = support_now();
        loop {
            self.proxy.forget();
            read_right(client, &self.addresses);
            if self.fetched() == 0 && at_least <= started.elapsed() {
                break;
            }
            assert!(started.elapsed() < TIMEOUT, "everything comes to disk");
        }
    }

    /// Reads everything again and again until all files are on disk. Reads may need nothing of the
    /// store while a fill is still under way, which a stop gives up.
    fn read_until_on_disk(&self, server: &Server, client: &mut Resp) {
        eventually("everything comes to disk", || {
            read_right(client, &self.addresses);
            let (_, body) = server.http("/api/cache");
            let caches: serde_json::Value = serde_json::from_str(&body).unwrap();
            let objects = caches[0]["objects"].as_array().unwrap();
            let present: u64 =
                objects.iter().map(|object| object["present"].as_u64().unwrap()).sum();
            self.bytes <= present
        });
    }

    /// Bytes that are fetched by one who reads everything, after one who had everything was killed.
    fn fetched_after_a_kill(&self, up: Duration) -> u64 {
        let server = self.serve();
        self.read_until_nothing_is_fetched(&mut self.open(&server), up);
        server.kill();
        self.proxy.forget();
        let server = self.serve();
        read_right(&mut self.open(&server), &self.addresses);
        server.kill();
        self.fetched()
    }

    /// Bytes of table files that were asked of the store since [`FaultProxy::forget`].
    fn fetched(&self) -> u64 {
        let seen = self.proxy.seen();
        seen.iter().filter(|seen| seen.range.is_some()).map(|seen| seen.bytes).sum()
    }
}

/// Compresses about 2:1; 4 to 12 KiB.
fn contents(file: u64, index: u64) -> Vec<u8> {
    let start = mix(file << 32 | index);
    let words = 512 + start % 1024;
    (0..words).flat_map(|word| (mix(start ^ word) & 0xffff_ffff).to_le_bytes()).collect()
}

/// SplitMix64.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

type Resp = Client<std::net::TcpStream>;

/// Sends all, then checks each answer: contents and address agree.
#[track_caller]
fn read_right<'a>(client: &mut Resp, addresses: impl IntoIterator<Item = &'a ChunkAddress>) {
    let addresses: Vec<_> = addresses.into_iter().collect();
    for address in &addresses {
        client.send(&command(&["GET", &format!("db:{address}")]));
    }
    for address in addresses {
        match client.receive().unwrap() {
            Reply::Bulk(bytes) => assert_eq!(ChunkAddress::of(&bytes), *address, "a wrong chunk"),
            other => panic!("{address}: {other:?}"),
        }
    }
}

/// A store that was not reached yet is an error, which passes.
fn wait_until_open(client: &mut Resp, address: &ChunkAddress) {
    let get = format!("db:{address}");
    eventually("the store is opened", || !matches!(client.call(&["GET", &get]), Reply::Error(_)));
}

#[allow(clippy::disallowed_methods, reason = "timeout of tests is real")]
fn support_now() -> std::time::Instant {
    std::time::Instant::now()
}

#[test]
fn killed_while_it_fills_it_reads_right_and_starts_warm() {
    let world = World::new();
    let slow = Faults {
        first_byte: Duration::from_millis(5),
        jitter: Duration::from_millis(2),
        bandwidth: 1_500_000,
        line: 0,
        rules: Vec::new(),
    };
    for round in 0..ROUNDS {
        world.proxy.set(slow.clone());
        let server = world.serve();
        let mut client = server.client();
        wait_until_open(&mut client, world.address(round));
        for turn in 0..mix(round) % 12 {
            let draws = (0..16).map(|draw| round * 1000 + turn * 100 + draw);
            read_right(&mut client, draws.map(|draw| world.address(draw)));
        }
        server.kill();
    }

    world.proxy.set(Faults::default());
    // What comes to disk is written down a moment later, however quick the reads were: killed
    // before that, it is asked for again.
    let mut up = Duration::from_millis(100);
    while world.bytes / 4 < world.fetched_after_a_kill(up) {
        up *= 2;
        assert!(up < TIMEOUT, "what came to disk is known after a kill");
    }
}

#[test]
fn stopped_in_order_it_fetches_nothing_again() {
    let world = World::new();
    let server = world.serve();
    let mut client = world.open(&server);
    world.read_until_nothing_is_fetched(&mut client, Duration::ZERO);
    world.read_until_on_disk(&server, &mut client);
    assert_eq!(server.stop().code(), Some(0));

    world.proxy.forget();
    let server = world.serve();
    read_right(&mut world.open(&server), &world.addresses);
    assert_eq!(world.fetched(), 0, "{:?}", world.proxy.seen());
    server.stop();
}

/// Nothing of a cache is needed: a directory that was emptied is filled again.
#[test]
fn a_cache_deleted_between_two_starts_is_filled_again() {
    let world = World::new();
    let server = world.serve();
    read_right(&mut world.open(&server), &world.addresses);
    server.kill();
    std::fs::remove_dir_all(world.data.path().join("cache")).unwrap();
    let server = world.serve();
    read_right(&mut world.open(&server), &world.addresses);
    server.stop();
}
