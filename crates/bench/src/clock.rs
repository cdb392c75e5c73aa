//! Time, read from the system: this program is an edge.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Time span in which answers count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub from_ns: u64,
    /// End: answers from here on do not count, and nobody asks again.
    pub until_ns: u64,
}

impl Window {
    /// Whether this moment counts.
    #[inline]
    pub fn contains(&self, ns: u64) -> bool {
        self.from_ns <= ns && ns < self.until_ns
    }
}

/// How often a test measures before it says that something never happens: other work on the machine
/// may stand in the way of one measurement that takes a moment, not of all of them.
#[cfg(test)]
pub const TRIES: u32 = 50;

/// Nanoseconds since an arbitrary origin; never decreases.
#[inline]
pub fn now_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// Nanoseconds of processor time this thread has used.
pub fn thread_cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ThreadCPUTime))
}

/// Nanoseconds of processor time this process has used, all its threads together.
pub fn own_cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ProcessCPUTime))
}

/// The date and time in UTC, to the second.
pub fn utc_now() -> String {
    utc(clock_gettime(ClockId::Realtime).tv_sec)
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

fn nanoseconds(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let rest = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds * 1_000_000_000 + rest
}

/// Howard Hinnant's `civil_from_days`, in the form that counts years from March.
fn utc(unix_seconds: i64) -> String {
    let days = unix_seconds.div_euclid(86_400) + 719_468;
    let second = unix_seconds.rem_euclid(86_400);
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_the_gregorian_calendar() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!(utc(-1), "1969-12-31T23:59:59Z");
    }
}
