//! Starts of the server, and the messages of refused ones.

use std::{
    fs::{self, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    net::{SocketAddr, TcpListener},
    os::unix::fs::PermissionsExt,
};

use crate::support::{Client, Ended, Server, busload, first_segment, on_free_ports, run, serve};
use tempfile::tempdir;

/// Starts a server with these arguments, on ports of its own unless they name ports.
fn start(arguments: &[&str]) -> Ended {
    let mut command = busload();
    command.arg("serve").args(arguments);
    for (flag, value) in [("--resp", "127.0.0.1:0"), ("--http", "none")] {
        if !arguments.contains(&flag) {
            command.args([flag, value]);
        }
    }
    match Server::try_start(command) {
        Err(ended) => ended,
        Ok(server) => panic!("it started: {:?}", server.said()),
    }
}

#[test]
fn the_ready_line_names_every_address_and_each_answers() {
    let directory = tempdir().unwrap();
    let socket = directory.path().join("s");
    let data = directory.path().join("data");
    let arguments =
        ["--unix", socket.to_str().unwrap(), "--resp", "127.0.0.1:0", "--resp", "[::1]:0"];
    let server = Server::start(&data, &arguments);
    let line = server.said().last().unwrap();
    let addresses: Vec<SocketAddr> =
        line.split(' ').filter_map(|pair| pair.strip_prefix("resp=")?.parse().ok()).collect();
    assert_eq!(addresses.len(), 2, "{line}");
    for address in addresses {
        assert_eq!(Client::connect(address).text(&["PING"]), "PONG");
    }
    assert!(line.contains(&format!(" unix={} ", socket.display())), "{line}");
    assert_eq!(Client::connect_unix(&socket).text(&["PING"]), "PONG");
    assert!(server.http("/healthz").0.ends_with("200 OK"), "{line}");
    assert!(data.join("log").is_dir());
    assert!(server.stop().success());
    assert!(!socket.exists(), "the socket's file goes with the server");
}

#[test]
fn without_arguments_it_is_a_durable_server_in_the_working_directory() {
    let directory = tempdir().unwrap();
    let mut check = busload();
    let ended = Ended::of(check.arg("check").current_dir(directory.path()).output().unwrap());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for part in [
        "busload-data (does not exist",
        "127.0.0.1:6380",
        "127.0.0.1:6381",
        "sync=always",
        "would succeed",
    ] {
        assert!(ended.stdout.contains(part), "{part}: {}", ended.stdout);
    }
    assert!(fs::read_dir(directory.path()).unwrap().next().is_none(), "checking writes nothing");
}

#[test]
fn a_port_in_use_is_one_clear_line() {
    let directory = tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for front in ["--resp", "--http"] {
        let ended =
            start(&["--data", directory.path().join("d").to_str().unwrap(), front, &address]);
        let line = ended.failed(1);
        assert!(line.contains(&address) && line.contains("in use"), "{line}");
    }
}

#[test]
fn a_directory_that_cannot_be_written_is_one_clear_line() {
    let directory = tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let line_of = |data: &str| start(&["--data", data]).failed(1).to_owned();
    let below = file.join("data");
    for data in [file.to_str().unwrap(), below.to_str().unwrap(), "/proc/busload"] {
        let line = line_of(data);
        assert!(line.contains(data), "{line}");
    }
    // Permissions do not stop root.
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o500)).unwrap();
    let closed = directory.path().join("new");
    if fs::create_dir(&closed).is_err() {
        assert!(line_of(closed.to_str().unwrap()).contains("ermission denied"));
    }
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn mistakes_in_flags_end_with_code_2_and_say_what_was_expected() {
    for (arguments, part) in [
        (&["--dta", "x"][..], "--data"),
        (&["--resp", "6380"], "expected HOST:PORT"),
        (&["--net-threads", "9"], "expected 0 or 1"),
        (&["--table", "t=redis:"], "expected `memory`"),
        (&["--table", "t=postgres://x"], "table t: key is missing"),
        (&["--table", "t=chunks+s3://b?pol=1s"], "`poll`"),
        (&["--table", "a=memory:", "--table", "a=memory:"], "given twice"),
        (&["--memory-max", "0"], "or none"),
        (&["--resp", "none"], "no client could connect"),
        (&["--resp", "0.0.0.0:0"], "without a password"),
        (&["--http", "0.0.0.0:0"], "refusing to serve HTTP on 0.0.0.0:0 without a password"),
        (
            &["--http-url", "cache.example.com"],
            "'--http-url': this is no URL of HTTP; expected one like https://",
        ),
        (
            &[
                "--table",
                "a=chunks+file:///a?dolt_paths=x",
                "--table",
                "b=chunks+file:///b?dolt_paths=x",
            ],
            "table a",
        ),
        (&["--password-file", "/nowhere"], "/nowhere"),
        (&["--config", "/nowhere"], "/nowhere"),
        (&["--price-get=-1"], "`-1` is no price; expected USD from 0"),
        (&["--price-egress", "little"], "`little` is no price; expected USD from 0"),
        (&["--drop-table", "t"], "the log knows no such table"),
    ] {
        let directory = tempdir().unwrap();
        let data = directory.path().join("d");
        let mut all = vec!["--data", data.to_str().unwrap()];
        all.extend(arguments);
        let ended = start(&all);
        assert!(ended.failed(2).contains(part), "{arguments:?}: {ended:?}");
    }
}

#[test]
fn no_message_shows_what_may_be_a_password() {
    for arguments in [
        ["--http-url", "https://user:hush@cache.example.com"],
        ["--table", "t=postgres://app:hush@db/x"],
        ["--table", "t=chunks+s3://key:hush@bucket/p"],
    ] {
        let ended = start(&arguments);
        let line = ended.failed(2);
        assert!(!line.contains("hush"), "{line}");
    }
}

/// `check` once looked at the log only, and said that such a start would succeed.
#[test]
fn a_check_says_where_a_start_could_not_listen() {
    let directory = tempdir().unwrap();
    let running = Server::start(&directory.path().join("running"), &[]);
    let (resp, http) = (running.address("resp").to_string(), running.address("http").to_string());
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let (missing, file) = (directory.path().join("missing/socket"), file.to_str().unwrap());
    let data = directory.path().join("d");
    for wrong in [
        ["--resp", &resp],
        ["--http", &http],
        ["--unix", missing.to_str().unwrap()],
        ["--unix", file],
    ] {
        let arguments = [&["check", "--data", data.to_str().unwrap()][..], &wrong].concat();
        let checked = run(&arguments);
        assert_eq!(checked.code, Some(1), "{checked:?}");
        assert!(checked.stdout.contains("would be refused"), "{checked:?}");
        let mut start = busload();
        start.args(on_free_ports(&arguments).into_iter().skip(1));
        let started = Server::try_start(start).unwrap_err();
        assert_eq!(checked.stderr.trim_end(), started.stderr.lines().last().unwrap());
    }
    assert!(running.stop().success(), "it was left alone");
}

#[test]
fn a_check_says_who_is_asked_for_a_password() {
    let directory = tempdir().unwrap();
    let data = directory.path().join("d");
    let checked = |http: &str| {
        let mut command = busload();
        command.env("BUSLOAD_PASSWORD", "sesame").args(on_free_ports(&["check", "--http", http]));
        command.arg("--data").arg(&data);
        let ended =
            Ended::of(command.args(["--http-url", "https://cache.example.com/"]).output().unwrap());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(!ended.stdout.contains("sesame"), "{ended:?}");
        assert!(ended.stdout.contains("http url        https://cache.example.com\n"), "{ended:?}");
        ended.stdout
    };
    assert!(checked("0.0.0.0:0").contains("http            0.0.0.0:0, asks for the password\n"));
    assert!(checked("127.0.0.1:0").contains("http            127.0.0.1:0\n"));
}

#[test]
fn an_unknown_key_is_refused_with_file_line_and_the_nearest_name() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("busload.toml");
    fs::write(&path, "# mine\nmaxclient = 5\n").unwrap();
    for command in ["serve", "check"] {
        let ended = run(&[command, "--config", path.to_str().unwrap()]);
        let line = ended.failed(2);
        let expected = format!("{}:2: `maxclient` is no key", path.display());
        assert!(line.contains(&expected) && line.contains("did you mean `maxclients`?"), "{line}");
    }
}

#[test]
fn a_file_configures_and_flags_win_over_it() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("busload.toml");
    let text = "maxclients = 7\nreply_bytes_total = '2GiB'\n[tables.cache]\nkind = 'memory'\n\
                sync = 'off'\n";
    fs::write(&path, text).unwrap();
    let arguments = ["--config", path.to_str().unwrap(), "--maxclients", "8"];
    let server = Server::start(&directory.path().join("d"), &arguments);
    let mut client = server.client();
    assert_eq!(client.text(&["CONFIG", "GET", "maxclients"]), "maxclients 8");
    assert_eq!(client.text(&["SET", "cache:a", "1"]), "OK");
    assert_eq!(client.text(&["SET", "b", "1"]), "OK");
    server.kill();
    let server = Server::start(&directory.path().join("d"), &arguments);
    let mut client = server.client();
    assert_eq!(client.text(&["MGET", "cache:a", "b"]), "nil 1");
}

#[test]
fn the_password_is_asked_for_and_never_shown() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("password");
    fs::write(&path, "open sesame\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let data = directory.path().join("d");
    let arguments =
        ["--password-file", path.to_str().unwrap(), "--resp", "0.0.0.0:0", "--log-level", "trace"];
    let server = Server::start(&data, &arguments);
    let address = SocketAddr::from(([127, 0, 0, 1], server.address("resp").port()));
    let mut client = Client::connect(address);
    assert!(client.text(&["GET", "a"]).starts_with("-NOAUTH"));
    assert!(client.text(&["AUTH", "wrong"]).starts_with("-WRONGPASS"));
    assert!(client.text(&["GET", "a"]).starts_with("-NOAUTH"));
    assert_eq!(client.text(&["AUTH", "open sesame"]), "OK");
    assert_eq!(client.text(&["GET", "a"]), "nil");
    let mut second = Client::connect(address);
    assert!(second.text(&["HELLO", "2", "AUTH", "default", "wrong"]).starts_with("-WRONGPASS"));
    assert!(!second.text(&["HELLO", "2", "AUTH", "default", "open sesame"]).starts_with('-'));
    assert!(!client.text(&["INFO"]).contains("sesame"));
    let said = server.said().join("\n");
    assert!(said.contains("mode 644") && !said.contains("sesame"), "{said}");
}

#[test]
fn chunk_stores_need_no_address_for_redis_clients() {
    let directory = tempfile::tempdir().unwrap();
    let table = crate::support::fixtures::table("db", "real-classic", "");
    let server = Server::start(&directory.path().join("d"), &["--resp", "none", "--table", &table]);
    assert_eq!(server.http("/readyz").0, "HTTP/1.1 200 OK");
    assert!(server.stop().success());
    let ended = start(&["--data", directory.path().join("e").to_str().unwrap(), "--resp", "none"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("tables of kind chunks and an address by --http"), "{ended:?}");
}

#[test]
fn the_environment_gives_the_password_too() {
    let directory = tempdir().unwrap();
    let mut command = serve(directory.path(), &[]);
    command.env("BUSLOAD_PASSWORD", "s3");
    let server = Server::try_start(command).unwrap();
    assert!(server.client().text(&["GET", "a"]).starts_with("-NOAUTH"));
    assert_eq!(server.client().text(&["AUTH", "s3"]), "OK");
}

#[test]
fn a_second_process_on_the_same_data_is_refused_and_told_who_has_it() {
    let directory = tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    let data = directory.path().to_str().unwrap();
    let expected = format!("in use by process {}", server.process_id());
    for ended in [start(&["--data", data]), run(&["log", "verify", "--data", data])] {
        assert!(ended.failed(1).contains(&expected), "{ended:?}");
    }
    let ended = run(&["check", "--data", data]);
    assert!(ended.failed(1).contains(&expected), "{ended:?}");
    assert_eq!(server.client().text(&["SET", "a", "1"]), "OK");
}

#[test]
fn a_corrupt_log_is_refused_naming_file_offset_and_lsn() {
    let directory = tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    let mut client = server.client();
    for index in 0..50 {
        assert_eq!(client.text(&["SET", &format!("key-{index}"), "value"]), "OK");
    }
    assert!(server.stop().success());
    let path = first_segment(directory.path());
    // A byte in the middle of the synced part.
    let mut file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    let at = bytes.windows(6).position(|window| window == b"key-25").unwrap() as u64;
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(b"KEY").unwrap();

    let data = directory.path().to_str().unwrap();
    for ended in [
        start(&["--data", data]),
        run(&["check", "--data", data]),
        run(&["log", "verify", "--data", data]),
    ] {
        let line = ended.failed(1);
        let named = line.contains(path.to_str().unwrap())
            && line.contains("offset")
            && line.contains("LSN");
        assert!(named && line.contains("corrupt"), "{line}");
    }
    assert!(run(&["log", "verify", "--data", data]).stdout.contains("problem"));
}

#[test]
fn tables_that_would_hide_or_lose_keys_are_refused_with_counts() {
    let directory = tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    let server = Server::start(directory.path(), &[]);
    let mut client = server.client();
    for key in ["a:1", "a:2", "b"] {
        assert_eq!(client.text(&["SET", key, key]), "OK");
    }
    assert!(server.stop().success());

    let table = "a=memory:?sync=os";
    let refused = start(&["--data", data, "--table", table]);
    assert!(
        refused.failed(2).contains("2 keys") && refused.stderr.contains("--adopt-tables"),
        "{refused:?}"
    );
    let checked = run(&["check", "--data", data, "--table", table]);
    assert_eq!(checked.stderr, refused.stderr);
    assert!(checked.stdout.contains("would be refused"), "{checked:?}");
    assert_eq!(run(&["check", "--data", data, "--table", table, "--adopt-tables"]).code, Some(0));

    let server = Server::start(directory.path(), &["--table", table, "--adopt-tables"]);
    assert_eq!(server.client().text(&["MGET", "a:1", "a:2", "b"]), "a:1 a:2 b");
    assert!(server.stop().success());
    let refused = start(&["--data", data]);
    assert!(
        refused.failed(2).contains("2 keys") && refused.stderr.contains("--drop-table a"),
        "{refused:?}"
    );
    let server = Server::start(directory.path(), &["--drop-table", "a"]);
    assert_eq!(server.client().text(&["MGET", "a:1", "a:2", "b"]), "nil nil b");
    assert!(server.stop().success());
    Server::start(directory.path(), &[]);
}

#[test]
fn the_log_can_be_verified_and_dumped() {
    let directory = tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    assert!(run(&["log", "dump", "--data", data]).failed(1).contains("there is no log"));
    let server = Server::start(directory.path(), &[]);
    let mut client = server.client();
    assert_eq!(client.text(&["SET", "caf\u{e9}", "1"]), "OK");
    assert_eq!(client.text(&["HSET", "h", "f", "v"]), "1");
    assert!(server.stop().success());
    let verified = run(&["log", "verify", "--data", data]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    assert!(
        verified.stdout.contains("ended with a clean shutdown")
            && verified.stdout.contains("sound"),
        "{verified:?}"
    );
    let dumped = run(&["log", "dump", "--data", data]);
    assert_eq!(dumped.code, Some(0), "{dumped:?}");
    let lines: Vec<&str> = dumped.stdout.lines().collect();
    let [created, put, hash] = lines[..] else { panic!("{lines:?}") };
    assert!(created.starts_with("1 ") && created.contains("table-created"), "{created}");
    assert!(put.ends_with(r#"put table=0 key="caf\xc3\xa9" value="1""#), "{put}");
    assert!(hash.ends_with(r#"hash-put table=0 key="h" "f"="v""#), "{hash}");
    let rest = run(&["log", "dump", "--data", data, "--from", "3"]).stdout;
    assert_eq!(rest.lines().collect::<Vec<_>>(), [hash]);
}

#[test]
fn help_and_version_end_well() {
    for arguments in [
        &["--help"][..],
        &["serve", "--help"],
        &["check", "-h"],
        &["log", "--help"],
        &["--version"],
    ] {
        let ended = run(arguments);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
        assert!(
            ended.stderr.is_empty() && ended.stdout.contains("busload"),
            "{arguments:?}: {ended:?}"
        );
    }
}

#[test]
fn a_log_in_json_is_an_object_a_line_to_the_last() {
    let mut command = busload();
    command.args(["serve", "--data", "/dev/null/data", "--resp", "127.0.0.1:0", "--http", "none"]);
    command.args(["--log-format", "json"]).env("BUSLOAD_LOG", "debug,busload_io=warn");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let last = lines.last().unwrap();
    assert_eq!(last["level"], "error");
    assert!(last["message"].as_str().unwrap().contains("/dev/null/data"), "{last}");
}
