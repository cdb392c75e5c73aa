//! A caller that gives up, at whatever point, affects nobody else and leaves nothing behind.

use std::sync::{Arc, Mutex};

use busload_batch::{
    BatchError, Batcher, BatcherSettings, Loaded, Receipt, Reply, RequestId, Stored,
};
use tokio::task::JoinHandle;

use crate::gate::{
    BAD, BAD_KEY, Batch, Batches, Change, Content, Gate, Pass, gate, gate_with, in_flight, settle,
    small, soon,
};

fn load(batcher: &Batcher<Gate>, key: u32) -> JoinHandle<Loaded<Gate>> {
    let batcher = batcher.clone();
    tokio::spawn(async move { batcher.load(key).await })
}

fn store(batcher: &Batcher<Gate>, key: u32, value: u32) -> JoinHandle<Stored<Gate>> {
    let batcher = batcher.clone();
    tokio::spawn(async move { batcher.store(key, Change::Set(value)).await })
}

#[tokio::test]
async fn the_first_callers_cancellation_fails_nobody_else() {
    // While they are pending: a batch is in flight, and these are too few for another.
    let (batcher, mut batches) = gate(BatcherSettings::default());
    let under_way = load(&batcher, 0);
    let batch = batches.next().await;
    let (first, second) = (load(&batcher, 1), load(&batcher, 1));
    settle().await;
    first.abort();
    batch.end(Pass::Done);
    let batch = batches.next().await;
    assert_eq!(batch.keys(), [1]);
    batch.end(Pass::Done);
    assert_eq!(under_way.await.unwrap(), Ok(None));
    assert_eq!(second.await.unwrap(), Ok(None));

    // While their batch is in flight.
    let (first, second, third) = (load(&batcher, 1), load(&batcher, 1), load(&batcher, 2));
    let batch = batches.next().await;
    first.abort();
    third.abort();
    settle().await;
    batch.end(Pass::Done);
    assert_eq!(second.await.unwrap(), Ok(None));
}

#[tokio::test]
async fn a_request_whose_callers_have_all_left_is_not_sent() {
    let (batcher, mut batches) = gate(in_flight(1));
    let under_way = load(&batcher, 0);
    let batch = batches.next().await;
    let gone = [load(&batcher, 1), load(&batcher, 1)];
    let gone_writes = [store(&batcher, 0, 1), store(&batcher, 2, 1)];
    settle().await;
    assert_eq!(batcher.waiting(), 4);
    gone.iter().for_each(JoinHandle::abort);
    gone_writes.iter().for_each(JoinHandle::abort);
    settle().await;
    assert_eq!(batcher.waiting(), 0);
    batch.end(Pass::Done);
    soon(under_way).await.unwrap().unwrap();
    assert!(batches.arrived().await.is_none());
}

#[tokio::test]
async fn a_write_under_way_is_made_though_its_caller_has_left() {
    let (batcher, mut batches) = gate(BatcherSettings::default());
    let gone = store(&batcher, 2, 1);
    let batch = batches.next().await;
    gone.abort();
    let read = load(&batcher, 2);
    assert!(batches.arrived().await.is_none(), "the read waits for the write all the same");
    batch.end(Pass::Done);
    batches.next().await.end(Pass::Done);
    assert_eq!(soon(read).await.unwrap(), Ok(Some(Arc::new(1))));
}

#[tokio::test]
async fn callers_get_the_answers_to_their_own_keys_when_others_of_the_batch_have_left() {
    let (batcher, mut batches) = gate(in_flight(1));
    for key in 1..=4 {
        let written = store(&batcher, key, 10 * key);
        batches.next().await.end(Pass::Done);
        soon(written).await.unwrap().unwrap();
    }
    let [first, second, third, fourth] = [1, 2, 3, 4].map(|key| load(&batcher, key));
    let batch = batches.next().await;
    assert_eq!(batch.keys(), [1, 2, 3, 4]);
    first.abort();
    third.abort();
    settle().await;
    batch.end(Pass::Done);
    assert_eq!(soon(second).await.unwrap(), Ok(Some(Arc::new(20))));
    assert_eq!(soon(fourth).await.unwrap(), Ok(Some(Arc::new(40))));
}

#[tokio::test]
async fn a_future_that_was_never_polled_asks_for_nothing() {
    let (batcher, mut batches) = gate(BatcherSettings::default());
    drop(batcher.load(1));
    assert!(batches.arrived().await.is_none());
    assert_eq!(batcher.stats().reads.requests, 0);
}

/// A small generator (splitmix64), so that a seed alone determines a schedule.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }

    fn key(&mut self) -> u32 {
        match self.below(12) {
            0 => BAD_KEY,
            key => u32::try_from(key % 4).expect("small"),
        }
    }

    fn pass(&mut self) -> Pass {
        match self.below(8) {
            0 => Pass::Fail("lost"),
            1 => Pass::Panic,
            2 => Pass::Short,
            _ => Pass::Done,
        }
    }

    fn take<T>(&mut self, from: &mut Vec<T>) -> Option<T> {
        let len = u64::try_from(from.len()).expect("it is one");
        (0 < len).then(|| from.swap_remove(usize::try_from(self.below(len)).expect("an index")))
    }
}

/// Batches at the gate that end in any order; checks that none conflicts with another.
struct Underway {
    batches: Batches,
    arrived: Vec<Batch>,
}

impl Underway {
    async fn let_arrive(&mut self) {
        while let Some(batch) = self.batches.arrived().await {
            self.check(&batch);
            self.arrived.push(batch);
        }
    }

    fn check(&self, new: &Batch) {
        assert!(self.arrived.len() < 2, "two in flight at most");
        for other in &self.arrived {
            let reads = |batch: &Batch| matches!(batch.content, Content::Load(_));
            let shared = new.keys().iter().any(|key| other.keys().contains(key));
            assert!(
                !shared || (reads(new) && reads(other)),
                "a key is written beside another batch of it"
            );
        }
    }

    /// Lets everything end well until nothing is left.
    async fn drain<R: Reply<Gate>>(&mut self, batcher: &Batcher<Gate, R>) {
        self.let_arrive().await;
        self.arrived.drain(..).for_each(|batch| batch.end(Pass::Done));
        self.batches.pass_all(batcher).await;
    }
}

/// Calls start, are given up, succeed and fail in any order: every call that was not given up is
/// answered.
#[tokio::test]
async fn in_any_schedule_every_caller_who_stays_is_answered() {
    let mut answered = 0;
    for seed in 0..150 {
        let mut rng = Rng(seed);
        let (batcher, batches) = gate(small());
        let mut underway = Underway { batches, arrived: Vec::new() };
        let (mut loads, mut stores) = (Vec::new(), Vec::new());
        for step in 0..80 {
            match rng.below(10) {
                0..=2 => loads.push(load(&batcher, rng.key())),
                3..=4 => stores.push(store(&batcher, rng.key(), step)),
                5 => drop(rng.take(&mut loads).inspect(JoinHandle::abort)),
                6 => drop(rng.take(&mut stores).inspect(JoinHandle::abort)),
                7 => tokio::task::yield_now().await,
                8 => underway.let_arrive().await,
                _ => drop(rng.take(&mut underway.arrived).map(|batch| batch.end(rng.pass()))),
            }
        }
        underway.drain(&batcher).await;
        soon(batcher.close()).await;
        answered += loads.len() + stores.len();
        for load in loads {
            check_error(seed, soon(load).await.unwrap().err());
        }
        for store in stores {
            check_error(seed, soon(store).await.unwrap().err());
        }
    }
    assert!(1000 < answered, "the schedules are not empty: {answered}");
}

fn check_error(seed: u64, error: Option<BatchError<&'static str>>) {
    let allowed = match error {
        None | Some(BatchError::Full | BatchError::Panicked | BatchError::Miscounted { .. }) => {
            true
        }
        Some(BatchError::Failed(error)) => error == BAD || error == "lost",
        Some(_) => false,
    };
    assert!(allowed, "seed {seed}: {error:?}");
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Waits,
    Answered,
    Late,
    Dropped,
}

/// A reply that records what happens to it.
struct Tracked {
    number: usize,
    fates: Arc<Mutex<Vec<Fate>>>,
}

impl Tracked {
    fn note(&self, fate: Fate) {
        let fates = &mut self.fates.lock().unwrap()[self.number];
        assert_eq!(*fates, Fate::Waits, "answered twice");
        *fates = fate;
    }

    fn note_outcome<T>(&self, outcome: &Result<T, BatchError<&'static str>>) {
        let late = matches!(outcome, Err(BatchError::TooLate { .. }));
        self.note(if late { Fate::Late } else { Fate::Answered });
    }
}

impl Reply<Gate> for Tracked {
    fn loaded(self, outcome: Loaded<Gate>) {
        self.note_outcome(&outcome);
    }

    fn stored(self, outcome: Stored<Gate>, receipt: Option<Receipt<Gate>>) {
        assert_eq!(outcome.is_ok(), receipt.is_some());
        self.note_outcome(&outcome);
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        let fate = &mut self.fates.lock().unwrap()[self.number];
        if *fate == Fate::Waits {
            *fate = Fate::Dropped;
        }
    }
}

/// Submits, cancels and lets time pass over deadlines; remembers what must become of each reply.
struct Submitter {
    batcher: Batcher<Gate, Tracked>,
    fates: Arc<Mutex<Vec<Fate>>>,
    open: Vec<(RequestId, usize)>,
    /// Replies whose requests were cancelled before an answer, or refused.
    given_up: Vec<usize>,
}

impl Submitter {
    fn submit(&mut self, rng: &mut Rng) {
        let number = self.fates.lock().unwrap().len();
        self.fates.lock().unwrap().push(Fate::Waits);
        let reply = Tracked { number, fates: Arc::clone(&self.fates) };
        // The deadline is either long past or never.
        let deadline = (rng.below(6) == 0).then(past);
        let submitted = match rng.below(2) {
            0 => self.batcher.submit_load(rng.key(), reply, deadline),
            _ => self.batcher.submit_store(rng.key(), Change::Add(1), reply, deadline),
        };
        match submitted {
            Ok(request) => self.open.push((request, number)),
            Err(_) => self.given_up.push(number),
        }
    }

    fn cancel(&mut self, rng: &mut Rng) {
        let Some((request, number)) = rng.take(&mut self.open) else { return };
        if self.fates.lock().unwrap()[number] == Fate::Waits {
            self.given_up.push(number);
        }
        self.batcher.cancel(request);
    }

    fn check(&self, seed: u64) {
        let fates = self.fates.lock().unwrap().clone();
        for (number, fate) in fates.iter().enumerate() {
            let given_up = self.given_up.contains(&number);
            let expected = if given_up {
                *fate == Fate::Dropped
            } else {
                matches!(fate, Fate::Answered | Fate::Late)
            };
            assert!(
                expected,
                "seed {seed}: request {number} was given up: {given_up}, and is {fate:?}"
            );
        }
    }
}

/// As above, for replies: each is called once, or dropped because its request was cancelled or
/// refused.
#[tokio::test]
async fn in_any_schedule_every_reply_is_called_once_or_was_given_up() {
    let mut late = 0;
    for seed in 0..150 {
        let mut rng = Rng(seed);
        let (batcher, batches) = gate_with(small());
        let mut underway = Underway { batches, arrived: Vec::new() };
        let fates = Arc::default();
        let mut submitter =
            Submitter { batcher: batcher.clone(), fates, open: Vec::new(), given_up: Vec::new() };
        for _ in 0..80 {
            match rng.below(10) {
                0..=3 => submitter.submit(&mut rng),
                4..=5 => submitter.cancel(&mut rng),
                6 => batcher.flush(),
                7 => underway.let_arrive().await,
                _ => drop(rng.take(&mut underway.arrived).map(|batch| batch.end(rng.pass()))),
            }
        }
        batcher.flush();
        underway.drain(&batcher).await;
        soon(batcher.close()).await;
        submitter.check(seed);
        late += batcher.stats().expired;
    }
    assert!(100 < late, "deadlines passed: {late}");
}

#[expect(clippy::disallowed_methods, reason = "a deadline that has passed when it is given")]
fn past() -> std::time::Instant {
    std::time::Instant::now()
}
