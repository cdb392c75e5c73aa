//! The batcher's clock: the line counts time from the batcher's start.

use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy)]
pub(crate) enum Clock {
    /// Started then.
    System(Instant),
    /// Microseconds, as a test says.
    #[cfg(test)]
    Manual(&'static std::sync::atomic::AtomicU64),
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self::System(instant())
    }

    /// Since the batcher's start.
    pub(crate) fn now(self) -> Duration {
        match self {
            Self::System(start) => instant().saturating_duration_since(start),
            #[cfg(test)]
            Self::Manual(us) => Duration::from_micros(us.load(std::sync::atomic::Ordering::SeqCst)),
        }
    }

    /// Whether its time passes by itself, so that it makes sense to wait for it.
    pub(crate) fn runs(self) -> bool {
        matches!(self, Self::System(_))
    }

    /// A caller's deadline in the line's time; one before the start has passed at the start.
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

/// A clock that stands still until the test moves it by so many microseconds.
#[cfg(test)]
pub(crate) fn manual() -> (Clock, impl Fn(u64)) {
    let us: &'static std::sync::atomic::AtomicU64 = Box::leak(Box::default());
    (Clock::Manual(us), |by| {
        us.fetch_add(by, std::sync::atomic::Ordering::SeqCst);
    })
}
