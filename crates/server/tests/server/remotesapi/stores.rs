//! Stores by pattern: one configured line serves every store below a prefix, to all clients.

use std::fs;

use busload_chunks::{ChunkAddress, write::manifest};
use busload_proto::v1::{GetChunkRequest, chunks_client::ChunksClient};
use tonic::Code;

use super::{
    client::{Address, Way},
    eventually,
    fixture::{Fixture, Served, World, Written, classic},
};
use crate::support::{client::text, fixtures, on_free_ports, run};

/// A bucket with the stores `dolt/org/0`, `dolt/org/1`, ...
pub struct Host {
    pub world: World,
    pub stores: Vec<Written>,
}

impl Host {
    pub fn new(count: u64) -> Self {
        let world = World::empty();
        let stores: Vec<_> = (0..count).map(|seed| classic(seed, [900, 70, 3_000])).collect();
        let host = Self { world, stores };
        (0..host.stores.len()).for_each(|number| host.put(number));
        host
    }

    fn put(&self, number: usize) {
        let file = &self.stores[number];
        let put = |name: &str, bytes: &[u8]| {
            self.world.bucket.put(&format!("dolt/org/{number}/{name}"), bytes).unwrap();
        };
        put(&file.spec.id.to_string(), &file.bytes);
        let root = ChunkAddress(file.chunks[0].0);
        put("manifest", manifest(root, &[file.spec]).as_bytes());
    }

    pub fn serve(&self, settings: &str) -> Served {
        self.serve_with(settings, &[])
    }

    /// Starts a server with further arguments.
    pub fn serve_with(&self, settings: &str, further: &[&str]) -> Served {
        let url = busload_bucket::url(self.world.proxy.address(), "dolt/{name}");
        // No poll adds to the requests that are counted, and no slow machine ends a request.
        let settings = format!("&poll=10m&timeout=1m{settings}");
        let stores = format!("*/*={url}{settings}");
        Served::start_with(&[], &[&["--stores", &stores], further].concat())
    }
}

fn key(number: usize, address: Address) -> String {
    format!("org/{number}:{}", ChunkAddress(address))
}

#[test]
fn redis_clients_read_stores_that_no_configuration_names() {
    let host = Host::new(20);
    let served = host.serve("");
    let mut client = served.server.client();
    for (number, store) in host.stores.iter().enumerate() {
        for (address, contents) in &store.chunks {
            let key = key(number, *address);
            let reply = client.call(&["GET", &key]);
            assert_eq!(reply, busload_resp::reply::Reply::Bulk(contents.clone()), "{key}");
            assert_eq!(text(&client.call(&["STRLEN", &key])), contents.len().to_string());
        }
    }
    // Keys of several stores in one command, one of them missing.
    let keys: Vec<_> = (0..20).map(|number| key(number, host.stores[number].chunks[1].0)).collect();
    let all: Vec<&str> = ["EXISTS"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    assert_eq!(text(&client.call(&all)), "20");
    let other = key(0, host.stores[1].chunks[0].0);
    assert_eq!(text(&client.call(&["EXISTS", &other])), "0", "stores are not mixed up");
    let reply = text(&client.call(&["GET", &key(99, host.stores[0].chunks[0].0)]));
    assert!(reply.contains("table */*: there is no store org/99"), "{reply}");
    let reply = text(&client.call(&["GET", "org/0:nonsense"]));
    assert!(reply.contains("`nonsense` is no address of a chunk"), "{reply}");
    let reply = text(&client.call(&["SET", "org/0:x", "y"]));
    assert!(reply.contains("not supported on a chunks table"), "{reply}");
    // What does not match belongs to `default`.
    for key in ["a/b/c:x", "../etc:x", "org:x", "plain"] {
        assert_eq!(text(&client.call(&["SET", key, "y"])), "OK", "{key}");
    }
    eventually("the store that does not exist is forgotten", || {
        text(&client.call(&["INFO", "tables"])).contains("open=20")
    });
    assert!(served.server.stop().success());
}

#[test]
fn dolts_clients_and_grpc_open_stores_by_their_paths() {
    let host = Host::new(3);
    let served = host.serve("");
    let client = &served.client;
    for (number, store) in host.stores.iter().enumerate() {
        let path = format!("org/{number}");
        assert_eq!(client.root(&path).unwrap(), store.chunks[0].0);
        let list = client.list(&path).unwrap();
        let [file] = &list.table_file_info[..] else { panic!("{list:?}") };
        let base = client.base();
        assert!(file.url.starts_with(&format!("{base}/dolt/v1/{path}/files/")), "{}", file.url);
        let bytes = client.file(file.url.strip_prefix(&base).unwrap());
        assert_eq!(bytes.as_deref(), Some(&store.bytes[..]));
        let addresses: Vec<Address> = store.chunks.iter().map(|(address, _)| *address).collect();
        let locations = client.found(&path, Way::Stream, &addresses);
        let mut downloads = client.downloads();
        for (location, (_, contents)) in locations.iter().zip(&store.chunks) {
            let stored = downloads.chunk(location);
            let read = super::client::decode(&stored, None).unwrap_or(stored);
            assert_eq!(&read, contents);
        }
        let request = GetChunkRequest {
            store: path,
            address: addresses[1].to_vec().into(),
            ..GetChunkRequest::default()
        };
        let found = client.wait(async {
            let endpoint = tonic::transport::Endpoint::from_shared(base.clone()).unwrap();
            let mut grpc = ChunksClient::new(endpoint.connect().await.unwrap());
            grpc.get_chunk(request).await.unwrap().into_inner()
        });
        assert_eq!(found.contents, store.chunks[1].1);
    }
    // Of each store a file, three chunks by their ranges, and one by gRPC.
    let metric = |name: &str| {
        served.server.metric(&format!("busload_stores_{name}_total{{pattern=\"*/*\"}}"))
    };
    assert_eq!(["downloads", "reads", "direct_requests"].map(metric), [12.0, 3.0, 15.0]);
    for path in ["org/99", "other/0"] {
        let missing = client.root(path).unwrap_err();
        assert_eq!(missing.code(), Code::NotFound, "{missing:?}");
        assert!(missing.message().contains(&format!("no store {path}")), "{missing:?}");
    }
    let unknown = client.root("no/such/path").unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound, "{unknown:?}");
    assert!(served.server.stop().success());
}

#[test]
fn a_scan_of_names_costs_little_and_nothing_when_it_is_repeated() {
    let host = Host::new(1);
    let served = host.serve("");
    let mut client = served.server.client();
    let address = host.stores[0].chunks[0].0;
    let names: Vec<_> = (100..150).collect();
    let ask = |client: &mut crate::support::Client<_>, number: usize| {
        let reply = text(&client.call(&["GET", &key(number, address)]));
        assert!(reply.contains("there is no store"), "{reply}");
    };
    names.iter().for_each(|number| ask(&mut client, *number));
    let requests = || host.world.proxy.seen().len();
    // The first few are listed, too, because opening them would be sooner done that way.
    let few = names.len() + 16;
    assert!(requests() <= few, "{}", requests());
    names.iter().for_each(|number| ask(&mut client, *number));
    let again = requests();
    // The machine may have taken longer than the names are remembered.
    assert!(again <= 2 * few, "{again}");
    assert!(served.server.stop().success());
}

#[test]
fn the_first_chunk_of_an_unopened_store_takes_eight_requests() {
    let host = Host::new(2);
    let served = host.serve("&disk=0");
    let mut client = served.server.client();
    // Connections to the bucket are there after the first store.
    for number in 0..2 {
        let before = host.world.proxy.seen().len();
        let (address, contents) = &host.stores[number].chunks[0];
        let reply = client.call(&["GET", &key(number, *address)]);
        assert_eq!(reply, busload_resp::reply::Reply::Bulk(contents.clone()));
        let seen = host.world.proxy.seen();
        let paths: Vec<String> = seen[before..].iter().map(|seen| seen.path.clone()).collect();
        // Manifest and listing; manifest again, old generation twice, index twice; the chunk.
        assert_eq!(paths.len(), 8, "{paths:?}");
        assert!(paths.last().unwrap().contains(&host.stores[number].spec.id.to_string()));
    }
    assert!(served.server.stop().success());
}

#[test]
fn a_store_that_appears_is_served_and_a_hint_refreshes_it() {
    let mut host = Host::new(1);
    let served = host.serve("");
    let client = &served.client;
    assert_eq!(client.root("org/1").unwrap_err().code(), Code::NotFound);
    host.stores.push(classic(77, [100, 200]));
    host.put(1);
    eventually("the store is found", || client.root("org/1").is_ok());
    let refresh = || client.http().post("/api/stores/org%2F1/refresh", "", "");
    // A name that led nowhere a moment ago may still be remembered.
    eventually("the store is refreshed", || refresh().head.status == 200);
    let answer = refresh();
    assert!(answer.text().contains(r#""table":"org/1""#), "{}", answer.text());
    let answer = client.http().post("/api/stores/org%2F2/refresh", "", "");
    assert_eq!(answer.head.status, 503, "{}", answer.text());
    assert!(answer.text().contains("there is no store org/2"), "{}", answer.text());
    let answer = client.http().post("/api/stores/a%2Fb%2Fc/refresh", "", "");
    assert_eq!(answer.head.status, 404, "{}", answer.text());
    assert!(served.server.stop().success());
}

#[test]
fn stores_that_dolt_wrote_are_served_from_folders() {
    let directory = tempfile::tempdir().unwrap();
    let all = [Fixture::new("real-classic"), Fixture::new("real-archive-v3")];
    for fixture in &all {
        let to = directory.path().join("dolt").join(fixture.name);
        fixtures::copy_directory(&fixture.directory, &to);
    }
    let template = format!("real-*=file://{}/dolt/{{1}}?disk=0", directory.path().display());
    let served = Served::start_with(&[], &["--stores", &template]);
    for fixture in &all {
        assert_eq!(served.client.root(fixture.name).unwrap(), fixture.root());
        assert_eq!(served.client.absent(fixture.name, &fixture.addresses()).unwrap(), [0; 0]);
    }
    assert_eq!(served.client.root("real-other").unwrap_err().code(), Code::NotFound);
    assert!(served.server.stop().success());
    // A pattern hides keys of `default` no more than a table does.
    let mut served = Served::start_with(&[], &[]);
    let mut client = served.server.client();
    assert_eq!(text(&client.call(&["SET", "real-x:a", "1"])), "OK");
    drop(client);
    let data = served.data.path().to_owned();
    served.server.signal(rustix::process::Signal::TERM);
    assert!(served.server.wait().success());
    let data = data.to_str().unwrap();
    let arguments = on_free_ports(&["serve", "--data", data, "--stores", &template]);
    let ended = run(&arguments);
    let said = ended.failed(2);
    assert!(said.contains("1 keys that begin with `real-*:`"), "{said}");
    fs::remove_dir_all(directory.path().join("dolt")).unwrap();
}

/// Scans many stores after the first one, as often as is enough, on a disk that does not hold all.
/// Returns the bytes on disk of each store, by its number.
fn bytes_after_scans(floor: &str, mut is_enough: impl FnMut(&[u64]) -> bool) -> Vec<u64> {
    let mut host = Host::new(0);
    for (number, chunks) in [16, 32, 32, 32, 80].into_iter().enumerate() {
        host.stores.push(classic(number as u64, vec![256 << 10; chunks]));
        host.put(number);
    }
    let served =
        host.serve(&format!("&disk=32MiB&disk_free=0&store_disk_min={floor}&store_disk_max=16MiB"));
    let bytes = || -> Vec<u64> {
        let (_, body) = served.server.http("/api/cache/stores");
        let lists: serde_json::Value = serde_json::from_str(&body).unwrap();
        let stores = lists[0]["stores"].as_array().unwrap();
        let of = |number: usize| {
            let name = format!("org/{number}");
            let store = stores.iter().find(|store| store["name"] == *name);
            store.map_or(0, |store| store["bytes"].as_u64().unwrap())
        };
        (0..host.stores.len()).map(of).collect()
    };
    let mut client = served.server.client();
    let mut scan = |number: usize| {
        for (address, contents) in &host.stores[number].chunks {
            let reply = client.call(&["GET", &key(number, *address)]);
            assert_eq!(reply, busload_resp::reply::Reply::Bulk(contents.clone()));
        }
    };
    eventually("the first store is on disk", || {
        scan(0);
        host.stores[0].bytes.len() as u64 <= bytes()[0]
    });
    let mut found = Vec::new();
    eventually("the disk is full", || {
        (1..host.stores.len()).for_each(&mut scan);
        found = bytes();
        28 << 20 < found.iter().sum::<u64>() && is_enough(&found)
    });
    assert!(served.server.stop().success());
    found
}

#[test]
fn a_store_with_a_floor_keeps_its_files_while_others_are_scanned_below_their_cap() {
    let (mut rounds, mut scanned) = (0, 0);
    let without = bytes_after_scans("0", |bytes| {
        rounds += 1;
        bytes[0] < 4 << 20
    });
    let with = bytes_after_scans("5MiB", |_| {
        scanned += 1;
        rounds + 2 <= scanned
    });
    for bytes in [&without, &with] {
        assert!(bytes.iter().sum::<u64>() <= 32 << 20, "{bytes:?}");
        // Indexes do not count; those of these few chunks take two blocks each.
        assert!(bytes.iter().all(|bytes| *bytes <= (16 << 20) + (64 << 10)), "{bytes:?}");
        assert!(bytes[1..].iter().any(|bytes| *bytes < 8 << 20), "not all fit: {bytes:?}");
    }
    // Scanned as often as evicts the first store where it has no floor, and twice more.
    assert!(4 << 20 < with[0], "{with:?}");
}
