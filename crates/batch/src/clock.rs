//! The batcher's clock: the queue counts time from the batcher's start.

use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy)]
pub(crate) enum Clock {
    /// The system's clock, and when the batcher started.
    System(Instant),
    /// Microseconds that a test sets.
    #[cfg(test)]
    Manual(&'static std::sync::atomic::AtomicU64),
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self::System(instant())
    }

    /// Returns the time since the batcher's start.
    pub(crate) fn now(self) -> Duration {
        match self {
            Self::System(start) => instant().saturating_duration_since(start),
            #[cfg(test)]
            Self::Manual(us) => Duration::from_micros(us.load(std::sync::atomic::Ordering::SeqCst)),
        }
    }

    /// Returns whether time passes by itself, so that waiting for it makes sense.
    pub(crate) fn runs(self) -> bool {
        matches!(self, Self::System(_))
    }

    /// Converts a caller's deadline to the queue's time; one before the start becomes 0.
    pub(crate) fn of(self, deadline: Instant) -> Duration {
        match self {
            Self::System(start) => deadline.saturating_duration_since(start),
            #[cfg(test)]
            Self::Manual(_) => self.now() + deadline.saturating_duration_since(instant()),
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the edge: here time enters, everything below takes it as an argument"
)]
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// Returns a clock that stands still, and a function that advances it by microseconds.
#[cfg(test)]
pub(crate) fn manual() -> (Clock, impl Fn(u64)) {
    let us: &'static std::sync::atomic::AtomicU64 = Box::leak(Box::default());
    (Clock::Manual(us), |by| {
        us.fetch_add(by, std::sync::atomic::Ordering::SeqCst);
    })
}
