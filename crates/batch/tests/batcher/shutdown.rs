//! However a batcher ends, every caller gets an answer and nothing is left running.

use std::sync::{Arc, Weak};

use busload_batch::{
    BatchError, Batcher, BatcherSettings, Loaded, Oneshot, Receipt, Reply, Stored,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::gate::{Batches, Change, Gate, Pass, gate, gate_with, in_flight, settle, soon};

fn load(batcher: &Batcher<Gate>, key: u32) -> JoinHandle<Loaded<Gate>> {
    let batcher = batcher.clone();
    tokio::spawn(async move { batcher.load(key).await })
}

#[tokio::test]
async fn closing_serves_what_was_taken_and_takes_nothing_more() {
    let (batcher, mut batches) = gate(in_flight(1));
    let under_way = load(&batcher, 0);
    let batch = batches.next().await;
    let waiting = [1, 2].map(|key| load(&batcher, key));
    settle().await;
    let closes = [(); 2].map(|()| {
        let batcher = batcher.clone();
        tokio::spawn(async move { batcher.close().await })
    });
    settle().await;
    assert_eq!(soon(batcher.load(3)).await, Err(BatchError::Closed));
    assert_eq!(soon(batcher.store(3, Change::Set(1))).await, Err(BatchError::Closed));
    batch.end(Pass::Done);
    let last = batches.next().await;
    assert!(closes.iter().all(|close| !close.is_finished()), "two are owed an answer");
    last.end(Pass::Done);
    for load in waiting.into_iter().chain([under_way]) {
        assert_eq!(load.await.unwrap(), Ok(None));
    }
    for close in closes {
        soon(close).await.unwrap();
    }
    batcher.close().await;
}

#[tokio::test]
async fn closing_ends_when_those_who_waited_have_given_up() {
    let (batcher, mut batches) = gate(in_flight(1));
    let loads = [1, 2].map(|key| load(&batcher, key));
    let _hangs = batches.next().await;
    let close = tokio::spawn({
        let batcher = batcher.clone();
        async move { batcher.close().await }
    });
    settle().await;
    assert!(!close.is_finished());
    loads.iter().for_each(JoinHandle::abort);
    soon(close).await.unwrap();
}

#[tokio::test]
async fn a_batcher_stays_closed_when_nobody_waits_for_its_closing() {
    let (batcher, _batches) = gate(BatcherSettings::default());
    drop(tokio::spawn({
        let batcher = batcher.clone();
        async move { batcher.close().await }
    }));
    settle().await;
    assert_eq!(batcher.load(1).await, Err(BatchError::Closed));
}

/// Sends the answer it is called with.
struct Sends(oneshot::Sender<Result<(), BatchError<&'static str>>>);

impl Reply<Gate> for Sends {
    fn loaded(self, outcome: Loaded<Gate>) {
        self.0.send(outcome.map(drop)).unwrap();
    }

    fn stored(self, outcome: Stored<Gate>, _: Option<Receipt<Gate>>) {
        self.0.send(outcome.map(drop)).unwrap();
    }
}

#[tokio::test]
async fn dropping_the_last_handle_refuses_queued_requests_and_answers_those_in_flight() {
    let (batcher, mut batches) = gate_with::<Sends>(in_flight(1));
    let service: Weak<Gate> = Arc::downgrade(batcher.service());
    let submit = |key| {
        let (sender, answer) = oneshot::channel();
        batcher.submit_load(key, Sends(sender), None).ok().unwrap();
        batcher.flush();
        answer
    };
    let under_way = submit(0);
    let batch = batches.next().await;
    // One of them waits for the end of the batch, because it reads the same key.
    let waiting = [submit(0), submit(1)];
    let (sender, write) = oneshot::channel();
    batcher.submit_store(0, Change::Set(1), Sends(sender), None).ok().unwrap();
    let another = batcher.clone();
    drop(batcher);
    settle().await;
    assert_eq!(another.waiting(), 3, "there is another handle");
    drop(another);
    for answer in waiting.into_iter().chain([write]) {
        assert_eq!(soon(answer).await.unwrap(), Err(BatchError::Closed));
    }
    assert!(service.upgrade().is_some(), "a batch is in flight");
    batch.end(Pass::Done);
    assert_eq!(under_way.await.unwrap(), Ok(()));
    settle().await;
    assert!(service.upgrade().is_none(), "the driver has ended");
    assert!(batches.arrived().await.is_none());
}

#[tokio::test]
async fn an_idle_batcher_without_a_handle_ends() {
    let (batcher, _batches) = gate(BatcherSettings::default());
    let service = Arc::downgrade(batcher.service());
    settle().await;
    drop(batcher);
    settle().await;
    assert!(service.upgrade().is_none());
}

/// Returns a batcher on a runtime of its own, whose end must not be the end of the callers.
fn elsewhere(worker_threads: usize) -> (tokio::runtime::Runtime, Batcher<Gate>, Batches) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(worker_threads).build().unwrap();
    let entered = runtime.enter();
    let (batcher, batches) = gate_with::<Oneshot<Gate>>(in_flight(1));
    drop(entered);
    (runtime, batcher, batches)
}

#[tokio::test]
async fn when_its_runtime_shuts_down_nobody_hangs() {
    for worker_threads in [1, 3] {
        let (runtime, batcher, mut batches) = elsewhere(worker_threads);
        let under_way = load(&batcher, 0);
        let batch = batches.next().await;
        let waiting = load(&batcher, 1);
        while batcher.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        runtime.shutdown_background();
        assert_eq!(soon(under_way).await.unwrap(), Err(BatchError::Stopped));
        // While one worker ends the batch, another may still run the driver, which sends the
        // requests that waited for the batch.
        let refused = |outcome: Loaded<Gate>| match outcome {
            Err(BatchError::Closed) => true,
            Err(BatchError::Stopped) => 1 < worker_threads,
            _ => false,
        };
        assert!(refused(soon(waiting).await.unwrap()));
        assert!(refused(soon(batcher.load(2)).await));
        soon(batcher.close()).await;
        assert_eq!(batcher.load(2).await, Err(BatchError::Closed));
        batch.end(Pass::Done);
    }
}

#[tokio::test]
async fn a_runtime_that_never_ran_the_driver_leaves_nobody_hanging_either() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let entered = runtime.enter();
    let (batcher, _batches) = gate(in_flight(1));
    drop(entered);
    let waiting = load(&batcher, 1);
    settle().await;
    assert_eq!(batcher.waiting(), 1);
    runtime.shutdown_background();
    assert_eq!(soon(waiting).await.unwrap(), Err(BatchError::Closed));
    soon(batcher.close()).await;
}

/// Shuts down while callers come and batches end, many times, to hit every moment.
#[tokio::test]
async fn a_shutdown_at_any_moment_leaves_nobody_hanging() {
    for round in 0..100 {
        let (runtime, batcher, mut batches) = elsewhere(2);
        let callers: Vec<_> = (0..8)
            .map(|caller| {
                let batcher = batcher.clone();
                tokio::spawn(async move {
                    let mut answered = 0;
                    while batcher.load(caller % 3).await.is_ok() {
                        answered += 1;
                    }
                    answered
                })
            })
            .collect();
        for _ in 0..round {
            batches.next().await.end(Pass::Done);
        }
        runtime.shutdown_background();
        for caller in callers {
            soon(caller).await.unwrap();
        }
        soon(batcher.close()).await;
    }
}
