//! Stores that hang, refuse connections, go away and come back, and service meanwhile.

use std::{
    net::{SocketAddr, TcpListener},
    time::Duration,
};

use busload_bucket::{Bucket, FaultProxy, Faults};
use busload_resp::reply::Reply;

use super::{Served, away, fixtures};
use crate::support::{
    client::{command, text},
    eventually,
};

const UNKNOWN: &str = "00000000000000000000000000000000";

fn table_at(address: SocketAddr, query: &str) -> String {
    format!("db=chunks+{}&{query}", busload_bucket::url(address, "p"))
}

/// Returns the first reply that is no error: on a slow machine any request may time out.
#[track_caller]
fn answered(served: &mut Served, line: &str) -> String {
    let mut reply = String::new();
    eventually("the store is served", || {
        reply = served.run(line);
        !reply.starts_with('-')
    });
    reply
}

/// Returns a listener whose connections the system accepts and nobody answers.
fn silent() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

#[test]
fn memory_tables_are_served_beside_a_store_that_hangs() {
    let listener = silent();
    let table = table_at(listener.local_addr().unwrap(), "timeout=1s");
    for threads in ["0", "1"] {
        let mut served = Served::start(&[&table], &["--net-threads", threads]);
        let mut hanging = served.server.client();
        hanging.send(&command(&["GET", &format!("db:{UNKNOWN}")]));
        for index in 0..1000 {
            let value = index.to_string();
            assert_eq!(served.client.text(&["SET", "k", &value]), "OK");
            assert_eq!(served.client.text(&["GET", "k"]), value);
        }
        let reply = text(&hanging.receive().unwrap());
        assert!(reply.starts_with("-ERR table db: "), "an error, in time: {reply}");
        let (status, _) = served.server.http("/readyz");
        assert!(status.contains("200"), "{status}");
        for question in ["EXISTS", "STRLEN", "TYPE", "GET"] {
            let reply = served.run(&format!("{question} db:{UNKNOWN}"));
            assert!(reply.starts_with("-ERR table db: "), "{question}: {reply}");
        }
        assert!(served.server.stop().success());
    }
}

#[test]
fn a_server_ends_in_order_while_reads_hang() {
    let listener = silent();
    // A timeout longer than any shutdown may take.
    let table = table_at(listener.local_addr().unwrap(), "timeout=10m");
    for threads in ["0", "1"] {
        let mut served = Served::start(&[&table], &["--net-threads", threads]);
        assert_eq!(served.run("SET k v"), "OK");
        let keys: Vec<String> = (0..100).map(|index| format!("db:{index:032}")).collect();
        for key in &keys {
            served.client.send(&command(&["GET", key]));
        }
        eventually("all wait", || {
            served.server.metric("busload_queue_waiting{table=\"db\"}") == 100.0
        });
        let data = served.data;
        assert!(served.server.stop().success());
        let mut again = Served::start_in(data, &[&table], &[]);
        assert_eq!(again.run("GET k"), "v");
    }
}

#[test]
fn a_store_that_refuses_connections_is_an_error_and_no_reason_not_to_start() {
    let (_held, address) = away();
    let table = table_at(address, "timeout=2s&poll=50ms");
    let mut served = Served::start(&[&table], &[]);
    let reply = served.run(&format!("GET db:{UNKNOWN}"));
    assert!(reply.starts_with("-ERR table db: "), "{reply}");
    let info = served.run("INFO tables");
    let line = info.lines().find(|line| line.starts_with("table_db:")).unwrap();
    assert!(line.contains("kind=chunks,") && !line.contains("state=open,"), "{line}");
}

#[test]
fn a_store_that_comes_back_is_served_without_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let bucket = Bucket::start(directory.path()).unwrap();
    fixtures::copy("real-classic", &bucket.directory().join("p"));
    let proxy = FaultProxy::start(bucket.address(), 1, Faults::default()).unwrap();
    proxy.go_away();
    let table = table_at(proxy.address(), "timeout=1s&poll=50ms");
    let mut served = Served::start(&[&table], &[]);
    let chunks = fixtures::listed("real-classic");
    let get = format!("STRLEN db:{}", chunks[0].address);
    let reply = served.run(&get);
    assert!(reply.starts_with("-ERR table db: "), "{reply}");
    proxy.come_back();
    // The delay depends on `poll` and on the pauses between attempts.
    assert_eq!(answered(&mut served, &get), chunks[0].bytes.to_string());
    // Chunks on disk are served while the store is away. For unknown addresses the reply is then
    // an error, not nil.
    for listed in &chunks {
        let length = answered(&mut served, &format!("STRLEN db:{}", listed.address));
        assert_eq!(length, listed.bytes.to_string());
    }
    let local = |served: &Served| served.server.metric("busload_chunks_disk_bytes{table=\"db\"}");
    eventually("all is on disk", || 300_000.0 < local(&served));
    proxy.go_away();
    let reply = served.run(&format!("GET db:{UNKNOWN}"));
    assert!(reply.starts_with("-ERR table db: "), "{reply}");
    proxy.come_back();
    assert_eq!(answered(&mut served, &format!("GET db:{UNKNOWN}")), "nil");
}

#[test]
fn a_store_with_a_journal_is_refused_with_its_reason() {
    let mut served = Served::start(&[&fixtures::table("db", "real-journal", "poll=50ms")], &[]);
    for _ in 0..3 {
        let reply = served.run(&format!("GET db:{UNKNOWN}"));
        assert!(reply.starts_with("-ERR table db: ") && reply.contains("journal"), "{reply}");
    }
    let info = served.run("INFO tables");
    assert!(info.contains("state=failed") && info.contains("journal"), "{info}");
}

#[test]
fn more_requests_than_may_wait_are_refused_at_once() {
    let listener = silent();
    let table = table_at(listener.local_addr().unwrap(), "timeout=3s&queue_requests=5");
    let mut served = Served::start(&[&table], &[]);
    // Sent at once: those that wait do so for the table's timeout only.
    let requests: Vec<_> =
        (0..8).map(|index| command(&["GET", &format!("db:{index:032}")])).collect();
    served.client.send(&requests.concat());
    let replies: Vec<String> = (0..8).map(|_| text(&served.client.receive().unwrap())).collect();
    let full = "-ERR table db: too many requests are waiting, try again later";
    assert_eq!(replies.iter().filter(|reply| *reply == full).count(), 3, "{replies:?}");
    assert_eq!(served.server.metric("busload_queue_refused_total{table=\"db\"}"), 3.0);
    // The queue has room again.
    assert_ne!(served.run(&format!("GET db:{UNKNOWN}")), full);
}

#[test]
fn clients_that_go_away_leave_no_request_behind() {
    let listener = silent();
    let table = table_at(listener.local_addr().unwrap(), "timeout=10m");
    for threads in ["0", "1"] {
        let served = Served::start(&[&table], &["--net-threads", threads]);
        let waiting = || served.server.metric("busload_queue_waiting{table=\"db\"}");
        let in_flight = || served.server.metric("busload_queue_batches_in_flight{table=\"db\"}");
        let mut leaving = served.server.client();
        let staying = &mut served.server.client();
        staying.send(&command(&["GET", &format!("db:{UNKNOWN}")]));
        // A batch that both clients wait for would go on.
        eventually("one waits, and its batch was sent", || waiting() == 1.0 && in_flight() == 1.0);
        for index in 0..50 {
            leaving.send(&command(&["GET", &format!("db:{index:032}")]));
            leaving.send(&command(&["EXISTS", &format!("db:{index:032}")]));
            leaving.send(&command(&["STRLEN", &format!("db:{index:032}")]));
        }
        eventually("all wait", || waiting() == 151.0);
        // Resets the connection, so that nobody waits for its requests.
        rustix::net::sockopt::set_socket_linger(&leaving.stream, Some(Duration::ZERO)).unwrap();
        drop(leaving);
        eventually("one waits again", || waiting() == 1.0);
        eventually("the others' batches were dropped", || in_flight() == 1.0);
    }
}

#[test]
fn in_one_command_over_a_store_and_memory_the_error_stands_in_its_place() {
    let listener = silent();
    let table = table_at(listener.local_addr().unwrap(), "timeout=1s");
    let mut served = Served::start(&[&table], &[]);
    assert_eq!(served.run("SET k v"), "OK");
    let reply = served.client.call(&["MGET", "k", &format!("db:{UNKNOWN}")]);
    let Reply::Array(replies) = reply else { panic!("{reply:?}") };
    assert_eq!(replies[0], Reply::Bulk(b"v".to_vec()));
    assert!(text(&replies[1]).starts_with("-ERR table db: "), "{replies:?}");
}
