//! Questions of an operator to a running server, over its sockets, with and without a net thread.

use std::path::PathBuf;

use crate::support::{Client, Server, eventually};
use tempfile::tempdir;

fn each_wiring(test: impl Fn(&Server)) {
    for wiring in ["0", "1"] {
        let directory = tempdir().unwrap();
        test(&Server::start(directory.path(), &["--net-threads", wiring]));
    }
}

/// Returns a field of a line of CLIENT LIST.
fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let value = line.split(' ').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    value.unwrap_or_else(|| panic!("no {name} in {line}"))
}

#[test]
fn client_list_names_the_sockets_of_the_process() {
    each_wiring(|server| {
        let (mut first, mut second) = (server.client(), server.client());
        first.text(&["CLIENT", "SETNAME", "first"]);
        second.text(&["CLIENT", "SETNAME", "second"]);
        second.text(&["CLIENT", "SETINFO", "LIB-NAME", "tests"]);
        let list = first.text(&["CLIENT", "LIST"]);
        let lines: Vec<&str> = list.lines().collect();
        assert_eq!(lines.len(), 2, "{list}");
        for (line, client, name) in [(lines[0], &first, "first"), (lines[1], &second, "second")] {
            assert_eq!(field(line, "name"), name);
            assert_eq!(field(line, "addr"), client.stream.local_addr().unwrap().to_string());
            assert_eq!(field(line, "laddr"), client.stream.peer_addr().unwrap().to_string());
            assert_eq!(field(line, "events").trim_end_matches('w'), "r");
            let descriptor: u32 = field(line, "fd").parse().unwrap();
            let link = PathBuf::from(format!("/proc/{}/fd/{descriptor}", server.process_id()));
            let target = std::fs::read_link(link).unwrap();
            assert!(target.to_string_lossy().starts_with("socket:"), "{target:?}");
        }
        assert_ne!(field(lines[0], "fd"), field(lines[1], "fd"));
        assert_eq!(field(lines[1], "lib-name"), "tests");
        assert_eq!(first.text(&["CLIENT", "KILL", "MAXAGE", "3600"]), "0");
        let id = field(lines[1], "id").to_owned();
        assert_eq!(first.text(&["CLIENT", "KILL", "ID", &id]), "1");
        assert!(second.receive().is_err(), "it was closed");
    });
}

#[test]
fn client_list_shows_half_a_request() {
    each_wiring(|server| {
        let (mut watcher, mut other) = (server.client(), server.client());
        assert_eq!(other.text(&["PING"]), "PONG");
        other.send(b"*2\r\n$3\r\nGET\r\n$50000\r\nabc");
        eventually("the bytes are counted", || {
            let list = watcher.text(&["CLIENT", "LIST"]);
            let line = list.lines().last().unwrap();
            field(line, "qbuf") == "24" && field(line, "tot-mem").parse::<u64>().unwrap() > 24
        });
    });
}

#[test]
fn the_slow_log_has_times_of_the_real_clock() {
    each_wiring(|server| {
        let mut client = server.client();
        assert_eq!(client.text(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]), "OK");
        for number in 0..2_000 {
            client.text(&["SET", &format!("key:{number}"), "v"]);
        }
        client.text(&["SLOWLOG", "RESET"]);
        client.call(&["KEYS", "*7*"]);
        let log = client.text(&["SLOWLOG", "GET", "1"]);
        assert!(log.contains("KEYS") && log.contains("*7*"), "{log}");
        let address = client.stream.local_addr().unwrap().to_string();
        assert!(log.contains(&address), "{log}");
        client.text(&["SLOWLOG", "RESET"]);
        client.text(&["CONFIG", "SET", "slowlog-log-slower-than", "10000000"]);
        client.call(&["KEYS", "*7*"]);
        assert_eq!(client.text(&["SLOWLOG", "LEN"]), "1", "the RESET");
    });
}

#[test]
fn a_monitor_sees_pipelines_of_other_clients_in_order() {
    each_wiring(|server| {
        let mut monitor = server.client();
        assert_eq!(monitor.text(&["MONITOR"]), "OK");
        let mut client = server.client();
        let count = 500;
        let requests: String = (0..count).map(|number| format!("SET k {number}\r\n")).collect();
        client.send(requests.as_bytes());
        for _ in 0..count {
            client.receive().unwrap();
        }
        let address = client.stream.local_addr().unwrap();
        for number in 0..count {
            let line = crate::support::client::text(&monitor.receive().unwrap());
            let expected = format!(" [0 {address}] \"SET\" \"k\" \"{number}\"");
            assert!(line.ends_with(&expected), "{line} instead of {expected}");
        }
    });
}

#[test]
fn an_idle_client_is_closed_after_the_timeout_and_a_busy_one_is_not() {
    each_wiring(|server| {
        let (mut operator, mut idle) = (server.client(), server.client());
        assert_eq!(idle.text(&["PING"]), "PONG");
        assert_eq!(operator.text(&["CONFIG", "SET", "timeout", "1"]), "OK");
        let clients = |operator: &mut Client<_>| operator.text(&["CLIENT", "LIST"]).lines().count();
        eventually("the idle client is closed", || clients(&mut operator) == 1);
        assert!(idle.receive().is_err());
        assert_eq!(operator.text(&["PING"]), "PONG");
    });
}
