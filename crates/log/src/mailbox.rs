//! Passes jobs from the log to its helper and answers back. Files change hands here. Each side
//! waits for the other only when it has nothing else to do.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard},
    time::Duration,
};

/// Segment whose zeros and name are durable and that holds no frames yet.
#[derive(Debug)]
pub(crate) struct Prepared<F> {
    pub file: F,
    pub number: u64,
    pub bytes: u64,
    /// True if the file was a segment before.
    pub is_reused: bool,
}

/// Job that the log gives to the helper, one at a time.
#[derive(Debug)]
pub(crate) enum Job<F> {
    /// Prepare a new segment.
    Prepare { number: u64, bytes: u64 },
    /// Add zeros to a prepared segment, up to `bytes`, or up to `bytes_min` if the disk has no
    /// space for that.
    Extend { segment: Prepared<F>, bytes: u64, bytes_min: u64 },
}

/// Answer of the helper.
#[derive(Debug)]
pub(crate) enum Answer<F> {
    Prepared(Prepared<F>),
    /// The disk has no space for the extension; the segment is unchanged.
    NotExtended {
        segment: Prepared<F>,
        message: String,
    },
    /// The oldest retired file is synced.
    Retired,
}

#[derive(Debug)]
pub(crate) struct Mailbox<F> {
    state: Mutex<MailboxState<F>>,
    helper_wakes: Condvar,
}

#[derive(Debug)]
struct MailboxState<F> {
    job: Option<Job<F>>,
    /// Full segments with unsynced frames, oldest first.
    retiring: VecDeque<F>,
    answers: VecDeque<Answer<F>>,
    stopped: bool,
    /// Set when something changed that the helper may wait for.
    notified: bool,
}

impl<F> Mailbox<F> {
    pub fn new() -> Self {
        let state = MailboxState {
            job: None,
            retiring: VecDeque::new(),
            answers: VecDeque::new(),
            stopped: false,
            notified: false,
        };
        Self { state: Mutex::new(state), helper_wakes: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, MailboxState<F>> {
        self.state.lock().expect("no code that holds the lock panics")
    }

    fn notify_with(&self, mut state: MutexGuard<'_, MailboxState<F>>) {
        state.notified = true;
        drop(state);
        self.helper_wakes.notify_one();
    }

    /// Gives the helper a job.
    ///
    /// # Panics
    /// If the helper has not started on the job before.
    pub fn start_job(&self, job: Job<F>) {
        let mut state = self.lock();
        assert!(state.job.is_none(), "one job at a time");
        state.job = Some(job);
        self.notify_with(state);
    }

    pub fn retire(&self, file: F) {
        let mut state = self.lock();
        state.retiring.push_back(file);
        self.notify_with(state);
    }

    /// Notifies the helper that something it may wait for has changed.
    pub fn notify(&self) {
        self.notify_with(self.lock());
    }

    pub fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        self.notify_with(state);
    }

    pub fn answer(&self) -> Option<Answer<F>> {
        self.lock().answers.pop_front()
    }

    pub fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    pub fn next_retiring(&self) -> Option<F> {
        self.lock().retiring.pop_front()
    }

    pub fn next_job(&self) -> Option<Job<F>> {
        self.lock().job.take()
    }

    pub fn put_answer(&self, answer: Answer<F>) {
        self.lock().answers.push_back(answer);
    }

    /// Blocks the helper until it is notified, at most for `timeout`.
    pub fn wait(&self, timeout: Option<Duration>) {
        let state = self.lock();
        let quiet = |state: &mut MailboxState<F>| !state.notified;
        let mut state = match timeout {
            None => self
                .helper_wakes
                .wait_while(state, quiet)
                .expect("no code that holds the lock panics"),
            Some(timeout) => {
                let waited = self.helper_wakes.wait_timeout_while(state, timeout, quiet);
                waited.expect("no code that holds the lock panics").0
            }
        };
        state.notified = false;
    }
}
