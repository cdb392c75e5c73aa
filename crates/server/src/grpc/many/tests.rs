use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    task::Waker,
    time::Duration,
};

use busload_dolt::Error;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, metadata::MetadataMap};

use super::*;
use crate::grpc::limits::MESSAGE_BYTES;

const CHUNK_BYTES: usize = 4096;

/// A store whose chunks are ready at once, or are received when the test says so, by the first byte
/// of their address.
#[derive(Clone, Default)]
struct Fake {
    batches: Arc<Mutex<Vec<Batch>>>,
    lookups: Arc<Mutex<usize>>,
}

/// A batch that was sent.
struct Batch {
    addresses: Vec<ChunkAddress>,
    request: Request,
    /// Sender of outcomes; none once the batch has ended.
    landing: Option<mpsc::UnboundedSender<Outcomes>>,
}

const AT_HAND: u8 = 0;
const ABSENT: u8 = 1;
const ELSEWHERE: u8 = 2;

fn address(kind: u8, number: u32) -> ChunkAddress {
    let mut bytes = [kind; 20];
    bytes[16..].copy_from_slice(&number.to_be_bytes());
    ChunkAddress(bytes)
}

/// Makes a chunk whose contents begin with its address.
fn chunk(address: &ChunkAddress) -> Chunk {
    let mut contents = vec![0; CHUNK_BYTES];
    contents[..20].copy_from_slice(&address.0);
    Chunk::Contents(contents.into())
}

impl Reader for Fake {
    fn try_get(&self, _: Requester, address: &ChunkAddress, _: Form) -> Attempt<Option<Chunk>> {
        *self.lookups.lock().unwrap() += 1;
        match address.0[0] {
            AT_HAND => Attempt::Ready(Ok(Some(chunk(address)))),
            ABSENT => Attempt::Ready(Ok(None)),
            _ => Attempt::Wait,
        }
    }

    fn get_many(
        &self,
        addresses: Vec<ChunkAddress>,
        request: Request,
    ) -> BoxStream<'static, Outcomes> {
        let (landing, received) = mpsc::unbounded_channel();
        self.batches.lock().unwrap().push(Batch { addresses, request, landing: Some(landing) });
        UnboundedReceiverStream::new(received).boxed()
    }
}

impl Fake {
    fn batch_count(&self) -> usize {
        self.batches.lock().unwrap().len()
    }

    fn lookup_count(&self) -> usize {
        *self.lookups.lock().unwrap()
    }

    /// Delivers chunks of a batch.
    fn land(&self, batch: usize, positions: std::ops::Range<usize>) {
        let batches = self.batches.lock().unwrap();
        let batch = &batches[batch];
        let received =
            positions.map(|at| (u32::try_from(at).unwrap(), Ok(Some(chunk(&batch.addresses[at])))));
        batch.landing.as_ref().unwrap().send(received.collect()).unwrap();
    }

    /// Delivers outcomes of some addresses of a batch.
    fn send(&self, batch: usize, received: Outcomes) {
        self.batches.lock().unwrap()[batch].landing.as_ref().unwrap().send(received).unwrap();
    }

    /// Returns whether a batch was cancelled.
    fn is_given_up(&self, batch: usize) -> bool {
        self.batches.lock().unwrap()[batch].landing.as_ref().unwrap().is_closed()
    }

    /// Ends a batch of the fake.
    fn end(&self, batch: usize) {
        self.batches.lock().unwrap()[batch].landing = None;
    }
}

/// Runs a test on a runtime, which timers need, with paused time: it passes when all tasks wait.
fn within<T>(test: impl AsyncFnOnce() -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(test())
}

fn call(addresses: &[ChunkAddress], timeout: Option<&'static str>) -> Call {
    let mut headers = MetadataMap::new();
    if let Some(timeout) = timeout {
        headers.insert("grpc-timeout", timeout.parse().unwrap());
    }
    Call {
        addresses: addresses.iter().flat_map(|address| address.0).collect::<Vec<_>>().into(),
        form: Form::Contents,
        local_only: true,
        requester: Requester::Client,
        deadline: Deadline::of(&headers, Duration::from_secs(10)).unwrap(),
        timer: None,
        _permit: None,
        _span: None,
    }
}

/// Polls until there is a message or nothing to do, however many turns that takes.
fn look(answers: &mut Answers<Fake>) -> Poll<Option<Result<GetChunksResponse, Status>>> {
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..100 {
        if let Poll::Ready(message) = answers.poll_next_unpin(&mut context) {
            return Poll::Ready(message);
        }
    }
    Poll::Pending
}

#[track_caller]
fn message(answers: &mut Answers<Fake>) -> GetChunksResponse {
    match look(answers) {
        Poll::Ready(Some(Ok(message))) => message,
        other => panic!("expected a message, got {other:?}"),
    }
}

fn indexes(message: &GetChunksResponse) -> Vec<u32> {
    message.chunks.iter().map(|chunk| chunk.index).collect()
}

#[test]
fn what_is_ready_leaves_at_once_and_the_others_are_waited_for_together() {
    within(async || {
        let fake = Fake::default();
        let kinds = [ELSEWHERE, AT_HAND, ABSENT, ELSEWHERE, AT_HAND];
        let addresses: Vec<_> =
            (0..).zip(kinds).map(|(number, kind)| address(kind, number)).collect();
        let mut answers = Answers::new(fake.clone(), call(&addresses, None));
        let first = message(&mut answers);
        assert_eq!((indexes(&first), first.missing), (vec![1, 4], vec![2]));
        assert_eq!(fake.batch_count(), 1, "they left before the message did");
        assert_eq!(fake.batches.lock().unwrap()[0].addresses, [addresses[0], addresses[3]]);
        assert!(fake.batches.lock().unwrap()[0].request.local_only);
        assert!(look(&mut answers).is_pending());
        fake.land(0, 1..2);
        let second = message(&mut answers);
        assert_eq!(indexes(&second), [3]);
        assert_eq!(second.chunks[0].contents[..20], addresses[3].0);
        fake.land(0, 0..1);
        fake.end(0);
        assert_eq!(indexes(&message(&mut answers)), [0]);
        assert!(matches!(look(&mut answers), Poll::Ready(None)));
        assert!(matches!(look(&mut answers), Poll::Ready(None)));
    });
}

#[test]
fn failures_are_of_one_address_each() {
    within(async || {
        let fake = Fake::default();
        let addresses = [address(ELSEWHERE, 0), address(ELSEWHERE, 1), address(ELSEWHERE, 2)];
        let mut answers = Answers::new(fake.clone(), call(&addresses, None));
        assert!(look(&mut answers).is_pending());
        fake.land(0, 2..3);
        fake.send(
            0,
            vec![(1, Err(Error::Unreachable("no route".into()))), (0, Err(Error::NotLocal))],
        );
        fake.end(0);
        let message = message(&mut answers);
        assert_eq!((indexes(&message), &message.not_local), (vec![2], &vec![0]));
        let failed = &message.failed[0];
        assert_eq!(
            (failed.index, failed.code, failed.message.as_str()),
            (1, Code::Unavailable as u32, "no route")
        );
    });
}

#[test]
fn a_client_that_reads_nothing_causes_no_work_beyond_one_message() {
    within(async || {
        let fake = Fake::default();
        let addresses: Vec<_> = (0..16_384).map(|number| address(AT_HAND, number)).collect();
        let mut answers = Answers::new(fake.clone(), call(&addresses, None));
        assert_eq!(fake.lookup_count(), 0, "nobody has asked for a message");
        message(&mut answers);
        let of_one_message = MESSAGE_BYTES / CHUNK_BYTES + 1;
        assert!(fake.lookup_count() <= of_one_message, "{} lookups", fake.lookup_count());
    });
}

#[test]
fn each_address_gets_exactly_one_result() {
    within(async || {
        let fake = Fake::default();
        let addresses: Vec<_> =
            (0..16_384).map(|number| address(u8::try_from(number % 3).unwrap(), number)).collect();
        let mut answers = Answers::new(fake.clone(), call(&addresses, None));
        let (mut results, mut ended) = (BTreeMap::new(), 0);
        loop {
            match look(&mut answers) {
                Poll::Ready(None) => break,
                Poll::Ready(Some(message)) => {
                    let message = message.unwrap();
                    for index in message.missing {
                        assert_eq!(results.insert(index, ABSENT), None);
                    }
                    for chunk in message.chunks {
                        let address = addresses[chunk.index as usize];
                        assert_eq!(chunk.contents[..20], address.0);
                        assert_eq!(results.insert(chunk.index, address.0[0]), None);
                    }
                }
                Poll::Pending => {
                    let in_flight = fake.batch_count();
                    assert!(ended < in_flight, "all that was asked for is there, and it waits");
                    for batch in ended..in_flight {
                        let count = fake.batches.lock().unwrap()[batch].addresses.len();
                        fake.land(batch, 0..count);
                        fake.end(batch);
                    }
                    ended = in_flight;
                }
            }
        }
        assert_eq!(results.len(), addresses.len());
        assert!(results.iter().all(|(index, kind)| index % 3 == u32::from(*kind)));
    });
}

#[test]
fn no_more_is_waited_for_than_the_limits_say() {
    within(async || {
        let fake = Fake::default();
        let addresses: Vec<_> = (0..16_384).map(|number| address(ELSEWHERE, number)).collect();
        let mut answers = Answers::new(fake.clone(), call(&addresses, None));
        assert!(look(&mut answers).is_pending());
        let asked = || {
            fake.batches.lock().unwrap().iter().map(|batch| batch.addresses.len()).sum::<usize>()
        };
        assert_eq!((asked(), fake.batch_count()), (WAITING_COUNT_MAX, 1));
        fake.land(0, 0..100);
        let mut read = 0;
        while let Poll::Ready(Some(Ok(message))) = look(&mut answers) {
            read += message.chunks.len();
            assert!(asked() <= WAITING_COUNT_MAX + read + 100);
        }
        assert_eq!(read, 100);
        assert_eq!(asked(), WAITING_COUNT_MAX + 100, "others took their places");
    });
}

#[test]
fn what_is_not_asked_for_any_more_is_given_up() {
    within(async || {
        let fake = Fake::default();
        let mut answers = Answers::new(fake.clone(), call(&[address(ELSEWHERE, 0)], None));
        assert!(look(&mut answers).is_pending());
        assert!(!fake.is_given_up(0));
        drop(answers);
        assert!(fake.is_given_up(0));
    });
}

#[test]
fn the_clients_deadline_ends_the_stream() {
    within(async || {
        let fake = Fake::default();
        let mut answers = Answers::new(fake.clone(), call(&[address(ELSEWHERE, 0)], Some("50m")));
        let status = answers.next().await.unwrap().unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
        assert!(answers.next().await.is_none());
    });
}

#[test]
fn a_waiting_stream_is_woken_by_what_lands() {
    within(async || {
        let fake = Fake::default();
        let answers = Answers::new(fake.clone(), call(&[address(ELSEWHERE, 0)], None));
        let reading = tokio::spawn(answers.collect::<Vec<_>>());
        while fake.batch_count() == 0 {
            tokio::task::yield_now().await;
        }
        assert!(!reading.is_finished());
        fake.land(0, 0..1);
        fake.end(0);
        let messages = reading.await.unwrap();
        assert_eq!(indexes(messages[0].as_ref().unwrap()), [0]);
        assert_eq!(messages.len(), 1);
    });
}

#[test]
fn what_stalls_has_failed_and_what_comes_slowly_has_not() {
    within(async || {
        let fake = Fake::default();
        let addresses = [address(ELSEWHERE, 0), address(ELSEWHERE, 1), address(ELSEWHERE, 2)];
        let mut answers = Answers::new(fake.clone(), call(&addresses, None));
        assert!(look(&mut answers).is_pending());
        // The table's timeout is ten seconds.
        for received in 0..2 {
            tokio::time::advance(Duration::from_secs(9)).await;
            assert!(look(&mut answers).is_pending());
            fake.land(0, received..received + 1);
            assert_eq!(indexes(&message(&mut answers)).len(), 1);
        }
        let failed = answers.next().await.unwrap().unwrap().failed;
        assert_eq!(
            failed.iter().map(|failed| (failed.index, failed.code)).collect::<Vec<_>>(),
            [(2, 14)]
        );
        assert!(fake.is_given_up(0));
        assert!(answers.next().await.is_none());
    });
}

#[test]
fn a_client_that_reads_slowly_gets_everything() {
    within(async || {
        let fake = Fake::default();
        let addresses = [address(ELSEWHERE, 0), address(ELSEWHERE, 1)];
        let mut answers = Answers::new(fake.clone(), call(&addresses, None));
        for received in 0..2 {
            assert!(look(&mut answers).is_pending());
            fake.land(0, received..received + 1);
            tokio::time::advance(Duration::from_secs(3000)).await;
            assert_eq!(indexes(&message(&mut answers)).len(), 1);
        }
        fake.end(0);
        assert!(answers.next().await.is_none());
    });
}
