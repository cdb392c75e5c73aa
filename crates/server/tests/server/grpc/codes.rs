//! Status codes of failed calls.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use busload_bucket::{Bucket, Fault, FaultProxy, Faults, Rule, url};
use busload_proto::v1::{
    Form, GetChunkRequest, GetChunksRequest, GetDictionaryRequest, HasChunksRequest,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tonic::Code;

use super::{NOWHERE, Served, TIMEOUT, eventually, fixture::Fixture, has, many, one, refused};

#[test]
fn an_unknown_store_is_not_found() {
    let served = Served::of_fixture(&Fixture::new("synth-sizes-classic"));
    for store in ["other", "", "default"] {
        let store = store.to_owned();
        refused(
            served.get(GetChunkRequest { store: store.clone(), ..one(NOWHERE) }),
            Code::NotFound,
            &store,
        );
        refused(
            served.get_many(GetChunksRequest { store: store.clone(), ..many(&[NOWHERE]) }),
            Code::NotFound,
            "no table of kind chunks",
        );
        refused(served.absent(HasChunksRequest { store, ..has(&[NOWHERE]) }), Code::NotFound, "");
    }
    let request = GetDictionaryRequest { store: "other".into(), dictionary_id: vec![0; 32].into() };
    let mut client = served.client.clone();
    refused(served.runtime.block_on(client.get_dictionary(request)), Code::NotFound, "\"other\"");
}

#[test]
fn what_is_no_address_is_an_invalid_argument() {
    let served = Served::of_fixture(&Fixture::new("synth-sizes-classic"));
    for bytes in [0, 19, 21, 32] {
        let request = GetChunkRequest { address: vec![0; bytes].into(), ..one(NOWHERE) };
        refused(served.get(request), Code::InvalidArgument, "expected 20 bytes");
    }
    let request = GetChunksRequest { addresses: vec![0; 39].into(), ..many(&[]) };
    refused(served.get_many(request), Code::InvalidArgument, "multiple of 20");
    let request = HasChunksRequest { addresses: vec![0; 39].into(), ..has(&[]) };
    refused(served.absent(request), Code::InvalidArgument, "multiple of 20");
    refused(
        served.get(GetChunkRequest { form: 9, ..one(NOWHERE) }),
        Code::InvalidArgument,
        "FORM_STORED",
    );
    assert_eq!(Form::try_from(9).ok(), None);
}

#[test]
fn a_request_beyond_its_limits_is_refused_and_the_next_one_is_not() {
    let served = Served::of_fixture(&Fixture::new("synth-sizes-classic"));
    refused(served.get_many(many(&[NOWHERE; 16_385])), Code::InvalidArgument, "at most 16384");
    refused(served.absent(has(&[NOWHERE; 16_385])), Code::InvalidArgument, "at most 16384");
    refused(served.absent(has(&vec![NOWHERE; 30_000])), Code::OutOfRange, "524288");
    refused(served.get_many(many(&vec![NOWHERE; 1_000_000])), Code::OutOfRange, "524288");
    assert_eq!(served.absent(has(&[NOWHERE; 16_384])).unwrap().len(), 16_384);
}

#[test]
fn contents_that_are_not_the_addresss_are_data_loss() {
    let fixture = Fixture::new("synth-collide-classic");
    let served = Served::of_fixture(&fixture);
    refused(served.get(one(fixture.chunks[0].address)), Code::DataLoss, "");
    let request = many(&[fixture.chunks[0].address, NOWHERE, fixture.chunks[1].address]);
    let answer = served.get_many(request).unwrap();
    let mut failed: Vec<_> =
        answer.failed.iter().map(|failed| (failed.index, failed.code)).collect();
    failed.sort_unstable();
    let data_loss = Code::DataLoss as u32;
    assert_eq!(failed, [(0, data_loss), (2, data_loss)]);
    assert_eq!(answer.missing, [1], "the others are not affected");
}

#[test]
fn a_store_that_is_refused_is_a_failed_precondition() {
    let served = Served::of_fixture(&Fixture::unlisted("real-journal"));
    refused(served.get(one(NOWHERE)), Code::FailedPrecondition, "journal");
    refused(served.get_many(many(&[NOWHERE])), Code::FailedPrecondition, "journal");
    refused(served.absent(has(&[NOWHERE])), Code::FailedPrecondition, "journal");
}

/// A store in a bucket behind a fault proxy.
struct Remote {
    fixture: Fixture,
    proxy: FaultProxy,
    _bucket: Bucket,
    _directory: tempfile::TempDir,
}

impl Remote {
    fn new() -> Self {
        let (fixture, directory) = (Fixture::new("real-classic"), tempfile::tempdir().unwrap());
        let bucket = Bucket::start(directory.path()).unwrap();
        for entry in std::fs::read_dir(fixture.store()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let name = path.file_name().unwrap().to_str().unwrap();
                bucket.put(&format!("db/{name}"), &std::fs::read(&path).unwrap()).unwrap();
            }
        }
        let proxy = FaultProxy::start(bucket.address(), 1, Faults::default()).unwrap();
        Self { fixture, proxy, _bucket: bucket, _directory: directory }
    }

    fn table(&self, options: &str) -> String {
        format!("db=chunks+{}&{options}", url(self.proxy.address(), "db"))
    }
}

#[test]
fn a_store_out_of_reach_is_unavailable_and_never_taken_for_empty() {
    let remote = Remote::new();
    let served = Served::start(&[&remote.table("timeout=1s&poll=3600s")]);
    let address = remote.fixture.chunks[0].address;
    eventually("it is open", || {
        let absent = served.absent(has(&[address]));
        absent.inspect(|absent| assert!(absent.is_empty(), "it holds the chunk")).is_ok()
    });
    remote.proxy.go_away();
    refused(served.get(one(address)), Code::Unavailable, "");
    refused(served.get(one(NOWHERE)), Code::Unavailable, "");
    let answer = served.get_many(many(&[NOWHERE, address])).unwrap();
    let mut failed: Vec<_> =
        answer.failed.iter().map(|failed| (failed.index, failed.code)).collect();
    failed.sort_unstable();
    let unavailable = Code::Unavailable as u32;
    assert_eq!(failed, [(0, unavailable), (1, unavailable)]);
    refused(served.absent(has(&[NOWHERE])), Code::Unavailable, "");
    remote.proxy.come_back();
    // A manifest read that began earlier may pause between two attempts for nearly as long as the
    // table's timeout.
    for (address, is_there) in [(address, true), (NOWHERE, false)] {
        eventually("it answers again", || {
            let answer = served.get(one(address));
            answer.inspect(|answer| assert_eq!(answer.found, is_there)).is_ok()
        });
    }
}

#[test]
fn a_store_that_was_never_reached_is_unavailable() {
    let remote = Remote::new();
    remote.proxy.go_away();
    let served = Served::start(&[&remote.table("timeout=1s")]);
    refused(served.get(one(NOWHERE)), Code::Unavailable, "");
    refused(served.get_many(many(&[NOWHERE])), Code::Unavailable, "");
    refused(served.absent(has(&[NOWHERE])), Code::Unavailable, "");
}

#[test]
fn the_deadline_of_a_call_is_kept_and_that_of_the_table_otherwise() {
    let remote = Remote::new();
    let served = Served::start(&[&remote.table("timeout=2s&poll=3600s")]);
    let address = remote.fixture.chunks[0].address;
    let stall = Rule::always(Fault::Delay(TIMEOUT));
    remote.proxy.set(Faults { rules: vec![stall], ..Faults::default() });
    let timed =
        |timeout| served.runtime.block_on(raw_get(served.server.address("http"), address, timeout));
    let started = Instant::now();
    assert_eq!(timed("100m"), Code::DeadlineExceeded);
    assert!(started.elapsed() < TIMEOUT / 2);
    assert_eq!(timed("soon"), Code::InvalidArgument);
    let started = Instant::now();
    refused(served.get(one(address)), Code::Unavailable, "");
    assert!(Duration::from_secs(1) < started.elapsed(), "the table's timeout was waited for");
    remote.proxy.set(Faults::default());
    // Stuck requests time out one after the other.
    let started = Instant::now();
    while served.get(one(address)).is_err() {
        assert!(started.elapsed() < TIMEOUT, "it never recovers");
    }
}

/// Calls `GetChunk` as a client that leaves deadlines to the server.
async fn raw_get(server: SocketAddr, address: [u8; 20], timeout: &str) -> Code {
    let stream = tokio::net::TcpStream::connect(server).await.unwrap();
    let (executor, io) = (TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    tokio::spawn(connection);
    // A frame of 26 bytes with fields 1 and 2 of the request.
    let message = [&[0, 0, 0, 0, 26, 0x0a, 2, b'd', b'b', 0x12, 20][..], &address].concat();
    let request = hyper::Request::post(format!("http://{server}/busload.v1.Chunks/GetChunk"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", timeout)
        .body(axum::body::Body::from(message))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    // An error without a message comes in the headers.
    Code::from_bytes(response.headers()["grpc-status"].as_bytes())
}
