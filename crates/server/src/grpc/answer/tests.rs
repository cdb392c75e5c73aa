use std::time::Duration;

use tonic::{Code, metadata::MetadataMap};

use super::*;

fn deadline() -> Deadline {
    Deadline::of(&MetadataMap::new(), Duration::from_secs(10)).unwrap()
}

#[test]
fn an_absent_chunk_and_one_that_is_not_local_are_no_errors() {
    let deadline = deadline();
    assert_eq!(one(Ok(None), &deadline).unwrap(), GetChunkResponse::default());
    let not_local = one(Err(Error::NotLocal), &deadline).unwrap();
    assert_eq!(not_local, GetChunkResponse { not_local: true, ..GetChunkResponse::default() });
    let error = Error::Corrupt("the reason".to_owned());
    assert_eq!(one(Err(error), &deadline).unwrap_err().code(), Code::DataLoss);
}

#[test]
fn encodings_are_told() {
    let bytes = Bytes::from_static(b"bytes");
    for (chunk, encoding, dictionary) in [
        (Chunk::Contents(bytes.clone()), Encoding::Contents, &[][..]),
        (Chunk::Snappy(bytes.clone()), Encoding::Snappy, &[]),
        (Chunk::Zstd(bytes.clone(), DictionaryId([9; 32])), Encoding::Zstd, &[9; 32]),
    ] {
        let answer = one(Ok(Some(chunk)), &deadline()).unwrap();
        assert!(answer.found && !answer.not_local);
        assert_eq!(answer.encoding(), encoding);
        assert_eq!(answer.contents, bytes);
        assert_eq!(answer.dictionary_id, dictionary);
    }
}

#[test]
fn what_is_no_address_is_refused_with_what_was_expected() {
    assert_eq!(address(&[7; 20]).unwrap(), ChunkAddress([7; 20]));
    assert_eq!(address(&[7; 32]).unwrap_err().message(), "address: expected 20 bytes, got 32");
    assert_eq!(dictionary_id(&[7; 32]).unwrap(), DictionaryId([7; 32]));
    assert_eq!(dictionary_id(&[]).unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(form(1).unwrap(), Form::Stored);
    assert!(form(2).unwrap_err().message().ends_with("got 2"));
}

#[test]
fn a_message_is_as_long_as_its_limit_and_a_larger_chunk_is_alone() {
    let deadline = deadline();
    let chunk = |bytes: usize| Ok(Some(Chunk::Contents(vec![1; bytes].into())));
    let mut message = Message::default();
    assert!(message.has_space_for(&chunk(10 * MESSAGE_BYTES)), "or it would never be sent");
    let mut count = 0;
    while message.has_space_for(&chunk(4096)) {
        message.add(count, chunk(4096), &deadline);
        count += 1;
    }
    assert!(!message.is_full() && message.has_space_for(&Ok(None)));
    assert!(!message.has_space_for(&chunk(MESSAGE_BYTES)));
    let encoded = prost_length(&message.into_inner());
    assert!(MESSAGE_BYTES - 2 * 4096 < encoded && encoded <= MESSAGE_BYTES, "{encoded}");
    let mut large = Message::default();
    large.add(0, chunk(10 * MESSAGE_BYTES), &deadline);
    assert!(large.is_full() && !large.has_space_for(&Ok(None)));
}

#[test]
fn results_are_sorted_by_what_they_are() {
    let deadline = deadline();
    let mut message = Message::default();
    assert!(message.is_empty());
    message.add(4, Ok(None), &deadline);
    message.add(1, Err(Error::NotLocal), &deadline);
    message.add(3, Err(Error::Corrupt("file f, offset 7".into())), &deadline);
    message.add(2, Ok(Some(Chunk::Snappy(Bytes::from_static(b"s")))), &deadline);
    assert!(!message.is_empty());
    let results = message.into_inner();
    assert_eq!((results.missing, results.not_local), (vec![4], vec![1]));
    let failed = FailedChunk { index: 3, code: 15, message: "file f, offset 7".into() };
    assert_eq!(results.failed, [failed]);
    assert_eq!(results.chunks.len(), 1);
    assert_eq!((results.chunks[0].index, results.chunks[0].encoding()), (2, Encoding::Snappy));
}

/// Returns the encoded length of a message: fields 1 with their tags and lengths; all others are
/// empty.
fn prost_length(message: &GetChunksResponse) -> usize {
    assert!(
        message.missing.is_empty() && message.not_local.is_empty() && message.failed.is_empty()
    );
    let varint = |value: usize| 1 + (value.max(1).ilog2() / 7) as usize;
    let chunk = |chunk: &FoundChunk| {
        let index = if chunk.index == 0 { 0 } else { 1 + varint(chunk.index as usize) };
        let body = index + 1 + varint(chunk.contents.len()) + chunk.contents.len();
        1 + varint(body) + body
    };
    message.chunks.iter().map(chunk).sum()
}
