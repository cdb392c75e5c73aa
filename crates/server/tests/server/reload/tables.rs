//! Tables that appear, change and go while clients use them and others.

use std::{
    net::TcpStream,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use busload_cluster::Cluster;

use super::{Configured, StopOnDrop, WIRINGS, succeeded};
use crate::support::{
    Client, Server,
    client::{command, text},
    fixtures,
};

/// A relation in the cluster that all tests share.
struct Relation {
    cluster: &'static Cluster,
    name: String,
}

impl Relation {
    fn new(test: &str) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let cluster = Cluster::shared().unwrap();
        let name = format!("reload_{test}_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        cluster.execute(&format!("CREATE TABLE {name} (k text PRIMARY KEY, v text)")).unwrap();
        Self { cluster, name }
    }

    /// Returns the settings of a table `name` over the relation.
    fn table(&self, name: &str, more: &str) -> String {
        format!(
            "[tables.{name}]\nkind = \"postgres\"\nurl = \"{}\"\nrelation = \"{}\"\nkey = \
             \"k\"\nwritable = true\ntimeout = \"60s\"\n{more}\n",
            self.cluster.url(),
            self.name
        )
    }
}

/// Returns the settings of a table of chunks over a store.
fn chunks(name: &str, store: &str, more: &str) -> String {
    let url = fixtures::url(store);
    format!("[tables.{name}]\nkind = \"chunks\"\nurl = \"{url}\"\n{more}\n")
}

fn memory(name: &str, more: &str) -> String {
    format!("[tables.{name}]\nkind = \"memory\"\n{more}\n")
}

/// Returns the names of the tables that `/api/stats` shows.
fn shown(server: &Server) -> Vec<String> {
    let (_, body) = server.http("/api/stats");
    let document: serde_json::Value = serde_json::from_str(&body).unwrap();
    let tables = document["tables"].as_array().unwrap();
    tables.iter().map(|table| table["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_table_of_each_kind_appears_and_goes() {
    for wiring in WIRINGS {
        let store = fixtures::sound().next().unwrap();
        let chunk = fixtures::listed(store).remove(0);
        let (first, relation) = (Relation::new("first"), Relation::new("later"));
        relation
            .cluster
            .execute(&format!("INSERT INTO {} VALUES ('a', '1')", relation.name))
            .unwrap();
        // With and without a table of Postgres at the start, which places it on other threads.
        for start in ["", &first.table("first", "")] {
            let configured = Configured::new(start);
            let server = configured.start(&["--net-threads", wiring, "--http", "127.0.0.1:0"]);
            let mut client = server.client();
            let length = ["STRLEN", &format!("db:{}", chunk.address)];
            assert_eq!(client.text(&length), "0");
            let tables = [memory("m", ""), relation.table("objects", ""), chunks("db", store, "")];
            configured.write(&[start, &tables.concat()].concat());
            let said = configured.reload(&server);
            assert_eq!(succeeded(&said), "added table m; added table objects; added table db");
            assert_eq!(client.text(&["SET", "m:1", "x"]), "OK");
            assert_eq!(client.text(&["GET", "objects:a"]), "1");
            assert_eq!(client.text(&["SET", "objects:b", "2"]), "OK");
            assert_eq!(client.text(&length), chunk.bytes.to_string());
            assert_eq!(client.text(&["SELECT", "5"]), "OK");
            assert_eq!(client.text(&["MGET", "m:1", "objects:b"]), "x 2");
            for name in ["m", "objects", "db"] {
                assert!(shown(&server).iter().any(|table| table == name), "{:?}", shown(&server));
            }
            assert_ne!(server.metric("busload_chunks_stored{table=\"db\"}"), 0.0);
            configured.write(start);
            let ended = configured.reload(&server);
            let line = ended.failed(1);
            assert!(line.contains("table m is not removed: it holds 1 keys"), "{line}");
            assert!(line.contains("removed table objects; removed table db"), "{line}");
            assert_eq!(client.text(&["DEL", "m:1"]), "1");
            assert_eq!(succeeded(&configured.reload(&server)), "removed table m");
            // Their keys are those of `default` now.
            assert_eq!(client.text(&["GET", "objects:a"]), "nil");
            assert_eq!(client.text(&["SET", length[1], "five."]), "OK");
            assert_eq!(client.text(&length), "5");
            let left = shown(&server);
            assert!(left.iter().all(|name| !["m", "objects", "db"].contains(&&**name)), "{left:?}");
            // Such a key keeps the table from coming back.
            configured.write(&[start, &tables.concat()].concat());
            let ended = configured.reload(&server);
            let line = ended.failed(1);
            assert!(line.contains("table db is not added: 1 keys that begin with `db:`"), "{line}");
            assert!(line.ends_with("added table m; added table objects"), "{line}");
            assert_eq!(client.text(&["GET", "objects:b"]), "2");
            assert!(server.stop().success());
            // A start takes the file as it is, when the key is gone.
            configured.write(&[start, &memory("m", ""), &relation.table("objects", "")].concat());
            let server = configured.start(&["--net-threads", wiring]);
            assert_eq!(server.client().text(&["GET", "objects:b"]), "2");
            assert!(server.stop().success());
        }
    }
}

#[test]
fn a_table_that_cannot_be_served_is_explained_and_the_others_stay() {
    let relation = Relation::new("wrong");
    let configured = Configured::new(&relation.table("objects", ""));
    let server = configured.start(&[]);
    // Its directory is that of another process.
    let taken = configured.path("taken");
    let store = fixtures::sound().next().unwrap();
    let other =
        Configured::new(&chunks("x", store, &format!("directory = {taken:?}\ndisk = \"64MiB\"")));
    let holder = other.start(&[]);
    let more = chunks("db", store, &format!("directory = {taken:?}\ndisk = \"64MiB\""));
    configured.write(&[relation.table("objects", "batch = 7"), more].concat());
    let ended = configured.reload(&server);
    let line = ended.failed(1);
    assert!(line.contains("table db is not added: ") && line.contains("taken"), "{line}");
    assert!(line.ends_with("changed table objects (batch)"), "{line}");
    assert!(holder.stop().success());
    assert_eq!(succeeded(&configured.reload(&server)), "added table db");
    // A relation that does not exist is an error of its requests, as at a start.
    configured.write(
        &relation.table("objects", "batch = 7").replace("relation = \"", "relation = \"no_"),
    );
    assert_eq!(
        succeeded(&configured.reload(&server)),
        "removed table db; changed table objects (relation)"
    );
    let mut client = server.client();
    let reply = client.text(&["GET", "objects:a"]);
    assert!(reply.starts_with("-ERR table objects: ") && reply.contains("no_"), "{reply}");
    configured.write(&relation.table("objects", "batch = 7"));
    assert_eq!(succeeded(&configured.reload(&server)), "changed table objects (relation)");
    assert_eq!(client.text(&["SET", "objects:a", "1"]), "OK");
    assert!(server.stop().success());
}

#[test]
fn the_store_of_a_chunk_table_needs_a_restart_and_how_it_is_served_does_not() {
    let store = fixtures::sound().next().unwrap();
    let chunk = fixtures::listed(store).remove(0);
    let configured = Configured::new(&chunks("db", store, ""));
    let server = configured.start(&[]);
    let key = format!("db:{}", chunk.address);
    let mut client = server.client();
    assert_eq!(client.text(&["STRLEN", &key]), chunk.bytes.to_string());
    configured.write(&chunks(
        "db",
        store,
        "timeout = \"7s\"\nmemory = \"32MiB\"\ncontents = \"stored\"",
    ));
    let ended = configured.reload(&server);
    let line = ended.failed(1);
    assert!(
        line.ends_with(
            "a restart is needed for table db (memory); changed table db (timeout, contents)"
        ),
        "{line}"
    );
    assert_ne!(client.text(&["STRLEN", &key]), chunk.bytes.to_string());
    configured.write(&chunks("db", store, ""));
    assert_eq!(succeeded(&configured.reload(&server)), "changed table db (timeout, contents)");
    assert_eq!(client.text(&["STRLEN", &key]), chunk.bytes.to_string());
    assert!(server.stop().success());
}

/// Keys that a connection under load writes and reads in one pipeline.
const KEYS: usize = 4;
/// Number of reloads under load.
const RELOADS: usize = 12;

/// Writes and reads tables of all kinds until told to stop; every reply must be that of the last
/// write before it.
fn load(mut client: Client<TcpStream>, id: usize, chunk: &fixtures::Listed, stop: &AtomicBool) {
    let chunk_key = format!("db:{}", chunk.address);
    for round in 0_u64.. {
        if stop.load(Ordering::Acquire) {
            return;
        }
        let value = format!("{id}-{round}");
        let (mut requests, mut expected) = (Vec::new(), Vec::new());
        for key in 0..KEYS {
            for table in ["objects", "m", "default"] {
                let key = format!("{table}:{id}:{key}");
                requests.extend(command(&["SET", &key, &value]));
                requests.extend(command(&["GET", &key]));
                expected.extend(["OK".to_owned(), value.clone()]);
            }
            requests.extend(command(&["STRLEN", &chunk_key]));
            expected.push(chunk.bytes.to_string());
        }
        client.send(&requests);
        for expected in expected {
            assert_eq!(text(&client.receive().unwrap()), expected);
        }
    }
}

#[test]
fn no_request_fails_while_tables_appear_change_and_go_under_load() {
    for wiring in WIRINGS {
        let store = fixtures::sound().next().unwrap();
        let chunk = fixtures::listed(store).remove(0);
        let (relation, other) = (Relation::new("loaded"), Relation::new("other"));
        let file = |number: usize| {
            let mut tables = vec![
                relation.table(
                    "objects",
                    &format!("batch = {}\nconnections = {}", 100 + number, 1 + number % 3),
                ),
                chunks("db", store, &format!("queue_requests = {}", 1_000 + number)),
                memory("m", ["sync = \"os\"", "sync = \"always\""][number % 2]),
            ];
            if number % 2 == 1 {
                tables.extend([
                    other.table("new_objects", ""),
                    chunks("new_db", store, ""),
                    memory("new_m", ""),
                ]);
            }
            tables.concat()
        };
        let configured = Configured::new(&file(0));
        let server = configured.start(&["--net-threads", wiring]);
        let (stop, ended) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            for id in 0..4 {
                let (client, chunk, stop, ended) = (server.client(), &chunk, &stop, &ended);
                scope.spawn(move || {
                    load(client, id, chunk, stop);
                    ended.fetch_add(1, Ordering::Relaxed);
                });
            }
            let stopped = StopOnDrop(&stop);
            for number in 1..=RELOADS {
                configured.write(&file(number));
                let said = configured.reload(&server);
                let said = succeeded(&said);
                assert!(said.contains("changed table objects (connections, batch)"), "{said}");
                assert!(said.contains("changed table db (queue_requests)"), "{said}");
                let mut client = server.client();
                if number % 2 == 1 {
                    assert!(said.contains("added table new_objects; added table new_db"), "{said}");
                    assert_eq!(client.text(&["SET", "new_objects:a", "1"]), "OK");
                    assert_eq!(client.text(&["GET", "new_objects:a"]), "1");
                    assert_eq!(client.text(&["SET", "new_m:a", "1"]), "OK");
                    assert_eq!(client.text(&["DEL", "new_m:a"]), "1");
                    let key = format!("new_db:{}", chunk.address);
                    assert_eq!(client.text(&["EXISTS", &key]), "1");
                } else {
                    assert!(said.contains("removed table new_m"), "{said}");
                    assert_eq!(client.text(&["GET", "new_objects:a"]), "nil");
                }
            }
            drop(stopped);
        });
        assert_eq!(ended.into_inner(), 4, "each connection had every reply");
        assert!(server.stop().success());
    }
}
