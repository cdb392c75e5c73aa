//! Pinned dictionaries, which can be read whatever happens.

use std::{fs, time::Duration};

use busload_bucket::{Fault, Rule};
use busload_chunks::{ChunkAddress, Span};
use busload_dolt::{Error, FileBytes, Located, Settings, Store};

use crate::store::{
    archives::{DICTIONARY_CHUNKS_MIN, archive, write_conjoined},
    remote_store::{RemoteStore, deadline, stream},
    support::{Harness, addresses, contents, copy, open, write_manifest},
};

/// Store of an archive joined of two, each with a dictionary.
struct Two {
    far: RemoteStore,
    name: String,
    /// A few chunks of each part.
    known: [Vec<ChunkAddress>; 2],
}

impl Two {
    fn new() -> Self {
        let harness = Harness::new();
        let sets: [Vec<Vec<u8>>; 2] = [
            (0..DICTIONARY_CHUNKS_MIN).map(contents).collect(),
            (0..DICTIONARY_CHUNKS_MIN)
                .map(|number| format!("line {number} of another; ").repeat(9).into_bytes())
                .collect(),
        ];
        let spec =
            write_conjoined(&harness.store(), &sets.each_ref().map(|chunks| archive(chunks)));
        harness.write_manifest(ChunkAddress::ZERO, &[spec]);
        let known = sets.each_ref().map(|chunks| addresses(&chunks[10..20]));
        Self { far: RemoteStore::of(harness), name: format!("{}.darc", spec.id), known }
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.far.path(&self.name)).unwrap()
    }
}

fn dictionaries(located: &Located) -> Vec<Span> {
    let mut spans: Vec<_> =
        located.locations.iter().flatten().filter_map(|location| location.dictionary).collect();
    spans.sort_unstable();
    spans.dedup();
    spans
}

async fn file_of(store: &Store, located: &Located) -> FileBytes {
    let file = &located.locations[0].as_ref().unwrap().file;
    store.file_bytes(file.id, file.kind, file.version(), deadline()).await.unwrap().unwrap()
}

fn range(span: Span) -> std::ops::Range<u64> {
    span.offset..span.offset + u64::from(span.length)
}

fn cut(bytes: &[u8], span: Span) -> &[u8] {
    let start = usize::try_from(span.offset).unwrap();
    &bytes[start..start + span.length as usize]
}

#[tokio::test(flavor = "multi_thread")]
async fn pinned_dictionaries_are_served_without_store_and_disk() {
    let two = Two::new();
    let bytes = two.bytes();
    let store = open(two.far.settings()).await;
    let located = store.locate(&two.known.concat(), deadline()).await.unwrap();
    let spans = dictionaries(&located);
    assert_eq!(spans.len(), 2);
    store.pin_dictionaries(&located, deadline()).await.unwrap();
    two.far.rules(vec![Rule::always(Fault::Status(403))]);
    store.cache().drop_all().await;
    let file = file_of(&store, &located).await;
    for span in spans {
        assert_eq!(stream(&file, range(span)).await.unwrap(), cut(&bytes, span));
        let part = span.offset + 3..span.offset + 11;
        let expected = &cut(&bytes, span)[3..11];
        assert_eq!(
            stream(&file, part).await.unwrap(),
            expected,
            "as a client that resumes asks for it"
        );
        let beyond = span.offset..span.offset + u64::from(span.length) + 1;
        assert!(stream(&file, beyond).await.is_err(), "nothing else is kept");
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pinned_dictionaries_are_not_read_again() {
    let two = Two::new();
    let store = two.far.open_without_disk().await;
    let located = store.locate(&two.known.concat(), deadline()).await.unwrap();
    store.pin_dictionaries(&located, deadline()).await.unwrap();
    two.far.proxy.forget();
    for known in &two.known {
        let located = store.locate(known, deadline()).await.unwrap();
        store.pin_dictionaries(&located, deadline()).await.unwrap();
    }
    assert!(two.far.proxy.seen().is_empty(), "{:?}", two.far.proxy.seen());
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dictionary_that_cannot_be_read_is_an_error_and_never_advertised() {
    let two = Two::new();
    let store = two.far.open_without_disk().await;
    let located = store.locate(&two.known[0], deadline()).await.unwrap();
    two.far.rules(vec![Rule::always(Fault::Status(403))]);
    let error = store.pin_dictionaries(&located, deadline()).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
    two.far.rules(vec![Rule::always(Fault::Stall(0))]);
    let soon = (tokio::time::Instant::now() + std::time::Duration::from_millis(50)).into_std();
    let error = store.pin_dictionaries(&located, soon).await.unwrap_err();
    assert!(matches!(error, Error::DeadlineExceeded(_)), "{error:?}");
    two.far.rules(Vec::new());
    store.pin_dictionaries(&located, deadline()).await.unwrap();
    store.close().await;
}

/// A bit flips once in transit: the pinned bytes are those of the store.
#[tokio::test(flavor = "multi_thread")]
async fn a_dictionary_is_pinned_only_after_a_chunk_was_verified_with_it() {
    for at in [5, 100, 700] {
        let two = Two::new();
        let bytes = two.bytes();
        let store = two.far.open_without_disk().await;
        let located = store.locate(&two.known.concat(), deadline()).await.unwrap();
        two.far.rules(vec![Rule::times(2, Fault::Flip(at)).to(&two.name)]);
        store.pin_dictionaries(&located, deadline()).await.unwrap();
        two.far.rules(vec![Rule::always(Fault::Status(403))]);
        let file = file_of(&store, &located).await;
        for span in dictionaries(&located) {
            assert_eq!(stream(&file, range(span)).await.unwrap(), cut(&bytes, span), "{at}");
        }
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dictionary_is_verified_by_another_chunk_if_one_is_corrupt() {
    let two = Two::new();
    let mut bytes = two.bytes();
    let store = two.far.open_without_disk().await;
    let located = store.locate(&two.known[0], deadline()).await.unwrap();
    // The chunk at this location is corrupt in the store.
    let corrupt = located.locations[0].as_ref().unwrap().span;
    store.close().await;
    let start = usize::try_from(corrupt.offset).unwrap();
    // Behind the header of the frame.
    bytes[start + corrupt.length as usize - 3] ^= 0x55;
    two.far.put(&two.name, &bytes);
    let store = two.far.open_without_disk().await;
    let located = store.locate(&two.known[0], deadline()).await.unwrap();
    store.pin_dictionaries(&located, deadline()).await.unwrap();
    let file = file_of(&store, &located).await;
    let span = dictionaries(&located)[0];
    assert_eq!(stream(&file, range(span)).await.unwrap(), cut(&bytes, span));
    // No other chunk verifies the dictionary of this chunk.
    let store = two.far.open_without_disk().await;
    let alone = store.locate(&two.known[0][..1], deadline()).await.unwrap();
    let error = store.pin_dictionaries(&alone, deadline()).await.unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_without_dictionaries_need_nothing() {
    let harness = Harness::of_fixture("real-classic");
    let far = RemoteStore::of(harness);
    let store = far.open_without_disk().await;
    let root = store.snapshot().unwrap().manifest.root;
    let located = store.locate(&[root], deadline()).await.unwrap();
    far.proxy.forget();
    store.pin_dictionaries(&located, deadline()).await.unwrap();
    assert!(far.proxy.seen().is_empty());
    store.close().await;
}

/// A client may ask for an advertised dictionary after its file was dropped and closed, or
/// replaced.
#[tokio::test(flavor = "multi_thread")]
async fn dictionaries_of_files_that_were_closed_are_served_for_a_while() {
    let two = Two::new();
    let bytes = two.bytes();
    let settings =
        Settings { grace_period: Duration::ZERO, disk_bytes_max: 0, ..two.far.settings() };
    for is_replaced in [false, true] {
        let store = open(settings.clone()).await;
        let located = store.locate(&two.known[0], deadline()).await.unwrap();
        store.pin_dictionaries(&located, deadline()).await.unwrap();
        let location = located.locations.into_iter().flatten().next().unwrap();
        let (id, kind, version) = (location.file.id, location.file.kind, location.file.version());
        let ask = async || store.file_bytes(id, kind, version, deadline()).await.unwrap().unwrap();
        drop(location.file);
        if is_replaced {
            let mut other = bytes.clone();
            other[40] ^= 1;
            two.far.put(&two.name, &other);
            stream(&ask().await, 0..bytes.len() as u64).await.unwrap_err();
            store.refresh().await.unwrap();
        } else {
            write_manifest(&two.far.path(""), ChunkAddress::ZERO, &[]);
            store.refresh().await.unwrap();
            assert_eq!(store.stats().files, 0);
        }
        for is_away in [false, true] {
            if is_away {
                two.far.rules(vec![Rule::always(Fault::Status(403))]);
            }
            let dictionary = range(location.dictionary.unwrap());
            let found = stream(&ask().await, dictionary).await.unwrap();
            assert_eq!(found, cut(&bytes, location.dictionary.unwrap()));
            let chunk = stream(&ask().await, range(location.span)).await;
            let expected = cut(&bytes, location.span);
            match chunk {
                // Bytes received a moment ago need no store.
                Ok(chunk) => assert_eq!(chunk, expected),
                Err(error) => {
                    assert!(
                        matches!(error, Error::Unreachable(_)) && (is_replaced || is_away),
                        "{error}"
                    )
                }
            }
        }
        two.far.rules(Vec::new());
        store.close().await;
        two.far.put(&two.name, &bytes);
        copy(&two.far.harness.store(), &two.far.path(""));
    }
}
