//! The simulated readers, ways and cores.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use super::policy::{Batch, Dispatcher, Policy};
use super::{BATCH_WORK, JITTER, KEY_WORK, READER_WORK, SIMULATED};

#[derive(Clone, Copy)]
pub struct World {
    pub distance: Duration,
    pub cores: usize,
    pub readers: usize,
}

pub struct Outcome {
    pub rate: f64,
    pub mean_micros: f64,
    pub p99_micros: f64,
    pub batch_mean: f64,
    pub busy_cores: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ask { reader: u32 },
    AtDatabase { batch: usize },
    Served { batch: usize },
    Returned { batch: usize },
    Wake,
}

/// State of one simulation.
struct Run {
    world: World,
    dispatcher: Dispatcher,
    now: Duration,
    /// Events in order of time, and those of one time in order of their making.
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    made: u64,
    random: u64,
    /// Time at which each reader has asked.
    asked: Vec<Duration>,
    batches: Vec<Option<Batch>>,
    /// Batches that wait for a core.
    waiting: VecDeque<usize>,
    free_cores: usize,
    /// Response times of the second half of the time.
    times: Vec<Duration>,
    sent: usize,
    worked: Duration,
}

impl World {
    pub fn run(&self, policy: Policy) -> Outcome {
        let mut run = Run {
            world: *self,
            dispatcher: Dispatcher::new(policy),
            now: Duration::ZERO,
            events: BinaryHeap::new(),
            made: 0,
            random: 0x9E37_79B9_7F4A_7C15,
            asked: vec![Duration::ZERO; self.readers],
            batches: Vec::new(),
            waiting: VecDeque::new(),
            free_cores: self.cores,
            times: Vec::new(),
            sent: 0,
            worked: Duration::ZERO,
        };
        for reader in 0..u32::try_from(self.readers).expect("readers are few") {
            let first = run.about(READER_WORK);
            run.at(first, Event::Ask { reader });
        }
        while let Some(Reverse((time, _, event))) = run.events.pop()
            && time <= SIMULATED
        {
            run.now = time;
            run.handle(event);
            // What happens at one time is taken together.
            if run.events.peek().is_none_or(|Reverse((next, ..))| time < *next) {
                run.dispatch();
            }
        }
        run.outcome()
    }
}

impl Run {
    fn handle(&mut self, event: Event) {
        match event {
            Event::Ask { reader } => {
                self.asked[reader as usize] = self.now;
                self.dispatcher.submit(self.now, reader);
            }
            Event::AtDatabase { batch } => {
                self.waiting.push_back(batch);
                self.serve();
            }
            Event::Served { batch } => {
                self.free_cores += 1;
                self.serve();
                let back = self.way();
                self.after(back, Event::Returned { batch });
            }
            Event::Returned { batch } => {
                let batch = self.batches[batch].take().expect("a batch returns once");
                self.dispatcher.end(self.now, batch.id);
                let mut later = Duration::ZERO;
                for reader in batch.readers {
                    if self.is_counted() {
                        self.times.push(self.now - self.asked[reader as usize]);
                    }
                    later += self.about(READER_WORK);
                    self.after(later, Event::Ask { reader });
                }
            }
            Event::Wake => {}
        }
    }

    fn dispatch(&mut self) {
        while let Some(batch) = self.dispatcher.next_batch(self.now) {
            self.sent += usize::from(self.is_counted());
            let way = self.way();
            self.after(way, Event::AtDatabase { batch: self.batches.len() });
            self.batches.push(Some(batch));
        }
        if let Some(wake) = self.dispatcher.next_wake(self.now) {
            self.at(wake.max(self.now + Duration::from_nanos(1)), Event::Wake);
        }
    }

    /// Lets free cores work on the batches that wait.
    fn serve(&mut self) {
        while 0 < self.free_cores
            && let Some(batch) = self.waiting.pop_front()
        {
            self.free_cores -= 1;
            let keys = self.batches[batch].as_ref().map_or(0, |batch| batch.readers.len());
            let work = BATCH_WORK + KEY_WORK * u32::try_from(keys).expect("batches are small");
            let work = work.mul_f64(0.8 + 0.4 * self.chance());
            if self.is_counted() {
                self.worked += work;
            }
            self.after(work, Event::Served { batch });
        }
    }

    /// Returns the time that one way takes.
    fn way(&mut self) -> Duration {
        let late = -(1.0 - self.chance()).ln();
        self.world.distance / 2 + JITTER.mul_f64(late)
    }

    /// Returns between half and one and a half times `mean`.
    fn about(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(0.5 + self.chance())
    }

    /// Returns a number from 0 to below 1 (xorshift).
    fn chance(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn after(&mut self, time: Duration, event: Event) {
        self.at(self.now + time, event);
    }

    fn at(&mut self, time: Duration, event: Event) {
        self.made += 1;
        self.events.push(Reverse((time, self.made, event)));
    }

    fn is_counted(&self) -> bool {
        SIMULATED / 2 < self.now
    }

    fn outcome(mut self) -> Outcome {
        let seconds = (SIMULATED / 2).as_secs_f64();
        let count = self.times.len();
        self.times.sort_unstable();
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let sum: Duration = self.times.iter().sum();
        Outcome {
            rate: count as f64 / seconds,
            mean_micros: micros(sum) / count.max(1) as f64,
            p99_micros: self.times.get(count * 99 / 100).copied().map_or(0.0, micros),
            batch_mean: count as f64 / self.sent.max(1) as f64,
            busy_cores: self.worked.as_secs_f64() / seconds,
        }
    }
}
