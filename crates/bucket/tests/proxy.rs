//! Every fault as a client sees it on the wire, and the requests that the proxy records.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
#![allow(clippy::disallowed_methods, reason = "what is tested takes real time")]

use std::{
    collections::HashMap,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use busload_bucket::{Bucket, Fault, FaultProxy, Faults, Rule, Seen};
use tempfile::TempDir;

/// Waiting time for events that must not happen: long enough to notice most of them on a slow
/// machine.
const SILENCE: Duration = Duration::from_millis(300);
/// Timeout for events that must happen.
const TIMEOUT: Duration = Duration::from_secs(60);

struct Setup {
    _root: TempDir,
    bucket: Bucket,
    proxy: FaultProxy,
    whole: Vec<u8>,
}

fn start() -> Setup {
    let root = TempDir::new().unwrap();
    let bucket = Bucket::start(root.path()).unwrap();
    let whole: Vec<u8> =
        (0..1_000_000u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    bucket.put("object", &whole).unwrap();
    let proxy = FaultProxy::start(bucket.address(), 7, Faults::default()).unwrap();
    Setup { _root: root, bucket, proxy, whole }
}

impl Setup {
    fn rule(&self, rule: Rule) {
        self.proxy.set(Faults { rules: vec![rule], ..Faults::default() });
    }

    fn get(&self, range: &str) -> Response {
        Client::connect(self.proxy.address()).get("/bucket/object", range)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Whole,
    Closed,
    Reset,
    Silent,
}

#[derive(Debug)]
struct Response {
    status: u16,
    headers: HashMap<String, String>,
    body: Vec<u8>,
    end: End,
}

struct Client(TcpStream);

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self(socket)
    }

    fn get(&mut self, path: &str, range: &str) -> Response {
        let range =
            if range.is_empty() { String::new() } else { format!("Range: bytes={range}\r\n") };
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{range}\r\n"))
    }

    fn send(&mut self, request: &str) -> Response {
        self.ask(request, usize::MAX)
    }

    /// Reads at most `bytes_max` bytes of the body.
    fn ask(&mut self, request: &str, bytes_max: usize) -> Response {
        self.0.write_all(request.as_bytes()).unwrap();
        let mut head = Vec::new();
        let mut response =
            Response { status: 0, headers: HashMap::new(), body: Vec::new(), end: End::Whole };
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            match self.0.read(&mut byte) {
                Ok(1) => head.push(byte[0]),
                Ok(_) => return Response { end: End::Closed, ..response },
                Err(error) => return Response { end: why(&error), ..response },
            }
        }
        let head = String::from_utf8(head).unwrap();
        response.status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let headers = head.lines().skip(1).filter_map(|line| line.split_once(": "));
        response.headers =
            headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let has_body = !request.starts_with("HEAD") && response.status != 304;
        let length = if has_body { response.headers["content-length"].parse().unwrap() } else { 0 };
        let wanted = length.min(bytes_max);
        while response.body.len() < wanted {
            let mut buffer = vec![0; wanted - response.body.len()];
            match self.0.read(&mut buffer) {
                Ok(0) => return Response { end: End::Closed, ..response },
                Ok(bytes) => response.body.extend_from_slice(&buffer[..bytes]),
                Err(error) => return Response { end: why(&error), ..response },
            }
        }
        response
    }
}

fn why(error: &io::Error) -> End {
    match error.kind() {
        io::ErrorKind::ConnectionReset => End::Reset,
        io::ErrorKind::WouldBlock => End::Silent,
        _ => panic!("unexpected: {error}"),
    }
}

#[test]
fn without_faults_it_is_not_there() {
    let setup = start();
    let mut client = Client::connect(setup.proxy.address());
    for _ in 0..3 {
        let response = client.get("/bucket/object", "10-19");
        assert_eq!((response.status, &*response.body), (206, &setup.whole[10..20]));
        assert_eq!(response.headers["content-range"], "bytes 10-19/1000000");
    }
    let etag = client.get("/bucket/object", "").headers["etag"].clone();
    let head = client.send("HEAD /bucket/object HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!((head.status, &*head.headers["content-length"]), (200, "1000000"));
    let same = client.send(&format!(
        "GET /bucket/object HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: {etag}\r\n\r\n"
    ));
    assert_eq!((same.status, &same.headers["etag"]), (304, &etag));
    let put =
        client.send("PUT /bucket/new HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(put.status, 200);
    assert_eq!(client.get("/bucket/new", "").body, b"abc");
    assert_eq!(client.get("/bucket/absent", "").status, 404);
}

#[test]
fn what_was_seen_is_there_before_the_client_has_it_all() {
    let setup = start();
    let mut client = Client::connect(setup.proxy.address());
    for round in 1..=50 {
        client.get("/bucket/object", "5-");
        assert_eq!(setup.proxy.seen().len(), round);
    }
    let seen = |range, bytes, status, path: &str| Seen {
        method: "GET".into(),
        path: path.into(),
        range,
        bytes,
        status,
    };
    assert_eq!(setup.proxy.seen()[0], seen(Some(5..1_000_000), 999_995, 206, "/bucket/object"));
    setup.proxy.forget();
    client.get("/bucket/object?x=1", "-7");
    client.get("/bucket/object", "");
    client.get("/bucket/object", "2000000-2000001");
    let all = setup.proxy.seen();
    assert_eq!(all[0], seen(Some(999_993..1_000_000), 7, 206, "/bucket/object?x=1"));
    assert_eq!(all[1], seen(None, 1_000_000, 200, "/bucket/object"));
    assert_eq!((all[2].status, all[2].range.clone()), (416, Some(2_000_000..2_000_002)));
}

#[test]
fn a_stall_sends_so_much_and_then_nothing() {
    let setup = start();
    setup.rule(Rule::times(1, Fault::Stall(300_000)));
    let mut client = Client::connect(setup.proxy.address());
    let response = client.ask("GET /bucket/object HTTP/1.1\r\nHost: localhost\r\n\r\n", 300_000);
    assert_eq!((response.status, response.end), (200, End::Whole));
    assert_eq!(response.headers["content-length"], "1000000");
    assert!(response.body == setup.whole[..300_000]);
    client.0.set_read_timeout(Some(SILENCE)).unwrap();
    let more = client.0.read(&mut [0]).map_err(|error| why(&error));
    assert!(matches!(more, Err(End::Silent)), "{more:?}");
    assert_eq!(setup.get("").body.len(), 1_000_000, "once");
}

#[test]
fn a_truncation_looks_whole() {
    let setup = start();
    setup.rule(Rule::times(1, Fault::Truncate(100)));
    let mut client = Client::connect(setup.proxy.address());
    let response = client.get("/bucket/object", "0-999");
    assert_eq!(
        (response.status, &response.headers["content-range"][..]),
        (206, "bytes 0-999/1000000")
    );
    assert_eq!((response.body.len(), response.end), (100, End::Whole));
    assert!(
        client.get("/bucket/object", "0-999").body == setup.whole[..1000],
        "the connection serves on"
    );
}

#[test]
fn a_reset_is_one() {
    let setup = start();
    for bytes in [0, 1, 400_000] {
        setup.rule(Rule::times(1, Fault::Reset(bytes as u64)));
        let response = setup.get("");
        assert_eq!(response.end, End::Reset);
        assert!(setup.whole.starts_with(&response.body) && response.body.len() <= bytes, "{bytes}");
        assert_eq!(setup.proxy.seen().last().unwrap().bytes, bytes as u64);
    }
}

#[test]
fn one_bit_of_the_byte_is_flipped() {
    let setup = start();
    for at in [0, 999_999, 1_500_000, 300_000] {
        setup.rule(Rule::times(1, Fault::Flip(at)));
        let body = setup.get("").body;
        let differing: Vec<_> =
            (0..body.len()).filter(|index| body[*index] != setup.whole[*index]).collect();
        let at = usize::try_from(at).unwrap() % body.len();
        assert_eq!(differing, [at]);
        assert_eq!((body[at] ^ setup.whole[at]).count_ones(), 1);
    }
}

#[test]
fn a_status_comes_with_the_document_of_s3() {
    let setup = start();
    for (status, code) in
        [(503, "SlowDown"), (500, "InternalError"), (404, "NoSuchKey"), (403, "AccessDenied")]
    {
        setup.rule(Rule::times(1, Fault::Status(status)));
        let response = setup.get("0-9");
        assert_eq!(response.status, status);
        assert!(
            String::from_utf8(response.body).unwrap().contains(&format!("<Code>{code}</Code>"))
        );
    }
}

#[test]
fn ranges_can_be_ignored_wrong_and_lied_about() {
    let setup = start();
    setup.rule(Rule::times(2, Fault::WholeForRange));
    assert_eq!(
        Client::connect(setup.proxy.address()).get("/bucket/object", "").status,
        200,
        "not counted"
    );
    for _ in 0..2 {
        let response = setup.get("10-19");
        assert_eq!((response.status, response.body.len()), (200, 1_000_000));
        assert!(!response.headers.contains_key("content-range"));
    }
    for range in
        ["0-9", "500-999", "999000-999999", "0-999999", "900000-", "-5000", "999999-999999"]
    {
        setup.rule(Rule::times(1, Fault::WrongRange));
        let wrong = setup.get(range);
        let right = setup.get(range);
        assert_eq!(wrong.status, 206);
        assert_ne!(wrong.headers["content-range"], right.headers["content-range"], "{range}");

        setup.rule(Rule::times(1, Fault::LyingRange));
        let lie = setup.get(range);
        assert_eq!(lie.headers["content-range"], right.headers["content-range"], "{range}");
        assert_eq!(lie.body.len(), right.body.len(), "{range}");
        assert!(lie.body != right.body, "{range}");
    }
    // Where other bytes exist, WrongRange sends what it says.
    setup.rule(Rule::times(1, Fault::WrongRange));
    let wrong = setup.get("500-999");
    let first: usize =
        wrong.headers["content-range"][6..].split('-').next().unwrap().parse().unwrap();
    assert!(first < 500 && wrong.body == setup.whole[first..first + 500]);
}

#[test]
fn an_etag_is_replaced() {
    let setup = start();
    let right = setup.get("").headers["etag"].clone();
    setup.rule(Rule::times(1, Fault::OtherEtag));
    assert_ne!(setup.get("").headers["etag"], right);
    assert_eq!(setup.get("").headers["etag"], right);
}

#[test]
fn half_a_listing_is_missing() {
    let setup = start();
    for index in 0..9 {
        setup.bucket.put(&format!("l/{index}"), b"").unwrap();
    }
    setup.rule(Rule::times(1, Fault::HalfListing));
    let mut client = Client::connect(setup.proxy.address());
    client.get("/bucket/object", "");
    let half = client.get("/bucket/?list-type=2&prefix=l%2F", "");
    let text = String::from_utf8(half.body).unwrap();
    let keys: Vec<_> = text.split("<Key>").skip(1).map(|rest| &rest[..3]).collect();
    assert_eq!(keys, ["l/0", "l/2", "l/4", "l/6", "l/8"]);
    let whole = client.get("/bucket/?list-type=2&prefix=l%2F", "");
    assert_eq!(String::from_utf8(whole.body).unwrap().matches("<Key>").count(), 9);
}

#[test]
fn no_answer_is_none() {
    let setup = start();
    setup.rule(Rule::times(20, Fault::NoAnswer));
    let ends: Vec<_> =
        (0..20).map(|_| setup.get("")).map(|response| (response.status, response.end)).collect();
    assert!(ends.iter().all(|(status, _)| *status == 0));
    assert!(
        ends.contains(&(0, End::Closed)) && ends.contains(&(0, End::Reset)),
        "both kinds: {ends:?}"
    );
    assert_eq!(setup.proxy.seen().last().unwrap().status, 0);
}

#[test]
fn first_bytes_are_delayed_and_bodies_slow() {
    let setup = start();
    let first_byte = Duration::from_millis(50);
    let jitter = Duration::from_millis(20);
    setup.proxy.set(Faults { first_byte, jitter, bandwidth: 2_000_000, ..Faults::default() });
    let started = Instant::now();
    assert!(setup.get("0-99999").body == setup.whole[..100_000]);
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(30 + 45), "{took:?}");

    let rules = vec![Rule::times(1, Fault::Delay(Duration::from_millis(200)))];
    setup.proxy.set(Faults { rules, ..Faults::default() });
    let started = Instant::now();
    setup.get("0-9");
    assert!(started.elapsed() >= Duration::from_millis(200));
}

#[test]
fn responses_share_a_line() {
    let setup = start();
    setup.proxy.set(Faults { line: 400_000, ..Faults::default() });
    let started = Instant::now();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(setup.get("0-49999").body == setup.whole[..50_000]));
        }
    });
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(490), "200,000 bytes at 400,000 a second: {took:?}");
}

#[test]
fn many_wait_at_the_same_time() {
    let setup = start();
    setup.proxy.set(Faults { first_byte: Duration::from_millis(500), ..Faults::default() });
    let started = Instant::now();
    thread::scope(|scope| {
        for _ in 0..200 {
            scope.spawn(|| assert_eq!(setup.get("0-9").body.len(), 10));
        }
    });
    assert!(
        started.elapsed() < Duration::from_secs(50),
        "200 times half a second, one after the other, is 100 s"
    );
}

#[test]
fn rules_skip_count_choose_and_repeat() {
    let setup = start();
    let fault = || Fault::Status(500);
    setup.rule(Rule::times(2, fault()).after(1).to("object"));
    let statuses = |paths: &[&str]| -> Vec<u16> {
        let mut client = Client::connect(setup.proxy.address());
        paths.iter().map(|path| client.get(path, "").status).collect()
    };
    let paths =
        ["/bucket/object", "/bucket/none", "/bucket/object", "/bucket/object", "/bucket/object"];
    assert_eq!(statuses(&paths), [200, 404, 500, 500, 200]);

    let many = ["/bucket/object?"; 60];
    setup.rule(Rule::sometimes(0.5, fault()));
    let once = statuses(&many);
    setup.rule(Rule::sometimes(0.5, fault()));
    assert_eq!(once, statuses(&many), "the same seed, the same fates");
    let failed = once.iter().filter(|status| **status == 500).count();
    assert!((10..50).contains(&failed), "{failed}");
    let other = FaultProxy::start(setup.bucket.address(), 8, Faults::default()).unwrap();
    other.set(Faults { rules: vec![Rule::sometimes(0.5, fault())], ..Faults::default() });
    let mut client = Client::connect(other.address());
    assert_ne!(once, many.map(|path| client.get(path, "").status), "another seed, other fates");

    setup.proxy.set(Faults {
        rules: vec![Rule::always(Fault::Status(404)).to("none"), Rule::always(fault())],
        ..Faults::default()
    });
    assert_eq!(statuses(&["/bucket/none", "/bucket/object"]), [404, 500], "the first rule decides");
}

#[test]
fn it_goes_away_and_comes_back_at_the_same_port() {
    let setup = start();
    let mut before = Client::connect(setup.proxy.address());
    assert_eq!(before.get("/bucket/object", "").status, 200);
    for _ in 0..5 {
        setup.proxy.go_away();
        let refused = TcpStream::connect(setup.proxy.address()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        setup.proxy.come_back();
        assert_eq!(setup.get("").status, 200);
    }
    let ended = before.0.read(&mut [0]);
    assert!(
        matches!(&ended, Ok(0)) || ended.is_err_and(|error| why(&error) == End::Reset),
        "connections are closed"
    );
}

#[test]
fn a_server_that_is_gone_is_a_bad_gateway() {
    let setup = start();
    // The server is a proxy itself, whose port stays reserved while it is away. The port of a
    // bucket that has ended may be another test's bucket a moment later.
    let front = FaultProxy::start(setup.proxy.address(), 7, Faults::default()).unwrap();
    let mut client = Client::connect(front.address());
    assert_eq!(client.get("/bucket/object", "").status, 200);
    setup.proxy.go_away();
    assert_eq!(client.get("/bucket/object", "").status, 502, "the connection was kept");
    assert_eq!(Client::connect(front.address()).get("/bucket/object", "").status, 502);
    setup.proxy.come_back();
    assert_eq!(client.get("/bucket/object", "").status, 200);
}
