//! Waiting for what other programs do.

use std::time::{Duration, Instant};

use crate::limits::POLL;

/// Looks until `done` gives something; `None` when `timeout` passes first.
#[allow(clippy::disallowed_methods, reason = "another program's state can only be looked at again")]
pub fn until<T>(timeout: Duration, mut done: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(value) = done() {
            return Some(value);
        }
        if start.elapsed() > timeout {
            return None;
        }
        std::thread::sleep(POLL);
    }
}

/// For deadlines.
#[allow(clippy::disallowed_methods, reason = "this is the edge")]
pub fn now() -> Instant {
    Instant::now()
}
