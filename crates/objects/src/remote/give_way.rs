//! Pauses of fills over a slow link.
//!
//! While somebody waits for another read, a fill reads nothing of its body: the store stops sending
//! when the buffers of the connection are full, and the link is the other read's. A fill that
//! somebody waits for does not pause. Every pause ends after a while, so that a store that is read
//! all the time comes to disk, too, and when nobody wants the bytes any more.

use tokio::time::{Instant, sleep};

use super::{
    Remote, Sink, Urgency,
    limits::{GIVE_WAY_MAX, GIVE_WAY_POLL_INTERVAL, GIVE_WAY_TURN},
    ranged::InterestCheck,
};

/// Pauses of one body.
#[derive(Debug)]
pub(super) struct GiveWay {
    urgency: Urgency,
    /// Time until which the body goes on after its last pause.
    turn_ends: Option<Instant>,
}

/// Outcome of a [`GiveWay::pause`] of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// The link is free, or the body's own for a while.
    None,
    /// The link was another read's for a while.
    Ended,
    /// Nobody wants the bytes any more.
    Abandoned,
}

impl GiveWay {
    pub(super) fn new(urgency: Urgency) -> Self {
        Self { urgency, turn_ends: None }
    }

    /// Waits as long as the link is another read's, and somebody wants the bytes.
    pub(super) async fn pause(
        &mut self,
        remote: &Remote,
        sink: &mut dyn Sink,
        interest: &mut InterestCheck,
    ) -> Pause {
        let began = Instant::now();
        let is_turn = self.turn_ends.is_some_and(|ends| began < ends);
        if self.urgency == Urgency::Foreground || is_turn {
            return Pause::None;
        }
        let mut pause = Pause::None;
        while must_wait(remote, sink) && began.elapsed() < GIVE_WAY_MAX {
            if interest.is_over(sink) {
                return Pause::Abandoned;
            }
            pause = Pause::Ended;
            sleep(GIVE_WAY_POLL_INTERVAL).await;
        }
        if pause == Pause::Ended {
            self.turn_ends = Some(Instant::now() + GIVE_WAY_TURN);
        }
        pause
    }
}

fn must_wait(remote: &Remote, sink: &mut dyn Sink) -> bool {
    remote.pace().is_slow() && remote.window.has_foreground() && !sink.has_reader()
}
