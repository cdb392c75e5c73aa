use busload_proto::v1::FailedChunk;

use super::*;

fn found(index: u32, encoding: i32, dictionary_id: &'static [u8]) -> FoundChunk {
    let (contents, dictionary_id) = (vec![1].into(), dictionary_id.into());
    FoundChunk { index, contents, encoding, dictionary_id }
}

#[test]
fn every_index_of_a_message_is_an_answer_and_others_are_left_out() {
    let failed = FailedChunk { index: 4, code: 14, message: String::new() };
    let message = GetChunksResponse {
        chunks: vec![
            found(0, Encoding::Contents.into(), &[]),
            found(1, Encoding::Zstd.into(), &[7; 32]),
            found(5, Encoding::Zstd.into(), &[7; 31]),
            found(6, 99, &[]),
            found(7, Encoding::Snappy.into(), &[]),
            found(8, Encoding::Snappy.into(), &[]),
        ],
        missing: vec![2, 9],
        not_local: vec![3],
        failed: vec![failed],
    };
    let mut answers = answers(message, 8);
    answers.sort_by_key(|(index, _)| *index);
    let unread = Err(PeerError::Failed);
    assert_eq!(
        answers,
        [
            (0, Ok(Some(Chunk::Contents(vec![1].into())))),
            (1, Ok(Some(Chunk::Zstd(vec![1].into(), DictionaryId([7; 32]))))),
            (2, Ok(None)),
            (3, unread.clone()),
            (4, unread.clone()),
            (5, unread.clone()),
            (6, unread),
            (7, Ok(Some(Chunk::Snappy(vec![1].into())))),
        ]
    );
}

#[test]
fn a_peer_has_at_most_half_of_the_time_that_is_left() {
    let now = tokio::time::Instant::now().into_std();
    let after = |time: Duration| deadline(now, now + time) - now;
    assert_eq!(after(Duration::from_secs(60)), PEER_CHUNK_TIMEOUT);
    assert_eq!(after(Duration::from_millis(100)), Duration::from_millis(50));
    assert_eq!(deadline(now, now.checked_sub(Duration::from_secs(1)).unwrap_or(now)), now);
}

#[tokio::test]
async fn a_url_that_no_client_can_use_is_refused() {
    let start = |url| PeerClient::start(url, None, Access::default(), Arc::default()).map(drop);
    assert_eq!(start("http://a:6381"), Ok(()));
    assert_eq!(start("http://[::1]:6381/below"), Ok(()));
    assert_eq!(
        start("https://a:6381").unwrap_err(),
        "expected http://, or https:// with settings of TLS"
    );
}

/// A peer that sent a chunk now and then was asked again and again, and delayed each request.
#[test]
fn a_peer_that_sends_little_is_paused_after_a_few_calls() {
    let late = LateCalls::default();
    assert!(late.note_late(0, 1), "nothing at all");
    let few = |count: u32| (0..count).filter(|_| late.note_late(4, 10)).count();
    assert_eq!(few(PEER_LATE_CALLS_MAX - 1), 0);
    assert!(late.note_late(4, 10));
    assert_eq!(few(PEER_LATE_CALLS_MAX - 1), 0, "it begins anew after the pause");
    late.note_complete();
    assert_eq!(few(PEER_LATE_CALLS_MAX - 1), 0);
    assert!(!late.note_late(5, 10), "half of them is not little");
}
