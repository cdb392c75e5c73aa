//! Chunks in files of other caches: asked of their owners, verified, and kept on no other disk.

use std::{
    collections::{HashMap, HashSet},
    fs,
    sync::{Arc, Mutex},
};

use busload_dolt::{
    Chunk, ChunkAddress, FileId, Form, PeerAnswer, PeerQuestion, Peers, Request, Requester,
    Settings, Store,
};
use futures_util::FutureExt;

use super::support::{
    Harness, addresses, collect, contents, contents_of, fixture_list, local, open, request,
};

/// Answer of the other caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Right,
    Wrong,
    Silent,
    NotAsked,
}

/// Peers of which one has some files of a store. It answers by a store of its own.
struct Fake {
    files: HashSet<FileId>,
    store: Store,
    peer: Peer,
    asked: Mutex<Vec<(ChunkAddress, Form)>>,
}

impl Peers for Fake {
    fn is_mine(&self, store: &str, file: &FileId) -> bool {
        assert_eq!(store, "db");
        !self.files.contains(file)
    }

    fn ask(&self, question: PeerQuestion<'_>) -> Option<Vec<PeerAnswer>> {
        assert!(self.files.contains(question.file));
        self.asked.lock().unwrap().extend_from_slice(question.chunks);
        let answer = |&(address, form)| -> PeerAnswer {
            let (store, peer) = (self.store.clone(), self.peer);
            let answer = async move {
                let request = Request { requester: Requester::Peer, ..request(form) };
                let chunk = store.get(address, request).await.unwrap();
                match peer {
                    Peer::Wrong => chunk.map(|_| Chunk::Contents("wrong".into())),
                    Peer::Silent => None,
                    Peer::Right | Peer::NotAsked => chunk,
                }
            };
            answer.boxed()
        };
        (self.peer != Peer::NotAsked).then(|| question.chunks.iter().map(answer).collect())
    }
}

impl Fake {
    fn asked(&self) -> Vec<(ChunkAddress, Form)> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

/// Opens a store of which a peer has all files but the first, and returns both.
async fn with_peer(harness: &Harness, peer: Peer) -> (Store, Arc<Fake>) {
    let of_peer = Settings { directory: harness.path().join("peer"), ..harness.settings() };
    let of_peer = open(of_peer).await;
    let files = &of_peer.snapshot().unwrap().files;
    let files = files.iter().skip(1).map(|file| file.id).collect();
    let fake = Arc::new(Fake { files, store: of_peer, peer, asked: Mutex::default() });
    let settings = Settings { peers: Some(fake.clone()), ..harness.settings() };
    (open(settings).await, fake)
}

/// Makes a store of two files, and returns the chunks of both; the peer has the second.
fn two_files(harness: &Harness) -> [Vec<Vec<u8>>; 2] {
    let files = [0..40, 40..80].map(|range| range.map(contents).collect::<Vec<_>>());
    let specs = files.each_ref().map(|chunks| harness.write_file(chunks));
    harness.write_manifest(ChunkAddress::of(&files[0][0]), &specs);
    files
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_of_a_peer_come_from_it_and_not_from_the_bucket() {
    let harness = Harness::new();
    let files = two_files(&harness);
    let (store, peer) = with_peer(&harness, Peer::Right).await;
    let of_peer = store.snapshot().unwrap().files[1].id;
    let theirs = files.iter().find(|chunks| {
        let address = ChunkAddress::of(&chunks[0]);
        store.table_file(&of_peer).unwrap().index.find(&address).is_some()
    });
    let theirs: HashMap<ChunkAddress, &Vec<u8>> =
        theirs.unwrap().iter().map(|chunk| (ChunkAddress::of(chunk), chunk)).collect();
    let all = files.concat();

    for _ in 0..2 {
        for chunk in &all {
            let address = ChunkAddress::of(chunk);
            assert_eq!(contents_of(&store, address).await, *chunk);
            let length = store.length(address, request(Form::Contents)).await.unwrap();
            assert_eq!(length, Some(chunk.len() as u64));
        }
        let many = collect(store.get_many(addresses(&all), request(Form::Contents)), 80).await;
        for (found, chunk) in many.into_iter().zip(&all) {
            assert_eq!(found.unwrap(), Some(Chunk::Contents(chunk.clone().into())));
        }
        let asked = peer.asked();
        assert_eq!(asked.len(), 3 * 40, "each chunk of the peer, each time");
        assert!(asked.iter().all(|(address, _)| theirs.contains_key(address)));
        // A block of snappy is what is sent, whatever is wanted.
        assert!(asked.iter().all(|(_, form)| *form == Form::Stored));
    }
    let stats = store.stats();
    assert_eq!((stats.peers, stats.corrupt, stats.errors), (2 * 3 * 40, 0, 0));
    assert_eq!(stats.cache.objects, 1, "the file of the peer is not on this disk");
    assert_eq!(peer.store.stats().cache.objects, 1, "it is on that one");
    // The bytes of the bucket are those of the manifest, the indexes and the first file.
    let sizes = store.snapshot().unwrap();
    let sizes: Vec<u64> = sizes.files.iter().map(|file| file.object.meta().size).collect();
    assert!(stats.store.foreground_reads <= 40 + 10, "{stats:?} {sizes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_peers_and_of_local_chunks_ask_nobody() {
    let harness = Harness::new();
    let files = two_files(&harness);
    let (store, peer) = with_peer(&harness, Peer::Right).await;
    for chunk in files.concat() {
        let address = ChunkAddress::of(&chunk);
        let by_peer = Request { requester: Requester::Peer, ..request(Form::Contents) };
        let found = store.get(address, by_peer).await.unwrap();
        assert_eq!(found, Some(Chunk::Contents(chunk.clone().into())));
        let many = collect(store.get_many(vec![address], by_peer), 1).await;
        assert_eq!(many, [Ok(Some(Chunk::Contents(chunk.into())))]);
        // There or not: nobody is asked.
        let _ = store.get(address, local(Form::Contents)).await;
        collect(store.get_many(vec![address], local(Form::Contents)), 1).await;
    }
    assert_eq!(peer.asked(), []);
    assert_eq!(store.stats().peers, 0);
    assert_eq!(store.stats().cache.objects, 1, "whoever asks, it is the file of another");
}

/// A peer may be broken, behind a broken network, or gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_peer_does_not_send_or_sends_wrong_comes_from_the_bucket() {
    for kind in [Peer::Wrong, Peer::Silent, Peer::NotAsked] {
        let harness = Harness::new();
        let all = two_files(&harness).concat();
        let (store, peer) = with_peer(&harness, kind).await;
        for chunk in &all {
            assert_eq!(contents_of(&store, ChunkAddress::of(chunk)).await, *chunk, "{kind:?}");
        }
        for form in [Form::Contents, Form::Stored, Form::Record] {
            let many = collect(store.get_many(addresses(&all), request(form)), 80).await;
            assert!(many.iter().all(|found| matches!(found, Ok(Some(_)))), "{kind:?}");
        }
        assert_eq!(peer.asked().len(), 40 + 3 * 40);
        let stats = store.stats();
        let wrong = if kind == Peer::Wrong { 40 + 3 * 40 } else { 0 };
        assert_eq!((stats.peers, stats.corrupt, stats.errors), (0, wrong, 0), "{kind:?}");
        assert_eq!(stats.cache.objects, 1, "{kind:?}");
    }
}

/// Dolt's own files: archives with dictionaries, and classic files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_form_of_every_file_is_as_without_peers() {
    for name in ["real-classic", "real-archive-v3"] {
        let harness = Harness::of_fixture(name);
        let listed: Vec<_> =
            fixture_list(name, "chunks.jsonl").iter().map(|chunk| chunk.address).collect();
        let alone = Settings { directory: harness.path().join("alone"), ..harness.settings() };
        let alone = open(alone).await;
        let (mut store, peer) = with_peer(&harness, Peer::Right).await;
        // All files are the peer's.
        let files = alone.snapshot().unwrap().files.iter().map(|file| file.id).collect();
        let (of_peer, asked) = (peer.store.clone(), Mutex::default());
        let peer = Arc::new(Fake { files, store: of_peer, peer: Peer::Right, asked });
        let settings = Settings {
            peers: Some(peer.clone()),
            directory: harness.path().join("other"),
            ..harness.settings()
        };
        store = {
            drop(store);
            open(settings).await
        };
        for form in [Form::Contents, Form::Stored, Form::Record] {
            let reads = [&alone, &store].map(|store| store.get_many(listed.clone(), request(form)));
            let [expected, found] = reads.map(|reads| collect(reads, listed.len()));
            let (expected, found) = (expected.await, found.await);
            if form == Form::Record {
                // Snappy gives other bytes for the same contents; both are records.
                assert!(found.iter().all(|found| matches!(found, Ok(Some(Chunk::Snappy(_))))));
            } else {
                assert!(expected == found, "{name} {form:?}");
            }
            assert_eq!(peer.asked().len(), listed.len(), "{name} {form:?}");
        }
        assert_eq!(store.stats().peers, 3 * listed.len() as u64);
        assert_eq!(store.stats().cache.objects, 0, "{name}");
        fs::remove_dir_all(harness.path().join("peer")).unwrap();
    }
}
