//! A queue with a manual clock; its batches are shown as text.

use std::time::Duration;

use busload_batch::{
    BatchId, Content, DispatchPolicy, QueueSettings, Refusal, RequestId, RequestOptions,
    RequestQueue, Sharing, Stage, Write,
};

pub type Key = &'static str;

pub struct Desk {
    pub queue: RequestQueue<Key, Text, usize>,
    pub now: Duration,
    /// Requests made so far; the number of a request is its waiter.
    requests: usize,
    /// Batches by number, in the order they were sent.
    batches: Vec<BatchId>,
}

/// A write with an action in front: `=x` sets, `+x` appends. Only equal actions merge, and appends
/// only up to 8 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text(String);

impl Write for Text {
    type Kind = char;
    type Receipt = usize;

    fn kind(&self) -> char {
        self.0.chars().next().expect("the action is in front")
    }

    fn receipt(&self) -> usize {
        self.0.len()
    }

    fn merge(&mut self, later: Self) -> Result<usize, Self> {
        match (self.kind(), later.kind()) {
            ('=', '=') => *self = later,
            ('+', '+') if self.0.len() + later.0.len() <= 9 => self.0.push_str(&later.0[1..]),
            _ => return Err(later),
        }
        Ok(self.0.len())
    }

    fn bytes(&self) -> usize {
        self.0.len()
    }
}

pub fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns settings under which every batch that is due is sent and nothing is full.
pub fn settings() -> QueueSettings {
    QueueSettings {
        requests_max: 1_000,
        bytes_max: 1_000_000,
        batch_entries_max: 8,
        batch_bytes_max: 100_000,
        batches_in_flight_max: 8,
        dispatch: DispatchPolicy::Eager,
        sharing: Sharing::Waiting,
    }
}

impl Desk {
    pub fn new(settings: QueueSettings) -> Self {
        let queue = RequestQueue::with_seed(settings, 1).expect("settings of tests are sound");
        Desk { queue, now: millis(100), requests: 0, batches: Vec::new() }
    }

    pub fn read(&mut self, key: Key) -> RequestId {
        self.try_read(key).expect("the queue has room")
    }

    pub fn try_read(&mut self, key: Key) -> Result<RequestId, Refusal> {
        self.ask_read(key, None)
    }

    pub fn read_until(&mut self, key: Key, deadline: Duration) -> RequestId {
        self.ask_read(key, Some(deadline)).expect("the queue has room")
    }

    pub fn write(&mut self, key: Key, text: &str) -> RequestId {
        self.try_write(key, text).expect("the queue has room")
    }

    pub fn try_write(&mut self, key: Key, text: &str) -> Result<RequestId, Refusal> {
        self.ask_write(key, text, None)
    }

    pub fn write_until(&mut self, key: Key, text: &str, deadline: Duration) -> RequestId {
        self.ask_write(key, text, Some(deadline)).expect("the queue has room")
    }

    pub fn read_all(&mut self, keys: &[Key]) {
        for key in keys {
            self.read(key);
        }
    }

    pub fn write_all(&mut self, keys: &[Key], text: &str) {
        for key in keys {
            self.write(key, text);
        }
    }

    /// Returns the next batch, as `read a b` or `write a=x b=y`, or `nothing`.
    pub fn next(&mut self) -> String {
        let Some(batch) = self.queue.next_batch(self.now) else { return "nothing".into() };
        self.batches.push(batch.id);
        match batch.content {
            Content::Read(keys) => format!("read {}", keys.join(" ")),
            Content::Write(entries) => {
                let shown: Vec<_> =
                    entries.into_iter().map(|(key, text)| format!("{key}{}", text.0)).collect();
                format!("write {}", shown.join(" "))
            }
        }
    }

    /// Returns all batches that are due, as [`Desk::next`] shows them.
    pub fn all(&mut self) -> Vec<String> {
        std::iter::repeat_with(|| self.next()).take_while(|batch| batch != "nothing").collect()
    }

    /// Returns the waiters of an entry of a batch, with their receipts.
    pub fn answer(&mut self, batch: usize, entry: usize) -> Vec<(usize, Option<usize>)> {
        let mut waiters = Vec::new();
        self.queue.answer(self.batches[batch], entry, &mut waiters);
        waiters.into_iter().map(|answered| (answered.waiter, answered.receipt)).collect()
    }

    /// Returns the waiters that a batch leaves unanswered, by entry.
    pub fn end(&mut self, batch: usize) -> Vec<(usize, usize)> {
        let mut rest = Vec::new();
        self.queue.end(self.now, self.batches[batch], &mut rest);
        rest.into_iter().map(|(entry, answered)| (entry, answered.waiter)).collect()
    }

    pub fn expire(&mut self) -> Vec<(usize, Stage)> {
        let mut late = Vec::new();
        self.queue.expire(self.now, &mut late);
        late.into_iter().map(|late| (late.waiter, late.stage)).collect()
    }

    pub fn wake(&self) -> Option<Duration> {
        self.queue.next_wake(self.now)
    }

    fn ask_read(&mut self, key: Key, deadline: Option<Duration>) -> Result<RequestId, Refusal> {
        let ask = RequestOptions { bytes: key.len(), deadline };
        let waiter = self.next_request();
        self.queue.submit_load(self.now, key, waiter, ask).map_err(|refused| refused.reason)
    }

    fn ask_write(
        &mut self,
        key: Key,
        text: &str,
        deadline: Option<Duration>,
    ) -> Result<RequestId, Refusal> {
        let ask = RequestOptions { bytes: key.len(), deadline };
        let waiter = self.next_request();
        self.queue
            .submit_store(self.now, key, Text(text.into()), waiter, ask)
            .map_err(|refused| refused.reason)
    }

    fn next_request(&mut self) -> usize {
        self.requests += 1;
        self.requests - 1
    }
}
