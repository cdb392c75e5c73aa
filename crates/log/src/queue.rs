//! The log's input queue: batches from the writer, requests, notices from the helper. One lock
//! guards them and also orders the log's falling asleep with everything that ends its sleep, so no
//! wake-up can be lost.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard},
    time::Duration,
};

use crate::{batch::RecordBatch, limits::SPARE_BATCH_COUNT_MAX};

#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<QueueState>,
    log_wakes: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    batches: VecDeque<RecordBatch>,
    /// Spent batches for the writer to reuse.
    spare: Vec<RecordBatch>,
    flags: Flags,
    log_sleeps: bool,
}

/// Requests to the log besides writing. Each is reported once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    /// Notice that no further batches will come.
    pub close: bool,
    /// Request to check the shared state: the helper has an answer, or the writer needs a
    /// reservation.
    pub poke: bool,
}

impl Flags {
    fn any(self) -> bool {
        self.close || self.poke
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().expect("no code that holds the lock panics")
    }

    fn wake(&self, mut state: MutexGuard<'_, QueueState>) {
        let asleep = std::mem::take(&mut state.log_sleeps);
        drop(state);
        if asleep {
            self.log_wakes.notify_one();
        }
    }

    /// Hands over the contents of `batch` and leaves an empty one in its place. Appends them to the
    /// last queued batch as long as the two together do not exceed `merged_bytes_max`, so a log
    /// that is busy for long finds few large batches rather than many small ones.
    pub fn push(&self, batch: &mut RecordBatch, merged_bytes_max: u64) {
        let mut state = self.lock();
        match state.batches.back_mut() {
            Some(last) if last.body_bytes() + batch.body_bytes() <= merged_bytes_max => {
                last.append(batch);
                batch.reset(usize::MAX);
            }
            _ => {
                let empty = state.spare.pop().unwrap_or_default();
                state.batches.push_back(std::mem::replace(batch, empty));
            }
        }
        self.wake(state);
    }

    /// Adds requests to those not yet taken.
    pub fn request(&self, flags: Flags) {
        let mut state = self.lock();
        state.flags.close |= flags.close;
        state.flags.poke |= flags.poke;
        self.wake(state);
    }

    /// Moves all queued batches to the end of `into`, takes `spent` back for reuse, and returns the
    /// other requests.
    pub fn take(&self, into: &mut VecDeque<RecordBatch>, spent: &mut Vec<RecordBatch>) -> Flags {
        let mut state = self.lock();
        if into.is_empty() {
            std::mem::swap(into, &mut state.batches);
        } else {
            into.append(&mut state.batches);
        }
        let space = SPARE_BATCH_COUNT_MAX.saturating_sub(state.spare.len()).min(spent.len());
        state.spare.extend(spent.drain(..space));
        let flags = std::mem::take(&mut state.flags);
        drop(state);
        spent.clear();
        flags
    }

    /// Sleeps until there is something to take, at most for `timeout`. May return early without a
    /// reason.
    pub fn wait(&self, timeout: Option<Duration>) {
        let mut state = self.lock();
        if !state.batches.is_empty() || state.flags.any() {
            return;
        }
        state.log_sleeps = true;
        let mut state = match timeout {
            None => self.log_wakes.wait(state).expect("no code that holds the lock panics"),
            Some(timeout) => {
                let woken = self.log_wakes.wait_timeout(state, timeout);
                woken.expect("no code that holds the lock panics").0
            }
        };
        state.log_sleeps = false;
    }
}
