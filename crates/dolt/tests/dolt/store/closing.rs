//! Deadlines, cancelled requests, and closed stores.

use std::{sync::Arc, time::Duration};

use busload_bucket::{Bucket, Fault, FaultProxy, Faults, Rule, url};
use busload_dolt::{Attempt, ChunkAddress, Error, Form, Request, Requester, Settings, Store};
use tokio::time::Instant;

use crate::store::{
    remote_store::until,
    support::{Harness, LONG, addresses, collect, contents, contents_of, copy, get, open, request},
};

/// Store behind a proxy.
struct RemoteStore {
    harness: Harness,
    proxy: FaultProxy,
    _bucket: Bucket,
    known: Vec<ChunkAddress>,
    chunks: Vec<Vec<u8>>,
}

impl RemoteStore {
    fn new() -> Self {
        let harness = Harness::new();
        let chunks: Vec<Vec<u8>> = (0..50).map(contents).collect();
        let known = addresses(&chunks);
        harness.write_manifest(known[0], &[harness.write_file(&chunks)]);
        copy(&harness.store(), &harness.path().join("s3/bucket/db"));
        let bucket = Bucket::start(&harness.path().join("s3")).unwrap();
        let proxy = FaultProxy::start(bucket.address(), 1, Faults::default()).unwrap();
        Self { harness, proxy, _bucket: bucket, known, chunks }
    }

    async fn open(&self) -> Store {
        open(Settings { url: url(self.proxy.address(), "db"), ..self.harness.settings() }).await
    }

    /// Stalls all answers from now on, also "not modified", which has no body that could stall.
    fn stall(&self) {
        let rule = Rule::always(Fault::Delay(Duration::from_secs(3600)));
        self.proxy.set(Faults { rules: vec![rule], ..Faults::default() });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_fails_all_waiting_requests() {
    let far = RemoteStore::new();
    let store = far.open().await;
    far.stall();
    let waiting = [0, 1].map(|index| {
        let (store, address) = (store.clone(), far.known[index]);
        tokio::spawn(async move { get(&store, address).await })
    });
    let absent = {
        let store = store.clone();
        tokio::spawn(async move { get(&store, ChunkAddress([5; 20])).await })
    };
    let many = {
        let (store, known) = (store.clone(), far.known.clone());
        tokio::spawn(async move {
            let count = known.len();
            collect(store.get_many(known, request(Form::Contents)), count).await
        })
    };
    let refresh = {
        let store = store.clone();
        tokio::spawn(async move { store.refresh().await })
    };
    // The requests wait once the store has received one.
    until("the store is asked", || 0 < store.stats().store.in_flight).await;
    tokio::time::timeout(LONG, store.close()).await.unwrap();
    for waiting in waiting.into_iter().chain([absent]) {
        assert_eq!(waiting.await.unwrap(), Err(Error::Closed));
    }
    assert!(many.await.unwrap().iter().all(|answer| *answer == Err(Error::Closed)));
    assert_eq!(refresh.await.unwrap(), Err(Error::Closed));
    assert_eq!(store.try_get(&far.known[0], Form::Contents), Attempt::Ready(Err(Error::Closed)));
    assert_eq!(store.try_has(&far.known[0]), Attempt::Ready(Err(Error::Closed)));
    assert_eq!(get(&store, far.known[0]).await, Err(Error::Closed));
    assert_eq!(store.opened().await, Err(Error::Closed));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_request_leaves_nothing_behind() {
    let far = RemoteStore::new();
    let store = far.open().await;
    far.stall();
    let given_up = tokio::time::timeout(Duration::from_millis(1), get(&store, far.known[3])).await;
    assert!(given_up.is_err(), "{given_up:?}");
    let mut reads = store.get_many(far.known.clone(), request(Form::Contents));
    assert!(
        tokio::time::timeout(Duration::from_millis(1), reads.next(&mut Vec::new())).await.is_err()
    );
    drop(reads);
    far.proxy.set(Faults::default());
    assert_eq!(contents_of(&store, far.known[3]).await, far.chunks[3]);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_that_passes_is_an_error_that_says_so() {
    let far = RemoteStore::new();
    let store = far.open().await;
    far.stall();
    let deadline = (Instant::now() + Duration::from_millis(20)).into_std();
    let request = Request { deadline, ..request(Form::Contents) };
    for address in [far.known[0], ChunkAddress([5; 20])] {
        let answer = tokio::time::timeout(LONG, store.get(address, request)).await.unwrap();
        assert!(matches!(answer, Err(Error::DeadlineExceeded(_))), "{answer:?}");
    }
    let many = collect(store.get_many(far.known.clone(), request), far.known.len()).await;
    assert!(
        many.iter().all(|answer| matches!(answer, Err(Error::DeadlineExceeded(_)))),
        "{many:?}"
    );
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_callers_for_one_cold_chunk_are_one_read() {
    let far = RemoteStore::new();
    let store = open(Settings {
        url: url(far.proxy.address(), "db"),
        fill_whole_max: 0,
        ..far.harness.settings()
    })
    .await;
    let before = store.stats().store.foreground_reads;
    let callers: Vec<_> = (0..256)
        .map(|_| {
            let (store, address) = (store.clone(), far.known[9]);
            tokio::spawn(async move { contents_of(&store, address).await })
        })
        .collect();
    for caller in callers {
        assert_eq!(caller.await.unwrap(), far.chunks[9]);
    }
    assert_eq!(store.stats().store.foreground_reads - before, 1);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_store_in_the_same_directory_is_refused() {
    let harness = Harness::of_fixture("real-classic");
    let store = harness.open().await;
    let Err(Error::Refused(text)) = Store::start(harness.settings()) else { panic!("two of them") };
    assert!(text.contains(&harness.settings().directory.display().to_string()), "{text}");
    store.close().await;
}

#[test]
fn a_store_can_be_asked_from_threads_that_know_no_runtime() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let harness = Arc::new(Harness::of_fixture("real-classic"));
    let store = runtime.block_on(harness.open());
    let root = store.stats().root.unwrap();
    let asked = std::thread::spawn({
        let store = store.clone();
        move || {
            futures_util::future::FutureExt::boxed(async move {
                let deadline = (Instant::now() + LONG).into_std();
                let request = Request {
                    form: Form::Contents,
                    local_only: false,
                    requester: Requester::Client,
                    deadline,
                };
                let one = store.get(root, request).await.unwrap().unwrap();
                let many = collect_all(&store, root, request).await;
                assert_eq!(Some(one), many);
                assert_eq!(store.has_many(&[root], request).await, Ok(vec![true]));
                assert!(store.length(root, request).await.unwrap().is_some());
                assert!(store.verify(&mut |_, _| {}).await.is_ok());
            })
        }
    });
    block_on(asked.join().unwrap());
    runtime.block_on(store.close());
}

async fn collect_all(
    store: &Store,
    root: ChunkAddress,
    request: Request,
) -> Option<busload_dolt::Chunk> {
    let mut reads = store.get_many(vec![root], request);
    let mut answers = Vec::new();
    while reads.next(&mut answers).await {}
    let (_, answer) = answers.pop().unwrap();
    answer.unwrap()
}

/// Executor of one thread without a runtime.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(done) => return done,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}
