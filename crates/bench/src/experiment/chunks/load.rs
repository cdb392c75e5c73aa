//! Callers that share this thread, each with one request under way.

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
    time::Duration,
};

use anyhow::{Result, bail};
use bytes::Bytes;
use futures_util::future::join_all;

use super::{clients::Caller, contents, store::Store};
use crate::{
    clock::{Window, duration_ns, now_ns},
    counters::Counters,
    limits::{CHUNK_FAILURES_MAX, SILENCE},
    random::Random,
    sample::{Answering, Cpu, Ends, Mark, Sample, Watched},
};

/// Choice of the chunks that callers ask for.
#[derive(Clone, Debug)]
pub enum Picks {
    /// Random chunks, for ever; the seed decides.
    Random(u64),
    /// These, each once, shared by all callers.
    List(Arc<[u32]>),
    /// From the first on the contents name the next, so many of them at most; from the beginning
    /// again if time is left.
    Chain {
        first: u32,
        /// Chunks to follow before the end.
        most: usize,
        end: ChainEnd,
    },
}

/// Behaviour at the end of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainEnd {
    Stop,
    Repeat,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub picks: Picks,
    /// Chunks of a request.
    pub batch: usize,
    pub warm_up: Duration,
    pub seconds: Duration,
    pub answering: Answering,
}

impl Plan {
    fn window(&self) -> Window {
        let from_ns = now_ns() + duration_ns(self.warm_up);
        Window { from_ns, until_ns: from_ns + duration_ns(self.seconds) }
    }

    fn mark(&self) -> Mark {
        Mark::now(Watched { answering: self.answering, postgres: None })
    }
}

/// Lets all callers ask until the time is over or there is nothing more to ask for.
pub async fn run(store: &Store, callers: Vec<Caller>, plan: &Plan) -> Result<Sample> {
    let window = plan.window();
    let shared = Callers {
        store,
        window,
        counters: RefCell::new(Counters::new()?),
        position: Cell::new(0),
        batch: plan.batch,
    };
    let asking =
        callers.into_iter().zip(0..).map(|(caller, index)| shared.ask(caller, &plan.picks, index));
    let clocks = async {
        tokio::time::sleep(plan.warm_up).await;
        plan.mark()
    };
    let asked = async { futures_util::future::join(join_all(asking), clocks).await };
    let limit = plan.warm_up + plan.seconds + SILENCE;
    let Ok((_, start)) = tokio::time::timeout(limit, asked).await else {
        bail!("a request is unanswered after {SILENCE:?}");
    };
    let cpu = Cpu::between(&start, &plan.mark());
    let sample = Sample::new(&shared.counters.borrow(), window, Ends::WithLastAnswer);
    Ok(sample.with_thread(cpu))
}

/// State that all callers share.
struct Callers<'a> {
    store: &'a Store,
    window: Window,
    counters: RefCell<Counters>,
    position: Cell<usize>,
    batch: usize,
}

impl Callers<'_> {
    async fn ask(&self, caller: Caller, picks: &Picks, index: u64) {
        match picks {
            Picks::Random(seed) => self.at_random(caller, Random::new(seed ^ (index << 32))).await,
            Picks::List(list) => self.all_of(caller, list).await,
            Picks::Chain { first, most, end } => self.follow(caller, *first, *most, *end).await,
        }
    }

    async fn at_random(&self, mut caller: Caller, mut random: Random) {
        let count = u64::from(self.store.count());
        let mut numbers = vec![0; self.batch];
        loop {
            draw(&mut random, count, &mut numbers);
            if self.one(&mut caller, &numbers).await.is_none() {
                return;
            }
        }
    }

    async fn all_of(&self, mut caller: Caller, list: &[u32]) {
        loop {
            let from = self.position.get().min(list.len());
            let to = (from + self.batch).min(list.len());
            self.position.set(to);
            if from == to || self.one(&mut caller, &list[from..to]).await.is_none() {
                return;
            }
        }
    }

    /// The next request is made of what the last one gave.
    async fn follow(&self, mut caller: Caller, first: u32, most: usize, end: ChainEnd) {
        let (mut number, mut followed) = (first, 0);
        while let Some(contents) = self.one(&mut caller, &[number]).await {
            followed += 1;
            let next = contents::next(&contents).filter(|_| followed < most);
            match next.and_then(|address| self.store.find(&address)) {
                Some(next) => number = next,
                None if end == ChainEnd::Repeat => (number, followed) = (first, 0),
                None => return,
            }
        }
    }

    /// Sends one request; `None` when it was the last.
    async fn one(&self, caller: &mut Caller, numbers: &[u32]) -> Option<Bytes> {
        let asked_ns = now_ns();
        if self.window.until_ns <= asked_ns {
            return None;
        }
        let outcome = caller.ask(self.store, numbers).await;
        let now_ns = now_ns();
        let mut counters = self.counters.borrow_mut();
        match outcome {
            Ok(contents) => {
                let chunks = u64::try_from(numbers.len()).expect("a count fits in 64 bits");
                counters.answer(self.window, chunks, asked_ns, now_ns);
                Some(contents)
            }
            Err(failure) => {
                counters.failed.add(failure);
                (counters.failed.count() < CHUNK_FAILURES_MAX).then(Bytes::new)
            }
        }
    }
}

/// Lets one caller ask that blocks this thread.
pub fn run_blocking(
    store: &Store,
    plan: &Plan,
    mut ask: impl FnMut(&[u32]) -> Result<()>,
) -> Result<Sample> {
    let Picks::Random(seed) = plan.picks else { bail!("bare loops read at random") };
    let window = plan.window();
    let mut random = Random::new(seed);
    let mut counters = Counters::new()?;
    let mut numbers = vec![0; plan.batch];
    let chunks = u64::try_from(plan.batch).expect("a count fits in 64 bits");
    let count = u64::from(store.count());
    let mut start = None;
    let mut asked_ns = now_ns();
    while asked_ns < window.until_ns {
        if start.is_none() && window.from_ns <= asked_ns {
            start = Some(plan.mark());
        }
        draw(&mut random, count, &mut numbers);
        ask(&numbers)?;
        let answered_ns = now_ns();
        counters.answer(window, chunks, asked_ns, answered_ns);
        asked_ns = answered_ns;
    }
    let end = plan.mark();
    let cpu = Cpu::between(&start.unwrap_or(end), &end);
    Ok(Sample::new(&counters, window, Ends::WithLastAnswer).with_thread(cpu))
}

/// Fills a list with random numbers of chunks.
fn draw(random: &mut Random, count: u64, numbers: &mut [u32]) {
    for number in numbers {
        *number = u32::try_from(random.below(count)).expect("below a u32");
    }
}
