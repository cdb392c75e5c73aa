//! Replies other than futures: many requests submitted, one flush.

use std::sync::{Arc, Mutex};

use busload_batch::{
    BatchError, Batcher, BatcherSettings, Loaded, Receipt, Refusal, Reply, Stored,
};

use crate::gate::{Change, Gate, Pass, gate_with, in_flight, settle};

#[derive(Debug, PartialEq)]
enum Answer {
    Loaded(u32, Loaded<Gate>),
    Stored(u32, Stored<Gate>, Option<Receipt<Gate>>),
}

type Answers = Arc<Mutex<Vec<Answer>>>;

/// Records the answer of the request with this number.
struct Note(u32, Answers);

impl Reply<Gate> for Note {
    fn loaded(self, outcome: Loaded<Gate>) {
        self.1.lock().unwrap().push(Answer::Loaded(self.0, outcome));
    }

    fn stored(self, outcome: Stored<Gate>, receipt: Option<Receipt<Gate>>) {
        self.1.lock().unwrap().push(Answer::Stored(self.0, outcome, receipt));
    }
}

fn taken(answers: &Answers) -> Vec<Answer> {
    std::mem::take(&mut answers.lock().unwrap())
}

#[tokio::test]
async fn what_is_submitted_leaves_with_the_flush_and_not_before() {
    let (batcher, mut batches) = gate_with(BatcherSettings::default());
    let answers = Answers::default();
    // The driver checks once when it starts.
    settle().await;
    for key in [3, 1, 2] {
        batcher.submit_load(key, Note(key, Arc::clone(&answers)), None).ok().unwrap();
    }
    assert!(batches.arrived().await.is_none());
    batcher.flush();
    let batch = batches.next().await;
    assert_eq!(batch.keys(), [1, 2, 3]);
    batch.end(Pass::Done);
    settle().await;
    assert_eq!(taken(&answers), [1, 2, 3].map(|key| Answer::Loaded(key, Ok(None))));
}

#[tokio::test]
async fn each_merged_write_gets_its_own_receipt_with_the_outcome_of_all() {
    let (batcher, mut batches) = gate_with(BatcherSettings::default());
    let answers = Answers::default();
    let store = |number, change| {
        batcher.submit_store(5, change, Note(number, Arc::clone(&answers)), None).ok().unwrap();
    };
    store(1, Change::Set(100));
    store(2, Change::Add(1));
    store(3, Change::Add(10));
    store(4, Change::Set(7));
    batcher.flush();
    for _ in 0..3 {
        batches.next().await.end(Pass::Done);
    }
    settle().await;
    let expected = [
        Answer::Stored(1, Ok(0), Some(0)),
        Answer::Stored(2, Ok(100), Some(1)),
        Answer::Stored(3, Ok(100), Some(11)),
        Answer::Stored(4, Ok(111), Some(0)),
    ];
    assert_eq!(taken(&answers), expected);
    store(5, Change::Set(1));
    batcher.flush();
    batches.next().await.end(Pass::Fail("disk full"));
    settle().await;
    assert_eq!(taken(&answers), [Answer::Stored(5, Err(BatchError::Failed("disk full")), None)]);
}

#[tokio::test]
async fn a_cancelled_request_is_not_sent_and_an_answered_one_cannot_be_cancelled() {
    let (batcher, mut batches) = gate_with(BatcherSettings::default());
    let answers = Answers::default();
    let submit =
        |key| batcher.submit_load(key, Note(key, Arc::clone(&answers)), None).ok().unwrap();
    let (waiting, stays) = (submit(1), submit(2));
    batcher.cancel(waiting);
    batcher.flush();
    let batch = batches.next().await;
    assert_eq!(batch.keys(), [2]);
    batch.end(Pass::Done);
    settle().await;
    batcher.cancel(stays);
    assert_eq!(taken(&answers), [Answer::Loaded(2, Ok(None))]);
    assert_eq!(batcher.stats().cancelled, 1);
}

#[tokio::test]
async fn a_refused_request_gives_its_reply_back_uncalled() {
    let settings = in_flight(1);
    let (batcher, _batches) = gate_with::<Note>(settings);
    let answers = Answers::default();
    batcher.close().await;
    let refused = batcher.submit_load(1, Note(1, Arc::clone(&answers)), None).err().unwrap();
    assert_eq!((refused.waiter.0, refused.reason), (1, Refusal::Closed));
    let refused = batcher.submit_store(1, Change::Set(1), refused.waiter, None).err().unwrap();
    assert_eq!((refused.waiter.0, refused.reason), (1, Refusal::Closed));
    assert_eq!(taken(&answers), []);
}

/// Panics when it is called, or requests the next key, as many times as it has keys.
enum Lively {
    Panics,
    Asks { batcher: Batcher<Gate, Self>, keys: Vec<u32>, answered: Answers },
}

impl Reply<Gate> for Lively {
    fn loaded(self, outcome: Loaded<Gate>) {
        match self {
            Self::Panics => panic!("the test wants a panic"),
            Self::Asks { batcher, mut keys, answered } => {
                answered.lock().unwrap().push(Answer::Loaded(0, outcome));
                let Some(key) = keys.pop() else { return };
                let waiter = batcher.clone();
                waiter.submit_load(key, Self::Asks { batcher, keys, answered }, None).ok().unwrap();
                waiter.flush();
            }
        }
    }

    fn stored(self, _: Stored<Gate>, _: Option<Receipt<Gate>>) {}
}

#[tokio::test]
async fn a_reply_may_ask_again_and_one_that_panics_harms_nobody() {
    let (batcher, mut batches) = gate_with(BatcherSettings::default());
    let answered = Answers::default();
    batcher.submit_load(1, Lively::Panics, None).ok().unwrap();
    let lively = Lively::Asks {
        batcher: batcher.clone(),
        keys: vec![3, 2, 1],
        answered: Arc::clone(&answered),
    };
    batcher.submit_load(1, lively, None).ok().unwrap();
    batcher.submit_load(2, Lively::Panics, None).ok().unwrap();
    batcher.flush();
    batches.pass_all(&batcher).await;
    assert_eq!(taken(&answered), [(); 4].map(|()| Answer::Loaded(0, Ok(None))));
    batcher.close().await;
}
