//! The batcher's clock: the line counts time from the batcher's start.

use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the edge: here time enters, everything below takes it as an argument"
    )]
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Since the batcher's start.
    #[expect(
        clippy::disallowed_methods,
        reason = "the edge: here time enters, everything below takes it as an argument"
    )]
    pub(crate) fn now(self) -> Duration {
        Instant::now().saturating_duration_since(self.start)
    }

    /// A caller's deadline in the line's time; one before the start has passed at the start.
    pub(crate) fn of(self, deadline: Instant) -> Duration {
        deadline.saturating_duration_since(self.start)
    }
}
