//! Schedule of the requests of an open loop.

/// A fixed rate: request `n` is due `n / rate` seconds after the start, whatever the server does.
#[derive(Clone, Debug)]
pub struct Schedule {
    start_ns: u64,
    rate: u64,
    next: u64,
}

impl Schedule {
    /// `rate` requests per second, not 0.
    pub fn new(start_ns: u64, rate: u64) -> Self {
        Self { start_ns, rate, next: 0 }
    }

    /// Returns when the next request is due.
    pub fn next_due_ns(&self) -> u64 {
        let since = u128::from(self.next) * 1_000_000_000 / u128::from(self.rate);
        self.start_ns + u64::try_from(since).expect("a schedule is shorter than 584 years")
    }

    /// The next request if it is due: its number and when it was due.
    pub fn poll(&mut self, now_ns: u64) -> Option<(u64, u64)> {
        let due = (self.next, self.next_due_ns());
        let is_due = due.1 <= now_ns;
        self.next += u64::from(is_due);
        is_due.then_some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_spread_evenly_and_a_late_caller_gets_all_that_were_missed() {
        let mut schedule = Schedule::new(1_000, 3);
        let due: Vec<_> = std::iter::from_fn(|| schedule.poll(1_000_001_000)).collect();
        assert_eq!(due, [(0, 1_000), (1, 333_334_333), (2, 666_667_666), (3, 1_000_001_000)]);
        assert_eq!(schedule.next_due_ns(), 1_333_334_333);
    }
}
