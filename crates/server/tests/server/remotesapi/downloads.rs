//! Downloads over HTTP: ranges, conditions, methods, paths that name nothing, and URLs with the
//! address under which the client reaches the server.

use std::fs;

use busload_proto::remotesapi::ListTableFilesRequest;
use tonic::{Code, Request};

use super::{
    client::{ChunkLocation, Way, stream_request},
    fixture::{Fixture, Served},
    http::{Head, Http, target},
    metadata::refused,
};

/// A resource with its path and its bytes.
struct Resource {
    target: String,
    bytes: Vec<u8>,
}

/// Returns a classic file, an archive and a bundle of records of the table `db`.
fn resources(served: &Served, fixture: &Fixture) -> Vec<Resource> {
    let base = served.client.base();
    let files = fixture.files();
    let list = served.client.list("db").unwrap().table_file_info;
    let mut resources: Vec<_> = [false, true]
        .into_iter()
        .map(|is_archive| {
            let file = files.iter().find(|file| file.is_archive == is_archive).unwrap();
            let entry = list.iter().find(|entry| entry.file_id == file.id.to_string()).unwrap();
            Resource { target: target(&entry.url, &base), bytes: fs::read(&file.path).unwrap() }
        })
        .collect();
    let locations = served.client.found("db", Way::Stream, &fixture.addresses()[..100]);
    assert!(locations.iter().all(|location| location.url == locations[0].url), "one resource");
    let records = target(&locations[0].url, &base);
    let end = locations.iter().map(|location| location.span.end).max().unwrap();
    let bytes = served.client.http().bytes(&records, 0..end);
    resources.push(Resource { target: records, bytes });
    resources
}

/// Starts a server with a resource of each kind.
fn served() -> (Served, Vec<Resource>) {
    let fixture = Fixture::new("real-archive-v3");
    let served = Served::start(&[fixture.as_db("dolt_layout=records")]);
    let resources = resources(&served, &fixture);
    (served, resources)
}

#[test]
fn a_whole_resource_is_as_long_as_it_says() {
    let (served, resources) = served();
    let mut http = served.client.http();
    for Resource { target, bytes } in &resources {
        let answer = http.get(target);
        assert_eq!(answer.head.status, 200, "{target}: {}", answer.text());
        assert!(answer.is_whole && answer.body == *bytes, "{target}");
        assert_eq!(answer.head.get("accept-ranges"), Some("bytes"));
        assert_eq!(answer.head.get("transfer-encoding"), None);
        let head = http.call("HEAD", target, "").head;
        for name in ["content-length", "etag", "accept-ranges", "content-type", "cache-control"] {
            assert_eq!(head.get(name), answer.head.get(name), "{target}: {name}");
        }
        assert_eq!((head.status, head.length()), (200, bytes.len()));
    }
}

#[test]
fn tags_are_strong_differ_and_save_downloads() {
    let (served, resources) = served();
    let mut http = served.client.http();
    let mut tags = Vec::new();
    for Resource { target, bytes } in &resources {
        let tag = http.call("HEAD", target, "").head.get("etag").unwrap().to_owned();
        assert!(tag.starts_with('"') && tag.ends_with('"') && 2 < tag.len(), "{tag}");
        for (condition, is_same) in [
            (tag.clone(), true),
            ("*".to_owned(), true),
            (format!("\"other\", {tag}"), true),
            (format!("W/{tag}"), true),
            ("\"other\"".to_owned(), false),
        ] {
            for method in ["GET", "HEAD"] {
                let answer = http.call(method, target, &format!("If-None-Match: {condition}\r\n"));
                let expected = if is_same { 304 } else { 200 };
                assert_eq!(answer.head.status, expected, "{method} {target} if not {condition}");
                if is_same {
                    assert_eq!(answer.head.get("etag"), Some(&*tag));
                }
            }
        }
        assert!(http.get(target).body == *bytes, "the connection is still in step");
        tags.push(tag);
    }
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), resources.len());
}

#[test]
fn ranges_are_exact_wherever_they_begin_and_end() {
    let (served, resources) = served();
    let mut http = served.client.http();
    for Resource { target, bytes } in &resources {
        let size = bytes.len() as u64;
        for range in
            [0..1, 0..size, 1..2, 5..5_000.min(size), size - 1..size, size / 2..size, 0..size - 1]
        {
            let answer = http.range(target, range.clone());
            assert_eq!(answer.head.status, 206, "{target} {range:?}: {}", answer.text());
            let expected = format!("bytes {}-{}/{size}", range.start, range.end - 1);
            assert_eq!(answer.head.get("content-range"), Some(&*expected));
            let range = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
            assert!(answer.is_whole && answer.body == bytes[range.clone()], "{target} {range:?}");
        }
        for (range, expected) in [
            ("bytes=7-".to_owned(), 7..size),
            (format!("bytes={}-", size - 1), size - 1..size),
            ("bytes=-9".to_owned(), size - 9..size),
            (format!("bytes=-{}", size + 5), 0..size),
            (format!("bytes=3-{}", size + 100), 3..size),
            (format!("bytes=3-{}", u64::MAX), 3..size),
        ] {
            let answer = http.call("GET", target, &format!("Range: {range}\r\n"));
            assert_eq!(answer.head.status, 206, "{target} {range}: {}", answer.text());
            let said = format!("bytes {}-{}/{size}", expected.start, expected.end - 1);
            assert_eq!(answer.head.get("content-range"), Some(&*said), "{range}");
            let expected =
                usize::try_from(expected.start).unwrap()..usize::try_from(expected.end).unwrap();
            assert!(answer.is_whole && answer.body == bytes[expected], "{target} {range}");
        }
    }
}

/// Clients take the body of a 200 for the range they asked for, so the whole resource would look
/// like a checksum error to them.
#[test]
fn ranges_that_cannot_be_are_never_answered_with_the_whole() {
    let (served, resources) = served();
    let mut http = served.client.http();
    for Resource { target, bytes } in &resources {
        let size = bytes.len();
        for range in
            [format!("bytes={size}-"), format!("bytes={size}-{size}"), "bytes=-0".to_owned()]
        {
            let answer = http.call("GET", target, &format!("Range: {range}\r\n"));
            assert_eq!(answer.head.status, 416, "{target} {range}");
            assert_eq!(answer.head.get("content-range"), Some(&*format!("bytes */{size}")));
        }
        for range in [
            "bytes=",
            "bytes=-",
            "bytes=5-2",
            "bytes=a-b",
            "bytes=1",
            "bytes=0-1,4-5",
            "bytes=-1,-2",
            "bytes=+1-2",
            "bytes=1-2-3",
            "bytes=--1",
            "bytes=1-+5",
        ] {
            let answer = http.call("GET", target, &format!("Range: {range}\r\n"));
            assert!([400, 416].contains(&answer.head.status), "`{range}`: {:?}", answer.head);
            assert!(answer.is_whole && answer.body.len() < 1000, "`{range}`");
        }
        // Positions beyond the end: the range is empty, or ends with the resource.
        let answer = http.call("GET", target, "Range: bytes=18446744073709551616-\r\n");
        assert!([400, 416].contains(&answer.head.status), "{:?}", answer.head);
        let answer = http.call("GET", target, "Range: bytes=1-99999999999999999999999999\r\n");
        assert!(
            [400, 416].contains(&answer.head.status) || answer.body == bytes[1..],
            "{:?}",
            answer.head
        );
        // HTTP says to ignore a range in an unknown unit.
        let answer = http.call("GET", target, "Range: lines=1-2\r\n");
        assert!(
            [400, 416].contains(&answer.head.status) || answer.body == *bytes,
            "{:?}",
            answer.head
        );
        assert_eq!(http.bytes(target, 1..3), &bytes[1..3], "the connection is still in step");
    }
}

#[test]
fn bytes_between_two_ranges_are_served() {
    let fixture = Fixture::new("real-archive-v3");
    let served = Served::start(
        &["files", "records"].map(|layout| fixture.table(layout, &format!("dolt_layout={layout}"))),
    );
    for layout in ["files", "records"] {
        let path = format!("real-archive-v3{layout}");
        let mut locations: Vec<ChunkLocation> =
            served.client.found(&path, Way::Stream, &fixture.addresses()[..180]);
        locations.sort_by(|one, two| (&one.url, one.span.start).cmp(&(&two.url, two.span.start)));
        let mut downloads = served.client.downloads();
        for pair in locations.windows(2).filter(|pair| pair[0].url == pair[1].url) {
            let target = downloads.target(&pair[0].url);
            let both = downloads.http.bytes(&target, pair[0].span.start..pair[1].span.end);
            assert!(both.starts_with(&downloads.http.bytes(&target, pair[0].span.clone())));
            assert!(both.ends_with(&downloads.http.bytes(&target, pair[1].span.clone())));
        }
    }
}

#[test]
fn what_no_url_names_is_not_found() {
    let (served, resources) = served();
    let mut http = served.client.http();
    let [classic, archive, records] = [0, 1, 2].map(|index| resources[index].target.clone());
    let replaced = |target: &str, part: usize, with: &str| {
        let mut parts: Vec<_> = target.split('/').collect();
        parts[part] = with;
        parts.join("/")
    };
    let id = classic.rsplit('/').next().unwrap();
    let bundle = records.rsplit('/').next().unwrap();
    for target in [
        replaced(&classic, 3, "nowhere"),
        replaced(&classic, 3, "default"),
        replaced(&classic, 5, "0000000000000000"),
        replaced(&classic, 5, "0"),
        replaced(&classic, 5, ""),
        replaced(&classic, 6, "manifest"),
        replaced(&classic, 6, &"0".repeat(32)),
        replaced(&classic, 6, &id.to_uppercase()),
        replaced(&classic, 6, ".."),
        replaced(&classic, 6, "..%2fmanifest"),
        format!("{classic}.darc"),
        format!("{classic}/"),
        format!("{classic}/x"),
        archive.trim_end_matches(".darc").to_owned(),
        replaced(&records, 3, "nowhere"),
        replaced(&records, 5, ""),
        replaced(&records, 5, "AAAA"),
        replaced(&records, 5, &bundle[..bundle.len() - 1]),
        replaced(&records, 5, &format!("{bundle}AAAA")),
        // The check, with which the text begins, does not match the records.
        replaced(&records, 5, &format!("AAAAAAAA{}", &bundle[8..])),
        // A check of 8 bytes and an address of zeros, which does not exist.
        replaced(&records, 5, &"A".repeat(38)),
        replaced(&records, 5, "not*base64"),
        "/dolt/v1/db/files".to_owned(),
        "/dolt/v1/db".to_owned(),
        "/dolt/v1".to_owned(),
        "/dolt/v2/db/files/x/y".to_owned(),
    ] {
        for method in ["GET", "HEAD"] {
            let answer = http.call(method, &target, "");
            assert_eq!(answer.head.status, 404, "{method} {target}: {}", answer.text());
        }
        let answer = http.range(&target, 0..1);
        assert_eq!(answer.head.status, 404, "a range of {target}: {}", answer.text());
    }
    assert_eq!(http.get(&classic).body, resources[0].bytes, "and what is there is found");
}

#[test]
fn nothing_can_be_written() {
    let (served, resources) = served();
    for Resource { target, bytes } in &resources {
        for method in ["PUT", "POST", "DELETE", "PATCH"] {
            let mut http = served.client.http();
            let answer = http.call(method, target, "Content-Length: 0\r\n");
            assert!(
                [403, 405].contains(&answer.head.status),
                "{method} {target}: {:?}",
                answer.head
            );
            // With a body, as a client sends that pushes.
            let mut http = served.client.http();
            http.send(method, target, "Content-Length: 200000\r\nExpect: 100-continue\r\n");
            assert!([403, 405].contains(&http.head().status), "{method} {target}");
        }
        assert!(served.client.http().get(target).body == *bytes);
    }
}

/// Heads of different requests on one connection do not mix.
#[test]
fn downloads_one_after_the_other_stay_in_step() {
    let (served, resources) = served();
    let mut http = served.client.http();
    for turn in 0..20 {
        for Resource { target, bytes } in &resources {
            http.send("GET", target, "Range: bytes=0-9\r\n");
            http.send("HEAD", target, "");
            http.send("GET", target, "Range: bytes=9999999999-\r\n");
            http.send("GET", target, "");
            let take = |http: &mut Http, head: &Head| http.body(head.length()).unwrap();
            let head = http.head();
            assert_eq!(
                (head.status, take(&mut http, &head)),
                (206, bytes[..10].to_vec()),
                "{turn}"
            );
            assert_eq!(http.head().status, 200);
            let head = http.head();
            assert_eq!(head.status, 416);
            take(&mut http, &head);
            let head = http.head();
            assert_eq!(head.status, 200);
            assert!(take(&mut http, &head) == *bytes);
        }
    }
}

/// Returns URLs of all kinds that a server gives to a client with these headers.
fn urls(served: &Served, host: Option<&str>, forwarded: Option<&str>) -> Vec<String> {
    let endpoint = tonic::transport::Endpoint::from_shared(served.client.base()).unwrap();
    let endpoint = match host {
        Some(host) => endpoint.origin(format!("http://{host}").parse().unwrap()),
        None => endpoint,
    };
    fn of<T>(message: T, forwarded: Option<&str>) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(scheme) = forwarded {
            request.metadata_mut().insert("x-forwarded-proto", scheme.parse().unwrap());
        }
        request
    }
    let address = Fixture::new("real-archive-v3").chunks[0].address;
    served.client.wait(async {
        let channel = endpoint.connect().await.unwrap();
        let mut grpc = super::client::Grpc::new(channel);
        let list = ListTableFilesRequest { repo_path: "db".into(), ..Default::default() };
        let list = grpc.list_table_files(of(list, forwarded)).await.unwrap().into_inner();
        let mut urls: Vec<_> = list.table_file_info.into_iter().map(|file| file.url).collect();
        let refresh = busload_proto::remotesapi::RefreshTableFileUrlRequest {
            repo_path: "db".into(),
            file_id: "4r0lqmqprihmm1ok8d7b93l2i5lfl2ug".into(),
            ..Default::default()
        };
        urls.push(
            grpc.refresh_table_file_url(of(refresh, forwarded)).await.unwrap().into_inner().url,
        );
        let request = stream_request("db", &[address]);
        let stream =
            grpc.stream_chunk_locations(of(tokio_stream::once(request), forwarded)).await.unwrap();
        let answer = stream.into_inner().message().await.unwrap().unwrap();
        urls.push(answer.table_files[0].url.clone());
        let request = super::client::legacy_request("db", &[address]);
        let answer =
            grpc.get_download_locations(of(request, forwarded)).await.unwrap().into_inner();
        let Some(busload_proto::remotesapi::download_loc::Location::HttpGetRange(ranges)) =
            answer.locs[0].location.clone()
        else {
            panic!("{answer:?}");
        };
        urls.push(ranges.url);
        urls
    })
}

#[test]
fn urls_begin_as_the_client_reached_the_server() {
    let fixture = Fixture::new("real-archive-v3");
    let served = Served::start_with(&[fixture.as_db("")], &["--http-hosts", "cache.example.com"]);
    let own = served.client.base();
    for (host, forwarded, expected) in [
        (None, None, &*own),
        (Some("cache.example.com"), None, "http://cache.example.com"),
        (Some("cache.example.com:8080"), None, "http://cache.example.com:8080"),
        (Some("[::1]:6381"), None, "http://[::1]:6381"),
        (Some("cache.example.com"), Some("https"), "https://cache.example.com"),
        (Some("cache.example.com:8443"), Some("https"), "https://cache.example.com:8443"),
        (Some("cache.example.com"), Some("http"), "http://cache.example.com"),
        // Only a scheme is accepted there.
        (Some("cache.example.com"), Some("gopher://evil"), "http://cache.example.com"),
    ] {
        for url in urls(&served, host, forwarded) {
            let path = url
                .strip_prefix(expected)
                .unwrap_or_else(|| panic!("{host:?} {forwarded:?}: {url}"));
            assert!(path.starts_with("/dolt/v1/db/"), "{url}");
            // The path works under every host name.
            assert_eq!(served.client.http().range(path, 0..1).head.status, 206, "{url}");
        }
    }
}

#[test]
fn urls_begin_as_configured_if_they_are() {
    let fixture = Fixture::new("real-archive-v3");
    for configured in ["https://cache.example.com", "https://example.com:8443/busload/"] {
        let arguments = ["--http-url", configured, "--http-hosts", "other"];
        let served = Served::start_with(&[fixture.as_db("")], &arguments);
        for (host, forwarded) in [(None, None), (Some("other:1"), Some("http"))] {
            for url in urls(&served, host, forwarded) {
                let base = configured.trim_end_matches('/');
                assert!(url.starts_with(&format!("{base}/dolt/v1/db/")), "{url}");
            }
        }
    }
}

#[test]
fn a_table_without_chunks_has_no_downloads() {
    let served =
        Served::start(&["mem=memory:".to_owned(), Fixture::new("real-bigchunk").as_db("")]);
    refused(served.client.root("mem"), Code::NotFound, &["mem"]);
    let url = served.client.list("db").unwrap().table_file_info.remove(0).url;
    let target = target(&url, &served.client.base());
    assert_eq!(served.client.http().get(&target).head.status, 200);
    assert_eq!(served.client.http().get(&target.replacen("/db/", "/mem/", 1)).head.status, 404);
}

#[test]
fn downloads_are_timed_by_table_and_kind() {
    let (served, resources) = served();
    let mut http = served.client.http();
    let count = |call: &str| {
        let name = "busload_chunks_call_duration_seconds_count";
        served.server.metric(&format!("{name}{{table=\"db\",call=\"{call}\"}}"))
    };
    let records = count("records");
    for Resource { target, .. } in &resources {
        assert_eq!(http.get(target).head.status, 200, "{target}");
    }
    http.bytes(&resources[0].target, 1..3);
    // Those that are asked for no bytes are no downloads.
    http.call("HEAD", &resources[0].target, "");
    assert_eq!((count("file"), count("range"), count("records")), (2.0, 1.0, records + 1.0));
}
