//! Tokens of a file, tokens that Dolt's clients sign, and an endpoint that checks tokens.

#![allow(clippy::disallowed_methods, reason = "tests are at the edge")]

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use busload_io::{Clock, RealClock};
use ring::signature::{Ed25519KeyPair, KeyPair};
use rustix::process::Signal;
use sha2::{Digest, Sha256, Sha512_224};
use tempfile::TempDir;
use tonic::Code;

use crate::{
    access::{Calls, tables},
    support::{Server, run},
};

/// Directory with a password, and perhaps a file of tokens.
struct Kept(TempDir);

impl Kept {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn private(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    #[track_caller]
    fn start(&self, arguments: &[&str]) -> Server {
        let password = self.private("password", "sesame\n");
        let (db, other) = tables();
        let own =
            ["--table", &db, "--table", &other, "--password-file", password.to_str().unwrap()];
        Server::start(&self.0.path().join("d"), &[&own[..], arguments].concat())
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

fn entry(token: &str, read: &str) -> String {
    let hash: String = Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("[[token]]\nname = 'ci'\nsha256 = '{hash}'\nread = ['{read}']\n")
}

/// Encodes as Dolt does.
fn base32(bytes: &[u8]) -> String {
    let mut bits: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
    while !bits.len().is_multiple_of(5) {
        bits.push('0');
    }
    let digit = |bits: &[u8]| {
        let value = u32::from_str_radix(std::str::from_utf8(bits).unwrap(), 2).unwrap();
        char::from_digit(value, 32).unwrap()
    };
    bits.as_bytes().chunks(5).map(digit).collect()
}

/// Makes a token as a client of Dolt does.
fn jwt(pair: &Ed25519KeyPair, audience: &str, alg: &str, valid_s: i64) -> String {
    let kid = base32(&Sha512_224::digest(pair.public_key().as_ref()));
    let expires = RealClock::new().wall_ms() / 1000 + valid_s;
    let header = format!(r#"{{"alg":"{alg}","kid":"{kid}","dolt_token_version":"2023.01"}}"#);
    let subject = format!("doltClientCredentials/{kid}");
    let claims = serde_json::json!({
        "iss": "dolt-client.dolthub.com",
        "sub": subject,
        "aud": [audience],
        "exp": expires,
    });
    let claims = claims.to_string();
    let signed = [header, claims].map(|part| BASE64_URL_SAFE_NO_PAD.encode(part)).join(".");
    let signature = BASE64_URL_SAFE_NO_PAD.encode(pair.sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}

/// Sends a request without a body; returns the status.
fn ask(server: &Server, request: &str, token: &str) -> String {
    let address = server.address("http");
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let head = format!("{request} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    write!(stream, "{head}Authorization: Bearer {token}\r\nContent-Length: 0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().to_owned()
}

#[test]
fn tokens_of_the_file_read_their_stores_and_nothing_else_until_a_reload_takes_them_back() {
    let kept = Kept::new();
    let pair = Ed25519KeyPair::from_seed_unchecked(&[9; 32]).unwrap();
    let key = base32(pair.public_key().as_ref());
    let entries = entry("hush-db", "d*")
        + &entry("hush-other", "other")
        + &format!("[[key]]\npublic_key = '{key}'\nread = ['db']\n");
    let file = kept.private("tokens.toml", &entries);
    let mut server = kept.start(&["--token-file", text(&file), "--log-level", "trace"]);
    let (http, calls) = (server.address("http"), Calls::new());
    let signed = jwt(&pair, "127.0.0.1", "EdDSA", 30);
    for token in ["hush-db", &signed] {
        let credentials = bearer(token);
        assert_eq!(calls.root(http, Some(&credentials)).unwrap(), 20);
        calls.has_chunks(http, Some(&credentials)).unwrap();
        assert!(!calls.list_table_files(http, "db", Some(&credentials)).unwrap().is_empty());
        let refused = |table| calls.list_table_files(http, table, Some(&credentials)).unwrap_err();
        let (hidden, missing) = (refused("other"), refused("nowhere"));
        assert_eq!((hidden.code(), missing.code()), (Code::NotFound, Code::NotFound));
        assert_eq!(hidden.message().replace("other", "nowhere"), missing.message());
        assert_eq!(ask(&server, "POST /api/stores/db/refresh", token), "200");
        assert_eq!(ask(&server, "POST /api/stores/other/refresh", token), "404");
        for path in ["GET /metrics", "GET /api/stats", "GET /costs", "POST /api/events/s3"] {
            assert_eq!(ask(&server, path, token), "403", "{path}");
        }
    }
    for wrong in [
        "hush-no".to_owned(),
        jwt(&pair, "elsewhere", "EdDSA", 30),
        jwt(&pair, "127.0.0.1", "EdDSA", -120),
        jwt(&pair, "127.0.0.1", "HS256", 30),
    ] {
        let refused = calls.root(http, Some(&bearer(&wrong))).unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    }
    let missing = calls.root(http, None).unwrap_err();
    assert_eq!(missing.code(), Code::Unauthenticated);
    assert!(missing.message().contains("dolt creds use"), "{missing}");
    calls.root(http, Some("Bearer ada:sesame")).unwrap();
    assert!(calls.has_chunks(http, Some(&bearer("hush-other"))).is_err());

    kept.private("tokens.toml", &entry("hush-other", "other"));
    server.signal(Signal::HUP);
    server.wait_for_text("the tokens are those of their file");
    for token in ["hush-db", &jwt(&pair, "127.0.0.1", "EdDSA", 30)] {
        let refused = calls.root(http, Some(&bearer(token))).unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    }
    assert!(!server.said().iter().any(|line| line.contains("hush")), "a token is in the log");
}

/// Answers every request with this status and body; returns the URL and a count of requests.
fn endpoint(status: &'static str, body: &'static str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/check", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    thread::spawn(move || {
        for socket in listener.incoming() {
            let (mut socket, mut request, mut piece) = (socket.unwrap(), Vec::new(), [0; 4096]);
            while !request.ends_with(b"}") {
                let length = socket.read(&mut piece).unwrap();
                request.extend_from_slice(&piece[..length]);
            }
            counted.fetch_add(1, Relaxed);
            let length = body.len();
            write!(
                socket,
                "HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
            )
            .unwrap();
        }
    });
    (url, count)
}

#[test]
fn an_endpoint_is_asked_once_for_a_token_and_a_store() {
    let kept = Kept::new();
    let (url, count) = endpoint("200", r#"{"read": ["d*"], "ttl_seconds": 600}"#);
    let server = kept.start(&["--token-url", &url]);
    let http = server.address("http");
    let root = || Calls::new().root(http, Some("Bearer opaque"));
    thread::scope(|scope| {
        let asking: Vec<_> = (0..8).map(|_| scope.spawn(root)).collect();
        asking.into_iter().for_each(|one| assert_eq!(one.join().unwrap().unwrap(), 20));
    });
    assert_eq!(count.load(Relaxed), 1);
    let refused = Calls::new().list_table_files(http, "other", Some("Bearer opaque")).unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    assert_eq!(count.load(Relaxed), 2);
}

#[test]
fn an_endpoint_that_is_down_lets_nobody_in() {
    let kept = Kept::new();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = kept.start(&["--token-url", &format!("http://{nobody}/")]);
    let refused = Calls::new().root(server.address("http"), Some("Bearer opaque")).unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    let (url, _) = endpoint("401", "");
    let server = Kept::new().start(&["--token-url", &url]);
    let refused = Calls::new().root(server.address("http"), Some("Bearer opaque")).unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
}

/// Behind one router with somebody who guesses, good tokens were once refused like the guesses.
#[test]
fn a_good_token_passes_whatever_others_at_its_address_have_sent() {
    let kept = Kept::new();
    let pair = Ed25519KeyPair::from_seed_unchecked(&[9; 32]).unwrap();
    let key = base32(pair.public_key().as_ref());
    let entries = entry("good", "db") + &format!("[[key]]\npublic_key = '{key}'\nread = ['db']\n");
    let file = kept.private("tokens.toml", &entries);
    let (url, count) = endpoint("200", r#"{"allowed": true, "ttl_seconds": 600}"#);
    let server = kept.start(&["--token-file", text(&file), "--token-url", &url]);
    let refresh = |token: &str| ask(&server, "POST /api/stores/db/refresh", token);
    assert_eq!(refresh("known"), "200");
    let wrong = jwt(&pair, "elsewhere", "EdDSA", 30);
    let blocked = (0..100).any(|_| refresh(&wrong) == "429");
    assert!(blocked, "guesses are slowed down");
    // Time passes, which may earn the address a guess: then the fresh token is asked about.
    for token in ["good", "known", &jwt(&pair, "127.0.0.1", "EdDSA", 30)] {
        (0..20).for_each(|_| while refresh(&wrong) != "429" {});
        assert_eq!(refresh(token), "200", "{token}");
    }
    let asked = count.load(Relaxed);
    let is_refused = (0..100).any(|number| {
        while refresh(&wrong) != "429" {}
        refresh(&format!("fresh{number}")) == "429"
    });
    assert!(is_refused, "the endpoint is not asked about every guess");
    assert_eq!(asked, 1, "about known");
}

#[test]
fn a_token_that_was_added_is_shown_once_and_reads_its_stores() {
    let kept = Kept::new();
    let file = kept.private("tokens.toml", "# ours\n");
    let added = run(&["token", "add", "ci", "--stores", "d*", "--token-file", text(&file)]);
    let token = added.stdout.trim();
    assert_eq!((added.code, token.len()), (Some(0), 64), "{added:?}");
    assert!(added.stderr.contains("busload reload") && !added.stderr.contains(token));
    let kept_text = fs::read_to_string(&file).unwrap();
    assert!(kept_text.starts_with("# ours\n") && !kept_text.contains(token), "{kept_text}");
    let server = kept.start(&["--token-file", text(&file)]);
    assert_eq!(ask(&server, "POST /api/stores/db/refresh", token), "200");
    assert_eq!(ask(&server, "POST /api/stores/other/refresh", token), "404");
    let again = run(&["token", "add", "ci", "--stores", "d*", "--token-file", text(&file)]);
    assert!(again.failed(2).contains("is in"), "{again:?}");
}

#[test]
fn settings_that_would_protect_nothing_are_refused() {
    let kept = Kept::new();
    let file = kept.private("tokens.toml", "");
    let refused = run(&["serve", "--token-file", text(&file)]);
    assert!(refused.failed(2).contains("protect nothing"), "{refused:?}");
    let refused = run(&["serve", "--token-audience", "cache.internal"]);
    assert!(refused.failed(2).contains("no effect"), "{refused:?}");
}
