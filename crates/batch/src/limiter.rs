//! Limit of the batches in flight of one class, found by measuring what a request costs.
//!
//! With more batches in flight a request waits less for a free slot; with fewer, batches are larger
//! and each request costs the backend less. Which matters more depends on the distance to the
//! backend, on its cores and on the load, so the limiter measures it. The *cost* is the mean time
//! of a request, from when it could be sent to the end of its batch, plus its share of
//! [`STATEMENT_COST`] (what one more batch costs the backend, counted as waiting), divided by the
//! number of requests per second: the reciprocal of Kleinrock's power. Throughput counts because on
//! a busy machine more batches may shorten the queue while they slow everything around it. By
//! Little's law it is the mean number of outstanding requests divided by their mean time. (A count
//! of the requests that end in a period can be wrong by half some distance away, where all batches
//! end within a small part of a round trip.) Distance is part of every request's time, whatever the
//! limit, so it needs no rule of its own.
//!
//! * **Periods.** The limiter measures in periods of at least [`PERIOD_BATCHES_MIN`] batches,
//!   [`PERIOD_MIN`] and [`PERIOD_BATCH_TIMES_MIN`] mean times of a batch. After a change of the
//!   limit a period begins when the first batch sent under it has ended, and batches sent earlier
//!   do not count. Batches still in flight that take longer than the mean count with their time so
//!   far: slow ones must not look like throughput.
//! * **New connections.** While the service opens connections for batches in flight, and in the
//!   first period after that, while their caches are cold, nothing is judged.
//! * **Growth.** While requests wait for a slot, or batches are cut to their share of the requests,
//!   the limit doubles from period to period, as long as that does not make batches slower, and
//!   requests with them.
//! * **Trials.** Afterwards the limiter tries another limit beside the known one (the *base*) in
//!   turns: base, other, base, other, base. A trial ends when the difference is clear, or after
//!   [`PAIRS_MAX`] pairs with the base as before. A higher limit is tried only if requests have
//!   waited for a slot or batches were cut, a lower one only if all slots were in use or batches
//!   were cut. After a trial in vain the same is tried again later, each time after twice as many
//!   periods, or when the load has changed.
//! * **Unused limit.** A limit above [`LIMIT_INITIAL`] that is not reached falls by one in each
//!   period, so that it is soon one that matters, and can be compared with another.
//! * **Overload.** When the backend says that it has too much to do, the limit halves.
//!
//! Comparing measured costs in turns is how PCC Vivace (NSDI 2018) finds a sending rate. Limits
//! derived from the shortest known time (TCP Vegas) were no choice: on a busy machine even a
//! request alone takes longer than that, and they would lower the limit where nothing is gained.

use std::time::Duration;

use crate::limits::{
    LIMIT_INITIAL, PAIRS_MAX, PERIOD_BATCH_TIMES_MIN, PERIOD_BATCHES_MIN, PERIOD_MIN,
    RETRIAL_PERIODS_MAX, RETRIAL_PERIODS_MIN, STATEMENT_COST,
};

/// Growth of a batch's time, as a factor, up to which a doubled limit is kept.
const SERVICE_GROWTH_MAX: f64 = 1.2;
/// Growth of a batch's time, as a factor, that a doubled limit need not have caused.
const SERVICE_NOISE: f64 = 1.03;
/// Share of a request's time spent waiting for a slot that makes a higher limit worth a trial.
const WAIT_SHARE_MIN: f64 = 0.02;
/// Share of the batches, as a divisor, that were cut to their share if a higher limit is worth a
/// trial.
const SHARED_MIN: usize = 2;
/// Difference, as a logarithm, that needs one pair of periods only.
const CLEAR_AT_ONCE: f64 = 0.3;
/// Standard errors by which a mean difference must differ from zero.
const CLEAR_ERRORS: f64 = 1.5;
/// Least standard error of a mean difference: a few equal pairs prove little.
const ERROR_MIN: f64 = 0.002;
/// Change of the base's cost, as a logarithm, that means another load.
const LOAD_CHANGE: f64 = 0.6;

/// Adaptive limit of the batches in flight of one class.
#[derive(Debug, Clone)]
pub(crate) struct Limiter {
    max: usize,
    /// Best limit known so far.
    base: usize,
    /// Cost in the last period with the base.
    base_cost: Option<f64>,
    growth: Growth,
    trial: Option<Trial>,
    up: Retrial,
    down: Retrial,
    period: Period,
    /// Numbers that batches sent now get.
    mark: SentMark,
}

/// Mark of a batch, which tells what happened since it was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SentMark {
    /// Number of changes of the limit.
    limit: u64,
    /// Number of times that measuring began anew.
    start: u64,
}

/// Facts about a batch when it is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    /// Sum over the entries of the time from when they could be sent until they were.
    pub waited: Duration,
    /// True if the batch took its share of the outstanding entries, which is smaller with a higher
    /// limit, and not all it could.
    pub is_share: bool,
    /// True if no slot is left now, for batches of any class.
    pub is_last_slot: bool,
}

/// Batch that has not ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unended {
    pub mark: SentMark,
    pub entries: usize,
    pub elapsed: Duration,
}

/// Measured times of a batch that has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    pub entries: usize,
    /// Sum over the entries of the time from when they could be sent until they were.
    pub waited: Duration,
    /// Time from sending the batch to its end.
    pub took: Duration,
}

/// Doubling of the limit.
#[derive(Debug, Clone, Copy)]
enum Growth {
    Ready,
    /// The limit was doubled, which the next period judges.
    Doubled(Doubled),
    /// The last doubling made batches slower, or a trial has found a lower limit.
    Over,
}

/// Doubling that has not been judged.
#[derive(Debug, Clone, Copy)]
struct Doubled {
    from: usize,
    /// Times with the limit before.
    times: Times,
}

/// Mean times of a request in one period, in seconds.
#[derive(Debug, Clone, Copy)]
struct Times {
    /// Time of its batch.
    service: f64,
    /// Wait for a slot and time of the batch.
    total: f64,
    cost: f64,
}

/// Comparison of another limit with the base.
#[derive(Debug, Clone)]
struct Trial {
    limit: usize,
    /// Cost with `limit` in the period before this one, if this one uses the base.
    cost: Option<f64>,
    /// Logarithms of the cost with `limit` over that with the base, one for each pair.
    pairs: Vec<f64>,
}

/// Number of periods until a direction may be tried again.
#[derive(Debug, Clone, Copy)]
struct Retrial {
    pause: u32,
    /// Pause after the next trial in vain.
    pause_next: u32,
}

/// Sums of one period.
#[derive(Debug, Clone, Copy, Default)]
struct Period {
    /// Time from which batches count; `None` before the first one under this limit has ended.
    started: Option<Duration>,
    /// Sum of the time for which entries were outstanding in the period, in seconds.
    outstanding: f64,
    /// Time up to which `outstanding` counts batches in flight.
    counted_to: Duration,
    /// True if the backend's connections were opened just before.
    is_cold: bool,
    /// Batches that have ended, and their entries.
    batches: usize,
    entries: usize,
    /// Sums over these entries, in seconds.
    waited: f64,
    served: f64,
    in_flight_max: usize,
    /// True if there was a time without a free slot.
    had_no_slot: bool,
    /// Batches that were sent, and those of them that were cut to their share.
    sent: usize,
    shared: usize,
}

enum Verdict {
    Better,
    NotBetter,
    Unclear,
}

impl Limiter {
    /// Creates a limiter that never allows more than `max` batches.
    pub fn new(max: usize) -> Self {
        Self {
            max,
            base: LIMIT_INITIAL.min(max),
            base_cost: None,
            growth: Growth::Ready,
            trial: None,
            up: Retrial::NOW,
            down: Retrial::NOW,
            period: Period::default(),
            mark: SentMark::default(),
        }
    }

    /// Returns the number of batches that may be in flight now.
    pub fn limit(&self) -> usize {
        match &self.trial {
            Some(trial) if trial.cost.is_none() => trial.limit,
            _ => self.base,
        }
    }

    /// Records that until `now` so many entries were in flight. Called before that number changes.
    pub fn advance(&mut self, now: Duration, entries_in_flight: usize) {
        let time = now.saturating_sub(self.period.counted_to);
        self.period.outstanding += time.as_secs_f64() * entries_in_flight as f64;
        self.period.counted_to = now;
    }

    /// Records that a batch was sent, after which `in_flight` batches are.
    pub fn sent(&mut self, in_flight: usize, batch: Sent) -> SentMark {
        let Sent { waited, is_share, is_last_slot } = batch;
        let period = &mut self.period;
        period.in_flight_max = period.in_flight_max.max(in_flight);
        period.had_no_slot |= is_last_slot;
        period.outstanding += waited.as_secs_f64();
        period.sent += 1;
        period.shared += usize::from(is_share);
        self.mark
    }

    /// Begins to measure anew, because the backend is opening connections and cannot show yet what
    /// it can do.
    pub fn unsettled(&mut self) {
        self.start_anew();
        self.period.is_cold = true;
    }

    /// Records the end of a batch that the backend has served. `unended` are those in flight.
    pub fn ended(
        &mut self,
        now: Duration,
        sent: SentMark,
        batch: Measured,
        unended: impl Iterator<Item = Unended>,
    ) {
        if sent.start != self.mark.start {
            return;
        }
        let Some(started) = self.period.started else {
            self.next_period(Some(now));
            return;
        };
        self.period.add(batch);
        let enough = PERIOD_BATCHES_MIN.max(self.limit()) <= self.period.batches;
        if enough && started.saturating_add(self.period.time_min()) <= now {
            let of_these = unended.filter(|unended| unended.mark.start == self.mark.start);
            self.period.add_slow(of_these);
            self.end_period(now);
        }
    }

    /// Halves the limit, because the backend has said that it has too much to do. Batches that were
    /// sent before the limit last changed say nothing new.
    pub fn overloaded(&mut self, sent: SentMark) {
        if sent.limit != self.mark.limit {
            return;
        }
        self.base = (self.base / 2).max(1);
        self.base_cost = None;
        self.growth = Growth::Over;
        self.trial = None;
        self.up = Retrial::NOW;
        self.up.postpone();
        self.limit_changed();
    }

    fn end_period(&mut self, now: Duration) {
        if self.period.is_cold {
            self.next_period(Some(now));
            return;
        }
        let (before, cost) = (self.limit(), self.period.cost(now));
        match self.trial.take() {
            Some(trial) if trial.cost.is_none() => {
                self.trial = Some(Trial { cost: Some(cost), ..trial });
            }
            Some(trial) => self.end_pair(trial, cost),
            None => self.end_base_period(cost),
        }
        if self.limit() == before {
            self.next_period(Some(now));
        } else {
            self.limit_changed();
        }
    }

    fn limit_changed(&mut self) {
        self.mark.limit += 1;
        self.start_anew();
    }

    fn start_anew(&mut self) {
        self.mark.start += 1;
        self.next_period(None);
    }

    fn next_period(&mut self, started: Option<Duration>) {
        let Period { counted_to, is_cold, .. } = self.period;
        // Before its start, a period is one with the time that led to it.
        let is_cold = is_cold && self.period.started.is_none();
        self.period = Period { started, counted_to, is_cold, ..Period::default() };
    }

    /// Ends a period outside of trials.
    fn end_base_period(&mut self, cost: f64) {
        self.up.tick();
        self.down.tick();
        let before = self.base_cost.replace(cost);
        if before.is_some_and(|before| is_other_load(before, cost)) {
            self.forget();
        }
        if self.grow(cost) {
            return;
        }
        if LIMIT_INITIAL < self.base && !self.is_full() {
            self.base -= 1;
            self.growth = Growth::Over;
            return;
        }
        self.trial = self.next_trial();
    }

    /// Doubles the limit, judges the last doubling, or takes it back. Returns whether it did.
    fn grow(&mut self, cost: f64) -> bool {
        let times = self.period.times(cost);
        match &self.growth {
            Growth::Over => return false,
            Growth::Doubled(doubled) if times.has_suffered(doubled.times) => {
                self.base = doubled.from;
                // If the load has changed, and not the limit made batches slower, the next period
                // tells by this.
                self.base_cost = Some(doubled.times.cost);
                self.growth = Growth::Over;
                self.up.postpone();
                return true;
            }
            Growth::Doubled(_) | Growth::Ready => {}
        }
        if self.base < self.max && self.wants_more() {
            self.growth = Growth::Doubled(Doubled { from: self.base, times });
            self.base = (2 * self.base).min(self.max);
            return true;
        }
        self.growth = Growth::Ready;
        false
    }

    /// Returns the trial to make after a period with the base, if one is worth it.
    fn next_trial(&self) -> Option<Trial> {
        let base = self.base;
        let limit = if base < self.max && self.up.is_due() && self.wants_more() {
            (base + (base / 2).max(1)).min(self.max)
        } else if 1 < base && self.down.is_due() && self.is_full() {
            base - (base / 3).max(1)
        } else {
            return None;
        };
        Some(Trial { limit, cost: None, pairs: Vec::new() })
    }

    /// Ends a pair of periods, with the one that used the base again.
    fn end_pair(&mut self, mut trial: Trial, cost: f64) {
        let before = self.base_cost.replace(cost);
        let (Some(before), Some(other)) = (before, trial.cost.take()) else { return };
        if is_other_load(before, cost) {
            self.forget();
            return;
        }
        trial.pairs.push(other.ln() - (before.ln() + cost.ln()) / 2.0);
        let is_up = self.base < trial.limit;
        let (direction, reverse) =
            if is_up { (&mut self.up, &mut self.down) } else { (&mut self.down, &mut self.up) };
        match verdict(&trial.pairs) {
            Verdict::Unclear => self.trial = Some(trial),
            Verdict::NotBetter => direction.postpone(),
            Verdict::Better => {
                *direction = Retrial::NOW;
                *reverse = Retrial::NOW;
                reverse.postpone();
                self.growth = if is_up { Growth::Ready } else { Growth::Over };
                self.base = trial.limit;
                self.base_cost = Some(other);
            }
        }
    }

    /// Forgets what was tried in vain: the load has changed.
    fn forget(&mut self) {
        (self.up, self.down) = (Retrial::NOW, Retrial::NOW);
        if let Growth::Over = self.growth {
            self.growth = Growth::Ready;
        }
    }

    /// Returns whether the limit has shaped the batches of this period.
    fn is_full(&self) -> bool {
        let Period { in_flight_max, had_no_slot, .. } = self.period;
        self.base <= in_flight_max || had_no_slot || self.has_shared()
    }

    /// Returns whether batches of this period would have been smaller with a higher limit.
    fn has_shared(&self) -> bool {
        let Period { sent, shared, .. } = self.period;
        0 < sent && sent <= SHARED_MIN * shared
    }

    /// Returns whether a higher limit could have served requests of this period earlier.
    fn wants_more(&self) -> bool {
        let Period { waited, served, .. } = self.period;
        let has_waited = WAIT_SHARE_MIN * (waited + served) < waited;
        self.has_shared() || (self.is_full() && has_waited)
    }
}

fn is_other_load(before: f64, after: f64) -> bool {
    LOAD_CHANGE < (after / before).ln().abs()
}

fn verdict(pairs: &[f64]) -> Verdict {
    let count = pairs.len() as f64;
    let mean = pairs.iter().sum::<f64>() / count;
    let margin = if pairs.len() == 1 {
        CLEAR_AT_ONCE
    } else {
        let squares = pairs.iter().map(|pair| (pair - mean).powi(2)).sum::<f64>();
        CLEAR_ERRORS * (squares / (count - 1.0) / count).sqrt().max(ERROR_MIN)
    };
    if mean < -margin {
        Verdict::Better
    } else if margin < mean || PAIRS_MAX <= pairs.len() {
        Verdict::NotBetter
    } else {
        Verdict::Unclear
    }
}

impl Retrial {
    const NOW: Self = Self { pause: 0, pause_next: RETRIAL_PERIODS_MIN };

    fn is_due(self) -> bool {
        self.pause == 0
    }

    fn tick(&mut self) {
        self.pause = self.pause.saturating_sub(1);
    }

    fn postpone(&mut self) {
        self.pause = self.pause_next;
        self.pause_next = (2 * self.pause_next).min(RETRIAL_PERIODS_MAX);
    }
}

impl Times {
    /// Returns whether a doubled limit has made batches slower, and with them requests. Waits alone
    /// do not tell: they may come from an earlier backlog.
    fn has_suffered(self, before: Self) -> bool {
        let grown = self.service / before.service;
        SERVICE_GROWTH_MAX < grown || (SERVICE_NOISE < grown && before.total < self.total)
    }
}

impl Period {
    fn add(&mut self, batch: Measured) {
        self.batches += 1;
        self.entries += batch.entries;
        self.waited += batch.waited.as_secs_f64();
        self.served += batch.took.as_secs_f64() * batch.entries as f64;
    }

    /// Returns how long the period lasts at least.
    fn time_min(&self) -> Duration {
        let service = Duration::from_secs_f64(self.served / self.entries as f64);
        PERIOD_MIN.max(PERIOD_BATCH_TIMES_MIN * service)
    }

    /// Adds batches in flight that take longer than the mean, with their time so far.
    fn add_slow(&mut self, unended: impl Iterator<Item = Unended>) {
        let mean = self.served / self.entries as f64;
        for Unended { entries, elapsed, .. } in unended {
            if mean < elapsed.as_secs_f64() {
                self.entries += entries;
                self.served += elapsed.as_secs_f64() * entries as f64;
            }
        }
    }

    /// Returns the mean time of a request, with its share of what batches cost, divided by the
    /// number of requests per second.
    fn cost(&self, now: Duration) -> f64 {
        let started = self.started.unwrap_or(now);
        let seconds = now.saturating_sub(started).max(PERIOD_MIN).as_secs_f64();
        let entries = self.entries as f64;
        let statements = STATEMENT_COST.as_secs_f64() * self.batches as f64 / entries;
        let time = (self.waited + self.served) / entries;
        let per_second = self.outstanding / seconds / time;
        (time + statements) / per_second
    }

    fn times(&self, cost: f64) -> Times {
        let entries = self.entries as f64;
        let total = (self.waited + self.served) / entries;
        Times { service: self.served / entries, total, cost }
    }
}

#[cfg(test)]
mod tests;
