//! Stores by pattern: one opening for all, idle stores that go, names that lead nowhere.

mod known;
mod reopening;

use std::{fs, sync::Arc, time::Duration};

use busload_chunks::ChunkAddress;
use busload_dolt::{
    Error, Form, OpenStore, Request, Requester, SetSettings, StoreSet, StoreTemplate,
};
use busload_objects::StoreShare;
use tokio::time::{Instant, sleep, timeout};

use super::support::{Harness, LONG, contents, write_file, write_manifest};

/// A directory with stores `org/0`, `org/1`, ... of ten chunks each.
struct Stores {
    harness: Harness,
}

impl Stores {
    fn new(count: usize) -> Self {
        let stores = Self { harness: Harness::new() };
        (0..count).for_each(|number| stores.write(number));
        stores
    }

    fn write(&self, number: usize) {
        let directory = self.harness.store().join("org").join(number.to_string());
        fs::create_dir_all(&directory).unwrap();
        let chunks: Vec<_> = (0..10).map(|index| contents(10 * number + index)).collect();
        let spec = write_file(&directory, &chunks);
        write_manifest(&directory, ChunkAddress::of(&chunks[0]), &[spec]);
    }

    fn settings(&self) -> SetSettings {
        let mut store = self.harness.settings();
        let url = format!("{}/{{name}}", self.harness.url());
        store.name = "*/*".to_owned();
        SetSettings {
            store,
            template: StoreTemplate::parse(&url, 2).unwrap(),
            sample: "a/a".to_owned(),
            stores_max: 100,
            index_bytes_max: 1 << 30,
            idle: Duration::from_secs(3600),
            store_share: StoreShare::default(),
            busiest_max: 2,
        }
    }

    fn start(&self) -> StoreSet {
        StoreSet::start(self.settings()).unwrap()
    }
}

fn name(number: usize) -> String {
    format!("org/{number}")
}

/// Reads the first chunk of a store.
async fn read(store: &Arc<OpenStore>, number: usize) -> Result<(), Error> {
    let expected = contents(10 * number);
    let deadline = (Instant::now() + LONG).into_std();
    let request =
        Request { form: Form::Contents, local_only: false, requester: Requester::Client, deadline };
    let chunk = store.get(ChunkAddress::of(&expected), request).await?.expect("the chunk exists");
    assert_eq!(chunk, busload_dolt::Chunk::Contents(expected.into()));
    Ok(())
}

async fn read_from(set: &StoreSet, number: usize) -> Result<(), Error> {
    read(&set.get(&name(number))?, number).await
}

async fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let waited = timeout(LONG, async {
        while !is() {
            sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("{what}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_is_opened_once_for_all_who_ask() {
    let stores = Stores::new(3);
    let set = stores.start();
    let reads = (0..60).map(|index| {
        let set = set.clone();
        tokio::spawn(async move { read_from(&set, index % 3).await })
    });
    for read in futures_util::future::join_all(reads).await {
        read.unwrap().unwrap();
    }
    let stats = set.stats();
    assert_eq!((stats.open, stats.opened, stats.refused), (3, 3, 0));
    set.close().await;
    assert!(matches!(set.get("org/0"), Err(Error::Closed)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_does_not_exist_is_remembered_and_found_when_it_appears() {
    let stores = Stores::new(1);
    let set = stores.start();
    let missing = read_from(&set, 7).await.unwrap_err();
    assert_eq!(missing, Error::NoStore("there is no store org/7".to_owned()));
    eventually("the store is not forgotten", || set.stats().open == 0).await;
    let requests = set.stats().store.requests;
    for _ in 0..100 {
        assert!(matches!(set.get("org/7"), Err(Error::NoStore(_))));
    }
    let stats = set.stats();
    assert_eq!((stats.store.requests, stats.absent_remembered), (requests, 100));
    stores.write(7);
    let found = timeout(LONG, async {
        while read_from(&set, 7).await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
    });
    found.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_stores_make_room_and_used_ones_stay() {
    let stores = Stores::new(6);
    let set = StoreSet::start(SetSettings { stores_max: 3, ..stores.settings() }).unwrap();
    let held = set.get("org/0").unwrap();
    read(&held, 0).await.unwrap();
    for number in 1..6 {
        read_from(&set, number).await.unwrap();
    }
    let stats = set.stats();
    assert_eq!((stats.open, stats.opened, stats.closed), (3, 6, 3));
    assert!(set.find("org/0").is_some(), "it is in use");
    let others = [set.get("org/4").unwrap(), set.get("org/5").unwrap()];
    let refused = set.get("org/1").unwrap_err();
    assert!(matches!(&refused, Error::Overloaded(text) if text.contains("3 stores are in use")));
    drop(others);
    read_from(&set, 1).await.unwrap();
    read(&held, 0).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indexes_of_open_stores_stay_within_their_memory() {
    let stores = Stores::new(6);
    let one = {
        let set = stores.start();
        read_from(&set, 0).await.unwrap();
        // The set learns of an opened store a moment after the first answer from it.
        eventually("the index is not counted", || 0 < set.stats().index_bytes).await;
        let bytes = set.stats().index_bytes;
        set.close().await;
        bytes
    };
    assert!(0 < one);
    let settings = SetSettings { index_bytes_max: 2 * one, ..stores.settings() };
    let set = StoreSet::start(settings).unwrap();
    for number in 0..6 {
        read_from(&set, number).await.unwrap();
    }
    eventually("too many indexes are in memory", || set.stats().index_bytes <= 2 * one).await;
    let held: Vec<_> = (0..6).map_while(|number| set.get(&name(number)).ok()).collect();
    for (number, store) in held.iter().enumerate() {
        read(store, number).await.unwrap();
    }
    // Stores in use are never closed, so the next one has to wait.
    let unknown = set.get("org/5");
    assert!(held.len() == 6 || matches!(unknown, Err(Error::Overloaded(_))), "{unknown:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_without_requests_is_closed() {
    let stores = Stores::new(2);
    let settings = SetSettings { idle: Duration::from_millis(200), ..stores.settings() };
    let set = StoreSet::start(settings).unwrap();
    let held = set.get("org/0").unwrap();
    read(&held, 0).await.unwrap();
    read_from(&set, 1).await.unwrap();
    eventually("the idle store stays open", || set.find("org/1").is_none()).await;
    assert!(set.find("org/0").is_some(), "somebody has it");
    read_from(&set, 1).await.unwrap();
    assert_eq!(set.stats().opened, 3);
}

/// Counts of a store that was closed went with it, so rates of all stores together were negative.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_do_not_go_back_when_a_store_is_closed() {
    let stores = Stores::new(2);
    let settings = SetSettings { idle: Duration::from_millis(100), ..stores.settings() };
    let set = StoreSet::start(settings).unwrap();
    let held = set.get("org/0").unwrap();
    for times in 1..=3 {
        read(&held, 0).await.unwrap();
        assert_eq!(set.stats().usage.reads(), times);
    }
    let [store] = &*set.busiest() else { panic!("{:?}", set.busiest()) };
    assert_eq!((store.usage.name(), store.usage.stats().reads()), ("org/0", 3));
    let before = set.stats();
    assert_eq!(store.usage.traffic().bytes(), before.store.bytes, "no other store was opened");
    assert_eq!(before.usage, store.usage.stats());
    assert!(0 < before.usage.bytes);
    drop(held);
    eventually("the idle store stays open", || set.find("org/0").is_none()).await;
    assert_eq!(set.stats().usage, before.usage);
    read_from(&set, 1).await.unwrap();
    read_from(&set, 0).await.unwrap();
    let after = set.stats();
    assert_eq!((after.usage.reads(), after.usage.direct_requests()), (5, 5));
    assert!(before.store.requests < after.store.requests);
    assert_eq!(store.usage.stats().reads(), 4, "one of the busiest goes on counting");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_share_one_cache_whose_files_survive_a_closed_store() {
    let stores = Stores::new(2);
    let set = stores.start();
    for number in 0..2 {
        read_from(&set, number).await.unwrap();
    }
    eventually("the files come to disk", || set.cache().list().len() == 2).await;
    let urls: Vec<String> = set.cache().list().into_iter().map(|object| object.store).collect();
    for number in 0..2 {
        let url = format!("{}/org/{number}", stores.harness.url());
        assert!(urls.contains(&url), "{urls:?}");
    }
}

/// Poll of stores that nobody uses would cost thousands of requests for thousands of stores.
#[tokio::test(start_paused = true)]
async fn idle_stores_are_not_polled() {
    let stores = Stores::new(3);
    let mut settings = stores.settings();
    settings.store.poll = Duration::from_secs(1);
    let set = StoreSet::start(settings).unwrap();
    for number in 0..3 {
        read_from(&set, number).await.unwrap();
    }
    let requests = || set.stats().store.requests;
    let opened = requests();
    // The requests that opened the stores count as uses.
    sleep(Duration::from_secs(10)).await;
    let polled = requests();
    assert!(opened < polled);
    sleep(Duration::from_secs(1000)).await;
    assert_eq!((requests(), set.stats().open), (polled, 3));
    set.get("org/1").unwrap();
    sleep(Duration::from_secs(1000)).await;
    let once = requests();
    assert!((polled + 1..=polled + 3).contains(&once), "{polled} {once}");
}
