//! Limits the lines of each place in the code that logs.

use std::{collections::HashMap, time::Duration};

use tracing::Level;

/// Number of lines of one place that are shown within [`INTERVAL`].
pub const LINES_AT_ONCE: usize = 20;
/// Time after which a place may show as many lines again.
pub const INTERVAL: Duration = Duration::from_secs(10);
/// Number of places whose lines are counted. Those of more places are all shown.
const SITES_MAX: usize = 1024;

/// Place in the code that logs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    file: String,
    line: u32,
}

impl Site {
    pub fn new(file: &str, line: u32) -> Self {
        Self { file: file.to_owned(), line }
    }
}

/// Decision about a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Show,
    Hide,
}

/// Lines of one place that were not shown: how many, and the last of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    pub count: u64,
    pub level: Level,
    pub module: String,
    pub message: String,
}

/// Lines of every place since the beginning of its interval.
#[derive(Debug, Default)]
pub struct RateLimiter {
    sites: HashMap<Site, Interval>,
}

#[derive(Debug)]
struct Interval {
    since: Duration,
    shown: usize,
    left_out: Option<LeftOut>,
}

impl RateLimiter {
    /// Decides about a line and counts it.
    pub fn admit(
        &mut self,
        site: Site,
        (level, module, message): (Level, &str, &str),
        now: Duration,
    ) -> Verdict {
        if SITES_MAX <= self.sites.len() && !self.sites.contains_key(&site) {
            self.sites.retain(|_, interval| !interval.is_over(now));
            if SITES_MAX <= self.sites.len() {
                return Verdict::Show;
            }
        }
        let fresh = || Interval { since: now, shown: 0, left_out: None };
        let interval = self.sites.entry(site).or_insert_with(fresh);
        if interval.is_over(now) {
            *interval = fresh();
        }
        if interval.shown < LINES_AT_ONCE {
            interval.shown += 1;
            return Verdict::Show;
        }
        let count = interval.left_out.take().map_or(0, |left_out| left_out.count) + 1;
        let (module, message) = (module.to_owned(), message.to_owned());
        interval.left_out = Some(LeftOut { count, level, module, message });
        Verdict::Hide
    }

    /// Takes the lines that were left out in intervals that are over.
    pub fn take_left_out(&mut self, now: Duration) -> Vec<LeftOut> {
        let over = self.sites.values_mut().filter(|interval| interval.is_over(now));
        over.filter_map(|interval| interval.left_out.take()).collect()
    }
}

impl Interval {
    fn is_over(&self, now: Duration) -> bool {
        self.since + INTERVAL <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: (Level, &str, &str) = (Level::WARN, "busload", "again");

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_place_is_heard_again_after_a_while_and_what_was_left_out_is_counted() {
        let mut limiter = RateLimiter::default();
        let site = |line| Site::new("file.rs", line);
        for _ in 0..LINES_AT_ONCE {
            assert_eq!(limiter.admit(site(1), LINE, at(0)), Verdict::Show);
        }
        for second in 0..9 {
            assert_eq!(limiter.admit(site(1), LINE, at(second)), Verdict::Hide);
            assert_eq!(limiter.take_left_out(at(second)), []);
        }
        assert_eq!(limiter.admit(site(2), LINE, at(9)), Verdict::Show, "another place");
        let [left_out] = &limiter.take_left_out(at(10))[..] else { panic!("one place is over") };
        assert_eq!((left_out.count, &*left_out.message), (9, "again"));
        assert_eq!(limiter.take_left_out(at(10)), [], "once");
        assert_eq!(limiter.admit(site(1), LINE, at(10)), Verdict::Show);
    }

    #[test]
    fn places_beyond_the_limit_are_shown_and_old_ones_forgotten() {
        let mut limiter = RateLimiter::default();
        for line in 0..2 * SITES_MAX as u32 {
            assert_eq!(limiter.admit(Site::new("file.rs", line), LINE, at(0)), Verdict::Show);
        }
        assert_eq!(limiter.sites.len(), SITES_MAX);
        assert_eq!(limiter.admit(Site::new("other.rs", 1), LINE, at(10)), Verdict::Show);
        assert_eq!(limiter.sites.len(), 1);
    }
}
