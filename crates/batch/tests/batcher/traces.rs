//! Traces: each traced request is carried by the batch that answers it, and by no other.

use std::sync::{Arc, Mutex};

use busload_batch::{
    BatchEnd, BatchTrace, Batcher, DispatchPolicy, Loaded, QueueSettings, Receipt, Reply,
    RequestId, SentBatch, Sharing, Stored,
};

use super::gate::{BAD_KEY, Batches, Change, Gate, Pass, gate_with, in_flight, settle};

type Log = Arc<Mutex<Vec<String>>>;

/// A request of a name; the names of those that are traced begin with `t`.
struct Named {
    name: &'static str,
    log: Log,
}

/// Trace of a batch, named after the request that began it.
struct OfBatch {
    of: &'static str,
    log: Log,
}

impl Reply<Gate> for Named {
    fn loaded(self, outcome: Loaded<Gate>) {
        let outcome = if outcome.is_ok() { "ok" } else { "error" };
        self.log.lock().unwrap().push(format!("{} {outcome}", self.name));
    }

    fn stored(self, outcome: Stored<Gate>, _receipt: Option<Receipt<Gate>>) {
        let outcome = if outcome.is_ok() { "ok" } else { "error" };
        self.log.lock().unwrap().push(format!("{} {outcome}", self.name));
    }

    fn is_traced(&self) -> bool {
        self.name.starts_with('t')
    }

    fn trace_batch(&self, batch: &SentBatch) -> Option<Box<dyn BatchTrace<Self>>> {
        let SentBatch { operation, entries, requests, .. } = batch;
        let of = self.name;
        self.log.lock().unwrap().push(format!("begin {of}: {operation:?} {entries} {requests}"));
        Some(Box::new(OfBatch { of, log: Arc::clone(&self.log) }))
    }
}

impl BatchTrace<Named> for OfBatch {
    fn carry(&mut self, request: &mut Named) {
        self.log.lock().unwrap().push(format!("{} in {}", request.name, self.of));
    }

    fn end(self: Box<Self>, end: BatchEnd) {
        self.log.lock().unwrap().push(format!("end {}: {end:?}", self.of));
    }
}

struct World {
    batcher: Batcher<Gate, Named>,
    batches: Batches,
    log: Log,
}

impl World {
    fn start(queue: QueueSettings) -> Self {
        let settings = busload_batch::BatcherSettings { queue, timeout: None };
        let (batcher, batches) = gate_with(settings);
        Self { batcher, batches, log: Log::default() }
    }

    fn named(&self, name: &'static str) -> Named {
        Named { name, log: Arc::clone(&self.log) }
    }

    fn load(&self, key: u32, name: &'static str) -> RequestId {
        let asked = self.batcher.submit_load(key, self.named(name), None);
        self.batcher.flush();
        asked.map_err(|refused| refused.reason).unwrap()
    }

    fn set(&self, key: u32, name: &'static str) {
        let asked = self.batcher.submit_store(key, Change::Set(1), self.named(name), None);
        self.batcher.flush();
        asked.map_err(|refused| refused.reason).unwrap();
    }

    /// Lets the next batch pass; returns what was logged until its requests were answered.
    async fn pass(&mut self, how: Pass) -> Vec<String> {
        self.batches.next().await.end(how);
        settle().await;
        self.logged()
    }

    fn logged(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock().unwrap())
    }
}

fn one_in_flight() -> QueueSettings {
    QueueSettings { dispatch: DispatchPolicy::Eager, ..in_flight(1).queue }
}

#[tokio::test]
async fn each_traced_request_is_carried_by_the_batch_that_answers_it() {
    let mut world = World::start(one_in_flight());
    world.load(1, "t1");
    settle().await;
    // These wait for the slot: `t2b` joins the entry of `t2`, and nobody follows `b`.
    world.load(3, "b");
    world.load(2, "t2");
    world.load(2, "t2b");
    world.load(4, "t4");
    assert_eq!(world.logged(), ["begin t1: Read 1 1", "t1 in t1"]);
    // The batch has ended before its requests are answered; then the next one is sent.
    assert_eq!(
        world.pass(Pass::Done).await,
        ["end t1: Served", "t1 ok", "begin t2: Read 3 4", "t2 in t2", "t2b in t2", "t4 in t2",]
    );
    assert_eq!(
        world.pass(Pass::Done).await,
        ["end t2: Served", "t2 ok", "t2b ok", "b ok", "t4 ok"]
    );
}

#[tokio::test]
async fn merged_writes_are_carried_by_one_batch_and_reads_behind_them_by_another() {
    let mut world = World::start(one_in_flight());
    world.load(1, "a");
    settle().await;
    world.set(2, "w");
    world.set(2, "tw");
    world.load(2, "tr");
    assert_eq!(world.pass(Pass::Done).await, ["a ok", "begin tw: Write 1 2", "tw in tw"]);
    assert_eq!(
        world.pass(Pass::Done).await,
        ["end tw: Served", "w ok", "tw ok", "begin tr: Read 1 1", "tr in tr"]
    );
    assert_eq!(world.pass(Pass::Done).await, ["end tr: Served", "tr ok"]);
}

#[tokio::test]
async fn a_read_that_joins_a_batch_in_flight_is_carried_by_that_batch() {
    let sharing = Sharing::InFlight;
    let mut world = World::start(QueueSettings { sharing, ..one_in_flight() });
    // Nobody followed this batch when it was sent.
    world.load(1, "a");
    settle().await;
    assert!(world.logged().is_empty());
    world.load(1, "t1");
    world.load(1, "t2");
    world.load(5, "t5");
    assert_eq!(world.logged(), ["begin t1: Read 1 1", "t1 in t1", "t2 in t1"]);
    assert_eq!(
        world.pass(Pass::Done).await,
        ["end t1: Served", "a ok", "t1 ok", "t2 ok", "begin t5: Read 1 1", "t5 in t5"]
    );
    assert_eq!(world.pass(Pass::Done).await, ["end t5: Served", "t5 ok"]);
}

#[tokio::test]
async fn a_batch_without_traced_requests_has_no_trace() {
    let mut world = World::start(one_in_flight());
    world.load(1, "a");
    settle().await;
    // Cancelled before it is sent; the entry goes on for `c`.
    let cancelled = world.load(2, "t2");
    world.load(2, "c");
    world.batcher.cancel(cancelled);
    assert_eq!(world.pass(Pass::Done).await, ["a ok"]);
    assert_eq!(world.pass(Pass::Done).await, ["c ok"]);
}

#[tokio::test]
async fn the_trace_of_a_batch_tells_how_it_ended() {
    let mut world = World::start(one_in_flight());
    for how in [Pass::Fail("no"), Pass::Panic] {
        world.load(1, "t");
        settle().await;
        assert_eq!(world.logged(), ["begin t: Read 1 1", "t in t"]);
        assert_eq!(world.pass(how).await, ["end t: Failed", "t error"]);
    }
    // An item that fails alone is no failure of the batch.
    world.load(BAD_KEY, "t");
    settle().await;
    world.logged();
    assert_eq!(world.pass(Pass::Done).await, ["end t: Served", "t error"]);
}
