//! Lists of table files, and downloads of whole files, as a clone uses them.

use std::{
    collections::HashSet,
    fs,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use busload_proto::remotesapi::{
    ListTableFilesResponse, RefreshTableFileUrlRequest, RefreshTableFileUrlResponse, TableFileInfo,
};
use tonic::{Code, Status};

use super::{
    client::Client,
    fixture::{Fixture, Served, TableFile, World},
    http::target,
    metadata::refused,
};

/// Returns the files of a list, sorted by id.
fn sorted(list: ListTableFilesResponse) -> Vec<TableFileInfo> {
    assert_eq!(list.appendix_table_file_info, [], "clients skip files in it");
    assert_eq!(list.repo_token, "");
    let mut files = list.table_file_info;
    files.sort_by(|one, two| one.file_id.cmp(&two.file_id));
    files
}

#[track_caller]
fn check_entry(entry: &TableFileInfo, file: &TableFile) {
    assert_eq!(entry.file_id, file.id.to_string());
    assert_eq!(entry.num_chunks, file.chunk_count, "{}", file.id);
    assert_eq!(
        (entry.split_offset, &entry.refresh_after, &entry.refresh_request),
        (0, &None, &None)
    );
    let path = entry.url.split('?').next().unwrap();
    let name = path.rsplit('/').next().unwrap();
    let suffix = if file.is_archive { ".darc" } else { "" };
    // Clients name the file they write by this.
    assert_eq!(name, format!("{}{suffix}", file.id));
}

fn refreshed(
    client: &Client,
    path: &str,
    file_id: &str,
) -> Result<RefreshTableFileUrlResponse, Status> {
    let request = RefreshTableFileUrlRequest {
        repo_path: path.into(),
        file_id: file_id.into(),
        ..Default::default()
    };
    client.call(|mut grpc| async move { grpc.refresh_table_file_url(request).await })
}

#[test]
fn every_file_of_every_store_is_listed_and_downloaded() {
    let mut fixtures = Fixture::sound();
    // Downloads of whole files do not depend on chunk addresses.
    fixtures.extend(["synth-collide-classic", "synth-collide-archive"].map(Fixture::new));
    let served =
        Served::start(&fixtures.iter().map(|fixture| fixture.table("", "")).collect::<Vec<_>>());
    let client = &served.client;
    let mut http = client.http();
    for fixture in &fixtures {
        let name = fixture.name;
        let list = client.list(name).unwrap();
        assert_eq!(list.root_hash, fixture.root().to_vec(), "{name}");
        let (listed, files) = (sorted(list), fixture.files());
        assert_eq!(listed.len(), files.len(), "{name}");
        for (entry, file) in listed.iter().zip(&files) {
            check_entry(entry, file);
            let target = target(&entry.url, &client.base());
            let expected = fs::read(&file.path).unwrap();
            // Requests the file as Dolt's client does.
            let answer = http.call(
                "GET",
                &target,
                "User-Agent: Go-http-client/1.1\r\nAccept-Encoding: gzip\r\n",
            );
            assert_eq!(answer.head.status, 200, "{name} {}: {}", file.id, answer.text());
            assert_eq!(answer.head.get("content-encoding"), None);
            assert!(answer.is_whole && answer.body == expected, "{name} {}", file.id);
        }
        assert_eq!(sorted(client.list(name).unwrap()), listed, "{name}: the same URLs again");
    }
}

#[test]
fn manifests_of_version_4_are_served_alike() {
    let fixture = Fixture::new("real-classic");
    let world = World::of(&fixture);
    let manifest = fs::read(fixture.directory.join("../../manifest-v4.txt")).unwrap();
    world.bucket.put("p/manifest", &manifest).unwrap();
    let served = Served::start(&[world.as_db(""), fixture.table("", "")]);
    let list = served.client.list("db").unwrap();
    assert_eq!(list.root_hash, fixture.root().to_vec());
    let listed = sorted(list);
    let ids = |files: &[TableFileInfo]| {
        files.iter().map(|file| (file.file_id.clone(), file.num_chunks)).collect::<Vec<_>>()
    };
    assert_eq!(ids(&listed), ids(&sorted(served.client.list("real-classic").unwrap())));
    for (entry, file) in listed.iter().zip(fixture.files()) {
        let answer = served.client.http().get(&target(&entry.url, &served.client.base()));
        assert!(answer.is_whole && answer.body == fs::read(&file.path).unwrap(), "{}", file.id);
    }
}

#[test]
fn lists_name_no_url_twice() {
    let fixtures = [Fixture::new("real-archive-v3"), Fixture::new("rewritten-archive-v2")];
    let tables: Vec<_> = fixtures
        .iter()
        .flat_map(|fixture| ["", "2"].map(|suffix| fixture.table(suffix, "")))
        .collect();
    let served = Served::start(&tables);
    let mut urls = HashSet::new();
    for fixture in &fixtures {
        for suffix in ["", "2"] {
            for entry in
                served.client.list(&format!("{}{suffix}", fixture.name)).unwrap().table_file_info
            {
                assert!(urls.insert(entry.url), "{}", entry.file_id);
            }
        }
    }
    // Two stores may have different files of one name.
    assert_eq!(urls.len(), 2 * fixtures.iter().map(|fixture| fixture.files().len()).sum::<usize>());
}

#[test]
fn a_url_is_refreshed_to_itself_for_long() {
    let fixture = Fixture::new("real-archive-v3");
    let served = Served::start(&[fixture.as_db(""), Fixture::new("real-bigchunk").table("", "")]);
    for entry in served.client.list("db").unwrap().table_file_info {
        let answer = refreshed(&served.client, "db", &entry.file_id).unwrap();
        assert_eq!((answer.url, &*answer.repo_token), (entry.url, ""));
        let until = answer.refresh_after.expect("a time").seconds;
        let tomorrow =
            SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(24 * 3600);
        assert!(tomorrow.as_secs() < u64::try_from(until).unwrap(), "{until}");
        refused(
            refreshed(&served.client, "real-bigchunk", &entry.file_id),
            Code::NotFound,
            &[&entry.file_id],
        );
    }
    let unknown = "0".repeat(32);
    refused(refreshed(&served.client, "db", &unknown), Code::NotFound, &[&unknown]);
    for bad in ["", "manifest", "4r0lqmqprihmm1ok8d7b93l2i5lfl2ug.darc", "../../etc/passwd"] {
        refused(refreshed(&served.client, "db", bad), Code::InvalidArgument, &[bad]);
    }
}

#[test]
fn files_are_downloaded_over_http_2_too() {
    let fixture = Fixture::new("real-archive-v3");
    let served = Served::start(&[fixture.as_db("")]);
    let client = &served.client;
    let listed = sorted(client.list("db").unwrap());
    let address = client.address;
    let bodies = client.wait(async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let io = hyper_util::rt::TokioIo::new(stream);
        let executor = hyper_util::rt::TokioExecutor::new();
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(executor, io).await.unwrap();
        tokio::spawn(connection);
        // Downloads all files at once on one connection.
        let mut answers = Vec::new();
        for entry in &listed {
            let whole = hyper::Request::get(&entry.url).body(axum::body::Body::empty()).unwrap();
            let range = hyper::Request::get(&entry.url).header("range", "bytes=3-9");
            let range = range.body(axum::body::Body::empty()).unwrap();
            answers.push((sender.send_request(whole), sender.send_request(range)));
        }
        let mut bodies = Vec::new();
        for (whole, range) in answers {
            let (whole, range) = (whole.await.unwrap(), range.await.unwrap());
            assert_eq!((whole.status().as_u16(), range.status().as_u16()), (200, 206));
            let whole = axum::body::to_bytes(axum::body::Body::new(whole.into_body()), usize::MAX)
                .await
                .unwrap();
            let range = axum::body::to_bytes(axum::body::Body::new(range.into_body()), usize::MAX)
                .await
                .unwrap();
            assert_eq!(range, whole.slice(3..10));
            bodies.push(whole);
        }
        bodies
    });
    for (body, file) in bodies.iter().zip(fixture.files()) {
        assert!(*body == fs::read(&file.path).unwrap(), "{}", file.id);
    }
}
