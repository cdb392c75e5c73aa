//! The seam for time.

use std::time::Duration;

/// Source of time with two clocks: a monotonic one and the wall clock.
pub trait Clock {
    /// Returns the time since an arbitrary origin; never decreases.
    fn now(&self) -> Duration;

    /// Returns the milliseconds since 1970-01-01 UTC by the system's clock, which may step in
    /// either direction.
    fn wall_ms(&self) -> i64;
}

/// Clocks of the operating system.
#[derive(Clone, Copy, Debug)]
pub struct RealClock {
    origin: std::time::Instant,
}

impl RealClock {
    /// Creates a clock whose origin is now.
    #[allow(clippy::disallowed_methods, reason = "this is the edge")]
    pub fn new() -> Self {
        Self { origin: std::time::Instant::now() }
    }
}

impl Default for RealClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for RealClock {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    #[allow(clippy::disallowed_methods, reason = "this is the edge")]
    fn wall_ms(&self) -> i64 {
        match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
        }
    }
}
