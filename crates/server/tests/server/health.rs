//! `busload health`, as health checks of containers call it.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    thread,
};

use crate::support::{Ended, Server, busload};
use tempfile::tempdir;

fn health(arguments: &[&str]) -> Ended {
    Ended::of(busload().arg("health").args(arguments).output().unwrap())
}

/// Answers one request with this; returns its address, and a handle for the request's first line.
fn answering(answer: &'static str) -> (String, thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let asked = thread::spawn(move || {
        let mut stream = BufReader::new(listener.accept().unwrap().0);
        let mut first = String::new();
        stream.read_line(&mut first).unwrap();
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            stream.read_line(&mut line).unwrap();
        }
        stream.get_mut().write_all(answer.as_bytes()).unwrap();
        first.trim_end().to_owned()
    });
    (address, asked)
}

#[test]
fn a_server_that_serves_is_healthy_and_none_is_not() {
    let directory = tempdir().unwrap();
    let password = directory.path().join("password");
    std::fs::write(&password, "sesame").unwrap();
    let data = directory.path().join("data");
    let server = Server::start(&data, &["--password-file", password.to_str().unwrap()]);
    let address = server.address("http").to_string();
    for (arguments, says) in [(&[][..], "ready\n"), (&["--live"], "ok\n")] {
        let ended = health(&[&["--http", &*address], arguments].concat());
        assert_eq!((ended.code, &*ended.stdout, &*ended.stderr), (Some(0), says, ""));
    }
    assert!(server.stop().success());
    let ended = health(&["--http", &address]);
    assert!(ended.failed(1).contains(&format!("no server answers at http://{address}")));
}

#[test]
fn a_server_that_does_not_serve_yet_says_why() {
    let answer = "HTTP/1.0 503 Service Unavailable\r\nA: b\r\n\r\nrecovering the log\n";
    let (address, asked) = answering(answer);
    let ended = health(&["--http", &address]);
    let line = format!("busload: the server at http://{address}: recovering the log");
    assert_eq!(ended.failed(1), line);
    assert_eq!(asked.join().unwrap(), "GET /readyz HTTP/1.0");

    let (address, asked) = answering("HTTP/1.0 500 Internal Server Error\r\n\r\n");
    assert!(health(&["--live", "--http", &address]).failed(1).ends_with("status 500"));
    assert_eq!(asked.join().unwrap(), "GET /healthz HTTP/1.0");
}

#[test]
fn a_server_that_hangs_is_not_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let ended = health(&["--timeout", "1", "--http", &address]);
    assert!(ended.failed(1).contains("no server answers"), "{ended:?}");
}

#[test]
fn without_http_there_is_nobody_to_ask() {
    let ended = health(&["--http", "none"]);
    assert!(ended.failed(2).contains("expected its HTTP address by --http"), "{ended:?}");
}
