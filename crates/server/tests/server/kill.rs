//! Kills the server again and again under write load, while it makes one snapshot after the other
//! and removes the log behind them. Every write that was acknowledged or seen by a reader must
//! survive.
//!
//! `BUSLOAD_KILL_ROUNDS` sets the number of rounds.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Barrier},
    thread::{self, JoinHandle},
};

use crate::support::{
    Client, Server,
    client::{command, text},
};
use busload_resp::reply::Reply;
use tempfile::tempdir;

const ROUNDS_DEFAULT: usize = 6;
pub const WRITERS: usize = 4;
const KEYS_PER_WRITER: u64 = 50;
const PIPELINE: u64 = 16;
/// Acknowledged writes of one writer before the server may be killed.
const WRITES_BEFORE_KILL: u64 = 500;

/// Bounds of a key's value, a number that only grows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    /// Highest value that was acknowledged, or seen by a reader.
    pub at_least: u64,
    /// Highest value that was sent.
    pub at_most: u64,
}

pub type Oracle = HashMap<String, Known>;

fn rounds() -> usize {
    let set = std::env::var("BUSLOAD_KILL_ROUNDS").ok();
    set.map_or(ROUNDS_DEFAULT, |text| text.parse().expect("BUSLOAD_KILL_ROUNDS is a number"))
}

#[test]
fn nothing_acknowledged_or_observed_is_lost_when_the_process_is_killed() {
    let directory = tempdir().unwrap();
    let mut oracle = Oracle::new();
    for round in 0..rounds() {
        let wiring = ["0", "1"][round % 2];
        let sync = ["always", "os", "interval:5"][round / 2 % 3];
        oracle = one_round(directory.path(), wiring, sync, oracle, round as u64);
    }
    let server = Server::start(directory.path(), &[]);
    assert!(server.said().join("\n").contains("recovered a snapshot of "), "{:?}", server.said());
    let first_segment = directory.path().join("log/00000000000000000001.log");
    assert!(!first_segment.exists(), "the log behind the snapshots is removed");
    check(&server, &mut oracle);
    let lowest = oracle.values().map(|known| known.at_least).min();
    assert!(lowest.is_some_and(|lowest| 0 < lowest), "every key was written");
}

fn one_round(data: &Path, wiring: &str, sync: &str, mut oracle: Oracle, round: u64) -> Oracle {
    let table = format!("default=memory:?sync={sync}");
    let server = Server::start(
        data,
        &["--net-threads", wiring, "--table", &table, "--snapshot-cpu", "100%"],
    );
    check(&server, &mut oracle);
    let warm = Arc::new(Barrier::new(WRITERS + 2));
    let writers: Vec<JoinHandle<Oracle>> = (0..WRITERS)
        .map(|writer| {
            let (client, warm) = (server.client(), Arc::clone(&warm));
            let known = oracle.clone();
            thread::spawn(move || write_until_the_end(client, writer, known, &warm))
        })
        .collect();
    let reader = {
        let client = server.client();
        thread::spawn(move || read_until_the_end(client))
    };
    let saver = {
        let (client, warm) = (server.client(), Arc::clone(&warm));
        thread::spawn(move || save_until_the_end(client, &warm))
    };
    warm.wait();
    // Each round kills the server a little later.
    let mut client = server.client();
    for _ in 0..round * 37 % 400 {
        client.text(&["PING"]);
    }
    server.kill();
    saver.join().unwrap();
    for ended in writers.into_iter().chain([reader]) {
        for (key, known) in ended.join().unwrap() {
            let entry = oracle.entry(key).or_default();
            entry.at_least = entry.at_least.max(known.at_least);
            entry.at_most = entry.at_most.max(known.at_most);
        }
    }
    oracle
}

/// Asserts that every key is within its bounds, and narrows them to the value found.
pub fn check(server: &Server, oracle: &mut Oracle) {
    let mut client = server.client();
    for (key, known) in oracle {
        let found = client.text(&["GET", key]);
        let found: u64 = if found == "nil" { 0 } else { found.parse().unwrap() };
        assert!(
            known.at_least <= found && found <= known.at_most,
            "{key} is {found}, but {} was acknowledged or seen and {} sent",
            known.at_least,
            known.at_most
        );
        *known = Known { at_least: found, at_most: found };
    }
}

/// Writes growing numbers to keys of its own, by SET, INCR and transactions in turn, pipelined.
pub fn write_until_the_end(
    mut client: Client<std::net::TcpStream>,
    writer: usize,
    known: Oracle,
    warm: &Barrier,
) -> Oracle {
    let key_of = |number: u64| format!("{writer}-{}", number % KEYS_PER_WRITER);
    let mut mine: Oracle =
        known.into_iter().filter(|(key, _)| key.starts_with(&format!("{writer}-"))).collect();
    let mut number = 0;
    loop {
        let mut requests = Vec::new();
        let mut sent = Vec::new();
        for _ in 0..PIPELINE {
            number += 1;
            let entry = mine.entry(key_of(number)).or_default();
            entry.at_most += 1;
            let (key, value) = (key_of(number), entry.at_most.to_string());
            match number % 3 {
                0 => requests.extend(command(&["SET", &key, &value])),
                1 => requests.extend(command(&["INCR", &key])),
                _ => {
                    requests.extend(command(&["MULTI"]));
                    requests.extend(command(&["DEL", &key]));
                    requests.extend(command(&["SET", &key, &value]));
                    requests.extend(command(&["EXEC"]));
                    sent.extend([None, None, None]);
                }
            }
            sent.push(Some((key, entry.at_most)));
        }
        if std::io::Write::write_all(&mut client.stream, &requests).is_err() {
            return mine;
        }
        for expected in sent {
            let Ok(reply) = client.receive() else { return mine };
            assert!(!reply.is_error(), "{reply:?}");
            if let Some((key, value)) = expected {
                mine.get_mut(&key).expect("it was sent").at_least = value;
            }
        }
        if number - PIPELINE < WRITES_BEFORE_KILL && WRITES_BEFORE_KILL <= number {
            warm.wait();
        }
    }
}

/// Asks for one snapshot after the other. The server may be killed when it has made one.
pub fn save_until_the_end(mut client: Client<std::net::TcpStream>, warm: &Barrier) {
    client.text(&["SAVE"]);
    warm.wait();
    while std::io::Write::write_all(&mut client.stream, &command(&["SAVE"])).is_ok() {
        let Ok(reply) = client.receive() else { return };
        let reply = text(&reply);
        assert!(reply == "OK" || reply.contains("is not synced yet"), "{reply}");
    }
}

/// Reads all keys and remembers the greatest number of each.
pub fn read_until_the_end(mut client: Client<std::net::TcpStream>) -> Oracle {
    let keys: Vec<String> = (0..WRITERS)
        .flat_map(|writer| (0..KEYS_PER_WRITER).map(move |key| format!("{writer}-{key}")))
        .collect();
    let words: Vec<&str> = std::iter::once("MGET").chain(keys.iter().map(String::as_str)).collect();
    let mut seen = Oracle::new();
    loop {
        if std::io::Write::write_all(&mut client.stream, &command(&words)).is_err() {
            return seen;
        }
        let Ok(Reply::Array(values)) = client.receive() else { return seen };
        for (key, value) in keys.iter().zip(&values) {
            if let Ok(value) = text(value).parse() {
                let known = seen.entry(key.clone()).or_default();
                known.at_least = value;
            }
        }
    }
}
