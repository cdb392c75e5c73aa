//! Tests of how bodies count, message by message, and of when they end.

use std::{
    convert::Infallible, future::poll_fn, net::IpAddr, sync::atomic::Ordering::Relaxed,
    time::Duration,
};

use axum::{
    body::Body,
    http::{Request, header},
};
use futures_util::StreamExt;
use tokio::{
    sync::mpsc::{UnboundedSender, unbounded_channel},
    time::{Instant, timeout},
};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Code;

use super::*;
use crate::grpc::limits::HEALTH_REQUEST_BYTES_MAX;
use crate::http::{
    account::Accounts,
    front_metrics::FrontMetrics,
    limits::{ALL_BYTES_MAX, CONNECTION_BYTES_MAX},
};

/// A request whose client sends frames that the test makes.
struct RequestedHost {
    client: Option<UnboundedSender<Bytes>>,
    body: RequestBody<Body>,
    account: Arc<Account>,
    metrics: Arc<FrontMetrics>,
}

impl RequestedHost {
    fn with(path: &str, content_type: &str) -> Self {
        let (client, frames) = unbounded_channel();
        let frames = UnboundedReceiverStream::new(frames).map(Ok::<_, Infallible>);
        let metrics = Arc::<FrontMetrics>::default();
        let account = Accounts::new(Arc::clone(&metrics)).open(IpAddr::from([127, 0, 0, 1]));
        let request =
            Request::post(path).header(header::CONTENT_TYPE, content_type).body(()).unwrap();
        let body = RequestBody::new(Body::from_stream(frames), &request.into_parts().0, &account);
        Self { client: Some(client), body, account, metrics }
    }

    fn call() -> Self {
        Self::with("/busload.v1.Chunks/GetChunk", "application/grpc+proto")
    }

    fn send(&self, bytes: &[u8]) {
        self.client.as_ref().unwrap().send(Bytes::copy_from_slice(bytes)).unwrap();
    }

    /// Returns the next frame as the handler gets it, or none at the end of the body.
    async fn read(&mut self) -> Option<Result<Bytes, Status>> {
        let frame = poll_fn(|context| Pin::new(&mut self.body).poll_frame(context)).await?;
        Some(
            frame
                .map(|frame| frame.into_data().unwrap())
                .map_err(|error| *error.downcast().unwrap()),
        )
    }

    async fn receive(&mut self, bytes: &[u8]) {
        self.send(bytes);
        assert_eq!(self.read().await.unwrap().unwrap(), bytes);
    }

    /// Sends this and asserts that the handler gets nothing for it.
    async fn wait_after(&mut self, bytes: &[u8]) {
        self.send(bytes);
        let mut waits = Box::pin(self.read());
        assert!(futures_util::poll!(&mut waits).is_pending());
    }

    fn held(&self) -> usize {
        self.metrics.memory_bytes.load(Relaxed)
    }

    /// Drops the body and returns the bytes that still count.
    fn left(self) -> usize {
        let metrics = Arc::clone(&self.metrics);
        drop(self);
        metrics.memory_bytes.load(Relaxed)
    }
}

/// Makes the header of a message and a part of its contents.
fn message(length: u32, some: usize) -> Vec<u8> {
    [&[0][..], &length.to_be_bytes(), &vec![7; some]].concat()
}

fn run(test: impl Future) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(test);
}

/// Waits for the body's end and returns how long that took.
async fn over(asked: &mut RequestedHost) -> (Duration, Status) {
    let started = Instant::now();
    let read = timeout(100 * MESSAGE_STALL_MAX, asked.read()).await.expect("the body ends");
    (started.elapsed(), read.unwrap().unwrap_err())
}

#[test]
fn a_message_counts_as_it_comes_and_goes_on_whole() {
    run(async {
        let mut asked = RequestedHost::call();
        asked.wait_after(&message(1000, 10)).await;
        assert_eq!(asked.held(), 15);
        asked.send(&[[7; 990].as_slice(), &message(1, 0)].concat());
        assert_eq!(asked.read().await.unwrap().unwrap(), message(1000, 1000));
        assert_eq!(asked.held(), 1010);
        asked.send(&[7]);
        assert_eq!(asked.read().await.unwrap().unwrap(), message(1, 1));
        assert_eq!(asked.held(), 1011);
        asked.client = None;
        assert!(asked.read().await.is_none());
        assert_eq!(asked.left(), 0);
    });
}

#[test]
fn what_was_taken_of_a_call_counts_until_it_is_let_go_and_an_incomplete_message_stays() {
    run(async {
        let mut asked = RequestedHost::call();
        let received = asked.body.received();
        asked.send(&[message(100, 100), message(1000, 10)].concat());
        assert_eq!(asked.read().await.unwrap().unwrap(), message(100, 100));
        let first = received.0.take();
        assert_eq!((first.bytes, asked.held()), (105, 120));
        assert_eq!(received.0.take().bytes, 0, "there is nothing more that has come whole");
        drop(first);
        assert_eq!(asked.held(), 15);
        asked.send(&[vec![7; 990], message(0, 0), vec![0; 3]].concat());
        assert_eq!(asked.read().await.unwrap().unwrap(), message(1000, 1000));
        assert_eq!(asked.read().await.unwrap().unwrap(), message(0, 0));
        let second = received.0.take();
        assert_eq!((second.bytes, asked.held()), (1010, 1013));
        drop(second);
        assert_eq!(asked.held(), 3);
        asked.client = None;
        assert_eq!(
            asked.read().await.unwrap().unwrap(),
            vec![0; 3],
            "that it ended is for the reader to say"
        );
        assert!(asked.read().await.is_none());
        drop(received);
        assert_eq!(asked.left(), 0);
    });
}

#[test]
fn what_is_no_call_counts_as_it_comes_and_may_wait() {
    run(async {
        let mut asked = RequestedHost::with("/api/cache", "application/json");
        let received = asked.body.received();
        asked.receive(&message(1000, 10)).await;
        assert_eq!(asked.held(), 15);
        assert!(timeout(100 * MESSAGE_STALL_MAX, asked.read()).await.is_err());
        let taken = received.0.take();
        asked.receive(&[7; 10]).await;
        assert_eq!((taken.bytes, asked.held()), (15, 25));
        drop(taken);
        assert_eq!(asked.held(), 10);
    });
}

#[test]
fn a_message_for_which_there_is_no_memory_is_refused_and_nothing_follows() {
    run(async {
        let mut asked = RequestedHost::call();
        let received = asked.body.received();
        asked.wait_after(&message(10, 5)).await;
        let full = asked.account.hold(CONNECTION_BYTES_MAX - 20);
        asked.send(&[7; 5]);
        assert_eq!(asked.read().await.unwrap().unwrap(), message(10, 10));
        asked.wait_after(&[0, 0, 0, 0, 9]).await;
        asked.send(&[0]);
        let status = asked.read().await.unwrap().unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        asked.send(&[7; 100]);
        assert!(asked.read().await.is_none(), "nothing follows");
        assert_eq!(received.0.take().bytes, 15);
        drop((full, received));
        assert_eq!(asked.left(), 0);
    });
}

#[test]
fn whoever_asks_for_the_health_is_heard_when_there_is_no_memory() {
    run(async {
        let mut asked = RequestedHost::with("/grpc.health.v1.Health/Check", "application/grpc");
        let _full = asked.account.hold(ALL_BYTES_MAX);
        asked.receive(&message(20, 20)).await;
        asked.send(&message(u32::try_from(HEALTH_REQUEST_BYTES_MAX + 1).unwrap(), 1));
        let status = asked.read().await.unwrap().unwrap_err();
        assert_eq!(status.code(), Code::OutOfRange, "in a few bytes: {status}");
    });
}

#[test]
fn a_message_that_does_not_go_on_ends_the_call() {
    run(async {
        for begun in [message(1000, 10), message(1000, 0), vec![0; 3]] {
            let mut asked = RequestedHost::call();
            asked.send(&begun);
            let (after, status) = over(&mut asked).await;
            assert_eq!(
                (after, status.code()),
                (MESSAGE_STALL_MAX, Code::DeadlineExceeded),
                "{status}"
            );
            assert_eq!(asked.left(), 0);
        }
    });
}

#[test]
fn a_message_that_comes_slowly_is_waited_for_and_so_is_the_next_one() {
    run(async {
        let mut asked = RequestedHost::call();
        assert!(timeout(100 * MESSAGE_STALL_MAX, asked.read()).await.is_err(), "none began");
        let whole = message(20, 20);
        for part in whole[..24].chunks(1) {
            asked.send(part);
            assert!(timeout(MESSAGE_STALL_MAX * 3 / 4, asked.read()).await.is_err());
        }
        asked.send(&whole[24..]);
        assert_eq!(asked.read().await.unwrap().unwrap(), whole);
        assert!(
            timeout(100 * MESSAGE_STALL_MAX, asked.read()).await.is_err(),
            "between two messages"
        );
        asked.send(&message(1, 0));
        assert!(timeout(MESSAGE_STALL_MAX / 2, asked.read()).await.is_err());
        // An empty frame changes nothing.
        asked.send(&[]);
        assert_eq!(over(&mut asked).await.0, MESSAGE_STALL_MAX / 2);
    });
}
