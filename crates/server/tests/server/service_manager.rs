//! Messages of a server to the service manager that started it, as systemd takes them.

use std::{
    ffi::OsString,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    path::Path,
};

use rustix::process::Signal;
use tempfile::tempdir;

use crate::support::{Server, TIMEOUT, serve};

const WIRINGS: [&str; 2] = ["0", "1"];
/// Time of the watchdog in microseconds: a look every 50 ms.
const WATCHDOG: &str = "200000";

/// The manager's end of the socket.
struct Manager {
    socket: UnixDatagram,
    address: OsString,
}

impl Manager {
    fn on_path(directory: &Path) -> Self {
        let path = directory.join("notify");
        Self { socket: UnixDatagram::bind(&path).unwrap(), address: path.into() }
    }

    fn on_abstract_name() -> Self {
        let name = format!("busload-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        Self { socket, address: format!("@{name}").into() }
    }

    /// Starts a server that reports to this manager.
    fn start(&self, data: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Server {
        let mut command = serve(data, arguments);
        command.env("NOTIFY_SOCKET", &self.address).envs(environment.iter().copied());
        Server::try_start(command).unwrap()
    }

    /// Takes the next message.
    #[track_caller]
    fn take(&self) -> String {
        let mut buffer = [0; 4096];
        self.socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        let length = self.socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    /// Takes messages up to the first that has this field; returns that one.
    #[track_caller]
    fn take_until(&self, field: &str) -> String {
        loop {
            let message = self.take();
            if message.lines().any(|line| line == field) {
                return message;
            }
        }
    }

    /// Takes everything that waits.
    fn take_all(&self) -> Vec<String> {
        self.socket.set_nonblocking(true).unwrap();
        let mut buffer = [0; 4096];
        let mut all = Vec::new();
        while let Ok(length) = self.socket.recv(&mut buffer) {
            all.push(String::from_utf8(buffer[..length].to_vec()).unwrap());
        }
        self.socket.set_nonblocking(false).unwrap();
        all
    }
}

/// Returns the value of a field.
#[track_caller]
fn field<'a>(message: &'a str, name: &str) -> &'a str {
    let value = message.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    value.unwrap_or_else(|| panic!("no {name} in {message:?}"))
}

#[test]
fn the_manager_hears_of_the_start_the_pipeline_a_reload_and_the_end() {
    for wiring in WIRINGS {
        let directory = tempdir().unwrap();
        let manager = Manager::on_path(directory.path());
        let arguments = ["--net-threads", wiring];
        let environment = [("WATCHDOG_USEC", WATCHDOG)];
        let data = directory.path().join("data");
        let mut server = manager.start(&data, &arguments, &environment);

        assert_eq!(field(&manager.take(), "STATUS"), "recovering the log");
        let ready = manager.take_until("READY=1");
        let address = server.address("resp").to_string();
        assert!(field(&ready, "STATUS").contains(&address), "{ready}");
        // Nobody asks for anything, and the pipeline turns all the same.
        (0..3).for_each(|_| _ = manager.take_until("WATCHDOG=1"));
        assert_eq!(server.client().text(&["SET", "k", "v"]), "OK");

        server.signal(Signal::HUP);
        let reloading = manager.take_until("RELOADING=1");
        // The clock of MONOTONIC_USEC counts from the start of the machine, like this file.
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime_s: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        let said_s = field(&reloading, "MONOTONIC_USEC").parse::<f64>().unwrap() / 1e6;
        assert!((uptime_s - TIMEOUT.as_secs_f64()..=uptime_s + 1.0).contains(&said_s), "{said_s}");
        manager.take_until("READY=1");
        assert_eq!(server.client().text(&["GET", "k"]), "v", "a reload does not disturb clients");

        server.signal(Signal::TERM);
        assert_eq!(field(&manager.take_until("STOPPING=1"), "STATUS"), "stopping");
        assert!(server.wait().success());
    }
}

#[test]
fn a_recovery_says_how_far_it_is() {
    let directory = tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::start(&data, &[]);
    server.client().text(&["SET", "k", "v"]);
    assert_eq!(server.client().text(&["SAVE"]), "OK");
    server.kill();
    let manager = Manager::on_path(directory.path());
    let server = manager.start(&data, &[], &[]);
    let ready = manager.take_all();
    let percents: Vec<u32> = ready
        .iter()
        .filter_map(|message| message.strip_prefix("STATUS=loading the snapshot: "))
        .map(|percent| percent.strip_suffix(" %\n").unwrap().parse().unwrap())
        .collect();
    assert!(!percents.is_empty() && percents.is_sorted(), "{ready:?}");
    assert!(*percents.last().unwrap() <= 100, "{ready:?}");
    assert!(server.stop().success());
}

#[test]
fn an_abstract_socket_is_one_too_and_without_a_watchdog_there_are_no_beats() {
    let directory = tempdir().unwrap();
    let manager = Manager::on_abstract_name();
    // The watchdog of another process.
    let environment = [("WATCHDOG_USEC", WATCHDOG), ("WATCHDOG_PID", "1")];
    let server = manager.start(directory.path(), &[], &environment);
    manager.take_until("READY=1");
    assert!(server.stop().success());
    let rest = manager.take_all();
    assert!(rest.iter().any(|message| message.contains("STOPPING=1")), "{rest:?}");
    assert!(rest.iter().all(|message| !message.contains("WATCHDOG")), "{rest:?}");
}

#[test]
fn a_start_that_fails_says_why() {
    let directory = tempdir().unwrap();
    let manager = Manager::on_path(directory.path());
    let data = directory.path().join("data");
    let server = Server::start(&data, &[]);
    let mut second = serve(&data, &[]);
    second.env("NOTIFY_SOCKET", &manager.address);
    assert!(Server::try_start(second).is_err());
    let told = manager.take_all();
    assert!(field(told.last().unwrap(), "STATUS").contains("is in use by process"), "{told:?}");
    assert!(told.iter().all(|message| !message.contains("READY")), "{told:?}");
    assert!(server.stop().success());
}

#[test]
fn a_manager_that_does_not_read_holds_nothing_up_for_long() {
    let directory = tempdir().unwrap();
    let manager = Manager::on_path(directory.path());
    let filler = UnixDatagram::unbound().unwrap();
    filler.set_nonblocking(true).unwrap();
    while filler.send_to(b"STATUS=full", &manager.address).is_ok() {}
    let data = directory.path().join("data");
    let server = manager.start(&data, &[], &[("WATCHDOG_USEC", "1000")]);
    assert_eq!(server.client().text(&["SET", "k", "v"]), "OK");
    assert!(server.stop().success());
    assert!(manager.take_all().iter().all(|message| message == "STATUS=full"));
}

#[test]
fn an_address_that_makes_no_sense_is_a_warning() {
    let directory = tempdir().unwrap();
    let mut command = serve(directory.path(), &[]);
    command.env("NOTIFY_SOCKET", "run/notify");
    let server = Server::try_start(command).unwrap();
    let said = server.said().join("\n");
    assert!(said.contains("NOTIFY_SOCKET = run/notify: expected the absolute path"), "{said}");
    assert!(server.stop().success());
}
