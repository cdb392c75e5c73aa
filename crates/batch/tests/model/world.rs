//! One run: a queue, the reference that must do the same, callers, and a store that batches are
//! applied to.

use std::collections::BTreeMap;
use std::time::Duration;

use busload_batch::{
    Answered, BatchId, Content, DispatchPolicy, QueueSettings, RequestId, RequestOptions,
    RequestQueue, Stage,
};

use crate::change::{Action, Change, Value};
use crate::reference::{Expected, Key, Reference, Request};

/// Number of keys: `0..KEYS`.
pub const KEYS: Key = 4;

const SEED: u64 = 7;

/// One step of a run. Indexes are taken modulo the number of existing things.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    Read {
        key: Key,
        key_bytes: u8,
        deadline: Deadline,
    },
    Write {
        key: Key,
        key_bytes: u8,
        action: Action,
        deadline: Deadline,
    },
    Leave {
        request: usize,
    },
    NextBatch,
    AllBatches,
    Make {
        batch: usize,
    },
    Answer {
        batch: usize,
        entry: usize,
    },
    End {
        batch: usize,
    },
    Advance {
        micros: u64,
    },
    /// Makes a call with a time before that of other calls.
    GoBack {
        micros: u64,
    },
    Expire,
    TakeWaiting,
    /// Sleeps exactly as long as the queue says.
    SleepUntilWake,
}

/// Microseconds from now; `None`: no deadline.
pub type Deadline = Option<u64>;

pub struct World {
    queue: RequestQueue<Key, Change, usize>,
    reference: Reference,
    now: Duration,
    requests: Vec<Asked>,
    batches: Vec<Sent>,
    store: BTreeMap<Key, Stored>,
}

/// A request and its outcome.
struct Asked {
    key: Key,
    action: Option<Action>,
    id: Option<RequestId>,
    fate: Fate,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Refused,
    Open,
    /// The write's caller is gone: the write may have been made or not.
    Gone,
    /// The write's deadline passed, and the queue said that it will not be made.
    NotMade,
    /// The write's batch ended without it.
    Failed,
    Answered,
}

struct Sent {
    id: BatchId,
    entries: Vec<(Key, Option<Change>)>,
    /// Values read when the batch was made: per entry, the writes of the key made so far.
    seen: Option<Vec<Stored>>,
    ended: bool,
}

/// A key in the store.
#[derive(Debug, Clone, Default)]
struct Stored {
    value: Value,
    made: Vec<usize>,
}

impl World {
    pub fn new(settings: QueueSettings) -> Self {
        let queue =
            RequestQueue::with_seed(settings.clone(), SEED).expect("runs have sound settings");
        let reference = Reference::new(settings);
        let (requests, batches, store) = Default::default();
        World { queue, reference, now: Duration::ZERO, requests, batches, store }
    }

    pub fn step(&mut self, step: Step) {
        match step {
            Step::Read { key, key_bytes, deadline } => self.ask(key, key_bytes, None, deadline),
            Step::Write { key, key_bytes, action, deadline } => {
                self.ask(key, key_bytes, Some(action), deadline)
            }
            Step::Leave { request } => self.leave(request),
            Step::NextBatch => drop(self.next_batch()),
            Step::AllBatches => while self.next_batch() {},
            Step::Make { batch } => self.with_batch(batch, Self::make),
            Step::Answer { batch, entry } => {
                self.with_batch(batch, |world, batch| world.answer(batch, entry))
            }
            Step::End { batch } => self.with_batch(batch, Self::end),
            Step::Advance { micros } => self.now += Duration::from_micros(micros),
            Step::GoBack { micros } => {
                self.now = self.now.saturating_sub(Duration::from_micros(micros))
            }
            Step::Expire => self.expire(),
            Step::TakeWaiting => self.take_waiting(),
            Step::SleepUntilWake => self.sleep_until_wake(),
        }
        self.check();
    }

    /// Brings everything to its end: no request may be left.
    pub fn finish(mut self) {
        for _ in 0..=2 * self.requests.len() {
            self.sleep_until_wake();
            while self.next_batch() {}
            (0..self.batches.len()).for_each(|batch| self.make(batch));
            (0..self.batches.len()).rev().for_each(|batch| self.end(batch));
            self.check();
        }
        let open = self.requests.iter().filter(|request| request.fate == Fate::Open).count();
        assert_eq!(open, 0, "waiters were lost");
        assert!(self.queue.is_empty());
        assert_eq!(
            (self.queue.waiting(), self.queue.waiting_bytes(), self.queue.in_flight()),
            (0, 0, 0)
        );
        self.check_counts();
    }

    fn ask(&mut self, key: Key, key_bytes: u8, action: Option<Action>, deadline: Deadline) {
        let number = self.requests.len();
        let key_bytes = usize::from(key_bytes);
        let deadline = deadline.map(|micros| self.now + Duration::from_micros(micros));
        let change = action.map(|action| Change::new(action, number));
        let ask = RequestOptions { bytes: key_bytes, deadline };
        let request = Request { number, key, key_bytes, change: change.clone(), deadline };
        self.tell_time();
        let answer = match change {
            None => self.queue.submit_load(self.now, key, number, ask),
            Some(change) => self.queue.submit_store(self.now, key, change, number, ask),
        };
        let expected = self.reference.ask(request);
        assert_eq!(answer.as_ref().map(|_| ()).map_err(|refused| refused.reason), expected);
        let id = answer.map_err(|refused| assert_eq!(refused.waiter, number)).ok();
        let fate = if id.is_some() { Fate::Open } else { Fate::Refused };
        self.requests.push(Asked { key, action, id, fate });
    }

    fn leave(&mut self, request: usize) {
        let Some(request) = request.checked_rem(self.requests.len()) else { return };
        let Some(id) = self.requests[request].id else { return };
        let was_open = self.requests[request].fate == Fate::Open;
        assert_eq!(
            self.queue.cancel(id),
            was_open.then_some(request),
            "who leaves gets itself, once"
        );
        assert_eq!(self.reference.leave(request).is_some(), was_open);
        if was_open {
            self.requests[request].fate = Fate::Gone;
        }
    }

    fn next_batch(&mut self) -> bool {
        self.tell_time();
        let stats = self.queue.stats();
        let batch = self.queue.next_batch(self.now);
        let expected = self.reference.next_batch(self.batches.len(), &stats);
        let Some(batch) = batch else {
            assert_eq!(expected, None, "a batch is due");
            return false;
        };
        let left: Expected = match batch.content {
            Content::Read(keys) => keys.into_iter().map(|key| (key, None)).collect(),
            Content::Write(entries) => {
                entries.into_iter().map(|(key, change)| (key, Some(change))).collect()
            }
        };
        assert_eq!(Some(&left), expected.as_ref());
        self.check_batch(&left);
        self.batches.push(Sent { id: batch.id, entries: left, seen: None, ended: false });
        true
    }

    /// Checks rules that hold for every batch, whatever the reference says.
    fn check_batch(&self, batch: &Expected) {
        let settings = &self.reference.settings;
        assert!(!batch.is_empty());
        assert!(batch.len() <= settings.batch_entries_max);
        assert!(batch.is_sorted_by(|(a, _), (b, _)| a < b), "sorted, each key once: {batch:?}");
        assert!(self.queue.in_flight() <= settings.batches_in_flight_max);
        if let DispatchPolicy::Window { entries, .. } = settings.dispatch {
            assert!(batch.len() <= entries);
        }
    }

    fn with_batch(&mut self, batch: usize, act: impl FnOnce(&mut Self, usize)) {
        if let Some(batch) = batch.checked_rem(self.batches.len()) {
            act(self, batch);
        }
    }

    /// Reads or writes the store, once per batch.
    fn make(&mut self, batch: usize) {
        let sent = &mut self.batches[batch];
        if sent.ended || sent.seen.is_some() {
            return;
        }
        let mut seen = Vec::new();
        for (key, change) in &sent.entries {
            let stored = self.store.entry(*key).or_default();
            if let Some(change) = change {
                make_change(stored, change, &self.requests);
            }
            seen.push(stored.clone());
        }
        sent.seen = Some(seen);
    }

    /// Answers one entry; also one that was answered, of a batch that has ended, or that does not
    /// exist.
    fn answer(&mut self, batch: usize, entry: usize) {
        self.make(batch);
        let entry = entry % (self.batches[batch].entries.len() + 1);
        let mut waiters = Vec::new();
        self.queue.answer(self.batches[batch].id, entry, &mut waiters);
        let expected = self.reference.answer(batch, entry);
        assert_eq!(waiters.iter().map(|answered| answered.waiter).collect::<Vec<_>>(), expected);
        waiters.iter().for_each(|answered| self.check_answer(batch, entry, *answered));
    }

    /// Ends a batch; also one that has ended. Requests that were made but not answered get their
    /// answer now, others fail.
    fn end(&mut self, batch: usize) {
        self.tell_time();
        let mut rest = Vec::new();
        self.queue.end(self.now, self.batches[batch].id, &mut rest);
        let got: Vec<_> = rest.iter().map(|(entry, answered)| (*entry, answered.waiter)).collect();
        assert_eq!(got, self.reference.end(batch));
        for (entry, answered) in rest {
            self.check_answer(batch, entry, answered);
        }
        self.batches[batch].ended = true;
    }

    /// Checks an answer: it must be that of the key's operations one by one in order of arrival.
    fn check_answer(&mut self, batch: usize, entry: usize, answered: Answered<usize, usize>) {
        let request = answered.waiter;
        let (key, change) = &self.batches[batch].entries[entry];
        assert_eq!(self.requests[request].fate, Fate::Open, "answered twice, or nobody waits");
        assert_eq!(self.requests[request].key, *key);
        assert_eq!(answered.receipt.is_some(), change.is_some());
        if let (Some(change), Some(receipt)) = (change, answered.receipt) {
            assert_eq!(change.requests[receipt], request, "the receipt names the request's part");
        }
        let Some(seen) = &self.batches[batch].seen else {
            self.requests[request].fate = Fate::Failed;
            return;
        };
        self.check_order(request, &seen[entry]);
        self.requests[request].fate = Fate::Answered;
    }

    fn check_order(&self, request: usize, seen: &Stored) {
        let is_write = self.requests[request].action.is_some();
        let last = if is_write { request + 1 } else { request };
        for earlier in 0..last {
            let Asked { key, action, fate, .. } = &self.requests[earlier];
            let counts = *key == self.requests[request].key && action.is_some();
            let must_be_made = matches!(fate, Fate::Answered | Fate::Open);
            if counts && must_be_made {
                assert!(
                    seen.made.contains(&earlier),
                    "{request} does not see {earlier}: {:?}",
                    seen.made
                );
            }
        }
        let merged_with_later = |later: &usize| is_write && self.merged(request, *later);
        let later = seen.made.iter().find(|made| request < **made && !merged_with_later(made));
        assert_eq!(later, None, "{request} sees what came after it");
    }

    fn merged(&self, request: usize, later: usize) -> bool {
        let changes = self
            .batches
            .iter()
            .flat_map(|sent| &sent.entries)
            .filter_map(|(_, change)| change.as_ref());
        changes
            .into_iter()
            .any(|change| change.requests.contains(&request) && change.requests.contains(&later))
    }

    fn expire(&mut self) {
        self.tell_time();
        let mut late = Vec::new();
        self.queue.expire(self.now, &mut late);
        let got: Vec<_> =
            late.iter().map(|late| (late.waiter, late.stage, late.operation)).collect();
        assert_eq!(got, self.reference.expire());
        for (request, stage, _) in got {
            assert_eq!(self.requests[request].fate, Fate::Open);
            self.requests[request].fate =
                if stage == Stage::Waiting { Fate::NotMade } else { Fate::Gone };
        }
    }

    fn take_waiting(&mut self) {
        let mut waiting = Vec::new();
        self.queue.take_waiting(&mut waiting);
        let got: Vec<_> = waiting.iter().map(|late| late.waiter).collect();
        assert_eq!(got, self.reference.take_waiting());
        for late in waiting {
            assert_eq!(late.stage, Stage::Waiting);
            assert_eq!(self.requests[late.waiter].fate, Fate::Open);
            self.requests[late.waiter].fate = Fate::NotMade;
        }
        assert_eq!(self.queue.waiting(), self.reference.requests());
    }

    /// Checks that nothing is due just before the time that the queue names, and something at it.
    fn sleep_until_wake(&mut self) {
        let Some(wake) = self.queue.next_wake(self.now) else { return };
        if self.reference.now.max(self.now) < wake {
            self.now = wake - Duration::from_nanos(1);
            assert!(!self.next_batch(), "a batch was due before the queue wanted to be woken");
            let open = self.open_requests();
            self.expire();
            assert_eq!(
                self.open_requests(),
                open,
                "a deadline passed before the queue wanted to be woken"
            );
            self.now = wake;
        }
        let open = self.open_requests();
        self.expire();
        let somebody_was_late = self.open_requests() < open;
        assert!(self.next_batch() | somebody_was_late, "woken for nothing");
    }

    fn open_requests(&self) -> usize {
        self.requests.iter().filter(|request| request.fate == Fate::Open).count()
    }

    /// Checks that queue and reference agree on everything observable.
    fn check(&self) {
        let settings = &self.reference.settings;
        assert_eq!(self.queue.waiting(), self.reference.requests());
        assert_eq!(self.queue.waiting_bytes(), self.reference.bytes());
        assert_eq!(self.queue.in_flight(), self.reference.batches_in_flight());
        assert!(self.queue.waiting() <= settings.requests_max);
        for (batch, sent) in self.batches.iter().enumerate() {
            assert_eq!(self.queue.is_awaited(sent.id), self.reference.is_awaited(batch));
        }
        assert!(self.queue.waiting_bytes() <= settings.bytes_max);
        let now = self.now.max(self.reference.now);
        let expected = self.reference.next_wake(&self.queue.stats()).map(|wake| wake.max(now));
        assert_eq!(self.queue.next_wake(now), expected);
    }

    fn check_counts(&self) {
        let stats = self.queue.stats();
        let count = |is_one: &dyn Fn(&Asked) -> bool| {
            self.requests.iter().filter(|asked| is_one(asked)).map(|_| 1_u64).sum::<u64>()
        };
        assert_eq!(stats.refused, count(&|asked| asked.fate == Fate::Refused));
        assert_eq!(
            stats.cancelled + stats.expired,
            count(&|asked| matches!(asked.fate, Fate::Gone | Fate::NotMade))
        );
        assert_eq!(
            stats.reads.requests + stats.writes.requests,
            count(&|asked| asked.id.is_some())
        );
        let batches = stats.reads.batches + stats.writes.batches;
        assert_eq!(usize::try_from(batches), Ok(self.batches.len()));
        let largest = self.batches.iter().map(|sent| sent.entries.len()).max().unwrap_or(0);
        assert_eq!(stats.reads.batch_entries_max.max(stats.writes.batch_entries_max), largest);
    }

    /// Tells the reference the time that the queue will get now. It never goes back.
    fn tell_time(&mut self) {
        self.reference.now = self.reference.now.max(self.now);
    }
}

/// Applies a change, which must do what its requests do one by one and come after all earlier ones.
fn make_change(stored: &mut Stored, change: &Change, requests: &[Asked]) {
    let mut one_by_one = stored.value.clone();
    for request in &change.requests {
        assert!(stored.made.iter().all(|made| made < request), "{request} after {:?}", stored.made);
        assert_ne!(requests[*request].fate, Fate::NotMade);
        requests[*request].action.expect("a write").apply(*request, &mut one_by_one);
        stored.made.push(*request);
    }
    change.apply(&mut stored.value);
    assert_eq!(stored.value, one_by_one);
}
