//! Many streams at once, cancelled streams, and streams that nobody reads.

use std::time::{Duration, Instant};

use busload_proto::v1::GetChunksResponse;
use tonic::{Code, Streaming};

use super::{Served, eventually, fixture::Fixture, many, one, refused};

/// Returns one chunk of 64 KiB as often as a call may ask for it: 1 GiB.
fn gigabyte(fixture: &Fixture) -> Vec<[u8; 20]> {
    let chunk = fixture.chunks.iter().find(|chunk| chunk.bytes == 65_536).unwrap();
    vec![chunk.address; 16_384]
}

async fn open(
    client: &mut super::ChunksClient<super::Channel>,
    addresses: &[[u8; 20]],
) -> Result<Streaming<GetChunksResponse>, tonic::Status> {
    Ok(client.get_chunks(many(addresses)).await?.into_inner())
}

#[test]
fn a_client_that_reads_nothing_costs_no_memory_and_disturbs_nobody() {
    let fixture = Fixture::new("synth-sizes-classic");
    let served = Served::of_fixture(&fixture);
    let addresses = gigabyte(&fixture);
    assert!(served.get(one(addresses[0])).unwrap().found);
    let before = served.server.metric("process_resident_memory_bytes");
    let mut client = served.client();
    let mut streams = served.runtime.block_on(async {
        let mut streams = Vec::new();
        for _ in 0..100 {
            streams.push(open(&mut client, &addresses).await.unwrap());
        }
        streams
    });
    let asked = served.server.metric("busload_chunks_requests_total{table=\"db\"}");
    assert!(asked < 100.0 * 100.0, "{asked} chunks were read for nobody");
    let grown = served.server.metric("process_resident_memory_bytes") - before;
    assert!(grown < f64::from(300 << 20), "{grown} bytes");
    assert!(served.get(one(addresses[0])).unwrap().found, "others are served");
    let first = served.runtime.block_on(streams[50].message()).unwrap().unwrap();
    assert!(!first.chunks.is_empty(), "and who reads after all gets it all");
}

#[test]
fn streams_that_are_given_up_make_room_for_others() {
    let fixture = Fixture::new("synth-sizes-classic");
    let served = Served::of_fixture(&fixture);
    let addresses = gigabyte(&fixture);
    // More streams than the server allows at once. Clients of this library drop a connection when
    // it brings too much for streams that they have forgotten, so each opens only a few.
    for _ in 0..30 {
        let mut client = served.client();
        for _ in 0..20 {
            served.runtime.block_on(async {
                let mut stream = open(&mut client, &addresses).await.unwrap();
                stream.message().await.unwrap().unwrap();
            });
        }
    }
    let asked = served.server.metric("busload_chunks_requests_total{table=\"db\"}");
    assert!(asked < 600.0 * 1_000.0, "{asked} chunks were read for nobody");
}

#[test]
fn so_many_streams_are_served_at_once_and_others_wait() {
    let fixture = Fixture::new("synth-sizes-classic");
    let served = Served::start(&[&format!("db={}?timeout=2s", fixture.url())]);
    let addresses = gigabyte(&fixture);
    eventually("it is open", || served.get(one(addresses[0])).is_ok_and(|answer| answer.found));
    let mut client = served.client();
    let streams = served.runtime.block_on(async {
        let mut streams = Vec::new();
        for _ in 0..128 {
            streams.push(open(&mut client, &addresses).await.unwrap());
        }
        streams
    });
    let mut other = served.client();
    let started = Instant::now();
    refused(
        served.runtime.block_on(open(&mut other, &addresses)),
        Code::ResourceExhausted,
        "128 calls",
    );
    assert!(Duration::from_secs(1) < started.elapsed(), "a place was waited for");
    assert!(served.get(one(addresses[0])).unwrap().found, "other calls are not affected");
    let (mut waits, asked) = (other.clone(), addresses.clone());
    let waiting = served.runtime.spawn(async move { open(&mut waits, &asked).await.map(drop) });
    drop(streams);
    let waited = served.runtime.block_on(waiting).unwrap();
    if waited.is_err() {
        // On a slow machine the call timed out before the other calls had ended.
        refused(waited, Code::ResourceExhausted, "128 calls");
        eventually("there is a place", || {
            served.runtime.block_on(open(&mut other, &addresses)).is_ok()
        });
    }
}

#[test]
fn messages_are_of_a_size_and_a_large_chunk_is_alone() {
    let fixture = Fixture::new("synth-sizes-classic");
    let served = Served::of_fixture(&fixture);
    let mut client = served.client.clone();
    let addresses = fixture.addresses();
    served.runtime.block_on(async {
        let mut stream = open(&mut client, &addresses).await.unwrap();
        while let Some(message) = stream.message().await.unwrap() {
            let bytes: usize = message.chunks.iter().map(|chunk| chunk.contents.len()).sum();
            assert!(
                bytes <= 256 * 1024 || message.chunks.len() == 1,
                "{} chunks",
                message.chunks.len()
            );
        }
    });
}
