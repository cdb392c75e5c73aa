//! Waits for the effects of other programs.

use std::time::{Duration, Instant};

use crate::limits::POLL;

/// Polls until `done` returns a value; `None` when `timeout` passes first.
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

/// Returns the time, for deadlines.
#[allow(clippy::disallowed_methods, reason = "this is the edge")]
pub fn now() -> Instant {
    Instant::now()
}
