//! Time, read from the system: this program is an edge.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time span in which answers count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub from_ns: u64,
    /// End: answers from here on do not count, and nobody asks again.
    pub until_ns: u64,
}

impl Window {
    #[inline]
    pub fn contains(&self, ns: u64) -> bool {
        self.from_ns <= ns && ns < self.until_ns
    }
}

/// Measurements that a test makes before it concludes that something never happens: other work on
/// the machine may disturb one short measurement, not all of them.
#[cfg(test)]
pub const TRIES: u32 = 50;

/// Nanoseconds since an arbitrary origin; never decreases.
#[inline]
pub fn now_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Processor time this thread has used.
pub fn thread_cpu_ns() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

/// Processor time this process has used, all its threads together.
pub fn own_cpu_ns() -> u64 {
    nanoseconds(ClockId::ProcessCPUTime)
}

/// The date and time in UTC, to the second.
pub fn utc_now() -> String {
    let now = std::time::UNIX_EPOCH + Duration::from_nanos(nanoseconds(ClockId::Realtime));
    humantime::format_rfc3339_seconds(now).to_string()
}

/// Lets time pass where nothing gives an event to wait for: another program's state.
#[allow(clippy::disallowed_methods, reason = "another program's state can only be looked at again")]
pub fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

/// A duration in nanoseconds; durations here are far below 584 years.
pub fn duration_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[inline]
fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let rest = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds * 1_000_000_000 + rest
}
