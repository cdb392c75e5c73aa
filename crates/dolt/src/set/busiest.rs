//! The busiest stores of a set, for metrics of single stores.
//!
//! ```text
//!  open --> arrivals --+
//!                      v
//!  whoever asks --> ranked: all open stores --once a second--> chosen, at most `stores_max`
//!                                                                 ^
//!  open of a chosen store that was closed: the same counters -----+
//! ```
//!
//! * **Activity** is the number of reads and downloads, of which half is forgotten every
//!   [`ACTIVITY_HALF_LIFE`].
//! * **No churn.** A store has to be half as active again as the least active chosen one to take
//!   its place ([`CHOSEN_ADVANTAGE`]). Until then it stays, open or closed.
//! * **Counters of a chosen store never go back**, also when it is closed and opened again: the
//!   list keeps them. A store that is not chosen any more and is closed loses its own.
//! * **Locks.** Ranking takes time in proportion to the open stores, about a millisecond for ten
//!   thousand. Whoever opens a store meanwhile takes no lock that is held as long, and whoever
//!   reads one takes none of this file.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    limits::{ACTIVITY_HALF_LIFE, ACTIVITY_MIN, ARRIVALS_MAX, CHOSEN_ADVANTAGE, RANKING_INTERVAL},
    usage::{Counters, StoreUsage},
};

/// Chooser of the busiest stores.
pub(crate) struct Busiest {
    stores_max: usize,
    /// Counters of all stores of the set, those that were closed included.
    all: Arc<Counters>,
    /// Stores that were opened since the last ranking.
    arrivals: Mutex<Vec<Arc<StoreUsage>>>,
    ranking: Mutex<Ranking>,
    chosen: Mutex<Arc<[BusyStore]>>,
}

/// One of the busiest stores.
#[derive(Clone, Debug)]
pub struct BusyStore {
    /// Counters of the store.
    pub usage: Arc<StoreUsage>,
    /// Reads and downloads, the recent ones above all.
    pub activity: f64,
}

#[derive(Default)]
struct Ranking {
    ranked_at: Option<Instant>,
    stores: Vec<Ranked>,
}

/// An open store, or a chosen one.
struct Ranked {
    usage: Arc<StoreUsage>,
    /// Activity that is counted already.
    counted: u64,
    recent: f64,
    is_chosen: bool,
}

impl Busiest {
    /// Makes a chooser of at most this many stores.
    pub fn new(stores_max: usize) -> Self {
        Self {
            stores_max,
            all: Arc::default(),
            arrivals: Mutex::default(),
            ranking: Mutex::default(),
            chosen: Mutex::default(),
        }
    }

    /// Returns the counters of all stores together.
    pub fn all(&self) -> &Counters {
        &self.all
    }

    /// Returns the counters of a store that is being opened: those that it had, if it is one of the
    /// chosen. Takes no time.
    pub fn open(&self, name: &str) -> Arc<StoreUsage> {
        let chosen = self.chosen();
        let kept = chosen.iter().find(|store| store.usage.name() == name);
        let usage = match kept {
            Some(kept) => kept.usage.clone(),
            None => Arc::new(StoreUsage::of_set(name, &self.all)),
        };
        if self.stores_max != 0 {
            let mut arrivals = lock(&self.arrivals);
            if arrivals.len() < ARRIVALS_MAX {
                arrivals.push(usage.clone());
            }
        }
        usage
    }

    /// Returns the busiest stores, the busiest first. Ranks all of them first, unless somebody has
    /// a moment ago, or does now.
    pub fn stores(&self) -> Arc<[BusyStore]> {
        self.stores_at(Instant::now())
    }

    fn stores_at(&self, now: Instant) -> Arc<[BusyStore]> {
        if let Ok(mut ranking) = self.ranking.try_lock()
            && ranking.is_due(now)
        {
            let arrivals = std::mem::take(&mut *lock(&self.arrivals));
            let chosen = ranking.rank(arrivals, now, self.stores_max);
            *lock(&self.chosen) = chosen;
        }
        self.chosen()
    }

    fn chosen(&self) -> Arc<[BusyStore]> {
        lock(&self.chosen).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ranking {
    fn is_due(&self, now: Instant) -> bool {
        self.ranked_at.is_none_or(|at| RANKING_INTERVAL <= now.duration_since(at))
    }

    fn rank(
        &mut self,
        arrivals: Vec<Arc<StoreUsage>>,
        now: Instant,
        stores_max: usize,
    ) -> Arc<[BusyStore]> {
        let since = self.ranked_at.replace(now).map_or(Duration::ZERO, |at| now - at);
        let new = arrivals.into_iter().filter(|usage| !usage.set_ranked(true));
        self.stores.extend(new.map(Ranked::new));
        let kept = 0.5_f64.powf(since.as_secs_f64() / ACTIVITY_HALF_LIFE.as_secs_f64());
        self.stores.iter_mut().for_each(|ranked| ranked.count(kept));
        self.stores.retain(Ranked::is_kept);
        let mut candidates: Vec<(f64, usize)> = Vec::new();
        for (index, ranked) in self.stores.iter().enumerate() {
            candidates.extend(ranked.claim().map(|claim| (claim, index)));
        }
        let greater = |one: &(f64, usize), other: &(f64, usize)| other.0.total_cmp(&one.0);
        if stores_max < candidates.len() {
            candidates.select_nth_unstable_by(stores_max, greater);
            candidates.truncate(stores_max);
        }
        self.stores.iter_mut().for_each(|ranked| ranked.is_chosen = false);
        candidates.sort_unstable_by(|one, other| {
            self.stores[other.1].recent.total_cmp(&self.stores[one.1].recent)
        });
        // Two of one name: a store that was closed while somebody still has it.
        let mut names = HashSet::with_capacity(candidates.len());
        let mut chosen = Vec::with_capacity(candidates.len());
        for (_, index) in candidates {
            let ranked = &mut self.stores[index];
            if names.insert(ranked.usage.name().to_owned()) {
                ranked.is_chosen = true;
                chosen.push(BusyStore { usage: ranked.usage.clone(), activity: ranked.recent });
            }
        }
        chosen.into()
    }
}

impl Ranked {
    fn new(usage: Arc<StoreUsage>) -> Self {
        // What it did before its first ranking is recent.
        Self { usage, counted: 0, recent: 0.0, is_chosen: false }
    }

    /// Counts what has happened since the last time, of whose activity this share is left.
    fn count(&mut self, kept: f64) {
        let activity = self.usage.activity();
        self.recent = self.recent * kept + (activity - self.counted) as f64;
        self.counted = activity;
    }

    /// Returns whether the store is open, or one of the chosen that was active lately.
    fn is_kept(&self) -> bool {
        // Beside this list, the one of the chosen has the counters.
        let others = 1 + usize::from(self.is_chosen);
        let is_open = others < Arc::strong_count(&self.usage);
        let is_kept = is_open || (self.is_chosen && ACTIVITY_MIN <= self.recent);
        if !is_kept {
            self.usage.set_ranked(false);
        }
        is_kept
    }

    /// Returns the weight of the store's claim to be chosen, if it has one.
    fn claim(&self) -> Option<f64> {
        match self.is_chosen {
            true => Some(self.recent * CHOSEN_ADVANTAGE),
            false => (ACTIVITY_MIN <= self.recent).then_some(self.recent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Requester;

    struct Stores {
        busiest: Busiest,
        open: Vec<Arc<StoreUsage>>,
        now: Instant,
    }

    impl Stores {
        fn new(stores_max: usize, count: usize) -> Self {
            let busiest = Busiest::new(stores_max);
            let open = (0..count).map(|number| busiest.open(&number.to_string())).collect();
            Self { busiest, open, now: Instant::now() }
        }

        fn read(&self, store: usize, times: u64) {
            (0..times).for_each(|_| self.open[store].count_other(Requester::Client, None));
        }

        /// Names of the chosen stores after some seconds.
        fn after(&mut self, seconds: u64) -> Vec<String> {
            self.now += Duration::from_secs(seconds);
            let stores = self.busiest.stores_at(self.now);
            stores.iter().map(|store| store.usage.name().to_owned()).collect()
        }
    }

    #[test]
    fn the_busiest_are_chosen_and_no_idle_one() {
        let mut stores = Stores::new(2, 5);
        assert!(stores.after(1).is_empty(), "nobody has read anything");
        stores.read(3, 1);
        assert_eq!(stores.after(1), ["3"]);
        [5, 10, 20, 40, 30].into_iter().zip(0..).for_each(|(times, at)| stores.read(at, times));
        assert_eq!(stores.after(1), ["3", "4"]);
        // Nothing is ranked again within the interval.
        stores.read(0, 1000);
        assert_eq!(stores.after(0), ["3", "4"]);
        assert_eq!(stores.after(1), ["0", "3"]);
    }

    #[test]
    fn a_slightly_busier_store_does_not_take_the_place_of_a_chosen_one() {
        let mut stores = Stores::new(1, 2);
        stores.read(0, 100);
        stores.read(1, 90);
        assert_eq!(stores.after(1), ["0"]);
        stores.read(1, 50);
        assert_eq!(stores.after(1), ["0"], "140 are not half as many again");
        stores.read(1, 20);
        assert_eq!(stores.after(1), ["1"]);
        // What happened an hour ago is forgotten; without anybody else it stays nevertheless.
        assert_eq!(stores.after(3600), ["1"]);
        stores.read(0, 1);
        assert_eq!(stores.after(1), ["0"]);
    }

    #[test]
    fn a_chosen_store_that_is_opened_again_goes_on_counting() {
        let mut stores = Stores::new(1, 3);
        stores.read(1, 5);
        stores.read(2, 1);
        assert_eq!(stores.after(1), ["1"]);
        stores.open.clear();
        assert_eq!(stores.after(1), ["1"], "closed a moment ago");
        let again = ["1", "2"].map(|name| stores.busiest.open(name));
        assert_eq!(again.each_ref().map(|usage| usage.stats().reads()), [5, 0]);
        assert_eq!(stores.busiest.all().stats().reads(), 6);
        stores.open.extend(again);
        stores.after(1);
        assert_eq!(lock(&stores.busiest.ranking).stores.len(), 2);
        stores.open.clear();
        assert_eq!(stores.after(3600), [""; 0], "closed, and not active for long");
        assert!(lock(&stores.busiest.ranking).stores.is_empty());
        assert_eq!(stores.busiest.open("1").stats().reads(), 0);
    }

    #[test]
    fn two_stores_of_one_name_are_shown_once() {
        let mut stores = Stores::new(5, 1);
        // The store was closed and opened again while a client still had it.
        stores.open.push(stores.busiest.open("0"));
        stores.read(0, 5);
        stores.read(1, 9);
        assert_eq!(stores.after(1), ["0"]);
    }

    /// Ten thousand open stores are ranked at once, and nobody who opens one waits for that.
    #[test]
    fn many_stores_are_ranked_and_the_list_has_its_limit() {
        let mut stores = Stores::new(20, 10_000);
        (0..10_000).for_each(|store| stores.read(store, (store % 500) as u64));
        let chosen = stores.after(1);
        assert_eq!(chosen.len(), 20);
        let reads = |name: &String| name.parse::<usize>().unwrap() % 500;
        assert!(chosen.iter().all(|name| reads(name) == 499), "{chosen:?}");
        let _ranking = lock(&stores.busiest.ranking);
        assert_eq!(stores.busiest.open("new").name(), "new");
        assert_eq!(stores.busiest.stores_at(stores.now + RANKING_INTERVAL).len(), 20);
        (0..ARRIVALS_MAX).for_each(|_| _ = stores.busiest.open("other"));
        assert_eq!(lock(&stores.busiest.arrivals).len(), ARRIVALS_MAX);
    }
}
