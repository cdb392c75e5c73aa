//! Detects clients that stop taking an answer. HTTP/2 has a flow-control window for every answer:
//! if a client grants one no window, hyper writes nothing of it, so the socket itself never stalls.
//!
//! An answer can only be stuck while hyper holds pieces of it that are not written to the socket.
//! An answer that waits for the server has no such pieces, however long it waits.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep};

use crate::http::limits::{PIECE_BYTES, PIECE_TIME_MAX, WRITE_STALL_MAX};

/// Interval of the checks.
const INTERVAL: Duration = WRITE_STALL_MAX.checked_div(4).expect("four is not zero");

/// The answers of one connection.
#[derive(Debug, Default)]
pub struct Deliveries {
    /// Number of the next answer.
    answers: AtomicU64,
    /// Answers with bytes that the client has not taken, by number.
    waiting: Mutex<HashMap<u64, Waiting>>,
}

/// Handle of one answer.
#[derive(Clone, Debug)]
pub struct Delivery {
    of: Arc<Deliveries>,
    answer: u64,
}

#[derive(Debug)]
struct Waiting {
    /// Bytes handed to hyper and not yet written to the socket.
    bytes: usize,
    /// Time at which the client last took anything.
    taken_at: Instant,
    /// Bytes taken since `piece_at`, less than a piece.
    taken_bytes: usize,
    /// Time at which the client had last taken a whole piece.
    piece_at: Instant,
}

impl Deliveries {
    /// Begins a further answer.
    pub fn begin(self: &Arc<Self>) -> Delivery {
        Delivery { of: Arc::clone(self), answer: self.answers.fetch_add(1, Ordering::Relaxed) }
    }

    /// Waits until the client has taken nothing of an answer for [`WRITE_STALL_MAX`], or less than
    /// a piece for [`PIECE_TIME_MAX`].
    pub async fn stuck(&self) {
        loop {
            sleep(INTERVAL).await;
            let now = Instant::now();
            if self.waiting().values().any(|waiting| waiting.is_stuck(now)) {
                return;
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Delivery {
    /// Notes that hyper got these bytes to send.
    pub fn hand_out(&self, bytes: usize) {
        if bytes != 0 {
            self.of.waiting().entry(self.answer).or_insert_with(Waiting::new).bytes += bytes;
        }
    }

    /// Notes that these bytes were written to the socket.
    pub fn take(&self, bytes: usize) {
        let mut waiting = self.of.waiting();
        if let Some(own) = waiting.get_mut(&self.answer) {
            own.take(bytes);
        }
        self.settle(waiting, bytes);
    }

    /// Notes that these bytes will not be sent.
    pub fn give_up(&self, bytes: usize) {
        self.settle(self.of.waiting(), bytes);
    }

    fn settle(&self, mut waiting: MutexGuard<'_, HashMap<u64, Waiting>>, bytes: usize) {
        let Some(own) = waiting.get_mut(&self.answer) else { return };
        own.bytes -= bytes;
        if own.bytes == 0 {
            waiting.remove(&self.answer);
        }
    }
}

impl Waiting {
    fn new() -> Self {
        let now = Instant::now();
        Self { bytes: 0, taken_at: now, taken_bytes: 0, piece_at: now }
    }

    fn take(&mut self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.taken_at = Instant::now();
        self.taken_bytes += bytes;
        if PIECE_BYTES <= self.taken_bytes {
            (self.taken_bytes, self.piece_at) = (0, self.taken_at);
        }
    }

    fn is_stuck(&self, now: Instant) -> bool {
        let since = |at| now.saturating_duration_since(at);
        WRITE_STALL_MAX <= since(self.taken_at) || PIECE_TIME_MAX <= since(self.piece_at)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    fn paused() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap()
    }

    /// Waits until the answers count as stuck; returns how long that took.
    async fn stuck(deliveries: &Deliveries) -> Duration {
        let started = Instant::now();
        timeout(10 * PIECE_TIME_MAX, deliveries.stuck()).await.unwrap();
        started.elapsed()
    }

    #[test]
    fn an_answer_is_stuck_when_nothing_of_it_is_taken() {
        paused().block_on(async {
            let deliveries = Arc::new(Deliveries::default());
            let (taken, given_up, unread) =
                (deliveries.begin(), deliveries.begin(), deliveries.begin());
            taken.hand_out(10);
            taken.take(10);
            given_up.hand_out(10);
            given_up.give_up(10);
            assert!(
                timeout(2 * PIECE_TIME_MAX, deliveries.stuck()).await.is_err(),
                "the server's turn"
            );
            unread.hand_out(10);
            let after = stuck(&deliveries).await;
            assert!(WRITE_STALL_MAX <= after && after <= WRITE_STALL_MAX + INTERVAL, "{after:?}");
            unread.take(9);
            sleep(WRITE_STALL_MAX / 2).await;
            // Further bytes from the server are no sign of life of the client.
            unread.hand_out(10);
            assert!(stuck(&deliveries).await <= WRITE_STALL_MAX / 2 + INTERVAL);
            unread.take(11);
            assert!(deliveries.waiting().is_empty());
        });
    }

    #[test]
    fn an_answer_of_which_single_bytes_are_taken_ends_too() {
        paused().block_on(async {
            let deliveries = Arc::new(Deliveries::default());
            let trickle = |bytes: usize| {
                let answer = deliveries.begin();
                async move {
                    answer.hand_out(100 * PIECE_BYTES);
                    for _ in 0..90 {
                        sleep(PIECE_TIME_MAX / 90).await;
                        answer.take(bytes);
                    }
                    answer
                }
            };
            let enough = tokio::select! {
                answer = trickle(PIECE_BYTES) => answer,
                () = deliveries.stuck() => panic!("it was taken quickly enough"),
            };
            enough.take(10 * PIECE_BYTES);
            let _little = trickle(1).await;
            assert!(stuck(&deliveries).await <= INTERVAL);
        });
    }
}
