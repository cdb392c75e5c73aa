//! Callers that share this thread, each with one request under way.

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
    time::Duration,
};

use anyhow::{Result, bail};
use futures_util::future::{join, join_all};

use super::{chain::ChainStore, clients::Caller};
use crate::{
    clock::{Window, duration_ns, now_ns},
    counters::Counters,
    harness::{Answering, Ends, Mark, Sample, Usage, Watched},
    limits::{CHUNK_FAILURES_MAX, SILENCE},
    random::Random,
};

/// Choice of the chunks that callers ask for.
#[derive(Clone, Debug)]
pub enum Picks {
    /// Random chunks, for ever; the seed decides.
    Random(u64),
    /// These, each once, shared by all callers.
    List(Arc<[u32]>),
    /// These, over and over: the chain of a single caller.
    Cycle(Arc<[u32]>),
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
pub async fn run(chain: &ChainStore, callers: Vec<Caller>, plan: &Plan) -> Result<Sample> {
    let callers_at_work = Callers {
        chain,
        window: plan.window(),
        counters: RefCell::new(Counters::new()?),
        position: Cell::new(0),
        batch: plan.batch,
    };
    let asking = callers.into_iter().zip(0..);
    let asking = asking.map(|(caller, index)| callers_at_work.ask(caller, &plan.picks, index));
    let clocks = async {
        tokio::time::sleep(plan.warm_up).await;
        plan.mark()
    };
    let limit = plan.warm_up + plan.seconds + SILENCE;
    let Ok((_, start)) = tokio::time::timeout(limit, join(join_all(asking), clocks)).await else {
        bail!("a request is unanswered after {SILENCE:?}");
    };
    let usage = Usage::between(&start, &plan.mark());
    let counters = callers_at_work.counters.borrow();
    let sample = Sample::of(&counters, callers_at_work.window, Ends::WithLastAnswer);
    Ok(sample.with_thread(&usage))
}

/// State that all callers of a load share.
struct Callers<'a> {
    chain: &'a ChainStore,
    window: Window,
    counters: RefCell<Counters>,
    /// Position in the list.
    position: Cell<usize>,
    batch: usize,
}

impl Callers<'_> {
    async fn ask(&self, mut caller: Caller, picks: &Picks, index: u64) {
        match picks {
            Picks::Random(seed) => {
                let mut random = Random::new(seed ^ (index << 32));
                let mut numbers = vec![0; self.batch];
                draw(&mut random, self.chain, &mut numbers);
                while self.one(&mut caller, &numbers).await.is_some() {
                    draw(&mut random, self.chain, &mut numbers);
                }
            }
            Picks::List(list) | Picks::Cycle(list) => loop {
                let from = self.position.get().min(list.len());
                let to = (from + self.batch).min(list.len());
                let is_again = to == list.len() && matches!(picks, Picks::Cycle(_));
                self.position.set(if is_again { 0 } else { to });
                if from == to || self.one(&mut caller, &list[from..to]).await.is_none() {
                    return;
                }
            },
        }
    }

    /// Sends one request; `None` when it was the last.
    async fn one(&self, caller: &mut Caller, numbers: &[u32]) -> Option<()> {
        let asked_ns = now_ns();
        if self.window.until_ns <= asked_ns {
            return None;
        }
        let outcome = caller.ask(self.chain, numbers).await;
        let now_ns = now_ns();
        let mut counters = self.counters.borrow_mut();
        match outcome {
            Ok(()) => {
                let chunks = u64::try_from(numbers.len()).expect("a count fits in 64 bits");
                counters.answer(self.window, chunks, asked_ns, now_ns);
                Some(())
            }
            Err(failure) => {
                counters.failed.add(failure);
                (counters.failed.count() < CHUNK_FAILURES_MAX).then_some(())
            }
        }
    }
}

/// Lets one caller ask for random chunks that blocks this thread.
pub fn run_blocking(
    chain: &ChainStore,
    plan: &Plan,
    mut ask: impl FnMut(&[u32]) -> Result<()>,
) -> Result<Sample> {
    let Picks::Random(seed) = plan.picks else { bail!("bare loops read at random") };
    let window = plan.window();
    let mut random = Random::new(seed);
    let mut counters = Counters::new()?;
    let mut numbers = vec![0; plan.batch];
    let chunks = u64::try_from(plan.batch).expect("a count fits in 64 bits");
    let mut start = None;
    let mut asked_ns = now_ns();
    while asked_ns < window.until_ns {
        if start.is_none() && window.from_ns <= asked_ns {
            start = Some(plan.mark());
        }
        draw(&mut random, chain, &mut numbers);
        ask(&numbers)?;
        let answered_ns = now_ns();
        counters.answer(window, chunks, asked_ns, answered_ns);
        asked_ns = answered_ns;
    }
    let end = plan.mark();
    let usage = Usage::between(&start.unwrap_or(end), &end);
    Ok(Sample::of(&counters, window, Ends::WithLastAnswer).with_thread(&usage))
}

/// Fills a list with random numbers of chunks.
pub fn draw(random: &mut Random, chain: &ChainStore, numbers: &mut [u32]) {
    let count = u64::from(chain.store.count());
    numbers.fill_with(|| u32::try_from(random.below(count)).expect("below a u32"));
}
