use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
};

use super::*;
use crate::{
    clock::TRIES,
    experiment::postgres::rows::{Distribution, KEY_BYTES, Payload},
};

/// Faults of a server in this process.
#[derive(Clone, Copy, Debug, Default)]
struct Manners {
    /// The n-th request of a connection is answered with another row.
    wrong_at: Option<u64>,
    /// The n-th request of a connection waits for this long.
    stalls_at: Option<u64>,
    stall: Duration,
    /// After so many requests the connection is closed.
    closes_at: Option<u64>,
}

/// Bytes of `*2 $3 GET $26 bench:KEY`.
const GET_BYTES: usize = 18 + 6 + KEY_BYTES + 2;

fn serve(manners: Manners) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&requests);
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let counted = Arc::clone(&counted);
            std::thread::spawn(move || answer(socket.unwrap(), manners, &counted));
        }
    });
    (address, requests)
}

/// Replies leave in pieces that end anywhere.
fn answer(mut socket: TcpStream, manners: Manners, counted: &AtomicU64) {
    let (_never, wait) = mpsc::channel::<()>();
    let mut request = [0; GET_BYTES];
    let mut number = 0;
    socket.set_nodelay(true).unwrap();
    while socket.read_exact(&mut request).is_ok() {
        number += 1;
        counted.fetch_add(1, Ordering::SeqCst);
        if manners.stalls_at == Some(number) {
            let _ = wait.recv_timeout(manners.stall);
        }
        if manners.closes_at == Some(number) {
            return;
        }
        let digits =
            std::str::from_utf8(&request[GET_BYTES - KEY_BYTES - 2..GET_BYTES - 2]).unwrap();
        let row: u64 = digits.parse().unwrap();
        let row = if manners.wrong_at == Some(number) { row + 1 } else { row };
        let reply = format!("$35\r\n{}\r\n", Payload::loaded(row).text());
        let cut = usize::try_from(number).unwrap() % reply.len();
        if socket
            .write_all(&reply.as_bytes()[..cut])
            .and_then(|()| socket.write_all(&reply.as_bytes()[cut..]))
            .is_err()
        {
            return;
        }
    }
}

fn plan(address: SocketAddr, connections: usize, milliseconds: u64) -> Plan {
    let from_ns = now_ns() + 10_000_000;
    Plan {
        address,
        connections,
        operation: Operation::Read,
        prefix: Prefix::of_table("bench"),
        sequences: Sequences::new(Distribution::Uniform, 1_000_000, 1),
        window: Window { from_ns, until_ns: from_ns + milliseconds * 1_000_000 },
        first_version: 0,
    }
}

#[test]
fn every_reply_is_counted_once_however_it_is_cut() {
    for (connections, clients) in [(1, 1), (3, 3), (3, 45)] {
        let answers_count = (0..TRIES).any(|_| {
            let (address, requests) = serve(Manners::default());
            let counters = run_closed(plan(address, connections, 50), clients).unwrap();
            assert_eq!(counters.answered_ever, requests.load(Ordering::SeqCst));
            assert_eq!(
                (counters.failed.wrong.count, counters.failed.refused.count),
                (0, 0),
                "{counters:?}"
            );
            assert_eq!(counters.latency_ns.len(), counters.answered);
            0 < counters.answered
        });
        assert!(answers_count, "{connections} connections, {clients} clients");
    }
}

#[test]
fn a_reply_with_another_row_is_wrong() {
    let both_are_seen = (0..TRIES).any(|_| {
        let (address, _) = serve(Manners { wrong_at: Some(5), ..Manners::default() });
        let wrong = run_closed(plan(address, 2, 30), 20).unwrap().failed.wrong;
        assert!(wrong.count <= 2, "{wrong:?}");
        assert!(wrong.example.is_none_or(|example| example.contains("is said to hold")));
        wrong.count == 2
    });
    assert!(both_are_seen);
}

#[test]
fn an_open_loop_asks_at_its_rate() {
    let keeps_its_rate = (0..TRIES).any(|_| {
        let (address, requests) = serve(Manners::default());
        let counters = run_open(plan(address, 2, 190), 1_000).unwrap();
        let asked = requests.load(Ordering::SeqCst);
        assert_eq!((counters.answered_ever, counters.unanswered), (asked, 0));
        assert_eq!(counters.latency_ns.len(), counters.late_ns.len());
        assert!(asked <= 200, "{asked}");
        100 <= asked
    });
    assert!(keeps_its_rate);
}

#[test]
fn a_stall_is_charged_for_every_request_it_kept_waiting() {
    let stall = Duration::from_millis(200);
    let is_charged = (0..TRIES).any(|_| {
        let (address, _) = serve(Manners { stalls_at: Some(60), stall, ..Manners::default() });
        let counters = run_open(plan(address, 1, 390), 1_000).unwrap();
        // 200 of 390 requests waited, half of them at least 100 ms: a closed loop would have
        // noticed one. A machine that is busy stalls by itself: then more of them waited.
        80_000_000 < counters.latency_ns.value_at_quantile(0.8)
            && counters.latency_ns.value_at_quantile(0.2) < 80_000_000
    });
    assert!(is_charged);
}

#[test]
fn a_server_that_goes_away_ends_the_load() {
    let (address, _) = serve(Manners { closes_at: Some(100), ..Manners::default() });
    let error = format!("{:#}", run_closed(plan(address, 1, 60_000), 4).unwrap_err());
    // Which of them is a matter of what was under way.
    let expected = ["closed a connection", "reset", "Broken pipe"];
    assert!(expected.iter().any(|words| error.contains(words)), "{error}");
}
