//! The policies: those of the crate, and the first one that busload had.

use std::collections::VecDeque;
use std::time::Duration;

use busload_batch::{
    BatchId, Content, DispatchPolicy, NoWrites, QueueSettings, RequestOptions, RequestQueue,
};

/// Most batches in flight.
pub const SLOTS_MAX: usize = 32;
const WINDOW_WAIT: Duration = Duration::from_micros(500);
const WINDOW_SLOTS: usize = 10;
/// Settings of the first policy.
const MEAN_HOLD_SLOTS: usize = 4;
const MEAN_HOLD_ENTRIES: usize = 8;
const MEAN_HOLD_SHARE_MIN: usize = 32;
const MEAN_HOLD_BATCH_MAX: usize = 256;

#[derive(Clone, Copy)]
pub enum Policy {
    Adaptive,
    Eager { slots: usize },
    Window { entries: usize },
    MeanHold,
}

pub enum Dispatcher {
    Queue(Box<RequestQueue<u32, NoWrites, u32>>),
    MeanHold(MeanHold),
}

/// A batch: its number, and its readers.
pub struct Batch {
    pub id: Id,
    pub readers: Vec<u32>,
}

#[derive(Clone, Copy)]
pub enum Id {
    Queue(BatchId),
    MeanHold { sent: Duration, entries: usize },
}

/// The first policy, on a queue without anything else.
#[derive(Default)]
pub struct MeanHold {
    waiting: VecDeque<(u32, Duration)>,
    batches: usize,
    entries: usize,
    mean: Option<Duration>,
}

impl Dispatcher {
    pub fn new(policy: Policy) -> Self {
        let (dispatch, slots) = match policy {
            Policy::Adaptive => (DispatchPolicy::Adaptive, SLOTS_MAX),
            Policy::Eager { slots } => (DispatchPolicy::Eager, slots),
            Policy::Window { entries } => {
                (DispatchPolicy::Window { entries, wait: WINDOW_WAIT }, WINDOW_SLOTS)
            }
            Policy::MeanHold => return Self::MeanHold(MeanHold::default()),
        };
        let settings =
            QueueSettings { dispatch, batches_in_flight_max: slots, ..QueueSettings::default() };
        let queue = RequestQueue::with_seed(settings, 1).expect("the settings make sense");
        Self::Queue(Box::new(queue))
    }

    pub fn submit(&mut self, now: Duration, reader: u32) {
        match self {
            Self::Queue(queue) => {
                let submitted = queue.submit_load(now, reader, reader, RequestOptions::default());
                submitted.expect("the queue holds all readers");
            }
            Self::MeanHold(rule) => rule.waiting.push_back((reader, now)),
        }
    }

    pub fn next_batch(&mut self, now: Duration) -> Option<Batch> {
        match self {
            Self::Queue(queue) => {
                let batch = queue.next_batch(now)?;
                let Content::Read(readers) = batch.content else { unreachable!("only reads") };
                Some(Batch { id: Id::Queue(batch.id), readers })
            }
            Self::MeanHold(rule) => rule.next_batch(now),
        }
    }

    pub fn end(&mut self, now: Duration, id: Id) {
        match (self, id) {
            (Self::Queue(queue), Id::Queue(id)) => queue.end(now, id, &mut Vec::new()),
            (Self::MeanHold(rule), Id::MeanHold { sent, entries }) => {
                rule.end(now - sent, entries);
            }
            _ => unreachable!("a batch ends where it was sent"),
        }
    }

    pub fn next_wake(&self, now: Duration) -> Option<Duration> {
        match self {
            Self::Queue(queue) => queue.next_wake(now),
            Self::MeanHold(rule) => rule.due().map(|due| due.max(now)),
        }
    }
}

impl MeanHold {
    fn due(&self) -> Option<Duration> {
        let (_, oldest) = self.waiting.front()?;
        if MEAN_HOLD_SLOTS <= self.batches {
            return None;
        }
        let is_enough = self.batches == 0 || MEAN_HOLD_ENTRIES <= self.waiting.len();
        let hold = self.mean.unwrap_or(Duration::from_millis(1));
        Some(if is_enough { *oldest } else { *oldest + hold })
    }

    fn next_batch(&mut self, now: Duration) -> Option<Batch> {
        self.due().filter(|due| *due <= now)?;
        let share = (self.waiting.len() + self.entries).div_ceil(MEAN_HOLD_SLOTS - 1);
        let entries = share.clamp(MEAN_HOLD_SHARE_MIN, MEAN_HOLD_BATCH_MAX).min(self.waiting.len());
        let readers = self.waiting.drain(..entries).map(|(reader, _)| reader).collect();
        self.batches += 1;
        self.entries += entries;
        Some(Batch { id: Id::MeanHold { sent: now, entries }, readers })
    }

    fn end(&mut self, took: Duration, entries: usize) {
        self.batches -= 1;
        self.entries -= entries;
        self.mean = Some(self.mean.map_or(took, |mean| mean - mean / 8 + took / 8));
    }
}
