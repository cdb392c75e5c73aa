use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use busload_dolt::{FileId, FileKind};
use futures_util::stream;
use tokio::{
    runtime::{Builder, Runtime},
    sync::{mpsc, oneshot},
};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, metadata::MetadataMap};

use super::*;
use crate::{
    grpc::limits::ADDRESS_COUNT_MAX,
    remotesapi::{layout::Place, url::Recipe},
};

fn paused() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

fn no_deadline() -> Deadline {
    Deadline::of(&MetadataMap::new(), Duration::from_secs(10)).unwrap()
}

fn address(number: u8) -> ChunkAddress {
    ChunkAddress([number; 20])
}

fn question(numbers: &[u8]) -> Question {
    let packed: Vec<u8> = numbers.iter().flat_map(|number| [*number; 20]).collect();
    Question::of_packed("chunk_hashes", &packed).unwrap()
}

fn file(number: u8) -> Resource {
    Resource::File(FileName { id: FileId([number; 20]), kind: FileKind::Classic, version: 7 })
}

fn records(number: u8) -> Resource {
    Resource::Records(Recipe { check: [number; 8], addresses: vec![address(number)] })
}

fn place(resource: usize, offset: u64) -> Option<Place> {
    Some(Place { resource, span: Span { offset, length: 10 }, dictionary: None })
}

fn answer(asked: &[u8], resources: Vec<Resource>, places: Vec<Option<Place>>) -> Answer {
    let links = Links::for_tests("http://host:6381", "db", None);
    Answer { question: question(asked), laid: Laid { resources, places }, table: 0, links }
}

#[test]
fn an_address_asked_for_twice_is_one() {
    let asked = question(&[3, 1, 3, 2, 1]);
    assert_eq!(asked.addresses, [3, 1, 2].map(address));
    assert_eq!(asked.entries, [0, 1, 0, 2, 1]);
    let listed: Vec<Bytes> = [3, 1, 3, 2, 1].map(|number| Bytes::from(vec![number; 20])).into();
    assert_eq!(Question::of_list("chunk_hashes", &listed).unwrap(), asked);
}

#[test]
fn what_is_no_list_of_addresses_is_refused() {
    let refused = |outcome: Result<Question, Refusal>, expected: &str| {
        let refusal = outcome.unwrap_err();
        assert_eq!(refusal.code(), Code::InvalidArgument);
        assert_eq!(refusal.message(), expected);
    };
    refused(
        Question::of_packed("chunk_hashes", &[0; 39]),
        "chunk_hashes: expected a multiple of 20 bytes, got 39",
    );
    refused(
        Question::of_packed("chunk_hashes", &[0; 20 * (ADDRESS_COUNT_MAX + 1)]),
        "chunk_hashes: expected at most 16384, got 16385",
    );
    let [whole, part] = [20, 19].map(|bytes| Bytes::from(vec![0; bytes]));
    refused(
        Question::of_list("hashes", &[whole.clone(), part]),
        "hashes: expected 20 bytes each, got 19 at index 1",
    );
    refused(
        Question::of_list("hashes", &vec![whole.clone(); ADDRESS_COUNT_MAX + 1]),
        "hashes: expected at most 16384, got 16385",
    );
    assert_eq!(Question::of_list("hashes", &vec![whole; ADDRESS_COUNT_MAX]).unwrap().addresses.len(), 1);
    assert_eq!(question(&[]), Question { addresses: vec![], entries: vec![] });
}

#[test]
fn a_file_is_told_once_with_the_first_location_in_it() {
    let mut told = Told::default();
    let first = told.message(&answer(&[1, 2], vec![file(5)], vec![place(0, 0), None]));
    assert_eq!(first.table_files.len(), 1);
    let record = &first.table_files[0];
    assert_eq!((record.table_file_id, record.refresh_after), (1, None));
    assert_eq!(record.file_id, FileId([5; 20]).to_string());
    assert_eq!(record.url, format!("http://host:6381/dolt/v1/db/files/0000000000000007/{}", FileId([5; 20])));
    assert_eq!(first.missing_indexes, [1]);
    let second = told.message(&answer(&[3, 4], vec![file(6), file(5)], vec![place(0, 0), place(1, 10)]));
    let ids: Vec<u32> = second.table_files.iter().map(|record| record.table_file_id).collect();
    assert_eq!(ids, [2]);
    let used: Vec<u32> = second.locations.iter().map(|location| location.table_file_id).collect();
    assert_eq!(used, [2, 1]);
}

#[test]
fn a_file_of_another_table_is_another_one() {
    let mut told = Told::default();
    let of_table = |table| Answer { table, ..answer(&[1], vec![file(5)], vec![place(0, 0)]) };
    assert_eq!(told.message(&of_table(0)).locations[0].table_file_id, 1);
    assert_eq!(told.message(&of_table(1)).locations[0].table_file_id, 2);
    assert_eq!(told.message(&of_table(0)).locations[0].table_file_id, 1);
}

#[test]
fn what_a_stream_remembers_is_bounded() {
    let mut told = Told::default();
    let name = |number: usize| {
        let mut id = FileId([0; 20]);
        id.0[..8].copy_from_slice(&number.to_be_bytes());
        Resource::File(FileName { id, kind: FileKind::Classic, version: 0 })
    };
    for number in 0..=FILES_TOLD_MAX {
        let message = told.message(&answer(&[1], vec![name(number)], vec![place(0, 0)]));
        assert_eq!(message.table_files.len(), 1);
    }
    assert!(told.files.len() <= FILES_TOLD_MAX);
    let again = told.message(&answer(&[1], vec![name(0)], vec![place(0, 0)]));
    assert_eq!(again.table_files.len(), 1, "forgotten, so it is told again");
    assert_eq!(again.locations[0].table_file_id, again.table_files[0].table_file_id);
    for _ in 0..10 {
        told.message(&answer(&[1], vec![records(1)], vec![place(0, 0)]));
    }
    assert!(told.files.len() < 10, "records are not remembered");
}

#[test]
fn ids_begin_anew_when_there_are_no_more() {
    let mut told = Told { last: u32::MAX - 1, ..Told::default() };
    let ask = |told: &mut Told, number| {
        let message = told.message(&answer(&[1], vec![file(number)], vec![place(0, 0)]));
        (message.locations[0].table_file_id, message.table_files.len())
    };
    assert_eq!(ask(&mut told, 1), (u32::MAX, 1));
    assert_eq!(ask(&mut told, 2), (1, 1));
    assert_eq!(ask(&mut told, 1), (2, 1), "its old id may be another file's by now");
}

#[test]
fn each_entry_of_a_request_is_answered() {
    let asked = answer(&[1, 2, 1, 3], vec![records(9)], vec![place(0, 0), None, place(0, 10)]);
    assert_eq!(asked.counts(), (3, 1));
    let message = Told::default().message(&asked);
    let locations: Vec<_> =
        message.locations.iter().map(|location| (location.request_index, location.offset)).collect();
    assert_eq!(locations, [(0, 0), (2, 0), (3, 10)]);
    assert_eq!(message.missing_indexes, [1]);
    let ranges = asked.into_ranges();
    let Some(download_loc::Location::HttpGetRange(range)) = &ranges.locs[0].location else {
        panic!("{ranges:?}")
    };
    let hashes: Vec<&[u8]> = range.ranges.iter().map(|range| &range.hash[..]).collect();
    assert_eq!(hashes, [[1; 20], [3; 20]], "an address has one range");
}

#[test]
fn ranges_are_by_resource_and_say_where_their_dictionary_is() {
    let dictionary = Some(Span { offset: 500, length: 60 });
    let zstd = Place { resource: 1, span: Span { offset: 7, length: 8 }, dictionary };
    let places = vec![place(0, 0), Some(zstd), place(0, 10)];
    let ranges = answer(&[1, 2, 3], vec![file(1), file(2)], places).into_ranges();
    let shown: Vec<_> = ranges
        .locs
        .iter()
        .map(|loc| {
            let Some(download_loc::Location::HttpGetRange(range)) = &loc.location else { panic!("{loc:?}") };
            assert_eq!((&loc.refresh_after, &loc.refresh_request), (&None, &None));
            let ranges = range.ranges.iter();
            ranges
                .map(|r| (r.hash[0], r.offset, r.length, r.dictionary_offset, r.dictionary_length))
                .collect()
        })
        .collect::<Vec<Vec<_>>>();
    assert_eq!(shown, [vec![(1, 0, 10, 0, 0), (3, 10, 10, 0, 0)], vec![(2, 7, 8, 500, 60)]]);
}

type Sender = oneshot::Sender<Result<usize, Refusal>>;

/// Requests are numbers, and answered when the test says so.
#[derive(Clone, Default)]
struct Desk {
    begun: Arc<AtomicUsize>,
    /// Those not answered yet.
    waiting: Arc<Mutex<Vec<Option<Sender>>>>,
}

impl Desk {
    fn answers(
        &self,
        requests: impl Stream<Item = Result<usize, Refusal>> + Send + 'static,
    ) -> Answers<usize> {
        let desk = self.clone();
        let answer = move |_request| {
            desk.begun.fetch_add(1, Ordering::Relaxed);
            let (sender, receiver) = oneshot::channel();
            desk.waiting.lock().unwrap().push(Some(sender));
            async move { receiver.await.unwrap() }
        };
        Answers::new(requests, answer, no_deadline())
    }

    fn answer(&self, request: usize, answer: Result<usize, Refusal>) {
        let sender = self.waiting.lock().unwrap()[request].take().unwrap();
        sender.send(answer).unwrap();
    }

    fn begun(&self) -> usize {
        self.begun.load(Ordering::Relaxed)
    }

    /// Whether nobody waits for this answer any more.
    fn is_given_up(&self, request: usize) -> bool {
        self.waiting.lock().unwrap()[request].as_ref().unwrap().is_closed()
    }
}

fn poll(answers: &mut Answers<usize>) -> Poll<Option<Result<usize, Code>>> {
    let mut context = Context::from_waker(std::task::Waker::noop());
    answers.poll_next_unpin(&mut context).map(|item| item.map(|item| item.map_err(|refusal| refusal.code())))
}

#[test]
fn answers_come_in_the_order_of_their_requests() {
    let desk = Desk::default();
    let mut answers = desk.answers(stream::iter((0..3).map(Ok)));
    assert!(poll(&mut answers).is_pending());
    assert_eq!(desk.begun(), 3, "all at once");
    desk.answer(2, Ok(2));
    desk.answer(1, Ok(1));
    assert!(poll(&mut answers).is_pending(), "the first is not there");
    desk.answer(0, Ok(0));
    for number in 0..3 {
        assert_eq!(poll(&mut answers), Poll::Ready(Some(Ok(number))));
    }
    assert_eq!(poll(&mut answers), Poll::Ready(None), "the client has ended the stream");
}

#[test]
fn requests_beyond_some_wait_until_answers_are_taken() {
    let desk = Desk::default();
    let mut answers = desk.answers(stream::iter((0..100).map(Ok)));
    assert!(poll(&mut answers).is_pending());
    assert_eq!(desk.begun(), REQUESTS_AHEAD_MAX);
    (1..REQUESTS_AHEAD_MAX).for_each(|request| desk.answer(request, Ok(request)));
    assert!(poll(&mut answers).is_pending());
    assert_eq!(desk.begun(), REQUESTS_AHEAD_MAX, "answers that wait for the first one count");
    desk.answer(0, Ok(0));
    assert_eq!(poll(&mut answers), Poll::Ready(Some(Ok(0))));
    assert!(desk.begun() <= REQUESTS_AHEAD_MAX + 1);
}

#[test]
fn a_stream_stays_open_while_its_client_may_ask() {
    let desk = Desk::default();
    let (ask, requests) = mpsc::unbounded_channel();
    let mut answers = desk.answers(UnboundedReceiverStream::new(requests));
    assert!(poll(&mut answers).is_pending());
    ask.send(Ok(0)).unwrap();
    assert!(poll(&mut answers).is_pending());
    desk.answer(0, Ok(0));
    assert_eq!(poll(&mut answers), Poll::Ready(Some(Ok(0))));
    assert!(poll(&mut answers).is_pending());
    drop(ask);
    assert_eq!(poll(&mut answers), Poll::Ready(None));
}

#[test]
fn an_error_comes_after_the_answers_before_it_and_ends_the_stream() {
    let desk = Desk::default();
    let mut answers = desk.answers(stream::iter((0..4).map(Ok)));
    assert!(poll(&mut answers).is_pending());
    desk.answer(1, Err(Refusal::data_loss("")));
    desk.answer(2, Ok(2));
    assert!(poll(&mut answers).is_pending());
    desk.answer(0, Ok(0));
    assert_eq!(poll(&mut answers), Poll::Ready(Some(Ok(0))));
    assert!(!desk.is_given_up(3));
    assert_eq!(poll(&mut answers), Poll::Ready(Some(Err(Code::DataLoss))));
    assert!(desk.is_given_up(3), "work for later requests ends");
    assert_eq!(poll(&mut answers), Poll::Ready(None));
}

#[test]
fn a_request_that_cannot_be_read_is_answered_in_its_turn() {
    let desk = Desk::default();
    let requests = [Ok(0), Err(Refusal::out_of_range("")), Ok(2)];
    let mut answers = desk.answers(stream::iter(requests));
    assert!(poll(&mut answers).is_pending());
    desk.answer(0, Ok(0));
    assert_eq!(poll(&mut answers), Poll::Ready(Some(Ok(0))));
    assert_eq!(poll(&mut answers), Poll::Ready(Some(Err(Code::OutOfRange))));
    assert_eq!(poll(&mut answers), Poll::Ready(None));
}

#[test]
fn the_clients_deadline_ends_a_stream_that_waits() {
    paused().block_on(async {
        let mut headers = MetadataMap::new();
        headers.insert("grpc-timeout", "5S".parse().unwrap());
        let deadline = Deadline::of(&headers, Duration::from_secs(10)).unwrap();
        let begun = tokio::time::Instant::now();
        let requests = stream::pending::<Result<usize, Refusal>>();
        let mut answers = Answers::new(requests, |number| ready(Ok(number)), deadline);
        let ended = answers.next().await.unwrap().unwrap_err();
        assert_eq!(ended.code(), Code::DeadlineExceeded);
        assert!(Duration::from_secs(5) <= begun.elapsed());
        assert!(answers.next().await.is_none());
    });
}
