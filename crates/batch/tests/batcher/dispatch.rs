//! Requests that go into one batch, and requests that do not wait.

use std::sync::Arc;

use busload_batch::{Batcher, BatcherSettings, DispatchPolicy, QueueSettings};
use tokio::task::{JoinHandle, JoinSet};

use crate::gate::{BAD_KEY, Change, Content, Gate, Pass, gate, in_flight, soon};

type Load = JoinHandle<busload_batch::Loaded<Gate>>;

fn load(batcher: &Batcher<Gate>, key: u32) -> Load {
    let batcher = batcher.clone();
    tokio::spawn(async move { batcher.load(key).await })
}

fn store(
    batcher: &Batcher<Gate>,
    key: u32,
    change: Change,
) -> JoinHandle<busload_batch::Stored<Gate>> {
    let batcher = batcher.clone();
    tokio::spawn(async move { batcher.store(key, change).await })
}

#[tokio::test]
async fn tasks_that_can_run_at_the_same_time_share_a_batch() {
    // With more batches in flight allowed, the reads would be divided among them.
    let (batcher, mut batches) = gate(in_flight(2));
    let loads: Vec<Load> = (0..100).rev().map(|key| load(&batcher, key)).collect();
    let batch = batches.next().await;
    assert_eq!(batch.content, Content::Load((0..100).collect()));
    batch.end(Pass::Done);
    for load in loads {
        assert_eq!(load.await.unwrap(), Ok(None));
    }
}

#[tokio::test]
async fn those_just_answered_ask_again_before_the_next_batch_leaves() {
    let (batcher, mut batches) = gate(in_flight(1));
    let mut tasks = JoinSet::new();
    for task in 0..50 {
        let batcher = batcher.clone();
        tasks.spawn(async move {
            for round in 0..3 {
                batcher.load(100 * round + task).await.unwrap();
            }
        });
    }
    for round in 0..3 {
        let batch = batches.next().await;
        assert_eq!(batch.keys(), (100 * round..100 * round + 50).collect::<Vec<_>>());
        batch.end(Pass::Done);
    }
    tasks.join_all().await;
}

/// A worker of the threaded runtime runs a task that was just woken before its run queue, the
/// driver for one. All of it runs on one worker, so that it does not matter who is faster.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_driver_does_not_run_ahead_of_those_just_answered() {
    let on_the_worker = async {
        let load = |keys: Vec<u32>| async move { keys.into_iter().map(Some).collect::<Vec<_>>() };
        let batcher = Batcher::from_load(load, in_flight(1)).unwrap();
        let mut tasks = JoinSet::new();
        for task in 0..100 {
            let batcher = batcher.clone();
            tasks.spawn(async move {
                for round in 0..100 {
                    assert_eq!(
                        batcher.load(round * 100 + task).await,
                        Ok(Some(round * 100 + task))
                    );
                }
            });
        }
        tasks.join_all().await;
        batcher.stats().reads
    };
    let reads = soon(tokio::spawn(on_the_worker)).await.unwrap();
    assert!(90 * reads.batches <= reads.entries, "{reads:?}");
}

#[tokio::test]
async fn callers_of_one_key_share_one_entry_and_one_value_that_none_of_them_can_change() {
    let (batcher, mut batches) = gate(BatcherSettings::default());
    let written = store(&batcher, 7, Change::Set(70));
    batches.next().await.end(Pass::Done);
    written.await.unwrap().unwrap();

    let (one, other) = (load(&batcher, 7), load(&batcher, 7));
    let batch = batches.next().await;
    assert_eq!(batch.keys(), [7]);
    batch.end(Pass::Done);
    let mut one = one.await.unwrap().unwrap().unwrap();
    let other = other.await.unwrap().unwrap().unwrap();
    assert!(Arc::ptr_eq(&one, &other), "shared, not copied");
    *Arc::make_mut(&mut one) = 71;
    assert_eq!(*other, 70);
}

#[tokio::test]
async fn writes_of_one_key_that_wait_together_are_one_entry_and_all_are_acknowledged() {
    let (batcher, mut batches) = gate(BatcherSettings::default());
    let writes = [1, 2, 3].map(|value| store(&batcher, 5, Change::Set(value)));
    let batch = batches.next().await;
    assert_eq!(batch.content, Content::Store([(5, Change::Set(3))].into()));
    batch.end(Pass::Done);
    for write in writes {
        assert_eq!(write.await.unwrap(), Ok(0));
    }
}

#[tokio::test]
async fn a_read_asked_behind_a_write_waits_for_it_and_sees_it() {
    let (batcher, mut batches) = gate(BatcherSettings::default());
    let write = store(&batcher, 1, Change::Set(10));
    let read = load(&batcher, 1);
    let batch = batches.next().await;
    assert_eq!(batch.content, Content::Store([(1, Change::Set(10))].into()));
    assert!(batches.arrived().await.is_none(), "the read waits");
    batch.end(Pass::Done);
    batches.next().await.end(Pass::Done);
    assert_eq!(write.await.unwrap(), Ok(0));
    assert_eq!(read.await.unwrap(), Ok(Some(Arc::new(10))));
}

#[tokio::test]
async fn loading_many_asks_for_all_at_once_and_answers_in_the_order_asked() {
    let (batcher, mut batches) = gate(BatcherSettings::default());
    let many = tokio::spawn({
        let batcher = batcher.clone();
        async move { batcher.load_many([3, BAD_KEY, 1, 3]).await }
    });
    let batch = batches.next().await;
    assert_eq!(batch.keys(), [1, 3, BAD_KEY]);
    batch.end(Pass::Done);
    let many = many.await.unwrap();
    assert_eq!(many.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true, true]);
}

#[tokio::test]
async fn a_window_passes_by_itself_and_in_less_than_a_millisecond() {
    let dispatch =
        DispatchPolicy::Window { entries: 16, wait: std::time::Duration::from_micros(500) };
    let queue = QueueSettings { dispatch, ..QueueSettings::default() };
    let (batcher, mut batches) = gate(BatcherSettings { queue, timeout: None });
    let mut fastest = u128::MAX;
    let begun = now();
    // Takes the fastest of as many rounds as needed, so that a busy machine does not matter.
    for key in 0.. {
        if 100 <= key && (fastest < 950 || 30 < begun.elapsed().as_secs()) {
            break;
        }
        let asked = now();
        let load = load(&batcher, key);
        let batch = batches.next().await;
        let took = asked.elapsed().as_micros();
        assert!(500 <= took, "{took} us");
        fastest = fastest.min(took);
        batch.end(Pass::Done);
        load.await.unwrap().unwrap();
    }
    assert!(fastest < 950, "{fastest} us");
}

#[expect(clippy::disallowed_methods, reason = "measures what the batcher's own clock does")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}
