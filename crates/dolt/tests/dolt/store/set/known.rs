//! Stores that a set knows, how they are warmed, and limits that change.

use busload_dolt::SetLimits;

use super::*;

/// Names of the stores that a set knows, with a star if they are open.
async fn known(set: &StoreSet) -> Vec<String> {
    let known = set.known().await.into_iter();
    let shown = |store: busload_dolt::KnownStore| {
        let star = if store.open.is_some() { "*" } else { "" };
        format!("{}{star}", store.name.unwrap_or(store.url))
    };
    known.map(shown).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_are_known_while_they_are_open_or_on_disk() {
    let stores = Stores::new(3);
    let set = stores.start();
    assert_eq!(known(&set).await, [""; 0]);
    let warmed = set.warm(vec!["org/1".to_owned(), "org/0".to_owned()], &mut |_| ()).await;
    assert_eq!((warmed.stores, warmed.failed), (2, 0), "{warmed:?}");
    assert_eq!(warmed.progress.done, warmed.progress.total);
    read_from(&set, 2).await.unwrap();
    assert_eq!(known(&set).await, ["org/0*", "org/1*", "org/2*"]);
    let listed = set.known().await;
    assert!(listed[..2].iter().all(|store| store.files == 1 && 0 < store.disk_bytes));
    assert!(listed[0].open.unwrap().index_bytes != 0);
    set.close().await;
    drop(set);
    // Another template of the same folder: its names lead to none of these stores.
    let url = format!("{}/{{name}}/below", stores.harness.url());
    let template = StoreTemplate::parse(&url, 2).unwrap();
    let other = SetSettings { template, ..stores.settings() };
    let set = StoreSet::start(other).unwrap();
    assert!(known(&set).await.iter().all(|name| name.starts_with("file://")));
    set.close().await;
    drop(set);
    let set = stores.start();
    assert_eq!(known(&set).await[..2], ["org/0", "org/1"]);
    let urls = listed[..1].iter().map(|store| store.url.clone()).collect();
    assert!(0 < set.drop_stores(urls).await);
    assert_eq!(known(&set).await[0], "org/1");
    read_from(&set, 0).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_warming_goes_on_past_stores_that_fail_and_ends_with_them() {
    let stores = Stores::new(9);
    fs::write(stores.harness.store().join("org/3/manifest"), "5:nonsense").unwrap();
    let set = stores.start();
    let names: Vec<String> = (0..12).map(name).collect();
    let mut totals = Vec::new();
    let warmed = set.warm(names, &mut |progress| totals.push(progress.total)).await;
    assert_eq!((warmed.stores, warmed.failed), (8, 4));
    assert!(totals.is_sorted() && totals.last() == Some(&warmed.progress.total), "{totals:?}");
    let mut failed: Vec<_> = warmed.failures.iter().map(|(name, _)| name.as_str()).collect();
    failed.sort_unstable();
    assert_eq!(failed, ["org/10", "org/11", "org/3", "org/9"]);
    let absent = |error: &Error| matches!(error, Error::NoStore(_));
    assert_eq!(warmed.failures.iter().filter(|(_, error)| absent(error)).count(), 3);
}

/// The files of a store would evict those of the stores warmed before it, or its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_is_warmed_than_the_disk_takes() {
    let stores = Stores::new(2);
    for number in 0..2 {
        let directory = stores.harness.store().join(name(number));
        let chunks: Vec<_> = (0..3_u64).map(|index| noise(number as u64, index, 1 << 20)).collect();
        let spec = write_file(&directory, &chunks);
        write_manifest(&directory, ChunkAddress::of(&chunks[0]), &[spec]);
    }
    let mut settings = stores.settings();
    settings.store.disk_bytes_max = 5 << 20;
    let set = StoreSet::start(settings.clone()).unwrap();
    let warmed = set.warm(vec![name(0), name(1)], &mut |_| ()).await;
    assert_eq!((warmed.stores, warmed.failed), (1, 1));
    let (_, why) = &warmed.failures[0];
    assert!(why.to_string().ends_with("the cache may take only 5242880: raise `disk`"), "{why}");
    set.set_store_share(StoreShare { floor_bytes: 0, cap_bytes: 2 << 20 });
    let warmed = set.warm(vec![name(0)], &mut |_| ()).await;
    let (_, why) = &warmed.failures[0];
    assert!(why.to_string().ends_with("raise `disk` or `store_disk_max`"), "{why}");
}

/// Returns bytes that do not compress.
fn noise(seed: u64, index: u64, length: usize) -> Vec<u8> {
    let mut state = (seed << 32 | index).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..length / 8).flat_map(|_| next()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lowered_limit_closes_idle_stores_and_none_in_use() {
    let stores = Stores::new(5);
    let set = stores.start();
    let held = set.get("org/0").unwrap();
    read(&held, 0).await.unwrap();
    for number in 1..5 {
        read_from(&set, number).await.unwrap();
    }
    let limits = |stores_max| SetLimits {
        stores_max,
        index_bytes_max: 1 << 30,
        idle: Duration::from_secs(3600),
    };
    set.set_limits(limits(2));
    // A request may have a store for a moment after its answer.
    eventually("stores are closed", || {
        set.set_limits(limits(2));
        set.stats().open == 2
    })
    .await;
    assert!(set.find("org/0").is_some(), "somebody has it");
    read_from(&set, 1).await.unwrap();
    assert_eq!(set.stats().open, 2);
    set.set_limits(limits(100));
    for number in 1..5 {
        read_from(&set, number).await.unwrap();
    }
    assert_eq!(set.stats().open, 5);
    eventually("indexes are out of memory", || {
        set.set_limits(SetLimits { index_bytes_max: 1, ..limits(100) });
        set.stats().open == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_whose_indexes_alone_take_more_than_all_may_is_refused_unread() {
    let stores = Stores::new(2);
    let set = StoreSet::start(SetSettings { index_bytes_max: 10, ..stores.settings() }).unwrap();
    let error = read_from(&set, 0).await.unwrap_err().to_string();
    assert!(error.contains("expected at most 10"), "{error}");
    let idle = stores.settings().idle;
    set.set_limits(SetLimits { stores_max: 100, index_bytes_max: 1 << 30, idle });
    read_from(&set, 1).await.unwrap();
}
