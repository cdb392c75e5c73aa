//! The simulated readers, ways and cores.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::time::Duration;

use super::policy::{Batch, Dispatcher, Policy};
use super::{BATCH_WORK, JITTER, KEY_WORK, READER_WORK, SIMULATED};

/// Length of the intervals in which reads are counted after the world changes.
const STEP_INTERVAL: Duration = Duration::from_millis(10);
/// Number of intervals whose mean is compared with the final rate.
const STEP_SMOOTHED: usize = 4;
/// Share of the final rate that must be reached.
const STEP_REACHED: f64 = 0.9;

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
    /// Reads answered in each [`STEP_INTERVAL`] since the start.
    answered: Vec<u32>,
    /// Response times of the second half of the time.
    times: Vec<Duration>,
    sent: usize,
    worked: Duration,
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ms away, {} readers", self.distance.as_secs_f64() * 1e3, self.readers)
    }
}

impl World {
    pub fn run(&self, policy: Policy) -> Outcome {
        let mut run = Run::new(*self, policy);
        run.until(SIMULATED);
        run.outcome()
    }

    /// Runs in this world for half of the time and then in another one, with as many cores. Returns
    /// how long after the change the reads per second stay above nine tenths of what they are in
    /// the end.
    pub fn step(&self, to: &Self, policy: Policy) -> Duration {
        let mut run = Run::new(*self, policy);
        let change = SIMULATED / 2;
        run.until(change);
        run.change(*to);
        run.until(SIMULATED);
        run.settled_after(change)
    }
}

impl Run {
    fn new(world: World, policy: Policy) -> Self {
        let mut run = Self {
            world,
            dispatcher: Dispatcher::new(policy),
            now: Duration::ZERO,
            events: BinaryHeap::new(),
            made: 0,
            random: 0x9E37_79B9_7F4A_7C15,
            asked: Vec::new(),
            batches: Vec::new(),
            waiting: VecDeque::new(),
            free_cores: world.cores,
            answered: Vec::new(),
            times: Vec::new(),
            sent: 0,
            worked: Duration::ZERO,
        };
        run.add_readers();
        run
    }

    /// Lets readers that have not asked yet ask for the first time.
    fn add_readers(&mut self) {
        for reader in self.asked.len()..self.world.readers {
            self.asked.push(self.now);
            let first = self.about(READER_WORK);
            let reader = u32::try_from(reader).expect("readers are few");
            self.after(first, Event::Ask { reader });
        }
    }

    fn change(&mut self, to: World) {
        self.world = World { cores: self.world.cores, ..to };
        self.add_readers();
    }

    fn until(&mut self, end: Duration) {
        while self.events.peek().is_some_and(|Reverse((time, ..))| *time <= end)
            && let Some(Reverse((time, _, event))) = self.events.pop()
        {
            self.now = time;
            self.handle(event);
            // What happens at one time is taken together.
            if self.events.peek().is_none_or(|Reverse((next, ..))| time < *next) {
                self.dispatch();
            }
        }
    }

    fn settled_after(&self, change: Duration) -> Duration {
        let interval = |time: Duration| (time.as_nanos() / STEP_INTERVAL.as_nanos()) as usize;
        let mut answered = self.answered.clone();
        answered.resize(interval(SIMULATED), 0);
        let since = &answered[interval(change)..];
        let mean = |counts: &[u32]| {
            counts.iter().map(|count| f64::from(*count)).sum::<f64>() / counts.len() as f64
        };
        let last = mean(&since[since.len() / 2..]);
        let reached = |counts: &[u32]| STEP_REACHED * last <= mean(counts);
        let smoothed = since.windows(STEP_SMOOTHED);
        let intervals = smoothed.rev().take_while(|counts| reached(counts)).count();
        let settled = since.len() + 1 - STEP_SMOOTHED - intervals;
        STEP_INTERVAL * u32::try_from(settled).expect("intervals are few")
    }

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
                let interval = (self.now.as_nanos() / STEP_INTERVAL.as_nanos()) as usize;
                self.answered.resize(self.answered.len().max(interval + 1), 0);
                self.answered[interval] += u32::try_from(batch.readers.len()).unwrap_or(u32::MAX);
                for reader in batch.readers {
                    if self.is_counted() {
                        self.times.push(self.now - self.asked[reader as usize]);
                    }
                    if reader as usize >= self.world.readers {
                        continue;
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
