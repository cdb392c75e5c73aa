//! A server whose process is stopped (SIGSTOP) for seconds in the middle of load and snapshots, as
//! a debugger, a suspended machine or a migration of one does, and then continued.

use std::{
    fs,
    sync::{Arc, Barrier, mpsc},
    thread,
    time::Duration,
};

use rustix::process::Signal;
use tempfile::tempdir;

use crate::{
    kill::{Oracle, WRITERS, check, read_until_the_end, save_until_the_end, write_until_the_end},
    support::{
        Client, Server,
        client::{command, text},
        eventually,
    },
};

/// Time for which the process is stopped: by nature a time, and longer than any timer of the log
/// and the snapshots but that of a failed snapshot.
const STOPPED: Duration = Duration::from_millis(1_500);
/// Time to live of a key that expires while the process is stopped.
const SHORT_TTL_MS: &str = "700";
/// Time to live of a key that stays.
const LONG_TTL_MS: i64 = 600_000;

#[test]
fn a_stopped_server_goes_on_and_loses_nothing() {
    for (wiring, sync) in [("0", "interval:5"), ("1", "always")] {
        stop_and_go_on(wiring, sync);
    }
}

fn stop_and_go_on(wiring: &str, sync: &str) {
    let directory = tempdir().unwrap();
    let table = format!("default=memory:?sync={sync}");
    let arguments = ["--net-threads", wiring, "--table", &table, "--snapshot-cpu", "100%"];
    let server = Server::start(directory.path(), &arguments);
    let mut client = server.client();
    let warm = Arc::new(Barrier::new(WRITERS + 2));
    let mut load: Vec<thread::JoinHandle<Oracle>> = (0..WRITERS)
        .map(|writer| {
            let (client, warm) = (server.client(), Arc::clone(&warm));
            thread::spawn(move || write_until_the_end(client, writer, Oracle::new(), &warm))
        })
        .collect();
    let reader = server.client();
    load.push(thread::spawn(move || read_until_the_end(reader)));
    let (saver, ready) = (server.client(), Arc::clone(&warm));
    let saver = thread::spawn(move || save_until_the_end(saver, &ready));
    warm.wait();

    client.text(&["SET", "short", "1", "PX", SHORT_TTL_MS]);
    client.text(&["SET", "long", "1", "PX", &LONG_TTL_MS.to_string()]);
    server.signal(Signal::STOP);
    eventually("the process is stopped", || is_stopped(server.process_id()));
    // The system accepts connections and bytes in its place.
    let mut waiting = server.client();
    waiting.send(&command(&["SET", "sent meanwhile", "1"]));
    client.send(&command(&["PTTL", "long"]));
    wait(STOPPED);
    server.signal(Signal::CONT);

    assert_eq!(text(&waiting.receive().unwrap()), "OK");
    let left: i64 = text(&client.receive().unwrap()).parse().unwrap();
    let stopped_ms = i64::try_from(STOPPED.as_millis()).unwrap();
    assert!((1..=LONG_TTL_MS - stopped_ms).contains(&left), "{left} ms are left");
    assert_eq!(client.text(&["MGET", "short", "long"]), "nil 1");
    let connected = client.text(&["INFO", "clients"]);
    let expected = format!("connected_clients:{}", WRITERS + 4);
    assert!(connected.contains(&expected), "every connection lives on: {connected}");
    everyone_goes_on(&mut client);
    let made = server.metric("busload_snapshots_total");
    eventually("a further snapshot", || made < server.metric("busload_snapshots_total"));

    server.kill();
    saver.join().unwrap();
    let mut oracle = Oracle::new();
    for (key, known) in load.into_iter().flat_map(|ended| ended.join().unwrap()) {
        let entry = oracle.entry(key).or_default();
        entry.at_least = entry.at_least.max(known.at_least);
        entry.at_most = entry.at_most.max(known.at_most);
    }
    let server = Server::start(directory.path(), &["--table", &table]);
    check(&server, &mut oracle);
    assert_eq!(server.client().text(&["MGET", "short", "long", "sent meanwhile"]), "nil 1 1");
}

/// Waits until a key of each writer, to which nobody else writes, has grown.
fn everyone_goes_on(client: &mut Client<std::net::TcpStream>) {
    let mut numbers = || -> Vec<u64> {
        let keys: Vec<String> = (0..WRITERS).map(|writer| format!("{writer}-1")).collect();
        let words: Vec<&str> = ["MGET"].into_iter().chain(keys.iter().map(|k| &**k)).collect();
        client.text(&words).split(' ').map(|number| number.parse().unwrap()).collect()
    };
    let first = numbers();
    eventually("every writer goes on", || {
        numbers().iter().zip(&first).all(|(now, before)| before < now)
    });
}

/// Returns whether all threads of the process are stopped.
fn is_stopped(process: u32) -> bool {
    fs::read_dir(format!("/proc/{process}/task")).unwrap().all(|thread| {
        let stat = fs::read_to_string(thread.unwrap().path().join("stat")).unwrap();
        stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'))
    })
}

/// Lets this much time pass.
fn wait(time: Duration) {
    let (_sender, nothing) = mpsc::channel::<()>();
    assert!(nothing.recv_timeout(time).is_err());
}
