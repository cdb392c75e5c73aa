use std::{future::ready, time::Duration};

use busload_dolt::{FileId, FileKind};
use futures_util::stream;
use tokio::runtime::{Builder, Runtime};
use tonic::{Code, metadata::MetadataMap};

use super::*;
use crate::{
    grpc::limits::ADDRESS_COUNT_MAX,
    remotesapi::{layout::Place, url::Bundle},
};

fn paused() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
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
    Resource::Records(Bundle { check: [number; 8], addresses: vec![address(number)] })
}

fn place(resource: usize, offset: u64) -> Option<Place> {
    Some(Place { resource, span: Span { offset, length: 10 }, dictionary: None })
}

fn links() -> Links {
    Links::for_tests("http://host:6381", "db", None)
}

fn answer(asked: &[u8], resources: Vec<Resource>, places: Vec<Option<Place>>) -> Answer {
    let Question { addresses, entries } = question(asked);
    let laid = Arc::new(Laid { resources, places });
    Answer { entries, addresses: addresses.into(), laid, table: 0, links: links() }
}

/// Returns the answers to requests that are answered as one batch.
fn answers_together(
    asked: &[&[u8]],
    resources: Vec<Resource>,
    places: Vec<Option<Place>>,
) -> Vec<Answer> {
    let MergedQuestions { addresses, entries } = together(asked);
    assert_eq!(addresses.len(), places.len());
    let (addresses, laid) = (Arc::from(addresses), Arc::new(Laid { resources, places }));
    let answer = |entries| {
        let (addresses, laid) = (Arc::clone(&addresses), Arc::clone(&laid));
        Answer { entries, addresses, laid, table: 0, links: links() }
    };
    entries.into_iter().map(answer).collect()
}

fn together(asked: &[&[u8]]) -> MergedQuestions {
    let questions: Vec<Question> = asked.iter().map(|numbers| question(numbers)).collect();
    MergedQuestions::of(questions.iter())
}

/// Returns the ids in the message's records, then those in its locations.
fn ids(message: &StreamChunkLocationsResponse) -> (Vec<u32>, Vec<u32>) {
    let records = message.table_files.iter().map(|record| record.table_file_id).collect();
    (records, message.locations.iter().map(|location| location.table_file_id).collect())
}

/// Returns the resource of each location as the client finds it, from the URLs it was told.
fn known(message: &StreamChunkLocationsResponse, urls: &mut HashMap<u32, String>) -> Vec<String> {
    urls.extend(
        message.table_files.iter().map(|record| (record.table_file_id, record.url.clone())),
    );
    message.locations.iter().map(|location| urls[&location.table_file_id].clone()).collect()
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
fn an_address_that_several_requests_ask_for_is_one() {
    let MergedQuestions { addresses, entries } = together(&[&[3, 1, 3], &[], &[1, 2, 1, 4], &[4]]);
    assert_eq!(addresses, [3, 1, 2, 4].map(address));
    assert_eq!(entries, [vec![0, 1, 0], vec![], vec![1, 2, 1, 3], vec![3]]);
    assert_eq!(together(&[]), MergedQuestions { addresses: vec![], entries: vec![] });
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
    assert_eq!(
        Question::of_list("hashes", &vec![whole; ADDRESS_COUNT_MAX]).unwrap().addresses.len(),
        1
    );
    assert_eq!(question(&[]), Question { addresses: vec![], entries: vec![] });
}

#[test]
fn a_file_is_told_once_with_the_first_location_in_it() {
    let mut told = Advertised::default();
    let first = told.message(&answer(&[1, 2], vec![file(5)], vec![place(0, 0), None]));
    assert_eq!(first.table_files.len(), 1);
    let record = &first.table_files[0];
    assert_eq!((record.table_file_id, record.refresh_after), (1, None));
    assert_eq!(record.file_id, FileId([5; 20]).to_string());
    assert_eq!(
        record.url,
        format!("http://host:6381/dolt/v1/db/files/0000000000000007/{}", FileId([5; 20]))
    );
    assert_eq!(first.missing_indexes, [1]);
    let second =
        told.message(&answer(&[3, 4], vec![file(6), file(5)], vec![place(0, 0), place(1, 10)]));
    let ids: Vec<u32> = second.table_files.iter().map(|record| record.table_file_id).collect();
    assert_eq!(ids, [2]);
    let used: Vec<u32> = second.locations.iter().map(|location| location.table_file_id).collect();
    assert_eq!(used, [2, 1]);
}

#[test]
fn a_file_of_another_table_is_another_one() {
    let mut told = Advertised::default();
    let of_table = |table| Answer { table, ..answer(&[1], vec![file(5)], vec![place(0, 0)]) };
    assert_eq!(told.message(&of_table(0)).locations[0].table_file_id, 1);
    assert_eq!(told.message(&of_table(1)).locations[0].table_file_id, 2);
    assert_eq!(told.message(&of_table(0)).locations[0].table_file_id, 1);
}

#[test]
fn what_a_stream_remembers_is_bounded() {
    let mut told = Advertised::default();
    let name = |number: usize| {
        let mut id = FileId([0; 20]);
        id.0[..8].copy_from_slice(&number.to_be_bytes());
        Resource::File(FileName { id, kind: FileKind::Classic, version: 0 })
    };
    for number in 0..=FILES_ADVERTISED_MAX {
        let message = told.message(&answer(&[1], vec![name(number)], vec![place(0, 0)]));
        assert_eq!(message.table_files.len(), 1);
    }
    assert!(told.files.len() <= FILES_ADVERTISED_MAX);
    let again = told.message(&answer(&[1], vec![name(0)], vec![place(0, 0)]));
    assert_eq!(again.table_files.len(), 1, "forgotten, so it is told again");
    assert_eq!(again.locations[0].table_file_id, again.table_files[0].table_file_id);
    for _ in 0..10 {
        told.message(&answer(&[1], vec![records(1)], vec![place(0, 0)]));
    }
    assert!(told.files.len() < 10 && told.free.len() < 2, "records are not remembered");
}

#[test]
fn ids_begin_anew_when_there_are_no_more() {
    let mut told = Advertised { last: u32::MAX - 1, ..Advertised::default() };
    let ask = |told: &mut Advertised, number| {
        let message = told.message(&answer(&[1], vec![file(number)], vec![place(0, 0)]));
        (message.locations[0].table_file_id, message.table_files.len())
    };
    assert_eq!(ask(&mut told, 1), (u32::MAX, 1));
    assert_eq!(ask(&mut told, 2), (1, 1));
    assert_eq!(ask(&mut told, 1), (2, 1), "its old id may be another file's by now");
}

#[test]
fn answers_of_a_batch_share_its_records_and_those_of_another_do_not() {
    let resources = || vec![records(1), file(2), records(3)];
    let places = || vec![place(0, 0), place(1, 0), place(2, 0), place(2, 10), None];
    let asked: [&[u8]; 4] = [&[1, 3], &[5, 1], &[2, 3, 4], &[]];
    let batch = answers_together(&asked, resources(), places());
    let mut told = Advertised::default();
    let shown: Vec<_> = batch.iter().map(|answer| ids(&told.message(answer))).collect();
    assert_eq!(
        shown,
        [(vec![1, 2], vec![1, 2]), (vec![3], vec![3, 1]), (vec![], vec![3, 2]), (vec![], vec![]),]
    );
    let another =
        answers_together(&[&[1, 2]], vec![records(1), file(2)], vec![place(0, 0), place(1, 0)]);
    // The client keeps the last record of each id, and files never change.
    let (records_told, used) = ids(&told.message(&another[0]));
    assert_eq!((records_told.len(), used[1]), (1, 2));
    assert_eq!(used[0], records_told[0]);
}

/// Clients keep all ids of a stream, so the server reuses ids.
#[test]
fn ids_of_records_are_used_again_when_their_batch_is_over() {
    let (mut told, mut urls) = (Advertised::default(), HashMap::new());
    for number in 0..100 {
        let resources = vec![records(number), file(7), records(number + 1)];
        let asked: [&[u8]; 3] = [&[1], &[2, 1], &[3, 2]];
        let places = vec![place(0, 0), place(1, 0), place(2, 0)];
        let batch = answers_together(&asked, resources.clone(), places);
        let shown: Vec<_> =
            batch.iter().map(|answer| known(&told.message(answer), &mut urls)).collect();
        let expected =
            |which: &[usize]| which.iter().map(|&which| links().url(&resources[which])).collect();
        assert_eq!(
            shown,
            [expected(&[0]), expected(&[1, 0]), expected(&[2, 1])] as [Vec<String>; 3]
        );
    }
    assert_eq!(urls.len(), 3);
}

/// Whatever the server forgets, a client that replaces records of the same id finds every chunk.
#[test]
fn records_are_those_of_the_batch_when_ids_begin_anew_in_it() {
    let asked: [&[u8]; 3] = [&[1], &[2, 1], &[3, 2, 1]];
    let resources = vec![records(1), file(2), records(3)];
    let batch =
        answers_together(&asked, resources.clone(), vec![place(0, 0), place(1, 0), place(2, 0)]);
    let (mut told, mut urls) =
        (Advertised { last: u32::MAX - 4, ..Advertised::default() }, HashMap::new());
    let expected =
        |which: &[usize]| which.iter().map(|&which| links().url(&resources[which])).collect();
    let shown: Vec<Vec<String>> =
        batch.iter().map(|answer| known(&told.message(answer), &mut urls)).collect();
    assert_eq!(
        shown,
        [expected(&[0]), expected(&[1, 0]), expected(&[2, 1, 0])] as [Vec<String>; 3]
    );
    assert!(told.last < 10, "they have begun anew");
}

#[test]
fn ranges_are_those_of_the_request_alone() {
    let asked: [&[u8]; 3] = [&[1, 2], &[3, 1, 3], &[4]];
    let places = vec![place(0, 0), place(1, 0), place(1, 10), None];
    let batch = answers_together(&asked, vec![records(1), records(2)], places);
    assert_eq!(batch.iter().map(Answer::counts).collect::<Vec<_>>(), [(2, 0), (3, 0), (0, 1)]);
    let shown: Vec<Vec<(String, Vec<u8>)>> = batch
        .into_iter()
        .map(|answer| answer.into_ranges().locs.iter().map(range_hashes).collect())
        .collect();
    let [one, two] = [1, 2].map(|number| links().url(&records(number)));
    assert_eq!(shown[0], [(one.clone(), vec![1]), (two.clone(), vec![2])]);
    assert_eq!(shown[1], [(one, vec![1]), (two, vec![3])], "an address has one range");
    assert_eq!(shown[2], []);
}

fn range_hashes(loc: &DownloadLoc) -> (String, Vec<u8>) {
    let Some(download_loc::Location::HttpGetRange(range)) = &loc.location else {
        panic!("{loc:?}")
    };
    (range.url.clone(), range.ranges.iter().map(|range| range.hash[0]).collect())
}

#[test]
fn each_entry_of_a_request_is_answered() {
    let asked = answer(&[1, 2, 1, 3], vec![records(9)], vec![place(0, 0), None, place(0, 10)]);
    assert_eq!(asked.counts(), (3, 1));
    let message = Advertised::default().message(&asked);
    let locations: Vec<_> = message
        .locations
        .iter()
        .map(|location| (location.request_index, location.offset))
        .collect();
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
            let Some(download_loc::Location::HttpGetRange(range)) = &loc.location else {
                panic!("{loc:?}")
            };
            assert_eq!((&loc.refresh_after, &loc.refresh_request), (&None, &None));
            let ranges = range.ranges.iter();
            ranges
                .map(|r| (r.hash[0], r.offset, r.length, r.dictionary_offset, r.dictionary_length))
                .collect()
        })
        .collect::<Vec<Vec<_>>>();
    assert_eq!(shown, [vec![(1, 0, 10, 0, 0), (3, 10, 10, 0, 0)], vec![(2, 7, 8, 500, 60)]]);
}

/// A request that shares a batch with no other.
#[derive(Debug)]
struct Alone;

impl Batched for Alone {
    fn address_count(&self) -> usize {
        1
    }

    fn goes_with(&self, _first: &Self) -> bool {
        false
    }
}

#[test]
fn the_clients_deadline_ends_a_stream_that_waits() {
    paused().block_on(async {
        let mut headers = MetadataMap::new();
        headers.insert("grpc-timeout", "5S".parse().unwrap());
        let deadline = Deadline::of(&headers, Duration::from_secs(10)).unwrap();
        let begun = tokio::time::Instant::now();
        let requests = stream::pending::<Result<Alone, Refusal>>();
        let mut answers = Answers::new(requests, |batch| ready(Ok(batch)), deadline);
        let ended = answers.next().await.unwrap().unwrap_err();
        assert_eq!(ended.code(), Code::DeadlineExceeded);
        assert!(Duration::from_secs(5) <= begun.elapsed());
        assert!(answers.next().await.is_none());
    });
}
