//! Bounded queue of lines between the threads that log and the one that writes to stderr.
//!
//! Whoever reads stderr may stop reading: a pipe is full after 64 KiB, and a thread that writes to
//! it then waits. Requests must not wait for that, so lines beyond the limit are dropped and
//! counted.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Most bytes of lines that wait to be written.
pub const QUEUED_BYTES_MAX: usize = 1 << 20;

/// Lines that wait to be written.
#[derive(Debug, Default)]
pub struct Queue {
    state: Mutex<QueuedLines>,
    /// Signalled when a line is added.
    added: Condvar,
    /// Signalled when all lines are written.
    written: Condvar,
}

#[derive(Debug, Default)]
struct QueuedLines {
    lines: VecDeque<String>,
    bytes: usize,
    dropped: u64,
    /// Lines were taken, and may not be written yet.
    is_writing: bool,
}

impl Queue {
    /// Creates an empty queue.
    pub const fn new() -> Self {
        let state = QueuedLines { lines: VecDeque::new(), bytes: 0, dropped: 0, is_writing: false };
        Self { state: Mutex::new(state), added: Condvar::new(), written: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, QueuedLines> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line, or counts it as dropped if too much waits.
    pub fn push(&self, line: String) {
        let mut state = self.state();
        if QUEUED_BYTES_MAX < state.bytes + line.len() {
            state.dropped += 1;
            return;
        }
        state.bytes += line.len();
        state.lines.push_back(line);
        drop(state);
        self.added.notify_one();
    }

    /// Takes all lines that wait, as one text, and says how many were dropped behind them. Waits
    /// for a line for at most `timeout`. The lines taken before are written.
    pub fn take(&self, timeout: Duration) -> String {
        let mut state = self.state();
        state.is_writing = false;
        if state.lines.is_empty() && state.dropped == 0 {
            self.written.notify_all();
            let waited = self.added.wait_timeout_while(state, timeout, |state| {
                state.lines.is_empty() && state.dropped == 0
            });
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let mut text = String::with_capacity(state.bytes + state.lines.len());
        for line in state.lines.drain(..) {
            text.push_str(&line);
            text.push('\n');
        }
        if 0 < state.dropped {
            let dropped = state.dropped;
            text.push_str(&format!("{dropped} lines were dropped: nobody read stderr\n"));
        }
        (state.bytes, state.dropped) = (0, 0);
        state.is_writing = !text.is_empty();
        text
    }

    /// Waits until all lines are written, for at most `timeout`.
    pub fn flush(&self, timeout: Duration) {
        let state = self.state();
        let is_busy = |state: &mut QueuedLines| {
            state.is_writing || !state.lines.is_empty() || 0 < state.dropped
        };
        drop(self.written.wait_timeout_while(state, timeout, is_busy));
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;

    const NOT_AT_ALL: Duration = Duration::ZERO;
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn what_waits_is_taken_at_once_and_in_order() {
        let queue = Queue::new();
        assert_eq!(queue.take(NOT_AT_ALL), "");
        queue.push("one".to_owned());
        queue.push("two".to_owned());
        assert_eq!(queue.take(LONG), "one\ntwo\n");
        assert_eq!(queue.take(NOT_AT_ALL), "");
    }

    #[test]
    fn lines_beyond_the_limit_are_dropped_and_counted() {
        let queue = Queue::new();
        let line = "x".repeat(1 << 10);
        for _ in 0..QUEUED_BYTES_MAX / line.len() + 7 {
            queue.push(line.clone());
        }
        let text = queue.take(NOT_AT_ALL);
        assert_eq!(text.lines().count(), QUEUED_BYTES_MAX / line.len() + 1);
        assert_eq!(text.lines().last(), Some("7 lines were dropped: nobody read stderr"));
        queue.push("again".to_owned());
        assert_eq!(queue.take(NOT_AT_ALL), "again\n");
    }

    #[test]
    fn a_flush_waits_until_what_was_taken_is_written() {
        let queue = &Queue::new();
        queue.flush(LONG);
        queue.push("one".to_owned());
        thread::scope(|scope| {
            let (written, was_written) = mpsc::channel();
            assert_eq!(queue.take(LONG), "one\n");
            let flush = scope.spawn(move || {
                queue.flush(LONG);
                was_written.try_recv()
            });
            written.send(()).unwrap();
            queue.take(NOT_AT_ALL);
            assert_eq!(flush.join().unwrap(), Ok(()));
        });
    }

    #[test]
    fn a_flush_gives_up_where_nothing_is_written() {
        let queue = Queue::new();
        queue.push("one".to_owned());
        queue.flush(NOT_AT_ALL);
        assert_eq!(queue.take(NOT_AT_ALL), "one\n");
    }
}
