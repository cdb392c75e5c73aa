use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use busload_calls::Deadline;
use futures_util::{FutureExt, stream};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, metadata::MetadataMap};

use super::*;
use crate::{answer_stream::AnswerStream, limits::BATCHES_AHEAD_MAX};

/// A request with a number and a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ask {
    number: usize,
    table: usize,
    address_count: usize,
}

impl Batched for Ask {
    fn address_count(&self) -> usize {
        self.address_count
    }

    fn goes_with(&self, first: &Self) -> bool {
        self.table == first.table
    }
}

fn ask(number: usize) -> Ask {
    Ask { number, table: 0, address_count: 1 }
}

fn asks(count: usize) -> impl Stream<Item = Result<Ask, Refusal>> + Send + Unpin + 'static {
    iter((0..count).map(|number| Ok(ask(number))))
}

/// Returns the numbers of the requests of each batch, or the code of an unreadable request.
fn batched(requests: Vec<Result<Ask, Refusal>>) -> Vec<Result<Vec<usize>, Code>> {
    let batches = Batches::new(iter(requests)).map(|batch| match batch {
        Ok(batch) => Ok(batch.iter().map(|request| request.number).collect()),
        Err(refusal) => Err(refusal.code()),
    });
    batches.collect().now_or_never().expect("nothing is waited for")
}

#[test]
fn all_requests_that_wait_form_one_batch() {
    assert_eq!(batched((0..100).map(|number| Ok(ask(number))).collect()), [Ok((0..100).collect())]);
    assert_eq!(batched(vec![]), []);
}

#[test]
fn a_batch_is_bounded_in_requests() {
    let sizes = |count: usize| -> Vec<usize> {
        let batches = batched((0..count).map(|number| Ok(ask(number))).collect());
        batches.into_iter().map(|batch| batch.unwrap().len()).collect()
    };
    assert_eq!(sizes(BATCH_REQUESTS_MAX), [BATCH_REQUESTS_MAX]);
    assert_eq!(sizes(2 * BATCH_REQUESTS_MAX + 1), [BATCH_REQUESTS_MAX, BATCH_REQUESTS_MAX, 1]);
}

#[test]
fn a_batch_is_bounded_in_addresses_but_for_a_request_that_is_larger() {
    let of = |(number, address_count)| Ok(Ask { address_count, ..ask(number) });
    let counts =
        [1, BATCH_ADDRESSES_MAX - 1, 1, BATCH_ADDRESSES_MAX, BATCH_ADDRESSES_MAX + 1, 0, 2, 3];
    let batches = batched(counts.into_iter().enumerate().map(of).collect());
    assert_eq!(batches, [vec![0, 1], vec![2], vec![3], vec![4], vec![5, 6, 7]].map(Ok));
}

#[test]
fn another_repository_is_another_batch() {
    let of = |(number, table)| Ok(Ask { table, ..ask(number) });
    let batches = batched([0, 0, 1, 0, 2, 2].into_iter().enumerate().map(of).collect());
    assert_eq!(batches, [vec![0, 1], vec![2], vec![3], vec![4, 5]].map(Ok));
}

#[test]
fn an_unreadable_request_is_alone_and_in_its_turn() {
    let bad = |code| Err(Refusal::new(code, ""));
    let requests = vec![
        bad(Code::NotFound),
        Ok(ask(0)),
        Ok(ask(1)),
        bad(Code::InvalidArgument),
        bad(Code::OutOfRange),
        Ok(ask(2)),
    ];
    assert_eq!(
        batched(requests),
        [
            Err(Code::NotFound),
            Ok(vec![0, 1]),
            Err(Code::InvalidArgument),
            Err(Code::OutOfRange),
            Ok(vec![2])
        ]
    );
}

type Outcome = Result<Vec<usize>, Refusal>;
/// The numbers of a batch's requests, and the sender for its answer.
type Begun = (Vec<usize>, Option<oneshot::Sender<Outcome>>);

/// Collects batches and answers each when the test says so.
#[derive(Clone, Default)]
struct Desk {
    begun: Arc<Mutex<Vec<Begun>>>,
}

impl Desk {
    fn answers(
        &self,
        requests: impl Stream<Item = Result<Ask, Refusal>> + Send + Unpin + 'static,
    ) -> AnswerStream<usize> {
        let desk = self.clone();
        let answer = move |batch: Vec<Arc<Ask>>| {
            let (sender, receiver) = oneshot::channel();
            let numbers = batch.iter().map(|request| request.number).collect();
            desk.begun.lock().unwrap().push((numbers, Some(sender)));
            async move { receiver.await.unwrap() }
        };
        AnswerStream::new(
            requests,
            answer,
            Deadline::of(&MetadataMap::new(), Duration::from_secs(10)).unwrap(),
        )
    }

    fn begun(&self) -> Vec<Vec<usize>> {
        self.begun.lock().unwrap().iter().map(|(numbers, _)| numbers.clone()).collect()
    }

    /// Answers each request of a batch with its number.
    fn answer(&self, batch: usize) {
        let numbers = self.begun()[batch].clone();
        self.end(batch, Ok(numbers));
    }

    fn fail(&self, batch: usize, code: Code) {
        self.end(batch, Err(Refusal::new(code, "")));
    }

    fn end(&self, batch: usize, outcome: Outcome) {
        let sender = self.begun.lock().unwrap()[batch].1.take().unwrap();
        sender.send(outcome).unwrap();
    }

    /// Returns whether the waiter of this batch is gone.
    fn is_cancelled(&self, batch: usize) -> bool {
        self.begun.lock().unwrap()[batch].1.as_ref().unwrap().is_closed()
    }
}

type Polled = Poll<Option<Result<usize, Code>>>;

fn poll(answers: &mut AnswerStream<usize>) -> Polled {
    let mut context = Context::from_waker(std::task::Waker::noop());
    answers
        .poll_next_unpin(&mut context)
        .map(|item| item.map(|item| item.map_err(|refusal| refusal.code())))
}

/// Returns all answers that are ready, and the outcome of the poll after them.
fn poll_all(answers: &mut AnswerStream<usize>) -> (Vec<usize>, Polled) {
    let mut there = Vec::new();
    loop {
        match poll(answers) {
            Poll::Ready(Some(Ok(number))) => there.push(number),
            end => return (there, end),
        }
    }
}

const OVER: Polled = Poll::Ready(None);

fn ended(code: Code) -> Polled {
    Poll::Ready(Some(Err(code)))
}

#[test]
fn a_lone_request_is_dispatched_at_once_and_others_form_a_batch_meanwhile() {
    let (desk, (send, requests)) = (Desk::default(), mpsc::unbounded_channel());
    let mut answers = desk.answers(UnboundedReceiverStream::new(requests));
    assert!(poll(&mut answers).is_pending());
    let ask_for = |numbers: std::ops::Range<usize>| {
        numbers.for_each(|number| send.send(Ok(ask(number))).unwrap());
    };
    for number in 0..BATCHES_AHEAD_MAX {
        ask_for(number..number + 1);
        assert!(poll(&mut answers).is_pending());
        assert_eq!(desk.begun().len(), number + 1, "no limit is reached");
    }
    ask_for(BATCHES_AHEAD_MAX..50);
    assert!(poll(&mut answers).is_pending());
    ask_for(50..100);
    assert!(poll(&mut answers).is_pending());
    assert_eq!(desk.begun().len(), BATCHES_AHEAD_MAX, "they wait");
    desk.answer(0);
    assert_eq!(poll_all(&mut answers), (vec![0], Poll::Pending));
    assert_eq!(desk.begun()[BATCHES_AHEAD_MAX..], [(BATCHES_AHEAD_MAX..100).collect::<Vec<_>>()]);
    (1..=BATCHES_AHEAD_MAX).for_each(|batch| desk.answer(batch));
    assert_eq!(
        poll_all(&mut answers),
        ((1..100).collect(), Poll::Pending),
        "the client may still ask"
    );
    drop(send);
    assert_eq!(poll(&mut answers), OVER);
}

#[test]
fn answers_come_in_the_order_of_their_requests() {
    let desk = Desk::default();
    let mut answers = desk.answers(asks(BATCH_REQUESTS_MAX + 3));
    assert!(poll(&mut answers).is_pending());
    assert_eq!(desk.begun().len(), 2, "side by side");
    desk.answer(1);
    assert!(poll(&mut answers).is_pending(), "the first is not there");
    desk.answer(0);
    assert_eq!(poll_all(&mut answers), ((0..BATCH_REQUESTS_MAX + 3).collect(), OVER));
}

#[test]
fn requests_beyond_some_batches_wait_until_answers_are_taken() {
    let (desk, taken) = (Desk::default(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&taken);
    let requests = asks(10 * BATCH_REQUESTS_MAX).inspect(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let mut answers = desk.answers(requests);
    assert!(poll(&mut answers).is_pending());
    for batch in 1..BATCHES_AHEAD_MAX {
        desk.answer(batch);
    }
    assert!(poll(&mut answers).is_pending());
    let read = || taken.load(Ordering::Relaxed);
    assert_eq!(
        read(),
        BATCHES_AHEAD_MAX * BATCH_REQUESTS_MAX,
        "answers that wait for the first batch count"
    );
    desk.answer(0);
    assert_eq!(poll(&mut answers), Poll::Ready(Some(Ok(0))));
    assert!(read() <= (BATCHES_AHEAD_MAX + 1) * BATCH_REQUESTS_MAX);
}

#[test]
fn of_a_batch_that_fails_only_the_request_that_fails_does_and_answers_before_it_come_first() {
    let desk = Desk::default();
    let mut answers = desk.answers(asks(6));
    assert!(poll(&mut answers).is_pending());
    desk.fail(0, Code::DataLoss);
    assert!(poll(&mut answers).is_pending());
    assert_eq!(
        desk.begun()[1..],
        (0..6).map(|number| vec![number]).collect::<Vec<_>>(),
        "one by one"
    );
    // Later requests of the batch are answered, or fail, before it: the client never sees these.
    desk.answer(5);
    desk.fail(4, Code::Unavailable);
    desk.fail(3, Code::DataLoss);
    desk.answer(2);
    assert!(poll(&mut answers).is_pending());
    desk.answer(1);
    assert_eq!(poll_all(&mut answers), (vec![0, 1], ended(Code::DataLoss)));
    assert!(desk.is_cancelled(6), "work for later requests ends");
    assert_eq!(poll(&mut answers), OVER);
}

#[test]
fn a_batch_that_failed_once_goes_on_with_the_requests_after_it() {
    let desk = Desk::default();
    let table = |number| Ok(Ask { table: usize::from(3 <= number), ..ask(number) });
    let mut answers = desk.answers(iter((0..5).map(table)));
    assert!(poll(&mut answers).is_pending());
    assert_eq!(desk.begun(), [vec![0, 1, 2], vec![3, 4]]);
    desk.fail(0, Code::DataLoss);
    assert!(poll(&mut answers).is_pending());
    (1..5).for_each(|batch| desk.answer(batch));
    assert_eq!(poll_all(&mut answers), ((0..5).collect(), OVER));
}

#[test]
fn requests_answered_one_by_one_are_some_at_a_time() {
    let desk = Desk::default();
    let mut answers = desk.answers(asks(REQUESTS_AHEAD_MAX + 5));
    assert!(poll(&mut answers).is_pending());
    desk.fail(0, Code::DataLoss);
    assert!(poll(&mut answers).is_pending());
    assert_eq!(desk.begun().len(), 1 + REQUESTS_AHEAD_MAX);
    desk.answer(1);
    assert_eq!(poll_all(&mut answers), (vec![0], Poll::Pending));
    assert_eq!(desk.begun().len(), 2 + REQUESTS_AHEAD_MAX);
}

/// An unreachable store would take as long again and give the same answer.
#[test]
fn a_batch_that_the_store_did_not_answer_ends_the_stream_in_its_turn_and_is_not_asked_for_again() {
    for code in [Code::Unavailable, Code::DeadlineExceeded] {
        let desk = Desk::default();
        let table = |number| Ok(Ask { table: usize::from(3 <= number), ..ask(number) });
        let mut answers = desk.answers(iter((0..6).map(table)));
        assert!(poll(&mut answers).is_pending());
        desk.fail(1, code);
        assert!(poll(&mut answers).is_pending(), "the batch before it may be answered");
        desk.answer(0);
        assert_eq!(poll_all(&mut answers), (vec![0, 1, 2], ended(code)));
        assert_eq!(desk.begun(), [vec![0, 1, 2], vec![3, 4, 5]]);
        assert_eq!(poll(&mut answers), OVER);
    }
}

#[test]
fn the_failure_of_a_lone_request_ends_the_stream_at_once() {
    let desk = Desk::default();
    let mut answers = desk.answers(asks(1).chain(stream::pending()));
    assert!(poll(&mut answers).is_pending());
    desk.fail(0, Code::DataLoss);
    assert_eq!(poll_all(&mut answers), (vec![], ended(Code::DataLoss)));
    assert_eq!(desk.begun().len(), 1, "it is not asked for again");
}

#[test]
fn a_request_that_cannot_be_read_is_answered_in_its_turn() {
    let desk = Desk::default();
    let requests = [Ok(ask(0)), Ok(ask(1)), Err(Refusal::out_of_range("")), Ok(ask(2))];
    let mut answers = desk.answers(iter(requests));
    assert!(poll(&mut answers).is_pending());
    desk.answer(0);
    assert_eq!(poll_all(&mut answers), (vec![0, 1], ended(Code::OutOfRange)));
    assert_eq!(poll(&mut answers), OVER);
}

/// The requests of a batch are dropped with it, so that their memory reservations end with the
/// work.
#[test]
fn requests_of_a_batch_are_dropped_when_it_is_answered() {
    let held = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&held);
    let answer = move |batch: Vec<Arc<Ask>>| {
        keep.lock().unwrap().extend(batch.iter().map(Arc::downgrade));
        async move { Ok(batch.iter().map(|request| request.number).collect::<Vec<_>>()) }
    };
    let batch = (0..3).map(|number| Arc::new(ask(number))).collect();
    let mut answers = answers(Ok(batch), answer).now_or_never().unwrap();
    assert!(held.lock().unwrap().iter().all(|request| request.upgrade().is_none()));
    assert!(matches!(answers.next().now_or_never(), Some(Some(Ok(0)))));
}
