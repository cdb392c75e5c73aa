//! One look at the manifest for everybody who asks for one at the same time.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use tokio::sync::{Notify, watch};

use crate::Error;

/// Numbers looks at the manifest, so that whoever asks shares one with others, but never one that
/// had begun before.
///
/// ```text
///  asked here --+         +-- and here: both wait for look 8 --+
///               v         v                                    v
///   ...| look 7 begins ........ ends | look 8 begins ... ends -> both are answered
/// ```
#[derive(Debug)]
pub(crate) struct RefreshCoalescer {
    begun: AtomicU64,
    ended: watch::Sender<Ended>,
    wake: Notify,
}

#[derive(Clone, Debug)]
struct Ended {
    number: u64,
    outcome: Result<(), Error>,
}

impl RefreshCoalescer {
    pub fn new() -> Self {
        let ended = watch::Sender::new(Ended { number: 0, outcome: Ok(()) });
        Self { begun: AtomicU64::new(0), ended, wake: Notify::new() }
    }

    /// The outcome of a look that begins after this is called. The call counts from the first poll.
    pub async fn check(&self) -> Result<(), Error> {
        let wanted = self.begun.load(SeqCst) + 1;
        let mut ended = self.ended.subscribe();
        self.wake.notify_one();
        match ended.wait_for(|ended| wanted <= ended.number).await {
            Ok(ended) => ended.outcome.clone(),
            // The sender is a part of this.
            Err(_) => Err(Error::Closed),
        }
    }

    /// When somebody wants a look; also true for one wanted while nobody waited here.
    pub async fn wanted(&self) {
        self.wake.notified().await;
    }

    /// A look begins: its number.
    pub fn begin(&self) -> u64 {
        self.begun.fetch_add(1, SeqCst) + 1
    }

    /// It has ended, and what there was to see can be seen.
    pub fn end(&self, number: u64, outcome: Result<(), Error>) {
        self.ended.send_replace(Ended { number, outcome });
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, future::join_all};

    use super::*;

    #[tokio::test]
    async fn who_asks_before_a_look_begins_shares_it() {
        let checks = RefreshCoalescer::new();
        let mut asked: Vec<_> = (0..3).map(|_| Box::pin(checks.check())).collect();
        assert!(asked.iter_mut().all(|check| check.as_mut().now_or_never().is_none()));
        checks.wanted().await;
        let number = checks.begin();
        checks.end(number, Ok(()));
        assert_eq!(join_all(asked).await, [Ok(()), Ok(()), Ok(())]);
        assert!(checks.wanted().now_or_never().is_none(), "one look was enough");
    }

    #[tokio::test]
    async fn who_asks_after_a_look_began_waits_for_the_next() {
        let checks = RefreshCoalescer::new();
        let first = checks.begin();
        let mut late = Box::pin(checks.check());
        assert!(late.as_mut().now_or_never().is_none());
        checks.end(first, Ok(()));
        assert!(late.as_mut().now_or_never().is_none(), "that look had begun before");
        checks.wanted().await;
        let second = checks.begin();
        let failed = Err(Error::Unreachable("no".to_owned()));
        checks.end(second, failed.clone());
        assert_eq!(late.await, failed);
    }

    #[tokio::test]
    async fn a_later_look_does_as_well() {
        let checks = RefreshCoalescer::new();
        let mut asked = Box::pin(checks.check());
        assert!(asked.as_mut().now_or_never().is_none());
        let numbers = [checks.begin(), checks.begin()];
        checks.end(numbers[0], Err(Error::Unreachable("no".to_owned())));
        checks.end(numbers[1], Ok(()));
        assert_eq!(asked.await, Ok(()));
    }
}
