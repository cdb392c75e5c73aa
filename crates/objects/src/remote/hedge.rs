//! Second requests for the slowest percent of first bytes.
//!
//! A request for whose answer somebody waits is sent a second time when its first byte takes longer
//! than that of 99 in 100 requests before it. The first answer wins, the other request is dropped.
//!
//! * **Budget**: a request earns a hundredth of a hedge, and few are saved up. If everything gets
//!   slow at once, hedges are as rare as ever.
//! * **Never** while the store asks to slow down or the window is full, over a slow link, whose
//!   answers are late because of their bytes, and for fills.
//! * The time of a request that lost counts as long as it was waited for: the slowest percent stays
//!   a percent.

use std::{
    sync::{Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
    time::Duration,
};

use object_store::{GetOptions, GetResult, path::Path};
use tokio::time::{Instant, timeout};

use super::{
    Remote, Urgency,
    fault::{Fault, FaultKind},
    http::{Seen, observed},
    limits::{
        HEDGE_AFTER_MIN, HEDGE_BUDGET, HEDGE_MEANS_MIN, HEDGE_QUANTILE, HEDGE_SAMPLES_MAX,
        HEDGE_SAMPLES_MIN, HEDGES_SAVED_MAX,
    },
    window::Slot,
};

/// Buckets of first bytes: four for each power of two, from a millisecond to a minute.
const BUCKETS: usize = 64;
const BUCKETS_PER_OCTAVE: f64 = 4.0;

/// Times to the first byte of the last requests, and the budget of hedges.
#[derive(Debug)]
pub(super) struct HedgeBudget(Mutex<BudgetState>);

#[derive(Debug)]
struct BudgetState {
    counts: [u32; BUCKETS],
    count: u32,
    /// Hedges that may be sent now.
    saved: f64,
}

/// Header of an answer, or none if nothing came in time; with what went over the wire.
pub(super) type Sent = (Option<object_store::Result<GetResult>>, Seen);

impl Default for HedgeBudget {
    fn default() -> Self {
        Self(Mutex::new(BudgetState { counts: [0; BUCKETS], count: 0, saved: 0.0 }))
    }
}

impl HedgeBudget {
    /// Notes that a request is sent.
    fn earn(&self) {
        let mut state = self.lock();
        state.saved = (state.saved + HEDGE_BUDGET).min(HEDGES_SAVED_MAX);
    }

    /// Takes one hedge off the budget. Returns false if there is none.
    fn spend(&self) -> bool {
        let mut state = self.lock();
        let is_there = 1.0 <= state.saved;
        if is_there {
            state.saved -= 1.0;
        }
        is_there
    }

    fn note(&self, first_byte: Duration) {
        let mut state = self.lock();
        state.counts[bucket_of(first_byte)] += 1;
        state.count += 1;
        if HEDGE_SAMPLES_MAX <= state.count {
            // Old times count half as much as new ones.
            state.counts.iter_mut().for_each(|count| *count /= 2);
            state.count = state.counts.iter().sum();
        }
    }

    /// Time that the first byte of 99 in 100 requests takes at most; none before enough were sent.
    fn slowest(&self) -> Option<Duration> {
        let state = self.lock();
        if state.count < HEDGE_SAMPLES_MIN {
            return None;
        }
        let wanted = f64::from(state.count) * HEDGE_QUANTILE;
        let mut seen = 0;
        let bucket = state.counts.iter().position(|count| {
            seen += count;
            wanted <= f64::from(seen)
        });
        Some(end_of(bucket.unwrap_or(BUCKETS - 1)))
    }

    fn lock(&self) -> MutexGuard<'_, BudgetState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bucket_of(time: Duration) -> usize {
    let octaves = (time.as_secs_f64() * 1e3).max(1.0).log2();
    // A float cast saturates.
    ((octaves * BUCKETS_PER_OCTAVE) as usize).min(BUCKETS - 1)
}

fn end_of(bucket: usize) -> Duration {
    let octaves = (bucket + 1) as f64 / BUCKETS_PER_OCTAVE;
    Duration::from_secs_f64(octaves.exp2() / 1e3)
}

impl Remote {
    /// Sends a request and waits for the header of its answer, or of that of a second one.
    pub(super) async fn send(&self, path: &Path, options: GetOptions, urgency: Urgency) -> Sent {
        let began = Instant::now();
        self.hedges.earn();
        let one = || observed(self.unless_silent(self.store.get_opts(path, options.clone())));
        let mut first = std::pin::pin!(one());
        let sent = match self.hedge_after(urgency) {
            None => first.await,
            Some(after) => match timeout(after, &mut first).await {
                Ok(sent) => sent,
                Err(_) => match self.hedge_slot() {
                    None => first.await,
                    Some(slot) => self.first_of(first, one(), &slot).await,
                },
            },
        };
        if let (Some(Ok(_)), _) = &sent {
            self.hedges.note(began.elapsed());
        }
        sent
    }

    /// Time after which a request is sent again; none: it is not.
    fn hedge_after(&self, urgency: Urgency) -> Option<Duration> {
        if !self.is_hedged || self.directory.is_some() || urgency != Urgency::Foreground {
            return None;
        }
        let pace = self.pace();
        let mean = pace.first_byte.filter(|_| !pace.is_slow())?;
        let after = self.hedges.slowest()?.max(HEDGE_AFTER_MIN).max(mean * HEDGE_MEANS_MIN);
        (after < self.stall_timeout).then_some(after)
    }

    /// Takes a slot for a second request, if it may be sent now.
    fn hedge_slot(&self) -> Option<Slot> {
        let slot = self.window.spare()?;
        self.hedges.spend().then_some(slot)
    }

    /// Waits for the first answer of two. If one fails, the other counts.
    async fn first_of(
        &self,
        first: impl Future<Output = Sent>,
        second: impl Future<Output = Sent>,
        slot: &Slot,
    ) -> Sent {
        self.metrics.hedges.fetch_add(1, Relaxed);
        let (mut first, mut second) = (std::pin::pin!(first), std::pin::pin!(second));
        let (sent, mut is_second) = tokio::select! {
            biased;
            sent = &mut first => (sent, false),
            sent = &mut second => (sent, true),
        };
        let (answer, seen) = match self.is_answer(&sent, slot) {
            true => sent,
            false => {
                is_second = !is_second;
                if is_second { second.await } else { first.await }
            }
        };
        if is_second && let Some(Ok(_)) = &answer {
            self.metrics.hedges_won.fetch_add(1, Relaxed);
        }
        (answer, Seen { requests: seen.requests.max(1) + 1, ..seen })
    }

    /// Returns whether a request was answered, so that nobody waits for the other one. One that
    /// asks to slow down counts against the window, whatever the other one brings.
    fn is_answer(&self, sent: &Sent, slot: &Slot) -> bool {
        match sent {
            (None, _) => false,
            (Some(Ok(_)), _) => true,
            (Some(Err(error)), seen) => {
                let fault = Fault::of(error, *seen);
                if fault.kind == FaultKind::SlowDown {
                    self.metrics.slow_downs.fetch_add(1, Relaxed);
                    slot.slowed_down();
                }
                !fault.is_worth_another_try()
            }
        }
    }
}

#[cfg(test)]
mod tests;
