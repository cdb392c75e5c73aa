use std::{fs, sync::Arc};

use axum::body::to_bytes;
use bytes::Bytes;
use expect_test::{Expect, expect};

use super::*;
use crate::{
    limits::{PIECE_BYTES, RECORDS_SHARED_BYTES_MAX},
    stats::{Download, RecordsOrigin},
    testing::{Served, TABLE, TestHost, soon},
};

const NAMES: [header::HeaderName; 8] = [
    header::ACCEPT_RANGES,
    header::ALLOW,
    header::CACHE_CONTROL,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::CONTENT_TYPE,
    header::ETAG,
    header::RETRY_AFTER,
];

/// A served fixture and its downloads.
struct Harness {
    served: Served,
    downloads: Downloads,
}

/// An answer: its status and relevant headers as text, and its body.
struct Answer {
    head: String,
    body: Bytes,
}

impl Answer {
    fn text(&self) -> String {
        format!("{}\n{}", self.head, String::from_utf8_lossy(&self.body))
    }
}

fn downloads(remotesapi: &Arc<Remotesapi>) -> Downloads {
    let memory = TableBudgets::new(SENDING_BYTES_MAX);
    Downloads { remotesapi: Arc::clone(remotesapi), memory }
}

async fn ask(
    downloads: &Downloads,
    (method, path): (&str, &str),
    headers: &[(header::HeaderName, &str)],
) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(name, *value);
    }
    let (parts, _) = request.body(Body::empty()).unwrap().into_parts();
    let answer = downloads.answer(&parts).await.unwrap_or_else(Refusal::into_response);
    let mut head = answer.status().to_string();
    for name in &NAMES {
        for value in answer.headers().get_all(name) {
            head += &format!("\n{name}: {}", value.to_str().unwrap());
        }
    }
    Answer { head, body: to_bytes(answer.into_body(), usize::MAX).await.unwrap() }
}

impl Harness {
    fn new(fixture: &str) -> Self {
        let served = Served::new(fixture);
        let downloads = downloads(&served.remotesapi);
        served.wait(served.store().opened()).unwrap();
        Self { served, downloads }
    }

    /// Returns the name of a table file with this suffix, and its bytes.
    fn file(&self, suffix: &str) -> (FileName, Vec<u8>) {
        let snapshot = self.served.store().snapshot().unwrap();
        let is_it =
            |name: &FileName| (name.kind == busload_dolt::FileKind::Archive) == (suffix == ".darc");
        let name = snapshot.files.iter().map(|file| FileName::of(file)).find(is_it).unwrap();
        (name, fs::read(self.served.path(&format!("{}{suffix}", name.id))).unwrap())
    }

    fn ask(&self, method: &str, path: &str, headers: &[(header::HeaderName, &str)]) -> Answer {
        self.served.wait(ask(&self.downloads, (method, path), headers))
    }

    fn get(&self, path: &str, range: &str) -> Answer {
        self.ask("GET", path, &[(header::RANGE, range)])
    }

    fn check(
        &self,
        method: &str,
        path: &str,
        headers: &[(header::HeaderName, &str)],
        expected: Expect,
    ) {
        expected.assert_eq(&self.ask(method, path, headers).text());
    }
}

/// Returns the headers of an answer that tell its length.
fn lengths(answer: &Answer) -> Vec<&str> {
    answer
        .head
        .lines()
        .filter(|line| line.starts_with("content-") && !line.contains("type"))
        .collect()
}

#[test]
fn files_come_whole() {
    let harness = Harness::new("real-archive-v3");
    for suffix in ["", ".darc"] {
        let (name, bytes) = harness.file(suffix);
        let (etag, length) = (format!("{:016x}-{}", name.version, name.id), bytes.len());
        let expected = format!(
            "200 OK\naccept-ranges: bytes\n\
             cache-control: public, max-age=31536000, immutable\ncontent-length: {length}\n\
             content-type: application/octet-stream\netag: \"{etag}\""
        );
        let path = Resource::File(name).path(TABLE);
        let answer = harness.ask("GET", &path, &[]);
        assert_eq!((answer.head, &answer.body[..]), (expected.clone(), &bytes[..]));
        let answer = harness.ask("HEAD", &path, &[(header::RANGE, "bytes=0-5")]);
        assert_eq!((answer.head, &answer.body[..]), (expected, &b""[..]));
    }
    let stats = &harness.served.stats;
    assert_eq!(Download::ALL.map(|kind| stats.downloads(kind)), [2, 0, 0]);
    assert_eq!(Download::ALL.map(|kind| stats.cut_off(kind)), [0; 3]);
}

#[test]
fn ranges_are_exact() {
    let harness = Harness::new("real-archive-v3");
    let (name, bytes) = harness.file(".darc");
    let (path, end) = (Resource::File(name).path(TABLE), bytes.len());
    let last = end - 1;
    for (range, expected) in [
        ("bytes=0-0".to_owned(), 0..1),
        ("bytes=100-1099".to_owned(), 100..1100),
        (format!("bytes=0-{last}"), 0..end),
        (format!("bytes={last}-{last}"), last..end),
        (format!("bytes=10-{}", last + 10), 10..end),
        ("bytes=77-".to_owned(), 77..end),
        ("bytes=-77".to_owned(), end - 77..end),
    ] {
        let answer = harness.get(&path, &range);
        assert_eq!(answer.body, bytes[expected.clone()], "{range}");
        assert!(answer.head.starts_with("206 Partial Content"), "{}", answer.head);
        let (start, end) = (expected.start, expected.end - 1);
        let length = format!("content-length: {}", expected.len());
        assert_eq!(
            lengths(&answer),
            [length, format!("content-range: bytes {start}-{end}/{}", bytes.len())]
        );
    }
    let stats = &harness.served.stats;
    // A range that covers the file counts as a whole file.
    assert_eq!(Download::ALL.map(|kind| stats.downloads(kind)), [1, 6, 0]);
    let after_end = harness.get(&path, &format!("bytes={end}-{end}"));
    assert_eq!(lengths(&after_end), [format!("content-range: bytes */{end}")]);
    assert!(after_end.head.starts_with("416"), "{}", after_end.head);
}

#[test]
fn unusable_requests_are_refused() {
    let harness = Harness::new("real-classic");
    let path = Resource::File(harness.file("").0).path(TABLE);
    harness.check(
        "GET",
        &path,
        &[(header::RANGE, "bytes=1-2,4-5")],
        expect![[r#"
        400 Bad Request
        cache-control: no-store
        content-type: text/plain; charset=utf-8
        Range: expected one range of bytes: bytes=FIRST-LAST, bytes=FIRST- or bytes=-LENGTH
    "#]],
    );
    harness.check(
        "PUT",
        &path,
        &[],
        expect![[r#"
        405 Method Not Allowed
        allow: GET, HEAD
        cache-control: no-store
        content-type: text/plain; charset=utf-8
        method not allowed, downloads are read-only; expected one of GET, HEAD
    "#]],
    );
    harness.check(
        "GET",
        &path,
        &[(header::IF_MATCH, "\"other\"")],
        expect![[r#"
        412 Precondition Failed
        cache-control: no-store
        content-type: text/plain; charset=utf-8
        If-Match: this URL has other bytes: they never change, so they are of another URL
    "#]],
    );
}

#[test]
fn bundles_come_whole_and_in_parts() {
    let harness = Harness::new("real-archive-v3");
    let (bundles, store) = (&harness.served.remotesapi.bundles, harness.served.store());
    let encoded = harness
        .served
        .wait(bundles.encode(store, harness.served.addresses[..192].to_vec(), soon()))
        .unwrap();
    let bundle = encoded.bundle.unwrap();
    let bytes = harness.served.wait(bundles.get(store, &bundle, soon())).unwrap().unwrap();
    let path = Resource::Records(bundle).path(TABLE);
    assert!(path.len() < 6 << 10, "{}", path.len());
    let answer = harness.ask("GET", &path, &[]);
    assert_eq!(answer.body, bytes);
    assert_eq!(lengths(&answer), [format!("content-length: {}", bytes.len())]);
    let part = harness.get(&path, "bytes=1000-1999");
    assert_eq!(part.body, bytes[1000..2000]);
    let etag = answer.head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().to_owned();
    assert_eq!(etag.len(), 34);
    let range = (header::RANGE, "bytes=5-9");
    assert_eq!(
        harness.ask("GET", &path, &[range.clone(), (header::IF_RANGE, &etag)]).body,
        bytes[5..10]
    );
    assert_eq!(harness.ask("GET", &path, &[range, (header::IF_RANGE, "\"x\"")]).body, bytes);
    let same = harness.ask("GET", &path, &[(header::IF_NONE_MATCH, &etag)]);
    assert!(same.head.starts_with("304 Not Modified\naccept-ranges"), "{}", same.head);
    assert!(same.body.is_empty());
    assert_eq!(harness.served.stats.downloads(Download::Records), 4);
}

/// Returns the pieces of a part.
fn pieces(harness: &Harness, source: &Source, range: std::ops::Range<u64>) -> Vec<Bytes> {
    let part = Part { range, purpose: busload_objects::AccessHint::Sequential };
    let pieces = source.stream(&part, std::time::Duration::from_secs(60));
    harness.served.wait(pieces.map(Result::unwrap).collect())
}

/// A slow reader keeps only its pieces in memory, and gets the whole bundle though the cache has
/// evicted it.
#[test]
fn long_bundles_come_in_pieces_of_their_own() {
    let harness = Harness::new("synth-sizes-classic");
    let (first, store) = (&harness.served.remotesapi.bundles, harness.served.store());
    let all = first.encode(store, harness.served.addresses.clone(), soon());
    let all = harness.served.wait(all).unwrap();
    let is_long =
        |length: &Option<u32>| length.is_some_and(|length| (1 << 20..2 << 20).contains(&length));
    let long = harness.served.addresses[all.lengths.iter().position(is_long).unwrap()];
    let encoded = harness.served.wait(first.encode(store, vec![long; 2], soon())).unwrap();
    let bundle = encoded.bundle.unwrap();
    let bytes = harness.served.wait(first.get(store, &bundle, soon())).unwrap().unwrap();
    for remotesapi in [&harness.served.remotesapi, &harness.served.restarted()] {
        let source = Source::Bundle(BundleBytes::new(remotesapi, (store, &bundle), bytes.clone()));
        let pieces = pieces(&harness, &source, 5..source.size());
        assert_eq!(pieces.concat(), bytes[5..]);
        assert_eq!(pieces.len(), (bytes.len() - 5).div_ceil(PIECE_BYTES));
        let memory = bytes.as_ptr_range();
        assert!(
            pieces
                .iter()
                .all(|piece| piece.len() <= PIECE_BYTES && !memory.contains(&piece.as_ptr()))
        );
        let all =
            Part { range: 0..source.size(), purpose: busload_objects::AccessHint::Sequential };
        assert_eq!(source.reserved_bytes(&all), 2 * PIECE_BYTES as u64);
    }
    let again = harness.served.stats.records(RecordsOrigin::EncodedAgain);
    assert_eq!(again, 1, "once for all pieces");
}

#[test]
fn bundles_too_large_for_the_cache_are_held() {
    let harness = Harness::new("real-classic");
    let bytes = Bytes::from(vec![7; usize::try_from(RECORDS_SHARED_BYTES_MAX).unwrap() + 1]);
    let bundle = BundleId { check: [0; 8], addresses: vec![harness.served.addresses[0]] };
    let source = BundleBytes::new(
        &harness.served.remotesapi,
        (harness.served.store(), &bundle),
        bytes.clone(),
    );
    let source = Source::Bundle(source);
    assert_eq!(pieces(&harness, &source, 0..source.size()).concat(), bytes);
    let part = Part { range: 0..10, purpose: busload_objects::AccessHint::Random };
    assert_eq!(source.reserved_bytes(&part), source.size());
}

#[test]
fn absent_resources_are_not_found() {
    let harness = Harness::new("real-classic");
    let (name, _) = harness.file("");
    let good = Resource::File(name).path(TABLE);
    let other_version = Resource::File(FileName { version: !name.version, ..name }).path(TABLE);
    let bundle = BundleId { check: [1; 8], addresses: harness.served.addresses[..2].to_vec() };
    for (path, text) in [
        (other_version, "not in this version"),
        (good.replace("/db/", "/other/"), "no table of kind chunks has the name \"other\""),
        (format!("{good}.darc"), "not in this version"),
        (Resource::Records(bundle).path(TABLE), "not in this layout"),
        (format!("{good}/more"), "expected /dolt/v1/TABLE"),
        (good.replace("/files/", "/"), "expected /dolt/v1/TABLE"),
        ("/dolt/v1/db/records/AAAA".to_owned(), "expected /dolt/v1/TABLE"),
        (format!("/dolt/v1/db/records/{}", "A".repeat(20_000)), "expected /dolt/v1/TABLE"),
        ("/dolt/v1".to_owned(), "expected /dolt/v1/TABLE"),
        ("/dolt/v1/".to_owned(), "expected /dolt/v1/TABLE"),
        ("/dolt/v1/db".to_owned(), "expected /dolt/v1/TABLE"),
        ("/dolt/v1/db/files/../../../etc/passwd".to_owned(), "expected /dolt/v1/TABLE"),
    ] {
        let answer = harness.ask("GET", &path, &[]);
        assert!(answer.head.starts_with("404 Not Found"), "{path}: {}", answer.head);
        assert!(answer.text().contains(text), "{path}: {}", answer.text());
    }
}

#[test]
fn a_key_is_asked_for_where_a_password_is() {
    let harness = Harness::new("real-classic");
    harness.served.host.ask_for_keys();
    let (key, other) = (TestHost::key(TABLE), TestHost::key("other"));
    let (name, bytes) = harness.file("");
    let path = Resource::File(name).path(TABLE);
    let get = |path: &str| harness.ask("GET", path, &[]);
    for query in
        ["", "?", "?key", "?key=", "?key=x", &format!("?key={other}"), &format!("?nokey={key}")]
    {
        let answer = get(&format!("{path}{query}"));
        assert!(answer.head.starts_with("403 Forbidden"), "{query}: {}", answer.head);
    }
    // Without a key, a client does not learn which tables exist.
    assert!(
        get("/dolt/v1/unknown/records/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
            .head
            .starts_with("403")
    );
    for query in [format!("?key={key}"), format!("?by=proxy&key={key}&and=more")] {
        let answer = get(&format!("{path}{query}"));
        assert_eq!(answer.body, bytes);
        assert!(answer.head.contains("private"), "{}", answer.head);
    }
}

#[test]
fn before_the_start_and_after_the_end_downloads_are_unavailable() {
    let harness = Harness::new("real-classic");
    let path = Resource::File(harness.file("").0).path(TABLE);
    let early = downloads(&Remotesapi::new(Arc::<TestHost>::default(), Arc::default()));
    let answer = harness.served.wait(ask(&early, ("GET", &path), &[]));
    expect![[r#"
        503 Service Unavailable
        cache-control: no-store
        content-type: text/plain; charset=utf-8
        retry-after: 1
        busload is starting
    "#]]
    .assert_eq(&answer.text());
    harness.served.host.stop();
    harness.check(
        "GET",
        &path,
        &[],
        expect![[r#"
        503 Service Unavailable
        cache-control: no-store
        content-type: text/plain; charset=utf-8
        retry-after: 1
        busload is shutting down
    "#]],
    );
}

/// A file that exists when it is looked up may be gone when it is read.
#[test]
fn a_file_that_cannot_be_read_has_a_status_of_its_own() {
    let harness = Harness::new("real-classic");
    let (name, _) = harness.file("");
    fs::remove_file(harness.served.path(&name.id.to_string())).unwrap();
    let answer = harness.ask("GET", &Resource::File(name).path(TABLE), &[]);
    assert!(
        answer.head.starts_with("503") && answer.head.contains("retry-after: 1"),
        "{}",
        answer.text()
    );
    assert_eq!(harness.served.stats.downloads(Download::File), 0);
}

#[test]
fn downloads_wait_for_memory_and_no_longer_than_the_timeout() {
    let harness = Harness::new("real-classic");
    let memory = &harness.downloads.memory;
    let path = Resource::File(harness.file("").0).path(TABLE);
    harness.served.wait(async {
        let all = memory.reserve(TABLE, u64::MAX, soon()).await.unwrap();
        let mut waits =
            Box::pin(ask(&harness.downloads, ("GET", &path), &[(header::RANGE, "bytes=0-9")]));
        assert!(futures_util::poll!(&mut waits).is_pending());
        drop(all);
        assert_eq!(waits.await.body.len(), 10);
        assert!(memory.reserve(TABLE, u64::MAX, soon()).await.is_some(), "all of it is free again");
    });
}
