//! How much of the machine's processors was used, and by whom.

use crate::{
    clock::{now_ns, own_cpu_ns},
    machine::{busy_ns, steal_ns},
    stats::float,
};

/// Above this share of one processor, programs that have nothing to do with it have disturbed a
/// measurement.
const DISTURBED: f64 = 0.1;

/// Clocks of this program and of the machine, read together.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    pub at_ns: u64,
    /// Processor time of this program.
    pub own_ns: u64,
    /// Of everything on the machine.
    pub busy_ns: Option<u64>,
    /// Taken away by the machine's host.
    pub steal_ns: Option<u64>,
}

impl Clocks {
    pub fn now() -> Self {
        Self { at_ns: now_ns(), own_ns: own_cpu_ns(), busy_ns: busy_ns(), steal_ns: steal_ns() }
    }
}

/// From one reading to another.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    pub start: &'a Clocks,
    pub end: &'a Clocks,
}

impl Span<'_> {
    /// Processors of a clock that was read at both ends.
    pub fn share(&self, start_ns: u64, end_ns: u64) -> f64 {
        let wall_ns = self.end.at_ns.saturating_sub(self.start.at_ns).max(1);
        float(end_ns.saturating_sub(start_ns)) / float(wall_ns)
    }

    /// The same where the clock may be unknown.
    pub fn share_of(&self, start_ns: Option<u64>, end_ns: Option<u64>) -> Option<f64> {
        start_ns.zip(end_ns).map(|(start_ns, end_ns)| self.share(start_ns, end_ns))
    }

    /// Processors of this program.
    pub fn own(&self) -> f64 {
        self.share(self.start.own_ns, self.end.own_ns)
    }

    /// Processors of programs that have nothing to do with it, and of the machine's host, where
    /// `known` is whose use is known.
    pub fn others(&self, known: f64) -> f64 {
        let busy = self.share_of(self.start.busy_ns, self.end.busy_ns).unwrap_or(known);
        let stolen = self.share_of(self.start.steal_ns, self.end.steal_ns).unwrap_or(0.0);
        (busy - known).max(0.0) + stolen
    }
}

/// A note beside a row that others disturbed.
pub fn disturbed(others: f64) -> Option<String> {
    (DISTURBED < others).then(|| format!("disturbed:{:.0}%", others * 100.0))
}
