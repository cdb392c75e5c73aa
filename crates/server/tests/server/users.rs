//! Users in a file: `busload user`, the server with them on every front, and what each may.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Stdio,
};

use crate::{
    access::{Calls, basic, tables},
    support::{Client, Ended, Server, busload, eventually, run},
};
use tempfile::TempDir;
use tonic::Code;

const NO_KEY: &str = "-NOPERM No permissions to access a key";
const WRONGPASS: &str = "-WRONGPASS invalid username-password pair or user is disabled.";

/// Directory with a file of users.
struct Kept {
    directory: TempDir,
    file: PathBuf,
}

impl Kept {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("users.acl");
        Self { directory, file }
    }

    /// Runs `busload user` with this line on its standard input.
    fn user(&self, arguments: &[&str], input: &str) -> Ended {
        let mut command = busload();
        command.arg("user").args(arguments).arg("--acl-file").arg(&self.file);
        command.env_remove("BUSLOAD_USER_PASSWORD");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that asks for no password may have ended already.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        Ended::of(child.wait_with_output().unwrap())
    }

    /// Adds a user whose password is its name in capital letters.
    #[track_caller]
    fn add(&self, name: &str, rules: &str) {
        let ended = self.user(&["add", name, "--rules", rules], &format!("{}\n", password(name)));
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.file).unwrap()
    }

    #[track_caller]
    fn start(&self, arguments: &[&str]) -> Server {
        let file = ["--acl-file", self.file.to_str().unwrap()];
        Server::start(&self.directory.path().join("d"), &[&file[..], arguments].concat())
    }
}

fn password(name: &str) -> String {
    name.to_uppercase()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Sends a request; returns the status and the body.
fn ask(address: SocketAddr, target: &str, authorization: Option<&str>) -> (String, String) {
    request(address, "GET", target, authorization)
}

fn request(
    address: SocketAddr,
    method: &str,
    target: &str,
    authorization: Option<&str>,
) -> (String, String) {
    let authorization =
        authorization.map_or(String::new(), |text| format!("Authorization: {text}\r\n"));
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("{method} {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    write!(stream, "{head}{authorization}\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().to_owned(), body.to_owned())
}

#[test]
fn the_tool_keeps_a_private_file_of_hashes_and_leaves_other_lines_alone() {
    let kept = Kept::new();
    kept.add("ada", "~sessions:* +@read");
    assert_eq!(mode(&kept.file), 0o600);
    let text = kept.text();
    assert!(text.starts_with("user ada on #$argon2id$v=19$m=19456,t=2,p=1$"), "{text}");
    assert!(text.ends_with(" ~sessions:* resetchannels -@all +@read\n"), "{text}");
    assert!(!text.contains("ADA"));
    fs::write(&kept.file, format!("# people\n\n{text}")).unwrap();
    let ended = kept.user(&["add", "bob"], "secret\r\n");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("ACL LOAD"), "{ended:?}");
    assert!(
        kept.text().starts_with(&format!("# people\n\n{text}user bob on #")),
        "{}",
        kept.text()
    );
    let list = kept.user(&["list"], "").stdout;
    assert_eq!(
        list,
        "user ada on ~sessions:* resetchannels -@all +@read (1 password)\n\
         user bob on ~* resetchannels +@all -@admin -@dangerous (1 password)\n"
    );
    let ended = kept.user(&["passwd", "ada"], "another\n");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!kept.text().contains(text.trim_end()), "another hash");
    assert_eq!(kept.user(&["remove", "bob"], "").code, Some(0));
    assert!(!kept.text().contains("bob") && kept.text().starts_with("# people\n\nuser ada on #"));
}

#[test]
fn mistakes_of_the_tool_are_explained_and_change_nothing() {
    let kept = Kept::new();
    kept.add("ada", "+@read");
    let before = kept.text();
    for (arguments, input, part) in [
        (&["add", "ada"][..], "x\n", "is in"),
        (&["add", "a:b"], "x\n", "colon"),
        (&["add", "bob", "--rules", "+nope"], "x\n", "'+nope': Unknown command"),
        (&["add", "bob", "--rules", "on >secret"], "x\n", "seen by everybody"),
        (&["add", "bob", "--rules", "~a*b"], "x\n", "Key patterns here"),
        (&["add", "bob"], "\n", "empty password"),
        (&["passwd", "nobody"], "x\n", "no user nobody"),
        (&["remove", "nobody"], "", "no user nobody"),
        (&["remove", "default"], "", "may do everything"),
    ] {
        let ended = kept.user(arguments, input);
        let line = ended.failed(2);
        assert!(line.contains(part) && !line.contains("secret"), "{arguments:?}: {line}");
        assert_eq!(kept.text(), before, "{arguments:?}");
    }
    let no_file = run(&["user", "list"]);
    assert!(no_file.failed(2).contains("--acl-file FILE"), "{no_file:?}");
    fs::write(&kept.file, "user ada on >plain\n").unwrap();
    let ended = kept.user(&["list"], "");
    assert!(ended.failed(2).contains("line 1") && !ended.stderr.contains(">plain"), "{ended:?}");
    let data = kept.directory.path().join("d");
    let file = kept.file.to_str().unwrap();
    let refused = run(&["serve", "--data", data.to_str().unwrap(), "--acl-file", file]);
    assert!(refused.failed(2).contains("plain text"), "{refused:?}");
    let missing = kept.directory.path().join("nothing");
    let refused = run(&["serve", "--acl-file", missing.to_str().unwrap()]);
    assert!(refused.failed(2).contains("cannot read the file of users"), "{refused:?}");
    let refused = run(&["serve", "--resp", "0.0.0.0:0", "--acl-file", file]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
}

fn works_with_net_threads(count: &str) {
    let kept = Kept::new();
    kept.add("ada", "~sessions:* +@all -@dangerous");
    kept.add("root", "allkeys +@all");
    let server = kept.start(&["--net-threads", count]);
    let mut ada = server.client();
    assert_eq!(ada.text(&["AUTH", "ada", "wrong"]), WRONGPASS);
    assert_eq!(ada.text(&["AUTH", "ada", "ADA"]), "OK");
    assert_eq!(ada.text(&["ACL", "WHOAMI"]), "ada");
    assert_eq!(ada.text(&["SET", "sessions:1", "x"]), "OK");
    assert_eq!(ada.text(&["GET", "other"]), NO_KEY);
    let info = ada.text(&["INFO"]);
    assert_eq!(info, "-NOPERM User ada has no permissions to run the 'info' command");
    let mut root = server.client();
    assert_eq!(root.text(&["AUTH", "root", "ROOT"]), "OK");
    assert!(root.text(&["CLIENT", "LIST"]).contains("user=ada"));
    assert_eq!(root.text(&["ACL", "SETUSER", "eve", "on", ">secret", "~e:*", "+@read"]), "OK");
    assert_eq!(root.text(&["ACL", "SAVE"]), "OK");
    assert!(kept.text().contains("user eve on #$argon2id$") && !kept.text().contains("secret"));
    assert_eq!(mode(&kept.file), 0o600);
    assert_eq!(kept.user(&["remove", "ada"], "").code, Some(0));
    assert_eq!(root.text(&["ACL", "LOAD"]), "OK");
    assert!(ada.receive().is_err(), "a user who is gone loses its connections");
    let mut eve = server.client();
    assert_eq!(eve.text(&["HELLO", "2", "AUTH", "eve", "wrong"]), WRONGPASS);
    assert!(eve.text(&["HELLO", "2", "AUTH", "eve", "secret"]).starts_with("server redis"));
    assert_eq!(eve.text(&["GET", "e:1"]), "nil");
    assert_eq!(root.text(&["ACL", "SETUSER", "eve", "off"]), "OK");
    assert!(eve.receive().is_err(), "as does one who is switched off");
    assert!(server.stop().success());
    let server = kept.start(&[]);
    assert_eq!(server.client().text(&["AUTH", "eve", "secret"]), "OK");
}

#[test]
fn users_of_the_file_log_in_and_changes_are_saved_and_loaded() {
    works_with_net_threads("0");
}

#[test]
fn users_of_the_file_log_in_where_sockets_have_a_thread() {
    works_with_net_threads("1");
}

#[test]
fn many_clients_of_one_user_log_in_at_once() {
    const CLIENTS: usize = 300;
    let kept = Kept::new();
    kept.add("ada", "allkeys +@all");
    let server = kept.start(&[]);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.client()).collect();
    for client in &mut clients {
        client.send(&crate::support::client::command(&["AUTH", "ada", "ADA"]));
        client.send(&crate::support::client::command(&["ACL", "WHOAMI"]));
    }
    for client in &mut clients {
        let replies = [client.receive().unwrap(), client.receive().unwrap()];
        assert_eq!(replies.map(|reply| crate::support::client::text(&reply)), ["OK", "ada"]);
    }
}

#[test]
fn guesses_at_a_user_are_limited_also_for_one_who_has_logged_in() {
    let kept = Kept::new();
    kept.add("ada", "+@all");
    kept.add("root", "allkeys +@all");
    let server = kept.start(&[]);
    let mut client = server.client();
    assert_eq!(client.text(&["AUTH", "ada", "ADA"]), "OK");
    let mut wrong = 0;
    eventually("no more guesses are looked at", || {
        let reply = client.text(&["AUTH", "root", &format!("guess {wrong}")]);
        wrong += usize::from(reply == WRONGPASS);
        reply.starts_with("-ERR too many wrong passwords")
    });
    assert!((1..100).contains(&wrong), "{wrong}");
}

#[test]
fn http_asks_for_the_same_users_and_each_path_for_a_right() {
    let kept = Kept::new();
    kept.add("reader", "%R~db:* +get");
    kept.add("writer", "%W~db:* +@all");
    kept.add("metrics", "+info");
    kept.add("root", "allkeys +@all");
    kept.add("default", "off");
    let (db, other) = tables();
    let server = kept.start(&["--table", &db, "--table", &other]);
    let http = server.address("http");
    let credentials = |name: &str| basic(name, &password(name));
    for (target, user, status) in [
        ("/healthz", None, "200"),
        ("/metrics", None, "401"),
        ("/metrics", Some("nobody"), "401"),
        ("/metrics", Some("reader"), "403"),
        ("/metrics", Some("metrics"), "200"),
        ("/metrics", Some("root"), "200"),
        ("/api/stats", Some("metrics"), "403"),
        ("/api/stats", Some("writer"), "403"),
        ("/api/stats", Some("root"), "200"),
        ("/", Some("root"), "200"),
        ("/", Some("reader"), "403"),
        ("/api/cache", Some("metrics"), "200"),
        ("/nothing", Some("reader"), "404"),
        ("/nothing", None, "401"),
    ] {
        let authorization = user.map(credentials);
        let (answer, body) = ask(http, target, authorization.as_deref());
        assert_eq!(answer, status, "{target} {user:?}: {body}");
        assert!(status != "403" || body.contains("has no right to this"), "{body}");
    }
    let refresh = |table: &str, user: Option<&str>| {
        let target = format!("/api/stores/{table}/refresh");
        request(http, "POST", &target, user.map(credentials).as_deref()).0
    };
    assert_eq!(refresh("db", Some("reader")), "200", "who may read a store may hint at it");
    assert_eq!(refresh("other", Some("reader")), "403");
    assert_eq!(refresh("db", Some("writer")), "403");
    assert_eq!(refresh("db", None), "401");
    assert_eq!(request(http, "POST", "/api/events/s3", None).0, "401");
    assert_eq!(ask(http, "/metrics", Some("Bearer metrics:METRICS")).0, "200");
    assert_eq!(ask(http, "/metrics", Some("Bearer metrics:wrong")).0, "401");
    assert_eq!(ask(http, "/metrics", Some(&basic("metrics", "wrong"))).0, "401");

    let calls = Calls::new();
    let code = |user: &str| calls.has_chunks(http, Some(&credentials(user))).map_err(|e| e.code());
    assert_eq!(code("reader"), Ok(vec![0]));
    assert_eq!(code("root"), Ok(vec![0]));
    for user in ["writer", "metrics"] {
        assert_eq!(code(user), Err(Code::PermissionDenied), "{user}");
    }
    assert_eq!(calls.has_chunks(http, None).unwrap_err().code(), Code::Unauthenticated);
    assert_eq!(calls.root(http, Some(&credentials("reader"))).unwrap(), 20);
    let bearer = "Bearer reader:READER";
    let urls = calls.list_table_files(http, "db", Some(bearer)).unwrap();
    let refused = calls.list_table_files(http, "other", Some(bearer)).unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("+get and %R~other:*"), "{refused}");
    // Downloads need no credentials but the key, which has a time and holds for one table.
    let base = format!("http://{http}");
    let target = urls[0].strip_prefix(&base).unwrap();
    assert_eq!(ask(http, target, None).0, "200");
    let (path, key) = target.split_once("?key=").unwrap();
    let (expires, mac) = key.split_once('.').unwrap();
    let expires: u64 = expires.parse().unwrap();
    for wrong in [format!("{}.{mac}", expires + 10_800), format!("1.{mac}"), mac.to_owned()] {
        assert_eq!(ask(http, &format!("{path}?key={wrong}"), None).0, "403", "{wrong}");
    }
    assert_eq!(ask(http, path, None).0, "403");
    // A change of a user holds at once.
    let mut root = server.client();
    assert_eq!(root.text(&["AUTH", "root", "ROOT"]), "OK");
    assert_eq!(root.text(&["ACL", "SETUSER", "reader", "resetkeys"]), "OK");
    assert_eq!(code("reader"), Err(Code::PermissionDenied));
    assert_eq!(root.text(&["ACL", "DELUSER", "reader"]), "1");
    assert_eq!(code("reader"), Err(Code::Unauthenticated));
}

#[test]
fn where_default_needs_no_password_it_is_who_sends_no_credentials() {
    let kept = Kept::new();
    kept.add("default", "nopass %R~db:* +get");
    kept.add("root", "allkeys +@all");
    let (db, other) = tables();
    let server = kept.start(&["--table", &db, "--table", &other]);
    let (http, calls) = (server.address("http"), Calls::new());
    assert_eq!(ask(http, "/metrics", None).0, "403");
    assert_eq!(ask(http, "/metrics", Some(&basic("root", "ROOT"))).0, "200");
    let urls = calls.list_table_files(http, "db", None).unwrap();
    let target = urls[0].strip_prefix(&format!("http://{http}")).unwrap();
    assert_eq!(ask(http, target, None).0, "200");
    assert_eq!(ask(http, target.split_once('?').unwrap().0, None).0, "403", "only with its key");
    let refused = calls.list_table_files(http, "other", None).unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let mut client: Client<_> = server.client();
    assert_eq!(
        client.text(&["SET", "x", "y"]),
        "-NOPERM User default has no permissions to run the \
                                                 'set' command"
    );
}

#[test]
fn commands_log_in_as_the_user_of_the_environment() {
    let kept = Kept::new();
    kept.add("root", "allkeys +@all");
    kept.add("reader", "~a:* +@read");
    kept.add("default", "off");
    let server = kept.start(&[]);
    let ask = |words: &[&str], user: Option<&str>, password: &str| {
        let mut command = busload();
        command.args(words).env("BUSLOAD_PASSWORD", password);
        user.map(|user| command.env("BUSLOAD_USER", user));
        for front in ["resp", "http"] {
            command.arg(format!("--{front}")).arg(server.address(front).to_string());
        }
        Ended::of(command.output().unwrap())
    };
    for words in [&["top", "--once"][..], &["snapshot"]] {
        let ended = ask(words, Some("root"), "ROOT");
        assert_eq!(ended.code, Some(0), "{ended:?}");
        for (user, password, named) in
            [(Some("root"), "wrong", "`root`"), (None, "ROOT", "`default`")]
        {
            let ended = ask(words, user, password);
            let line = ended.failed(1);
            assert!(line.contains(named) && line.contains("BUSLOAD_USER"), "{line}");
        }
        let ended = ask(words, Some("reader"), "READER");
        assert_eq!(ended.code, Some(1), "{ended:?}");
    }
}
