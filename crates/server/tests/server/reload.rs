//! Reloads of the configuration, by SIGHUP and by `busload reload`: what is applied, what needs a
//! restart, and that no request notices.

mod stores;
mod tables;

use std::{
    fs,
    net::TcpStream,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::support::{
    Client, Ended, Server, busload,
    client::{command, text},
    fixtures,
};

const WIRINGS: [&str; 2] = ["0", "1"];

/// A configuration file, and the directory of a server that was started with it.
struct Configured {
    directory: TempDir,
    file: PathBuf,
}

impl Configured {
    fn new(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("busload.toml");
        let configured = Self { directory, file };
        configured.write(text);
        configured
    }

    fn write(&self, text: &str) {
        fs::write(&self.file, text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    #[track_caller]
    fn start(&self, more: &[&str]) -> Server {
        let config = ["--config", self.file.to_str().unwrap()];
        Server::start(&self.path("d"), &[&config[..], more].concat())
    }

    /// Runs `busload reload` against the server.
    fn reload(&self, server: &Server) -> Ended {
        reload(server, &[])
    }
}

fn reload(server: &Server, more: &[&str]) -> Ended {
    let address = server.address("resp").to_string();
    Ended::of(busload().args(["reload", "--resp", &address]).args(more).output().unwrap())
}

#[track_caller]
fn succeeded(ended: &Ended) -> &str {
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{ended:?}");
    ended.stdout.trim_end()
}

/// Returns the value of a setting.
fn setting(server: &Server, name: &str) -> String {
    let found = server.client().text(&["CONFIG", "GET", name]);
    found.strip_prefix(name).unwrap().trim().to_owned()
}

#[test]
fn limits_are_applied_by_the_command_and_by_the_signal() {
    for wiring in WIRINGS {
        let configured = Configured::new("maxclients = 50\n");
        let mut server = configured.start(&["--net-threads", wiring]);
        assert_eq!(succeeded(&configured.reload(&server)), "nothing has changed");
        configured.write(
            "maxclients = 20\nmemory_max = \"64MiB\"\nclient_reply_bytes = \"1MiB\"\n\
             reply_bytes_total = \"2MiB\"\nrequest_bytes = \"128KiB\"\n",
        );
        let ended = configured.reload(&server);
        let all = "client_reply_bytes, maxclients, memory_max, reply_bytes_total, request_bytes";
        assert_eq!(succeeded(&ended), format!("changed {all}"));
        server.wait_for_text(&format!("reload: changed {all}"));
        for (name, value) in [
            ("maxclients", "20"),
            ("maxmemory", "67108864"),
            ("client-reply-bytes", "1048576"),
            ("reply-bytes-total", "2097152"),
            ("client-query-buffer-limit", "131072"),
        ] {
            assert_eq!(setting(&server, name), value, "{name}");
        }
        let mut client = server.client();
        let mut larger = command(&["SET", "k"]);
        larger[1] = b'3';
        larger.extend_from_slice(b"$200000\r\n");
        client.send(&larger);
        let refused = text(&client.receive().unwrap());
        assert!(refused.starts_with("-ERR Protocol error"), "net has the limit, too: {refused}");
        // The file is no longer what it was at the start: the same again changes nothing.
        assert_eq!(succeeded(&configured.reload(&server)), "nothing has changed");
        configured.write("maxclients = 30\n");
        server.signal(Signal::HUP);
        server.wait_for_text(&format!("reload: changed {all}"));
        assert_eq!(setting(&server, "maxclients"), "30");
        assert!(server.stop().success());
    }
}

#[test]
fn what_needs_a_restart_is_told_each_time_and_the_rest_is_applied() {
    let table = |settings: &str| format!("[tables.a]\nkind = \"memory\"\n{settings}");
    let configured = Configured::new(&format!("maxclients = 50\n{}", table("")));
    let mut server = configured.start(&[]);
    assert_eq!(server.client().text(&["SET", "a:1", "x"]), "OK");
    configured.write("maxclients = 20\nhttp_threads = 2\nsnapshot_cpu = \"11%\"\n");
    let needs = "a restart is needed for http_threads, snapshot_cpu";
    let stays = "table a is not removed: it holds 1 keys; delete them, or drop it with its keys by \
                 a restart with --drop-table a";
    let ended = configured.reload(&server);
    let line = ended.failed(1);
    assert!(line.ends_with(&format!("{stays}; {needs}; changed maxclients")), "{line}");
    assert_eq!(setting(&server, "maxclients"), "20");
    let again = configured.reload(&server);
    assert!(again.failed(1).ends_with(&format!("{stays}; {needs}")), "{again:?}");
    server.signal(Signal::HUP);
    server.wait_for_text(needs);
    assert_eq!(server.client().text(&["GET", "a:1"]), "x");
    configured.write(&format!("maxclients = 51\n{}", table("sync = \"off\"\n")));
    let ended = configured.reload(&server);
    for part in ["maxclients above 50", "table a (sync)"] {
        assert!(ended.failed(1).contains(part), "{ended:?}");
    }
    assert_eq!(setting(&server, "maxclients"), "20");
    assert!(server.stop().success());
}

#[test]
fn durability_and_memory_of_a_memory_table_change_while_it_serves() {
    let table = |settings: &str| format!("[tables.a]\nkind = \"memory\"\n{settings}");
    let configured = Configured::new(&table(""));
    let server = configured.start(&[]);
    let mut client = server.client();
    let shown = |server: &Server| {
        let info = server.client().text(&["INFO", "tables"]);
        let line = info.lines().find(|line| line.starts_with("table_a:"));
        line.unwrap_or_else(|| panic!("{info}")).to_owned()
    };
    assert!(shown(&server).contains("sync=always"), "{}", shown(&server));
    configured.write(&table("sync = \"os\"\nmemory_max = \"64KiB\"\n"));
    assert_eq!(succeeded(&configured.reload(&server)), "changed table a (sync, memory_max)");
    let line = shown(&server);
    assert!(line.contains("sync=os") && line.contains("memory_max=65536"), "{line}");
    let large = "x".repeat(100_000);
    assert_eq!(client.text(&["SET", "b", &large]), "OK");
    assert!(client.text(&["SET", "a:1", &large]).starts_with("-OOM"));
    configured.write(&table("sync = \"interval:5\"\nevict = \"s3-fifo\"\n"));
    let ended = configured.reload(&server);
    let expected = "a restart is needed for table a (evict); changed table a (sync, memory_max)";
    assert!(ended.failed(1).ends_with(expected), "{ended:?}");
    assert!(shown(&server).contains("sync=interval:5"), "{}", shown(&server));
    assert_eq!(client.text(&["SET", "a:1", &large]), "OK");
    configured.write(&table("sync = \"off\"\nmemory_max = \"1GiB\"\n"));
    let ended = configured.reload(&server);
    let expected = "a restart is needed for table a (sync); changed table a (memory_max)";
    assert!(ended.failed(1).ends_with(expected), "{ended:?}");
    assert!(shown(&server).contains("sync=interval:5"), "{}", shown(&server));
    // Two spaces of default are one table.
    configured.write(&format!("{}[tables.default]\nkind = \"memory\"\nsync = \"os\"\n", table("")));
    assert_eq!(
        succeeded(&configured.reload(&server)),
        "changed table default (sync); changed table a (sync, memory_max)"
    );
    assert_eq!(setting(&server, "appendfsync"), "no");
    server.kill();
    // What was written meanwhile is there, and the next start takes the file as it is.
    let server = configured.start(&[]);
    assert_eq!(server.client().text(&["STRLEN", "a:1"]), "100000");
    assert!(server.stop().success());
}

#[test]
fn a_file_with_a_mistake_changes_nothing_and_is_explained() {
    let configured = Configured::new("maxclients = 50\n");
    let mut server = configured.start(&[]);
    for (text, part) in [
        ("maxclients = 20\nmaxclient = 3\n", "did you mean `maxclients`?"),
        ("maxclients = 20\nmemory_max = \"lots\"\n", "expected a size like 2GiB"),
        ("maxclients = 20\n[tables.b]\nkind = \"chunks\"\n", "url is missing"),
        ("maxclients = ", "busload.toml"),
    ] {
        configured.write(text);
        let ended = configured.reload(&server);
        let line = ended.failed(1);
        assert!(line.contains("stays as it was: ") && line.contains(part), "{line}");
        assert_eq!(setting(&server, "maxclients"), "50");
    }
    fs::remove_file(&configured.file).unwrap();
    server.signal(Signal::HUP);
    let line = server.wait_for_text("reload: the configuration stays as it was");
    assert!(line.contains("busload.toml"), "{line}");
    assert_eq!(setting(&server, "maxclients"), "50");
    assert!(server.stop().success());
}

#[test]
fn flags_of_the_start_win_over_the_file_and_config_set_lasts_until_the_file_changes() {
    let configured = Configured::new("maxclients = 50\nmemory_max = \"1GiB\"\n");
    let server = configured.start(&["--maxclients", "40"]);
    configured.write("maxclients = 20\nmemory_max = \"1GiB\"\n");
    assert_eq!(succeeded(&configured.reload(&server)), "nothing has changed");
    assert_eq!(setting(&server, "maxclients"), "40");
    assert_eq!(server.client().text(&["CONFIG", "SET", "maxmemory", "1000000"]), "OK");
    assert_eq!(succeeded(&configured.reload(&server)), "nothing has changed");
    assert_eq!(setting(&server, "maxmemory"), "1000000");
    configured.write("memory_max = \"2GiB\"\n");
    assert_eq!(succeeded(&configured.reload(&server)), "changed memory_max");
    assert_eq!(setting(&server, "maxmemory"), (2_u64 << 30).to_string());
    assert!(server.stop().success());
}

#[test]
fn levels_of_the_log_change_while_the_server_runs() {
    let configured = Configured::new("log_level = \"error\"\n");
    let mut server = configured.start(&[]);
    assert_eq!(succeeded(&configured.reload(&server)), "nothing has changed");
    // The line of this reload is not logged.
    configured.write("log_level = \"info\"\n");
    assert_eq!(succeeded(&configured.reload(&server)), "changed log_level");
    server.wait_for_text("reload: changed log_level");
    let reloads =
        |server: &Server| server.said().iter().filter(|line| line.contains("reload: ")).count();
    assert_eq!(reloads(&server), 1, "{:?}", server.said());
    configured.write("log_level = \"error\"\n");
    assert_eq!(succeeded(&configured.reload(&server)), "changed log_level");
    server.signal(Signal::TERM);
    assert!(server.wait().success());
    assert_eq!(reloads(&server), 1, "{:?}", server.said());
}

fn user(file: &Path, arguments: &[&str], password: &str) {
    let mut command = busload();
    command.arg("user").args(arguments).arg("--acl-file").arg(file);
    let ended = Ended::of(command.env("BUSLOAD_USER_PASSWORD", password).output().unwrap());
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn the_file_of_users_is_read_again_when_it_has_changed_and_only_then() {
    let configured = Configured::new("");
    let users = configured.path("users.acl");
    user(&users, &["add", "ada", "--rules", "allkeys +@all -@admin"], "ADA");
    let server = configured.start(&["--acl-file", users.to_str().unwrap()]);
    let mut ada = server.client();
    assert_eq!(ada.text(&["AUTH", "ada", "ADA"]), "OK");
    let denied = "-NOPERM User ada has no permissions to run the 'config|reload' command";
    assert_eq!(ada.text(&["CONFIG", "RELOAD"]), denied);
    // Users of the memory stay as long as the file does.
    let mut root = server.client();
    assert_eq!(root.text(&["ACL", "SETUSER", "eve", "on", "nopass", "~*", "+@all"]), "OK");
    assert_eq!(succeeded(&configured.reload(&server)), "nothing has changed");
    assert_eq!(root.text(&["ACL", "USERS"]), "ada default eve");
    user(&users, &["add", "bob"], "BOB");
    let mut eve = server.client();
    assert_eq!(eve.text(&["AUTH", "eve", ""]), "OK");
    assert_eq!(succeeded(&configured.reload(&server)), "the users are those of their file");
    assert!(eve.receive().is_err(), "a user who is gone loses its connections");
    assert_eq!(ada.text(&["SET", "k", "v"]), "OK", "others go on");
    assert_eq!(server.client().text(&["AUTH", "bob", "BOB"]), "OK");
    // What ACL LOAD and ACL SAVE have read and written counts as well.
    let before = fs::read_to_string(&users).unwrap();
    fs::write(&users, before.replace("user bob on", "user bob off")).unwrap();
    assert_eq!(root.text(&["ACL", "LOAD"]), "OK");
    assert_eq!(succeeded(&configured.reload(&server)), "nothing has changed");
    fs::write(&users, &before).unwrap();
    assert_eq!(succeeded(&configured.reload(&server)), "the users are those of their file");
    assert_eq!(server.client().text(&["AUTH", "bob", "BOB"]), "OK");
    assert_eq!(root.text(&["ACL", "SETUSER", "bob", "off"]), "OK");
    assert_eq!(root.text(&["ACL", "SAVE"]), "OK");
    fs::write(&users, &before).unwrap();
    assert_eq!(succeeded(&configured.reload(&server)), "the users are those of their file");
    assert_eq!(server.client().text(&["AUTH", "bob", "BOB"]), "OK");
    fs::write(&users, "user ada on >plain\n").unwrap();
    let ended = configured.reload(&server);
    let line = ended.failed(1);
    assert!(line.contains("stays as it was") && line.contains("plain text"), "{line}");
    assert!(!line.contains(">plain"));
    assert_eq!(ada.text(&["GET", "k"]), "v");
    assert!(server.stop().success());
}

#[test]
fn transactions_refuse_it_and_a_password_is_asked_for() {
    let configured = Configured::new("");
    let secret = configured.path("password");
    fs::write(&secret, "hunter2\n").unwrap();
    let server = configured.start(&["--password-file", secret.to_str().unwrap()]);
    assert!(configured.reload(&server).failed(1).contains("another password"));
    let more = ["--password-file", secret.to_str().unwrap()];
    assert_eq!(succeeded(&reload(&server, &more)), "nothing has changed");
    let mut client = server.client();
    assert_eq!(client.text(&["AUTH", "hunter2"]), "OK");
    assert_eq!(client.text(&["MULTI"]), "OK");
    assert!(client.text(&["CONFIG", "RELOAD"]).contains("not allowed inside a transaction"));
    fs::write(&secret, "hunter3\n").unwrap();
    let said = server.client().text(&["AUTH", "hunter2"]);
    assert_eq!(said, "OK");
    let mut client = server.client();
    client.text(&["AUTH", "hunter2"]);
    let said = client.text(&["CONFIG", "RELOAD"]);
    assert_eq!(said, "-ERR a restart is needed for password_file");
    assert!(server.stop().success());
}

/// Commands that a connection under load sends at once.
const PIPELINED: usize = 32;
/// Number of reloads under load.
const RELOADS: u64 = 20;

/// Sends pipelines until told to stop; returns how many replies it checked.
fn load(
    mut client: Client<TcpStream>,
    id: usize,
    chunk: &fixtures::Listed,
    stop: &AtomicBool,
) -> u64 {
    let (key, chunk_key) = (format!("k{id}"), format!("db:{}", chunk.address));
    let mut replies = 0;
    while !stop.load(Ordering::Acquire) {
        let value = replies.to_string();
        let mut requests = command(&["SET", &key, &value]);
        requests.extend(command(&["SET", &format!("t:{key}"), &value]));
        for _ in 0..PIPELINED {
            requests.extend(command(&["GET", &key]));
            requests.extend(command(&["GET", &format!("t:{key}")]));
            requests.extend(command(&["STRLEN", &chunk_key]));
        }
        client.send(&requests);
        for _ in 0..2 {
            assert_eq!(text(&client.receive().unwrap()), "OK");
        }
        for _ in 0..PIPELINED {
            assert_eq!(text(&client.receive().unwrap()), value);
            assert_eq!(text(&client.receive().unwrap()), value);
            assert_eq!(text(&client.receive().unwrap()), chunk.bytes.to_string());
        }
        replies += 2 + 3 * PIPELINED as u64;
    }
    replies
}

#[test]
fn no_request_fails_while_settings_change_under_load() {
    for wiring in WIRINGS {
        let store = fixtures::sound().next().unwrap();
        let (chunk, url) = (fixtures::listed(store).remove(0), fixtures::url(store));
        let file = |number: u64| {
            format!(
                "maxclients = {}\nmemory_max = \"{}MiB\"\nclient_reply_bytes = \"{}MiB\"\n\
                 reply_bytes_total = \"64MiB\"\nrequest_bytes = \"{}MiB\"\nlog_level = \
                 \"{}\"\n[tables.t]\nkind = \"memory\"\nsync = \"{}\"\nmemory_max = \
                 \"{}MiB\"\n[tables.db]\nkind = \"chunks\"\nurl = \
                 \"{url}\"\n",
                100 - number,
                512 + number,
                1 + number,
                1 + number,
                ["info", "debug"][usize::try_from(number % 2).unwrap()],
                ["always", "interval:5", "os"][usize::try_from(number % 3).unwrap()],
                256 + number,
            )
        };
        let configured = Configured::new(&file(0));
        let server = configured.start(&["--net-threads", wiring]);
        let (stop, ended) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            for id in 0..4 {
                let (client, chunk, stop, ended) = (server.client(), &chunk, &stop, &ended);
                scope.spawn(move || {
                    let replies = load(client, id, chunk, stop);
                    assert!(0 < replies);
                    ended.fetch_add(1, Ordering::Relaxed);
                });
            }
            let stopped = StopOnDrop(&stop);
            for number in 1..=RELOADS {
                configured.write(&file(number));
                let said = configured.reload(&server);
                assert!(succeeded(&said).starts_with("changed "), "{said:?}");
                assert_eq!(setting(&server, "maxclients"), (100 - number).to_string());
            }
            drop(stopped);
        });
        assert_eq!(ended.into_inner(), 4, "each connection had every reply");
        assert!(server.stop().success());
    }
}

/// Ends the load also when an assertion fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
