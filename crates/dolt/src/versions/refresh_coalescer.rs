//! One refresh of the manifest for all requests that ask for one at the same time.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use tokio::sync::{Notify, watch};

use crate::Error;

/// Numbers refreshes, so that concurrent requests share one, but never one that had begun before
/// the request.
///
/// ```text
///  request here -+       +- and here: both wait for refresh 8 -+
///                v       v                                     v
///   ...| refresh 7 begins .... ends | refresh 8 begins ... ends, both complete
/// ```
#[derive(Debug)]
pub(crate) struct RefreshCoalescer {
    begun: AtomicU64,
    ended: watch::Sender<Ended>,
    notifier: Notify,
}

#[derive(Clone, Debug)]
struct Ended {
    number: u64,
    outcome: Result<(), Error>,
}

impl RefreshCoalescer {
    pub fn new() -> Self {
        let ended = watch::Sender::new(Ended { number: 0, outcome: Ok(()) });
        Self { begun: AtomicU64::new(0), ended, notifier: Notify::new() }
    }

    /// Waits for the outcome of a refresh that begins after the first poll of this future.
    pub async fn refresh(&self) -> Result<(), Error> {
        let needed = self.begun.load(SeqCst) + 1;
        let mut ended = self.ended.subscribe();
        self.notifier.notify_one();
        match ended.wait_for(|ended| needed <= ended.number).await {
            Ok(ended) => ended.outcome.clone(),
            // Cannot happen: the sender is a field of this struct.
            Err(_) => Err(Error::Closed),
        }
    }

    /// Waits until a request asks for a refresh, or returns at once if one did meanwhile.
    pub async fn requested(&self) {
        self.notifier.notified().await;
    }

    /// Begins a refresh and returns its number.
    pub fn begin(&self) -> u64 {
        self.begun.fetch_add(1, SeqCst) + 1
    }

    /// Ends a refresh; its version has been published.
    pub fn end(&self, number: u64, outcome: Result<(), Error>) {
        self.ended.send_replace(Ended { number, outcome });
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, future::join_all};

    use super::*;

    #[tokio::test]
    async fn requests_before_a_refresh_begins_share_it() {
        let coalescer = RefreshCoalescer::new();
        let mut requests: Vec<_> = (0..3).map(|_| Box::pin(coalescer.refresh())).collect();
        assert!(requests.iter_mut().all(|request| request.as_mut().now_or_never().is_none()));
        coalescer.requested().await;
        let number = coalescer.begin();
        coalescer.end(number, Ok(()));
        assert_eq!(join_all(requests).await, [Ok(()), Ok(()), Ok(())]);
        assert!(coalescer.requested().now_or_never().is_none(), "one refresh was enough");
    }

    #[tokio::test]
    async fn a_request_after_a_refresh_began_waits_for_the_next() {
        let coalescer = RefreshCoalescer::new();
        let first = coalescer.begin();
        let mut late = Box::pin(coalescer.refresh());
        assert!(late.as_mut().now_or_never().is_none());
        coalescer.end(first, Ok(()));
        assert!(late.as_mut().now_or_never().is_none(), "that refresh had begun before");
        coalescer.requested().await;
        let second = coalescer.begin();
        let failed = Err(Error::Unreachable("no".to_owned()));
        coalescer.end(second, failed.clone());
        assert_eq!(late.await, failed);
    }

    #[tokio::test]
    async fn a_later_refresh_completes_an_earlier_request() {
        let coalescer = RefreshCoalescer::new();
        let mut requests = Box::pin(coalescer.refresh());
        assert!(requests.as_mut().now_or_never().is_none());
        let numbers = [coalescer.begin(), coalescer.begin()];
        coalescer.end(numbers[0], Err(Error::Unreachable("no".to_owned())));
        coalescer.end(numbers[1], Ok(()));
        assert_eq!(requests.await, Ok(()));
    }
}
