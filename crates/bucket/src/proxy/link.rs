//! A bandwidth limit that all responses share.

use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

use tokio::time::{Duration, sleep_until};

use super::connection::now;

/// Carries pieces one after the other. A response asks for its next piece when the one before is
/// through, so that concurrent responses take turns.
#[derive(Debug)]
pub(super) struct Link(Mutex<LinkState>);

#[derive(Clone, Copy, Debug)]
struct LinkState {
    /// Bytes per second; 0 for no limit.
    bytes_per_second: u64,
    /// Time at which everything accepted so far is through.
    free: Instant,
}

impl Link {
    pub(super) fn new(bytes_per_second: u64) -> Self {
        Self(Mutex::new(LinkState { bytes_per_second, free: now() }))
    }

    /// Sets the bandwidth from now on.
    pub(super) fn set(&self, bytes_per_second: u64) {
        *self.lock() = LinkState { bytes_per_second, free: now() };
    }

    /// Returns the bytes per second; 0 for no limit.
    pub(super) fn bandwidth(&self) -> u64 {
        self.lock().bytes_per_second
    }

    /// Waits until this many bytes are through.
    pub(super) async fn carry(&self, bytes: usize) {
        let through = {
            let mut state = self.lock();
            if state.bytes_per_second == 0 {
                return;
            }
            let takes = Duration::from_secs_f64(bytes as f64 / state.bytes_per_second as f64);
            state.free = state.free.max(now()) + takes;
            state.free
        };
        sleep_until(through.into()).await;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, LinkState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
