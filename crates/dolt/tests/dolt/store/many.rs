//! Many chunks in one request, and many callers at once.

use busload_dolt::{Attempt, Chunk, ChunkAddress, Error, Form, Settings, Store};

use crate::store::support::{Harness, addresses, collect, contents, local, noise, open, request};

/// Makes a store of some files; returns their chunks.
async fn some(
    settings: impl Fn(Settings) -> Settings,
) -> (Harness, Store, Vec<ChunkAddress>, Vec<Vec<u8>>) {
    let harness = Harness::new();
    let chunks: Vec<Vec<u8>> = (0..600).map(contents).collect();
    let files: Vec<_> = chunks.chunks(150).map(|chunks| harness.write_file(chunks)).collect();
    let known = addresses(&chunks);
    harness.write_manifest(known[0], &files);
    let store = open(settings(harness.settings())).await;
    (harness, store, known, chunks)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_many_has_one_result_whether_it_is_there_or_not() {
    for settings in [
        (|settings| settings) as fn(Settings) -> Settings,
        |settings| Settings { disk_bytes_max: 0, ..settings },
        |settings| Settings { memory_bytes_max: 1 << 20, ..settings },
    ] {
        let (_harness, store, known, chunks) = some(settings).await;
        for _ in 0..2 {
            let mut asked = Vec::new();
            for (index, address) in known.iter().enumerate() {
                asked.push(*address);
                if index % 3 == 0 {
                    asked.push(ChunkAddress::of(format!("absent {index}").as_bytes()));
                }
            }
            // The same address again.
            asked.push(known[5]);
            let answers =
                collect(store.get_many(asked.clone(), request(Form::Contents)), asked.len()).await;
            for (address, answer) in asked.iter().zip(answers) {
                let expected =
                    known.iter().position(|known| known == address).map(|index| &chunks[index]);
                let answer = answer.unwrap().map(|chunk| chunk.bytes().to_vec());
                assert_eq!(answer.as_ref(), expected);
            }
            store.warm(&mut |_| {}).await.ok();
        }
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_for_nothing_gives_nothing() {
    let (_harness, store, ..) = some(|settings| settings).await;
    assert_eq!(collect(store.get_many(Vec::new(), request(Form::Contents)), 0).await, []);
    assert_eq!(store.has_many(&[], request(Form::Contents)).await, Ok(Vec::new()));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn local_only_requests_do_not_wait_for_the_store() {
    let (_harness, store, known, _) =
        some(|settings| Settings { disk_bytes_max: 0, ..settings }).await;
    let mut asked = known.clone();
    asked.push(ChunkAddress([3; 20]));
    let answers = collect(store.get_many(asked.clone(), local(Form::Stored)), asked.len()).await;
    assert!(answers.iter().all(|answer| *answer == Err(Error::NotLocal)), "{answers:?}");
    assert_eq!(store.has_many(&asked, local(Form::Contents)).await, Ok(vec![false; asked.len()]));
    assert_eq!(store.stats().errors, 0);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_is_on_disk_after_warming() {
    let (_harness, store, known, _) = some(|settings| settings).await;
    let progress = store.warm(&mut |_| {}).await.unwrap();
    assert_eq!(progress.done, store.snapshot().unwrap().file_bytes());
    assert_eq!(store.has_many(&known, local(Form::Contents)).await, Ok(vec![true; known.len()]));
    let answers = collect(store.get_many(known.clone(), local(Form::Contents)), known.len()).await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Some(_)))), "{answers:?}");
    let stats = store.stats();
    assert_eq!((stats.local, stats.remote), (known.len() as u64, 0));
    store.close().await;
}

/// Requests larger than any window, and readers that stop in the middle.
#[tokio::test(flavor = "multi_thread")]
async fn many_callers_at_once_get_their_chunks() {
    let harness = Harness::new();
    let chunks: Vec<Vec<u8>> = (0..400).map(|seed| noise(seed, 40_000)).collect();
    let known = addresses(&chunks);
    let files: Vec<_> = chunks.chunks(200).map(|chunks| harness.write_file(chunks)).collect();
    harness.write_manifest(known[0], &files);
    let store = harness.open().await;
    let mut callers = Vec::new();
    for caller in 0..8usize {
        let (store, known) = (store.clone(), known.clone());
        callers.push(tokio::spawn(async move {
            if caller % 4 == 3 {
                // Drops the request after the first results.
                let mut some = Vec::new();
                let mut reads = store.get_many(known, request(Form::Contents));
                assert!(reads.next(&mut some).await);
            } else if caller % 4 == 2 {
                for address in known.iter().skip(caller).step_by(3) {
                    match store.try_get(address, Form::Contents) {
                        Attempt::Ready(answer) => {
                            let answer = answer.unwrap().unwrap();
                            assert_eq!(ChunkAddress::of(answer.bytes()), *address);
                        }
                        Attempt::Wait => tokio::task::yield_now().await,
                    }
                }
            } else {
                let answers =
                    collect(store.get_many(known.clone(), request(Form::Contents)), known.len())
                        .await;
                for (address, answer) in known.iter().zip(answers) {
                    let Ok(Some(Chunk::Contents(contents))) = answer else { panic!("{answer:?}") };
                    assert_eq!(ChunkAddress::of(&contents), *address);
                }
            }
        }));
    }
    for caller in callers {
        caller.await.unwrap();
    }
    store.close().await;
}
