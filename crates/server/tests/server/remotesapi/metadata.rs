//! Calls about a store: its metadata, how clients name it, which chunks it holds, and refusals.

use std::collections::BTreeSet;

use busload_proto::remotesapi::{
    self as api, AddTableFilesRequest, ClientRepoFormat, CommitRequest, Feature,
    GetRepoMetadataRequest, GetRepoMetadataResponse, GetUploadLocsRequest, PushConcurrencyControl,
    RebaseRequest, RepoId, RootRequest,
};
use tokio_stream::StreamExt;
use tonic::{Code, Status};
use tonic_reflection::pb::v1;

use super::{
    NOWHERE,
    client::{Client, Grpc, WAYS, legacy_request, repo_id, stream_request},
    eventually,
    fixture::{Fixture, Served, World, classic},
};

fn metadata(
    client: &Client,
    request: GetRepoMetadataRequest,
) -> Result<GetRepoMetadataResponse, Status> {
    client.call(|mut grpc| async move { grpc.get_repo_metadata(request).await })
}

/// Builds the request of Dolt's client for a path.
fn metadata_of(path: &str) -> GetRepoMetadataRequest {
    let client_repo_format =
        Some(ClientRepoFormat { nbf_version: "__DOLT__".into(), nbs_version: "5".into() });
    GetRepoMetadataRequest { repo_path: path.into(), client_repo_format, ..Default::default() }
}

/// Asserts that a call failed with this code and a message that contains all parts.
#[track_caller]
pub fn refused<T: std::fmt::Debug>(answer: Result<T, Status>, code: Code, parts: &[&str]) {
    let status = answer.expect_err("a call that cannot succeed");
    assert_eq!(status.code(), code, "{status}");
    for part in parts {
        assert!(status.message().contains(part), "expected `{part}` in `{}`", status.message());
    }
}

/// Makes every call that reads, for a path, and returns the outcomes.
fn every_call(client: &Client, path: &str) -> Vec<(&'static str, Result<(), Status>)> {
    let path_of = || path.to_owned();
    let rebase = RebaseRequest { repo_path: path_of(), ..Default::default() };
    let refresh = api::RefreshTableFileUrlRequest {
        repo_path: path_of(),
        file_id: "4r0lqmqprihmm1ok8d7b93l2i5lfl2ug".into(),
        ..Default::default()
    };
    let mut outcomes = vec![
        ("GetRepoMetadata", metadata(client, metadata_of(path)).map(drop)),
        ("Root", client.root(path).map(drop)),
        ("HasChunks", client.absent(path, &[NOWHERE]).map(drop)),
        ("ListTableFiles", client.list(path).map(drop)),
        ("Rebase", client.call(|mut grpc| async move { grpc.rebase(rebase).await }).map(drop)),
        (
            "RefreshTableFileUrl",
            client
                .call(|mut grpc| async move { grpc.refresh_table_file_url(refresh).await })
                .map(drop),
        ),
    ];
    let ways = WAYS.map(|way| client.locations(path, way, &[vec![NOWHERE]]).map(drop));
    outcomes.extend(
        ["StreamChunkLocations", "StreamDownloadLocations", "GetDownloadLocations"]
            .into_iter()
            .zip(ways),
    );
    outcomes
}

/// Asserts that every call that reads fails for the same reason.
#[track_caller]
fn all_refused(client: &Client, path: &str, code: Code, parts: &[&str]) {
    for (call, outcome) in every_call(client, path) {
        let status = outcome.expect_err(call);
        assert_eq!(status.code(), code, "{call}: {status}");
        for part in parts {
            assert!(
                status.message().contains(part),
                "{call}: expected `{part}` in `{}`",
                status.message()
            );
        }
    }
}

#[test]
fn each_store_says_what_it_is() {
    let fixtures = Fixture::sound();
    let served =
        Served::start(&fixtures.iter().map(|fixture| fixture.table("", "")).collect::<Vec<_>>());
    for fixture in &fixtures {
        let stored: u64 =
            fixture.files().iter().map(|file| file.path.metadata().unwrap().len()).sum();
        let expected = GetRepoMetadataResponse {
            nbf_version: "__DOLT__".into(),
            nbs_version: "5".into(),
            storage_size: stored,
            repo_token: String::new(),
            push_concurrency_control: PushConcurrencyControl::IgnoreWorkingSet.into(),
            features: vec![Feature::StreamChunkLocations.into()],
        };
        assert_eq!(
            metadata(&served.client, metadata_of(fixture.name)).unwrap(),
            expected,
            "{}",
            fixture.name
        );
        assert_eq!(served.client.root(fixture.name).unwrap(), fixture.root(), "{}", fixture.name);
    }
}

#[test]
fn older_versions_of_the_format_are_accepted_and_echoed() {
    let served = Served::start(&[Fixture::new("real-classic").as_db("")]);
    for version in ["4", "5"] {
        let client_repo_format =
            Some(ClientRepoFormat { nbf_version: "__DOLT__".into(), nbs_version: version.into() });
        let request = GetRepoMetadataRequest { client_repo_format, ..metadata_of("db") };
        let answer = metadata(&served.client, request).unwrap();
        assert_eq!((&*answer.nbf_version, &*answer.nbs_version), ("__DOLT__", version));
    }
    // Clients panic on any other value.
    let request = GetRepoMetadataRequest { client_repo_format: None, ..metadata_of("db") };
    assert_eq!(metadata(&served.client, request).unwrap().nbf_version, "__DOLT__");
}

#[test]
fn each_store_knows_which_chunks_it_has() {
    let mut fixtures = Fixture::sound();
    fixtures.extend(["synth-collide-classic", "synth-collide-archive"].map(Fixture::new));
    let served =
        Served::start(&fixtures.iter().map(|fixture| fixture.table("", "")).collect::<Vec<_>>());
    for fixture in &fixtures {
        let client = &served.client;
        let (name, mut addresses) = (fixture.name, fixture.addresses());
        assert_eq!(client.absent(name, &addresses).unwrap(), [0; 0], "{name}");
        addresses.insert(1, NOWHERE);
        addresses.push(NOWHERE);
        addresses.push(addresses[0]);
        let last = i32::try_from(addresses.len() - 2).unwrap();
        assert_eq!(client.absent(name, &addresses).unwrap(), [1, last], "{name}");
        // An address close to an existing one, which a partial comparison would find.
        let mut near = addresses[0];
        near[19] ^= 1;
        assert_eq!(client.absent(name, &[near]).unwrap(), [0], "{name}");
        assert_eq!(client.absent(name, &[]).unwrap(), [0; 0], "{name}");
    }
}

#[test]
fn has_chunks_takes_what_clients_send_and_no_more() {
    let fixture = Fixture::new("real-archive-v3");
    let served = Served::start(&[fixture.as_db("")]);
    let known = fixture.addresses();
    let addresses: Vec<_> = (0..16_384)
        .map(|index| if index % 5 == 0 { NOWHERE } else { known[index % known.len()] })
        .collect();
    let absent = served.client.absent("db", &addresses).unwrap();
    assert!(absent.iter().copied().eq((0..16_384).step_by(5)));
    let more = [addresses, vec![NOWHERE]].concat();
    refused(served.client.absent("db", &more), Code::InvalidArgument, &["16385", "16384"]);
    for length in [0, 1, 19, 21, 32, 40] {
        let request = api::HasChunksRequest {
            repo_path: "db".into(),
            hashes: vec![known[0].to_vec().into(), vec![7; length].into()],
            ..Default::default()
        };
        let answer = served.client.call(|mut grpc| async move { grpc.has_chunks(request).await });
        refused(answer, Code::InvalidArgument, &["20 bytes"]);
    }
}

#[test]
fn a_store_is_found_by_its_path_else_by_organisation_and_name() {
    let fixture = Fixture::new("real-classic");
    let other = Fixture::new("real-bigchunk");
    let served = Served::start(&[
        fixture.as_db("dolt_paths=acme/shop,a/b/c"),
        other.table("", "dolt_paths=acme/other"),
    ]);
    let root = |path: &str, repo_id: Option<RepoId>| {
        let request = RootRequest { repo_path: path.into(), repo_id, ..Default::default() };
        served
            .client
            .call(|mut grpc| async move { grpc.root(request).await })
            .map(|root| root.root_hash)
    };
    for (path, id) in [
        ("db", None),
        ("/db", None),
        ("db/", None),
        ("//db//", None),
        ("acme/shop", None),
        ("/acme/shop/", None),
        ("acme/shop", repo_id("acme", "shop")),
        ("a/b/c", None),
        ("", repo_id("acme", "shop")),
        // The path takes precedence.
        ("db", repo_id("acme", "other")),
    ] {
        assert_eq!(root(path, id.clone()).unwrap(), fixture.root().to_vec(), "{path} {id:?}");
    }
    for (path, id) in
        [("acme/other", None), ("", repo_id("acme", "other")), ("real-bigchunk", None)]
    {
        assert_eq!(root(path, id.clone()).unwrap(), other.root().to_vec(), "{path} {id:?}");
    }
    for (path, id, named) in [
        ("acme", None, "acme"),
        ("acme/db", None, "acme/db"),
        ("shop", None, "shop"),
        ("DB", None, "DB"),
        ("db/x", None, "db/x"),
        ("acme//shop", None, "acme//shop"),
        ("", repo_id("acme", "none"), "acme/none"),
        // The table of plain Redis keys is not a repository.
        ("default", None, "default"),
        ("none", repo_id("acme", "shop"), "none"),
    ] {
        refused(root(path, id), Code::NotFound, &[named, "dolt_paths"]);
    }
    for path in ["", "/", "//"] {
        refused(root(path, None), Code::InvalidArgument, &["repo_path"]);
    }
    all_refused(&served.client, "nowhere/none", Code::NotFound, &["nowhere/none", "dolt_paths"]);
    for (call, outcome) in every_call(&served.client, "acme/shop") {
        // That call names a file of another store.
        match call {
            "RefreshTableFileUrl" => {
                refused(outcome, Code::NotFound, &["4r0lqmqprihmm1ok8d7b93l2i5lfl2ug"])
            }
            _ => outcome.unwrap_or_else(|status| panic!("{call}: {status}")),
        }
    }
}

#[test]
fn a_stream_may_name_another_store_in_each_request() {
    let one = Fixture::new("real-classic");
    let two = Fixture::new("real-bigchunk");
    let served = Served::start(&[one.table("", ""), two.table("", "")]);
    let requests: Vec<_> = [&one, &two, &one, &two]
        .map(|fixture| {
            stream_request(fixture.name, &[one.chunks[0].address, two.chunks[0].address])
        })
        .into();
    let mut grpc = served.client.grpc.clone();
    let answers = served.client.wait(async {
        let answers =
            grpc.stream_chunk_locations(tokio_stream::iter(requests)).await.unwrap().into_inner();
        answers.map(Result::unwrap).collect::<Vec<_>>().await
    });
    let missing: Vec<_> = answers.iter().map(|answer| answer.missing_indexes.clone()).collect();
    assert_eq!(missing, [vec![1], vec![0], vec![1], vec![0]]);
}

#[test]
fn rebase_has_nothing_to_say() {
    let served = Served::start(&[Fixture::new("real-classic").as_db("")]);
    let request = RebaseRequest { repo_path: "db".into(), ..Default::default() };
    let answer = served.client.call(|mut grpc| async move { grpc.rebase(request).await }).unwrap();
    assert_eq!(answer, api::RebaseResponse::default());
}

#[test]
fn writes_are_refused_with_a_reason() {
    let served = Served::start(&[Fixture::new("real-classic").as_db("")]);
    for path in ["db", "nowhere"] {
        let upload = GetUploadLocsRequest { repo_path: path.into(), ..Default::default() };
        let answer =
            served.client.call(|mut grpc| async move { grpc.get_upload_locations(upload).await });
        refused(answer, Code::PermissionDenied, &["read"]);
        let add = AddTableFilesRequest { repo_path: path.into(), ..Default::default() };
        let answer = served.client.call(|mut grpc| async move { grpc.add_table_files(add).await });
        refused(answer, Code::PermissionDenied, &["read"]);
        let commit = CommitRequest { repo_path: path.into(), ..Default::default() };
        let answer = served.client.call(|mut grpc| async move { grpc.commit(commit).await });
        refused(answer, Code::PermissionDenied, &["read"]);
    }
}

#[test]
fn a_store_with_a_journal_is_refused_by_every_call() {
    let directory = crate::support::fixtures::store("real-journal");
    let served = Served::start(&[format!("db=chunks+file://{}", directory.display())]);
    all_refused(&served.client, "db", Code::FailedPrecondition, &["journal"]);
}

#[test]
fn a_manifest_of_an_unknown_version_is_refused_by_every_call() {
    let world = World::of_files(&[classic(1, [100])]);
    let manifest = std::fs::read_to_string(world.bucket.directory().join("p/manifest")).unwrap();
    let unknown = manifest.replacen("5:", "17:", 1);
    world.bucket.put("p/manifest", unknown.as_bytes()).unwrap();
    let served = Served::start(&[world.as_db("")]);
    all_refused(&served.client, "db", Code::FailedPrecondition, &["17", "version"]);
}

#[test]
fn an_empty_store_has_nothing_and_says_so() {
    let world = World::empty();
    let served = Served::start(&[world.as_db("poll=50ms")]);
    let client = &served.client;
    let answer = metadata(client, metadata_of("db")).unwrap();
    assert_eq!((&*answer.nbf_version, answer.storage_size), ("__DOLT__", 0));
    assert_eq!(client.root("db").unwrap(), [0; 20]);
    assert_eq!(client.absent("db", &[NOWHERE, [1; 20]]).unwrap(), [0, 1]);
    let list = client.list("db").unwrap();
    assert_eq!((&list.root_hash[..], list.table_file_info.len()), (&[0; 20][..], 0));
    for way in WAYS {
        assert_eq!(client.locations("db", way, &[vec![NOWHERE]]).unwrap(), [[None]], "{way:?}");
    }
    // Something is pushed for the first time.
    let file = classic(1, [100, 200]);
    world.put(&file);
    let root = world.name(&[&file]);
    eventually("the first version is served", || client.root("db").unwrap() == root);
    assert_eq!(metadata(client, metadata_of("db")).unwrap().storage_size, file.bytes.len() as u64);
}

#[test]
fn a_store_that_is_away_is_unavailable_until_it_comes_back() {
    let fixture = Fixture::new("real-archive-v3");
    let world = World::of(&fixture);
    world.proxy.go_away();
    let served = Served::start(&[world.as_db("timeout=500ms&poll=50ms")]);
    all_refused(&served.client, "db", Code::Unavailable, &["s3://"]);
    world.proxy.come_back();
    eventually("the store is served", || served.client.root("db").is_ok());
    // The timeout is short, so any call may exceed it on a slow machine.
    let mut answered = BTreeSet::new();
    eventually("every call is answered", || {
        let outcomes = every_call(&served.client, "db");
        answered
            .extend(outcomes.iter().filter(|(_, outcome)| outcome.is_ok()).map(|(call, _)| *call));
        answered.len() == outcomes.len()
    });
    // The open version can be served. Whether other chunks are absent cannot be told now.
    world.proxy.go_away();
    assert_eq!(served.client.root("db").unwrap(), fixture.root());
    assert_eq!(served.client.absent("db", &fixture.addresses()).unwrap(), [0; 0]);
    assert_eq!(served.client.list("db").unwrap().table_file_info.len(), fixture.files().len());
    refused(served.client.absent("db", &[NOWHERE]), Code::Unavailable, &["s3://"]);
    for way in WAYS {
        refused(
            served.client.locations("db", way, &[vec![NOWHERE]]),
            Code::Unavailable,
            &["s3://"],
        );
    }
}

#[test]
fn a_refused_store_disturbs_no_other() {
    let fixture = Fixture::new("real-classic");
    let journal = crate::support::fixtures::store("real-journal");
    let served =
        Served::start(&[fixture.as_db(""), format!("bad=chunks+file://{}", journal.display())]);
    let requests = [
        stream_request("db", &fixture.addresses()[..5]),
        stream_request("bad", &[NOWHERE]),
        stream_request("db", &[NOWHERE]),
    ];
    let mut grpc = served.client.grpc.clone();
    served.client.wait(async {
        let mut answers =
            grpc.stream_chunk_locations(tokio_stream::iter(requests)).await.unwrap().into_inner();
        assert_eq!(
            answers.message().await.unwrap().unwrap().locations.len(),
            5,
            "what came before is answered"
        );
        refused(answers.message().await, Code::FailedPrecondition, &["journal"]);
    });
    assert_eq!(served.client.root("db").unwrap(), fixture.root());
}

#[test]
fn what_no_such_message_is_is_refused_and_nothing_else_is_disturbed() {
    let fixture = Fixture::new("real-classic");
    let served = Served::start(&[fixture.as_db("")]);
    let huge = vec![NOWHERE; 200_000];
    let outcome = served.client.absent("db", &huge);
    assert!(outcome.is_err(), "4 MB of addresses");
    let mut grpc: Grpc = served.client.another();
    let outcome = served.client.wait(grpc.get_download_locations(legacy_request("db", &huge)));
    assert!(outcome.is_err(), "4 MB of addresses");
    assert_eq!(served.client.root("db").unwrap(), fixture.root());
}

#[test]
fn reflection_lists_the_service() {
    let served = Served::start(&[Fixture::new("synth-sizes-classic").as_db("")]);
    let names = served.client.wait(async {
        use v1::server_reflection_request::MessageRequest;
        let ask = v1::ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::ListServices(String::new())),
        };
        let endpoint = tonic::transport::Endpoint::from_shared(served.client.base()).unwrap();
        let channel = endpoint.connect().await.unwrap();
        let mut client = v1::server_reflection_client::ServerReflectionClient::new(channel);
        let mut answers =
            client.server_reflection_info(tokio_stream::once(ask)).await.unwrap().into_inner();
        let answer = answers.next().await.unwrap().unwrap().message_response.unwrap();
        let v1::server_reflection_response::MessageResponse::ListServicesResponse(list) = answer
        else {
            panic!("expected a list, got {answer:?}");
        };
        list.service.into_iter().map(|service| service.name).collect::<Vec<_>>()
    });
    let expected = "dolt.services.remotesapi.v1alpha1.ChunkStoreService";
    assert!(names.iter().any(|name| name == expected), "{names:?}");
}
