//! Kills the server again and again while it fills its cache from a slow object store. Later reads
//! must be right, and the server must start warm.

use std::{path::Path, time::Duration};

use crate::support::{Client, Server, TIMEOUT, client::command, eventually, mix};
use busload_bucket::{Bucket, FaultProxy, Faults, url};
use busload_chunks::{
    ChunkAddress, FileSpec,
    write::{ClassicWriter, manifest},
};
use busload_resp::reply::Reply;
use tempfile::{TempDir, tempdir};

const FILES: u64 = 4;
const CHUNKS_PER_FILE: u64 = 300;
const ROUNDS: u64 = 6;

/// Chunks in a bucket, and a directory for the server's cache.
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

    /// Returns a client once the server has reached the store.
    fn open(&self, server: &Server) -> Resp {
        let mut client = server.client();
        wait_until_open(&mut client, &self.addresses[0]);
        client
    }

    /// Reads everything repeatedly for `at_least`, and until all of it comes from the disk.
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

    /// Reads everything repeatedly until all files are on disk. Reads may need nothing from the
    /// store while a fill, which a stop would cancel, is still in flight.
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

    /// Kills a server that has read everything, reads everything through the next one, and returns
    /// how many bytes that one fetched.
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

    /// Returns the bytes of table files requested from the store since [`FaultProxy::forget`].
    fn fetched(&self) -> u64 {
        let seen = self.proxy.seen();
        seen.iter().filter(|seen| seen.range.is_some()).map(|seen| seen.bytes).sum()
    }
}

/// Returns 4 to 12 KiB that compress by about half.
fn contents(file: u64, index: u64) -> Vec<u8> {
    let start = mix(file << 32 | index);
    let words = 512 + start % 1024;
    (0..words).flat_map(|word| (mix(start ^ word) & 0xffff_ffff).to_le_bytes()).collect()
}

type Resp = Client<std::net::TcpStream>;

/// Sends all requests, then verifies the contents of each answer against the address.
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

/// Waits until the store has been reached; until then the replies are errors.
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
    // The journal records new blocks a moment after they reach the disk. A server that is killed
    // before that fetches them again.
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

/// No file of a cache is needed: the server fills an emptied directory again.
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
