//! Each gRPC call and its answers.

use busload_proto::v1::{Encoding, Form, FoundChunk, GetChunkRequest, GetDictionaryRequest};
use tonic::Code;

use super::{
    NOWHERE, Served,
    fixture::{Fixture, check},
    has, many, one, refused, stored,
};

/// Decodes a stored chunk with its dictionary.
fn decode(chunk: &FoundChunk, dictionary: Option<&[u8]>) -> Vec<u8> {
    match chunk.encoding() {
        Encoding::Contents => chunk.contents.to_vec(),
        Encoding::Snappy => snap::raw::Decoder::new().decompress_vec(&chunk.contents).unwrap(),
        Encoding::Zstd => {
            let mut decoder =
                zstd::bulk::Decompressor::with_dictionary(dictionary.unwrap()).unwrap();
            decoder.decompress(&chunk.contents, 16 << 20).unwrap()
        }
    }
}

#[test]
fn every_chunk_of_every_kind_of_store_is_served_in_both_forms() {
    for name in [
        "real-classic",
        "real-archive-v3",
        "rewritten-archive-v1",
        "real-archive-conjoined",
        "real-bigchunk",
        "real-localbs",
        "real-generational",
        "synth-sizes-classic",
        "synth-sizes-archive-zstd",
        "synth-sizes-archive-snappy",
    ] {
        let fixture = Fixture::new(name);
        let served = Served::of_fixture(&fixture);
        let request = many(&fixture.addresses());
        let contents = served.get_many(request.clone()).unwrap();
        assert_eq!(contents.chunks.len(), fixture.chunks.len(), "{name}");
        for ((index, chunk), expected) in (0..).zip(&contents.chunks).zip(&fixture.chunks) {
            assert_eq!((chunk.index, chunk.encoding()), (index, Encoding::Contents), "{name}");
            assert_eq!(chunk.contents.len(), expected.bytes, "{name}");
            check(expected.address, &chunk.contents);
        }
        let raw = served.get_many(stored(request)).unwrap();
        assert_eq!(raw.chunks.len(), fixture.chunks.len(), "{name}");
        let mut dictionaries = std::collections::HashMap::new();
        for (chunk, expected) in raw.chunks.iter().zip(&fixture.chunks) {
            let id = chunk.dictionary_id.clone();
            assert_eq!(id.is_empty(), chunk.encoding() != Encoding::Zstd, "{name}");
            let dictionary = (!id.is_empty()).then(|| {
                dictionaries
                    .entry(id.clone())
                    .or_insert_with(|| dictionary(&served, id.clone()).unwrap())
            });
            check(expected.address, &decode(chunk, dictionary.map(|bytes| &bytes[..])));
        }
        assert!(dictionaries.len() <= 2, "{name}");
    }
}

fn dictionary(served: &Served, dictionary_id: bytes::Bytes) -> Result<bytes::Bytes, tonic::Status> {
    let mut client = served.client.clone();
    let request = GetDictionaryRequest { store: "db".into(), dictionary_id };
    let response = served.runtime.block_on(client.get_dictionary(request));
    response.map(|response| response.into_inner().dictionary)
}

#[test]
fn one_chunk_is_found_or_not() {
    let fixture = Fixture::new("real-archive-v3");
    let served = Served::of_fixture(&fixture);
    for expected in &fixture.chunks {
        let answer = served.get(one(expected.address)).unwrap();
        assert!(answer.found && !answer.not_local);
        check(expected.address, &answer.contents);
    }
    let form = Form::Stored.into();
    let archived = fixture.chunks.iter().find_map(|expected| {
        let answer = served.get(GetChunkRequest { form, ..one(expected.address) }).unwrap();
        (answer.encoding() == Encoding::Zstd).then_some(answer)
    });
    assert_eq!(archived.unwrap().dictionary_id.len(), 32);
    let nowhere = served.get(one(NOWHERE)).unwrap();
    assert_eq!(nowhere, busload_proto::v1::GetChunkResponse::default());
}

#[test]
fn sixteen_thousand_addresses_get_one_result_each() {
    let fixture = Fixture::new("real-classic");
    let served = Served::of_fixture(&fixture);
    let known = fixture.addresses();
    let absent_every = 7;
    let addresses: Vec<_> = (0..16_384_usize)
        .map(|index| if index % absent_every == 0 { NOWHERE } else { known[index % known.len()] })
        .collect();
    let answer = served.get_many(many(&addresses)).unwrap();
    assert_eq!((answer.failed.len(), answer.not_local.len()), (0, 0));
    let missing = answer.missing.iter().map(|index| *index as usize).collect::<Vec<_>>();
    assert_eq!(missing, (0..16_384).step_by(absent_every).collect::<Vec<_>>());
    assert_eq!(answer.chunks.len() + missing.len(), addresses.len());
    for chunk in &answer.chunks {
        check(addresses[chunk.index as usize], &chunk.contents);
    }
    let absent = served.absent(has(&addresses)).unwrap();
    assert_eq!(absent, answer.missing);
}

#[test]
fn no_addresses_are_no_results() {
    let served = Served::of_fixture(&Fixture::new("synth-sizes-classic"));
    let answer = served.get_many(many(&[])).unwrap();
    assert_eq!(answer, busload_proto::v1::GetChunksResponse::default());
    assert!(served.absent(has(&[])).unwrap().is_empty());
}

#[test]
fn dictionaries_have_names_that_only_their_store_knows() {
    let fixture = Fixture::new("synth-sizes-archive-zstd");
    let served = Served::of_fixture(&fixture);
    let raw = served.get_many(stored(many(&fixture.addresses()))).unwrap();
    let id = raw.chunks[0].dictionary_id.clone();
    assert_eq!(id.len(), 32);
    let bytes = dictionary(&served, id.clone()).unwrap();
    assert!(!bytes.is_empty());
    assert_eq!(dictionary(&served, id.clone()).unwrap(), bytes, "the same twice");
    refused(dictionary(&served, vec![1; 32].into()), Code::NotFound, "dictionary");
    refused(dictionary(&served, id.slice(1..)), Code::InvalidArgument, "expected the 32 bytes");
    assert!(bytes.starts_with(&[0x37, 0xa4, 0x30, 0xec]), "a trained dictionary, decompressed");
}

#[test]
fn what_is_not_local_comes_to_disk_afterwards() {
    let fixture = Fixture::new("real-classic");
    let served = Served::of_fixture(&fixture);
    let address = fixture.chunks[100].address;
    let local = || GetChunkRequest { only_if_local: true, ..one(address) };
    let first = served.get(local()).unwrap();
    assert!(!first.found && first.not_local, "nothing has been read yet: {first:?}");
    let started = std::time::Instant::now();
    let answer = loop {
        let answer = served.get(local()).unwrap();
        if answer.found {
            break answer;
        }
        assert!(answer.not_local && started.elapsed() < super::TIMEOUT, "it never comes");
    };
    assert!(!answer.not_local);
    check(address, &answer.contents);
    // The read started the fill of its table file.
    let all = many(&fixture.addresses());
    let local = busload_proto::v1::GetChunksRequest { only_if_local: true, ..all };
    loop {
        let answer = served.get_many(local.clone()).unwrap();
        assert_eq!(answer.failed, []);
        assert_eq!(answer.chunks.len() + answer.not_local.len(), fixture.chunks.len());
        if answer.not_local.is_empty() {
            break;
        }
        assert!(started.elapsed() < super::TIMEOUT, "{} never come", answer.not_local.len());
    }
    let nowhere = served.get(GetChunkRequest { only_if_local: true, ..one(NOWHERE) }).unwrap();
    assert!(!nowhere.found && nowhere.not_local, "only the object store knows of newer files");
}

#[test]
fn only_local_chunks_are_present_if_that_is_asked() {
    let fixture = Fixture::new("real-classic");
    let served = Served::of_fixture(&fixture);
    let request = busload_proto::v1::HasChunksRequest {
        only_if_local: true,
        ..has(&[fixture.chunks[0].address, NOWHERE])
    };
    assert_eq!(served.absent(request).unwrap(), [0, 1]);
    assert_eq!(served.absent(has(&[fixture.chunks[0].address, NOWHERE])).unwrap(), [1]);
}

#[test]
fn calls_are_timed_by_table_and_kind() {
    let fixture = Fixture::new("real-classic");
    let served = Served::of_fixture(&fixture);
    let addresses = fixture.addresses();
    for address in [addresses[0], addresses[1], NOWHERE] {
        served.get(one(address)).unwrap();
    }
    served.get_many(many(&addresses)).unwrap();
    served.absent(has(&addresses)).unwrap();
    let metric = |end: &str, call: &str| {
        let name = format!("busload_chunks_call_duration_seconds_{end}");
        served.server.metric(&format!("{name}{{table=\"db\",call=\"{call}\"}}"))
    };
    for (call, count) in [("GetChunk", 3.0), ("GetChunks", 1.0), ("HasChunks", 1.0)] {
        assert_eq!(metric("count", call), count, "{call}");
        assert!(0.0 < metric("sum", call), "{call}");
    }
    // Nobody has downloaded anything.
    assert!(!served.server.http("/metrics").1.contains("call=\"file\""));
}
