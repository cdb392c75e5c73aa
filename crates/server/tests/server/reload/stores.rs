//! Stores by pattern that appear, change and go while clients use them.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use busload_bucket::{Bucket, FaultProxy, Faults};
use busload_proto::v1::{GetChunkRequest, chunks_client::ChunksClient};
use tempfile::TempDir;
use tonic::transport::Endpoint;

use super::{Configured, StopOnDrop, WIRINGS, succeeded, thread};
use crate::support::{Server, eventually, fixtures};

const FIXTURES: [&str; 2] = ["real-classic", "real-archive-v3"];

/// Folder with the stores `org/0`, `org/1`.
struct Stores(TempDir);

impl Stores {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for (number, fixture) in FIXTURES.iter().enumerate() {
            fixtures::copy(fixture, &directory.path().join(format!("org/{number}")));
        }
        Self(directory)
    }

    /// Returns the section of a pattern.
    fn section(&self, pattern: &str, more: &str) -> String {
        let directory = self.0.path().display();
        format!(
            "[stores.\"{pattern}\"]\nurl = \"file://{directory}/{{name}}\"\ndisk = \
             \"64MiB\"\n{more}\n"
        )
    }

    /// Returns a key of each store, and the length of its chunk.
    fn keys() -> Vec<(String, String)> {
        let key = |(number, fixture): (usize, &&str)| {
            let chunk = fixtures::listed(fixture).remove(0);
            (format!("org/{number}:{}", chunk.address), chunk.bytes.to_string())
        };
        FIXTURES.iter().enumerate().map(key).collect()
    }
}

/// Returns the patterns that `/api/cache/stores` shows.
fn patterns(server: &Server) -> Vec<String> {
    let (_, body) = server.http("/api/cache/stores");
    let lists: serde_json::Value = serde_json::from_str(&body).unwrap();
    let lists = lists.as_array().unwrap();
    lists.iter().map(|list| list["pattern"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_pattern_appears_and_goes() {
    for wiring in WIRINGS {
        let (stores, configured) = (Stores::new(), Configured::new(""));
        let server = configured.start(&["--net-threads", wiring, "--http", "127.0.0.1:0"]);
        let mut client = server.client();
        let keys = Stores::keys();
        assert_eq!(client.text(&["SET", &keys[0].0, "one"]), "OK");
        assert_eq!(client.text(&["SET", "other", "one"]), "OK");
        configured.write(&stores.section("org/*", ""));
        let ended = configured.reload(&server);
        let line = ended.failed(1);
        assert!(
            line.contains("stores org/* are not added: 1 keys that begin with `org/*:`"),
            "{line}"
        );
        assert_eq!(client.text(&["GET", &keys[0].0]), "one");
        assert_eq!(client.text(&["DEL", &keys[0].0]), "1");
        // Of what clients watch and have queued only keys of the pattern are another table's now.
        let [mut moved, mut stays] = [server.client(), server.client()];
        assert_eq!(moved.text(&["WATCH", &keys[0].0]), "OK");
        assert_eq!(stays.text(&["WATCH", "other"]), "OK");
        assert_eq!(stays.text(&["MULTI"]), "OK");
        assert_eq!(stays.text(&["SET", "other", "two"]), "QUEUED");
        assert_eq!(succeeded(&configured.reload(&server)), "added stores org/*");
        assert_eq!(stays.text(&["EXEC"]), "OK");
        assert_eq!(moved.text(&["MULTI"]), "OK");
        assert_eq!(moved.text(&["EXEC"]), "nil");
        for (key, length) in &keys {
            assert_eq!(&client.text(&["STRLEN", key]), length);
        }
        // One that fits better takes over what it matches; both are served.
        let both = [stores.section("org/*", ""), stores.section("*/*", "")].concat();
        configured.write(&both);
        assert_eq!(succeeded(&configured.reload(&server)), "added stores */*");
        assert_eq!(patterns(&server), ["org/*", "*/*"]);
        configured.write(&stores.section("*/*", ""));
        assert_eq!(succeeded(&configured.reload(&server)), "removed stores org/*");
        for (key, length) in &keys {
            assert_eq!(&client.text(&["STRLEN", key]), length);
        }
        configured.write("");
        assert_eq!(succeeded(&configured.reload(&server)), "removed stores */*");
        assert_eq!(patterns(&server), [""; 0]);
        assert_eq!(client.text(&["SET", &keys[0].0, "two.."]), "OK", "it is of `default` now");
        assert_eq!(client.text(&["DEL", &keys[0].0]), "1");
        assert!(server.stop().success());
        // The log knows what there is.
        configured.write(&stores.section("*/*", ""));
        let server = configured.start(&["--net-threads", wiring]);
        assert_eq!(server.client().text(&["STRLEN", &keys[1].0]), keys[1].1);
        assert!(server.stop().success());
    }
}

#[test]
fn limits_of_stores_change_and_what_needs_other_stores_is_refused() {
    let (stores, keys) = (Stores::new(), Stores::keys());
    let configured = Configured::new(&stores.section("*/*", ""));
    let server = configured.start(&["--http", "127.0.0.1:0"]);
    let mut client = server.client();
    let open = || server.metric("busload_stores_open{pattern=\"*/*\"}");
    for (key, length) in &keys {
        assert_eq!(&client.text(&["STRLEN", key]), length);
    }
    assert_eq!(open(), 2.0);
    configured.write(&stores.section("*/*", "stores_max = 1\ntimeout = \"7s\"\npoll = \"9s\""));
    let ended = configured.reload(&server);
    let line = ended.failed(1);
    assert!(
        line.ends_with(
            "a restart is needed for stores */* (poll); changed stores */* (timeout, stores_max)"
        ),
        "{line}"
    );
    // The number of open stores is below the limit as soon as nobody reads them.
    eventually("one store is closed", || open() <= 1.0);
    for (key, length) in keys.iter().chain(&keys) {
        assert_eq!(&client.text(&["STRLEN", key]), length);
        assert_eq!(open(), 1.0);
    }
    let more = "index_memory = \"2MiB\"\nidle = \"100ms\"\nstore_disk_min = \"4MiB\"\n\
                store_disk_max = \"16MiB\"";
    configured.write(&stores.section("*/*", more));
    assert_eq!(
        succeeded(&configured.reload(&server)),
        "changed stores */* (timeout, stores_max, index_memory, idle, store_disk_min, \
         store_disk_max)"
    );
    for (key, length) in &keys {
        assert_eq!(&client.text(&["STRLEN", key]), length);
    }
    let larger = more.replace("4MiB", "40MiB").replace("16MiB", "80MiB");
    configured.write(&stores.section("*/*", &larger).replace("64MiB", "256MiB"));
    let ended = configured.reload(&server);
    let line = ended.failed(1);
    assert!(
        line.ends_with("a restart is needed for stores */* (disk, store_disk_min, store_disk_max)"),
        "{line}"
    );
    assert!(server.stop().success());
}

/// Number of reloads under load.
const RELOADS: usize = 8;

#[test]
fn no_request_fails_while_stores_change_and_others_appear_and_go_under_load() {
    let (stores, keys) = (Stores::new(), Stores::keys());
    let section = |number: usize| {
        let other = if number % 2 == 1 { stores.section("other-*/*", "") } else { String::new() };
        let limits =
            format!("queue_requests = {}\nstores_max = {}", 1_000 + number, 2 + number % 3);
        stores.section("org/*", &limits) + &other
    };
    let configured = Configured::new(&section(0));
    let server = configured.start(&[]);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            let (mut client, keys, stop) = (server.client(), &keys, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Acquire) {
                    for (key, length) in keys {
                        assert_eq!(&client.text(&["STRLEN", key]), length);
                    }
                }
            });
        }
        let _stopped = StopOnDrop(&stop);
        for number in 1..=RELOADS {
            configured.write(&section(number));
            let said = configured.reload(&server);
            let said = succeeded(&said);
            assert!(said.contains("changed stores org/* (queue_requests, stores_max)"), "{said}");
            let other = if number % 2 == 1 { "added" } else { "removed" };
            assert!(said.contains(&format!("{other} stores other-*/*")), "{said}");
        }
    });
    assert!(server.stop().success());
}

/// The call is in flight when the pattern goes: the store is open, and its bucket is slow.
#[test]
fn a_call_in_flight_ends_before_the_stores_of_its_pattern_close() {
    let root = tempfile::tempdir().unwrap();
    let bucket = Bucket::start(root.path()).unwrap();
    fixtures::copy(FIXTURES[0], &bucket.directory().join("org/0"));
    let slow = Faults { first_byte: Duration::from_millis(100), ..Faults::default() };
    let proxy = FaultProxy::start(bucket.address(), 1, slow).unwrap();
    let url = busload_bucket::url(proxy.address(), "{name}");
    let configured = Configured::new(&format!("[stores.\"org/*\"]\nurl = \"{url}\"\n"));
    let server = configured.start(&["--http", "127.0.0.1:0"]);
    let chunk = fixtures::listed(FIXTURES[0]).remove(0);
    let address = chunk.address.parse::<busload_chunks::ChunkAddress>().unwrap();
    let endpoint = format!("http://{}", server.address("http"));
    let call = || {
        let request = GetChunkRequest {
            store: "org/0".to_owned(),
            address: address.0.to_vec().into(),
            ..GetChunkRequest::default()
        };
        let endpoint = Endpoint::from_shared(endpoint.clone()).unwrap();
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let channel = endpoint.connect().await.unwrap();
            ChunksClient::new(channel).get_chunk(request).await
        })
    };
    thread::scope(|scope| {
        let in_flight = scope.spawn(call);
        eventually("the store is asked for", || !proxy.seen().is_empty());
        configured.write("");
        assert_eq!(succeeded(&configured.reload(&server)), "removed stores org/*");
        let found = in_flight.join().unwrap().unwrap().into_inner();
        assert_eq!(found.contents.len(), chunk.bytes);
    });
    assert!(call().unwrap_err().message().contains("org/0"), "nothing serves it any more");
    assert!(server.stop().success());
}
